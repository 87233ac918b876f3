//! What the tests stand on: a daemon of their own, tools, files with a known content, a look at what is left behind.

mod daemon;
mod hung;
mod leftovers;
mod load;
mod patience;
mod pattern;
mod threads;
mod tools;

use std::sync::{Mutex, PoisonError};

pub(crate) use daemon::{Daemon, Ended, Setup, binary};
pub(crate) use hung::{Hang, Hanging, HungStore};
pub(crate) use leftovers::{KernelExpects, Leftovers, char_devices};
pub(crate) use load::{DirectIo, Load};
pub(crate) use patience::{LIMIT, eventually, poll_until};
pub(crate) use pattern::Pattern;
pub(crate) use tools::{run, sh, succeeds};

/// Daemons share /dev/blockyard and the kernel's list of devices: where tests run as threads, they take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Runs the body of the calling test on each kernel; it must leave the kernel as it found it.
pub(crate) fn on_a_kernel(body: impl FnOnce()) {
    testvm::in_guest(|| {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let before = Leftovers::now();
        body();
        before.assert_nothing_more();
    });
}
