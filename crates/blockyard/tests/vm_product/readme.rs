//! Promise: a newcomer can follow README.md line by line. Its session is run as it is written, and what it shows is
//! what comes out.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::guest::{binary, on_a_kernel};

const README: &str = include_str!("../../../../README.md");
/// The session's block in README.md.
const BEGIN: &str = "```console\n";
/// Follows the output of a command; holds its exit status.
const MARK: &str = "-- ended with status ";

/// A command and the output that README.md shows; `...` in it stands for anything.
struct Step {
    command: &'static str,
    shown: Vec<&'static str>,
}

fn steps() -> Vec<Step> {
    let session = README
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once("```"));
    let mut steps: Vec<Step> = Vec::new();
    for line in session.unwrap().0.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step {
                command,
                shown: Vec::new(),
            }),
            None => steps.last_mut().unwrap().shown.push(line),
        }
    }
    steps
}

/// A shell that is typed into.
struct Shell {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start(directory: &Path) -> Self {
        let path = format!(
            "{}:{}",
            binary().parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let mut child = Command::new("bash")
            .current_dir(directory)
            .env("PATH", path)
            .env_remove("BLOCKYARD_SOCKET")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut shell = Self { child, output };
        // Everything in one stream, as a terminal shows it.
        shell.type_in("exec 2>&1");
        shell
    }

    /// Runs a command; returns its status and what it wrote.
    fn type_in(&mut self, command: &str) -> (String, Vec<String>) {
        let input = self.child.stdin.as_mut().unwrap();
        // The mark has a line of its own, whether or not the output ends with one.
        writeln!(input, "{command}\nprintf '\\n%s\\n' \"{MARK}$?\"").unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the shell ended: {lines:?}"
            );
            let line = line.trim_end();
            if let Some(status) = line.strip_prefix(MARK) {
                return (status.to_owned(), lines);
            }
            lines.push(line.to_owned());
        }
    }
}

/// Whether the line is as shown, where `...` stands for anything.
fn is_as_shown(line: &str, shown: &str) -> bool {
    let mut parts = shown.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        is_open = part.is_empty();
    }
    rest.is_empty() || is_open
}

/// Asserts that the shown lines come out, in this order; others, such as lines of the log, may be between them.
fn assert_as_shown(step: &Step, lines: &[String]) {
    let mut lines_left = lines.iter();
    for shown in &step.shown {
        let is_there = lines_left.any(|line| is_as_shown(line, shown));
        assert!(
            is_there,
            "`{}` does not show {shown:?}: {lines:#?}",
            step.command
        );
    }
}

#[test]
fn the_session_of_the_readme_works_line_by_line() {
    on_a_kernel(|| {
        let scratch = tempfile::tempdir().unwrap();
        let mut shell = Shell::start(scratch.path());
        let steps = steps();
        assert!(steps.len() >= 12, "{} commands", steps.len());
        for step in &steps {
            println!("$ {}", step.command);
            let (status, lines) = shell.type_in(step.command);
            println!("{}", lines.join("\n"));
            assert_eq!(status, "0", "`{}`", step.command);
            assert_as_shown(step, &lines);
        }
        drop(shell.child.stdin.take());
        assert!(shell.child.wait().unwrap().success());
    });
}

#[test]
fn shown_lines_match_with_gaps() {
    let cases = [
        ("/dev/ublkb0", "/dev/ublkb0", true),
        ("/dev/ublkb0", "/dev/ublkb...", true),
        ("/dev/ublkb0 x", "/dev/ublkb0", false),
        ("a 12 b 7 c", "a ... b ... c", true),
        ("a 12 b 7 d", "a ... b ... c", false),
        ("anything", "...", true),
    ];
    for (line, shown, want) in cases {
        assert_eq!(is_as_shown(line, shown), want, "{line:?} as {shown:?}");
    }
}
