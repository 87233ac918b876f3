//! ZFile's checksums: CRC-32C without its inversions, so what a library calls the register or the state.

use crc_fast::{CrcAlgorithm, Digest};

/// The state that the checksum of a block starts with (containerd/overlaybd, `zfile.cpp`: a salt, so that a block of
/// zeros does not have the checksum zero).
const BLOCK_SEED: u32 = 100_007;

/// Of a header, a trailer or the jump table: starts with zero.
pub(super) fn metadata(bytes: &[u8]) -> u32 {
    continued(0, bytes)
}

/// As if `bytes` followed what has the checksum `state`.
pub(super) fn continued(state: u32, bytes: &[u8]) -> u32 {
    let mut register = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state.into());
    register.update(bytes);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a CRC-32 is the low half of the register"
    )]
    let register = register.get_state() as u32;
    register
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

    /// The library has a different way for short, medium and long inputs and for each kind of processor.
    #[test]
    fn every_length_has_the_checksum_of_the_definition() {
        let bytes: Vec<u8> = (0..3000_u32)
            .map(|index| u8::try_from(index * 7 % 251).unwrap())
            .collect();
        let mut register = BLOCK_SEED;
        for len in 0..bytes.len() {
            assert_eq!(block(&bytes[..len]), register, "{len} bytes");
            register ^= u32::from(bytes[len]);
            for _ in 0..8 {
                let carry = register & 1;
                // Castagnoli's polynomial, reflected.
                register = (register >> 1) ^ (carry * 0x82F6_3B78);
            }
        }
    }
}
