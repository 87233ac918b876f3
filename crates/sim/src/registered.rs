//! Reads into what the driver has registered. They take effect when the ring takes them, and never wait.
//!
//! Where they would, or for any other reason, they fail, perhaps after some of the data is overwritten: whoever counts a failed
//! read as done shows a client bytes that no disk ever held.

use std::rc::Rc;

use crate::file::Node;
use crate::kernel::Kernel;
use crate::operation::{RegisteredRead, roll};
use crate::pattern::UNIT;

/// Why such a read can fail: EINTR, EIO, EAGAIN, EFAULT, EINVAL, EOPNOTSUPP.
const ERRNOS: [i32; 6] = [4, 5, 11, 14, 22, 95];

/// What a failed read leaves; no word of it is a valid pattern.
const JUNK: u8 = 0x5c;

impl Kernel {
    /// Reads, and returns the result.
    pub(crate) fn read_registered(&mut self, node: &Rc<Node>, read: &RegisteredRead) -> i32 {
        let fails = !roll(&mut self.rng, self.faults.at_once);
        let errno = self.rng.choice(&ERRNOS).copied().unwrap_or(5);
        let mut len = usize::try_from(read.len).unwrap_or(0);
        let is_short = len > UNIT && roll(&mut self.rng, self.faults.short);
        let Some(at) = read.at else {
            return -errno;
        };
        let (Node::Disk(opened), Some(data)) =
            (&**node, self.driver.registered_data(at, read.start, len))
        else {
            self.journal.violate(|| {
                format!("{read:?} of {node:?}, which is no disk, or outside the request")
            });
            return -errno;
        };
        if fails {
            if self.rng.bool() {
                data.fill(JUNK);
            }
            return -errno;
        }
        if is_short {
            len = self.rng.usize(1..len / UNIT) * UNIT;
        }
        let (Ok(offset), Some(data)) = (usize::try_from(read.offset), data.get_mut(..len)) else {
            return -errno;
        };
        let done = opened.disk.borrow().read(offset, data);
        i32::try_from(done).unwrap_or(i32::MAX)
    }
}
