//! One control command with its arguments, and how it is laid out for the kernel. Pure: no ring, no file.

use block::{DeviceId, QueueId, Sectors};
use zerocopy::IntoBytes;

use crate::abi::control::*;
use crate::abi::params::ublk_params;
use crate::command_kind::CommandKind;
use crate::features::Features;
use crate::params::{DeviceParams, PARAMS_BYTES};
use crate::stamp::OwnerStamp;

/// Bytes of the CPU mask that `GET_QUEUE_AFFINITY` fills: 8192 CPUs, the most that Linux is built for.
const CPU_MASK_BYTES: usize = 1024;

/// A device to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewDevice {
    /// The id, or `None` to let the kernel choose.
    pub device: Option<DeviceId>,
    /// Number of queues; the kernel lowers it to the number of CPUs.
    pub queues: u16,
    /// Tags of each queue, 1 to 4096.
    pub depth: u16,
    /// Most bytes of data in one request; the kernel rounds it down to a page.
    pub max_io_buf_bytes: u32,
    /// Features wanted; the reply tells those granted.
    pub features: Features,
    /// Our mark.
    pub owner: OwnerStamp,
}

/// A control command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds a device. Answers [`crate::Reply::Info`].
    AddDev(NewDevice),
    /// Deletes a device and waits until its id is free. Never use it on a device that is not stopped: the stop then
    /// runs under the lock that every add and delete of the host needs.
    DelDev(DeviceId),
    /// Deletes a device and does not wait (6.9). The same warning holds.
    DelDevAsync(DeviceId),
    /// Makes the disk visible. Waits until every tag of every queue is fetched.
    StartDev {
        /// The device.
        device: DeviceId,
        /// Process id of the server, which must be the opener of the char device (6.17).
        server_pid: u32,
    },
    /// Removes the disk and aborts every fetch.
    StopDev(DeviceId),
    /// Removes the disk unless it is open (7.0). Advisory: a privileged opener may still slip in.
    TryStopDev(DeviceId),
    /// Sets the parameters, before the start.
    SetParams {
        /// The device.
        device: DeviceId,
        /// Its parameters.
        params: DeviceParams,
    },
    /// Reads the parameters. Answers [`crate::Reply::Params`].
    GetParams(DeviceId),
    /// Reads the device's state. Answers [`crate::Reply::Info`].
    GetDevInfo(DeviceId),
    /// Like [`Command::GetDevInfo`], also for devices of unprivileged users.
    GetDevInfo2(DeviceId),
    /// Reads the driver's features. Answers [`crate::Reply::Features`].
    GetFeatures,
    /// Reads the CPUs of a queue. Answers [`crate::Reply::Affinity`].
    GetQueueAffinity {
        /// The device.
        device: DeviceId,
        /// The queue.
        queue: QueueId,
    },
    /// Begins the recovery of a quiesced device.
    StartUserRecovery(DeviceId),
    /// Ends the recovery. Waits until every tag is fetched again.
    EndUserRecovery {
        /// The device.
        device: DeviceId,
        /// Process id of the new server.
        server_pid: u32,
    },
    /// Changes the size of a live disk (6.16).
    UpdateSize {
        /// The device.
        device: DeviceId,
        /// The new size.
        size: Sectors,
    },
    /// Quiesces the device. **Unsafe up to Linux 7.3.4**; see [`crate::Quirk::QuiesceUnsafe`].
    QuiesceDev {
        /// The device.
        device: DeviceId,
        /// How long the driver waits for an idle tag, in milliseconds; 0 waits for ever.
        timeout_ms: u64,
    },
    /// Registers memory shared with clients (7.1). Answers [`crate::Reply::BufferIndex`].
    RegBuf {
        /// The device.
        device: DeviceId,
        /// Address of the first byte, page-aligned.
        address: u64,
        /// Bytes, a multiple of a page.
        len_bytes: u64,
    },
    /// Unregisters such memory (7.1).
    UnregBuf {
        /// The device.
        device: DeviceId,
        /// Its index.
        index: u16,
    },
}

/// A command laid out for the kernel; the buffer's address is filled in by whoever owns it.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub(crate) opcode: u32,
    pub(crate) header: ublksrv_ctrl_cmd,
    /// The command's buffer: read by the kernel, or filled by it.
    pub(crate) payload: Vec<u8>,
}

impl Command {
    /// Which command it is.
    #[must_use]
    pub const fn kind(&self) -> CommandKind {
        use CommandKind as K;
        match self {
            Self::AddDev(_) => K::AddDev,
            Self::DelDev(_) => K::DelDev,
            Self::DelDevAsync(_) => K::DelDevAsync,
            Self::StartDev { .. } => K::StartDev,
            Self::StopDev(_) => K::StopDev,
            Self::TryStopDev(_) => K::TryStopDev,
            Self::SetParams { .. } => K::SetParams,
            Self::GetParams(_) => K::GetParams,
            Self::GetDevInfo(_) => K::GetDevInfo,
            Self::GetDevInfo2(_) => K::GetDevInfo2,
            Self::GetFeatures => K::GetFeatures,
            Self::GetQueueAffinity { .. } => K::GetQueueAffinity,
            Self::StartUserRecovery(_) => K::StartUserRecovery,
            Self::EndUserRecovery { .. } => K::EndUserRecovery,
            Self::UpdateSize { .. } => K::UpdateSize,
            Self::QuiesceDev { .. } => K::QuiesceDev,
            Self::RegBuf { .. } => K::RegBuf,
            Self::UnregBuf { .. } => K::UnregBuf,
        }
    }

    /// The device it concerns, if one is named.
    #[must_use]
    pub const fn device(&self) -> Option<DeviceId> {
        match self {
            Self::AddDev(new) => new.device,
            Self::GetFeatures => None,
            Self::DelDev(device)
            | Self::DelDevAsync(device)
            | Self::StopDev(device)
            | Self::TryStopDev(device)
            | Self::GetParams(device)
            | Self::GetDevInfo(device)
            | Self::GetDevInfo2(device)
            | Self::StartUserRecovery(device)
            | Self::StartDev { device, .. }
            | Self::SetParams { device, .. }
            | Self::GetQueueAffinity { device, .. }
            | Self::EndUserRecovery { device, .. }
            | Self::UpdateSize { device, .. }
            | Self::QuiesceDev { device, .. }
            | Self::RegBuf { device, .. }
            | Self::UnregBuf { device, .. } => Some(*device),
        }
    }

    /// The 64-bit argument that travels in the header.
    fn argument(&self) -> u64 {
        match self {
            Self::StartDev { server_pid, .. } | Self::EndUserRecovery { server_pid, .. } => {
                u64::from(*server_pid)
            }
            Self::GetQueueAffinity { queue, .. } => u64::from(queue.0),
            Self::UpdateSize { size, .. } => size.0,
            Self::QuiesceDev { timeout_ms, .. } => *timeout_ms,
            Self::UnregBuf { index, .. } => u64::from(*index),
            _ => 0,
        }
    }

    fn payload(&self) -> Vec<u8> {
        match self {
            Self::AddDev(new) => add_dev_payload(new),
            Self::SetParams { params, .. } => params.to_abi().as_bytes().to_vec(),
            Self::GetParams(_) => {
                // The driver wants to know beforehand how much fits.
                let empty = ublk_params {
                    len: PARAMS_BYTES,
                    ..Default::default()
                };
                empty.as_bytes().to_vec()
            }
            Self::GetDevInfo(_) => vec![0; size_of::<ublksrv_ctrl_dev_info>()],
            Self::GetDevInfo2(device) => {
                let mut buffer = char_path(*device);
                buffer.resize(buffer.len() + size_of::<ublksrv_ctrl_dev_info>(), 0);
                buffer
            }
            Self::GetFeatures => vec![0; UBLK_FEATURES_LEN],
            Self::GetQueueAffinity { .. } => vec![0; CPU_MASK_BYTES],
            Self::RegBuf {
                address, len_bytes, ..
            } => ublk_shmem_buf_reg {
                addr: *address,
                len: *len_bytes,
                ..Default::default()
            }
            .as_bytes()
            .to_vec(),
            _ => Vec::new(),
        }
    }

    /// Where the answer begins in the buffer.
    pub(crate) fn answer_at(&self) -> usize {
        match self {
            Self::GetDevInfo2(device) => char_path(*device).len(),
            _ => 0,
        }
    }

    /// Lays the command out for the kernel.
    pub(crate) fn encode(&self) -> Encoded {
        let payload = self.payload();
        Encoded {
            opcode: self.kind().opcode(),
            header: ublksrv_ctrl_cmd {
                dev_id: self.device().map_or(DEV_ID_ANY, |device| device.0),
                queue_id: QUEUE_ID_NONE,
                // Every buffer is shorter than 2 KiB.
                len: u16::try_from(payload.len()).unwrap_or(u16::MAX),
                addr: 0,
                data: [self.argument()],
                dev_path_len: u16::try_from(self.answer_at()).unwrap_or(u16::MAX),
                ..Default::default()
            },
            payload,
        }
    }
}

fn add_dev_payload(new: &NewDevice) -> Vec<u8> {
    ublksrv_ctrl_dev_info {
        nr_hw_queues: new.queues,
        queue_depth: new.depth,
        max_io_buf_bytes: new.max_io_buf_bytes,
        dev_id: new.device.map_or(DEV_ID_ANY, |device| device.0),
        ublksrv_pid: -1,
        flags: new.features.bits(),
        ublksrv_flags: new.owner.into_bits(),
        ..Default::default()
    }
    .as_bytes()
    .to_vec()
}

/// The char device's path with its NUL, as `GET_DEV_INFO2` wants it.
fn char_path(device: DeviceId) -> Vec<u8> {
    format!("/dev/ublkc{device}\0").into_bytes()
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;

    #[test]
    fn adding_names_the_device_in_header_and_buffer_alike() {
        let new = NewDevice {
            device: None,
            queues: 2,
            depth: 64,
            max_io_buf_bytes: 1 << 20,
            features: Features::USER_COPY,
            owner: OwnerStamp::new(1, 2).unwrap(),
        };
        for (device, id) in [(None, u32::MAX), (Some(DeviceId(7)), 7)] {
            let encoded = Command::AddDev(NewDevice { device, ..new }).encode();
            let info = ublksrv_ctrl_dev_info::read_from_bytes(&encoded.payload).unwrap();
            assert_eq!((encoded.header.dev_id, info.dev_id), (id, id));
            assert_eq!(
                (encoded.header.queue_id, encoded.header.len),
                (u16::MAX, 64)
            );
            assert_eq!(
                (info.flags, info.ublksrv_flags),
                (1 << 7, 0xb10c_0000_0100_0002)
            );
        }
    }

    #[test]
    fn arguments_travel_in_the_header() {
        let device = DeviceId(3);
        let start = Command::StartDev {
            device,
            server_pid: 77,
        };
        let resize = Command::UpdateSize {
            device,
            size: Sectors(1 << 40),
        };
        let affinity = Command::GetQueueAffinity {
            device,
            queue: QueueId(5),
        };
        for (command, data) in [(start, 77), (resize, 1 << 40), (affinity, 5)] {
            let encoded = command.encode();
            assert_eq!((encoded.header.dev_id, encoded.header.data), (3, [data]));
            assert_eq!(encoded.opcode, command.kind().opcode());
        }
    }

    #[test]
    fn the_second_form_of_info_carries_the_path_in_front() {
        let command = Command::GetDevInfo2(DeviceId(12));
        let encoded = command.encode();
        assert!(encoded.payload.starts_with(b"/dev/ublkc12\0"));
        assert_eq!(encoded.header.dev_path_len, 13);
        assert_eq!(encoded.header.len, 13 + 64);
        assert_eq!(command.answer_at(), 13);
    }

    #[test]
    fn buffers_have_the_length_the_driver_checks() {
        let device = DeviceId(0);
        let queue = QueueId(0);
        for (command, len) in [
            (Command::GetFeatures, 8),
            (Command::GetDevInfo(device), 64),
            (Command::GetParams(device), 152),
            (Command::GetQueueAffinity { device, queue }, 1024),
            (Command::StopDev(device), 0),
        ] {
            assert_eq!(command.encode().header.len, len, "{}", command.kind());
        }
    }
}
