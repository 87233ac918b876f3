//! Sizes as people write them: `4096`, `512M`, `8G`, `1TiB`. Units are powers of 1024.

use block::{ByteLen, SECTOR_BYTES};

/// The largest size in bytes: the kernel keeps a device's size in a signed 64-bit byte count (`loff_t`), rounded down
/// to whole sectors.
pub const SIZE_BYTES_MAX: u64 = (i64::MAX as u64 / SECTOR_BYTES) * SECTOR_BYTES;

/// Why a text or number is no size of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Not a number followed by a known unit.
    #[error(
        "{text:?} is not a size; write bytes, or a number with K, M, G, T, P or E (powers of 1024), such as 8G or 512MiB"
    )]
    Malformed {
        /// What was written, cut to a few characters.
        text: String,
    },
    /// Nothing at all.
    #[error("a device cannot have size 0; give a size such as 8G")]
    Zero,
    /// Not whole sectors.
    #[error("{bytes} bytes are not a multiple of 512; a device consists of whole sectors")]
    NotSectors {
        /// The size in bytes.
        bytes: u64,
    },
    /// Beyond [`SIZE_BYTES_MAX`].
    #[error("the size {text:?} is too large; a device has at most {SIZE_BYTES_MAX} bytes")]
    TooLarge {
        /// What was written.
        text: String,
    },
}

impl SizeError {
    /// The stable code of the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "invalid_size"
    }
}

/// Characters of a malformed size that an error message quotes.
const QUOTED_CHARS_MAX: usize = 32;

/// Parses a size of a device: decimal digits, then nothing or one of `K M G T P E`, optionally spelled `KiB`; in any case,
/// with blanks around both. The API takes the same texts beside a spec.
///
/// # Errors
/// Every [`SizeError`]; the size is checked as a device's, so 0 and broken sectors are refused.
pub fn parse_size(text: &str) -> Result<ByteLen, SizeError> {
    let quoted = || text.chars().take(QUOTED_CHARS_MAX).collect::<String>();
    let malformed = || SizeError::Malformed { text: quoted() };
    let too_large = || SizeError::TooLarge { text: quoted() };
    let trimmed = text.trim();
    let digits_end = trimmed
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(digits_end);
    if digits.is_empty() {
        return Err(malformed());
    }
    let shift = unit_shift(unit.trim()).ok_or_else(malformed)?;
    // Only digits are left, so the one way to fail is overflow.
    let number: u64 = digits.parse().map_err(|_| too_large())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(too_large)?;
    check_size(ByteLen(bytes))
}

/// Checks that a device may have this size.
///
/// # Errors
/// [`SizeError::Zero`], [`SizeError::NotSectors`] or [`SizeError::TooLarge`].
pub(crate) fn check_size(size: ByteLen) -> Result<ByteLen, SizeError> {
    match size.0 {
        0 => Err(SizeError::Zero),
        bytes if !bytes.is_multiple_of(SECTOR_BYTES) => Err(SizeError::NotSectors { bytes }),
        bytes if bytes > SIZE_BYTES_MAX => Err(SizeError::TooLarge {
            text: bytes.to_string(),
        }),
        _ => Ok(size),
    }
}

fn unit_shift(unit: &str) -> Option<u32> {
    match unit.to_ascii_uppercase().as_str() {
        "" | "B" => Some(0),
        "K" | "KIB" => Some(10),
        "M" | "MIB" => Some(20),
        "G" | "GIB" => Some(30),
        "T" | "TIB" => Some(40),
        "P" | "PIB" => Some(50),
        "E" | "EIB" => Some(60),
        _ => None,
    }
}

/// The size as people write it, exactly: `8G`, `1536M`, `513`.
pub(crate) fn spell(size: ByteLen) -> String {
    let units = [
        (60, "E"),
        (50, "P"),
        (40, "T"),
        (30, "G"),
        (20, "M"),
        (10, "K"),
    ];
    let fits = |(shift, _): &(u32, &str)| size.0 != 0 && size.0.trailing_zeros() >= *shift;
    match units.into_iter().find(fits) {
        Some((shift, unit)) => format!("{}{unit}", size.0 >> shift),
        None => size.0.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_in_every_unit() {
        let cases = [
            ("512", 512),
            ("4096B", 4096),
            ("4k", 4 << 10),
            ("512M", 512 << 20),
            ("512MiB", 512 << 20),
            ("8G", 8 << 30),
            ("1T", 1 << 40),
            ("2PiB", 2 << 50),
            ("7e", 7 << 60),
            (" 8 gib ", 8 << 30),
            ("9223372036854775296", SIZE_BYTES_MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(ByteLen(bytes)), "{text}");
        }
    }

    #[test]
    fn each_bad_size_has_its_own_error() {
        let malformed = |text: &str| SizeError::Malformed { text: text.into() };
        let too_large = |text: &str| SizeError::TooLarge { text: text.into() };
        let cases = [
            ("", malformed("")),
            ("G", malformed("G")),
            ("8X", malformed("8X")),
            ("8KB", malformed("8KB")),
            ("iB", malformed("iB")),
            ("8iB", malformed("8iB")),
            ("-8G", malformed("-8G")),
            ("1.5G", malformed("1.5G")),
            ("\u{661}", malformed("\u{661}")),
            ("0", SizeError::Zero),
            ("0G", SizeError::Zero),
            ("511", SizeError::NotSectors { bytes: 511 }),
            ("9223372036854775808", too_large("9223372036854775808")),
            ("99999999999999999999", too_large("99999999999999999999")),
            ("8E", too_large("9223372036854775808")),
            ("99999999999P", too_large("99999999999P")),
        ];
        for (text, error) in cases {
            assert_eq!(parse_size(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_size_is_spelled_with_the_largest_unit_that_is_exact() {
        for (bytes, text) in [(8 << 30, "8G"), (1536 << 20, "1536M"), (513, "513")] {
            assert_eq!(spell(ByteLen(bytes)), text);
        }
    }

    #[test]
    fn a_long_malformed_size_is_cut_in_the_message() {
        let error = parse_size(&"x".repeat(10_000)).unwrap_err();
        assert!(error.to_string().len() < 200);
    }
}
