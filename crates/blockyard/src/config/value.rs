//! Values of the arguments and of the configuration file that know their range: what is out of it is refused where it is
//! read, so that a message can name the argument or the line.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A parser of an argument that is a number of that range.
pub(crate) fn number<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        text.parse()
            .ok()
            .filter(|number| range.contains(number))
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("it must be {}", description(*range.start(), *range.end())))
    }
}

fn description(min: u64, max: u64) -> String {
    format!("a number from {min} to {max}")
}

/// A number of the file from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Number<MIN, MAX> {
    pub(super) const fn value(self) -> u64 {
        self.0
    }

    /// The number where a machine word is wanted; `MAX` of those is less than any word's.
    pub(super) fn count(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Number<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Visitor<'_> for NumberVisitor<MIN, MAX> {
    type Value = Number<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&description(MIN, MAX))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        u64::try_from(number)
            .ok()
            .filter(|number| (MIN..=MAX).contains(number))
            .map(Number)
            .ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }
}

/// A path of the file. The daemon's working directory must not matter to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AbsolutePath(pub(super) PathBuf);

impl<'de> Deserialize<'de> for AbsolutePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PathVisitor)
    }
}

struct PathVisitor;

impl Visitor<'_> for PathVisitor {
    type Value = AbsolutePath;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an absolute path")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AbsolutePath, E> {
        let path = PathBuf::from(text);
        if path.is_absolute() {
            Ok(AbsolutePath(path))
        } else {
            Err(E::invalid_value(Unexpected::Str(text), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_out_of_range_is_told_the_range() {
        let parse = number::<u16>(1..=128);
        assert_eq!((parse("1"), parse("128")), (Ok(1), Ok(128)));
        for text in ["0", "129", "-1", "many", "", "1.5", "99999999999999999999"] {
            let refused = Err("it must be a number from 1 to 128".to_owned());
            assert_eq!(parse(text), refused, "{text}");
        }
    }
}
