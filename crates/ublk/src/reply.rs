//! What a control command answered.

use block::DeviceId;
use zerocopy::FromBytes;

use crate::abi::control::ublksrv_ctrl_dev_info;
use crate::command_kind::CommandKind;
use crate::device::DeviceInfo;
use crate::error::Error;
use crate::features::Features;
use crate::params::DeviceParams;

/// A set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    mask: Vec<u8>,
}

impl CpuSet {
    /// The CPUs in ascending order.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        (0_u32..)
            .zip(&self.mask)
            .flat_map(|(byte, bits)| (0..8).map(move |bit| (byte * 8 + bit, bits >> bit & 1 == 1)))
            .filter_map(|(cpu, is_set)| is_set.then_some(cpu))
    }
}

/// The answer to a control command that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// It is done; there is nothing to tell.
    Done,
    /// The device, as granted or as it is.
    Info(DeviceInfo),
    /// The device's parameters.
    Params(DeviceParams),
    /// The driver's features.
    Features(Features),
    /// The queue's CPUs.
    Affinity(CpuSet),
    /// The index of the registered memory.
    BufferIndex(u16),
}

impl Reply {
    /// Understands what the kernel left in the command's buffer.
    pub(crate) fn parse(
        command: CommandKind,
        device: Option<DeviceId>,
        payload: &[u8],
        result: i32,
    ) -> Result<Self, Error> {
        use CommandKind as C;
        let protocol = |problem: &str| Error::protocol(command, device, problem);
        Ok(match command {
            C::AddDev | C::GetDevInfo | C::GetDevInfo2 => {
                let (raw, _) = ublksrv_ctrl_dev_info::read_from_prefix(payload)
                    .map_err(|_| protocol("the answer is shorter than a device description"))?;
                let info = DeviceInfo::from_abi(&raw);
                if device.is_some_and(|device| device != info.device) {
                    return Err(protocol(&format!(
                        "the answer is about device {}",
                        info.device
                    )));
                }
                Self::Info(info)
            }
            C::GetParams => Self::Params(
                DeviceParams::parse(payload).map_err(|error| protocol(&error.to_string()))?,
            ),
            C::GetFeatures => {
                let (mask, _) = u64::read_from_prefix(payload)
                    .map_err(|_| protocol("the answer is shorter than a feature mask"))?;
                Self::Features(Features::from_bits(mask))
            }
            C::GetQueueAffinity => Self::Affinity(CpuSet {
                mask: payload.to_vec(),
            }),
            C::RegBuf => Self::BufferIndex(
                u16::try_from(result).map_err(|_| protocol("the buffer index is out of range"))?,
            ),
            C::DelDev
            | C::DelDevAsync
            | C::StartDev
            | C::StopDev
            | C::TryStopDev
            | C::SetParams
            | C::StartUserRecovery
            | C::EndUserRecovery
            | C::UpdateSize
            | C::QuiesceDev
            | C::UnregBuf => Self::Done,
        })
    }

    /// The device, if the reply describes one.
    #[must_use]
    pub const fn info(&self) -> Option<&DeviceInfo> {
        match self {
            Self::Info(info) => Some(info),
            _ => None,
        }
    }

    /// The parameters, if the reply carries some.
    #[must_use]
    pub const fn params(&self) -> Option<&DeviceParams> {
        match self {
            Self::Params(params) => Some(params),
            _ => None,
        }
    }

    /// The features, if the reply carries some.
    #[must_use]
    pub const fn features(&self) -> Option<Features> {
        match self {
            Self::Features(features) => Some(*features),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::diagnosis::ErrorKind;

    #[test]
    fn an_answer_about_another_device_is_a_protocol_error() {
        let raw = ublksrv_ctrl_dev_info {
            dev_id: 4,
            ..Default::default()
        };
        let parse = |device| Reply::parse(CommandKind::GetDevInfo, device, raw.as_bytes(), 0);
        assert_eq!(
            parse(Some(DeviceId(4))).unwrap().info().unwrap().device,
            DeviceId(4)
        );
        assert!(parse(None).is_ok());
        let error = parse(Some(DeviceId(5))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }

    #[test]
    fn short_answers_are_protocol_errors() {
        for command in [
            CommandKind::AddDev,
            CommandKind::GetParams,
            CommandKind::GetFeatures,
        ] {
            let error = Reply::parse(command, None, &[0; 7], 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{command}");
        }
    }

    #[test]
    fn cpu_masks_list_their_cpus() {
        let reply = Reply::parse(CommandKind::GetQueueAffinity, None, &[0b101, 0, 0x80], 0);
        let Ok(Reply::Affinity(set)) = reply else {
            unreachable!("affinity answers are sets");
        };
        assert_eq!(set.cpus().collect::<Vec<_>>(), [0, 2, 23]);
    }

    #[test]
    fn a_registered_buffer_has_the_index_of_the_result() {
        assert_eq!(
            Reply::parse(CommandKind::RegBuf, None, &[], 17).unwrap(),
            Reply::BufferIndex(17)
        );
        assert!(Reply::parse(CommandKind::RegBuf, None, &[], 1 << 16).is_err());
    }
}
