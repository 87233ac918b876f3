//! What a daemon may leave behind and must not, and what the kernel's log may say.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Devices and links that exist now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leftovers(BTreeSet<String>);

impl Leftovers {
    /// Looks.
    pub(crate) fn now() -> Self {
        let nodes = names("/dev").into_iter();
        let nodes = nodes.filter(|name| name.starts_with("ublkb") || name.starts_with("ublkc"));
        let links = names("/dev/blockyard").into_iter();
        let devices = char_devices().into_iter();
        let all = nodes
            .map(|name| format!("/dev/{name}"))
            .chain(links.map(|name| format!("/dev/blockyard/{name}")))
            .chain(devices.map(|name| format!("/sys/class/ublk-char/{name}")));
        Self(all.collect())
    }

    /// Asserts that nothing has been added since, and nothing is missing.
    pub(crate) fn assert_nothing_more(&self) {
        assert_eq!(Self::now(), *self, "now, and as it was before");
    }
}

/// The kernel's list of ublk devices.
pub(crate) fn char_devices() -> BTreeSet<String> {
    names("/sys/class/ublk-char").into_iter().collect()
}

fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new(directory)).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// While this lives, the kernel's log may hold lines with a text that would otherwise fail the test.
pub(crate) struct KernelExpects(());

impl KernelExpects {
    /// Lines with this text are expected from now on.
    pub(crate) fn lines_with(text: &str) -> Self {
        mark(&format!("testvm: expect {text}"));
        Self(())
    }
}

impl Drop for KernelExpects {
    fn drop(&mut self) {
        mark("testvm: expect nothing");
    }
}

fn mark(line: &str) {
    fs::write("/dev/kmsg", line).unwrap();
}
