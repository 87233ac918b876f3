//! Device parameters: built from a [`block::Geometry`], checked, encoded for `SET_PARAMS`, read back from `GET_PARAMS`.
//!
//! The checks are those of `ublk_validate_params` (drivers/block/ublk_drv.c, Linux 6.12 and 7.3), made here so that a
//! refusal names the parameter; the kernel only says `EINVAL`.

use block::{Access, Geometry, SECTOR_BYTES, Sectors, Zeroing};
use zerocopy::FromBytes;

use crate::abi::params::*;

/// Largest discard or write-zeroes: 1 GiB in sectors. Big enough that trimming a disk is a few requests, small
/// enough that one request does not keep a backing file locked for seconds.
const ZEROING_SECTORS_MAX: u32 = (1 << 30) >> 9;
/// The driver refuses larger shifts (7.3).
const SHIFT_MAX: u8 = 28;
/// A read or a write of a page must be possible, else the block layer warns (7.0.11).
const PAGE_SECTORS: u32 = 8;

/// The limits of one read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferLimits {
    /// Largest read or write, in sectors.
    pub max_sectors: u32,
    /// `max_io_buf_bytes` that the device was added with.
    pub max_io_buf_bytes: u32,
}

/// Discard and write-zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardLimits {
    /// Bytes from the start of the disk to the first granule.
    pub alignment_bytes: u32,
    /// Bytes of a granule, at least a logical block.
    pub granularity_bytes: u32,
    /// Largest discard.
    pub max_discard_sectors: u32,
    /// Largest write-zeroes.
    pub max_write_zeroes_sectors: u32,
}

/// The numbers of the char device and the disk, from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumbers {
    /// Major and minor number of the char device.
    pub char_device: (u32, u32),
    /// Major and minor number of the disk; 0 before the start.
    pub disk: (u32, u32),
}

/// The parameters of a device, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceParams {
    /// Size of the disk.
    pub size: Sectors,
    /// Whether the disk may be written to.
    pub access: Access,
    /// `log2` of the logical block size in bytes.
    pub logical_block_shift: u8,
    /// `log2` of the physical block size in bytes.
    pub physical_block_shift: u8,
    /// Whether completed writes may be lost until a flush. FUA is offered exactly then.
    pub volatile_cache: bool,
    /// Largest read or write, in sectors.
    pub max_sectors: u32,
    /// Discard and write-zeroes, if offered.
    pub discard: Option<DiscardLimits>,
    /// Device numbers; only the driver gives them.
    pub numbers: Option<DeviceNumbers>,
}

/// Parameters the driver would refuse, or bytes that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// The disk has no sectors.
    #[error("the size is 0; a disk needs at least one logical block")]
    SizeZero,
    /// The disk does not end at a logical block.
    #[error("the size of {0} is not a multiple of the logical block size of {1} bytes; change one")]
    SizeUnaligned(Sectors, u64),
    /// The size in bytes does not fit the kernel's signed offsets.
    #[error("the size of {0} is beyond what the kernel can address (2^54 sectors)")]
    SizeTooLarge(Sectors),
    /// The logical block size is not 512 to 4096 bytes.
    #[error("a logical block of 2^{0} bytes is not offered; use 512, 1024, 2048 or 4096")]
    LogicalBlock(u8),
    /// The physical block is smaller than the logical one, or absurd.
    #[error("a physical block of 2^{0} bytes must be at least the logical one and at most 2^28")]
    PhysicalBlock(u8),
    /// Largest transfer out of range.
    #[error(
        "{max} sectors a transfer must be at least {PAGE_SECTORS} and fit {buffer_bytes} bytes"
    )]
    MaxSectors {
        /// The limit asked for.
        max: u32,
        /// `max_io_buf_bytes` of the device.
        buffer_bytes: u32,
    },
    /// Granularity is not a power of two between 512 bytes and 1 GiB.
    #[error("a discard granularity of {0} bytes must be a power of two from 512 to 2^30")]
    DiscardGranularity(u32),
    /// `GET_PARAMS` returned too few bytes or no basic parameters.
    #[error("the driver's parameters are incomplete; its version is not understood")]
    Incomplete,
}

impl DeviceParams {
    /// The parameters for a target's geometry. Discard is offered when the target can zero and may be written to.
    ///
    /// # Errors
    /// What the driver would refuse; see [`ParamsError`].
    pub fn for_geometry(geometry: &Geometry, limits: TransferLimits) -> Result<Self, ParamsError> {
        let logical_block_bytes = check_blocks(geometry)?;
        check_size(geometry.size, logical_block_bytes)?;
        let (max, buffer_bytes) = (limits.max_sectors, limits.max_io_buf_bytes);
        if max < PAGE_SECTORS || u64::from(max) * SECTOR_BYTES > u64::from(buffer_bytes) {
            return Err(ParamsError::MaxSectors { max, buffer_bytes });
        }
        Ok(Self {
            size: geometry.size,
            access: geometry.access,
            logical_block_shift: geometry.logical_block_shift,
            physical_block_shift: geometry.physical_block_shift,
            volatile_cache: geometry.volatile_cache,
            max_sectors: limits.max_sectors,
            discard: discard_limits(geometry)?,
            numbers: None,
        })
    }

    /// The driver's structure, for `SET_PARAMS`.
    #[must_use]
    pub fn to_abi(&self) -> ublk_params {
        let mut attrs = 0;
        if self.access == Access::ReadOnly {
            attrs |= UBLK_ATTR_READ_ONLY;
        }
        if self.volatile_cache {
            // Without a volatile cache every write is durable and FUA means nothing.
            attrs |= UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA;
        }
        let mut params = ublk_params {
            len: PARAMS_BYTES,
            types: UBLK_PARAM_TYPE_BASIC,
            basic: ublk_param_basic {
                attrs,
                logical_bs_shift: self.logical_block_shift,
                physical_bs_shift: self.physical_block_shift,
                io_opt_shift: self.physical_block_shift,
                io_min_shift: self.physical_block_shift,
                max_sectors: self.max_sectors,
                dev_sectors: self.size.0,
                ..Default::default()
            },
            ..Default::default()
        };
        if let Some(discard) = self.discard {
            params.types |= UBLK_PARAM_TYPE_DISCARD;
            params.discard = ublk_param_discard {
                discard_alignment: discard.alignment_bytes,
                discard_granularity: discard.granularity_bytes,
                max_discard_sectors: discard.max_discard_sectors,
                max_write_zeroes_sectors: discard.max_write_zeroes_sectors,
                max_discard_segments: 1,
                reserved0: 0,
            };
        }
        params
    }

    /// What `GET_PARAMS` filled in.
    ///
    /// # Errors
    /// [`ParamsError::Incomplete`] for too few bytes or without basic parameters, and the errors of
    /// [`DeviceParams::for_geometry`] for values no driver accepts.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParamsError> {
        let (raw, _) = ublk_params::read_from_prefix(bytes).map_err(|_| ParamsError::Incomplete)?;
        if raw.types & UBLK_PARAM_TYPE_BASIC == 0 {
            return Err(ParamsError::Incomplete);
        }
        let basic = raw.basic;
        let geometry = Geometry {
            size: Sectors(basic.dev_sectors),
            access: if basic.attrs & UBLK_ATTR_READ_ONLY == 0 {
                Access::ReadWrite
            } else {
                Access::ReadOnly
            },
            logical_block_shift: basic.logical_bs_shift,
            physical_block_shift: basic.physical_bs_shift,
            volatile_cache: basic.attrs & UBLK_ATTR_VOLATILE_CACHE != 0,
            zeroing: Zeroing::Unsupported,
        };
        let limits = TransferLimits {
            max_sectors: basic.max_sectors,
            max_io_buf_bytes: u32::MAX,
        };
        let mut params = Self::for_geometry(&geometry, limits)?;
        params.discard = (raw.types & UBLK_PARAM_TYPE_DISCARD != 0).then_some(DiscardLimits {
            alignment_bytes: raw.discard.discard_alignment,
            granularity_bytes: raw.discard.discard_granularity,
            max_discard_sectors: raw.discard.max_discard_sectors,
            max_write_zeroes_sectors: raw.discard.max_write_zeroes_sectors,
        });
        params.numbers = (raw.types & UBLK_PARAM_TYPE_DEVT != 0).then_some(DeviceNumbers {
            char_device: (raw.devt.char_major, raw.devt.char_minor),
            disk: (raw.devt.disk_major, raw.devt.disk_minor),
        });
        Ok(params)
    }
}

/// Bytes of [`ublk_params`], for its own `len`.
pub(crate) const PARAMS_BYTES: u32 = 152;
const _: () = assert!(size_of::<ublk_params>() == PARAMS_BYTES as usize);

fn check_blocks(geometry: &Geometry) -> Result<u64, ParamsError> {
    let (logical, physical) = (geometry.logical_block_shift, geometry.physical_block_shift);
    if !(9..=12).contains(&logical) {
        return Err(ParamsError::LogicalBlock(logical));
    }
    if !(logical..=SHIFT_MAX).contains(&physical) {
        return Err(ParamsError::PhysicalBlock(physical));
    }
    Ok(1 << logical)
}

fn check_size(size: Sectors, logical_block_bytes: u64) -> Result<(), ParamsError> {
    if size.0 == 0 {
        return Err(ParamsError::SizeZero);
    }
    if size.0 > 1 << 54 {
        return Err(ParamsError::SizeTooLarge(size));
    }
    if !size.0.is_multiple_of(logical_block_bytes / SECTOR_BYTES) {
        return Err(ParamsError::SizeUnaligned(size, logical_block_bytes));
    }
    Ok(())
}

fn discard_limits(geometry: &Geometry) -> Result<Option<DiscardLimits>, ParamsError> {
    let granularity_bytes = match (geometry.zeroing, geometry.access) {
        (Zeroing::Deallocate { granularity_bytes }, Access::ReadWrite) => granularity_bytes,
        (Zeroing::Unsupported, _) | (_, Access::ReadOnly) => return Ok(None),
    };
    if !granularity_bytes.is_power_of_two() || !(512..=1 << 30).contains(&granularity_bytes) {
        return Err(ParamsError::DiscardGranularity(granularity_bytes));
    }
    Ok(Some(DiscardLimits {
        alignment_bytes: 0,
        granularity_bytes: granularity_bytes.max(1 << geometry.logical_block_shift),
        max_discard_sectors: ZEROING_SECTORS_MAX,
        max_write_zeroes_sectors: ZEROING_SECTORS_MAX,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    const LIMITS: TransferLimits = TransferLimits {
        max_sectors: 2048,
        max_io_buf_bytes: 1 << 20,
    };

    fn geometry() -> Geometry {
        Geometry {
            size: Sectors(1 << 20),
            access: Access::ReadWrite,
            logical_block_shift: 9,
            physical_block_shift: 12,
            volatile_cache: true,
            zeroing: Zeroing::Deallocate {
                granularity_bytes: 4096,
            },
        }
    }

    fn build(change: impl FnOnce(&mut Geometry)) -> Result<DeviceParams, ParamsError> {
        let mut geometry = geometry();
        change(&mut geometry);
        DeviceParams::for_geometry(&geometry, LIMITS)
    }

    #[test]
    fn attributes_follow_the_geometry() {
        let attrs = |params: DeviceParams| params.to_abi().basic.attrs;
        assert_eq!(attrs(build(|_| ()).unwrap()), 4 | 8);
        assert_eq!(attrs(build(|g| g.volatile_cache = false).unwrap()), 0);
        let read_only = build(|g| g.access = Access::ReadOnly).unwrap();
        assert_eq!(attrs(read_only), 1 | 4 | 8);
        assert_eq!(read_only.to_abi().types, UBLK_PARAM_TYPE_BASIC);
    }

    #[test]
    fn discard_is_offered_when_zeroing_is_and_writes_are_allowed() {
        let abi = build(|_| ()).unwrap().to_abi();
        assert_eq!(abi.types, UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD);
        assert_eq!(abi.discard.max_discard_segments, 1);
        assert_eq!(abi.discard.max_discard_sectors, 1 << 21);
        assert_eq!(
            build(|g| g.zeroing = Zeroing::Unsupported).unwrap().discard,
            None
        );
        let coarse = build(|g| {
            g.logical_block_shift = 12;
            g.zeroing = Zeroing::Deallocate {
                granularity_bytes: 512,
            };
        });
        assert_eq!(coarse.unwrap().discard.unwrap().granularity_bytes, 4096);
    }

    #[test]
    fn what_the_driver_would_refuse_is_refused_by_name() {
        use ParamsError as E;
        let zeroing = |granularity_bytes| Zeroing::Deallocate { granularity_bytes };
        assert_eq!(build(|g| g.size = Sectors(0)), Err(E::SizeZero));
        let huge = Sectors((1 << 54) + 8);
        assert_eq!(build(|g| g.size = huge), Err(E::SizeTooLarge(huge)));
        assert_eq!(
            build(|g| g.logical_block_shift = 8),
            Err(E::LogicalBlock(8))
        );
        assert_eq!(
            build(|g| g.logical_block_shift = 13),
            Err(E::LogicalBlock(13))
        );
        assert_eq!(
            build(|g| g.physical_block_shift = 8),
            Err(E::PhysicalBlock(8))
        );
        assert_eq!(
            build(|g| g.physical_block_shift = 29),
            Err(E::PhysicalBlock(29))
        );
        for bad in [0, 256, 3000, (1 << 30) + 1, 1 << 31] {
            assert_eq!(
                build(|g| g.zeroing = zeroing(bad)),
                Err(E::DiscardGranularity(bad))
            );
        }
        let odd = build(|g| {
            g.logical_block_shift = 12;
            g.size = Sectors(9);
        });
        assert_eq!(odd, Err(E::SizeUnaligned(Sectors(9), 4096)));
        for max_sectors in [0, 7, 2049] {
            let limits = TransferLimits {
                max_sectors,
                ..LIMITS
            };
            assert!(matches!(
                DeviceParams::for_geometry(&geometry(), limits),
                Err(E::MaxSectors { .. })
            ));
        }
    }

    #[test]
    fn the_drivers_numbers_are_read_and_short_answers_are_refused() {
        let mut abi = build(|_| ()).unwrap().to_abi();
        abi.types |= UBLK_PARAM_TYPE_DEVT;
        abi.devt = ublk_param_devt {
            char_major: 240,
            char_minor: 7,
            disk_major: 259,
            disk_minor: 3,
        };
        let numbers = DeviceParams::parse(abi.as_bytes())
            .unwrap()
            .numbers
            .unwrap();
        assert_eq!((numbers.char_device, numbers.disk), ((240, 7), (259, 3)));
        assert_eq!(
            DeviceParams::parse(&abi.as_bytes()[..151]),
            Err(ParamsError::Incomplete)
        );
        abi.types = 0;
        assert_eq!(
            DeviceParams::parse(abi.as_bytes()),
            Err(ParamsError::Incomplete)
        );
    }

    proptest! {
        #[test]
        fn legal_parameters_survive_the_kernel(
            blocks in 1_u64..1 << 40,
            logical in 9_u8..=12,
            above in 0_u8..=4,
            read_only: bool,
            volatile_cache: bool,
            granule in 9_u32..=30,
        ) {
            let params = DeviceParams::for_geometry(
                &Geometry {
                    size: Sectors(blocks << (logical - 9)),
                    access: if read_only { Access::ReadOnly } else { Access::ReadWrite },
                    logical_block_shift: logical,
                    physical_block_shift: logical + above,
                    volatile_cache,
                    zeroing: Zeroing::Deallocate { granularity_bytes: 1 << granule },
                },
                LIMITS,
            )
            .unwrap();
            prop_assert_eq!(DeviceParams::parse(params.to_abi().as_bytes()), Ok(params));
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(params) = DeviceParams::parse(&bytes) {
                prop_assert!(params.size.0 > 0);
                prop_assert!((9..=12).contains(&params.logical_block_shift));
            }
        }
    }
}
