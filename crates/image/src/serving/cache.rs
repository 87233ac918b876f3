//! Decompressed blocks of all images of a shard, within a bound.
//!
//! A read smaller than a block would decompress the block for each of its parts, and devices on one image read the same blocks when
//! they start. A set of eight places holds a block; of those the least recently used one makes way.

use overlaybd::zfile::BlockSize;

/// Places of a set.
const WAYS: usize = 8;

/// Which block of which blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockKey {
    /// [`crate::Blob::number`].
    pub(super) blob: u64,
    pub(super) block: u64,
}

/// The cache. Memory is taken at the first block of each size and used as blocks come.
#[derive(Debug)]
pub(super) struct BlockCache {
    budget_bytes: usize,
    /// By block size, from the smallest.
    classes: Vec<Option<Class>>,
}

#[derive(Debug)]
struct Class {
    block_bytes: usize,
    places: Box<[Place]>,
    bytes: Box<[u8]>,
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: Option<BlockKey>,
    /// Bytes of the block; the last one of a file is shorter than the others.
    len: u32,
    used: u64,
}

impl BlockCache {
    /// A cache of at most `budget_bytes` for each block size that is in use.
    pub(super) fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            classes: (BlockSize::BYTES_MIN.ilog2()..=BlockSize::BYTES_MAX.ilog2())
                .map(|_| None)
                .collect(),
        }
    }

    /// Takes the memory for blocks of a size.
    pub(super) fn prepare(&mut self, size: BlockSize) {
        let budget = self.budget_bytes;
        if let Some(class) = self.classes.get_mut(class_of(size)) {
            class.get_or_insert_with(|| Class::new(size.bytes() as usize, budget));
        }
    }

    /// Whether a block is there.
    pub(super) fn holds(&self, size: BlockSize, key: BlockKey) -> bool {
        let class = self.classes.get(class_of(size)).and_then(Option::as_ref);
        class.is_some_and(|class| class.find(key).is_some())
    }

    /// The block, if it is there.
    pub(super) fn get(&mut self, size: BlockSize, key: BlockKey) -> Option<&[u8]> {
        let class = self.classes.get_mut(class_of(size))?.as_mut()?;
        let at = class.find(key)?;
        Some(class.touch(at))
    }

    /// Puts the block there that `fill` makes, of `len` bytes. Without memory for the size it is `None`.
    pub(super) fn insert<E>(
        &mut self,
        (size, key): (BlockSize, BlockKey),
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Option<Result<&[u8], E>> {
        let class = self.classes.get_mut(class_of(size))?.as_mut()?;
        let at = class.find(key).unwrap_or_else(|| class.oldest(key));
        let begin = at * class.block_bytes;
        let bytes = class.bytes.get_mut(begin..begin + len as usize)?;
        let place = class.places.get_mut(at)?;
        // Nothing, should it fail half-way.
        place.key = None;
        if let Err(error) = fill(bytes) {
            return Some(Err(error));
        }
        place.key = Some(key);
        place.len = len;
        Some(Ok(class.touch(at)))
    }
}

impl Class {
    fn new(block_bytes: usize, budget_bytes: usize) -> Self {
        let sets = (budget_bytes / block_bytes / WAYS).max(1);
        let nothing = Place {
            key: None,
            len: 0,
            used: 0,
        };
        Self {
            block_bytes,
            places: vec![nothing; sets * WAYS].into_boxed_slice(),
            // Zeroed by the kernel, page by page, as it is used.
            bytes: vec![0; sets * WAYS * block_bytes].into_boxed_slice(),
            clock: 0,
        }
    }

    /// The first place of the set that a block belongs to.
    fn set(&self, key: BlockKey) -> usize {
        let sets = (self.places.len() / WAYS).max(1) as u64;
        // Odd constants spread numbers that follow one another (the golden ratio, and one of SplitMix64).
        let mixed = key.block.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ key.blob.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        usize::try_from((mixed >> 17) % sets).unwrap_or(0) * WAYS
    }

    fn find(&self, key: BlockKey) -> Option<usize> {
        let set = self.set(key);
        let places = self.places.get(set..set + WAYS)?;
        let way = places.iter().position(|place| place.key == Some(key))?;
        Some(set + way)
    }

    fn oldest(&self, key: BlockKey) -> usize {
        let set = self.set(key);
        let places = self.places.get(set..set + WAYS).unwrap_or_default();
        let used = |place: &Place| place.key.map_or(0, |_| place.used);
        let oldest = (0..).zip(places).min_by_key(|(_, place)| used(place));
        set + oldest.map_or(0, |(way, _)| way)
    }

    fn touch(&mut self, at: usize) -> &[u8] {
        self.clock += 1;
        let Some(place) = self.places.get_mut(at) else {
            return &[];
        };
        place.used = self.clock;
        let begin = at * self.block_bytes;
        let end = begin + place.len as usize;
        self.bytes.get(begin..end).unwrap_or_default()
    }
}

fn class_of(size: BlockSize) -> usize {
    (size.bytes().ilog2() - BlockSize::BYTES_MIN.ilog2()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: BlockSize = BlockSize::DEFAULT;

    fn fill(cache: &mut BlockCache, key: BlockKey, byte: u8) {
        let filled = cache.insert((SIZE, key), SIZE.bytes(), |bytes| {
            bytes.fill(byte);
            Ok::<_, ()>(())
        });
        assert!(filled.unwrap().unwrap().iter().all(|found| *found == byte));
    }

    #[test]
    fn what_was_used_last_stays_and_the_bound_holds() {
        let mut cache = BlockCache::new(WAYS * SIZE.bytes() as usize);
        cache.prepare(SIZE);
        let key = |block| BlockKey { blob: 1, block };
        for block in 0..8 {
            fill(&mut cache, key(block), u8::try_from(block).unwrap());
        }
        assert!(cache.get(SIZE, key(0)).is_some());
        fill(&mut cache, key(8), 8);
        // One set: the second block was the least recently used one.
        assert!(!cache.holds(SIZE, key(1)));
        let other = BlockKey { blob: 2, block: 0 };
        assert!(!cache.holds(SIZE, other));
        for block in [0, 2, 3, 4, 5, 6, 7, 8] {
            let found = cache.get(SIZE, key(block)).unwrap();
            assert_eq!((found.len(), u64::from(found[0])), (4096, block));
        }
    }

    #[test]
    fn a_block_that_failed_is_not_there_nor_is_what_it_replaced() {
        let mut cache = BlockCache::new(0);
        cache.prepare(SIZE);
        let key = BlockKey { blob: 1, block: 7 };
        fill(&mut cache, key, 1);
        let failed = cache.insert((SIZE, key), 100, |bytes| {
            bytes.fill(9);
            Err(())
        });
        assert_eq!(failed.unwrap(), Err(()));
        assert!(!cache.holds(SIZE, key) && cache.get(SIZE, key).is_none());
    }
}
