//! Kernel modules that the initramfs itself loads, in the order in which they must be loaded.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use crate::kernel::Kernel;
use crate::program;

/// The index that depmod writes: module file -> files it needs, and what is built in.
#[derive(Debug)]
pub(crate) struct ModuleIndex {
    dir: PathBuf,
    dependencies: Vec<(String, Vec<String>)>,
    builtin: Vec<String>,
}

impl ModuleIndex {
    /// Reads the index of the kernel.
    pub(crate) fn read(kernel: &Kernel) -> Result<Self, Error> {
        let dir = kernel.modules_root().join(kernel.release());
        let text = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path)
                .map_err(|error| Error::io("read the module index", path.display(), error))
        };
        Ok(Self {
            dependencies: parse_dependencies(&text("modules.dep")?),
            builtin: text("modules.builtin")?
                .lines()
                .map(str::to_owned)
                .collect(),
            dir,
        })
    }

    /// Files to load for the modules, dependencies first, each once; nothing for what is built in.
    pub(crate) fn closure(&self, names: &[&str]) -> Result<Vec<PathBuf>, Error> {
        let mut files: Vec<&str> = Vec::new();
        for name in names {
            if self.builtin.iter().any(|file| is_module(file, name)) {
                continue;
            }
            let (file, needs) = self
                .dependencies
                .iter()
                .find(|(file, _)| is_module(file, name))
                .ok_or_else(|| {
                    Error::new(
                        ErrorKind::Kernel,
                        "find a kernel module",
                        format!("{name} is not below {}", self.dir.display()),
                    )
                })?;
            // modules.dep lists every transitive dependency, the deepest last.
            for file in needs.iter().rev().chain(std::iter::once(file)) {
                if !files.contains(&file.as_str()) {
                    files.push(file);
                }
            }
        }
        Ok(files.iter().map(|file| self.dir.join(file)).collect())
    }
}

/// The module's content, unpacked.
pub(crate) fn read_module(file: &Path) -> Result<Vec<u8>, Error> {
    let unpacker = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => {
            return fs::read(file)
                .map_err(|error| Error::io("read a kernel module", file.display(), error));
        }
    };
    program::output(
        program::command(unpacker)?.arg("-qdc").arg(file),
        "unpack a kernel module",
    )
}

fn parse_dependencies(text: &str) -> Vec<(String, Vec<String>)> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| {
            (
                file.to_owned(),
                needs.split_whitespace().map(str::to_owned).collect(),
            )
        })
        .collect()
}

/// Whether the file is that module; `-` and `_` are the same to the kernel.
fn is_module(file: &str, name: &str) -> bool {
    let base = file.rsplit('/').next().unwrap_or(file);
    let stem = base.split(".ko").next().unwrap_or(base);
    stem.len() == name.len()
        && stem
            .bytes()
            .zip(name.bytes())
            .all(|(a, b)| a == b || (matches!(a, b'-' | b'_') && matches!(b, b'-' | b'_')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> ModuleIndex {
        ModuleIndex {
            dir: PathBuf::from("/m"),
            dependencies: parse_dependencies(
                "kernel/a.ko.xz:\nkernel/b.ko.xz: kernel/a.ko.xz\n\
                 kernel/dm-mod.ko.xz: kernel/b.ko.xz kernel/a.ko.xz\nkernel/c.ko: kernel/a.ko.xz\n",
            ),
            builtin: vec!["kernel/fs/fuse/virtiofs.ko".to_owned()],
        }
    }

    #[test]
    fn dependencies_come_first_and_once_and_builtin_ones_not_at_all() {
        let files = index().closure(&["virtiofs", "dm_mod", "c"]).unwrap();
        let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            files,
            [
                "/m/kernel/a.ko.xz",
                "/m/kernel/b.ko.xz",
                "/m/kernel/dm-mod.ko.xz",
                "/m/kernel/c.ko"
            ]
        );
    }

    #[test]
    fn an_unknown_module_is_named() {
        let error = index().closure(&["a", "nothing"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Kernel);
        assert!(error.to_string().contains("nothing"));
    }

    #[test]
    fn a_module_is_unpacked_by_its_extension() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("m.ko");
        fs::write(&plain, b"module").unwrap();
        assert_eq!(read_module(&plain).unwrap(), b"module");
        let broken = dir.path().join("m.ko.xz");
        fs::write(&broken, b"not xz").unwrap();
        assert_eq!(read_module(&broken).unwrap_err().kind(), ErrorKind::Program);
    }
}
