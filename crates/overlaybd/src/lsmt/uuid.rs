//! The uuid of a layer, as text in a header: 36 characters and a NUL.
//!
//! An own type instead of the `uuid` crate: 16 bytes, one text form, no versions and no generator.

use std::fmt;

/// Characters of the text form: 32 digits in groups of 8, 4, 4, 4 and 12, joined by `-`.
const TEXT_LEN: usize = 36;
/// Bytes of a header's field: the text and a NUL.
pub(super) const FIELD_LEN: usize = TEXT_LEN + 1;
/// Where the text has a `-`.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// The id of a layer. Never nil: a nil uuid means that there is none.
///
/// The 16 bytes appear in order, each as two hexadecimal digits; the case of the digits has no meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerUuid([u8; 16]);

impl LayerUuid {
    /// From raw bytes, or `None` if all of them are zero.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// The raw bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// From the text form in either case, or `None` if it is not one or is nil.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<Self> {
        if text.len() != TEXT_LEN || DASHES.iter().any(|at| text.get(*at) != Some(&b'-')) {
            return None;
        }
        let mut digits = text
            .iter()
            .enumerate()
            .filter(|(at, _)| !DASHES.contains(at))
            .map(|(_, digit)| hex_value(*digit));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let (high, low) = (digits.next()??, digits.next()??);
            *byte = high << 4 | low;
        }
        Self::from_bytes(bytes)
    }

    /// From a header's field. What is no uuid counts as none, as the reference reads it.
    pub(super) fn from_field(field: &[u8; FIELD_LEN]) -> Option<Self> {
        match field.split_last() {
            Some((0, text)) => Self::from_text(text),
            _ => None,
        }
    }
}

/// A header's field. None is written as the nil text, as the C++ reference does.
pub(super) fn to_field(uuid: Option<LayerUuid>) -> [u8; FIELD_LEN] {
    let text = uuid.unwrap_or(LayerUuid([0; 16])).to_string();
    let mut field = [0; FIELD_LEN];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for LayerUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02X}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LayerUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LayerUuid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0BD00064-0102-4F00-8000-0000000000EF";

    #[test]
    fn text_of_either_case_is_the_same_uuid() {
        let uuid = LayerUuid::from_text(TEXT.as_bytes()).unwrap();
        assert_eq!(uuid.to_string(), TEXT);
        assert_eq!(uuid.bytes()[..5], [0x0B, 0xD0, 0x00, 0x64, 0x01]);
        let lower = TEXT.to_lowercase();
        assert_eq!(LayerUuid::from_text(lower.as_bytes()), Some(uuid));
        assert_eq!(LayerUuid::from_field(&to_field(Some(uuid))), Some(uuid));
    }

    #[test]
    fn what_is_no_uuid_is_none() {
        let nil = "00000000-0000-0000-0000-000000000000";
        let cases = [
            "",
            nil,
            &TEXT[..35],
            &format!("{TEXT}0"),
            &TEXT.replace('F', "G"),
            &TEXT.replace('-', "0"),
        ];
        for text in cases {
            assert_eq!(LayerUuid::from_text(text.as_bytes()), None, "{text}");
        }
        assert_eq!(to_field(None)[..36], *nil.as_bytes());
        assert_eq!(LayerUuid::from_field(&[0; FIELD_LEN]), None);
    }
}
