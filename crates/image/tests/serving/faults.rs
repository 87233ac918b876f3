//! What goes wrong below, by chance.

use block::{Status, Step};

/// Which steps fail, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Of writes, in a thousand.
    pub(crate) writes: u32,
    /// Of syncs, in a thousand.
    pub(crate) syncs: u32,
    /// Of reads and fetches, in a thousand.
    pub(crate) reads: u32,
    /// Of punches, in a thousand.
    pub(crate) punches: u32,
    /// So many fetches from now on bring wrong bytes.
    pub(crate) damaged_fetches: u32,
    /// Fetches so far.
    pub(crate) fetches: u32,
}

impl Faults {
    /// Whether a step fails before it does anything.
    pub(crate) fn strike(&self, step: &Step, random: &mut fastrand::Rng) -> Result<(), Status> {
        let (chance, status) = match step {
            Step::Write { .. } | Step::Store { .. } => (self.writes, Status::NoSpace),
            Step::Sync { .. } => (self.syncs, Status::Io),
            Step::Read { .. } | Step::Fetch(_) => (self.reads, Status::Io),
            Step::Punch { .. } => (self.punches, Status::Unsupported),
            Step::Zero { .. } | Step::ZeroRange { .. } | Step::Allocate { .. } => (0, Status::Ok),
        };
        if random.u32(0..1000) < chance {
            return Err(status);
        }
        Ok(())
    }

    /// Flips a bit of what was fetched, if it is time.
    pub(crate) fn damage(&mut self, bytes: &mut [u8]) {
        self.fetches += 1;
        if self.damaged_fetches > 0 && !bytes.is_empty() {
            self.damaged_fetches -= 1;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
        }
    }
}
