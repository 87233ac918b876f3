//! ZFile's checksums: CRC-32C without the inversions that every library makes.

/// The state that the checksum of a block starts with (containerd/overlaybd, `zfile.cpp`: a salt, so that a block of
/// zeros does not have the checksum zero).
const BLOCK_SEED: u32 = 100_007;

/// Of a header, a trailer or the jump table: starts with zero.
pub(super) fn metadata(bytes: &[u8]) -> u32 {
    continued(0, bytes)
}

/// As if `bytes` followed what has the checksum `state`.
pub(super) fn continued(state: u32, bytes: &[u8]) -> u32 {
    // A library inverts the register before and after; inverting what goes in and out leaves the register itself.
    !crc32c::crc32c_append(!state, bytes)
}

/// Of the compressed bytes of a block.
pub(super) fn block(bytes: &[u8]) -> u32 {
    continued(BLOCK_SEED, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksums_are_those_of_the_reference() {
        assert_eq!(metadata(b"123456789"), 0x58E3_FA20);
        assert_eq!(block(b"123456789"), 0x3C9B_D4E0);
        assert_eq!(continued(metadata(b"1234"), b"56789"), 0x58E3_FA20);
        assert_eq!(metadata(b""), 0);
    }
}
