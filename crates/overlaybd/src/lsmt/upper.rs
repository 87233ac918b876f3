//! A log-structured upper: a data file that grows and an index file that says, in order, what was written where.
//!
//! ```text
//!   data file   header 0x03 | sectors, appended
//!   index file  header 0x01 | records, appended; a later one overrides what it covers; padding anywhere
//!
//!   LogFiles --LogLayout::parse--> LogLayout --index bytes--> LogLoader --finish_strict--> LogUpper
//!                                                                      \--finish_repaired-/
//! ```
//!
//! What a crash leaves behind:
//!
//! - sectors at the end of the data file without a record: never acknowledged, not visible;
//! - part of a record at the end of the index file: the record was never acknowledged, it is dropped;
//! - part of a sector at the end of the data file: the same;
//! - records at the end of the index file whose data the data file lacks, or that are no records (a file system may have
//!   kept the length and lost the bytes): strict refuses the upper, repair drops them. If a sound record follows one of
//!   these it was no crash, and both refuse;
//! - the same, but the first of them is zeros and sound ones follow: blocks of the index file reached the disk in another order
//!   than they were written in. All of it is of one flush that never ended: strict refuses the upper, repair drops them.
//!
//! What was dropped must be cut off the files before anything is appended: [`LogUpper::data_len`], [`LogUpper::index_len`].
//!
//! A file that was sealed in place keeps the header of an upper. Whether it was sealed is the caller's to know: the last block
//! of an upper is whatever the disk's user wrote, and may look like a trailer.
//!
//! A hybrid upper (flags 0x23, 0x21) is read in the same way; its writer may overwrite data in place.

use block::{ByteLen, ByteOffset, SECTOR_BYTES, Sectors};

use super::chunks::{RawRecord, RecordChunks};
use super::header::{self, HEADER_LEN, Header, Place};
use super::index::INDEX_RECORDS_MAX;
use super::mutable::MutableIndex;
use super::record::{RECORD_BYTES, Record, SegmentFault};
use crate::{Error, ErrorKind, FileRange};

/// How an upper is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Every write appends.
    Append,
    /// A write to sectors that the upper has data for overwrites them in place; the rest appends.
    Hybrid,
}

/// The two files of an upper, as far as its layout needs them.
#[derive(Clone, Copy, Debug)]
pub struct LogFiles<'a> {
    /// The first block of the data file.
    pub data_header: &'a [u8],
    /// The length of the data file.
    pub data_len: ByteLen,
    /// The first block of the index file.
    pub index_header: &'a [u8],
    /// The length of the index file.
    pub index_len: ByteLen,
}

/// Where the parts of an upper are.
#[derive(Clone, Debug)]
pub struct LogLayout {
    header: Header,
    mode: LogMode,
    data_end: Sectors,
    records: FileRange,
    /// The two headers disagree about the size: a crash while it was changed.
    size_fault: Option<Error>,
}

/// An upper that can be read, and appended to after its files are cut.
#[derive(Clone, Debug)]
pub struct LogUpper {
    /// The header of the index file: size and uuids.
    pub header: Header,
    /// How it is written to.
    pub mode: LogMode,
    /// What is where. Tags are 0.
    pub index: MutableIndex,
    /// The length that the data file must have before the next append.
    pub data_len: ByteLen,
    /// The length that the index file must have before the next append.
    pub index_len: ByteLen,
    /// Whole records that repair dropped.
    pub records_dropped: u64,
}

impl LogLayout {
    /// From headers and lengths.
    ///
    /// # Errors
    /// [`ErrorKind::NotThisFormat`] or [`ErrorKind::Truncated`] without two headers, [`ErrorKind::Corrupt`] if they are not
    /// of one upper, [`ErrorKind::TooLarge`] beyond [`INDEX_RECORDS_MAX`] records.
    pub fn parse(files: &LogFiles<'_>) -> Result<Self, Error> {
        let data = Header::parse(files.data_header, "data file's header", ByteOffset(0))?;
        let index = Header::parse(files.index_header, "index file's header", ByteOffset(0))?;
        check_flags(&data, &index)?;
        check_same_upper(&data, &index)?;
        let place = Place::start("index file's header");
        if index.index_offset.0 != HEADER_LEN.0 {
            let detail = format!("records at {}, not {}", index.index_offset, HEADER_LEN.0);
            return Err(place.error(ErrorKind::Corrupt, header::INDEX_OFFSET_AT, detail));
        }
        let record_bytes = RECORD_BYTES as u64;
        let records = files.index_len.0.saturating_sub(HEADER_LEN.0) / record_bytes;
        if records > INDEX_RECORDS_MAX {
            let detail = format!("{records} records, at most {INDEX_RECORDS_MAX}");
            return Err(place.error(ErrorKind::TooLarge, 0, detail));
        }
        let mode = if index.flags.is_hybrid() {
            LogMode::Hybrid
        } else {
            LogMode::Append
        };
        Ok(Self {
            mode,
            data_end: Sectors(files.data_len.0 / SECTOR_BYTES),
            records: FileRange {
                offset: index.index_offset,
                len: ByteLen(records * record_bytes),
            },
            size_fault: size_fault(&data, &index),
            header: index,
        })
    }

    /// The range of the index file to read: every whole record.
    #[must_use]
    pub const fn records(&self) -> FileRange {
        self.records
    }

    /// Takes the bytes of [`LogLayout::records`].
    #[must_use]
    pub fn loader(self) -> LogLoader {
        LogLoader {
            chunks: RecordChunks::new(self.records),
            index: MutableIndex::new(),
            lost: None,
            layout: self,
        }
    }
}

fn check_flags(data: &Header, index: &Header) -> Result<(), Error> {
    for (header, part, is_data) in [
        (data, "data file's header", true),
        (index, "index file's header", false),
    ] {
        let flags = header.flags;
        let place = Place::start(part);
        if !flags.is_header() || flags.is_data() != is_data || flags.is_sealed() {
            let detail = format!("flags {:#x}: not of an unsealed upper", flags.bits());
            return Err(place.error(ErrorKind::Corrupt, header::FLAGS_AT, detail));
        }
        if flags.is_sparse() {
            let detail = "a sparse upper has no index file";
            return Err(place.error(ErrorKind::Corrupt, header::FLAGS_AT, detail));
        }
    }
    Ok(())
}

fn check_same_upper(data: &Header, index: &Header) -> Result<(), Error> {
    let place = Place::start("index file's header");
    let error = |at, detail| Err(place.error(ErrorKind::Corrupt, at, detail));
    if data.uuid != index.uuid || data.parent_uuid != index.parent_uuid {
        let detail = format!(
            "uuid {:?}, parent {:?}; the data file has {:?}, {:?}",
            index.uuid, index.parent_uuid, data.uuid, data.parent_uuid
        );
        return error(header::UUID_AT, detail);
    }
    if data.flags.is_hybrid() != index.flags.is_hybrid() {
        let bits = (index.flags.bits(), data.flags.bits());
        let detail = format!("flags {:#x}; the data file has {:#x}", bits.0, bits.1);
        return error(header::FLAGS_AT, detail);
    }
    Ok(())
}

fn size_fault(data: &Header, index: &Header) -> Option<Error> {
    (data.virtual_size != index.virtual_size).then(|| {
        let (index, data) = (index.virtual_size, data.virtual_size);
        let detail = format!("virtual size of {index}; the data file has {data}");
        Place::start("index file's header").error(
            ErrorKind::Corrupt,
            header::VIRTUAL_SIZE_AT,
            detail,
        )
    })
}

/// Takes the records of an upper in chunks of any length and replays them.
#[derive(Debug)]
pub struct LogLoader {
    layout: LogLayout,
    chunks: RecordChunks,
    index: MutableIndex,
    /// The first of the records that a crash may have left.
    lost: Option<Lost>,
}

/// What a file system shows of a record whose block it had no time to write.
const NEVER_WRITTEN: [u8; RECORD_BYTES] = [0; RECORD_BYTES];

/// Unsound records at the end, so far.
#[derive(Debug)]
struct Lost {
    first: RawRecord,
    fault: SegmentFault,
    count: u64,
}

impl LogLoader {
    /// Takes the next bytes. After an error the loader is of no use.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for an unsound record, other than zeros, that a sound one follows.
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<(), Error> {
        while let Some(raw) = self.chunks.next_record(&mut chunk)? {
            match self.sound(&raw) {
                Ok(Record::Padding) => {}
                Ok(Record::Segment(segment)) => match &mut self.lost {
                    None => self.index.insert(segment.with_tag(0)),
                    Some(lost) if lost.first.bytes == NEVER_WRITTEN => lost.count += 1,
                    Some(lost) => {
                        return Err(lost.first.error(ErrorKind::Corrupt, lost.fault));
                    }
                },
                Err(fault) => self.on_unsound(raw, fault),
            }
        }
        Ok(())
    }

    /// The upper, when every byte came; nothing of it is dropped but part of a record.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for records without data at the end, or headers with two sizes.
    pub fn finish_strict(mut self) -> Result<LogUpper, Error> {
        if let Some(lost) = &self.lost {
            return Err(lost.first.error(ErrorKind::Corrupt, lost.fault));
        }
        match self.layout.size_fault.take() {
            Some(fault) => Err(fault),
            None => self.finish_repaired(),
        }
    }

    /// The upper, when every byte came, without the records at the end that a crash left without data. Of two sizes the
    /// index file's counts.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] if bytes are missing.
    pub fn finish_repaired(self) -> Result<LogUpper, Error> {
        self.chunks.finish()?;
        let records = self.layout.records;
        let whole = records.offset.advanced(records.len.0);
        let end = self.lost.as_ref().map_or(whole, |lost| lost.first.offset);
        Ok(LogUpper {
            header: self.layout.header,
            mode: self.layout.mode,
            index: self.index,
            data_len: self.layout.data_end.len_bytes(),
            index_len: ByteLen(end.0),
            records_dropped: self.lost.map_or(0, |lost| lost.count),
        })
    }

    fn sound(&self, raw: &RawRecord) -> Result<Record, SegmentFault> {
        let record = Record::parse(raw.bytes)?;
        if let Record::Segment(segment) = record {
            segment.check_within(self.layout.data_end)?;
        }
        Ok(record)
    }

    fn on_unsound(&mut self, raw: RawRecord, fault: SegmentFault) {
        let lost = self.lost.get_or_insert(Lost {
            first: raw,
            fault,
            count: 0,
        });
        lost.count += 1;
    }
}

impl LogUpper {
    /// Where the next sectors go in the data file.
    #[must_use]
    pub const fn data_end(&self) -> Sectors {
        Sectors(self.data_len.0 / SECTOR_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use block::Extent;

    use super::*;
    use crate::lsmt::{Flags, LayerUuid, Segment, UserTag};

    fn header(flags: Flags, index_offset: u64) -> Header {
        Header {
            flags,
            index_offset: ByteOffset(index_offset),
            index_size: 0,
            virtual_size: Sectors(100),
            uuid: LayerUuid::from_bytes([1; 16]),
            parent_uuid: None,
            user_tag: UserTag::default(),
        }
    }

    /// A data file of 10 sectors and an index file of `records`.
    fn loader(data: &Header, index: &Header, records: &[u8]) -> Result<LogLoader, Error> {
        let layout = LogLayout::parse(&LogFiles {
            data_header: &data.encode(),
            data_len: ByteLen(18 * 512 + 5),
            index_header: &index.encode(),
            index_len: ByteLen(4096 + records.len() as u64),
        })?;
        let len = layout.records().len.0;
        let mut loader = layout.loader();
        loader.push(&records[..usize::try_from(len).unwrap()])?;
        Ok(loader)
    }

    fn log(records: &[u8]) -> Result<LogLoader, Error> {
        let (data, index) = (header(Flags::LOG_DATA, 0), header(Flags::LOG_INDEX, 4096));
        loader(&data, &index, records)
    }

    fn record(start: u64, len: u64, moffset: u64) -> [u8; 16] {
        let extent = Extent {
            start: Sectors(start),
            len: Sectors(len),
        };
        Segment::data(extent, Sectors(moffset)).unwrap().encode()
    }

    #[test]
    fn torn_ends_are_dropped_and_the_lengths_say_so() {
        let mut bytes = record(0, 10, 8).to_vec();
        bytes.extend(Record::Padding.encode());
        bytes.extend(&record(0, 1, 9)[..15]);
        let upper = log(&bytes).unwrap().finish_strict().unwrap();
        assert_eq!(upper.index.len(), 1);
        assert_eq!(upper.index_len, ByteLen(4096 + 32));
        assert_eq!(upper.data_len, ByteLen(18 * 512));
        assert_eq!((upper.data_end(), upper.records_dropped), (Sectors(18), 0));
    }

    #[test]
    fn records_ahead_of_the_data_are_refused_or_dropped() {
        let sound = record(0, 10, 8);
        for ahead in [record(20, 1, 18), record(20, 2, 17), [0; 16]] {
            let bytes = [sound, ahead, Record::Padding.encode(), ahead].concat();
            let refused = log(&bytes).unwrap().finish_strict().unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Corrupt);
            assert_eq!(refused.offset, ByteOffset(4096 + 16));
            let upper = log(&bytes).unwrap().finish_repaired().unwrap();
            assert_eq!(upper.index_len, ByteLen(4096 + 16));
            assert_eq!((upper.index.len(), upper.records_dropped), (1, 2));
            if ahead == NEVER_WRITTEN {
                continue;
            }
            let damaged = log(&[ahead, sound].concat()).unwrap_err();
            assert_eq!(damaged.offset, ByteOffset(4096));
        }
    }

    #[test]
    fn a_block_of_records_that_was_never_written_ends_the_log_whatever_follows() {
        let bytes = [record(0, 10, 8), [0; 16], record(20, 1, 9)].concat();
        let refused = log(&bytes).unwrap().finish_strict().unwrap_err();
        assert_eq!(refused.offset, ByteOffset(4096 + 16));
        let upper = log(&bytes).unwrap().finish_repaired().unwrap();
        assert_eq!(upper.index_len, ByteLen(4096 + 16));
        assert_eq!((upper.index.len(), upper.records_dropped), (1, 2));
    }

    #[test]
    fn headers_that_are_not_of_one_upper_are_refused() {
        let data = header(Flags::LOG_DATA, 0);
        let index = header(Flags::LOG_INDEX, 4096);
        let other = Header {
            uuid: None,
            ..index.clone()
        };
        let cases = [
            (data.clone(), other),
            (data.clone(), header(Flags::LOG_INDEX, 0)),
            (data.clone(), header(Flags::HYBRID_INDEX, 4096)),
            (data.clone(), data.clone()),
            (index.clone(), index.clone()),
            (header(Flags::SPARSE_DATA, 0), index.clone()),
            (header(Flags::LAYER_HEADER, 0), index.clone()),
        ];
        for (data, index) in cases {
            let error = loader(&data, &index, &[]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        }
        assert!(loader(&data, &index, &[]).is_ok());
    }

    #[test]
    fn two_sizes_are_refused_or_the_index_files_counts() {
        let data = header(Flags::LOG_DATA, 0);
        let index = Header {
            virtual_size: Sectors(200),
            ..header(Flags::LOG_INDEX, 4096)
        };
        let strict = loader(&data, &index, &[]).unwrap().finish_strict();
        assert_eq!(strict.unwrap_err().kind, ErrorKind::Corrupt);
        let repaired = loader(&data, &index, &[]).unwrap().finish_repaired();
        assert_eq!(repaired.unwrap().header.virtual_size, Sectors(200));
    }
}
