//! A file of a real ring, and what is known about reading and writing it without waiting.
//!
//! An operation on a ring costs a submission, a completion and a turn of the caller; on files whose file system refuses to
//! be asked for non-blocking buffered I/O it costs a hand-over to a worker thread as well. A system call that is sure not to wait is cheaper:
//!
//! | file | read | write | why it does not wait |
//! |---|---|---|---|
//! | regular, on tmpfs or ramfs | plain | plain | the content is memory; a page that was swapped out is waited for, as is any page of this process |
//! | other regular, block device | `RWF_NOWAIT` | never | the kernel answers EAGAIN instead; for writes see below |
//! | opened with O_DIRECT | never | never | a direct read waits for the disk in spite of the flag |
//! | opened with O_SYNC or O_DSYNC | as above | never | the write would wait for the disk |
//! | anything else (pipe, char device) | never | never | nothing is known about it |
//!
//! A read into memory that a driver has registered in a ring goes by the ring and is made just as sure: with `RWF_NOWAIT`, or of a
//! file in memory that is O_NONBLOCK, for then the ring calls the file system at once instead of giving the read to a worker.
//!
//! `pwritev2` waits for a frozen file system whatever its flags say (`file_start_write` in `vfs_writev`), which would stop every
//! device of the shard; a ring tries that lock. Nor is there much to win: ext4 and block devices refuse the flag for writes.
//!
//! A file system that does not know the flag answers EOPNOTSUPP once (NFS, FUSE, overlay) and is not asked again. A file whose data is not in memory is asked less and less often, up to one attempt in [`SKIP_MAX`], until one works.
//! Sources: `filemap_read`, `kiocb_set_rw_flags`, `vfs_writev`, `ext4_buffered_write_iter`, `blkdev_write_iter`,
//! `__blkdev_direct_IO_simple` of Linux 6.12, `io_kiocb_start_write` of 6.12 and 7.3.

use std::cell::Cell;
use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// Most operations that go to the ring between two attempts on a file whose attempts fail. An attempt that fails costs
/// about a system call, so this bounds the waste to less than 2 % of one.
const SKIP_MAX: u8 = 63;

/// How a file can be read or written without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NowMode {
    /// Not at all: by the ring only.
    Never,
    /// With `RWF_NOWAIT`, which answers "would wait" instead of waiting.
    NoWait,
    /// By an ordinary call, because the file lives in memory.
    Plain,
}

/// A file as a ring knows it. Used by one thread at a time.
pub struct RingFile {
    held: Held,
    raw: RawFd,
    read: Attempts,
    write: Attempts,
}

enum Held {
    Own(OwnedFd),
    Other(Arc<dyn AsFd + Send + Sync>),
}

/// What attempts in one direction have taught.
struct Attempts {
    mode: Cell<NowMode>,
    /// Operations that are not attempted before the next one is.
    skip: Cell<u8>,
    /// What `skip` was set to after the last failure.
    skip_last: Cell<u8>,
}

/// How a file that holds data can be read and written without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NowModes([NowMode; 2]);

impl NowModes {
    /// Finds it out, and sets O_NONBLOCK for a file in memory, and clears it for others: it makes a ring call file systems that
    /// ignore it as if they never waited.
    /// Waits for as long as `fstatfs` takes on the file.
    #[must_use]
    pub fn probe(file: impl AsFd + Copy) -> Self {
        Self(probe(file).unwrap_or([NowMode::Never; 2]))
    }

    /// How the file can be read without waiting.
    #[must_use]
    pub const fn read(self) -> NowMode {
        let Self([read, _]) = self;
        read
    }
}

impl RingFile {
    /// A file for a ring only: a driver's, an eventfd, a pipe.
    #[must_use]
    pub fn ring_only(file: OwnedFd) -> Self {
        Self::new(Held::Own(file), [NowMode::Never; 2])
    }

    /// As [`RingFile::ring_only`], for a file that `holder` owns and keeps open.
    #[must_use]
    pub fn held_by(holder: Arc<dyn AsFd + Send + Sync>) -> Self {
        Self::new(Held::Other(holder), [NowMode::Never; 2])
    }

    /// A file that holds data, and what [`NowModes::probe`] found out about it or another descriptor of the same open file.
    #[must_use]
    pub fn data(file: OwnedFd, modes: NowModes) -> Self {
        Self::new(Held::Own(file), modes.0)
    }

    /// As [`RingFile::data`], for a file that `holder` owns, shares and keeps open.
    #[must_use]
    pub fn data_held_by(holder: Arc<dyn AsFd + Send + Sync>, modes: NowModes) -> Self {
        Self::new(Held::Other(holder), modes.0)
    }

    fn new(held: Held, [read, write]: [NowMode; 2]) -> Self {
        let raw = match &held {
            Held::Own(file) => file.as_raw_fd(),
            Held::Other(holder) => holder.as_fd().as_raw_fd(),
        };
        Self {
            held,
            raw,
            read: Attempts::new(read),
            write: Attempts::new(write),
        }
    }

    /// How it is read without waiting, as far as is known.
    #[must_use]
    pub const fn read_mode(&self) -> NowMode {
        self.read.mode.get()
    }

    /// How it is written without waiting, as far as is known.
    #[must_use]
    pub const fn write_mode(&self) -> NowMode {
        self.write.mode.get()
    }

    /// For a submission; open for as long as `self` lives.
    pub(crate) const fn raw_fd(&self) -> RawFd {
        self.raw
    }

    /// See [`crate::Ring::try_read`].
    pub(crate) fn try_read(&self, offset_bytes: u64, bytes: &mut [u8]) -> Option<u32> {
        let done = match self.read.try_begin()? {
            NowMode::Never => return None,
            NowMode::Plain => rustix::io::pread(self, bytes, offset_bytes),
            NowMode::NoWait => {
                let mut slices = [IoSliceMut::new(bytes)];
                rustix::io::preadv2(self, &mut slices, offset_bytes, ReadWriteFlags::NOWAIT)
            }
        };
        self.read.end(done)
    }

    /// See [`crate::Ring::may_read_registered`].
    #[inline]
    pub(crate) fn may_read_registered(&self) -> bool {
        self.read
            .try_begin()
            .is_some_and(|mode| mode != NowMode::Never)
    }

    /// See [`crate::Ring::on_read_registered`].
    #[inline]
    pub(crate) fn on_read_registered(&self, result: i32) {
        self.read.end(match usize::try_from(result) {
            Ok(len) => Ok(len),
            Err(_) => Err(Errno::from_raw_os_error(result.saturating_neg())),
        });
    }

    /// See [`crate::Ring::try_write`].
    pub(crate) fn try_write(&self, offset_bytes: u64, bytes: &[u8]) -> Option<u32> {
        let done = match self.write.try_begin()? {
            // No flag keeps a write from waiting; see the module.
            NowMode::Never | NowMode::NoWait => return None,
            NowMode::Plain => rustix::io::pwrite(self, bytes, offset_bytes),
        };
        self.write.end(done)
    }
}

impl AsFd for RingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.held {
            Held::Own(file) => file.as_fd(),
            Held::Other(holder) => holder.as_fd(),
        }
    }
}

impl fmt::Debug for RingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingFile")
            .field("fd", &self.raw)
            .field("read", &self.read_mode())
            .field("write", &self.write_mode())
            .finish()
    }
}

impl Attempts {
    const fn new(mode: NowMode) -> Self {
        Self {
            mode: Cell::new(mode),
            skip: Cell::new(0),
            skip_last: Cell::new(0),
        }
    }

    /// How to attempt now, or `None` when it is not worth it. The caller may get [`NowMode::Never`].
    #[inline]
    fn try_begin(&self) -> Option<NowMode> {
        match self.skip.get() {
            0 => Some(self.mode.get()),
            left => {
                self.skip.set(left - 1);
                None
            }
        }
    }

    /// Learns from an attempt. A failure is nothing to report: the ring will meet it, or not, and tell.
    #[inline]
    fn end(&self, done: Result<usize, Errno>) -> Option<u32> {
        match done {
            Ok(0) => None,
            Ok(len) => {
                self.skip_last.set(0);
                u32::try_from(len).ok()
            }
            Err(errno) => {
                if errno == Errno::OPNOTSUPP {
                    self.mode.set(NowMode::Never);
                }
                let skip = (self.skip_last.get() * 2 + 1).min(SKIP_MAX);
                self.skip_last.set(skip);
                self.skip.set(skip);
                None
            }
        }
    }
}

/// The super block magics of linux/magic.h for file systems whose content is memory.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

fn probe(file: impl AsFd + Copy) -> Result<[NowMode; 2], Errno> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    // Only a regular file's data lives in its file system: device nodes of devtmpfs have the magic of tmpfs.
    let is_memory =
        kind == FileType::RegularFile && !flags.contains(OFlags::DIRECT) && is_in_memory(file)?;
    let wanted = if is_memory {
        flags | OFlags::NONBLOCK
    } else {
        flags & !OFlags::NONBLOCK
    };
    if wanted != flags {
        rustix::fs::fcntl_setfl(file, wanted)?;
    }
    if flags.contains(OFlags::DIRECT) {
        return Ok([NowMode::Never; 2]);
    }
    let read = match kind {
        FileType::RegularFile if is_memory => NowMode::Plain,
        FileType::RegularFile | FileType::BlockDevice => NowMode::NoWait,
        _ => NowMode::Never,
    };
    let is_synchronous = flags.intersects(OFlags::SYNC | OFlags::DSYNC);
    let write = match read {
        NowMode::Plain if !is_synchronous => NowMode::Plain,
        NowMode::Plain | NowMode::NoWait | NowMode::Never => NowMode::Never,
    };
    Ok([read, write])
}

fn is_in_memory(file: impl AsFd) -> Result<bool, Errno> {
    let magic = rustix::fs::fstatfs(file)?.f_type;
    Ok(magic == TMPFS_MAGIC || magic == RAMFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    use rustix::fs::MemfdFlags;

    use super::*;

    fn memory_file() -> OwnedFd {
        rustix::fs::memfd_create("file-test", MemfdFlags::CLOEXEC).unwrap()
    }

    fn probed(file: OwnedFd) -> RingFile {
        let modes = NowModes::probe(&file);
        RingFile::data(file, modes)
    }

    fn modes(file: &RingFile) -> [NowMode; 2] {
        [file.read_mode(), file.write_mode()]
    }

    #[test]
    fn a_file_in_memory_is_written_and_read_at_once() {
        let file = probed(memory_file());
        assert_eq!(modes(&file), [NowMode::Plain; 2]);
        assert_eq!(file.try_write(8192, &[7; 4096]), Some(4096));
        let mut bytes = [0; 8192];
        assert_eq!(file.try_read(8192, &mut bytes), Some(4096));
        assert!(bytes[..4096].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn an_end_or_a_failure_is_left_to_the_ring() {
        let file = probed(memory_file());
        assert_eq!(file.try_read(0, &mut [0; 512]), None);
        let (read_end, _write_end) = std::io::pipe().unwrap();
        let unreadable = RingFile::new(Held::Own(read_end.into()), [NowMode::Plain; 2]);
        assert_eq!(unreadable.try_write(0, &[1]), None);
    }

    #[test]
    fn an_ordinary_file_is_read_without_waiting_and_what_it_answers_is_true() {
        let plain = tempfile::NamedTempFile::new().unwrap();
        plain.as_file().write_all_at(&[3; 65536], 0).unwrap();
        let file = probed(plain.reopen().unwrap().into());
        let mut answers = 0;
        for round in 0..200_u64 {
            let mut bytes = [0; 4096];
            if let Some(len) = file.try_read(round % 16 * 4096, &mut bytes) {
                answers += 1;
                assert!(bytes[..len as usize].iter().all(|byte| *byte == 3));
            }
        }
        // What was just written is in the page cache, wherever the directory of temporary files is.
        assert!(answers > 0 || file.read_mode() == NowMode::Never);
        // Unless that directory is in memory, no write is tried: none is sure not to wait.
        let is_written = file.try_write(0, &[4; 4096]).is_some();
        assert_eq!(is_written, file.read_mode() == NowMode::Plain);
    }

    #[test]
    fn a_file_system_that_does_not_know_the_flag_is_asked_once() {
        let attempts = Attempts::new(NowMode::NoWait);
        assert_eq!(attempts.try_begin(), Some(NowMode::NoWait));
        assert_eq!(attempts.end(Err(Errno::OPNOTSUPP)), None);
        let later = (0..1000).filter_map(|_| attempts.try_begin());
        assert!(later.into_iter().all(|mode| mode == NowMode::Never));
    }

    #[test]
    fn files_that_could_wait_are_never_accessed_directly() {
        let temporary = tempfile::NamedTempFile::new().unwrap();
        let open = |path: &std::path::Path, flags: OFlags| {
            let flags = i32::try_from(flags.bits()).unwrap();
            let mut options = std::fs::OpenOptions::new();
            options
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(path)
        };
        // A direct file is refused by tmpfs of old kernels: then there is nothing to get wrong.
        if let Ok(direct) = open(temporary.path(), OFlags::DIRECT) {
            assert_eq!(modes(&probed(direct.into())), [NowMode::Never; 2]);
        }
        let synchronous = probed(open(temporary.path(), OFlags::DSYNC).unwrap().into());
        assert_ne!(synchronous.read_mode(), NowMode::Never);
        assert_eq!(synchronous.write_mode(), NowMode::Never);
        // Its node lies in a file system of memory, its data does not.
        let node = open(std::path::Path::new("/dev/null"), OFlags::empty()).unwrap();
        assert_eq!(modes(&probed(node.into())), [NowMode::Never; 2]);
        let (read_end, _write_end) = std::io::pipe().unwrap();
        assert_eq!(modes(&probed(read_end.into())), [NowMode::Never; 2]);
    }

    #[test]
    fn only_a_file_that_never_waits_says_so_to_a_ring() {
        let is_nonblock = |file: &RingFile| {
            let flags = rustix::fs::fcntl_getfl(file).unwrap();
            flags.contains(OFlags::NONBLOCK)
        };
        assert!(is_nonblock(&probed(memory_file())));
        let temporary = tempfile::NamedTempFile::new().unwrap();
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(temporary.path());
        let file = probed(file.unwrap().into());
        // The directory of temporary files may be in memory.
        assert_eq!(is_nonblock(&file), file.read_mode() == NowMode::Plain);
    }

    #[test]
    fn reads_by_the_ring_teach_as_much_as_calls() {
        let plain = tempfile::NamedTempFile::new().unwrap();
        let file = RingFile::new(
            Held::Own(plain.reopen().unwrap().into()),
            [NowMode::NoWait; 2],
        );
        assert!(file.may_read_registered());
        file.on_read_registered(-11); // EAGAIN
        assert!(!file.may_read_registered());
        assert!(file.may_read_registered());
        file.on_read_registered(512);
        assert!(file.may_read_registered());
        file.on_read_registered(-95); // EOPNOTSUPP
        assert!((0..1000).all(|_| !file.may_read_registered()));
    }

    #[test]
    fn failures_space_attempts_out_up_to_a_limit_and_one_success_brings_them_back() {
        let attempts = Attempts::new(NowMode::NoWait);
        for skipped in [1, 3, 7, 15, 31, 63, 63] {
            assert!(attempts.try_begin().is_some());
            assert_eq!(attempts.end(Err(Errno::AGAIN)), None);
            for _ in 0..skipped {
                assert_eq!(attempts.try_begin(), None);
            }
        }
        assert!(attempts.try_begin().is_some());
        assert_eq!(attempts.end(Ok(512)), Some(512));
        assert_eq!(attempts.try_begin(), Some(NowMode::NoWait));
        assert_eq!(attempts.end(Err(Errno::AGAIN)), None);
        assert_eq!(
            (attempts.try_begin(), attempts.try_begin()),
            (None, Some(NowMode::NoWait))
        );
    }
}
