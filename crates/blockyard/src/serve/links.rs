//! `/dev/blockyard/NAME`: a symbolic link to the device while it lives.
//!
//! Links are replaced by rename, so a reader sees the old device, the new one or none, never a half-made link. Daemons of
//! several installations share the directory: at start only links to ublk devices that do not exist are removed, what is no such link is never touched, and whose
//! device a link points at is asked of the kernel before it is replaced or removed (`steps.rs`).

use std::io;
use std::path::{Path, PathBuf};

use block::DeviceId;
use manager::DeviceName;

/// The directory of the links.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    directory: PathBuf,
}

impl Links {
    /// Makes the directory and removes links that point at nothing.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            if node_of(&entry.path()).is_some_and(|node| !node.exists()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Where the link of a device is.
    pub(crate) fn path(&self, name: &DeviceName) -> PathBuf {
        self.directory.join(name.as_str())
    }

    /// The device that the name points at; `None` without a link, or with one that is not ours to understand.
    pub(crate) fn target(&self, name: &DeviceName) -> Option<DeviceId> {
        let node = node_of(&self.path(name))?;
        let digits = node.to_str()?.strip_prefix(NODE)?;
        digits.parse().ok().map(DeviceId)
    }

    /// Points the name at the device.
    pub(crate) fn publish(&self, name: &DeviceName, id: DeviceId) -> io::Result<()> {
        let link = || std::os::unix::fs::symlink(ublk::block_node(id), self.path(name));
        match link() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.replace(name, id),
            // Somebody has removed the directory meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.directory)?;
                link()
            }
            result => result,
        }
    }

    fn replace(&self, name: &DeviceName, id: DeviceId) -> io::Result<()> {
        if node_of(&self.path(name)).is_none() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is something else that no daemon made; move it away",
            ));
        }
        // Names start with a letter or digit, so this one belongs to no device.
        let fresh = self.directory.join(format!(".{name}.new"));
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        std::os::unix::fs::symlink(ublk::block_node(id), &fresh)?;
        std::fs::rename(&fresh, self.path(name))
    }

    /// Removes the name; done already is done, and what is no link to a device stays.
    pub(crate) fn unpublish(&self, name: &DeviceName) -> io::Result<()> {
        if node_of(&self.path(name)).is_none() {
            return Ok(());
        }
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// What the names of device nodes begin with.
const NODE: &str = "/dev/ublkb";

/// The device node that a link points at; `None` for anything but a link to one.
fn node_of(link: &Path) -> Option<PathBuf> {
    let node = std::fs::read_link(link).ok()?;
    node.to_str()?.starts_with(NODE).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_lives_as_long_as_its_device_and_only_dangling_ones_go_at_start() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/null", directory.path().join("alive")).unwrap();
        std::os::unix::fs::symlink("/dev/ublkb-none", directory.path().join("stale")).unwrap();
        std::fs::write(directory.path().join("file"), "not ours").unwrap();
        std::os::unix::fs::symlink("/nonexistent", directory.path().join("foreign")).unwrap();
        let links = Links::open(directory.path()).unwrap();
        let name: DeviceName = "a".parse().unwrap();
        links.publish(&name, DeviceId(3)).unwrap();
        assert_eq!(links.target(&name), Some(DeviceId(3)));
        links.publish(&name, DeviceId(4)).unwrap();
        assert_eq!(links.target(&name), Some(DeviceId(4)));
        assert_eq!(
            std::fs::read_link(links.path(&name)).unwrap(),
            Path::new("/dev/ublkb4")
        );
        links.unpublish(&name).unwrap();
        links.unpublish(&name).unwrap();
        let mut left: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["alive", "file", "foreign"]);
        // What no daemon made is neither replaced nor removed.
        for name in ["file", "foreign", "alive"] {
            let name: DeviceName = name.parse().unwrap();
            assert!(links.publish(&name, DeviceId(5)).is_err());
            links.unpublish(&name).unwrap();
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
        // A directory that is gone is made again.
        std::fs::remove_dir_all(directory.path()).unwrap();
        links.publish(&name, DeviceId(6)).unwrap();
        assert_eq!(links.target(&name), Some(DeviceId(6)));
    }
}
