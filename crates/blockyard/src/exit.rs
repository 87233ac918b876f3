//! Exit codes, in one table. `docs/exit-codes.md` and `--help` repeat it; tests compare them.

use std::fmt::Write;
use std::process::ExitCode;

use api::v1::Code;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// Failed for another reason than those below.
    Failed = 1,
    /// The arguments, the name, the spec, the size or the configuration file cannot be used.
    Usage = 2,
    /// No such device, or the file that the spec names does not exist.
    NotFound = 3,
    /// The name is taken, or something is in use.
    Conflict = 4,
    /// The daemon cannot be reached, or is ending.
    Unreachable = 5,
    /// The kernel or the host cannot do it.
    Unsupported = 6,
    /// No permission.
    Denied = 7,
    /// Not everything stopped in order, or a deadline passed.
    Unfinished = 8,
    /// A limit is reached, or there is no space.
    Exhausted = 9,
}

impl Exit {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 10] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::NotFound,
        Self::Conflict,
        Self::Unreachable,
        Self::Unsupported,
        Self::Denied,
        Self::Unfinished,
        Self::Exhausted,
    ];

    /// The number.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// What it says.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "done",
            Self::Failed => "failed",
            Self::Usage => "wrong usage: arguments, name, spec, size or configuration file",
            Self::NotFound => "not found: the device, or the file that the spec names",
            Self::Conflict => "conflict: the name is taken, or something is in use",
            Self::Unreachable => "the daemon cannot be reached, or is ending",
            Self::Unsupported => "the kernel or the host cannot do it (no ublk, too old)",
            Self::Denied => "no permission",
            Self::Unfinished => "not everything stopped in order, or a deadline passed",
            Self::Exhausted => "a limit is reached, or there is no space",
        }
    }

    /// The exit of several outcomes: the one that all failures share, else [`Exit::Failed`].
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ok, exit) | (exit, Self::Ok) => exit,
            (one, two) if one == two => one,
            _ => Self::Failed,
        }
    }

    /// The part of `--help` that lists them.
    pub(crate) fn help() -> String {
        Self::ALL
            .iter()
            .fold(String::from("Exit codes:"), |mut help, exit| {
                // Writing to a string has no way to fail.
                let _: std::fmt::Result = write!(help, "\n  {}  {}", exit.number(), exit.meaning());
                help
            })
    }
}

impl From<Code> for Exit {
    fn from(code: Code) -> Self {
        match code {
            Code::MalformedRequest
            | Code::InvalidJson
            | Code::RouteNotFound
            | Code::MethodNotAllowed
            | Code::RequestTimeout
            | Code::BodyTooLarge
            | Code::UriTooLong
            | Code::UnsupportedMediaType
            | Code::HeadTooLarge
            | Code::Internal
            | Code::CreateFailed
            | Code::IoFailed
            | Code::InvalidAnswer
            | Code::Unrecognized => Self::Failed,
            Code::InvalidField
            | Code::InvalidName
            | Code::UnknownSpec
            | Code::InvalidSpec
            | Code::InvalidSize
            | Code::SourceInvalid
            | Code::Usage => Self::Usage,
            Code::NotFound | Code::SourceNotFound => Self::NotFound,
            Code::NameTaken
            | Code::Busy
            | Code::SourceInUse
            | Code::Cancelled
            | Code::SocketInUse
            | Code::SocketBlocked => Self::Conflict,
            Code::DaemonUnreachable | Code::ShuttingDown => Self::Unreachable,
            Code::FeatureMissing | Code::UblkMissing | Code::KernelTooOld | Code::KernelRefused => {
                Self::Unsupported
            }
            Code::PeerNotAllowed | Code::PermissionDenied | Code::SourceDenied => Self::Denied,
            Code::StopFailed | Code::DeadlineExceeded => Self::Unfinished,
            Code::LimitReached | Code::NoSpace => Self::Exhausted,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_exit_code_with_its_error_codes() {
        let mut table = String::from("| exit code | meaning | error codes |\n|---|---|---|\n");
        for exit in Exit::ALL {
            let codes: Vec<_> = Code::ALL
                .iter()
                .filter(|code| Exit::from(**code) == exit)
                .map(|code| format!("`{}`", code.as_str()))
                .collect();
            writeln!(
                table,
                "| {} | {} | {} |",
                exit.number(),
                exit.meaning(),
                codes.join(", ")
            )
            .unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
        let documentation = std::fs::read_to_string(path).unwrap();
        assert!(
            documentation.contains(&table),
            "docs/exit-codes.md needs this table:\n{table}"
        );
    }

    #[test]
    fn numbers_count_up_from_zero() {
        let numbers: Vec<_> = Exit::ALL.iter().map(|exit| exit.number()).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<u8>>());
    }

    #[test]
    fn failures_that_agree_keep_their_code() {
        for (one, two, both) in [
            (Exit::Ok, Exit::Ok, Exit::Ok),
            (Exit::Ok, Exit::NotFound, Exit::NotFound),
            (Exit::NotFound, Exit::Ok, Exit::NotFound),
            (Exit::NotFound, Exit::NotFound, Exit::NotFound),
            (Exit::NotFound, Exit::Unfinished, Exit::Failed),
        ] {
            assert_eq!(one.and(two), both);
        }
    }
}
