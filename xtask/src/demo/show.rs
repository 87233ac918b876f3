//! Commands as a reader at a terminal would type them: shown, run, their output shown.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use testvm::quote;

use crate::console::say;

/// Says in one line what comes next.
pub(crate) fn narrate(line: &str) {
    say("");
    say(&format!("# {line}"));
}

/// Runs the command, shows it and its output, and returns the output. Fails when it fails.
pub(crate) fn show(words: &[&str]) -> Result<String> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
    // Programs are shown by their name, whatever directory they were built in.
    let name = Path::new(program).file_name().unwrap_or_default();
    say(&format!(
        "$ {} {}",
        name.to_string_lossy(),
        line.get(1..).unwrap_or_default().join(" ")
    ));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for stream in [&text, String::from_utf8_lossy(&output.stderr).as_ref()] {
        if !stream.trim_end().is_empty() {
            say(stream.trim_end());
        }
    }
    if !output.status.success() {
        bail!("`{}` ended with {}", line.join(" "), output.status);
    }
    Ok(text)
}

/// As [`show`], for a path among the arguments.
pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is no UTF-8", path.display()))
}
