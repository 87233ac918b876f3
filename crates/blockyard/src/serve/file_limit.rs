//! The limit of open files: raised at start to what the configured number of devices needs.
//!
//! A privileged daemon raises the hard limit too (`CAP_SYS_RESOURCE`); root's default of 4,096 would end at 1,360 devices.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The char device, the backing file with its lock, and the shard's own descriptor of it. A device whose queues are on
/// several shards needs one more for each.
const FILES_PER_DEVICE: u64 = 3;
/// Rings, sockets, the journal, and connections.
const FILES_BESIDE: u64 = 1024;

/// A limit that could not be raised far enough.
#[derive(Debug)]
pub(crate) struct Shortage {
    files: u64,
    needed: u64,
    devices_max: usize,
}

/// Raises the limit as far as allowed; returns what is missing then. Nothing is said here: a start that is refused later
/// writes its one line and no warning before it.
#[must_use]
pub(crate) fn raise(devices_max: usize) -> Option<Shortage> {
    let needed = files_needed(devices_max);
    let before = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let hard = before.maximum.map(|files| files.max(needed));
    for files in [hard, before.maximum] {
        let limit = Rlimit {
            current: files,
            maximum: files,
        };
        if setrlimit(Resource::Nofile, limit).is_ok() {
            break;
        }
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (files < needed).then_some(Shortage {
        files,
        needed,
        devices_max,
    })
}

impl Shortage {
    /// Warns of it.
    pub(crate) fn warn(&self) {
        tracing::warn!(
            files = self.files,
            needed = self.needed,
            devices = self.devices_enough_for(),
            devices_max = self.devices_max,
            "the limit of open files is too low for limits.devices_max; raise it (LimitNOFILE= of the service, or ulimit -n)"
        );
    }

    fn devices_enough_for(&self) -> u64 {
        self.files.saturating_sub(FILES_BESIDE) / FILES_PER_DEVICE
    }
}

fn files_needed(devices_max: usize) -> u64 {
    let devices = u64::try_from(devices_max).unwrap_or(u64::MAX);
    devices
        .saturating_mul(FILES_PER_DEVICE)
        .saturating_add(FILES_BESIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_need_grows_with_the_devices_and_never_overflows() {
        assert_eq!(files_needed(2000), 7024);
        assert_eq!(files_needed(usize::MAX), u64::MAX);
    }

    #[test]
    fn raising_never_lowers_the_limit() {
        let before = getrlimit(Resource::Nofile);
        let shortage = raise(1);
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.current, after.maximum);
        assert!(after.maximum.is_none() || after.maximum >= before.maximum);
        let is_short = after.current.is_some_and(|files| files < files_needed(1));
        assert_eq!(shortage.is_some(), is_short, "{shortage:?}");
    }

    #[test]
    fn a_shortage_knows_for_how_many_devices_the_files_are_enough() {
        // The default hard limit of root, and one that is used up by the daemon itself.
        for (files, devices) in [(4096, 1024), (1000, 0)] {
            let shortage = Shortage {
                files,
                needed: files_needed(2000),
                devices_max: 2000,
            };
            assert_eq!(shortage.devices_enough_for(), devices);
        }
    }
}
