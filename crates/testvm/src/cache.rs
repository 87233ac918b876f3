//! Where fetched kernels live, and the locks that keep concurrent runs apart.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, ErrorKind};

/// The cache's directory: `$XDG_CACHE_HOME/blockyard`, else `~/.cache/blockyard`. Created when missing.
pub(crate) fn dir() -> Result<PathBuf, Error> {
    let dir = place(
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from),
        std::env::var_os("HOME").map(PathBuf::from),
    )
    .ok_or_else(|| {
        Error::new(
            ErrorKind::Invalid,
            "find the cache directory",
            "neither XDG_CACHE_HOME nor HOME is an absolute path; set one of them",
        )
    })?;
    fs::create_dir_all(&dir)
        .map_err(|error| Error::io("create the cache directory", dir.display(), error))?;
    Ok(dir)
}

/// The rule of [`dir`]: relative values count as unset, as the base directory specification demands.
fn place(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    xdg.filter(absolute)
        .or_else(|| home.filter(absolute).map(|home| home.join(".cache")))
        .map(|base| base.join("blockyard"))
}

/// An exclusive lock on a file; given up when dropped or when the process dies.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock, for as long as another process holds it.
    pub(crate) fn acquire(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|error| Error::io("lock", path.display(), error))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| Error::io("lock", path.display(), error))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_the_base_directory_rules() {
        let cases = [
            (Some("/x"), Some("/h"), Some("/x/blockyard")),
            (Some("rel"), Some("/h"), Some("/h/.cache/blockyard")),
            (None, Some("/h"), Some("/h/.cache/blockyard")),
            (None, Some(""), None),
            (None, None, None),
        ];
        for (xdg, home, want) in cases {
            assert_eq!(
                place(xdg.map(PathBuf::from), home.map(PathBuf::from)),
                want.map(PathBuf::from)
            );
        }
    }

    #[test]
    fn a_lock_excludes_another_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::acquire(&path).unwrap();
        let other = File::create(&path).unwrap();
        let try_lock = || flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert!(try_lock().is_err());
        drop(lock);
        assert!(try_lock().is_ok());
    }
}
