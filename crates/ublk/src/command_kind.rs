//! The control commands by name and number, without their arguments.

use std::fmt;

use crate::abi::control::*;

/// A control command of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// Adds a device.
    AddDev,
    /// Deletes a device and waits for its id.
    DelDev,
    /// Deletes a device; its id becomes free later (6.9).
    DelDevAsync,
    /// Makes the disk visible.
    StartDev,
    /// Removes the disk.
    StopDev,
    /// Removes the disk unless it is open (7.0).
    TryStopDev,
    /// Sets parameters.
    SetParams,
    /// Reads parameters.
    GetParams,
    /// Reads a device's state.
    GetDevInfo,
    /// Reads a device's state, also of an unprivileged device.
    GetDevInfo2,
    /// Reads the driver's features.
    GetFeatures,
    /// Reads a queue's CPUs.
    GetQueueAffinity,
    /// Begins a recovery.
    StartUserRecovery,
    /// Ends a recovery.
    EndUserRecovery,
    /// Changes the disk's size (6.16).
    UpdateSize,
    /// Quiesces the device (6.16).
    QuiesceDev,
    /// Registers shared memory (7.1).
    RegBuf,
    /// Unregisters shared memory (7.1).
    UnregBuf,
}

impl CommandKind {
    /// Every command.
    pub const ALL: [Self; 18] = [
        Self::AddDev,
        Self::DelDev,
        Self::DelDevAsync,
        Self::StartDev,
        Self::StopDev,
        Self::TryStopDev,
        Self::SetParams,
        Self::GetParams,
        Self::GetDevInfo,
        Self::GetDevInfo2,
        Self::GetFeatures,
        Self::GetQueueAffinity,
        Self::StartUserRecovery,
        Self::EndUserRecovery,
        Self::UpdateSize,
        Self::QuiesceDev,
        Self::RegBuf,
        Self::UnregBuf,
    ];

    const fn name_and_opcode(self) -> (&'static str, u32) {
        match self {
            Self::AddDev => ("ADD_DEV", UBLK_U_CMD_ADD_DEV),
            Self::DelDev => ("DEL_DEV", UBLK_U_CMD_DEL_DEV),
            Self::DelDevAsync => ("DEL_DEV_ASYNC", UBLK_U_CMD_DEL_DEV_ASYNC),
            Self::StartDev => ("START_DEV", UBLK_U_CMD_START_DEV),
            Self::StopDev => ("STOP_DEV", UBLK_U_CMD_STOP_DEV),
            Self::TryStopDev => ("TRY_STOP_DEV", UBLK_U_CMD_TRY_STOP_DEV),
            Self::SetParams => ("SET_PARAMS", UBLK_U_CMD_SET_PARAMS),
            Self::GetParams => ("GET_PARAMS", UBLK_U_CMD_GET_PARAMS),
            Self::GetDevInfo => ("GET_DEV_INFO", UBLK_U_CMD_GET_DEV_INFO),
            Self::GetDevInfo2 => ("GET_DEV_INFO2", UBLK_U_CMD_GET_DEV_INFO2),
            Self::GetFeatures => ("GET_FEATURES", UBLK_U_CMD_GET_FEATURES),
            Self::GetQueueAffinity => ("GET_QUEUE_AFFINITY", UBLK_U_CMD_GET_QUEUE_AFFINITY),
            Self::StartUserRecovery => ("START_USER_RECOVERY", UBLK_U_CMD_START_USER_RECOVERY),
            Self::EndUserRecovery => ("END_USER_RECOVERY", UBLK_U_CMD_END_USER_RECOVERY),
            Self::UpdateSize => ("UPDATE_SIZE", UBLK_U_CMD_UPDATE_SIZE),
            Self::QuiesceDev => ("QUIESCE_DEV", UBLK_U_CMD_QUIESCE_DEV),
            Self::RegBuf => ("REG_BUF", UBLK_U_CMD_REG_BUF),
            Self::UnregBuf => ("UNREG_BUF", UBLK_U_CMD_UNREG_BUF),
        }
    }

    /// The kernel's name, without its prefix.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name_and_opcode().0
    }

    /// The kernel's number, as it goes into a submission.
    #[must_use]
    pub const fn opcode(self) -> u32 {
        self.name_and_opcode().1
    }
}

impl fmt::Display for CommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_opcodes_are_distinct() {
        let names: HashSet<_> = CommandKind::ALL.iter().map(|kind| kind.name()).collect();
        let opcodes: HashSet<_> = CommandKind::ALL.iter().map(|kind| kind.opcode()).collect();
        assert_eq!((names.len(), opcodes.len()), (18, 18));
    }
}
