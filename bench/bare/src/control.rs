//! Control commands, each phase for all devices at once.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use block::{Access, DeviceId, Geometry, Sectors, Zeroing};
use ublk::{
    Command, ControlLimits, ControlRing, DeviceParams, ErrorKind, Features, NewDevice, OwnerStamp,
    Probe, Quirks, Reply, TransferLimits,
};

use crate::clock;
use crate::server::DEPTH;

/// Much longer than any command takes.
const DEADLINE: Duration = Duration::from_secs(300);
const SIZE: Sectors = Sectors(8 << 21);
const MAX_IO_BYTES: u32 = 1 << 20;

/// The control ring with what was found out about the kernel.
pub(crate) struct Control {
    ring: ControlRing,
    probe: Probe,
}

impl Control {
    pub(crate) fn open() -> Result<Self> {
        let limits = ControlLimits {
            in_flight_max: 250,
            workers_max: 64,
            ..ControlLimits::default()
        };
        let ring = ControlRing::open(Path::new(ublk::CONTROL_NODE), limits)?;
        let probe = ublk::probe(&ring)?;
        Ok(Self { ring, probe })
    }

    pub(crate) const fn quirks(&self) -> Quirks {
        self.probe.quirks
    }

    /// Adds devices and sets their parameters.
    pub(crate) fn add(&self, count: u32, features: Features) -> Result<Vec<DeviceId>> {
        let features = if self.probe.features.contains(Features::NO_PART_SCAN) {
            features | Features::NO_PART_SCAN
        } else {
            features
        };
        let commands = (1..=count)
            .map(|serial| {
                let owner = OwnerStamp::new(1, serial).context("too many devices")?;
                Ok(Command::AddDev(NewDevice {
                    device: None,
                    queues: 1,
                    depth: DEPTH,
                    max_io_buf_bytes: MAX_IO_BYTES,
                    features,
                    owner,
                }))
            })
            .collect::<Result<Vec<_>>>()?;
        let replies = self.run_all(commands)?;
        let ids: Vec<DeviceId> = replies
            .iter()
            .map(|reply| reply.info().map(|info| info.device))
            .collect::<Option<_>>()
            .context("ADD_DEV answered without a number")?;
        let params = null_params()?;
        self.run_all(
            ids.iter()
                .map(|device| Command::SetParams {
                    device: *device,
                    params,
                })
                .collect(),
        )?;
        Ok(ids)
    }

    /// Makes the disks visible; waits until every tag is fetched.
    pub(crate) fn start(&self, ids: &[DeviceId]) -> Result<()> {
        let start = |device: &DeviceId| Command::StartDev {
            device: *device,
            server_pid: std::process::id(),
        };
        self.run_all(ids.iter().map(start).collect()).map(drop)
    }

    pub(crate) fn stop(&self, ids: &[DeviceId]) -> Result<()> {
        let commands = ids.iter().copied().map(Command::StopDev);
        self.run_all(commands.collect()).map(drop)
    }

    pub(crate) fn delete(&self, ids: &[DeviceId]) -> Result<()> {
        let commands = ids.iter().copied().map(Command::DelDevAsync);
        self.run_all(commands.collect()).map(drop)
    }

    /// Waits until the kernel has freed every number.
    pub(crate) fn await_gone(&self, ids: &[DeviceId]) -> Result<()> {
        for id in ids {
            loop {
                match self.ring.call(Command::GetDevInfo(*id), DEADLINE) {
                    Ok(_) => clock::pause(),
                    Err(error) if error.kind() == ErrorKind::NotFound => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Runs commands side by side, as many as the ring takes; answers in their order.
    fn run_all(&self, commands: Vec<Command>) -> Result<Vec<Reply>> {
        let (sender, receiver) = mpsc::channel();
        for (index, command) in commands.into_iter().enumerate() {
            let sender = sender.clone();
            // The receiver is there until all have answered, or an earlier one failed and nobody listens.
            let done = move |outcome| drop(sender.send((index, outcome)));
            self.ring.submit(command, DEADLINE, Box::new(done));
        }
        drop(sender);
        let mut replies: Vec<(usize, Reply)> = receiver
            .into_iter()
            .map(|(index, outcome)| Ok((index, outcome?)))
            .collect::<Result<_, ublk::Error>>()?;
        replies.sort_by_key(|(index, _)| *index);
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }
}

fn null_params() -> Result<DeviceParams> {
    let geometry = Geometry {
        size: SIZE,
        access: Access::ReadWrite,
        logical_block_shift: 9,
        physical_block_shift: 12,
        volatile_cache: false,
        zeroing: Zeroing::Unsupported,
    };
    let limits = TransferLimits {
        max_sectors: MAX_IO_BYTES >> block::SECTOR_SHIFT,
        max_io_buf_bytes: MAX_IO_BYTES,
    };
    Ok(DeviceParams::for_geometry(&geometry, limits)?)
}
