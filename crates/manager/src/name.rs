//! The name of a device: what the user calls it, a file name under `/dev/blockyard`, a key in the API.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name in characters. Fits a host name label, and leaves room in a path and in a log line.
pub const NAME_CHARS_MAX: usize = 63;

/// A device name: 1 to [`NAME_CHARS_MAX`] ASCII characters, the first a letter or digit, the others a letter, digit,
/// `.`, `_` or `-`. So it is a safe file name and can be neither `.` nor an option of a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName(String);

/// Why a text is no device name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No characters.
    #[error("a device name is empty; give it 1 to {NAME_CHARS_MAX} characters")]
    Empty,
    /// More than [`NAME_CHARS_MAX`] characters.
    #[error(
        "a device name of {len_chars} characters is too long; use at most {NAME_CHARS_MAX} characters"
    )]
    TooLong {
        /// Its length in characters.
        len_chars: usize,
    },
    /// It holds a slash: names are not paths.
    #[error("the device name {name:?} holds a slash; a name is not a path")]
    Slash {
        /// The name.
        name: String,
    },
    /// A character that is not allowed at its place.
    #[error(
        "the device name {name:?} holds {found:?} at character {position}; use letters, digits, '.', '_' and '-', \
         starting with a letter or digit"
    )]
    BadCharacter {
        /// The name.
        name: String,
        /// The first character that is not allowed.
        found: char,
        /// Its place, counted from 1.
        position: usize,
    },
}

impl NameError {
    /// The stable code of the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        "invalid_name"
    }
}

impl DeviceName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        // Before anything is quoted back: an error message must stay short.
        let len_chars = text.chars().count();
        if len_chars > NAME_CHARS_MAX {
            return Err(NameError::TooLong { len_chars });
        }
        if text.contains('/') {
            return Err(NameError::Slash { name: text.into() });
        }
        let allowed = |index: usize, c: char| {
            c.is_ascii_alphanumeric() || (index > 0 && matches!(c, '.' | '_' | '-'))
        };
        match text.chars().enumerate().find(|&(i, c)| !allowed(i, c)) {
            Some((index, found)) => Err(NameError::BadCharacter {
                name: text.into(),
                found,
                position: index + 1,
            }),
            None => Ok(Self(text.into())),
        }
    }
}

impl TryFrom<String> for DeviceName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_parse_and_print_unchanged() {
        let longest = "a".repeat(NAME_CHARS_MAX);
        for text in ["a", "7", "vm-12", "A.b_C-9", longest.as_str()] {
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_bad_name_has_its_own_error() {
        let bad = |name: &str, found, position| NameError::BadCharacter {
            name: name.into(),
            found,
            position,
        };
        let slash = |name: &str| NameError::Slash { name: name.into() };
        let cases = [
            ("", NameError::Empty),
            (&"x".repeat(64), NameError::TooLong { len_chars: 64 }),
            (&"/".repeat(70), NameError::TooLong { len_chars: 70 }),
            ("a/b", slash("a/b")),
            ("../x", slash("../x")),
            (".", bad(".", '.', 1)),
            ("-a", bad("-a", '-', 1)),
            ("_a", bad("_a", '_', 1)),
            ("a b", bad("a b", ' ', 2)),
            ("a\0", bad("a\0", '\0', 2)),
            ("caf\u{e9}", bad("caf\u{e9}", '\u{e9}', 4)),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<DeviceName>(), Err(error), "{text:?}");
        }
    }
}
