//! Counts what the tests of this program have allocated, so that a hostile file that makes a reader allocate is noticed.
#![expect(
    unsafe_code,
    reason = "a global allocator can only be written with unsafe code"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all tests together may hold at once.
const BYTES_MAX: usize = 64 << 20;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread allocates while it does `work`.
pub(crate) fn allocations_in(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

/// Fails if more was ever allocated than any file in the tests justifies.
pub(crate) fn assert_bounded() {
    let peak = PEAK.load(Ordering::Relaxed);
    assert!(peak <= BYTES_MAX, "{peak} bytes were allocated at once");
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting touches nothing that it returns and
// uses a plain thread-local value without a destructor, whose access neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the memory came from `alloc` above, which is the system's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
