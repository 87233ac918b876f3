//! A child process that cannot outlive its owner, with waits that have a deadline.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::program;

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The child ended.
    Ended(ExitStatus),
    /// The deadline passed first; the child still runs.
    DeadlinePassed,
}

/// A running child. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    pidfd: OwnedFd,
}

impl Child {
    /// Starts the command.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(command: &mut Command) -> Result<Self, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .spawn()
            .map_err(|error| Error::io("start a program", &name, error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| {
            Error::new(
                ErrorKind::Program,
                "start a program",
                format!("{name} has no pid"),
            )
        })?;
        // The child is not reaped yet, so the number cannot belong to another process.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|error| Error::io("watch a program", &name, error))?;
        Ok(Self { child, pidfd })
    }

    /// Starts a program of the host that the kernel kills should this process die, however it dies.
    pub(crate) fn spawn_tied(
        program: &str,
        set_up: impl FnOnce(&mut Command),
    ) -> Result<Self, Error> {
        let mut command = program::command("setpriv")?;
        command.args(["--pdeathsig", "KILL", "--", program]);
        set_up(&mut command);
        Self::spawn(&mut command)
    }

    /// The child's output, if it was asked for with [`std::process::Stdio::piped`]; once.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The child's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Becomes readable when the child ends.
    pub(crate) fn end(&self) -> impl AsFd + '_ {
        self.pidfd.as_fd()
    }

    /// Waits for the end of the child.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait(&mut self, deadline: Deadline) -> Result<Waited, Error> {
        loop {
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let left = deadline.remaining();
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) => return Ok(Waited::DeadlinePassed),
                Ok(_) => {
                    return self
                        .child
                        .wait()
                        .map(Waited::Ended)
                        .map_err(|error| Error::io("wait for a program", self.id(), error));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::io("wait for a program", self.id(), error)),
            }
        }
    }

    /// Sends a signal. A child that has ended already is no error.
    ///
    /// # Errors
    /// The system refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(Error::io("signal a program", self.id(), error)),
        }
    }

    /// Lets the child go on its own: for one that the kernel holds and that no signal ends.
    pub fn abandon(self) {
        // Dropping would wait for it for ever; the process table entry is the price.
        std::mem::forget(self);
    }

    /// Kills the child and waits for its end.
    pub fn kill(&mut self) {
        // Fails only when the child has ended and was waited for; nothing is left to do then.
        let _ = self.child.kill();
        // As above.
        let _ = self.child.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sh(script: &str) -> Child {
        Child::spawn_tied("sh", |command| {
            command.args(["-c", script]);
        })
        .unwrap()
    }

    #[test]
    fn an_end_is_seen_with_its_status() {
        let waited = sh("exit 7")
            .wait(Deadline::after(Duration::from_secs(60)))
            .unwrap();
        assert!(matches!(waited, Waited::Ended(status) if status.code() == Some(7)));
    }

    #[test]
    fn a_deadline_passes_and_dropping_kills() {
        let mut child = sh("exec sleep 1000");
        let pid = child.id();
        let waited = child
            .wait(Deadline::after(Duration::from_millis(50)))
            .unwrap();
        assert_eq!(waited, Waited::DeadlinePassed);
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn signals_reach_the_child_and_are_harmless_after_its_end() {
        let mut child = sh("exec sleep 1000");
        child.signal(Signal::TERM).unwrap();
        let waited = child
            .wait(Deadline::after(Duration::from_secs(60)))
            .unwrap();
        assert!(matches!(waited, Waited::Ended(status) if !status.success()));
        child.signal(Signal::TERM).unwrap();
    }
}
