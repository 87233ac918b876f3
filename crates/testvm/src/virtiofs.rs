//! A directory of the host for the guest: virtiofsd behind a socket.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::child::Child;
use crate::error::{Error, ErrorKind};
use crate::host::VIRTIOFSD_FILES;
use crate::program::is_executable;

/// How the guest may cache what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// For ever: for directories that do not change while the machine runs.
    Always,
    /// Checked at each open: for directories that both sides write.
    Auto,
}

/// A directory that is served until this is dropped.
#[derive(Debug)]
pub(crate) struct SharedDir {
    _server: Child,
    socket: PathBuf,
}

impl SharedDir {
    /// Serves `dir` at the socket, which must not exist. The socket listens before the server runs, so that there is
    /// nothing to wait for.
    pub(crate) fn serve(dir: &Path, socket: PathBuf, caching: Caching) -> Result<Self, Error> {
        let listener = UnixListener::bind(&socket)
            .map_err(|error| Error::io("bind a socket", socket.display(), error))?;
        let program = VIRTIOFSD_FILES
            .iter()
            .find(|file| is_executable(Path::new(file)))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Program,
                    "serve a directory to the guest",
                    "virtiofsd is not installed",
                )
            })?;
        let server = Child::spawn_tied(program, |command| {
            command
                .args(arguments(program, dir, caching))
                .stdin(Stdio::from(OwnedFd::from(listener)))
                .stdout(Stdio::null())
                .stderr(Stdio::null());
        })?;
        Ok(Self {
            _server: server,
            socket,
        })
    }

    /// Where QEMU connects.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

/// The server's arguments; the listening socket is its standard input.
fn arguments(program: &str, dir: &Path, caching: Caching) -> Vec<String> {
    let cache = match caching {
        Caching::Always => "always",
        Caching::Auto => "auto",
    };
    let dir = dir.display();
    // The C server inside QEMU 7.2 and the separate one in Rust share no option but --fd. `chroot` as sandbox: the
    // namespaces of the default are not to be had in containers.
    let rest = if program.ends_with("qemu/virtiofsd") {
        vec![
            "-o".to_owned(),
            format!("source={dir}"),
            "-o".to_owned(),
            format!("cache={cache}"),
            "-o".to_owned(),
            "sandbox=chroot".to_owned(),
        ]
    } else {
        vec![
            format!("--shared-dir={dir}"),
            format!("--cache={cache}"),
            "--sandbox=chroot".to_owned(),
            // A directory that is announced as a mount point is remote to overlayfs: nothing can be mounted on it.
            "--no-announce-submounts".to_owned(),
            "--log-level=off".to_owned(),
        ]
    };
    std::iter::once("--fd=0".to_owned()).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_get_the_socket_the_directory_and_the_sandbox() {
        for program in VIRTIOFSD_FILES {
            let line = arguments(program, Path::new("/d"), Caching::Always).join(" ");
            for part in ["--fd=0", "=/d", "cache=always", "sandbox=chroot"] {
                assert!(line.contains(part), "{line}");
            }
        }
    }
}
