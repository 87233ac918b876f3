//! What clients ask for: mostly sensible requests, some that no device can serve.

use fastrand::Rng;
use ublk::abi::io::{
    UBLK_IO_OP_DISCARD, UBLK_IO_OP_FLUSH, UBLK_IO_OP_READ, UBLK_IO_OP_WRITE, UBLK_IO_OP_WRITE_SAME,
    UBLK_IO_OP_WRITE_ZEROES, UBLK_IO_OP_ZONE_APPEND,
};

use crate::request::ClientOp;

/// Sectors of a chunk of the smallest hole map: zeroing whole chunks makes reads take the way without I/O.
const CHUNK_SECTORS: u64 = block::holes::CHUNK_BYTES_MIN / block::SECTOR_BYTES;

/// One request for a device of `sectors`.
pub(crate) fn client_op(rng: &mut Rng, sectors: u64) -> ClientOp {
    let len = match rng.u8(0..16) {
        0..12 => rng.u64(1..=16),
        12..15 => rng.u64(1..=64),
        _ => rng.u64(1..=sectors),
    };
    let len = len.min(sectors);
    // Half of all requests meet in a small place, so that they overlap.
    let reach = if rng.bool() { sectors } else { sectors.min(64) };
    let start = rng.u64(0..=reach.saturating_sub(len));
    let (start, len) = (start, u32::try_from(len).unwrap_or(u32::MAX));
    let op = ClientOp {
        code: UBLK_IO_OP_READ,
        fua: false,
        no_unmap: false,
        start,
        len,
    };
    match rng.u8(0..100) {
        0..38 => op,
        38..72 => ClientOp {
            code: UBLK_IO_OP_WRITE,
            fua: rng.u8(0..5) == 0,
            ..op
        },
        72..80 => ClientOp {
            code: UBLK_IO_OP_FLUSH,
            start: 0,
            len: 0,
            ..op
        },
        80..93 => zeroing(rng, op, sectors),
        _ => nonsense(rng, op, sectors),
    }
}

fn zeroing(rng: &mut Rng, op: ClientOp, sectors: u64) -> ClientOp {
    let is_discard = rng.bool();
    let op = ClientOp {
        code: if is_discard {
            UBLK_IO_OP_DISCARD
        } else {
            UBLK_IO_OP_WRITE_ZEROES
        },
        fua: rng.u8(0..4) == 0,
        no_unmap: !is_discard && rng.bool(),
        ..op
    };
    if sectors < CHUNK_SECTORS || rng.bool() {
        return op;
    }
    let chunk = rng.u64(0..sectors / CHUNK_SECTORS);
    ClientOp {
        start: chunk * CHUNK_SECTORS,
        len: u32::try_from(CHUNK_SECTORS).unwrap_or(u32::MAX),
        ..op
    }
}

fn nonsense(rng: &mut Rng, op: ClientOp, sectors: u64) -> ClientOp {
    let code = *rng
        .choice(&[UBLK_IO_OP_READ, UBLK_IO_OP_WRITE, UBLK_IO_OP_DISCARD])
        .unwrap_or(&0);
    let op = ClientOp { code, ..op };
    match rng.u8(0..6) {
        0 => ClientOp {
            code: UBLK_IO_OP_WRITE_SAME,
            ..op
        },
        1 => ClientOp {
            code: rng.u8(UBLK_IO_OP_ZONE_APPEND..),
            ..op
        },
        2 => ClientOp { len: 0, ..op },
        3 => ClientOp {
            start: sectors,
            ..op
        },
        4 => ClientOp {
            start: u64::MAX - 1,
            ..op
        },
        _ => ClientOp {
            start: sectors - 1,
            len: u32::MAX,
            ..op
        },
    }
}
