//! An upper's whole life against a plain disk: write, discard, sync, crash, reopen, seal, commit, restack, flatten.

use std::num::NonZeroU16;

use block::{ByteLen, ByteOffset, Extent, Sectors};
use overlaybd::lsmt::{
    Appended, Flags, HEADER_SECTORS, Header, Layer, LayerPlan, LogUpper, MutableIndex, NewLayer,
    RecordGroup, SealPlan, Stack, UserTag,
};
use proptest::prelude::*;

use crate::fixture;

const DISK: u64 = 128;
const SECTOR: usize = 512;

#[derive(Clone, Debug)]
enum Op {
    Write {
        start: u64,
        len: u64,
        fill: u8,
    },
    Discard {
        start: u64,
        len: u64,
    },
    /// Write the group of records, whatever it holds.
    Sync,
    /// Lose the group and part of a record; open the files again.
    Crash {
        torn_bytes: usize,
    },
    /// Seal in place; the sealed upper becomes the newest lower.
    Restack,
    /// Commit; the committed layer becomes the newest lower.
    Commit,
    /// Merge all lowers into one.
    Merge,
}

fn op() -> impl Strategy<Value = Op> {
    let range = (0..DISK, 1..40u64).prop_map(|(start, len)| (start, len.min(DISK - start)));
    prop_oneof![
        8 => (range.clone(), 1..=u8::MAX)
            .prop_map(|((start, len), fill)| Op::Write { start, len, fill }),
        3 => range.prop_map(|(start, len)| Op::Discard { start, len }),
        2 => Just(Op::Sync),
        1 => (0..16usize).prop_map(|torn_bytes| Op::Crash { torn_bytes }),
        1 => Just(Op::Restack),
        1 => Just(Op::Commit),
        1 => Just(Op::Merge),
    ]
}

/// An upper on lowers, all files in memory, and the disk that they must give.
struct Disk {
    lowers: Vec<(Vec<u8>, Layer)>,
    data: Vec<u8>,
    index_file: Vec<u8>,
    index: MutableIndex,
    group: RecordGroup,
    /// What a reader must see.
    live: Vec<u8>,
    /// What is left after a crash: the group's records are lost.
    durable: Vec<u8>,
}

fn extent(start: u64, len: u64) -> Extent {
    Extent {
        start: Sectors(start),
        len: Sectors(len),
    }
}

fn header(flags: Flags, index_offset: u64) -> Header {
    Header {
        flags,
        index_offset: ByteOffset(index_offset),
        index_size: 0,
        virtual_size: Sectors(DISK),
        uuid: None,
        parent_uuid: None,
        user_tag: UserTag::default(),
    }
}

fn new_layer() -> NewLayer {
    NewLayer {
        virtual_size: Sectors(DISK),
        ..NewLayer::default()
    }
}

impl Disk {
    fn new() -> Self {
        let zeros = vec![0; DISK as usize * SECTOR];
        Self {
            lowers: Vec::new(),
            data: header(Flags::LOG_DATA, 0).encode().to_vec(),
            index_file: header(Flags::LOG_INDEX, 4096).encode().to_vec(),
            index: MutableIndex::new(),
            group: RecordGroup::new(NonZeroU16::new(4).unwrap()),
            live: zeros.clone(),
            durable: zeros,
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Write { start, len, fill } => {
                let extent = extent(start, len);
                let appended = Appended::written(extent, self.data_end());
                self.data
                    .resize(self.data.len() + len as usize * SECTOR, fill);
                self.append(extent, fill, appended);
            }
            Op::Discard { start, len } => {
                let extent = extent(start, len);
                self.append(extent, 0, Appended::discarded(extent, self.data_end()));
            }
            Op::Sync => self.write_group(),
            Op::Crash { torn_bytes } => self.crash(torn_bytes),
            Op::Restack => self.restack(),
            Op::Commit => self.commit(),
            Op::Merge => self.merge(),
        }
    }

    fn data_end(&self) -> Sectors {
        Sectors((self.data.len() / SECTOR) as u64)
    }

    fn append(&mut self, extent: Extent, fill: u8, appended: Appended) {
        let (start, len) = (extent.offset_bytes().0, extent.len_bytes().0);
        self.live[start as usize..][..len as usize].fill(fill);
        for segment in appended {
            let segment = segment.unwrap();
            self.index.insert(segment);
            self.group.try_push(segment).unwrap();
            if self.group.is_full() {
                self.write_group();
            }
        }
    }

    fn write_group(&mut self) {
        self.group.pad();
        self.index_file.extend(self.group.as_bytes());
        self.group.clear();
        self.durable.clone_from(&self.live);
    }

    fn crash(&mut self, torn_bytes: usize) {
        let torn: Vec<_> = self
            .group
            .as_bytes()
            .iter()
            .take(torn_bytes)
            .copied()
            .collect();
        self.index_file.extend(torn);
        self.group.clear();
        // Part of a sector, as a short write leaves it.
        self.data.extend(vec![0xEE; torn_bytes]);
        let upper = self.reopen();
        self.data.truncate(upper.data_len.0 as usize);
        self.index_file.truncate(upper.index_len.0 as usize);
        self.index = upper.index;
        self.live.clone_from(&self.durable);
    }

    fn reopen(&self) -> LogUpper {
        let loader = fixture::log_loader(&self.data, &self.index_file).unwrap();
        loader.finish_strict().unwrap()
    }

    fn restack(&mut self) {
        self.write_group();
        let upper = self.reopen();
        let index = upper.index.to_index().unwrap();
        let len = ByteLen(self.data.len() as u64);
        let plan = SealPlan::build(&upper.header, len, &index).unwrap();
        let mut sealed = self.data.clone();
        sealed.extend(plan.bytes);
        self.push_lower(sealed);
    }

    fn commit(&mut self) {
        self.write_group();
        let index = self.index.to_index().unwrap();
        let plan = LayerPlan::commit(&index, &new_layer()).unwrap();
        let committed = make(&plan, &[&self.data]);
        self.push_lower(committed);
    }

    fn push_lower(&mut self, file: Vec<u8>) {
        let layer = fixture::layer(&file).unwrap();
        let fresh = Self::new();
        self.lowers.push((file, layer));
        self.data = fresh.data;
        self.index_file = fresh.index_file;
        self.index = fresh.index;
    }

    fn merge(&mut self) {
        let stack = self.stack();
        let lowers = self.lowers.len() as u8;
        let plan = LayerPlan::merge(stack.index(), lowers, &new_layer()).unwrap();
        let merged = make(&plan, &self.lower_files());
        let layer = fixture::layer(&merged).unwrap();
        self.lowers = vec![(merged, layer)];
    }

    fn stack(&self) -> Stack {
        let layers: Vec<_> = self.lowers.iter().map(|(_, layer)| layer).collect();
        Stack::build(&layers).unwrap()
    }

    fn lower_files(&self) -> Vec<&[u8]> {
        self.lowers
            .iter()
            .map(|(file, _)| file.as_slice())
            .collect()
    }

    fn check(&self) {
        let stack = self.stack();
        let mut files = self.lower_files();
        files.push(&self.data);
        let size = Sectors(DISK);
        let image = fixture::image(size, &files, |extent| {
            stack.resolve_under(&self.index, size, extent)
        });
        assert!(image == self.live);
    }
}

fn make(plan: &LayerPlan<'_>, files: &[&[u8]]) -> Vec<u8> {
    let mut made = plan.header.clone();
    assert_eq!(made.len() as u64, HEADER_SECTORS.len_bytes().0);
    for copy in plan.copies() {
        made.extend(fixture::slice(files[usize::from(copy.layer.0)], copy.from));
    }
    made.extend(&plan.tail);
    made
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_disk_keeps_what_was_written(ops in prop::collection::vec(op(), 1..60)) {
        let mut disk = Disk::new();
        for op in &ops {
            disk.apply(op);
            disk.check();
        }
    }
}
