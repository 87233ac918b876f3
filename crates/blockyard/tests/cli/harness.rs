//! A daemon in a thread of the test, and the binary beside it.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use api::server::{Limits, Server};
use api::socket::BoundSocket;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::memory::Memory;

/// A daemon that serves devices in memory.
pub(crate) struct Daemon {
    pub(crate) scratch: TempDir,
    pub(crate) socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a run of the binary left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("daemon.sock");
        let bound = BoundSocket::bind(&socket).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let server = Server::new(bound, Arc::new(Memory::new()), Limits::default());
            runtime
                .block_on(server.run(async {
                    // A dropped sender stops the server too.
                    let _ = stopped.await;
                }))
                .unwrap();
        });
        Self {
            scratch,
            socket,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Runs the binary against this daemon.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        run(self.command(arguments))
    }

    /// The binary, with its socket from the environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = blockyard(arguments);
        command
            .env("BLOCKYARD_SOCKET", &self.socket)
            .current_dir(self.scratch.path());
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The binary without a socket.
pub(crate) fn blockyard(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command
        .args(arguments)
        .env_remove("BLOCKYARD_SOCKET")
        .stdin(Stdio::null());
    command
}

pub(crate) fn run(mut command: Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Run {
    /// Asserts success without a word on standard error, and gives back standard output.
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:?}");
        self.stdout
    }

    /// Asserts that exit code, nothing on standard output, and one line on standard error in the agreed form.
    pub(crate) fn refused(self, code: i32) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{self:?}");
        let lines: Vec<_> = self.stderr.lines().collect();
        let [line] = lines[..] else {
            panic!("one line is wanted: {self:?}")
        };
        let rest = line
            .strip_prefix("blockyard: ")
            .unwrap_or_else(|| panic!("{line}"));
        assert!(rest.contains(": ") && rest.contains("; "), "{line}");
        line.to_owned()
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
