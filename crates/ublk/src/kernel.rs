//! Release numbers of the kernel, and the floor below which nothing is tried.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// A release of Linux: `6.12.95+deb12-cloud-amd64` is 6.12.95. Ordered.
///
/// Some distributions put their own counter in place of the third number (`6.1.0-31-amd64`); then it is 0 here and
/// fixes of stable releases are assumed to be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelRelease {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number; 0 if there is none.
    pub patch: u32,
}

/// Not a release of Linux.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kernel release such as 6.12.95; check `uname -r`")]
pub struct ReleaseError(String);

impl KernelRelease {
    /// The oldest release that is served: the first with everything the data path needs and without known defects
    /// that cannot be worked around.
    pub const FLOOR: Self = Self::new(6, 8, 0);

    /// A release.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Refuses a release below [`KernelRelease::FLOOR`].
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`], in one line that names both releases.
    pub fn check_floor(self) -> Result<(), Error> {
        if self >= Self::FLOOR {
            return Ok(());
        }
        Err(Error::unsupported(
            "kernel check",
            format!(
                "failed: this is Linux {self}, too old; Linux {}.{} or newer is needed",
                Self::FLOOR.major,
                Self::FLOOR.minor
            ),
            "boot a newer kernel",
        ))
    }
}

impl FromStr for KernelRelease {
    type Err = ReleaseError;

    /// Takes the leading numbers of `uname -r`; whatever follows them is the distribution's.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numeric = text
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .next()
            .unwrap_or_default();
        let mut numbers = numeric.split('.').map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok);
        match (next(), next()) {
            (Some(major), Some(minor)) => Ok(Self::new(major, minor, next().unwrap_or(0))),
            _ => Err(ReleaseError(text.to_owned())),
        }
    }
}

impl fmt::Display for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn releases_of_distributions_parse() {
        let table = [
            ("6.12.95+deb12-cloud-amd64", (6, 12, 95)),
            ("7.3.4+deb13-cloud-amd64", (7, 3, 4)),
            ("6.8.0-45-generic", (6, 8, 0)),
            ("6.1.0-31-amd64", (6, 1, 0)),
            ("6.8-rc3", (6, 8, 0)),
            ("6.17.0-1012-aws", (6, 17, 0)),
            ("10.0", (10, 0, 0)),
        ];
        for (text, (major, minor, patch)) in table {
            let release = KernelRelease::new(major, minor, patch);
            assert_eq!(text.parse(), Ok(release), "{text}");
        }
        for text in ["", "6", "linux", "6.", ".8", "-6.8", "99999999999.1"] {
            assert!(text.parse::<KernelRelease>().is_err(), "{text}");
        }
    }

    #[test]
    fn kernels_below_the_floor_are_refused_in_one_line() {
        let line = KernelRelease::new(6, 7, 12).check_floor().unwrap_err();
        assert_eq!(
            line.to_string(),
            "kernel check failed: this is Linux 6.7.12, too old; Linux 6.8 or newer is needed; \
             boot a newer kernel"
        );
        for release in [(6, 8, 0), (6, 12, 95), (7, 0, 0)] {
            let (major, minor, patch) = release;
            assert!(
                KernelRelease::new(major, minor, patch)
                    .check_floor()
                    .is_ok()
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_back(major in 0_u32..100, minor in 0_u32..100, patch: u32) {
            let release = KernelRelease::new(major, minor, patch);
            prop_assert_eq!(release.to_string().parse(), Ok(release));
        }

        #[test]
        fn any_text_parses_or_is_refused(text in ".*") {
            let _: Result<KernelRelease, _> = text.parse();
        }
    }
}
