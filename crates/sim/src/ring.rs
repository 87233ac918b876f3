//! The simulated ring: the seam's other side is the simulated kernel.

use std::cell::RefCell;
use std::rc::Rc;

use reactor::{Completion, Error, Op, Ring, Token, Wait};

use crate::file::SimFile;
use crate::kernel::Kernel;

/// A ring of a simulated kernel.
#[derive(Debug)]
pub struct SimRing(Rc<RefCell<Kernel>>);

impl SimRing {
    pub(crate) const fn new(kernel: Rc<RefCell<Kernel>>) -> Self {
        Self(kernel)
    }
}

impl Ring for SimRing {
    type File = SimFile;

    fn push(&mut self, op: Op<'_, SimFile>, token: Token) {
        self.0.borrow_mut().push(op, token);
    }

    fn try_read(&mut self, file: &SimFile, offset_bytes: u64, bytes: &mut [u8]) -> Option<u32> {
        self.0.borrow_mut().try_read(file, offset_bytes, bytes)
    }

    fn try_write(&mut self, file: &SimFile, offset_bytes: u64, bytes: &[u8]) -> Option<u32> {
        self.0.borrow_mut().try_write(file, offset_bytes, bytes)
    }

    /// Never sleeps: where the kernel would, simulated time passes. Comes back without a completion when nothing is under
    /// way that could complete.
    fn enter(&mut self, wait: Wait) -> Result<(), Error> {
        self.0.borrow_mut().enter(wait);
        Ok(())
    }

    fn poll_completion(&mut self) -> Option<Completion> {
        self.0.borrow_mut().poll_completion()
    }

    fn slots(&self) -> u16 {
        self.0.borrow().driver.slots().0
    }

    fn may_read_registered(&mut self, _file: &SimFile) -> bool {
        self.0.borrow().faults.at_once > 0
    }

    fn allow_blocking(&mut self, operations: u32) -> Result<(), Error> {
        self.0.borrow_mut().allow_blocking(operations);
        Ok(())
    }

    fn buffers_in_flight(&self) -> usize {
        self.0.borrow().buffers_in_flight()
    }
}
