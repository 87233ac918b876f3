//! Commands, as a user would type them.

use std::process::{Command, Stdio};

/// What a command left.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The command, for messages.
    pub(crate) line: String,
    /// Its exit status; 128 + N when signal N ended it.
    pub(crate) code: i32,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

/// Runs the command to its end.
pub(crate) fn run(words: &[&str]) -> Ran {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    Ran::of(command)
}

/// Runs the command, which must succeed; returns its standard output.
pub(crate) fn succeeds(words: &[&str]) -> String {
    run(words).ok()
}

/// Runs the shell script, each of whose commands must succeed; returns its standard output.
pub(crate) fn sh(script: &str) -> String {
    run(&["bash", "-euo", "pipefail", "-c", script]).ok()
}

impl Ran {
    /// Runs the command to its end.
    pub(crate) fn of(mut command: Command) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let line = words.join(" ");
        let output = command
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        let status = output.status;
        Self {
            line,
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts success; returns standard output.
    pub(crate) fn ok(self) -> String {
        assert_eq!(
            self.code, 0,
            "{}\n{:.2000}\n{:.2000}",
            self.line, self.stdout, self.stderr
        );
        self.stdout
    }

    /// Asserts that exit code, nothing on standard output, and exactly one line on standard error that names what
    /// failed, why, and what to do, with these words; returns the line.
    pub(crate) fn refused(self, code: i32, words: &[&str]) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{self:#?}");
        let mut lines = self.stderr.lines();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            panic!("exactly one line is wanted: {self:#?}")
        };
        let is_well_formed = line
            .strip_prefix("blockyard: ")
            .is_some_and(|rest| rest.contains(": ") && rest.contains("; "));
        assert!(is_well_formed, "{line}");
        for word in words {
            assert!(line.contains(word), "{word:?} is not in: {line}");
        }
        line.to_owned()
    }
}
