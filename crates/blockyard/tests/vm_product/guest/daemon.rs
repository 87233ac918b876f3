//! A daemon of the test's own, in a scratch directory of its own, and commands to it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use testvm::{Child, Deadline, Waited};

use super::patience::{LIMIT, eventually};
use super::threads::Threads;
use super::tools::Ran;

/// Requests at once, where many are made.
const CLIENTS: usize = 8;

/// How to start a daemon.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    /// Words before the program, such as those of setpriv.
    pub(crate) prefix: Vec<String>,
    /// Arguments behind `serve`.
    pub(crate) arguments: Vec<String>,
    /// The content of a configuration file.
    pub(crate) config: Option<String>,
    /// Where the journal is; else in the scratch directory.
    pub(crate) state_dir: Option<PathBuf>,
}

/// A running daemon. Dropped, it is told to end and waited for: killed, it would leave devices whose I/O waits for ever.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    scratch: TempDir,
    socket: PathBuf,
}

/// How a daemon ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit code; none when a signal ended it.
    pub(crate) code: Option<i32>,
    /// From the last signal to its end.
    pub(crate) elapsed: Duration,
    /// All it wrote.
    pub(crate) log: String,
}

/// The binary under test.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("BLOCKYARD_BIN")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_blockyard").into())
        .into()
}

impl Setup {
    /// Configured by this file.
    pub(crate) fn configured(config: &str) -> Self {
        Self {
            config: Some(config.to_owned()),
            ..Self::default()
        }
    }

    /// With these arguments.
    pub(crate) fn with_arguments(arguments: &[&str]) -> Self {
        Self {
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Starts it and waits until it answers.
    pub(crate) fn start(&self) -> Daemon {
        self.start_in(tempfile::tempdir().unwrap())
    }

    /// As [`Setup::start`], in a directory that an earlier daemon has left.
    pub(crate) fn start_in(&self, scratch: TempDir) -> Daemon {
        let socket = scratch.path().join("blockyard.sock");
        let log = log_path(scratch.path());
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = self.command(scratch.path());
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let mut daemon = Daemon {
            child: Child::spawn(&mut command).unwrap(),
            scratch,
            socket,
        };
        eventually("the daemon answers", || {
            if let Waited::Ended(status) =
                daemon.child.wait(Deadline::after(Duration::ZERO)).unwrap()
            {
                panic!("the daemon ended with {status}: {}", daemon.log());
            }
            (daemon.client(&["status"]).code == 0).then_some(())
        });
        daemon
    }

    /// Runs a daemon that must not come up; for those that are refused.
    pub(crate) fn run_in(&self, scratch: &Path) -> Ran {
        Ran::of(self.command(scratch))
    }

    fn command(&self, scratch: &Path) -> Command {
        let program = binary();
        let mut words = self.prefix.iter().map(String::as_str);
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(program);
                command
            }
            None => Command::new(program),
        };
        let state = scratch.join("state");
        command
            .arg("serve")
            .arg("--socket")
            .arg(scratch.join("blockyard.sock"))
            .arg("--state-dir")
            .arg(self.state_dir.as_ref().unwrap_or(&state))
            .args(&self.arguments)
            .env_remove("BLOCKYARD_SOCKET");
        if let Some(config) = &self.config {
            let path = scratch.join("blockyard.toml");
            fs::write(&path, config).unwrap();
            command.arg("--config").arg(path);
        }
        command
    }
}

fn log_path(scratch: &Path) -> PathBuf {
    scratch.join("daemon.log")
}

impl Daemon {
    /// One with nothing special about it.
    pub(crate) fn start() -> Self {
        Setup::default().start()
    }

    /// A path in the scratch directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A sparse file of that many MiB.
    pub(crate) fn file(&self, name: &str, mib: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(mib << 20).unwrap();
        path
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a client command.
    pub(crate) fn client(&self, words: &[&str]) -> Ran {
        self.client_as(&[], words)
    }

    /// Runs a client command behind other words, such as those of setpriv.
    pub(crate) fn client_as(&self, prefix: &[&str], words: &[&str]) -> Ran {
        let program = binary();
        let mut command = match prefix {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.args(words).env("BLOCKYARD_SOCKET", &self.socket);
        Ran::of(command)
    }

    /// Runs a client command, which must succeed without a word on standard error.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let ran = self.client(words);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:#?}");
        ran.stdout
    }

    /// Runs a client command with `--json`, which must succeed.
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let words = [&["--json"], words].concat();
        serde_json::from_str(&self.ok(&words)).unwrap()
    }

    /// Asks over the socket, without a process of its own: under emulation, starting a client takes longer than a device.
    pub(crate) fn see(&self, path: &str) -> Value {
        let (status, answer) = request(&self.socket, "GET", path, "");
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Creates a device; returns its path.
    pub(crate) fn create(&self, name: &str, spec: &str) -> PathBuf {
        self.put(name, &json!({ "spec": spec }))
    }

    /// Creates a device by the command line, with further options; returns its path.
    pub(crate) fn create_with(&self, name: &str, spec: &str, options: &[&str]) -> PathBuf {
        let words = [&["create", name, spec], options].concat();
        existing(self.ok(&words).trim())
    }

    /// Creates a device from a new sparse file of that many MiB; returns its path.
    pub(crate) fn create_sparse(&self, name: &str, mib: u64) -> PathBuf {
        let file = self.file(&format!("{name}.img"), mib);
        self.create(name, &format!("raw:{}", file.display()))
    }

    /// Creates the devices `dev<from>` to `dev<to>` from one body, [`CLIENTS`] at a time.
    pub(crate) fn create_many(&self, from: usize, to: usize, body: &Value) {
        let next = AtomicUsize::new(from);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index > to {
                            return;
                        }
                        self.put(&format!("dev{index}"), body);
                    }
                });
            }
        });
    }

    fn put(&self, name: &str, body: &Value) -> PathBuf {
        let path = format!("/v1/devices/{name}");
        let (status, answer) = request(&self.socket, "PUT", &path, &body.to_string());
        assert!(status == 200 || status == 201, "{name}: {status} {answer}");
        existing(answer["path"].as_str().unwrap())
    }

    /// The names of its devices.
    pub(crate) fn names(&self) -> Vec<String> {
        let list = self.see("/v1/devices");
        let devices = list["devices"].as_array().unwrap();
        devices
            .iter()
            .map(|device| device["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// All it has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(log_path(self.scratch.path())).unwrap()
    }

    /// Its open files.
    pub(crate) fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    /// Its threads, one number each.
    pub(crate) fn threads(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks
            .map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect()
    }

    /// What its threads are called now. One that ends meanwhile is left out.
    pub(crate) fn threads_by_name(&self) -> Threads {
        let name = |task: u32| fs::read_to_string(format!("/proc/{}/task/{task}/comm", self.pid()));
        let names = self
            .threads()
            .into_iter()
            .filter_map(|task| name(task).ok());
        Threads::new(names.collect())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.child.signal(signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, deadline: Deadline) -> Option<ExitStatus> {
        match self.child.wait(deadline).unwrap() {
            Waited::Ended(status) => Some(status),
            Waited::DeadlinePassed => None,
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate(self) -> Ended {
        self.end_by(Signal::TERM)
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end_by(mut self, signal: Signal) -> Ended {
        let clock = Deadline::after(LIMIT);
        self.signal(signal);
        let Some(status) = self.wait(clock) else {
            panic!("the daemon does not end: {}", self.log());
        };
        Ended {
            code: status.code(),
            elapsed: clock.elapsed(),
            log: self.log(),
        }
    }

    /// SIGTERM; everything must go in order and without a complaint.
    pub(crate) fn stop(self) {
        let ended = self.terminate();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        for word in [" ERROR ", " WARN ", "panicked"] {
            assert!(!ended.log.contains(word), "{}", ended.log);
        }
    }

    /// SIGKILL, as a crash would; returns the directory for the next daemon.
    pub(crate) fn crash(mut self) -> TempDir {
        self.child.kill();
        // Dropping the rest stops nothing any more.
        std::mem::replace(&mut self.scratch, tempfile::tempdir().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Errors mean that it has ended, as after a test that went well. A second signal hurries one that waits for I/O.
        for _ in 0..2 {
            // As said.
            let _ = self.child.signal(Signal::TERM);
            if self
                .child
                .wait(Deadline::after(LIMIT))
                .is_ok_and(|waited| waited != Waited::DeadlinePassed)
            {
                return;
            }
        }
    }
}

fn existing(path: &str) -> PathBuf {
    let path = PathBuf::from(path);
    assert!(path.exists(), "{}", path.display());
    path
}

/// One HTTP request on a connection of its own: status and JSON.
fn request(socket: &Path, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}
