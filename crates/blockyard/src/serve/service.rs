//! The daemon behind the API: wire types in, the manager's types inside, wire types out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use api::v1::{
    Device, DeviceCounts, DeviceRequest, DeviceState, DeviceStats, FailedRemoval, Failure, Finding,
    Kernel, Limit, Problem, Removal, RemovalReport, Shard, Status, StepInProgress, StopProgress,
    TeardownOrder, Usage,
};
use api::{Creation, Service};
use block::{Access, ByteLen};
use dataplane::CountersSnapshot;
use manager::{
    Answer, CreateParams, CreateRequest, DeviceName, DeviceView, Phase, StatusView, StepFailure,
};

use super::clock;
use super::engine::Engine;
use super::handles::HandleReport;
use super::kernel;
use super::presence::Presence;
use super::problems;
use super::steps::Driver;

/// What requests are answered from.
pub(crate) struct Daemon {
    pub(crate) engine: Engine,
    pub(crate) driver: Arc<Driver>,
    pub(crate) started: Instant,
    /// What was found at start and is not ours to touch.
    pub(crate) findings: Mutex<Vec<Finding>>,
    /// Says to the daemons of other installations that this one lives.
    pub(crate) presence: Presence,
}

impl Daemon {
    fn findings(&self) -> MutexGuard<'_, Vec<Finding>> {
        // Nothing in between can leave it half changed.
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, view: &DeviceView) -> Device {
        let HandleReport {
            figures,
            shards,
            created,
            copy_mode,
            fault,
        } = self.driver.handles.report(view.key);
        let request = view.request.as_deref();
        let fault = || fault.map(while_served);
        Device {
            name: view.name.to_string(),
            spec: request
                .map(|request| request.spec().to_string())
                .unwrap_or_default(),
            state: match view.phase {
                Phase::Creating => DeviceState::Creating,
                Phase::Live => DeviceState::Live,
                Phase::Stopping => DeviceState::Stopping,
                Phase::Quarantined => DeviceState::Quarantined,
            },
            step: view.step.map(|step| step.name().to_owned()),
            path: view.id.map(|id| ublk::block_node(id).display().to_string()),
            link: self.driver.links.path(&view.name).display().to_string(),
            id: view.id.map(|id| id.0),
            size_bytes: view.geometry.map(|geometry| geometry.size.len_bytes().0),
            // An image without an upper is read-only, asked for or not.
            read_only: view
                .geometry
                .map(|geometry| geometry.access)
                .or_else(|| request.map(CreateRequest::access))
                .is_some_and(|access| access == Access::ReadOnly),
            queues: request.map_or(0, CreateRequest::queues),
            depth: request.map_or(0, CreateRequest::depth),
            copy_mode: copy_mode.map(|mode| mode.as_str().to_owned()),
            shards: shards
                .into_iter()
                .filter_map(|shard| u32::try_from(shard).ok())
                .collect(),
            created_at: created.map(|time| humantime::format_rfc3339_seconds(time).to_string()),
            stats: stats(figures),
            failure: view.failures.first().map(failure).or_else(fault),
        }
    }

    /// A device that was removed a moment ago is not found, like one that never was.
    async fn view(&self, name: DeviceName) -> Result<DeviceView, Problem> {
        let wanted = name.clone();
        let view = self
            .engine
            .query(move |manager| manager.device(&wanted))
            .await;
        view.map_err(problems::engine_ended)?
            .ok_or_else(|| problems::not_found(&name))
    }

    fn shards(&self) -> Vec<Shard> {
        self.driver
            .plane
            .gauges()
            .zip(0..)
            .map(|(gauges, index)| Shard {
                index,
                devices: gauges.devices(),
                in_flight: gauges.in_flight(),
                wake_ups: gauges.wake_ups(),
                buffers: Usage {
                    in_use: gauges.buffers_in_use(),
                    limit: gauges.buffers_max(),
                },
                operations: Usage {
                    in_use: gauges.operations_in_kernel(),
                    limit: gauges.operations_max(),
                },
                slots: Usage {
                    in_use: gauges.tags_with_slot(),
                    limit: gauges.slots(),
                },
            })
            .collect()
    }

    fn kernel(&self) -> Kernel {
        let probe = self.driver.kernel.probe();
        Kernel {
            release: probe.release.to_string(),
            features: probe.features.names().map(str::to_owned).collect(),
            teardown_order: match probe.quirks.teardown() {
                ublk::TeardownOrder::StopCloseDelete => TeardownOrder::CloseThenDelete,
                ublk::TeardownOrder::StopDeleteClose => TeardownOrder::DeleteThenClose,
            },
            copy_mode: self.driver.kernel.copy_mode().as_str().into(),
        }
    }

    fn limits(&self, view: &StatusView) -> Vec<Limit> {
        let limit = |name: &str, in_use: usize, limit: usize| Limit {
            name: name.into(),
            in_use: in_use as u64,
            limit: limit as u64,
        };
        let counts = view.devices;
        let devices = counts.creating + counts.live + counts.stopping + counts.quarantined;
        let mut limits = vec![
            limit("devices", devices, view.devices_max),
            limit("stop_concurrency", view.turns_held, view.turns_max),
            limit(
                "control_commands_stuck",
                self.driver.kernel.stuck(),
                ublk::STUCK_MAX,
            ),
        ];
        let probe = self.driver.kernel.probe();
        if let Some(ublks_max) = probe.ublks_max
            // Other kernels count only devices of unprivileged users against it.
            && probe.quirks.has(ublk::Quirk::LimitCountsAllDevices)
        {
            limits.push(limit("kernel_ublks_max", devices, ublks_max as usize));
        }
        limits
    }
}

impl Service for Daemon {
    async fn create(&self, name: String, request: DeviceRequest) -> Result<Creation, Problem> {
        let name: DeviceName = name.parse().map_err(|error| problems::name(&error))?;
        let request = create_request(name.clone(), &request)
            .map_err(|error| problems::request(&name, &error))?;
        let answer = self
            .engine
            .create(request)
            .await
            .map_err(problems::engine_ended)?;
        match answer.map_err(|refusal| problems::refusal(&name, &refusal))? {
            Answer::Created(view) => Ok(Creation::Created(self.device(&view))),
            Answer::Existing(view) => Ok(Creation::Existing(self.device(&view))),
            Answer::Removed { .. } | Answer::RemovedAll(_) => {
                Err(problems::internal("a create was answered as a remove"))
            }
        }
    }

    async fn inspect(&self, name: String) -> Result<Device, Problem> {
        let name = name.parse().map_err(|error| problems::name(&error))?;
        let view = self.view(name).await?;
        Ok(self.device(&view))
    }

    async fn list(&self) -> Result<Vec<Device>, Problem> {
        let views = self
            .engine
            .query(|manager| manager.devices().collect::<Vec<_>>())
            .await
            .map_err(problems::engine_ended)?;
        Ok(views.iter().map(|view| self.device(view)).collect())
    }

    async fn remove(&self, name: String) -> Result<Removal, Problem> {
        let name: DeviceName = name.parse().map_err(|error| problems::name(&error))?;
        let id = self.view(name.clone()).await?.id;
        let began = clock::now();
        let answer = self
            .engine
            .remove(name.clone())
            .await
            .map_err(problems::engine_ended)?;
        answer.map_err(|refusal| problems::refusal(&name, &refusal))?;
        Ok(Removal {
            name: name.to_string(),
            id: id.map(|id| id.0),
            elapsed_ms: millis(clock::now().duration_since(began)),
            failures: Vec::new(),
        })
    }

    async fn remove_stray(&self, id: u32) -> Result<Removal, Problem> {
        let began = clock::now();
        let devices = self.driver.kernel.devices().await;
        let devices = devices.map_err(|fault| problems::survey(&fault))?;
        let mut devices = devices.iter().map(kernel::kernel_device);
        let found = devices.find(|device| device.id.0 == id);
        let found = found.ok_or_else(|| problems::no_kernel_device(id))?;
        if found
            .stamp
            .is_some_and(|stamp| self.presence.is_alive(stamp.instance))
        {
            return Err(problems::stray_of_living(id));
        }
        let answer = self
            .engine
            .remove_stray(found)
            .await
            .map_err(problems::engine_ended)?;
        match answer.map_err(|refusal| problems::refusal_of_stray(id, &refusal))? {
            Answer::Removed { name } => {
                self.findings().retain(|finding| finding.id != id);
                Ok(Removal {
                    name: name.to_string(),
                    id: Some(id),
                    elapsed_ms: millis(clock::now().duration_since(began)),
                    failures: Vec::new(),
                })
            }
            Answer::Created(_) | Answer::Existing(_) | Answer::RemovedAll(_) => Err(
                problems::internal("the removal of a stray was answered as something else"),
            ),
        }
    }

    async fn remove_all(&self) -> Result<RemovalReport, Problem> {
        let answer = self
            .engine
            .remove_all()
            .await
            .map_err(problems::engine_ended)?;
        match answer.map_err(|refusal| problems::refusal_of_all(&refusal))? {
            Answer::RemovedAll(report) => Ok(RemovalReport {
                removed: report.removed.iter().map(ToString::to_string).collect(),
                failed: report.failed.iter().map(failed_removal).collect(),
            }),
            _ => Err(problems::internal(
                "a remove-all was answered as something else",
            )),
        }
    }

    async fn status(&self) -> Result<Status, Problem> {
        let view = self
            .engine
            .query(|manager| manager.status())
            .await
            .map_err(problems::engine_ended)?;
        let now = clock::now();
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: now.duration_since(self.started).as_secs(),
            kernel: self.kernel(),
            shards: self.shards(),
            limits: self.limits(&view),
            devices: DeviceCounts {
                live: view.devices.live as u64,
                creating: view.devices.creating as u64,
                stopping: view.devices.stopping as u64,
                quarantined: view.devices.quarantined as u64,
            },
            shutdown: view.shutdown.map(|progress| StopProgress {
                total: progress.total as u64,
                done: progress.done as u64,
                in_progress: progress
                    .in_progress
                    .iter()
                    .map(|entry| StepInProgress {
                        name: entry.name.to_string(),
                        step: entry.step.name().into(),
                        since_ms: millis(now.saturating_duration_since(entry.since)),
                    })
                    .collect(),
                failed: progress.failed.iter().map(failed_removal).collect(),
            }),
            findings: self.findings().clone(),
        })
    }
}

fn create_request(
    name: DeviceName,
    wire: &DeviceRequest,
) -> Result<CreateRequest, manager::RequestError> {
    CreateRequest::new(CreateParams {
        name,
        spec: wire.spec.parse()?,
        size: wire.size.map(|size| ByteLen(size.0)),
        access: if wire.read_only == Some(true) {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        queues: wire.queues,
        depth: wire.depth,
    })
}

const fn stats(figures: CountersSnapshot) -> DeviceStats {
    DeviceStats {
        reads: figures.reads,
        writes: figures.writes,
        flushes: figures.flushes,
        discards: figures.discards,
        write_zeroes: figures.write_zeroes,
        read_bytes: figures.read_bytes,
        written_bytes: figures.written_bytes,
        zero_copy_bytes: figures.zero_copy_bytes,
        errors: figures.errors,
        in_flight: figures.in_flight,
    }
}

fn failure(failure: &StepFailure) -> Failure {
    Failure {
        step: failure.step.name().into(),
        error: failure.fault.to_string(),
        elapsed_ms: millis(failure.elapsed),
    }
}

/// A device that is live and cannot be served in full any more.
fn while_served(error: String) -> Failure {
    Failure {
        step: "serve".into(),
        error,
        elapsed_ms: 0,
    }
}

fn failed_removal(failure: &manager::Failure) -> FailedRemoval {
    FailedRemoval {
        name: failure.name.to_string(),
        step: failure.first.step.name().into(),
        error: failure.first.fault.to_string(),
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
