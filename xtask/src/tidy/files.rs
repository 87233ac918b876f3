//! The files of the tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::source::Source;

/// A text file.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    /// Relative to the workspace's root.
    pub(crate) path: String,
    pub(crate) content: String,
}

/// Everything that is checked.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) rust: Vec<Source>,
    /// Every text file, the Rust ones too.
    pub(crate) texts: Vec<Text>,
}

/// Files that are generated or are not ours to word.
const SKIPPED: [&str; 3] = ["Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT"];

impl Tree {
    /// Reads the tree below the root, build directories and git's own left out.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            let entries = fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))?;
            let mut paths: Vec<PathBuf> = entries
                .map(|entry| Ok(entry?.path()))
                .collect::<std::io::Result<_>>()
                .with_context(|| format!("read {}", dir.display()))?;
            paths.sort();
            for path in paths {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if path.is_symlink()
                    || name == ".git"
                    || name == "target"
                    || name.starts_with("target-")
                {
                    continue;
                }
                if path.is_dir() {
                    dirs.push(path);
                } else if !SKIPPED.contains(&name.as_ref()) {
                    tree.add(root, &path)?;
                }
            }
        }
        Ok(tree)
    }

    fn add(&mut self, root: &Path, path: &Path) -> Result<()> {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        // What is no UTF-8 is no text: images, fixtures.
        let Ok(content) = String::from_utf8(bytes) else {
            return Ok(());
        };
        let relative = path.strip_prefix(root).unwrap_or(path);
        let text = Text {
            path: relative.to_string_lossy().into_owned(),
            content,
        };
        if path.extension().is_some_and(|extension| extension == "rs") {
            self.rust.push(Source::parse(&text.path, &text.content));
        }
        self.texts.push(text);
        Ok(())
    }
}
