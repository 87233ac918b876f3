//! Plans make the files that the reference made, but for the known differences in MANIFEST.md.

use block::{ByteLen, ByteOffset, Sectors};
use overlaybd::lsmt::{
    HEADER_BYTES, Index, Layer, LayerPlan, LayerUuid, LogUpper, MutableIndex, NewLayer, Record,
    SealPlan, SparseLayout, Stack, UserTag,
};

use crate::{fixture, replay};

const B_STACK4: [&str; 4] = [
    "b_stack4/L0.lsmt",
    "b_stack4/L1.lsmt",
    "b_stack4/L2.lsmt",
    "b_stack4/L3.lsmt",
];

fn uuid(text: &str) -> Option<LayerUuid> {
    LayerUuid::from_text(text.as_bytes())
}

/// The name that f_commit's layers have.
fn committed(user_tag: &str) -> NewLayer {
    NewLayer {
        virtual_size: Sectors(8192),
        uuid: uuid("0BD00258-0000-4000-8000-000000000258"),
        parent_uuid: uuid("0BD00067-0000-4000-8000-000000000067"),
        user_tag: UserTag::new(user_tag.as_bytes()).unwrap(),
    }
}

fn same_as(layer: &Layer) -> NewLayer {
    NewLayer {
        virtual_size: layer.trailer.virtual_size,
        uuid: layer.trailer.uuid,
        parent_uuid: layer.trailer.parent_uuid,
        user_tag: layer.trailer.user_tag.clone(),
    }
}

/// The file that a plan makes.
fn make(plan: &LayerPlan<'_>, files: &[&[u8]]) -> Vec<u8> {
    let mut made = plan.header.clone();
    for copy in plan.copies() {
        assert_eq!(copy.to.0, made.len() as u64);
        made.extend(fixture::slice(files[usize::from(copy.layer.0)], copy.from));
    }
    assert_eq!(plan.tail_offset.0, made.len() as u64);
    made.extend(&plan.tail);
    assert_eq!(plan.len_bytes().0, made.len() as u64);
    made
}

/// The C++ reference pads to 512 only before the trailer.
fn assert_same_as_cpp(made: &[u8], name: &str) {
    let reference = fixture::read(name);
    let index = fixture::layout(&reference).unwrap().index();
    let end = usize::try_from(index.offset.0 + index.len.0).unwrap();
    assert!(made[..end] == reference[..end], "{name}: start to index");
    assert!(trailer(made) == trailer(&reference), "{name}: trailer");
    let filler = &made[end..made.len() - HEADER_BYTES];
    assert!(filler.iter().all(|byte| *byte == 0), "{name}: filler");
}

/// The Rust reference writes uuids in lower case.
fn assert_same_as_rust(made: &[u8], name: &str) {
    let reference = fixture::read(name);
    assert_eq!(made.len(), reference.len(), "{name}");
    let end = made.len() - HEADER_BYTES;
    assert!(made[4096..end] == reference[4096..end], "{name}: between");
    let parsed = |file| fixture::layout(file).unwrap().trailer().clone();
    assert_eq!(parsed(made), parsed(&reference), "{name}: trailer");
}

fn trailer(file: &[u8]) -> &[u8] {
    &file[file.len() - HEADER_BYTES..]
}

fn plain() -> (Vec<u8>, LogUpper) {
    let data = fixture::read("d_rw/plain.data");
    let loader = fixture::log_loader(&data, &fixture::read("d_rw/plain.index")).unwrap();
    (data, loader.finish_strict().unwrap())
}

#[test]
fn a_commit_is_the_same_file() {
    let (data, upper) = plain();
    let index = upper.index.to_index().unwrap();
    let plan = LayerPlan::commit(&index, &committed("commit of d_rw/plain")).unwrap();
    let made = make(&plan, &[&data]);
    assert_same_as_cpp(&made, "f_commit/plain_commit_cpp.lsmt");
    assert_same_as_rust(&made, "f_commit/plain_commit_rust.lsmt");
}

#[test]
fn a_commit_of_a_sealed_layer_is_the_same_file() {
    let sealed = fixture::read("f_commit/plain_sealed_cpp.lsmt");
    let layer = fixture::layer(&sealed).unwrap();
    let plan = LayerPlan::commit(&layer.index, &committed("")).unwrap();
    let made = make(&plan, &[&sealed]);
    assert_same_as_cpp(&made, "f_commit/plain_commit_sealed_cpp.lsmt");

    let sealed = fixture::sparse_sealed();
    let layer = fixture::layer(&sealed).unwrap();
    let new = NewLayer {
        uuid: uuid("0BD0024E-0000-4000-8000-00000000024E"),
        ..committed("")
    };
    let plan = LayerPlan::commit(&layer.index, &new).unwrap();
    let made = make(&plan, &[&sealed]);
    assert_same_as_cpp(&made, "e_sparse/aligned4k_commit_sealed.lsmt");
}

#[test]
fn committing_a_committed_layer_changes_nothing() {
    let names = [
        "a_empty/empty.lsmt",
        "a_single/single.lsmt",
        "a_single_bigzero/bigzero_niluuid.lsmt",
        "a_single_oddsize/odd196sectors.lsmt",
        "b_vsize/V0_2M.lsmt",
        "b_vsize/V1_4M.lsmt",
        "b_vsize/V2_0.lsmt",
        "b_vsize/V3_1M.lsmt",
        "h_parent/P1.lsmt",
    ];
    for name in names.into_iter().chain(B_STACK4) {
        let file = fixture::read(name);
        let layer = fixture::layer(&file).unwrap();
        let plan = LayerPlan::commit(&layer.index, &same_as(&layer)).unwrap();
        assert_same_as_cpp(&make(&plan, &[&file]), name);
    }
}

#[test]
fn merge_and_flatten_are_the_same_files() {
    let files = B_STACK4.map(fixture::read);
    let layers = [0, 1, 2, 3].map(|at: usize| fixture::layer(&files[at]).unwrap());
    let stack = Stack::build(&layers.each_ref()).unwrap();
    let (data, upper) = plain();
    let mut files: Vec<_> = files.iter().map(Vec::as_slice).collect();
    files.push(&data);
    let new = |uuid, parent_uuid| NewLayer {
        uuid,
        parent_uuid,
        ..NewLayer {
            virtual_size: stack.size(),
            ..NewLayer::default()
        }
    };
    let merged = uuid("0BD000BE-0000-4000-8000-0000000000BE");
    let plan = LayerPlan::merge(stack.index(), 4, &new(merged, None)).unwrap();
    let made = make(&plan, &files);
    assert_same_as_cpp(&made, "b_stack4/merged_cpp.lsmt");
    assert_same_as_rust(&made, "b_stack4/merged_rust.lsmt");

    let flat = stack.index_under(&upper.index).unwrap();
    let parent = upper.header.parent_uuid;
    let plan = LayerPlan::merge(&flat, 4, &new(None, parent)).unwrap();
    assert_same_as_cpp(&make(&plan, &files), "f_commit/flatten_cpp.lsmt");
    let plan = LayerPlan::merge(&flat, 4, &new(None, None)).unwrap();
    assert_same_as_rust(&make(&plan, &files), "f_commit/flatten_rust.lsmt");
}

#[test]
fn long_runs_are_cut_as_the_reference_cuts_them() {
    let (segments, _) = replay::replay(&fixture::read_text("c_longdata/long.ops"), 0);
    let mut upper = MutableIndex::new();
    segments.into_iter().for_each(|s| upper.insert(s));
    let index = upper.to_index().unwrap();
    let plan = LayerPlan::commit(&index, &NewLayer::default()).unwrap();
    let (records, _) = plan.tail.as_chunks();
    let lines: String = records[..256]
        .iter()
        .map(|bytes| format!("{}\n", Record::parse(*bytes).unwrap()))
        .collect();
    assert_eq!(lines, fixture::read_text("c_longdata/index.txt"));
}

/// Sealed bytes up to the end of the records, and where the trailer says what; filler is anybody's.
fn assert_sealed_like(made: &[u8], reference: &[u8], name: &str) {
    let index = fixture::layout(reference).unwrap().index();
    let end = usize::try_from(index.offset.0 + index.len.0).unwrap();
    assert!(made[..end] == reference[..end], "{name}");
    let (made, reference) = (fixture::layer(made), fixture::layer(reference));
    assert_eq!(made.unwrap(), reference.unwrap(), "{name}");
}

fn seal(data: &[u8], header: &overlaybd::lsmt::Header, index: &Index) -> Vec<u8> {
    let plan = SealPlan::build(header, ByteLen(data.len() as u64), index).unwrap();
    assert_eq!(plan.offset, ByteOffset(data.len() as u64));
    let made = [data, &plan.bytes].concat();
    assert_eq!(made.len() % HEADER_BYTES, 0);
    made
}

#[test]
fn a_sealed_upper_is_the_same_file_but_for_filler() {
    let (data, upper) = plain();
    let made = seal(&data, &upper.header, &upper.index.to_index().unwrap());
    for name in [
        "f_commit/plain_sealed_cpp.lsmt",
        "f_commit/plain_sealed_rust.lsmt",
    ] {
        assert_sealed_like(&made, &fixture::read(name), name);
    }
    let (data, ranges) = fixture::sparse_file("aligned4k.data");
    let layout = SparseLayout::parse(&data, ByteLen(data.len() as u64)).unwrap();
    let index = layout.index(ranges).unwrap().to_index().unwrap();
    let made = seal(&data, layout.header(), &index);
    assert_sealed_like(&made, &fixture::sparse_sealed(), "sparse");
}

#[test]
fn a_sealed_hybrid_upper_reads_as_before() {
    let data = fixture::read("d_rw_rust/hybrid.data");
    let loader = fixture::log_loader(&data, &fixture::read("d_rw_rust/hybrid.index")).unwrap();
    let upper = loader.finish_strict().unwrap();
    let index = upper.index.to_index().unwrap();
    let made = seal(&data, &upper.header, &index);
    let layer = fixture::layer(&made).unwrap();
    assert_eq!(layer.trailer.flags.bits(), 0x26);
    assert_eq!(layer.index, index);
}
