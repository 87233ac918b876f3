//! What the clients write: every 32 bytes say which write they belong to and where they were meant to go, so that any
//! piece that ends up in a wrong place, or that is older than it may be, is recognised.
//!
//! A unit is a little-endian word, `write << 24 | (sector mod 2^16) << 8 | index in the sector`, and 24 constant bytes. Writes
//! are numbered from 1, so that no word is 0, which is what holes and zeroed ranges read as.

/// Bytes of a sector.
pub(crate) const SECTOR: usize = 512;
/// Bytes of the smallest piece that is recognised; transfers are cut at multiples of it.
pub(crate) const UNIT: usize = 32;

const PADDING: u8 = 0x5a;

/// Who wrote a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Nobody: zeros.
    Nobody,
    /// The write of this number.
    Write(u64),
    /// The unit was never meant for this place.
    Foreign(u64),
}

/// Fills `bytes` with what write number `write` stores from `first_sector` on.
pub(crate) fn fill(write: u64, first_sector: u64, bytes: &mut [u8]) {
    bytes.fill(PADDING);
    for (sector, chunk) in (first_sector..).zip(bytes.chunks_mut(SECTOR)) {
        let first = write << 24 | (sector & 0xffff) << 8;
        for (word, unit) in (first..).zip(chunk.as_chunks_mut::<UNIT>().0) {
            if let Some(head) = unit.first_chunk_mut() {
                *head = word.to_le_bytes();
            }
        }
    }
}

/// The writers of the units of one sector, neighbours of the same writer taken together.
pub(crate) fn writers(sector: u64, bytes: &[u8]) -> Vec<Writer> {
    let mut expected = [0; SECTOR];
    if bytes == expected {
        return vec![Writer::Nobody];
    }
    let write = write_of(bytes).unwrap_or(0);
    fill(write, sector, &mut expected);
    if write > 0 && bytes == expected {
        return vec![Writer::Write(write)];
    }
    let mut found = Vec::new();
    for (index, unit) in bytes.as_chunks::<UNIT>().0.iter().enumerate() {
        found.push(writer_of_unit(sector, index, unit));
    }
    found.dedup();
    found
}

fn writer_of_unit(sector: u64, index: usize, unit: &[u8; UNIT]) -> Writer {
    if *unit == [0; UNIT] {
        return Writer::Nobody;
    }
    let write = write_of(unit).unwrap_or(0);
    let mut expected = [0; SECTOR];
    fill(write, sector, &mut expected);
    if write > 0 && expected.as_chunks().0.get(index) == Some(unit) {
        Writer::Write(write)
    } else {
        Writer::Foreign(write)
    }
}

/// The write that data in flight belongs to.
pub(crate) fn write_of(bytes: &[u8]) -> Option<u64> {
    bytes
        .first_chunk()
        .map(|word| u64::from_le_bytes(*word) >> 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_names_its_write_and_a_moved_piece_is_foreign() {
        let mut bytes = vec![0; 2 * SECTOR];
        fill(77, 5, &mut bytes);
        assert_eq!(write_of(&bytes), Some(77));
        assert_eq!(writers(5, &bytes[..SECTOR]), [Writer::Write(77)]);
        assert_eq!(writers(6, &bytes[..SECTOR]), [Writer::Foreign(77)]);
        bytes.copy_within(0..UNIT, UNIT);
        assert_eq!(
            writers(5, &bytes[..SECTOR]),
            [Writer::Write(77), Writer::Foreign(77), Writer::Write(77)]
        );
    }

    #[test]
    fn a_torn_sector_shows_all_its_writers() {
        let (mut old, mut new) = (vec![0; SECTOR], vec![0; SECTOR]);
        fill(1, 9, &mut old);
        fill(2, 9, &mut new);
        new[64..128].copy_from_slice(&old[64..128]);
        new[256..].fill(0);
        assert_eq!(
            writers(9, &new),
            [
                Writer::Write(2),
                Writer::Write(1),
                Writer::Write(2),
                Writer::Nobody
            ]
        );
    }

    #[test]
    fn data_that_was_never_filled_belongs_to_nobody_known() {
        assert!(matches!(
            writers(0, &[0xa5; SECTOR])[..],
            [Writer::Foreign(_)]
        ));
    }
}
