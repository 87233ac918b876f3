//! `/dev/ublkcN`: the descriptors of a device's queues, and the data of its requests by user copy.
//!
//! Everything that holds the char device keeps the device's id taken: this handle, each [`DescriptorMap`], each
//! command in flight. Share it by `Arc` between the queues and let go of all of it to delete the device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use block::{DeviceId, QueueId, Status, Tag};
use rustix::fs::{Mode, OFlags};

use crate::abi::control::UBLK_MAX_QUEUE_DEPTH;
use crate::abi::io::*;
use crate::diagnosis::ErrorKind;
use crate::errno::Errno;
use crate::error::Error;
use crate::sys::DescriptorMap;

/// The char device's path.
#[must_use]
pub fn char_node(device: DeviceId) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{device}"))
}

/// The disk's path. It exists between start and stop.
#[must_use]
pub fn block_node(device: DeviceId) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{device}"))
}

/// Where byte `offset_bytes` of a tag's data lies in the char device, for pread, pwrite and their ring forms.
///
/// `offset_bytes` is below 32 MiB; larger ones would name another tag and are cut to their low 25 bits.
#[must_use]
#[inline]
pub const fn user_copy_position(queue: QueueId, tag: Tag, offset_bytes: u32) -> u64 {
    let offset = offset_bytes as u64 & ((1 << UBLK_IO_BUF_BITS) - 1);
    UBLKSRV_IO_BUF_OFFSET
        + ((queue.0 as u64) << UBLK_QID_OFF)
        + ((tag.0 as u64) << UBLK_TAG_OFF)
        + offset
}

/// An open char device.
#[derive(Debug)]
pub struct CharDevice {
    file: OwnedFd,
    path: PathBuf,
}

impl CharDevice {
    /// Opens the char device at `path` (see [`char_node`]). The driver allows one opener at a time.
    ///
    /// Non-blocking, so that user copy through a ring completes at once instead of going to a worker thread.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without such a node, [`ErrorKind::Permission`] (udev may set the group a moment after
    /// the node appears: try again for a while), [`ErrorKind::Busy`] while another server has it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
            let errno = Errno(errno.raw_os_error());
            Error::on_path("open", path, errno, diagnose_open(errno))
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Maps the descriptors of a queue. `depth` and `desc_bytes` are the device's (see [`crate::DeviceInfo`]).
    ///
    /// The first process that maps a device is bound to it until it lets go.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a depth or size out of range; otherwise what the kernel says.
    pub fn map_queue(
        &self,
        queue: QueueId,
        depth: u16,
        desc_bytes: u16,
    ) -> Result<DescriptorMap, Error> {
        let page_bytes = rustix::param::page_size();
        let is_legal_depth = (1..=UBLK_MAX_QUEUE_DEPTH).contains(&u32::from(depth));
        let is_legal_size = (IO_DESC_BYTES..=IO_DESC_BYTES_MAX).contains(&desc_bytes)
            && desc_bytes.is_multiple_of(8);
        if !is_legal_depth || !is_legal_size {
            return Err(Error::on_path(
                "mmap",
                &self.path,
                Errno::EINVAL,
                (
                    ErrorKind::Invalid,
                    "queues have 1 to 4096 tags and descriptors of 24 to 256 bytes",
                ),
            ));
        }
        let round = |bytes: usize| bytes.next_multiple_of(page_bytes);
        let desc = usize::from(desc_bytes);
        // Queues lie as far apart as the deepest queue needs, whatever their depth (`ublk_max_cmd_buf_size`).
        // 4096 tags of 256 bytes times 65535 queues are 2^36 bytes: no overflow in 64 bits.
        let stride = round(desc << UBLK_MAX_QUEUE_DEPTH.trailing_zeros()) as u64;
        let offset = UBLKSRV_CMD_BUF_OFFSET + u64::from(queue.0) * stride;
        let len_bytes = round(usize::from(depth) * desc);
        DescriptorMap::new(self.as_fd(), offset, len_bytes, (depth, desc_bytes)).map_err(|error| {
            let errno = Errno::from_io(&error);
            Error::on_path("mmap", &self.path, errno, diagnose_map(errno))
        })
    }

    /// Copies data of a WRITE from the request's pages: `buffer.len()` bytes from `offset_bytes` on. Returns the
    /// number of bytes copied. One system call, no allocation.
    ///
    /// # Errors
    /// The status of the kernel's errno: [`Status::Io`] for a tag without a request or a range outside of it.
    #[inline]
    pub fn copy_from_request(
        &self,
        queue: QueueId,
        tag: Tag,
        offset_bytes: u32,
        buffer: &mut [u8],
    ) -> Result<usize, Status> {
        let position = user_copy_position(queue, tag, offset_bytes);
        rustix::io::pread(&self.file, buffer, position)
            .map_err(|errno| Status::from_errno(errno.raw_os_error()))
    }

    /// Copies data of a READ into the request's pages. The mirror of [`CharDevice::copy_from_request`].
    ///
    /// # Errors
    /// The same.
    #[inline]
    pub fn copy_to_request(
        &self,
        queue: QueueId,
        tag: Tag,
        offset_bytes: u32,
        buffer: &[u8],
    ) -> Result<usize, Status> {
        let position = user_copy_position(queue, tag, offset_bytes);
        rustix::io::pwrite(&self.file, buffer, position)
            .map_err(|errno| Status::from_errno(errno.raw_os_error()))
    }

    /// The open file, for commands on a ring.
    #[must_use]
    pub const fn fd(&self) -> &OwnedFd {
        &self.file
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for CharDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const fn diagnose_open(errno: Errno) -> (ErrorKind, &'static str) {
    match errno {
        Errno::ENOENT | Errno::ENXIO | Errno::ENODEV => (
            ErrorKind::NotFound,
            "there is no such device: see `ls /sys/class/ublk-char`",
        ),
        Errno::EACCES | Errno::EPERM => (
            ErrorKind::Permission,
            "read and write access to the node is needed: see the udev rules for ublk-char",
        ),
        Errno::EBUSY => (
            ErrorKind::Busy,
            "another server has it open: see `fuser` on the node",
        ),
        Errno::EMFILE | Errno::ENFILE => (
            ErrorKind::LimitReached,
            "raise the limit of open files (`ulimit -n`)",
        ),
        _ => (ErrorKind::Other, "see the kernel's log (`dmesg`)"),
    }
}

const fn diagnose_map(errno: Errno) -> (ErrorKind, &'static str) {
    match errno {
        Errno::EPERM | Errno::EBUSY => (
            ErrorKind::Busy,
            "another process has mapped the device and still holds it",
        ),
        Errno::ENOMEM => (
            ErrorKind::LimitReached,
            "raise the limit of mappings (`sysctl vm.max_map_count`)",
        ),
        Errno::EINVAL | Errno::ENODEV | Errno::ENXIO => (
            ErrorKind::Invalid,
            "the device has no such queue, or the file is not a ublk char device",
        ),
        _ => (ErrorKind::Other, "see the kernel's log (`dmesg`)"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn positions_have_the_layout_of_the_header() {
        let table = [
            (0, 0, 0, 0x8000_0000),
            (0, 0, 512, 0x8000_0200),
            (0, 1, 0, 0x8200_0000),
            (1, 0, 0, 0x200_8000_0000),
            (0xabc, 0xfff, 0x123_4567, 0x1578207f234567),
        ];
        for (queue, tag, offset, position) in table {
            assert_eq!(
                user_copy_position(QueueId(queue), Tag(tag), offset),
                position
            );
        }
    }

    #[test]
    fn queues_lie_a_deepest_queue_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // 4096 descriptors of 24 bytes are 98304 bytes; the second queue begins there.
        for (queue, tag, sectors) in [(0_u64, 0_u64, 11), (0, 3, 22), (1, 0, 33), (1, 3, 44)] {
            let raw = ublksrv_io_desc {
                op_flags: 1,
                nr_sectors: sectors,
                start_sector: 8,
                addr: 0,
            };
            let position = queue * 98304 + tag * 24;
            file.as_file()
                .write_all_at(raw.as_bytes(), position)
                .unwrap();
        }
        file.as_file().set_len(98304 + 4096).unwrap();
        let device = CharDevice::open(file.path()).unwrap();
        let sectors = |map: &DescriptorMap, tag| map.descriptor(Tag(tag)).unwrap().0.nr_sectors;
        let first = device.map_queue(QueueId(0), 4, 24).unwrap();
        let second = device.map_queue(QueueId(1), 4, 24).unwrap();
        assert_eq!((sectors(&first, 0), sectors(&first, 3)), (11, 22));
        assert_eq!((sectors(&second, 0), sectors(&second, 3)), (33, 44));
        assert_eq!(first.descriptor(Tag(4)), None);
    }

    #[test]
    fn illegal_depths_and_sizes_are_refused_before_the_kernel_is_asked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = CharDevice::open(file.path()).unwrap();
        for (depth, desc_bytes) in [(0, 24), (4097, 24), (1, 16), (1, 25), (1, 264)] {
            let error = device.map_queue(QueueId(0), depth, desc_bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn data_goes_to_and_comes_from_the_tags_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = CharDevice::open(file.path()).unwrap();
        let (queue, tag) = (QueueId(0), Tag(5));
        assert_eq!(device.copy_to_request(queue, tag, 512, b"hello"), Ok(5));
        let mut buffer = [0; 5];
        assert_eq!(
            device.copy_from_request(queue, tag, 512, &mut buffer),
            Ok(5)
        );
        assert_eq!(&buffer, b"hello");
        file.as_file()
            .read_exact_at(&mut buffer, 0x8000_0000 + (5 << 25) + 512)
            .unwrap();
        assert_eq!(&buffer, b"hello");
    }

    #[test]
    fn a_missing_node_is_named() {
        let error = CharDevice::open(Path::new("/dev/ublkc-none")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(
            error.to_string(),
            "open /dev/ublkc-none failed: No such file or directory (ENOENT); \
             there is no such device: see `ls /sys/class/ublk-char`"
        );
    }

    proptest! {
        #[test]
        fn positions_of_different_bytes_differ_and_stay_below_the_integrity_flag(
            a in (0_u16..4096, 0_u16..4096, 0_u32..1 << 25),
            b in (0_u16..4096, 0_u16..4096, 0_u32..1 << 25),
        ) {
            let position = |(queue, tag, offset)| user_copy_position(QueueId(queue), Tag(tag), offset);
            prop_assert_eq!(position(a) == position(b), a == b);
            prop_assert!(position(a) < UBLKSRV_IO_INTEGRITY_FLAG);
        }
    }
}
