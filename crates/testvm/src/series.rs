//! The kernel series that are tested, and where Debian keeps them.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// A kernel series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelSeries {
    /// 6.12: Debian 13's own, with the control-command race of 6.10 to 6.13.
    V6_12,
    /// 7.3 or newer: the newest that Debian packages for stable.
    Latest,
}

impl KernelSeries {
    /// Every series, oldest first.
    pub const ALL: [Self; 2] = [Self::V6_12, Self::Latest];

    /// The suites that may have it, best first. Suites are named by release so that the host's own one does not matter.
    pub(crate) const fn suites(self) -> &'static [&'static str] {
        match self {
            Self::V6_12 => &["bookworm-backports", "trixie"],
            Self::Latest => &["trixie-backports"],
        }
    }

    /// Whether a release such as `6.12.95+deb12-cloud-amd64` belongs to the series.
    pub(crate) fn has(self, release: &str) -> bool {
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        match self {
            Self::V6_12 => version == (6, 12),
            Self::Latest => version >= (7, 3),
        }
    }
}

impl fmt::Display for KernelSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V6_12 => "6.12",
            Self::Latest => "latest",
        })
    }
}

impl FromStr for KernelSeries {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|series| series.to_string() == text)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Invalid,
                    "read a kernel series",
                    format!("{text:?} is not known; the series are \"6.12\" and \"latest\""),
                )
            })
    }
}

/// Where tests that need a kernel run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the running kernel, without a machine.
    Host,
    /// In a machine per series.
    Guests(Vec<KernelSeries>),
}

impl Place {
    /// Every series.
    #[must_use]
    pub fn all_guests() -> Self {
        Self::Guests(KernelSeries::ALL.to_vec())
    }
}

impl FromStr for Place {
    type Err = Error;

    /// `host`, or series separated by commas, such as `6.12,latest`. Empty means every series.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text.trim() {
            "" => Ok(Self::all_guests()),
            "host" => Ok(Self::Host),
            list => list
                .split(',')
                .map(|part| part.trim().parse())
                .collect::<Result<Vec<_>, _>>()
                .map(Self::Guests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_belong_to_exactly_the_right_series() {
        let cases = [
            ("6.12.95+deb12-cloud-amd64", true, false),
            ("6.120.1-cloud-amd64", false, false),
            ("6.18.4", false, false),
            ("7.2.13", false, false),
            ("7.3.4+deb13-cloud-amd64", false, true),
            ("7.10.0", false, true),
            ("8.0", false, true),
            ("", false, false),
            ("deb13", false, false),
        ];
        for (release, old, latest) in cases {
            assert_eq!(KernelSeries::V6_12.has(release), old, "{release}");
            assert_eq!(KernelSeries::Latest.has(release), latest, "{release}");
        }
    }

    #[test]
    fn places_parse_and_unknown_series_are_named() {
        assert_eq!("".parse::<Place>().unwrap(), Place::all_guests());
        assert_eq!("host".parse::<Place>().unwrap(), Place::Host);
        assert_eq!(
            "latest, 6.12".parse::<Place>().unwrap(),
            Place::Guests(vec![KernelSeries::Latest, KernelSeries::V6_12])
        );
        let error = "6.12,5.4".parse::<Place>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("\"5.4\""));
    }
}
