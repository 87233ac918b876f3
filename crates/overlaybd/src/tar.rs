//! The tar wrapper: an archive with one file, `overlaybd.commit`, that is the layer.
//!
//! Reading takes ustar, PAX and GNU archives: headers of extensions are walked, of whatever length, and the payload is
//! the first regular file. Its size is that of the PAX record `size` if there is one, else that of the header.
//!
//! Writing gives what the reference writes:
//!
//! | byte | |
//! |---|---|
//! | 0 | header of type `x`, name `overlaybd.pax` |
//! | 512 | the record `LEN size=PAYLOAD` |
//! | 1024 | header of type `0`, name `overlaybd.commit`, its size zero: the record has it |
//! | 1536 | the payload, zeros up to a multiple of 512, and two blocks of zeros |
//!
//! Limits: [`HEADERS_MAX`] headers, [`PAX_BYTES_MAX`] bytes of PAX records.
//!
//! Sources: POSIX.1-2017 `pax`; containerd/overlaybd `src/overlaybd/tar/tar_file.cpp` at 063821f, and files it wrote.

use block::{ByteLen, ByteOffset};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, ErrorKind};
use crate::range::FileRange;

/// Bytes of a header, and what everything in an archive is a multiple of.
pub const TAR_BLOCK_BYTES: usize = 512;
/// Bytes in front of the payload in what [`wrapper`] gives.
pub const WRAPPER_BYTES: usize = 3 * TAR_BLOCK_BYTES;
/// The most headers up to the payload. A wrapper has one or two; this bounds the work on a hostile archive.
pub const HEADERS_MAX: u32 = 16;
/// The most bytes of PAX records of one header; Go's archive/tar has the same limit (`maxSpecialFileSize`).
pub const PAX_BYTES_MAX: u64 = 1 << 20;

const BLOCK_LEN: u64 = TAR_BLOCK_BYTES as u64;
const WHAT: &str = "tar header";

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    name: [u8; 100],
    mode: [u8; 8],
    uid: [u8; 8],
    gid: [u8; 8],
    size: [u8; 12],
    mtime: [u8; 12],
    checksum: [u8; 8],
    kind: u8,
    link_name: [u8; 100],
    magic: [u8; 6],
    version: [u8; 2],
    user_name: [u8; 32],
    group_name: [u8; 32],
    device: [u8; 16],
    prefix: [u8; 155],
    zero_500: [u8; 12],
}

const _: () = assert!(size_of::<Wire>() == TAR_BLOCK_BYTES);
const _: () = assert!(std::mem::offset_of!(Wire, magic) == 257);

/// What the first block of a file is, seen as a tar header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBlock {
    /// A header of an archive.
    Header,
    /// The mark of the reference that the archive is still being written, or was never finished.
    Unfinished,
    /// Something else.
    NotTar(NotTar),
}

/// Why a block is no tar header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTar {
    /// Less than a block.
    #[error("shorter than a tar header")]
    Short,
    /// Neither POSIX's nor GNU's magic.
    #[error("no \"ustar\" at byte 257")]
    Magic,
    /// The magic is right and the checksum is not.
    #[error("its tar checksum is {found}, not {expected}")]
    Checksum {
        /// What the header says; 0 if that is no number.
        expected: u64,
        /// What its bytes have.
        found: u64,
    },
}

/// Looks for the payload of an archive.
#[derive(Debug)]
pub struct PayloadFinder {
    file_len: ByteLen,
    state: State,
    headers: u32,
    /// The size from a record of type `x`, for the next file.
    pax_size: Option<u64>,
    /// The size from a record of type `g`, for every file.
    global_size: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header(ByteOffset),
    Records { range: FileRange, kind: u8 },
    Found(FileRange),
}

impl FirstBlock {
    /// Judges the first bytes of a file.
    #[must_use]
    pub fn of(first: &[u8]) -> Self {
        match first.first_chunk::<TAR_BLOCK_BYTES>() {
            None => Self::NotTar(NotTar::Short),
            Some(block) => {
                let wire: &Wire = zerocopy::transmute_ref!(block);
                match &wire.magic {
                    b"ustar\0" | b"ustar " => wire.checked(),
                    b"xxtar\0" | b"xxtar " => Self::Unfinished,
                    _ => Self::NotTar(NotTar::Magic),
                }
            }
        }
    }
}

impl PayloadFinder {
    /// Looks in a file of `file_len`.
    #[must_use]
    pub const fn new(file_len: ByteLen) -> Self {
        Self {
            file_len,
            state: State::Header(ByteOffset(0)),
            headers: 0,
            pax_size: None,
            global_size: None,
        }
    }

    /// What to read next; `None` when the payload is found.
    #[must_use]
    pub const fn poll_read(&self) -> Option<FileRange> {
        match self.state {
            State::Header(at) => Some(FileRange::new(at.0, BLOCK_LEN)),
            State::Records { range, .. } => Some(range),
            State::Found(_) => None,
        }
    }

    /// Where the payload is, once it is found.
    #[must_use]
    pub const fn payload(&self) -> Option<FileRange> {
        match self.state {
            State::Found(payload) => Some(payload),
            State::Header(_) | State::Records { .. } => None,
        }
    }

    /// Takes the bytes of the range that [`PayloadFinder::poll_read`] named.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotThisFormat`] if it is no archive, [`ErrorKind::Truncated`] if the file ends too early or was never
    /// finished, [`ErrorKind::TooLarge`] above a limit, [`ErrorKind::Unsupported`] if the first thing in it is no
    /// regular file, [`ErrorKind::Corrupt`] for the rest.
    pub fn handle_read(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self.state {
            State::Header(at) => self.handle_header(bytes, at),
            State::Records { range, kind } => self.handle_records(bytes, range, kind),
            State::Found(_) => Ok(()),
        }
    }

    fn handle_header(&mut self, bytes: &[u8], at: ByteOffset) -> Result<(), Error> {
        let fault = |kind, detail: String| Err(Error::new(kind, WHAT, at, detail));
        let is_first = self.headers == 0;
        match FirstBlock::of(bytes) {
            FirstBlock::Header => {}
            FirstBlock::Unfinished => {
                let detail = "the archive was never finished".to_owned();
                return fault(ErrorKind::Truncated, detail);
            }
            FirstBlock::NotTar(NotTar::Short) => {
                return fault(ErrorKind::Truncated, NotTar::Short.to_string());
            }
            FirstBlock::NotTar(why) if is_first => {
                return fault(ErrorKind::NotThisFormat, why.to_string());
            }
            FirstBlock::NotTar(why) => return fault(ErrorKind::Corrupt, why.to_string()),
        }
        self.headers += 1;
        if self.headers > HEADERS_MAX {
            let detail = format!("more than {HEADERS_MAX} headers and no file");
            return fault(ErrorKind::TooLarge, detail);
        }
        let Some(block) = bytes.first_chunk::<TAR_BLOCK_BYTES>() else {
            return fault(ErrorKind::Truncated, NotTar::Short.to_string());
        };
        let wire: &Wire = zerocopy::transmute_ref!(block);
        let Some(size) = number(&wire.size) else {
            return fault(ErrorKind::Corrupt, "the size is no number".to_owned());
        };
        let body = FileRange::new(at.advanced(BLOCK_LEN).0, size);
        self.state = match wire.kind {
            b'x' | b'g' if size > PAX_BYTES_MAX => {
                let detail = format!("{size} bytes of PAX records, at most {PAX_BYTES_MAX}");
                return fault(ErrorKind::TooLarge, detail);
            }
            kind @ (b'x' | b'g') if size > 0 => {
                self.check_inside(body, "PAX records")?;
                State::Records { range: body, kind }
            }
            // GNU's long names, and empty records: nothing in them matters here.
            b'x' | b'g' | b'L' | b'K' => State::Header(self.behind(body)?),
            b'0' | b'\0' | b'7' => State::Found(self.payload_at(body)?),
            other => {
                let detail = format!(
                    "type {:?}, not a regular file: an ordinary archive",
                    char::from(other)
                );
                return fault(ErrorKind::Unsupported, detail);
            }
        };
        Ok(())
    }

    fn handle_records(&mut self, bytes: &[u8], range: FileRange, kind: u8) -> Result<(), Error> {
        if bytes.len() as u64 != range.len.0 {
            let detail = format!("{} bytes came of {range}", bytes.len());
            let what = "PAX records";
            return Err(Error::new(ErrorKind::Truncated, what, range.offset, detail));
        }
        let size = size_record(bytes).map_err(|detail| {
            Error::new(ErrorKind::Corrupt, "PAX records", range.offset, detail)
        })?;
        let kept = if kind == b'x' {
            &mut self.pax_size
        } else {
            &mut self.global_size
        };
        *kept = size.or(*kept);
        self.state = State::Header(self.behind(range)?);
        Ok(())
    }

    fn payload_at(&self, body: FileRange) -> Result<FileRange, Error> {
        let size = self.pax_size.or(self.global_size).unwrap_or(body.len.0);
        let payload = FileRange::new(body.offset.0, size);
        self.check_inside(payload, "tar payload")?;
        Ok(payload)
    }

    /// Where the next header is.
    fn behind(&self, body: FileRange) -> Result<ByteOffset, Error> {
        self.check_inside(body, WHAT)?;
        Ok(ByteOffset(body.end().0.next_multiple_of(BLOCK_LEN)))
    }

    fn check_inside(&self, range: FileRange, what: &str) -> Result<(), Error> {
        // A length that saturates would also round up to more than there is.
        if range.end().0 > self.file_len.0 || range.end().0 > u64::MAX - BLOCK_LEN {
            let detail = format!("{range} do not fit into {}", self.file_len);
            return Err(Error::new(ErrorKind::Truncated, what, range.offset, detail));
        }
        Ok(())
    }
}

impl Wire {
    fn checked(&self) -> FirstBlock {
        let (found, expected) = (self.sum(), number(&self.checksum));
        if expected == Some(found) {
            FirstBlock::Header
        } else {
            let expected = expected.unwrap_or(0);
            FirstBlock::NotTar(NotTar::Checksum { expected, found })
        }
    }

    /// The sum of all bytes, with spaces in place of the checksum.
    fn sum(&self) -> u64 {
        let blank = Self {
            checksum: *b"        ",
            ..*self
        };
        blank.as_bytes().iter().copied().map(u64::from).sum()
    }

    /// A header with the fields that the reference always writes.
    fn named(name: &[u8], kind: u8) -> Self {
        let mut wire = Self::new_zeroed();
        put(&mut wire.name, name);
        wire.kind = kind;
        wire.magic = *b"ustar\0";
        wire.version = *b"00";
        wire
    }

    fn seal(mut self) -> Self {
        let sum = format!("{:>6o} ", self.sum());
        self.checksum = [0; 8];
        put(&mut self.checksum, sum.as_bytes());
        self
    }
}

/// The wrapper's bytes in front of a payload of `payload_len`, as the reference writes them.
#[must_use]
pub fn wrapper(payload_len: ByteLen) -> [u8; WRAPPER_BYTES] {
    let record = record(payload_len.0);
    let mut pax = Wire::named(b"overlaybd.pax", b'x');
    put(&mut pax.size, format!("{:>11o} ", record.len()).as_bytes());
    let mut file = Wire::named(b"overlaybd.commit", b'0');
    put(&mut file.mode, b"100644 ");
    put(&mut file.uid, b"     0 ");
    put(&mut file.gid, b"     0 ");
    put(&mut file.size, b"          0 ");
    put(&mut file.mtime, b"          0 ");
    put(&mut file.user_name, b"root");
    put(&mut file.group_name, b"root");
    let mut text = [0; TAR_BLOCK_BYTES];
    put(&mut text, record.as_bytes());
    let mut bytes = [0; WRAPPER_BYTES];
    let blocks = [
        zerocopy::transmute!(pax.seal()),
        text,
        zerocopy::transmute!(file.seal()),
    ];
    put(&mut bytes, blocks.as_flattened());
    bytes
}

/// What stands in front of the payload until its length is known: the same, marked so that nobody reads it.
#[must_use]
pub fn unfinished_wrapper() -> [u8; WRAPPER_BYTES] {
    let mut bytes = wrapper(ByteLen(0));
    let mut mark = Wire::named(b"overlaybd.new", b'x');
    mark.magic = *b"xxtar\0";
    mark.version = *b"xx";
    put(&mut bytes, mark.seal().as_bytes());
    bytes
}

/// How many zeros follow the payload: up to a multiple of a block, and two blocks that end the archive.
#[must_use]
pub const fn padding_len(payload_len: ByteLen) -> ByteLen {
    let rest = payload_len.0 % BLOCK_LEN;
    let fill = if rest == 0 { 0 } else { BLOCK_LEN - rest };
    ByteLen(fill + 2 * BLOCK_LEN)
}

/// A PAX record with the payload's size. Its length counts its own digits.
fn record(size: u64) -> String {
    let rest = format!(" size={size}\n");
    let mut len = rest.len() + 1;
    while len.to_string().len() + rest.len() != len {
        len += 1;
    }
    format!("{len}{rest}")
}

/// The last `size` among the records `LENGTH KEY=VALUE\n`, or what is wrong with them.
fn size_record(mut records: &[u8]) -> Result<Option<u64>, String> {
    let mut size = None;
    while !records.is_empty() {
        let record = next_record(records).ok_or("a record has no length, or a wrong one")?;
        records = records.get(record.len()..).unwrap_or_default();
        let text = record
            .split(|byte| *byte == b' ')
            .next()
            .and_then(|len| record.get(len.len() + 1..record.len() - 1))
            .unwrap_or_default();
        if let Some(value) = text.strip_prefix(b"size=") {
            size = Some(decimal(value).ok_or("the record of the size is no number")?);
        }
    }
    Ok(size)
}

/// The first record, up to and with its line feed.
fn next_record(records: &[u8]) -> Option<&[u8]> {
    let digits = records.iter().position(|byte| *byte == b' ')?;
    let len = usize::try_from(decimal(records.get(..digits)?)?).ok()?;
    let record = records.get(..len)?;
    (len > digits + 1 && record.ends_with(b"\n")).then_some(record)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    // `parse` takes a sign, which no record has.
    let digits = str::from_utf8(digits).ok()?;
    (!digits.starts_with('+')).then(|| digits.parse().ok())?
}

/// A number of a header: octal between spaces and zeros, or GNU's base 256, whose first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first == 0x80 {
        // The field is longer than eight bytes; what is in front of them must be zero.
        let (high, low) = rest.split_last_chunk::<8>()?;
        return high
            .iter()
            .all(|byte| *byte == 0)
            .then(|| u64::from_be_bytes(*low));
    }
    let text = str::from_utf8(field).ok()?;
    let digits = text.trim_matches(['\0', ' ']);
    if digits.is_empty() {
        return Some(0);
    }
    (!digits.starts_with('+')).then(|| u64::from_str_radix(digits, 8).ok())?
}

/// Copies `bytes` to the begin of `field`, which is longer.
fn put(field: &mut [u8], bytes: &[u8]) {
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload of an archive in memory.
    fn find(archive: &[u8]) -> Result<FileRange, Error> {
        let mut finder = PayloadFinder::new(ByteLen(archive.len() as u64));
        while let Some(range) = finder.poll_read() {
            let end = usize::try_from(range.end().0).unwrap().min(archive.len());
            let begin = usize::try_from(range.offset.0).unwrap().min(end);
            finder.handle_read(&archive[begin..end])?;
        }
        Ok(finder.payload().unwrap())
    }

    fn entry(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut wire = Wire::named(b"x", kind);
        put(&mut wire.size, format!("{:011o}", body.len()).as_bytes());
        let mut bytes = wire.seal().as_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
        bytes
    }

    #[test]
    fn a_wrapper_leads_to_its_payload_whatever_its_size() {
        for len in [0, 1, 99, 999, 99_999, 8 << 30, u64::MAX / 4] {
            let mut finder = PayloadFinder::new(ByteLen(u64::MAX / 2));
            let bytes = wrapper(ByteLen(len));
            while let Some(range) = finder.poll_read() {
                let begin = usize::try_from(range.offset.0).unwrap();
                let end = usize::try_from(range.end().0).unwrap();
                finder.handle_read(&bytes[begin..end]).unwrap();
            }
            assert_eq!(finder.payload(), Some(FileRange::new(1536, len)));
        }
        assert_eq!(padding_len(ByteLen(1)), ByteLen(511 + 1024));
        assert_eq!(padding_len(ByteLen(512)), ByteLen(1024));
    }

    #[test]
    fn extensions_are_walked_in_any_order() {
        let long_name = [b'n'; 700];
        let archive = [
            entry(b'g', b"12 size=100\n"),
            entry(b'L', &long_name),
            entry(b'x', b"10 size=3\n17 comment=a b c\n"),
            entry(b'0', b"abc"),
        ]
        .concat();
        let at = archive.len() as u64 - 512;
        assert_eq!(find(&archive).unwrap(), FileRange::new(at, 3));
    }

    #[test]
    fn hostile_archives_are_refused_by_kind() {
        use ErrorKind::{Corrupt, NotThisFormat, TooLarge, Truncated, Unsupported};
        let kind = |archive: &[u8]| find(archive).unwrap_err().kind;
        assert_eq!(kind(b""), Truncated);
        assert_eq!(kind(&[0; 512]), NotThisFormat);
        assert_eq!(kind(&unfinished_wrapper()), Truncated);
        assert_eq!(kind(&wrapper(ByteLen(1))), Truncated);
        assert_eq!(kind(&entry(b'5', b"")), Unsupported);
        assert_eq!(kind(&entry(b'x', b"").repeat(17)), TooLarge);
        assert_eq!(kind(&entry(b'x', &vec![0; (1 << 20) + 1])), TooLarge);
        for records in [
            "0 size=1\n",
            "99 size=1\n",
            "x",
            "9 size=+1\n",
            "11 size=1\n",
            "2 ",
        ] {
            assert_eq!(kind(&entry(b'x', records.as_bytes())), Corrupt, "{records}");
        }
        let behind_garbage = [entry(b'x', b"10 size=3\n"), vec![1; 512]].concat();
        assert_eq!(kind(&behind_garbage), Corrupt);
    }

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(number(b"00000001750\0"), Some(1000));
        assert_eq!(number(b"         17 "), Some(15));
        assert_eq!(number(b"\0\0\0\0"), Some(0));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(8 << 30));
        assert_eq!(number(b"\x80\x01\0\0\0\0\0\x02\0\0\0\0"), None);
        assert_eq!(
            number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            None
        );
        assert_eq!(number(b"0000000008x\0"), None);
        assert_eq!(number(b"+0000000017\0"), None);
    }
}
