//! Programs of the host: finding them, running them to their end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, ErrorKind};

/// Directories that an ordinary user's PATH lacks and that hold what is needed all the same.
const SYSTEM_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// How much of a failed program's output an error carries: the reason is at the end.
const TAIL_CHARS: usize = 1500;

/// Where the program is, by PATH and the system's own directories.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

pub(crate) fn is_executable(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}

/// A command for the program; an error that names the package-installing step when it is missing.
pub(crate) fn command(name: &str) -> Result<Command, Error> {
    let program = find_program(name).ok_or_else(|| {
        Error::new(
            ErrorKind::Program,
            "find a program",
            format!("{name} is not installed; `cargo xtask test` as root installs what is needed"),
        )
    })?;
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env("LC_ALL", "C");
    Ok(command)
}

/// Runs the command and returns what it wrote to its standard output.
pub(crate) fn output(command: &mut Command, op: &'static str) -> Result<Vec<u8>, Error> {
    let output = command
        .output()
        .map_err(|error| Error::io(op, describe(command), error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(
        ErrorKind::Program,
        op,
        format!(
            "`{}` ended with {}: {}",
            describe(command),
            output.status,
            tail(stderr.trim())
        ),
    ))
}

/// As [`output`], as text.
pub(crate) fn output_text(command: &mut Command, op: &'static str) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&output(command, op)?).into_owned())
}

fn describe(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last part of a long text.
pub(crate) fn tail(text: &str) -> &str {
    let skip = text.chars().count().saturating_sub(TAIL_CHARS);
    text.char_indices()
        .nth(skip)
        .and_then(|(at, _)| text.get(at..))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_reported_with_its_own_words() {
        let mut command = command("sh").unwrap();
        command.args(["-c", "echo out; echo why >&2; exit 3"]);
        let error = output(&mut command, "try").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Program);
        assert!(error.to_string().contains("exit status: 3: why"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = command("no-such-program-here").unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"));
    }

    #[test]
    fn the_tail_keeps_the_end_and_respects_characters() {
        let text = "ä".repeat(TAIL_CHARS + 5) + "end";
        assert_eq!(tail(&text).chars().count(), TAIL_CHARS);
        assert!(tail(&text).ends_with("end"));
        assert_eq!(tail("short"), "short");
    }
}
