//! Kernels: fetched by package name, laid out for booting, kept in a cache that works offline.
//!
//! A kernel is complete when the series' symbolic link points at it; the link is made last, so that an interrupted
//! fetch is never taken for a kernel. Delete the link (or the whole cache) to fetch a newer one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::apt::Suite;
use crate::cache::{self, Lock};
use crate::error::{Error, ErrorKind};
use crate::series::KernelSeries;
use crate::{mirror, program};

/// Debian's small kernel for virtual machines, and the parts that its image is split into from 7.x on.
const FLAVOUR: &str = "cloud-amd64";
const PARTS: [&str; 4] = ["image", "binary", "modules", "base"];

/// A kernel that is ready to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    dir: PathBuf,
    release: String,
}

impl Kernel {
    /// What `uname -r` says in the guest.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The image that QEMU boots.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The directory that holds `<release>/` with the modules: the guest's `/lib/modules`.
    #[must_use]
    pub fn modules_root(&self) -> PathBuf {
        self.dir.join("lib/modules")
    }

    /// A kernel from the cache, if `link` leads to a complete one.
    fn open(link: &Path) -> Option<Self> {
        let dir = fs::canonicalize(link).ok()?;
        let release = dir.file_name()?.to_str()?.to_owned();
        let kernel = Self { dir, release };
        let complete = kernel.image().is_file()
            && kernel
                .modules_root()
                .join(&kernel.release)
                .join("modules.dep")
                .is_file();
        complete.then_some(kernel)
    }
}

/// The kernel of the series from the cache, fetched first when it is not there. Safe to call from several processes.
///
/// Blocks for as long as the download takes (about 40 MB); never touches the network when the cache has the kernel.
///
/// # Errors
/// No Debian archive in apt's set-up, no network, no such kernel in the archive, no room in the cache.
pub fn ensure(series: KernelSeries) -> Result<Kernel, Error> {
    let cache = cache::dir()?.join("kernels");
    fs::create_dir_all(&cache)
        .map_err(|error| Error::io("create the kernel cache", cache.display(), error))?;
    let link = cache.join(series.to_string());
    if let Some(kernel) = Kernel::open(&link) {
        return Ok(kernel);
    }
    let _lock = Lock::acquire(&cache.join("lock"))?;
    // Another process may have fetched it while this one waited.
    if let Some(kernel) = Kernel::open(&link) {
        return Ok(kernel);
    }
    let mirror = mirror::find()?;
    let mut last_error = None;
    for suite in series.suites() {
        match fetch(&cache, &mirror, suite, series) {
            Ok(dir) => {
                relink(&link, &dir)?;
                return Kernel::open(&link).ok_or_else(|| incomplete(&dir));
            }
            Err(error) => last_error = Some(error),
        }
    }
    let error = Error::new(
        ErrorKind::Kernel,
        "fetch a kernel",
        format!("series {series} is not in the cache and no suite gave it; is the network there?"),
    );
    Err(match last_error {
        Some(cause) => error.with_source(cause),
        None => error,
    })
}

/// Fetches from one suite; returns the kernel's directory, complete but for the link.
fn fetch(
    cache: &Path,
    mirror: &str,
    suite: &'static str,
    series: KernelSeries,
) -> Result<PathBuf, Error> {
    let scratch = tempfile::Builder::new()
        .prefix(".fetch-")
        .tempdir_in(cache)
        .map_err(|error| Error::io("create a scratch directory", cache.display(), error))?;
    let suite = Suite::fetch(scratch.path(), mirror, suite)?;
    let image = suite.dependency(&format!("linux-image-{FLAVOUR}"), |name| {
        release_of(name).is_some_and(|release| series.has(release))
    })?;
    let release = release_of(&image)
        .ok_or_else(|| Error::new(ErrorKind::Kernel, "name a kernel", image.clone()))?;
    let parts: Vec<String> = PARTS
        .iter()
        .map(|part| format!("linux-{part}-{release}"))
        .collect();
    let root = scratch.path().join("root");
    suite.unpack(&suite.existing(&parts)?, &root)?;
    lay_out(scratch.path(), &root, release)?;
    let dir = cache.join(release);
    // Left by a run that was interrupted before the link, or by one whose link was deleted to fetch anew.
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir.display(), error))?;
    }
    let made = scratch.path().join(release);
    fs::rename(&made, &dir).map_err(|error| Error::io("rename", made.display(), error))?;
    Ok(dir)
}

/// `6.12.95+deb12-cloud-amd64` of `linux-image-6.12.95+deb12-cloud-amd64`; signed and unsigned images alike.
fn release_of(package: &str) -> Option<&str> {
    let release = package.strip_prefix("linux-image-")?;
    let versioned = release.starts_with(|c: char| c.is_ascii_digit());
    (versioned && release.ends_with(FLAVOUR)).then_some(release)
}

/// Makes `scratch/<release>/{vmlinuz, lib/modules/<release>}` of the unpacked packages and indexes the modules.
fn lay_out(scratch: &Path, root: &Path, release: &str) -> Result<(), Error> {
    let dir = scratch.join(release);
    let modules = dir.join("lib/modules");
    fs::create_dir_all(&modules).map_err(|error| Error::io("create", modules.display(), error))?;
    // Where the parts are depends on the release: /boot or the modules' own directory, /lib or /usr/lib.
    let tree = ["usr/lib/modules", "lib/modules"]
        .iter()
        .map(|sub| root.join(sub).join(release))
        .find(|tree| tree.is_dir())
        .ok_or_else(|| incomplete(root))?;
    let image = [
        tree.join("vmlinuz"),
        root.join(format!("boot/vmlinuz-{release}")),
    ]
    .into_iter()
    .find(|image| image.is_file())
    .ok_or_else(|| incomplete(root))?;
    for (from, to) in [(image, dir.join("vmlinuz")), (tree, modules.join(release))] {
        fs::rename(&from, &to).map_err(|error| Error::io("rename", from.display(), error))?;
    }
    program::output(
        program::command("depmod")?.arg("-b").arg(&dir).arg(release),
        "index kernel modules",
    )?;
    Ok(())
}

fn relink(link: &Path, dir: &Path) -> Result<(), Error> {
    let target = dir.file_name().ok_or_else(|| incomplete(dir))?;
    let fresh = link.with_extension("new");
    let made = match fs::remove_file(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => symlink(target, &fresh).and_then(|()| fs::rename(&fresh, link)),
    };
    made.map_err(|error| Error::io("link a kernel", link.display(), error))
}

fn incomplete(dir: &Path) -> Error {
    Error::new(
        ErrorKind::Kernel,
        "lay out a kernel",
        format!("{} lacks an image or modules", dir.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versioned_cloud_images_name_a_release() {
        assert_eq!(
            release_of("linux-image-7.3.4+deb13-cloud-amd64"),
            Some("7.3.4+deb13-cloud-amd64")
        );
        assert_eq!(release_of("linux-image-cloud-amd64"), None);
        assert_eq!(release_of("linux-image-7.3.4+deb13-amd64"), None);
        assert_eq!(release_of("linux-headers-7.3.4-cloud-amd64"), None);
    }

    #[test]
    fn a_kernel_without_its_link_or_its_parts_is_not_taken_for_one() {
        let cache = tempfile::tempdir().unwrap();
        let release = "6.12.1-cloud-amd64";
        let dir = cache.path().join(release);
        let modules = dir.join("lib/modules").join(release);
        fs::create_dir_all(&modules).unwrap();
        let link = cache.path().join("6.12");
        assert_eq!(Kernel::open(&link), None);
        relink(&link, &dir).unwrap();
        assert_eq!(Kernel::open(&link), None);
        fs::write(dir.join("vmlinuz"), "image").unwrap();
        assert_eq!(Kernel::open(&link), None);
        fs::write(modules.join("modules.dep"), "").unwrap();
        let kernel = Kernel::open(&link).unwrap();
        assert_eq!(kernel.release(), release);
        // A link that exists is replaced, not followed.
        relink(&link, &dir).unwrap();
        assert_eq!(Kernel::open(&link), Some(kernel));
    }
}
