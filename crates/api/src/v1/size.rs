//! Sizes as people write them: `8G` and `512MiB` beside plain bytes. Binary units only.

use std::fmt;
use std::str::FromStr;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// A size in bytes. In JSON an integer, or a string with a binary unit; always written as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Nothing, or a unit without a number.
    #[error(
        "size {text:?} has no number; write bytes, or a number with K, M, G, T, P or E (powers of 1024), such as 8G or 512MiB"
    )]
    NoNumber {
        /// What was given.
        text: String,
    },
    /// Something else than a unit follows the number.
    #[error(
        "size {text:?} has an unknown unit; write bytes, or a number with K, M, G, T, P or E (powers of 1024), such as 8G or 512MiB"
    )]
    UnknownUnit {
        /// What was given.
        text: String,
    },
    /// More bytes than 64 bits count.
    #[error("size {text:?} is too large; the most is 16 EiB less one byte")]
    TooLarge {
        /// What was given.
        text: String,
    },
}

/// `log2` of each unit. `KB` and the like are left out: they mean 1000 to some and 1024 to others.
const UNITS: [(&str, u32); 14] = [
    ("", 0),
    ("B", 0),
    ("K", 10),
    ("KIB", 10),
    ("M", 20),
    ("MIB", 20),
    ("G", 30),
    ("GIB", 30),
    ("T", 40),
    ("TIB", 40),
    ("P", 50),
    ("PIB", 50),
    ("E", 60),
    ("EIB", 60),
];

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        let owned = || text.to_owned();
        if number.is_empty() {
            return Err(SizeError::NoNumber { text: owned() });
        }
        let unit = unit.trim().to_ascii_uppercase();
        let shift = UNITS
            .iter()
            .find_map(|(name, shift)| (*name == unit).then_some(*shift))
            .ok_or_else(|| SizeError::UnknownUnit { text: owned() })?;
        number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(1 << shift))
            .map(Self)
            .ok_or_else(|| SizeError::TooLarge { text: owned() })
    }
}

impl fmt::Display for ByteSize {
    /// The shortest exact form: `8G`, `1536M`, `513`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (60, "E"),
            (50, "P"),
            (40, "T"),
            (30, "G"),
            (20, "M"),
            (10, "K"),
        ];
        for (shift, unit) in units {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes as a non-negative integer, or a string such as \"8G\"")
    }

    fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes)
            .map(ByteSize)
            .map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl PartialSchema for ByteSize {
    fn schema() -> RefOr<Schema> {
        let object = |kind, text| {
            ObjectBuilder::new()
                .schema_type(SchemaType::Type(kind))
                .description(Some(text))
        };
        let integer = object(Type::Integer, "Bytes.").minimum(Some(0_u64));
        let string = object(
            Type::String,
            "Digits and a binary unit: K, M, G, T, P, E, or KiB to EiB.",
        )
        .pattern(Some("^[0-9]+ ?([KMGTPEkmgtpe]([Ii][Bb])?|[Bb])?$"));
        OneOfBuilder::new()
            .item(integer)
            .item(string)
            .description(Some("A size in bytes."))
            .into()
    }
}

impl ToSchema for ByteSize {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_binary_and_spelled_short_or_long() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("8G", 8 << 30),
            ("8g", 8 << 30),
            ("8 GiB", 8 << 30),
            ("512M", 512 << 20),
            ("512MiB", 512 << 20),
            ("3K", 3072),
            ("1T", 1 << 40),
            ("15E", 15 << 60),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_its_reason() {
        let no_number = |text: &str| SizeError::NoNumber {
            text: text.to_owned(),
        };
        let unknown = |text: &str| SizeError::UnknownUnit {
            text: text.to_owned(),
        };
        let large = |text: &str| SizeError::TooLarge {
            text: text.to_owned(),
        };
        for (text, error) in [
            ("", no_number("")),
            ("G", no_number("G")),
            ("-1", no_number("-1")),
            ("8GB", unknown("8GB")),
            ("1.5G", unknown("1.5G")),
            ("8X", unknown("8X")),
            ("16E", large("16E")),
            ("99999999999999999999", large("99999999999999999999")),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Err(error), "{text}");
        }
    }

    #[test]
    fn json_takes_integers_and_strings_and_nothing_else() {
        assert_eq!(
            serde_json::from_str::<ByteSize>("512").unwrap(),
            ByteSize(512)
        );
        assert_eq!(
            serde_json::from_str::<ByteSize>("\"1K\"").unwrap(),
            ByteSize(1024)
        );
        for text in ["-1", "1.5", "true", "null", "[]", "\"x\""] {
            assert!(serde_json::from_str::<ByteSize>(text).is_err(), "{text}");
        }
        assert_eq!(serde_json::to_string(&ByteSize(1024)).unwrap(), "1024");
    }

    proptest! {
        #[test]
        fn printing_and_parsing_round_trip(bytes in any::<u64>(), shift in 0_u32..64) {
            let size = ByteSize(bytes >> shift << shift);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
