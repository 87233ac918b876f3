//! The kernel as the control plane sees it: control commands awaited, each with a deadline of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use block::DeviceId;
use dataplane::CopyMode;
use manager::{Fault, FaultKind, Instance, KernelDevice, KernelState, Serial, Stamp};
use tokio::sync::oneshot;
use ublk::{
    Command, ControlRing, DeviceInfo, DeviceParams, DeviceState, ErrorKind, NewDevice, Probe, Reply,
};

use super::clock;

/// The control ring and what was found out about the kernel, once, at start.
#[derive(Clone)]
pub(crate) struct Kernel {
    ring: ControlRing,
    probe: Probe,
}

impl Kernel {
    pub(crate) const fn new(ring: ControlRing, probe: Probe) -> Self {
        Self { ring, probe }
    }

    pub(crate) const fn probe(&self) -> &Probe {
        &self.probe
    }

    /// The best way that the data of a device can travel on this kernel.
    pub(crate) fn copy_mode(&self) -> CopyMode {
        CopyMode::best(&self.probe)
    }

    /// Control commands that the kernel does not give back.
    pub(crate) fn stuck(&self) -> usize {
        self.ring.stuck()
    }

    /// Runs a control command. Ends at the deadline, whatever the kernel does.
    pub(crate) async fn command(
        &self,
        command: Command,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        self.submit(command, deadline)
            .await?
            .map_err(|error| fault(&error))
    }

    /// Adds a device and sets its parameters. The second command follows the first on the control thread, without a way
    /// through this task. A device that was added before something failed is named in the fault.
    pub(crate) async fn add(
        &self,
        device: NewDevice,
        params: DeviceParams,
        deadline: Instant,
    ) -> Result<DeviceInfo, Fault> {
        let (sender, receiver) = oneshot::channel();
        let ring = self.ring.clone();
        let on_added = move |added: Result<Reply, ublk::Error>| {
            let info = match added.map(|reply| reply.info().copied()) {
                Ok(Some(info)) => info,
                // The receiver is gone only when this step was given up: here and below nobody wants the answer then.
                Ok(None) => return drop(sender.send(Err(nameless()))),
                Err(error) => return drop(sender.send(Err(fault(&error)))),
            };
            let id = info.device;
            let on_set = move |set: Result<Reply, ublk::Error>| {
                let set = set.map(|_| info);
                drop(sender.send(set.map_err(|error| fault(&error).leaving(id))));
            };
            let command = Command::SetParams { device: id, params };
            ring.submit(command, left(deadline), Box::new(on_set));
        };
        self.ring
            .submit(Command::AddDev(device), left(deadline), Box::new(on_added));
        receiver.await.map_err(|_| ring_ended())?
    }

    /// Deletes a device, without waiting for its last holder where the kernel can. Deleted already is deleted.
    pub(crate) async fn delete(&self, id: DeviceId, deadline: Instant) -> Result<(), Fault> {
        let command = if self.probe.quirks.has_async_delete() {
            Command::DelDevAsync(id)
        } else {
            Command::DelDev(id)
        };
        self.end(command, deadline).await
    }

    /// Stops a device. One that is gone is stopped.
    pub(crate) async fn stop(&self, id: DeviceId, deadline: Instant) -> Result<(), Fault> {
        self.end(Command::StopDev(id), deadline).await
    }

    /// Runs a command whose purpose is reached when there is no such device.
    async fn end(&self, command: Command, deadline: Instant) -> Result<(), Fault> {
        match self.submit(command, deadline).await? {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result.map(drop).map_err(|error| fault(&error)),
        }
    }

    /// What the kernel has under a number now; `None` when the number is free.
    pub(crate) async fn info(
        &self,
        id: DeviceId,
        deadline: Instant,
    ) -> Result<Option<DeviceInfo>, Fault> {
        match self.submit(Command::GetDevInfo(id), deadline).await? {
            Ok(reply) => Ok(reply.info().copied()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Every ublk device of the host that can be looked at, ours or not.
    pub(crate) async fn devices(&self) -> Result<Vec<DeviceInfo>, Fault> {
        let ring = self.ring.clone();
        let survey = tokio::task::spawn_blocking(move || {
            ublk::survey_devices(&ring, Path::new(ublk::SYSFS_CLASS), SURVEY_DEADLINE)
        });
        let surveyed = survey
            .await
            .map_err(|error| Fault::new(FaultKind::Panicked, error.to_string()))?
            .map_err(|error| fault(&error))?;
        let mut devices = Vec::with_capacity(surveyed.len());
        for ublk::Surveyed { device, info } in surveyed {
            match info {
                Ok(info) => devices.push(info),
                // One of another user that says nothing to us is not ours.
                Err(error) => {
                    tracing::warn!(id = device.0, err = %error, "a ublk device cannot be looked at")
                }
            }
        }
        Ok(devices)
    }

    async fn submit(
        &self,
        command: Command,
        deadline: Instant,
    ) -> Result<Result<Reply, ublk::Error>, Fault> {
        let (sender, receiver) = oneshot::channel();
        // The receiver is gone only when this step was given up: nobody wants the answer then.
        self.ring.submit(
            command,
            left(deadline),
            Box::new(move |result| drop(sender.send(result))),
        );
        receiver.await.map_err(|_| ring_ended())
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(clock::now())
}

fn ring_ended() -> Fault {
    Fault::new(FaultKind::Internal, "the control ring has ended")
}

fn nameless() -> Fault {
    Fault::new(
        FaultKind::Internal,
        "ADD_DEV answered without the device's number",
    )
}

/// A device as the manager sees it. A server of another process is alive if that process is.
pub(crate) fn kernel_device(info: &DeviceInfo) -> KernelDevice {
    KernelDevice {
        id: info.device,
        stamp: info.owner.and_then(|stamp| {
            let instance = Instance::new(stamp.instance())?;
            let serial = Serial::new(stamp.serial())?;
            Some(Stamp { instance, serial })
        }),
        state: match info.state {
            DeviceState::Dead => KernelState::Dead,
            DeviceState::Live => KernelState::Live,
            DeviceState::Quiesced => KernelState::Quiesced,
            DeviceState::FailIo => KernelState::FailIo,
            DeviceState::Unknown(_) => KernelState::Live,
        },
        // A state that this version does not know is somebody's business: never touched.
        server_alive: matches!(info.state, DeviceState::Unknown(_))
            || info.server_pid.is_some_and(is_alive),
    }
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// The manager's view of a failed control command.
pub(crate) fn fault(error: &ublk::Error) -> Fault {
    let kind = match error.kind() {
        ErrorKind::Missing | ErrorKind::Unsupported => FaultKind::Unsupported,
        ErrorKind::Permission => FaultKind::Permission,
        ErrorKind::Busy | ErrorKind::Exists => FaultKind::InUse,
        ErrorKind::LimitReached => FaultKind::LimitReached,
        ErrorKind::DeadlineExceeded => FaultKind::DeadlineExceeded,
        ErrorKind::Stuck => FaultKind::Stuck,
        _ => FaultKind::Io,
    };
    Fault::new(kind, error.to_string())
}

/// Time for each question about an existing device.
const SURVEY_DEADLINE: Duration = Duration::from_secs(5);
