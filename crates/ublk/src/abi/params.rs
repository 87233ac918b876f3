//! Device parameters, the payload of `SET_PARAMS` and `GET_PARAMS` (`ublk_cmd.h`, Linux 6.0 to 7.3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// [`ublk_params::basic`] is filled; mandatory.
pub const UBLK_PARAM_TYPE_BASIC: u32 = 1 << 0;
/// [`ublk_params::discard`] is filled.
pub const UBLK_PARAM_TYPE_DISCARD: u32 = 1 << 1;
/// [`ublk_params::devt`] is filled, by the driver only (6.3).
pub const UBLK_PARAM_TYPE_DEVT: u32 = 1 << 2;
/// [`ublk_params::zoned`] is filled (6.6).
pub const UBLK_PARAM_TYPE_ZONED: u32 = 1 << 3;
/// [`ublk_params::dma`] is filled (6.15).
pub const UBLK_PARAM_TYPE_DMA_ALIGN: u32 = 1 << 4;
/// [`ublk_params::seg`] is filled (6.15).
pub const UBLK_PARAM_TYPE_SEGMENT: u32 = 1 << 5;
/// [`ublk_params::integrity`] is filled (7.0).
pub const UBLK_PARAM_TYPE_INTEGRITY: u32 = 1 << 6;

/// The disk is read-only.
pub const UBLK_ATTR_READ_ONLY: u32 = 1 << 0;
/// The disk rotates.
pub const UBLK_ATTR_ROTATIONAL: u32 = 1 << 1;
/// Completed writes may be lost until a flush.
pub const UBLK_ATTR_VOLATILE_CACHE: u32 = 1 << 2;
/// Force unit access is honoured.
pub const UBLK_ATTR_FUA: u32 = 1 << 3;

/// Smallest legal segment size and boundary, in bytes.
pub const UBLK_MIN_SEGMENT_SIZE: u32 = 4096;

/// What every device has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_param_basic {
    /// `UBLK_ATTR_*`.
    pub attrs: u32,
    /// `log2` of the logical block size in bytes.
    pub logical_bs_shift: u8,
    /// `log2` of the physical block size in bytes.
    pub physical_bs_shift: u8,
    /// `log2` of the optimal I/O size in bytes.
    pub io_opt_shift: u8,
    /// `log2` of the minimal efficient I/O size in bytes.
    pub io_min_shift: u8,
    /// Largest read or write, in sectors.
    pub max_sectors: u32,
    /// Zone size, in sectors.
    pub chunk_sectors: u32,
    /// Size of the disk, in sectors.
    pub dev_sectors: u64,
    /// Boundary that segments must not cross, minus 1.
    pub virt_boundary_mask: u64,
}

assert_layout!(ublk_param_basic, 32, {
    attrs: 0, logical_bs_shift: 4, physical_bs_shift: 5, io_opt_shift: 6, io_min_shift: 7,
    max_sectors: 8, chunk_sectors: 12, dev_sectors: 16, virt_boundary_mask: 24,
});

/// Discard and write-zeroes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_param_discard {
    /// Bytes from the start of the disk to the first granule.
    pub discard_alignment: u32,
    /// Bytes of a granule; never 0.
    pub discard_granularity: u32,
    /// Largest discard, in sectors.
    pub max_discard_sectors: u32,
    /// Largest write-zeroes, in sectors.
    pub max_write_zeroes_sectors: u32,
    /// Ranges of one discard; must be 1.
    pub max_discard_segments: u16,
    /// Must be 0.
    pub reserved0: u16,
}

assert_layout!(ublk_param_discard, 20, {
    discard_alignment: 0, discard_granularity: 4, max_discard_sectors: 8,
    max_write_zeroes_sectors: 12, max_discard_segments: 16, reserved0: 18,
});

/// Device numbers, read-only; those of the disk are 0 before the start (6.3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_param_devt {
    /// Major number of the char device.
    pub char_major: u32,
    /// Minor number of the char device.
    pub char_minor: u32,
    /// Major number of the disk.
    pub disk_major: u32,
    /// Minor number of the disk.
    pub disk_minor: u32,
}

assert_layout!(ublk_param_devt, 16, { char_major: 0, char_minor: 4, disk_major: 8, disk_minor: 12 });

/// Limits of a zoned device (6.6).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_param_zoned {
    /// Most open zones.
    pub max_open_zones: u32,
    /// Most active zones.
    pub max_active_zones: u32,
    /// Largest append, in sectors.
    pub max_zone_append_sectors: u32,
    /// Must be 0.
    pub reserved: [u8; 20],
}

assert_layout!(ublk_param_zoned, 32, {
    max_open_zones: 0, max_active_zones: 4, max_zone_append_sectors: 8, reserved: 12,
});

/// Alignment of request memory, for zero copy (6.15).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_param_dma_align {
    /// Alignment in bytes, minus 1.
    pub alignment: u32,
    /// Must be 0.
    pub pad: [u8; 4],
}

assert_layout!(ublk_param_dma_align, 8, { alignment: 0, pad: 4 });

/// Shape of request memory, for zero copy (6.15).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_param_segment {
    /// Boundary that segments must not cross, minus 1.
    pub seg_boundary_mask: u64,
    /// Largest segment in bytes.
    pub max_segment_size: u32,
    /// Most segments of a request.
    pub max_segments: u16,
    /// Must be 0.
    pub pad: [u8; 2],
}

assert_layout!(ublk_param_segment, 16, {
    seg_boundary_mask: 0, max_segment_size: 8, max_segments: 12, pad: 14,
});

/// Integrity data (7.0; needs `UBLK_F_INTEGRITY`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_param_integrity {
    /// `LBMD_PI_CAP_*` of linux/fs.h.
    pub flags: u32,
    /// Most integrity segments; 0 is no limit.
    pub max_integrity_segments: u16,
    /// `log2` of the protected interval in bytes.
    pub interval_exp: u8,
    /// Bytes of metadata an interval.
    pub metadata_size: u8,
    /// Where the protection information lies in the metadata.
    pub pi_offset: u8,
    /// `LBMD_PI_CSUM_*` of linux/fs.h.
    pub csum_type: u8,
    /// Bytes of the application tag.
    pub tag_size: u8,
    /// Must be 0.
    pub pad: [u8; 5],
}

assert_layout!(ublk_param_integrity, 16, {
    flags: 0, max_integrity_segments: 4, interval_exp: 6, metadata_size: 7, pi_offset: 8,
    csum_type: 9, tag_size: 10, pad: 11,
});

/// All parameters. `types` says which parts count.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ublk_params {
    /// Bytes that are filled, this field included; a driver that knows less takes less.
    pub len: u32,
    /// `UBLK_PARAM_TYPE_*`.
    pub types: u32,
    /// Mandatory.
    pub basic: ublk_param_basic,
    /// Discard and write-zeroes.
    pub discard: ublk_param_discard,
    /// Device numbers.
    pub devt: ublk_param_devt,
    /// Zones.
    pub zoned: ublk_param_zoned,
    /// Alignment.
    pub dma: ublk_param_dma_align,
    /// The compiler's padding in front of `seg`, made visible.
    pub pad_before_seg: [u8; 4],
    /// Segments.
    pub seg: ublk_param_segment,
    /// Integrity.
    pub integrity: ublk_param_integrity,
}

assert_layout!(ublk_params, 152, {
    len: 0, types: 4, basic: 8, discard: 40, devt: 60, zoned: 76, dma: 108, pad_before_seg: 116,
    seg: 120, integrity: 136,
});
