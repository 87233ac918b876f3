//! What this kernel offers. Asked once at the start; nothing falls back silently later.

use std::path::Path;
use std::time::Duration;

use crate::command::Command;
use crate::command_kind::CommandKind;
use crate::control::ControlRing;
use crate::error::Error;
use crate::features::Features;
use crate::kernel::KernelRelease;
use crate::quirks::Quirks;

/// The module's limit of devices.
const UBLKS_MAX: &str = "/sys/module/ublk_drv/parameters/ublks_max";
/// A question that touches no device; a host that needs longer has other troubles.
const DEADLINE: Duration = Duration::from_secs(10);

/// What the running kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The kernel's release, at least [`KernelRelease::FLOOR`].
    pub release: KernelRelease,
    /// The driver's features.
    pub features: Features,
    /// What to work around.
    pub quirks: Quirks,
    /// The module's limit of devices, if it tells. Which devices count is [`crate::Quirk::LimitCountsAllDevices`].
    pub ublks_max: Option<u32>,
}

/// Refuses a running kernel below the floor; returns its release. To be asked before anything else: an old kernel may have no
/// driver at all, and to look for one would be bad advice.
///
/// # Errors
/// [`crate::ErrorKind::Unsupported`].
pub fn check_kernel() -> Result<KernelRelease, Error> {
    let release = running_release()?;
    release.check_floor()?;
    Ok(release)
}

/// Asks the kernel. Blocks.
///
/// # Errors
/// [`crate::ErrorKind::Unsupported`] for a kernel below the floor or a driver without a feature mask; otherwise what
/// the driver says.
pub fn probe(control: &ControlRing) -> Result<Probe, Error> {
    let release = check_kernel()?;
    let reply = control.call(Command::GetFeatures, DEADLINE)?;
    let features = reply.features().ok_or_else(|| {
        Error::protocol(
            CommandKind::GetFeatures,
            None,
            "the answer is not a feature mask",
        )
    })?;
    Ok(Probe {
        release,
        features,
        quirks: Quirks::for_kernel(release, features),
        ublks_max: read_number(Path::new(UBLKS_MAX)),
    })
}

fn running_release() -> Result<KernelRelease, Error> {
    let name = rustix::system::uname();
    name.release()
        .to_string_lossy()
        .parse()
        .map_err(|error: crate::kernel::ReleaseError| {
            Error::unsupported(
                "kernel check",
                format!("failed: {error}"),
                "run on a Linux kernel",
            )
        })
}

/// A number in a sysfs file, or `None` if there is no such file or number: the limit is for information only.
fn read_number(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_a_release() {
        assert!(running_release().unwrap() > KernelRelease::new(3, 0, 0));
    }

    #[test]
    fn a_parameter_that_is_absent_or_no_number_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ublks_max");
        assert_eq!(read_number(&path), None);
        std::fs::write(&path, "4096\n").unwrap();
        assert_eq!(read_number(&path), Some(4096));
        std::fs::write(&path, "many\n").unwrap();
        assert_eq!(read_number(&path), None);
    }
}
