//! Why a call failed, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::v1::{Code, Problem};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing listens on the socket.
    #[error("no daemon listens on {}", .socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// Why connecting failed.
        source: io::Error,
    },
    /// Something else stands at the socket's path.
    #[error("{} is not a socket", .path.display())]
    NotSocket {
        /// What stands there.
        path: PathBuf,
    },
    /// The socket may not be opened by this user.
    #[error("no permission to connect to {}", .socket.display())]
    Denied {
        /// The socket.
        socket: PathBuf,
        /// Why connecting failed.
        source: io::Error,
    },
    /// The answer did not come in time. The request may still be carried out.
    #[error("no answer to {request} on {} within {} s", .socket.display(), .after.as_secs_f32())]
    Deadline {
        /// The socket.
        socket: PathBuf,
        /// Method and path of the request.
        request: String,
        /// The deadline.
        after: Duration,
    },
    /// The connection broke before the whole answer was there.
    #[error("the connection to {} broke during {request}", .socket.display())]
    Broken {
        /// The socket.
        socket: PathBuf,
        /// Method and path of the request.
        request: String,
        /// What the HTTP engine says.
        source: hyper::Error,
    },
    /// What came back is not this interface.
    #[error("what answered on {} is not understood: {reason}", .socket.display())]
    InvalidAnswer {
        /// The socket.
        socket: PathBuf,
        /// What was wrong with it.
        reason: String,
    },
    /// The daemon refused or failed.
    #[error("{0}")]
    Refused(Box<Problem>),
}

impl From<Error> for Problem {
    /// The same error as a problem document: what the daemon said, or what the client found.
    fn from(error: Error) -> Self {
        let (code, detail, advice) = match &error {
            Error::Refused(problem) => return (**problem).clone(),
            Error::Unreachable { source, .. } => (
                Code::DaemonUnreachable,
                format!("{error} ({source})"),
                "start it with blockyard serve, or name its socket with --socket or BLOCKYARD_SOCKET",
            ),
            Error::NotSocket { .. } => (
                Code::SocketBlocked,
                error.to_string(),
                "name the daemon's socket with --socket or BLOCKYARD_SOCKET",
            ),
            Error::Denied { .. } => (
                Code::PermissionDenied,
                error.to_string(),
                "become root or a member of the socket's group",
            ),
            Error::Deadline { .. } => (
                Code::DeadlineExceeded,
                error.to_string(),
                "look at blockyard status; the request may still be carried out",
            ),
            Error::Broken { source, .. } => (
                Code::DaemonUnreachable,
                format!("{error} ({source})"),
                "see whether the daemon still runs, then try again",
            ),
            Error::InvalidAnswer { .. } => (
                Code::InvalidAnswer,
                error.to_string(),
                "make sure that the socket is blockyard's and that client and daemon are of one release",
            ),
        };
        let object = match &error {
            Error::Refused(_) => None,
            Error::Unreachable { socket, .. }
            | Error::NotSocket { path: socket }
            | Error::Denied { socket, .. }
            | Error::Deadline { socket, .. }
            | Error::Broken { socket, .. }
            | Error::InvalidAnswer { socket, .. } => Some(socket.display().to_string()),
        };
        let problem = Self::new(code, detail, advice);
        match object {
            Some(object) => problem.about(object),
            None => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_daemon_names_its_socket_and_how_to_start_it() {
        let problem = Problem::from(Error::Unreachable {
            socket: PathBuf::from("/run/x.sock"),
            source: io::Error::from(io::ErrorKind::NotFound),
        });
        assert_eq!(problem.code, Code::DaemonUnreachable);
        assert!(problem.detail.contains("/run/x.sock"));
        assert!(problem.advice.contains("blockyard serve"));
        assert_eq!(problem.object.as_deref(), Some("/run/x.sock"));
    }

    #[test]
    fn what_the_daemon_said_is_passed_on_unchanged() {
        let said = Problem::new(Code::NameTaken, "a", "b").about("c");
        assert_eq!(Problem::from(Error::Refused(Box::new(said.clone()))), said);
    }
}
