//! Carrying out the manager's steps: one asynchronous function per command, no decisions.
//!
//! ```text
//!   create   open -> add -> attach -> start -> publish
//!   stop     unpublish -> drain (or abandon) -> stop -> release / delete -> await_gone -> close
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{DeviceId, Geometry, QueueId};
use dataplane::{CopyMode, Counters, Dataplane, Part, QueueShape, Released, UblkQueue};
use image::serving::Workspace;
use manager::{
    Command, CreateRequest, DeviceKey, DeviceName, Fault, FaultKind, Instance, Output, Stamp,
    StepOrder,
};
use reactor::RingFile;
use tokio::sync::{Semaphore, oneshot};
use ublk::{CharDevice, DeviceParams, Features, NewDevice, OwnerStamp, TransferLimits};

use super::backing::{Backing, Shared};
use super::clock;
use super::handles::{HandleTable, Handles};
use super::kernel::Kernel;
use super::links::Links;

/// The most data of one request. Larger requests gain nothing: the copy dominates.
pub(crate) const MAX_IO_BYTES: u32 = 1 << 20;
/// First and longest pause between two looks at whether the kernel has let go of a device. The longest one keeps 2,000
/// devices that somebody holds open at 8,000 looks a second.
const GONE_PAUSE_MIN: Duration = Duration::from_millis(2);
const GONE_PAUSE_MAX: Duration = Duration::from_millis(250);

/// Everything that steps work on.
pub(crate) struct Driver {
    /// Which installation this is.
    pub(crate) instance: Instance,
    pub(crate) kernel: Kernel,
    pub(crate) plane: Dataplane,
    pub(crate) links: Links,
    pub(crate) handles: HandleTable,
    /// How many files may be opened at once.
    pub(crate) opens: Arc<Semaphore>,
    /// What backing stores share.
    pub(crate) shared: Arc<Shared>,
    /// Of each shard, what its images share.
    pub(crate) workspaces: Vec<Workspace>,
}

impl Driver {
    /// Carries out a step. Returns its answer, at the deadline at the latest as far as the kernel and the file
    /// systems allow.
    pub(crate) async fn run(self: &Arc<Self>, order: &StepOrder) -> Result<Output, Fault> {
        let key = order.ticket.device;
        match &order.command {
            Command::Open { request } => self.open(key, request).await,
            Command::Add {
                stamp,
                request,
                geometry,
            } => self.add(order, *stamp, request, *geometry).await,
            Command::Attach { id, request, .. } => self.attach(key, *id, request).await,
            Command::Start { id } => {
                let command = ublk::Command::StartDev {
                    device: *id,
                    server_pid: std::process::id(),
                };
                self.kernel
                    .command(command, order.deadline)
                    .await
                    .map(|_| Output::Done)
            }
            Command::Publish { id } => self.publish(order, *id).await,
            Command::Unpublish => self.unpublish(order).await,
            Command::Find { stamp } => self.find(*stamp).await,
            Command::Drain => self.drain(key).await,
            Command::Abandon => self.abandon(key, &order.name).await,
            Command::Stop { id } => self.stop(*id, order.deadline).await,
            Command::Release => self.release(key).await,
            Command::Delete { id } => self
                .kernel
                .delete(*id, order.deadline)
                .await
                .map(|()| Output::Done),
            Command::AwaitGone { id, stamp } => self.await_gone(*id, *stamp, order.deadline).await,
            Command::Close => self.close(key).await,
        }
    }

    async fn open(
        self: &Arc<Self>,
        key: DeviceKey,
        request: &Arc<CreateRequest>,
    ) -> Result<Output, Fault> {
        let (request, name) = (Arc::clone(request), request.name().clone());
        let shared = Arc::clone(&self.shared);
        let permit = Arc::clone(&self.opens).acquire_owned().await;
        let backing = blocking(move || {
            // For as long as the call takes, also when nobody waits for it any more.
            let _permit = permit;
            Backing::open(&request, &shared)
        })
        .await??;
        let geometry = backing.geometry();
        self.handles.with(key, |handles| {
            handles.name = Some(name);
            handles.backing = Some(Arc::new(backing));
        });
        Ok(Output::Opened { geometry })
    }

    async fn add(
        &self,
        order: &StepOrder,
        stamp: Stamp,
        request: &CreateRequest,
        geometry: Geometry,
    ) -> Result<Output, Fault> {
        let key = order.ticket.device;
        let owner =
            OwnerStamp::new(stamp.instance.number(), stamp.serial.number()).ok_or_else(|| {
                Fault::new(
                    FaultKind::Io,
                    "the owner stamp does not fit the kernel's field",
                )
            })?;
        let limits = TransferLimits {
            max_sectors: MAX_IO_BYTES >> block::SECTOR_SHIFT,
            max_io_buf_bytes: MAX_IO_BYTES,
        };
        let params = DeviceParams::for_geometry(&geometry, limits)
            .map_err(|error| Fault::new(FaultKind::SizeInvalid, error.to_string()))?;
        let device = NewDevice {
            device: None,
            queues: request.queues(),
            depth: request.depth(),
            max_io_buf_bytes: MAX_IO_BYTES,
            features: self.wanted_features(key),
            owner,
        };
        let info = self.kernel.add(device, params, order.deadline).await?;
        let id = info.device;
        self.handles.with(key, |handles| {
            handles.copy_mode = Some(CopyMode::of(info.features));
        });
        if info.queues != request.queues() {
            let text = format!(
                "{} queues were asked for and this kernel gives {}, one per CPU; ask for at most that many",
                request.queues(),
                info.queues
            );
            return Err(Fault::new(FaultKind::LimitReached, text).leaving(id));
        }
        Ok(Output::Added { id })
    }

    /// User copy always; recovery always, so that a later daemon can adopt the device. Where the kernel can: zero copy for a device
    /// that profits, and no partition scan, because a tenant's partition table is nothing for the host to parse.
    fn wanted_features(&self, key: DeviceKey) -> Features {
        let always =
            Features::USER_COPY | Features::USER_RECOVERY | Features::USER_RECOVERY_REISSUE;
        let backing = self.handles.with(key, |handles| handles.backing.clone());
        let profits = backing.is_some_and(|backing| backing.profits_from_zero_copy());
        let zero_copy = match self.kernel.copy_mode() {
            CopyMode::ZeroCopy if profits => Features::AUTO_BUF_REG,
            CopyMode::ZeroCopy | CopyMode::UserCopy => Features::NONE,
        };
        let no_scan = self.kernel.probe().features & Features::NO_PART_SCAN;
        always | zero_copy | no_scan
    }

    async fn attach(
        self: &Arc<Self>,
        key: DeviceKey,
        id: DeviceId,
        request: &CreateRequest,
    ) -> Result<Output, Fault> {
        let (backing, copy_mode) = self
            .handles
            .with(key, |handles| (handles.backing.clone(), handles.copy_mode));
        let (Some(backing), Some(copy_mode)) = (backing, copy_mode) else {
            return Err(Fault::new(
                FaultKind::Internal,
                "a device is attached without being open and added",
            ));
        };
        // On the spot: the driver's open sets one bit and waits for nothing.
        let node =
            CharDevice::open(&ublk::char_node(id)).map_err(|error| super::kernel::fault(&error))?;
        let device = Arc::new(node);
        let placement = Arc::new(self.plane.place(request.queues(), backing.spread()));
        self.handles.with(key, |handles| {
            handles.placement = Some(Arc::clone(&placement))
        });
        let shape = QueueShape {
            depth: request.depth(),
            desc_bytes: ublk::abi::io::IO_DESC_BYTES,
            copy_mode,
        };
        let mut answers = Vec::new();
        for (shard, queues) in placement.parts() {
            let workspace = self.workspaces.get(*shard).ok_or_else(shard_ended)?;
            let (target, files) = backing.instance(workspace)?;
            let counters = Arc::new(Counters::default());
            let queues = map_queues(&device, queues, shape)?;
            self.handles.with(key, |handles| {
                handles.attached.push(*shard);
                handles.counters.push(Arc::clone(&counters));
            });
            let (sender, answer) = oneshot::channel();
            let part = Part {
                queues,
                target,
                files,
                counters,
            };
            self.plane
                .attach(*shard, data_key(key), part, answer_to(sender));
            answers.push(answer);
        }
        for answer in answers {
            if !answer.await.unwrap_or(false) {
                return Err(Fault::new(
                    FaultKind::LimitReached,
                    "a shard has no room for another device; raise --shards",
                ));
            }
        }
        Ok(Output::Done)
    }

    /// On the spot: `/dev` is in memory, and a hop to another thread costs more than the three calls.
    async fn publish(&self, order: &StepOrder, id: DeviceId) -> Result<Output, Fault> {
        if self.is_link_of_others(order).await? {
            let link = self.links.path(&order.name);
            let text = format!(
                "{} points at a device of another daemon; choose another name",
                link.display()
            );
            return Err(Fault::new(FaultKind::InUse, text));
        }
        self.links
            .publish(&order.name, id)
            .map_err(|error| link_fault("made", &error))?;
        let backing = self.handles.with(order.ticket.device, |handles| {
            handles.published = Some(id);
            handles.created = Some(clock::wall());
            handles.backing.clone()
        });
        if let Some(backing) = backing {
            backing.report_live();
        }
        Ok(Output::Done)
    }

    async fn unpublish(&self, order: &StepOrder) -> Result<Output, Fault> {
        if self.is_link_of_others(order).await? {
            return Ok(Output::Done);
        }
        self.links
            .unpublish(&order.name)
            .map_err(|error| link_fault("removed", &error))?;
        Ok(Output::Done)
    }

    /// Whether the name's link points at a living device that is not of this installation.
    async fn is_link_of_others(&self, order: &StepOrder) -> Result<bool, Fault> {
        let Some(target) = self.links.target(&order.name) else {
            return Ok(false);
        };
        let published = self
            .handles
            .peek(order.ticket.device, |handles| handles.published)
            .flatten();
        if published == Some(target) {
            return Ok(false);
        }
        let info = self.kernel.info(target, order.deadline).await?;
        let stamp = info.map(|info| super::kernel::kernel_device(&info).stamp);
        Ok(stamp.is_some_and(|stamp| stamp.map(|stamp| stamp.instance) != Some(self.instance)))
    }

    async fn find(&self, stamp: Stamp) -> Result<Output, Fault> {
        let devices = self.kernel.devices().await?;
        let found = devices
            .iter()
            .map(super::kernel::kernel_device)
            .find(|device| device.stamp == Some(stamp));
        Ok(Output::Found {
            id: found.map(|device| device.id),
        })
    }

    async fn drain(&self, key: DeviceKey) -> Result<Output, Fault> {
        let mut answers = Vec::new();
        for shard in self.attached(key) {
            let (sender, answer) = oneshot::channel();
            self.plane.drain(shard, data_key(key), answer_to(sender));
            answers.push(answer);
        }
        for answer in answers {
            answer.await.map_err(|_| shard_ended())?;
        }
        Ok(Output::Done)
    }

    async fn abandon(&self, key: DeviceKey, name: &DeviceName) -> Result<Output, Fault> {
        let mut failed = 0;
        for shard in self.attached(key) {
            let (sender, answer) = oneshot::channel();
            self.plane.abandon(shard, data_key(key), answer_to(sender));
            failed += answer.await.map_err(|_| shard_ended())?;
        }
        if failed > 0 {
            tracing::warn!(device = %name, requests = failed, "requests in flight were answered with an error");
        }
        Ok(Output::Done)
    }

    /// A device that is not there is stopped.
    async fn stop(&self, id: DeviceId, deadline: Instant) -> Result<Output, Fault> {
        self.kernel.stop(id, deadline).await.map(|()| Output::Done)
    }

    async fn release(self: &Arc<Self>, key: DeviceKey) -> Result<Output, Fault> {
        let mut answers = Vec::new();
        for shard in self.attached(key) {
            let (sender, answer) = oneshot::channel();
            // When nobody waits any more the resources are dropped on the shard's thread, late but not lost.
            self.plane.release(shard, data_key(key), answer_to(sender));
            answers.push(answer);
        }
        for answer in answers {
            let released = answer.await.map_err(|_| shard_ended())?;
            let name = self
                .handles
                .peek(key, |handles| handles.name.clone())
                .flatten();
            // Both may wait: the target for its files, closing the char device for the kernel.
            blocking(move || close_target(released, name.as_ref())).await?;
        }
        self.handles.with(key, |handles| {
            handles.attached.clear();
            handles.counters.clear();
            handles.placement = None;
        });
        Ok(Output::Done)
    }

    /// No event tells when the number of a deleted device is free, so this looks, less and less often. Another device may
    /// get the number at once: the stamp tells.
    async fn await_gone(
        &self,
        id: DeviceId,
        stamp: Stamp,
        deadline: Instant,
    ) -> Result<Output, Fault> {
        let mut pause = GONE_PAUSE_MIN;
        loop {
            let info = self.kernel.info(id, deadline).await?;
            if info.is_none_or(|info| super::kernel::kernel_device(&info).stamp != Some(stamp)) {
                return Ok(Output::Done);
            }
            if clock::now() + pause >= deadline {
                let text = format!(
                    "device {id} is stopped and something still holds it; look for it with `findmnt -S {}` and unmount it",
                    ublk::block_node(id).display()
                );
                return Err(Fault::new(FaultKind::DeadlineExceeded, text));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(GONE_PAUSE_MAX);
        }
    }

    async fn close(self: &Arc<Self>, key: DeviceKey) -> Result<Output, Fault> {
        let handles = self.handles.remove(key);
        blocking(move || handles.map(close_backing)).await?;
        Ok(Output::Done)
    }

    fn attached(&self, key: DeviceKey) -> Vec<usize> {
        self.handles.with(key, |handles| handles.attached.clone())
    }
}

/// Lets a target write what it still holds, and closes the files of a shard's part of a device.
fn close_target(released: Option<Released<UblkQueue, RingFile>>, name: Option<&DeviceName>) {
    let Some(mut released) = released else { return };
    if let Err(error) = released.target.close() {
        let name = name.map(ToString::to_string);
        tracing::error!(device = name, err = %error, "what a device held in memory could not be written; writes since its last flush are lost");
    }
}

/// Closes what a device stands on; of one that never lived, its file is as long as before.
fn close_backing(handles: Handles) {
    let Some(backing) = handles.backing.filter(|_| handles.created.is_none()) else {
        return;
    };
    if let Err(error) = backing.undo() {
        let name = handles.name.map(|name| name.to_string());
        tracing::warn!(device = name, err = %error, "the file that was extended for a device that was not created stays so");
    }
}

fn map_queues(
    device: &Arc<CharDevice>,
    queues: &[QueueId],
    shape: QueueShape,
) -> Result<Vec<UblkQueue>, Fault> {
    queues
        .iter()
        .map(|queue| UblkQueue::map(Arc::clone(device), *queue, shape))
        .collect::<Result<_, _>>()
        .map_err(|error| super::kernel::fault(&error))
}

fn link_fault(what: &str, error: &std::io::Error) -> Fault {
    Fault::new(
        FaultKind::Io,
        format!("the link of the device cannot be {what}: {error}"),
    )
}

fn shard_ended() -> Fault {
    Fault::new(FaultKind::Io, "the shard of the device has ended")
}

/// A shard's callback that passes its answer on. Nobody waits any more when the step was given up.
fn answer_to<T: Send + 'static>(sender: oneshot::Sender<T>) -> Box<dyn FnOnce(T) + Send> {
    Box::new(move |answer| {
        let _ = sender.send(answer); // as said above
    })
}

const fn data_key(key: DeviceKey) -> dataplane::DeviceKey {
    dataplane::DeviceKey(key.0)
}

/// Runs what may block on a thread made for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Fault::new(
            FaultKind::Panicked,
            format!("a blocking step panicked: {error}"),
        )
    })
}
