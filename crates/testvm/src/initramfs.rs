//! The initramfs: busybox, the modules that the root needs, init and the job.

use std::fs;

use crate::archive::Archive;
use crate::error::Error;
use crate::job::GuestJob;
use crate::kernel::Kernel;
use crate::modules::{ModuleIndex, read_module};
use crate::{program, script};

const INIT: &str = include_str!("init.sh");
/// busybox programs that init uses.
const APPLETS: [&str; 11] = [
    "sh", "mount", "insmod", "cp", "mkdir", "chroot", "poweroff", "dmesg", "ip", "echo", "[",
];
/// What the guest's root stands on; the console port is built into Debian's kernels, but need not be.
const MODULES: [&str; 3] = ["virtiofs", "overlay", "virtio_console"];

/// The archive that the kernel unpacks as its first root.
pub(crate) fn build(kernel: &Kernel, job: &GuestJob) -> Result<Vec<u8>, Error> {
    let busybox = program::find_program("busybox").ok_or_else(|| {
        Error::new(
            crate::ErrorKind::Program,
            "build an initramfs",
            "busybox is not installed",
        )
    })?;
    let busybox =
        fs::read(&busybox).map_err(|error| Error::io("read busybox", busybox.display(), error))?;
    let path = std::env::var("PATH").unwrap_or_default()
        + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";
    let home = std::env::var("HOME").unwrap_or_else(|_| "/".to_owned());
    let mut archive = Archive::default();
    for dir in ["bin", "dev", "proc", "sys", "mod"] {
        archive.directory(dir);
    }
    archive.program("bin/busybox", &busybox);
    for applet in APPLETS {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    // init loads them in the order of their names.
    let files = ModuleIndex::read(kernel)?.closure(&MODULES)?;
    for (index, file) in files.iter().enumerate() {
        archive.program(&format!("mod/{index:02}.ko"), &read_module(file)?);
    }
    archive.program("init", INIT.as_bytes());
    archive.program("paths", script::paths(kernel, job).as_bytes());
    archive.program("job", script::job(job, &path, &home).as_bytes());
    Ok(archive.finish())
}
