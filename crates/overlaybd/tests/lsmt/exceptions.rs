//! The stacks of `cases.json` that need more than being opened and hashed, by name; for every reader's test.

/// Cases whose file is not among the fixtures. Its operations are those of `e_sparse/aligned4k`.
pub(crate) const WITHOUT_FILE: [&str; 1] = ["d_rw_rust sparse alone"];
/// What the running device showed and the format cannot keep: a reader must give another image.
pub(crate) const NOT_KEPT: [&str; 2] = [
    "e_sparse discard (ideal)",
    "e_sparse one 512B write (ideal)",
];
/// Only a repair opens these.
pub(crate) const REPAIRED: [&str; 1] = ["d_rw index ahead of data"];
/// Layers over a parent that they do not name.
pub(crate) const UNRELATED: [&str; 2] =
    ["b_stack4 listed in the wrong order", "i_warp + L3 on top"];
