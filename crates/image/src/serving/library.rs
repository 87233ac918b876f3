//! What devices share: one open file for a layer, one jump table, one index for a stack, however many devices stand on them.
//!
//! Nothing is kept for its own sake: the last device that uses a layer closes it. A file is known by what it is (device, inode,
//! length, time of change), not by its name.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::blob::{Blob, WeakBlob};
use crate::config::ImageConfig;
use crate::error::Error;
use crate::file::{FileId, LayerFile};
use crate::lowers::{LowerSource, Lowers, ParentCheck};

/// The shared layers of a process.
#[derive(Debug, Default)]
pub struct Library(Mutex<Shelves>);

/// Of a lower: its file, and that of its target.
type LowerId = (FileId, Option<FileId>);

#[derive(Debug, Default)]
struct Shelves {
    files: HashMap<FileId, Weak<LayerFile>>,
    blobs: HashMap<FileId, WeakBlob>,
    stacks: HashMap<(Vec<LowerId>, ParentCheck), Weak<Lowers>>,
}

impl Library {
    /// The lowers of an image. Two that open the same ones wait for each other, and the second finds them.
    ///
    /// # Errors
    /// As [`Lowers::open`].
    pub fn lowers(&self, config: &ImageConfig, parents: ParentCheck) -> Result<Arc<Lowers>, Error> {
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.forget_closed();
        // Kept open until the stack holds them.
        let mut opened = Vec::new();
        let mut ids = Vec::new();
        for lower in &config.lowers {
            let file = shelves.open(&lower.file)?;
            let target = match &lower.target {
                None => None,
                Some(target) => Some(shelves.open(target)?),
            };
            ids.push((file.id(), target.as_ref().map(|target| target.id())));
            opened.push((file, target));
        }
        let key = (ids, parents);
        if let Some(shared) = shelves.stacks.get(&key).and_then(Weak::upgrade) {
            return Ok(shared);
        }
        let lowers = Lowers::open(&config.path, &config.lowers, parents, &mut *shelves)?;
        let lowers = Arc::new(lowers);
        shelves.stacks.insert(key, Arc::downgrade(&lowers));
        Ok(lowers)
    }

    /// How many layers and how many stacks are open.
    #[must_use]
    pub fn open_counts(&self) -> (usize, usize) {
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.forget_closed();
        (shelves.files.len(), shelves.stacks.len())
    }
}

impl Shelves {
    fn forget_closed(&mut self) {
        self.files.retain(|_, file| file.strong_count() > 0);
        self.blobs.retain(|_, blob| blob.upgrade().is_some());
        self.stacks.retain(|_, stack| stack.strong_count() > 0);
    }
}

impl LowerSource for Shelves {
    fn open(&mut self, path: &Path) -> Result<Arc<LayerFile>, Error> {
        let file = LayerFile::open_sealed(path)?;
        if let Some(shared) = self.files.get(&file.id()).and_then(Weak::upgrade) {
            return Ok(shared);
        }
        let file = Arc::new(file);
        self.files.insert(file.id(), Arc::downgrade(&file));
        Ok(file)
    }

    fn open_blob(&mut self, path: &Path) -> Result<Blob, Error> {
        let file = self.open(path)?;
        let id = file.id();
        if let Some(shared) = self.blobs.get(&id).and_then(WeakBlob::upgrade) {
            return Ok(shared);
        }
        let blob = Blob::open(file)?;
        self.blobs.insert(id, blob.downgrade());
        Ok(blob)
    }
}
