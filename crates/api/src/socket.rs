//! Takes possession of the socket's path: one daemon per path, decided without a race.
//!
//! ```text
//!   lock PATH.lock --held--> in use
//!     |
//!   look at PATH --not a socket--> blocked        --something answers--> in use
//!     |  (nothing, or a stale socket: removed)
//!   bind, chmod 0660, listen
//! ```
//!
//! The lock decides between daemons; connecting decides against a listener that takes no lock. A socket that is bound but
//! does not listen refuses every client, and its mode is set in between: no client can connect before. The lock file stays
//! when the daemon ends, since removing it would open a race; the socket is removed, if it is still ours.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::v1::{Code, Problem};

/// Owner and group may connect; who else tries is refused by the kernel, and again by the server.
const SOCKET_MODE: u32 = 0o660;
/// Connections that wait to be accepted. The kernel caps it at net.core.somaxconn, 4096 by default.
const BACKLOG: i32 = 4096;

/// Why the path could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another daemon listens there, or is about to.
    #[error("socket {} is in use by another daemon", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket stands there.
    #[error("{} exists and is not a socket", .path.display())]
    Blocked {
        /// What stands there.
        path: PathBuf,
    },
    /// The kernel takes at most 107 bytes.
    #[error("the path of the socket {} is too long", .path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{op} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        op: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl From<BindError> for Problem {
    fn from(error: BindError) -> Self {
        let (code, advice) = match &error {
            BindError::InUse { .. } => (
                Code::SocketInUse,
                "see it with `blockyard status`, or give a second daemon both a --socket and a --state-dir of its own",
            ),
            BindError::Blocked { .. } => (
                Code::SocketBlocked,
                "move it away, or choose another path with --socket",
            ),
            BindError::PathTooLong { .. } => (
                Code::Usage,
                "choose a path of at most 107 bytes with --socket",
            ),
            BindError::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => (
                    Code::PermissionDenied,
                    "run the daemon as a user that may write there, or choose another path with --socket",
                ),
                io::ErrorKind::StorageFull => (Code::NoSpace, "free space on that file system"),
                _ => (
                    Code::IoFailed,
                    "check the path, or choose another one with --socket",
                ),
            },
        };
        let path = match &error {
            BindError::InUse { path }
            | BindError::Blocked { path }
            | BindError::PathTooLong { path }
            | BindError::Io { path, .. } => path.display().to_string(),
        };
        Self::new(code, error.to_string(), advice).about(path)
    }
}

/// A listening socket at a path that is ours. Dropping it removes the socket and then lets go of the lock.
#[derive(Debug)]
pub struct BoundSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket, so that a successor's socket is never removed.
    identity: (u64, u64),
    group: u32,
    /// Held until the end; declared last, so that it is let go of last.
    _lock: File,
}

impl BoundSocket {
    /// Takes the path: creates the parent directory (0755) if it is missing, replaces a stale socket. Blocks for a few
    /// system calls.
    ///
    /// # Errors
    ///
    /// See [`BindError`].
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let address = SocketAddrUnix::new(path).map_err(|errno| match errno {
            Errno::NAMETOOLONG => BindError::PathTooLong {
                path: path.to_owned(),
            },
            errno => failed("name the socket", path, errno),
        })?;
        create_parent(path)?;
        let lock = lock(path)?;
        clear_stale(path, &address)?;
        let fd = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|errno| failed("create the socket", path, errno))?;
        match rustix::net::bind(&fd, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                return Err(BindError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(errno) => return Err(failed("bind the socket", path, errno)),
        }
        listen(fd, path, lock)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The group whose members may connect.
    #[must_use]
    pub const fn group(&self) -> u32 {
        self.group
    }

    /// A second handle of the listener, non-blocking.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left.
    pub(crate) fn try_clone_listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), err = %error, "socket not removed");
        }
    }
}

fn failed(op: &'static str, path: &Path, source: impl Into<io::Error>) -> BindError {
    BindError::Io {
        op,
        path: path.to_owned(),
        source: source.into(),
    }
}

fn create_parent(path: &Path) -> Result<(), BindError> {
    let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(parent)
        .map_err(|error| failed("create the directory", parent, error))
}

fn lock(path: &Path) -> Result<File, BindError> {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&lock_path)
        .map_err(|error| failed("open the lock file", &lock_path, error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(BindError::InUse {
            path: path.to_owned(),
        }),
        Err(errno) => Err(failed("lock the file", &lock_path, errno)),
    }
}

fn clear_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", path, error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::Blocked {
            path: path.to_owned(),
        });
    }
    // Non-blocking, because a listener with a full backlog would make a blocking connect wait for ever.
    let probe = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map_err(|errno| failed("create a socket to probe", path, errno))?;
    match rustix::net::connect(&probe, address) {
        Ok(()) | Err(Errno::AGAIN) => Err(BindError::InUse {
            path: path.to_owned(),
        }),
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).map_err(|error| failed("remove the stale socket", path, error))
        }
        Err(Errno::NOENT) => Ok(()),
        // A socket of another type, a datagram log socket for example, is somebody's.
        Err(Errno::PROTOTYPE) => Err(BindError::Blocked {
            path: path.to_owned(),
        }),
        Err(errno) => Err(failed("probe the socket", path, errno)),
    }
}

fn listen(fd: OwnedFd, path: &Path, lock: File) -> Result<BoundSocket, BindError> {
    let metadata =
        fs::symlink_metadata(path).map_err(|error| failed("look at the socket", path, error))?;
    let socket = BoundSocket {
        identity: (metadata.dev(), metadata.ino()),
        group: metadata.gid(),
        listener: UnixListener::from(fd),
        path: path.to_owned(),
        _lock: lock,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))
        .map_err(|error| failed("set the mode of", path, error))?;
    rustix::net::listen(&socket.listener, BACKLOG)
        .map_err(|errno| failed("listen on", path, errno))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn code(result: Result<BoundSocket, BindError>) -> Code {
        Problem::from(result.expect_err("must be refused")).code
    }

    #[test]
    fn the_directory_is_made_and_the_mode_is_set() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a/b/daemon.sock");
        let socket = BoundSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_second_daemon_is_refused_and_the_first_keeps_its_socket() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("daemon.sock");
        let first = BoundSocket::bind(&path).unwrap();
        assert_eq!(code(BoundSocket::bind(&path)), Code::SocketInUse);
        UnixStream::connect(first.path()).unwrap();
    }

    #[test]
    fn a_listener_that_takes_no_lock_is_respected() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("daemon.sock");
        let _other = UnixListener::bind(&path).unwrap();
        assert_eq!(code(BoundSocket::bind(&path)), Code::SocketInUse);
        assert!(path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("daemon.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let _socket = BoundSocket::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert_eq!(code(BoundSocket::bind(&file)), Code::SocketBlocked);
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        assert_eq!(code(BoundSocket::bind(scratch.path())), Code::SocketBlocked);
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(code(BoundSocket::bind(&link)), Code::SocketBlocked);
    }

    #[test]
    fn a_path_too_long_and_a_blocked_directory_are_named() {
        let scratch = tempfile::tempdir().unwrap();
        let long = scratch.path().join("x".repeat(120));
        assert_eq!(code(BoundSocket::bind(&long)), Code::Usage);
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(
            code(BoundSocket::bind(&file.join("daemon.sock"))),
            Code::IoFailed
        );
    }

    #[test]
    fn a_successors_socket_is_not_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("daemon.sock");
        let first = BoundSocket::bind(&path).unwrap();
        fs::rename(&path, scratch.path().join("moved")).unwrap();
        let _successor = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
