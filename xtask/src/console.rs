//! What a developer sees: lines, stages with their time, output of other programs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use testvm::Deadline;

/// Prints one line.
#[expect(
    clippy::print_stdout,
    reason = "this is where the developer tasks print"
)]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Prints one line of error.
#[expect(
    clippy::print_stderr,
    reason = "this is where the developer tasks print"
)]
pub(crate) fn complain(line: &str) {
    eprintln!("{line}");
}

/// Standard output as a sink for a guest's live output.
pub(crate) fn output() -> impl Write {
    std::io::stdout()
}

/// Runs a stage between two lines that name it and tell its time.
pub(crate) fn stage<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    say(&format!("==> {name}"));
    let clock = Deadline::after(Duration::MAX);
    let result = work();
    let outcome = if result.is_ok() { "done" } else { "FAILED" };
    say(&format!(
        "<== {name}: {outcome} after {:.1} s",
        clock.elapsed().as_secs_f64()
    ));
    result
}

/// Runs a program, shows what it writes as it writes it, and hands every line to `see` too.
pub(crate) fn tee(command: &mut Command, mut see: impl FnMut(&str)) -> Result<ExitStatus> {
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .stdout(writer.try_clone().context("clone a pipe")?)
        .stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("start {program}"))?;
    // The command keeps its ends of the pipe; without this the reader would never see the end.
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.with_context(|| format!("read what {program} writes"))?;
        let line = String::from_utf8_lossy(&line);
        say(&line);
        see(&line);
    }
    child.wait().with_context(|| format!("wait for {program}"))
}
