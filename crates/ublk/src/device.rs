//! A device as the driver describes it.

use std::fmt;

use block::DeviceId;

use crate::abi::control::*;
use crate::abi::io::IO_DESC_BYTES;
use crate::features::Features;
use crate::stamp::OwnerStamp;

/// The driver's state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceState {
    /// Added and never started, or stopped: there is no disk.
    Dead,
    /// The disk is there and has a server.
    Live,
    /// The server is gone; I/O waits for the next one.
    Quiesced,
    /// The server is gone; I/O fails until there is another one.
    FailIo,
    /// A state that came after Linux 7.3.
    Unknown(u16),
}

impl DeviceState {
    const fn from_raw(raw: u16) -> Self {
        match raw {
            UBLK_S_DEV_DEAD => Self::Dead,
            UBLK_S_DEV_LIVE => Self::Live,
            UBLK_S_DEV_QUIESCED => Self::Quiesced,
            UBLK_S_DEV_FAIL_IO => Self::FailIo,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dead => f.write_str("dead"),
            Self::Live => f.write_str("live"),
            Self::Quiesced => f.write_str("quiesced"),
            Self::FailIo => f.write_str("fail-io"),
            Self::Unknown(raw) => write!(f, "state {raw}"),
        }
    }
}

/// What `ADD_DEV` granted or `GET_DEV_INFO` read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device.
    pub device: DeviceId,
    /// Its state.
    pub state: DeviceState,
    /// Number of queues; may be fewer than asked for.
    pub queues: u16,
    /// Tags of each queue.
    pub depth: u16,
    /// Bytes of a descriptor.
    pub desc_bytes: u16,
    /// Most bytes of data in one request.
    pub max_io_buf_bytes: u32,
    /// The server's process id, if there is or was one. Up to 6.12 it is what the starter claimed.
    pub server_pid: Option<u32>,
    /// Granted features.
    pub features: Features,
    /// Our mark, if the device is ours.
    pub owner: Option<OwnerStamp>,
    /// The 64 bits that the driver keeps, whoever wrote them.
    pub owner_bits: u64,
    /// User that added the device.
    pub uid: u32,
    /// Group that added the device.
    pub gid: u32,
}

impl DeviceInfo {
    pub(crate) fn from_abi(raw: &ublksrv_ctrl_dev_info) -> Self {
        Self {
            device: DeviceId(raw.dev_id),
            state: DeviceState::from_raw(raw.state),
            queues: raw.nr_hw_queues,
            depth: raw.queue_depth,
            desc_bytes: match raw.io_desc_size {
                // Padding up to 7.2, and the default size.
                0 => IO_DESC_BYTES,
                bytes => bytes,
            },
            max_io_buf_bytes: raw.max_io_buf_bytes,
            server_pid: u32::try_from(raw.ublksrv_pid).ok().filter(|pid| *pid != 0),
            features: Features::from_bits(raw.flags),
            owner: OwnerStamp::from_bits(raw.ublksrv_flags),
            owner_bits: raw.ublksrv_flags,
            uid: raw.owner_uid,
            gid: raw.owner_gid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_fields_are_understood() {
        let stamp = OwnerStamp::new(5, 6).unwrap();
        let mut raw = ublksrv_ctrl_dev_info {
            nr_hw_queues: 2,
            queue_depth: 64,
            state: 1,
            dev_id: 9,
            ublksrv_pid: 1234,
            flags: 1 << 7,
            ublksrv_flags: stamp.into_bits(),
            ..Default::default()
        };
        let info = DeviceInfo::from_abi(&raw);
        assert_eq!(info.device, DeviceId(9));
        assert_eq!(info.state, DeviceState::Live);
        assert_eq!(info.desc_bytes, 24);
        assert_eq!(info.server_pid, Some(1234));
        assert_eq!(info.owner, Some(stamp));
        raw.ublksrv_flags = 77;
        raw.ublksrv_pid = -1;
        raw.state = 9;
        raw.io_desc_size = 64;
        let foreign = DeviceInfo::from_abi(&raw);
        assert_eq!((foreign.owner, foreign.owner_bits), (None, 77));
        assert_eq!(foreign.server_pid, None);
        assert_eq!(foreign.state, DeviceState::Unknown(9));
        assert_eq!(foreign.desc_bytes, 64);
    }
}
