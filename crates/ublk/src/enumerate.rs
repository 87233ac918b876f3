//! Which devices the kernel has: read from sysfs, never by trying ids.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use block::DeviceId;

use crate::abi::control::UBLK_MINORS;
use crate::command::Command;
use crate::control::ControlRing;
use crate::device::DeviceInfo;
use crate::diagnosis::ErrorKind;
use crate::errno::Errno;
use crate::error::Error;
use crate::reply::Reply;

/// Where the kernel lists its char devices.
pub const SYSFS_CLASS: &str = "/sys/class/ublk-char";

/// Devices asked about at once; more would only wait for workers.
const SURVEY_WINDOW: usize = 128;

/// The ids of all devices of this host, whoever made them, in ascending order. `class` is [`SYSFS_CLASS`].
///
/// # Errors
/// [`ErrorKind::Missing`] when the driver is not loaded; otherwise what reading the directory said.
pub fn list_devices(class: &Path) -> Result<Vec<DeviceId>, Error> {
    let failed = |error: io::Error| {
        let errno = Errno::from_io(&error);
        let advice = match errno {
            Errno::ENOENT => (
                ErrorKind::Missing,
                "load the driver with `modprobe ublk_drv`",
            ),
            _ => (ErrorKind::Other, "sysfs must be mounted and readable"),
        };
        Error::on_path("list", class, errno, advice)
    };
    let mut devices = Vec::new();
    for entry in std::fs::read_dir(class).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        devices.extend(name.to_str().and_then(parse_name));
    }
    devices.sort_unstable();
    Ok(devices)
}

/// The device of a name such as `ublkc7`; `None` for anything the kernel would not write.
fn parse_name(name: &str) -> Option<DeviceId> {
    let digits = name.strip_prefix("ublkc")?;
    let id: u32 = digits.parse().ok()?;
    (id < UBLK_MINORS && id.to_string() == digits).then_some(DeviceId(id))
}

/// A listed device and what the driver says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// The device.
    pub device: DeviceId,
    /// Its description, or why there is none.
    pub info: Result<DeviceInfo, Error>,
}

/// Asks the driver about every listed device, in ascending order. A device that vanishes meanwhile is left out; each other failure stands
/// beside its device. Blocks, up to `deadline` for each window of devices and the grace of the control ring.
///
/// # Errors
/// Those of [`list_devices`].
pub fn survey_devices(
    control: &ControlRing,
    class: &Path,
    deadline: Duration,
) -> Result<Vec<Surveyed>, Error> {
    let devices = list_devices(class)?;
    let mut survey = Vec::with_capacity(devices.len());
    for window in devices.chunks(SURVEY_WINDOW) {
        survey.extend(ask(control, window, deadline));
    }
    survey.retain(|one| !matches!(&one.info, Err(error) if error.kind() == ErrorKind::NotFound));
    survey.sort_unstable_by_key(|one| one.device);
    Ok(survey)
}

fn ask(control: &ControlRing, devices: &[DeviceId], deadline: Duration) -> Vec<Surveyed> {
    let (sender, receiver) = mpsc::channel();
    for device in devices.iter().copied() {
        let sender = sender.clone();
        control.submit(
            Command::GetDevInfo(device),
            deadline,
            Box::new(move |answer| {
                // The receiver outlives every sender.
                let _ = sender.send((device, answer));
            }),
        );
    }
    drop(sender);
    receiver
        .into_iter()
        .map(|(device, answer)| {
            let info = match answer.and_then(|reply| into_info(device, &reply)) {
                // Devices of unprivileged users want the second form, and say so by EINVAL.
                Err(error) if error.kind() == ErrorKind::Invalid => control
                    .call(Command::GetDevInfo2(device), deadline)
                    .and_then(|reply| into_info(device, &reply)),
                info => info,
            };
            Surveyed { device, info }
        })
        .collect()
}

fn into_info(device: DeviceId, reply: &Reply) -> Result<DeviceInfo, Error> {
    reply.info().copied().ok_or_else(|| {
        let command = Command::GetDevInfo(device).kind();
        Error::protocol(command, Some(device), "the answer is not a description")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_kernel_writes_are_devices() {
        let table = [
            ("ublkc0", Some(0)),
            ("ublkc17", Some(17)),
            ("ublkc1048575", Some(1_048_575)),
            ("ublkc1048576", None),
            ("ublkc", None),
            ("ublkc-1", None),
            ("ublkc+1", None),
            ("ublkc01", None),
            ("ublkb3", None),
            ("ublkc3p1", None),
            ("ublkc99999999999", None),
        ];
        for (name, id) in table {
            assert_eq!(parse_name(name), id.map(DeviceId), "{name}");
        }
    }

    #[test]
    fn devices_are_listed_in_order() {
        let class = tempfile::tempdir().unwrap();
        for name in ["ublkc10", "ublkc2", "ublkc0", "noise", "ublkb1"] {
            std::fs::create_dir(class.path().join(name)).unwrap();
        }
        assert_eq!(
            list_devices(class.path()).unwrap(),
            [DeviceId(0), DeviceId(2), DeviceId(10)]
        );
    }

    #[test]
    fn without_the_driver_there_is_nothing_to_list() {
        let class = tempfile::tempdir().unwrap();
        let error = list_devices(&class.path().join("ublk-char")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("modprobe ublk_drv"), "{error}");
    }
}
