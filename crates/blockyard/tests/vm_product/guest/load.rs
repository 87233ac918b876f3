//! I/O past the page cache: one request at a time, or a load that goes on until its device goes away.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread::JoinHandle;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The longest request.
const BUFFER_BYTES: usize = 16 << 10;
/// What O_DIRECT asks of addresses.
const ALIGNMENT: usize = 4096;

/// A device opened with O_DIRECT, and an aligned buffer.
pub(crate) struct DirectIo {
    file: File,
    memory: Vec<u8>,
    begin: usize,
}

impl DirectIo {
    /// Opens a device for reading and writing.
    pub(crate) fn open(device: &Path) -> Self {
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        let mut options = File::options();
        options.read(true).write(true).custom_flags(flags);
        let memory = vec![0x5a; BUFFER_BYTES + ALIGNMENT];
        Self {
            file: options.open(device).unwrap(),
            begin: memory.as_ptr().align_offset(ALIGNMENT),
            memory,
        }
    }

    /// Reads.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> io::Result<()> {
        let buffer = &mut self.memory[self.begin..self.begin + len];
        self.file.read_exact_at(buffer, offset)
    }

    /// Writes.
    pub(crate) fn write(&mut self, offset: u64, len: usize) -> io::Result<()> {
        let buffer = &self.memory[self.begin..self.begin + len];
        self.file.write_all_at(buffer, offset)
    }

    /// Writes these bytes.
    pub(crate) fn write_bytes(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory[self.begin..self.begin + bytes.len()].copy_from_slice(bytes);
        self.write(offset, bytes.len())
    }

    /// Flushes what was written.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The kernel takes the size of a disk that is dead away (`blk_mark_disk_dead` in block/genhd.c), so a read that begins
    /// then meets the end of the device instead of an error. An end anywhere else stays what it is.
    fn explain(&mut self, error: io::Error) -> io::Error {
        let is_end = error.kind() == ErrorKind::UnexpectedEof;
        if is_end && self.file.seek(SeekFrom::End(0)).is_ok_and(|size| size == 0) {
            return Errno::NODEV.into();
        }
        error
    }
}

/// A thread that reads or writes, always in the first MiB.
pub(crate) struct Load(JoinHandle<io::Error>);

impl Load {
    /// Begins to read.
    pub(crate) fn reading(device: &Path) -> Self {
        Self::run(device, DirectIo::read)
    }

    /// Begins to write.
    pub(crate) fn writing(device: &Path) -> Self {
        Self::run(device, DirectIo::write)
    }

    fn run(device: &Path, request: fn(&mut DirectIo, u64, usize) -> io::Result<()>) -> Self {
        let mut device = DirectIo::open(device);
        Self(std::thread::spawn(move || {
            let mut offset = 0;
            loop {
                if let Err(error) = request(&mut device, offset, BUFFER_BYTES) {
                    return device.explain(error);
                }
                offset = (offset + BUFFER_BYTES as u64) % (1 << 20);
            }
        }))
    }

    /// Waits for the error that ended it.
    pub(crate) fn end(self) -> io::Error {
        self.0.join().unwrap()
    }
}
