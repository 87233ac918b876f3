//! What is known of a file's holes holds only while nobody else writes to it. Locks do not tell: they bind those who ask. A lease
//! does: the kernel asks for it back before anybody else gets the file open.
//!
//! | who | what happens |
//! |---|---|
//! | opens the file later: loop device, editor, backup | waits until the daemon has given the lease back; from then on holes are read from the file like data |
//! | has it open when the device is created | no lease is given; holes are read from the file from the start |
//! | is on a file system that offers no leases | likewise |
//! | two writers at once | each sees what the other writes, and they may overwrite each other: nothing keeps out a process that does not ask |
//!
//! A program that opens the file and refuses to wait (`O_NONBLOCK`) is told to try again, once. An opener waits 45 s at most
//! (`/proc/sys/fs/lease-break-time`), should the daemon be stopped; then the kernel ends the lease, and holes are wrong until it runs again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use block::Access;
use block::holes::HoleMap;
use reactor::lease::{self, LeaseKind};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The leases of all devices. The signal by which they are called back is the process's.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: Mutex<Vec<Weak<Lease>>>,
    /// Without somebody who listens the signal would kill the process.
    is_watched: bool,
}

/// The lease of one file; given back when dropped.
#[derive(Debug)]
pub(super) struct Lease {
    file: Arc<File>,
    path: PathBuf,
    kind: LeaseKind,
    holes: Arc<HoleMap>,
}

impl Leases {
    /// Catches the signal and answers it for as long as the runtime lives. Call in the runtime's context.
    pub(crate) fn watched() -> io::Result<Arc<Self>> {
        let called_back = signal(SignalKind::io())?;
        let leases = Arc::new(Self {
            held: Mutex::default(),
            is_watched: true,
        });
        tokio::spawn(Arc::clone(&leases).watch(called_back));
        Ok(leases)
    }

    async fn watch(self: Arc<Self>, mut called_back: Signal) {
        while called_back.recv().await.is_some() {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|lease| lease.upgrade().is_some_and(|lease| !lease.answer()));
        }
    }

    /// Takes the lease of an open file; without one its holes are not to be trusted.
    pub(super) fn take(
        &self,
        file: &Arc<File>,
        path: &Path,
        access: Access,
        holes: &Arc<HoleMap>,
    ) -> Option<Arc<Lease>> {
        let lease = self.try_take(file, path, access, holes);
        match lease {
            Ok(Some(lease)) => return Some(lease),
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(path = %path.display(), err = %error, "holes are read from the file: no lease");
            }
        }
        holes.distrust();
        None
    }

    fn try_take(
        &self,
        file: &Arc<File>,
        path: &Path,
        access: Access,
        holes: &Arc<HoleMap>,
    ) -> io::Result<Option<Arc<Lease>>> {
        if !self.is_watched {
            return Ok(None);
        }
        let kind = match access {
            Access::ReadOnly => LeaseKind::Unwritten,
            Access::ReadWrite => LeaseKind::Sole,
        };
        // Until it is on the list nobody answers for it.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        lease::try_take(file, kind)?;
        let lease = Arc::new(Lease {
            file: Arc::clone(file),
            path: path.to_owned(),
            kind,
            holes: Arc::clone(holes),
        });
        held.retain(|lease| lease.strong_count() > 0);
        held.push(Arc::downgrade(&lease));
        Ok(Some(lease))
    }
}

impl Lease {
    /// Gives it back if it was called back; returns whether it was.
    fn answer(&self) -> bool {
        if matches!(lease::is_called_back(&self.file, self.kind), Ok(false)) {
            return false;
        }
        self.end();
        tracing::info!(path = %self.path.display(), "another process opens the file; its holes are read like data from now on");
        true
    }

    fn end(&self) {
        self.holes.distrust();
        // It may have been ended already, by the kernel or the answer.
        let _ = lease::give_back(&self.file);
    }
}

impl Drop for Lease {
    /// The shards may have the file open for longer, and then nobody would answer.
    fn drop(&mut self) {
        self.end();
    }
}
