//! What goes to standard output and standard error.
//!
//! A result is written to standard output in one piece; a reader that has gone away is no error. A problem is exactly one
//! line on standard error: `blockyard: WHAT: WHY; WHAT TO DO`, or the problem document with `--json`.

use std::io::{self, ErrorKind, Write};

use api::v1::{Code, Problem};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::exit::Exit;

/// How results and problems are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Human,
    /// For programs.
    Json,
}

/// Writes the text to standard output.
pub(crate) fn print(text: &str) -> Result<(), Problem> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(()),
        // Whoever read this has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            let detail = format!("the result cannot be written to standard output: {error}");
            let code = match error.kind() {
                ErrorKind::StorageFull => Code::NoSpace,
                _ => Code::IoFailed,
            };
            Err(Problem::new(
                code,
                detail,
                "see where standard output leads",
            ))
        }
    }
}

/// Writes the document to standard output, indented.
pub(crate) fn print_json<T: Serialize>(document: &T) -> Result<(), Problem> {
    let mut text = serde_json::to_string_pretty(document).map_err(|error| {
        let detail = format!("the result cannot be written as JSON: {error}");
        Problem::new(Code::Internal, detail, "report this as a bug")
    })?;
    text.push('\n');
    print(&text)
}

/// Writes the problem to standard error and says how the process shall end.
pub(crate) fn report(format: Format, what: &str, problem: &Problem) -> Exit {
    let line = line(format, what, problem);
    // There is no better place to say that standard error is gone.
    let _: io::Result<()> = writeln!(io::stderr().lock(), "{line}");
    Exit::from(problem.code)
}

/// A bar on standard error for long work, as `template` has it; hidden unless that is a terminal.
pub(crate) fn progress_bar(format: Format, template: &str) -> ProgressBar {
    if format == Format::Json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn line(format: Format, what: &str, problem: &Problem) -> String {
    match format {
        Format::Human => {
            // An object in a problem may be a file's name, and those may hold anything.
            let what: String = what
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            format!("blockyard: {what}: {problem}")
        }
        Format::Json => serde_json::to_string(problem).unwrap_or_else(|_| problem.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_in_either_format() {
        let problem = Problem::new(Code::NotFound, "no\nsuch device", "look");
        assert_eq!(
            line(Format::Human, "inspect a\nb", &problem),
            "blockyard: inspect a b: no such device; look"
        );
        let json = line(Format::Json, "inspect", &problem);
        assert_eq!(json.lines().count(), 1);
        assert_eq!(serde_json::from_str::<Problem>(&json).unwrap(), problem);
    }
}
