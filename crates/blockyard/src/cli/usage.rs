//! Wrong usage as one line, like every other problem; help and version as they are.

use std::ffi::{OsStr, OsString};

use api::v1::{Code, Problem};
use clap::CommandFactory;
use clap::error::ErrorKind;

use super::Cli;
use crate::exit::Exit;
use crate::output::{self, Format};

/// Prints what the parser has to say.
pub(crate) fn answer(error: &clap::Error) -> Exit {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return match output::print(&error.render().to_string()) {
            Ok(()) => Exit::Ok,
            Err(problem) => output::report(Format::Human, "help", &problem),
        };
    }
    // The arguments were not understood, so the wish for JSON can only be looked for.
    let wants_json = std::env::args_os().any(|argument| argument == OsStr::new("--json"));
    let format = if wants_json {
        Format::Json
    } else {
        Format::Human
    };
    output::report(format, "usage", &problem(error, &help(std::env::args_os())))
}

/// Where help is: that of the subcommand, once there is one.
fn help(arguments: impl Iterator<Item = OsString>) -> String {
    let mut arguments = arguments.skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--socket" || argument == "--timeout" {
            // The word that follows is its value.
            arguments.next();
        } else if !argument.as_encoded_bytes().starts_with(b"-") {
            return match Cli::command().find_subcommand(&argument) {
                Some(command) => format!("see blockyard {} --help", command.get_name()),
                None => break,
            };
        }
    }
    "see blockyard --help".to_owned()
}

fn problem(error: &clap::Error, help: &str) -> Problem {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Problem::new(Code::Usage, "no command is given", help);
    }
    let text = error.render().to_string();
    // Paragraphs: what is wrong, maybe tips, the usage line, where to find help.
    let mut paragraphs = text.split("\n\n").map(|paragraph| {
        paragraph
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ")
    });
    let detail = paragraphs.next().unwrap_or_default();
    let detail = detail.strip_prefix("error: ").unwrap_or(&detail);
    let tip =
        paragraphs.find_map(|paragraph| paragraph.trim().strip_prefix("tip: ").map(str::to_owned));
    let advice = match tip {
        Some(tip) => format!("{tip}, or {help}"),
        None => help.to_owned(),
    };
    Problem::new(Code::Usage, detail, advice)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn each_mistake_is_one_line_that_names_it() {
        for (arguments, word) in [
            (vec!["create"], "<NAME> <SPEC>"),
            (vec!["create", "a", "null:1M", "--size", "8GB"], "8GB"),
            (vec!["create", "a", "null:1M", "--queues", "65"], "65"),
            (vec!["create", "", "null:1M"], "<NAME>"),
            (vec!["inspect", ""], "<NAME>"),
            (vec!["remove", ""], "NAME"),
            (vec!["remove"], "--all"),
            (vec!["remove", "a", "--all"], "cannot be used with"),
            (vec!["frobnicate"], "frobnicate"),
            (vec!["list", "--jsno"], "--jsno"),
            (vec!["serve", "--shards", "0"], "--shards"),
            (vec![], "command"),
        ] {
            let error = Cli::try_parse_from(["blockyard"].into_iter().chain(arguments.clone()))
                .expect_err("must be refused");
            let problem = problem(&error, "see blockyard --help");
            let line = problem.to_string();
            assert!(line.contains(word), "{arguments:?}: {line}");
            assert!(!line.contains("Usage:") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn the_advice_is_the_help_of_the_command() {
        for (arguments, advice) in [
            ("blockyard create --qeues 2", "see blockyard create --help"),
            (
                "blockyard --json --timeout 3 list x",
                "see blockyard list --help",
            ),
            (
                "blockyard --socket list serve",
                "see blockyard serve --help",
            ),
            ("blockyard frobnicate list", "see blockyard --help"),
            ("blockyard", "see blockyard --help"),
        ] {
            assert_eq!(help(arguments.split(' ').map(OsString::from)), advice);
        }
    }
}
