//! The files of an image, and what of them is durable.
//!
//! A change is live at once. It is durable when a sync that began after it has ended; a power cut leaves of the others whatever
//! the device happened to write: all, nothing, or parts of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use image::LayerFile;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, ftruncate, seek};

/// What file systems allocate in.
const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

/// What the power fails on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// One that knows no order: of each write all, nothing, or some of its sectors; the file may end between any two bytes.
    Sectors,
    /// A file system's cache: of each page what it held at some moment, for it is written whole.
    Pages,
}

#[derive(Clone, Debug)]
enum What {
    Write(Vec<u8>),
    Punch(usize),
}

#[derive(Clone, Debug)]
struct Change {
    number: u64,
    offset: usize,
    what: What,
    is_durable: bool,
}

impl Change {
    /// The parts that lie in one page each.
    fn in_pages(&self) -> Vec<Self> {
        let part = |offset, what| Self {
            offset,
            what,
            ..self.clone()
        };
        match &self.what {
            What::Write(bytes) => units(self.offset, bytes, PAGE_BYTES)
                .map(|(at, bytes)| part(at, What::Write(bytes.to_vec())))
                .collect(),
            What::Punch(len) => units(self.offset, &vec![0; *len], PAGE_BYTES)
                .map(|(at, bytes)| part(at, What::Punch(bytes.len())))
                .collect(),
        }
    }
}

/// The content of a file, and which of its pages are allocated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    is_present: Vec<bool>,
}

/// A file of an image.
pub(crate) struct Stored {
    file: Arc<LayerFile>,
    durable: Content,
    changes: Vec<Change>,
    next: u64,
}

impl Content {
    fn read(file: &File) -> Self {
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let mut content = Self::default();
        content.grow(len);
        let mut at = 0;
        while let Ok(begin) = seek(file, SeekFrom::Data(at)) {
            let end = seek(file, SeekFrom::Hole(begin)).unwrap();
            let (from, to) = (
                usize::try_from(begin).unwrap(),
                usize::try_from(end).unwrap(),
            );
            let to = to.min(len);
            file.read_exact_at(&mut content.bytes[from..to], begin)
                .unwrap();
            content.is_present[from / PAGE_BYTES..to.div_ceil(PAGE_BYTES)].fill(true);
            at = end;
        }
        content
    }

    /// Makes a file that is like it, holes included.
    pub(crate) fn write_to(&self, path: &Path) {
        let file = File::create(path).unwrap();
        ftruncate(&file, self.bytes.len() as u64).unwrap();
        for (page, bytes) in self.bytes.chunks(PAGE_BYTES).enumerate() {
            if self.is_present[page] {
                file.write_all_at(bytes, (page * PAGE_BYTES) as u64)
                    .unwrap();
            }
        }
    }

    fn grow(&mut self, len: usize) {
        if len > self.bytes.len() {
            self.bytes.resize(len, 0);
            self.is_present.resize(len.div_ceil(PAGE_BYTES), false);
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        self.grow(end);
        self.bytes[offset..end].copy_from_slice(bytes);
        self.is_present[offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)].fill(true);
    }

    fn punch(&mut self, offset: usize, len: usize) {
        let end = (offset + len).min(self.bytes.len());
        if offset >= end {
            return;
        }
        self.bytes[offset..end].fill(0);
        let last = if end == self.bytes.len() {
            end.div_ceil(PAGE_BYTES)
        } else {
            end / PAGE_BYTES
        };
        for page in offset.div_ceil(PAGE_BYTES)..last {
            self.is_present[page] = false;
        }
    }

    fn apply(&mut self, change: &Change) {
        match &change.what {
            What::Write(bytes) => self.write(change.offset, bytes),
            What::Punch(len) => self.punch(change.offset, *len),
        }
    }

    /// Applies as much of a write as the power lasted for.
    fn apply_torn(&mut self, offset: usize, bytes: &[u8], random: &mut fastrand::Rng) {
        let end = offset + bytes.len();
        // A file may end anywhere. In the middle of it a sector is whole or not there.
        if end >= self.bytes.len() && random.bool() {
            let least = self.bytes.len().saturating_sub(offset);
            self.write(offset, &bytes[..random.usize(0..bytes.len()).max(least)]);
            return;
        }
        // The length may be known before the bytes are there.
        if random.bool() {
            self.grow(end);
        }
        for (at, part) in units(offset, bytes, SECTOR_BYTES) {
            if random.bool() {
                self.write(at, part);
            }
        }
    }
}

/// The parts of `bytes`, which begin at `offset`, that lie in one unit each.
fn units(offset: usize, bytes: &[u8], unit: usize) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (part, behind) = rest.split_at(rest.len().min(unit - at % unit));
        let begin = at;
        (at, rest) = (at + part.len(), behind);
        (!part.is_empty()).then_some((begin, part))
    })
}

impl Stored {
    /// A file that is durable as it is.
    pub(crate) fn new(file: Arc<LayerFile>) -> Self {
        Self {
            durable: Content::read(file.file()),
            file,
            changes: Vec::new(),
            next: 0,
        }
    }

    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.file.file().read_exact_at(bytes, offset)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8], is_durable: bool) {
        self.file.file().write_all_at(bytes, offset).unwrap();
        self.record(offset, What::Write(bytes.to_vec()), is_durable);
    }

    /// A write that fails on its way: a file system takes page after page.
    pub(crate) fn write_in_part(&mut self, offset: u64, bytes: &[u8], random: &mut fastrand::Rng) {
        let begin = usize::try_from(offset).unwrap();
        let pages = units(begin, bytes, PAGE_BYTES);
        for (at, part) in pages.take_while(|_| random.bool()) {
            self.write(at as u64, part, false);
        }
    }

    pub(crate) fn punch(&mut self, offset: u64, len: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.file.file(), flags, offset, len).unwrap();
        self.record(offset, What::Punch(usize::try_from(len).unwrap()), false);
    }

    fn record(&mut self, offset: u64, what: What, is_durable: bool) {
        self.changes.push(Change {
            number: self.next,
            offset: usize::try_from(offset).unwrap(),
            what,
            is_durable,
        });
        self.next += 1;
    }

    /// A sync begins; what it returns goes to [`Stored::end_sync`].
    pub(crate) const fn begin_sync(&self) -> u64 {
        self.next
    }

    pub(crate) fn end_sync(&mut self, mark: u64) {
        let covered = self
            .changes
            .iter_mut()
            .filter(|change| change.number < mark);
        covered.for_each(|change| change.is_durable = true);
        // In their order: a later one may lie over an earlier one.
        let settled = self
            .changes
            .iter()
            .take_while(|change| change.is_durable)
            .count();
        for change in self.changes.drain(..settled) {
            self.durable.apply(&change);
        }
    }

    /// What a power cut leaves.
    pub(crate) fn cut(&self, medium: Medium, random: &mut fastrand::Rng) -> Content {
        match medium {
            Medium::Sectors => self.cut_sectors(random),
            Medium::Pages => self.cut_pages(random),
        }
    }

    fn cut_sectors(&self, random: &mut fastrand::Rng) -> Content {
        let mut content = self.durable.clone();
        // From all that was written to nothing.
        let kept_percent = random.u32(0..=100);
        for change in &self.changes {
            if change.is_durable || random.u32(0..100) < kept_percent {
                content.apply(change);
            } else if let What::Write(bytes) = &change.what
                && random.bool()
            {
                content.apply_torn(change.offset, bytes, random);
            }
        }
        content
    }

    fn cut_pages(&self, random: &mut fastrand::Rng) -> Content {
        let mut content = self.durable.clone();
        let mut pages: BTreeMap<usize, Vec<Change>> = BTreeMap::new();
        for change in &self.changes {
            for part in change.in_pages() {
                pages
                    .entry(part.offset / PAGE_BYTES)
                    .or_default()
                    .push(part);
            }
        }
        for changes in pages.into_values() {
            let durable = changes.iter().rposition(|change| change.is_durable);
            let least = durable.map_or(0, |last| last + 1);
            let kept = random.usize(least..=changes.len());
            changes
                .iter()
                .take(kept)
                .for_each(|change| content.apply(change));
        }
        content
    }

    pub(crate) fn name(&self) -> &Path {
        self.file.path().file_name().unwrap().as_ref()
    }
}
