//! Real files for the image, picked from what every machine has.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Trees to pick from, in this order.
const SOURCES: [&str; 3] = ["/usr/include", "/usr/share", "/usr/lib"];
/// Enough when both are reached.
const FILES_MIN: usize = 400;
const BYTES_MIN: u64 = 24 << 20;
/// Neither empty files nor the odd giant, so that the picture is one of many files.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 256..=256 << 10;
/// The most files of one tree: the rest of the bytes then comes from larger files of the others.
const FILES_PER_SOURCE_MAX: usize = 600;

/// How much was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
}

impl Copied {
    fn is_enough(self) -> bool {
        self.files >= FILES_MIN && self.bytes >= BYTES_MIN
    }
}

/// Copies files below `target`, each under its own path, until there are enough.
pub(crate) fn copy(target: &Path) -> Result<Copied> {
    let mut copied = Copied::default();
    for source in SOURCES {
        copy_tree(Path::new(source), target, &mut copied)?;
    }
    if !copied.is_enough() {
        bail!("too few files below {SOURCES:?}: {copied:?}");
    }
    Ok(copied)
}

fn copy_tree(source: &Path, target: &Path, copied: &mut Copied) -> Result<()> {
    let limit = copied.files + FILES_PER_SOURCE_MAX;
    let mut dirs = vec![source.to_owned()];
    while let Some(dir) = dirs.pop() {
        // A directory that cannot be read is none of ours.
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if copied.is_enough() || copied.files >= limit {
                return Ok(());
            }
            let Ok(metadata) = fs::symlink_metadata(&path) else {
                continue;
            };
            if metadata.is_dir() {
                dirs.push(path);
            } else if metadata.is_file() && FILE_BYTES.contains(&metadata.len()) {
                copied.bytes += copy_one(&path, target)?;
                copied.files += 1;
            }
        }
    }
    Ok(())
}

fn copy_one(path: &Path, target: &Path) -> Result<u64> {
    let to = target.join(path.strip_prefix("/").unwrap_or(path));
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    }
    fs::copy(path, &to).with_context(|| format!("copy {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_enough_real_files() {
        let target = tempfile::tempdir().unwrap();
        let copied = copy(target.path()).unwrap();
        assert!(copied.is_enough(), "{copied:?}");
        // The image has room for that much and for what is written.
        assert!(copied.bytes <= 128 << 20, "{copied:?}");
    }
}
