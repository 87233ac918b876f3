//! A file that appears whole or not at all.
//!
//! It is written without a name (O_TMPFILE), made durable, and named at the end; a process that dies before leaves nothing.
//! Where a file system cannot do that, it has a temporary name in the same directory until then.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};

use crate::error::Error;

/// What to do about a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Leave it and fail.
    Refuse,
    /// Put the new one in its place, in one step. It gets the mode and, if that is allowed, the owner of the old one; of a symbolic
    /// link the file that it leads to is replaced.
    Replace,
}

/// A file that is being made.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    overwrite: Overwrite,
    /// The name that it has until the end, if it has one.
    temporary: Option<PathBuf>,
    position: u64,
    /// Of the file that is replaced.
    replaced: Option<Metadata>,
}

impl NewFile {
    /// Begins a file that is to be at `path`.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken and stays so; otherwise when the directory cannot be written to.
    pub fn begin(path: &Path, overwrite: Overwrite) -> Result<Self, Error> {
        let found = path.metadata();
        // A new file takes the place of a file, never that of a device or a pipe.
        let what = match found.as_ref().map(Metadata::file_type) {
            Ok(kind) if kind.is_dir() => Some("a directory"),
            Ok(kind) if !kind.is_file() => Some("no regular file"),
            Ok(_) | Err(_) => None,
        };
        if let Some(what) = what {
            let path = path.to_owned();
            return Err(Error::WrongType { path, what });
        }
        if overwrite == Overwrite::Refuse && path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let replaced = found.ok();
        let path = &match &replaced {
            Some(_) => path
                .canonicalize()
                .map_err(|error| Error::io("realpath", path, error))?,
            None => path.to_owned(),
        };
        let directory = directory(path);
        let tmpfile = i32::try_from(OFlags::TMPFILE.bits()).unwrap_or(0);
        let mut options = File::options();
        options.read(true).write(true).mode(0o644);
        let unnamed = options.clone().custom_flags(tmpfile).open(&directory);
        let (file, temporary) = match unnamed {
            Ok(file) => (file, None),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Unsupported | io::ErrorKind::IsADirectory
                ) =>
            {
                let name = temporary_name(path);
                let file = options.create_new(true).open(&name);
                let file = file.map_err(|error| open_error(path, error))?;
                (file, Some(name))
            }
            Err(error) => return Err(open_error(path, error)),
        };
        Ok(Self {
            file,
            path: path.to_owned(),
            overwrite,
            temporary,
            position: 0,
            replaced,
        })
    }

    /// The name that it is going to have.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends.
    ///
    /// # Errors
    /// When it cannot be written, for instance for want of space.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file
            .write_all(bytes)
            .map_err(|error| Error::io("write", &self.path, error))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Appends zeros, as a hole.
    ///
    /// # Errors
    /// As [`NewFile::append`].
    pub fn append_hole(&mut self, len_bytes: u64) -> Result<(), Error> {
        let io = |op| {
            let path = self.path.clone();
            move |error: io::Error| Error::io(op, &path, error)
        };
        let end = self.position + len_bytes;
        self.file.set_len(end).map_err(io("ftruncate"))?;
        rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Start(end))
            .map_err(|errno| io("lseek")(errno.into()))?;
        self.position = end;
        Ok(())
    }

    /// Writes over what was written at `offset`.
    ///
    /// # Errors
    /// As [`NewFile::append`].
    pub fn overwrite_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| Error::io("write", &self.path, error))
    }

    /// Makes it durable and gives it its name.
    ///
    /// # Errors
    /// When a call fails, or somebody took the name meanwhile; then nothing has changed.
    pub fn finish(mut self) -> Result<(), Error> {
        let failed = |op, path: &Path, error: io::Error| Error::io(op, path, error);
        if let Some(old) = &self.replaced {
            // Only root gives files away.
            let _ = std::os::unix::fs::fchown(&self.file, Some(old.uid()), Some(old.gid()));
            self.file
                .set_permissions(old.permissions())
                .map_err(|error| failed("chmod", &self.path, error))?;
        }
        self.file
            .sync_all()
            .map_err(|error| failed("fsync", &self.path, error))?;
        if self.temporary.is_none() {
            let source = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let link = |to: &Path| {
                rustix::fs::linkat(CWD, source.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW)
            };
            if self.overwrite == Overwrite::Refuse {
                link(&self.path).map_err(|errno| self.name_error(errno.into()))?;
                return self.sync_directory();
            }
            let name = temporary_name(&self.path);
            link(&name).map_err(|errno| self.name_error(errno.into()))?;
            self.temporary = Some(name);
        }
        if let Some(name) = &self.temporary {
            let flags = match self.overwrite {
                Overwrite::Refuse => RenameFlags::NOREPLACE,
                Overwrite::Replace => RenameFlags::empty(),
            };
            rustix::fs::renameat_with(CWD, name, CWD, &self.path, flags)
                .map_err(|errno| self.name_error(errno.into()))?;
            self.temporary = None;
        }
        self.sync_directory()
    }

    fn sync_directory(&self) -> Result<(), Error> {
        let directory = directory(&self.path);
        let synced = File::open(&directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Error::io("fsync", &directory, error))
    }

    fn name_error(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&self.path),
            _ => Error::io("naming", &self.path, error),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = self.temporary.take() {
            // There is nobody to tell: the first error is on its way already.
            let _ = std::fs::remove_file(name);
        }
    }
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn temporary_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    directory(path).join(format!(".{name}.new-{}", std::process::id()))
}

fn exists(path: &Path) -> Error {
    Error::Exists {
        path: path.to_owned(),
    }
}

fn open_error(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission {
            path: directory(path),
            access: "writing",
        },
        io::ErrorKind::ReadOnlyFilesystem => Error::Permission {
            path: directory(path),
            access: "writing: its file system is read-only",
        },
        io::ErrorKind::NotFound => Error::Missing {
            path: directory(path),
            hint: ", the directory of the new file".to_owned(),
        },
        _ => Error::io("create", path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_at_the_end_and_only_then() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("layer");
        let mut new = NewFile::begin(&path, Overwrite::Refuse).unwrap();
        new.append(b"head").unwrap();
        new.append_hole(8).unwrap();
        new.append(b"tail").unwrap();
        new.overwrite_at(0, b"HE").unwrap();
        assert!(!path.exists());
        new.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"HEad\0\0\0\0\0\0\0\0tail");
        assert_eq!(names(directory.path()), ["layer"]);
    }

    #[test]
    fn a_device_and_a_directory_are_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        for path in [Path::new("/dev/null"), directory.path()] {
            let begun = NewFile::begin(path, Overwrite::Replace);
            assert!(matches!(begun, Err(Error::WrongType { .. })), "{path:?}");
        }
    }

    /// The link was replaced, and the file behind it stayed as it was; the new file was open to everybody.
    #[test]
    fn a_new_file_takes_the_place_of_the_old_one_with_its_mode_behind_links_too() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (
            directory.path().join("layer"),
            directory.path().join("link"),
        );
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("layer", &link).unwrap();
        let mut new = NewFile::begin(&link, Overwrite::Replace).unwrap();
        new.append(b"new").unwrap();
        new.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn nothing_is_overwritten_unasked_and_a_failure_leaves_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("layer");
        let late = NewFile::begin(&path, Overwrite::Refuse).unwrap();
        std::fs::write(&path, "old").unwrap();
        let early = NewFile::begin(&path, Overwrite::Refuse);
        assert!(matches!(early, Err(Error::Exists { .. })));
        assert!(matches!(late.finish(), Err(Error::Exists { .. })));
        let mut dropped = NewFile::begin(&path, Overwrite::Replace).unwrap();
        dropped.append(b"half").unwrap();
        drop(dropped);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let mut new = NewFile::begin(&path, Overwrite::Replace).unwrap();
        new.append(b"new").unwrap();
        new.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["layer"]);
    }
}
