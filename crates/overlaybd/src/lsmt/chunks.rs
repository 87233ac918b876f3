//! Records out of bytes that come in chunks of any length.

use block::ByteOffset;

use super::record::RECORD_BYTES;
use crate::{Error, ErrorKind, FileRange};

/// One record's bytes and which record it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRecord {
    pub(super) bytes: [u8; RECORD_BYTES],
    number: u64,
    pub(super) offset: ByteOffset,
}

impl RawRecord {
    /// An error about this record.
    pub(super) fn error(&self, kind: ErrorKind, fault: impl ToString) -> Error {
        let what = format!("index record {}", self.number);
        Error::new(kind, what, self.offset, fault.to_string())
    }
}

/// Cuts a range of a file into records. Holds at most one record's bytes.
#[derive(Debug)]
pub(super) struct RecordChunks {
    range: FileRange,
    taken: u64,
    partial: [u8; RECORD_BYTES],
    partial_len: usize,
}

impl RecordChunks {
    /// For the records in `range`.
    pub(super) const fn new(range: FileRange) -> Self {
        Self {
            range,
            taken: 0,
            partial: [0; RECORD_BYTES],
            partial_len: 0,
        }
    }

    /// The next record that is whole now, taking bytes from the front of `chunk`.
    pub(super) fn next_record(&mut self, chunk: &mut &[u8]) -> Result<Option<RawRecord>, Error> {
        let room = self.partial.iter_mut().skip(self.partial_len);
        let copied = room.zip(chunk.iter()).map(|(to, from)| *to = *from).count();
        *chunk = chunk.get(copied..).unwrap_or_default();
        self.partial_len += copied;
        if self.partial_len < RECORD_BYTES {
            return Ok(None);
        }
        let record = RawRecord {
            bytes: self.partial,
            number: self.taken / RECORD_BYTES as u64,
            offset: self.range.offset.advanced(self.taken),
        };
        self.partial_len = 0;
        self.taken += RECORD_BYTES as u64;
        if self.taken > self.range.len.0 {
            let detail = format!("behind the index of {}", self.range.len);
            return Err(record.error(ErrorKind::Corrupt, detail));
        }
        Ok(Some(record))
    }

    /// Checks that every byte of the range came.
    pub(super) fn finish(&self) -> Result<(), Error> {
        if self.taken == self.range.len.0 && self.partial_len == 0 {
            return Ok(());
        }
        let came = self.taken + self.partial_len as u64;
        let detail = format!("{came} bytes of {}", self.range.len.0);
        let offset = self.range.offset.advanced(came);
        Err(Error::new(ErrorKind::Truncated, "index", offset, detail))
    }
}

#[cfg(test)]
mod tests {
    use block::ByteLen;

    use super::*;

    fn numbers(chunks: &[&[u8]], len: u64) -> Result<Vec<(u64, u8)>, Error> {
        let mut records = RecordChunks::new(FileRange {
            offset: ByteOffset(4096),
            len: ByteLen(len),
        });
        let mut found = Vec::new();
        for chunk in chunks {
            let mut left = *chunk;
            while let Some(record) = records.next_record(&mut left)? {
                found.push((record.offset.0, record.bytes[0]));
            }
            assert!(left.is_empty());
        }
        records.finish()?;
        Ok(found)
    }

    #[test]
    fn chunks_of_any_length_give_the_same_records() {
        let bytes: Vec<u8> = (0..48).collect();
        let want = vec![(4096, 0), (4112, 16), (4128, 32)];
        for len in 1..=48 {
            let chunks: Vec<_> = bytes.chunks(len).collect();
            assert_eq!(numbers(&chunks, 48).unwrap(), want, "chunks of {len}");
        }
    }

    #[test]
    fn missing_and_surplus_bytes_are_refused() {
        let kind = |bytes: &[u8]| numbers(&[bytes], 32).unwrap_err().kind;
        assert_eq!(kind(&[0; 31]), ErrorKind::Truncated);
        assert_eq!(kind(&[0; 16]), ErrorKind::Truncated);
        assert_eq!(kind(&[0; 48]), ErrorKind::Corrupt);
        assert_eq!(kind(&[0; 40]), ErrorKind::Truncated);
    }
}
