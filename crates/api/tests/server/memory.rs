//! A service that keeps devices in memory. Some names make it fail, panic or wait; see [`Memory`].

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use api::v1::{
    ByteSize, Code, Device, DeviceCounts, DeviceRequest, DeviceState, DeviceStats, FailedRemoval,
    Failure, Finding, Kernel, Problem, Removal, RemovalReport, Shard, Status, StopProgress,
    TeardownOrder, Usage,
};
use api::{Creation, Service};
use tokio::sync::Semaphore;

/// Devices in memory.
///
/// Names that begin with `gate` wait for a permit of the gate when they are created or inspected; `panic` panics;
/// removing `stuck` fails, and removing `abandoned` succeeds with a failed step.
pub(crate) struct Memory {
    devices: Mutex<BTreeMap<String, (DeviceRequest, Device)>>,
    pub(crate) gate: Semaphore,
    /// Requests that have come to the gate.
    pub(crate) at_gate: AtomicU64,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            devices: Mutex::default(),
            gate: Semaphore::new(0),
            at_gate: AtomicU64::new(0),
        }
    }

    async fn pass_gate(&self, name: &str) {
        assert_ne!(name, "panic", "asked to panic");
        if name.starts_with("gate") {
            self.at_gate.fetch_add(1, Ordering::Relaxed);
            self.gate.acquire().await.unwrap().forget();
        }
    }

    fn remove_now(&self, name: &str) -> Result<Removal, Problem> {
        if name == "stuck" {
            let detail = "device stuck: step delete failed: no answer within 30 s";
            return Err(Problem::new(Code::StopFailed, detail, "look at the log").about(name));
        }
        let (_, device) = self
            .devices
            .lock()
            .unwrap()
            .remove(name)
            .ok_or_else(|| not_found(name))?;
        let abandoned = Failure {
            step: "drain".to_owned(),
            error: "I/O did not end in time".to_owned(),
            elapsed_ms: 30_000,
        };
        Ok(Removal {
            name: name.to_owned(),
            id: device.id,
            elapsed_ms: 3,
            failures: if name == "abandoned" {
                vec![abandoned]
            } else {
                Vec::new()
            },
        })
    }
}

fn not_found(name: &str) -> Problem {
    Problem::new(
        Code::NotFound,
        format!("there is no device {name:?}"),
        "see blockyard list",
    )
    .about(name)
}

fn check(name: &str, request: &DeviceRequest) -> Result<(), Problem> {
    let spec = request.spec.as_str();
    let problem = |code, detail: &str, object: &str| {
        Err(Problem::new(code, detail, "change it").about(object))
    };
    if name.len() > 63
        || !name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    {
        return problem(Code::InvalidName, "not a device name", name);
    }
    match spec {
        "raw:/missing" => problem(Code::SourceNotFound, "no such file", spec),
        "raw:/denied" => problem(Code::SourceDenied, "permission denied", spec),
        "raw:/used" => problem(Code::SourceInUse, "the file is in use", spec),
        "raw:/full" => problem(Code::NoSpace, "no space left", spec),
        "raw:/old" => problem(Code::UblkMissing, "no ublk in the kernel", spec),
        _ if !spec.starts_with("raw:/") && !spec.starts_with("null:") => {
            problem(Code::UnknownSpec, "unknown spec", spec)
        }
        _ if request.size == Some(ByteSize(0)) => problem(Code::InvalidSize, "size is 0", name),
        _ => Ok(()),
    }
}

fn device(name: &str, request: &DeviceRequest, id: u32) -> Device {
    Device {
        name: name.to_owned(),
        spec: request.spec.clone(),
        state: DeviceState::Live,
        step: None,
        path: Some(format!("/dev/ublkb{id}")),
        link: format!("/dev/blockyard/{name}"),
        id: Some(id),
        size_bytes: Some(request.size.map_or(1 << 20, |size| size.0)),
        read_only: request.read_only.unwrap_or(false),
        queues: request.queues.unwrap_or(1),
        depth: request.depth.unwrap_or(64),
        copy_mode: Some("user-copy".to_owned()),
        shards: vec![0],
        created_at: Some("2031-01-02T03:04:05Z".to_owned()),
        stats: DeviceStats {
            reads: 5,
            ..DeviceStats::default()
        },
        failure: None,
    }
}

impl Service for Memory {
    async fn create(&self, name: String, request: DeviceRequest) -> Result<Creation, Problem> {
        check(&name, &request)?;
        self.pass_gate(&name).await;
        let mut devices = self.devices.lock().unwrap();
        if let Some((before, device)) = devices.get(&name) {
            return if *before == request {
                Ok(Creation::Existing(device.clone()))
            } else {
                let detail = format!("device {name:?} exists and has another spec");
                Err(Problem::new(Code::NameTaken, detail, "remove it first").about(name))
            };
        }
        let id = u32::try_from(devices.len()).unwrap();
        let device = device(&name, &request, id);
        devices.insert(name, (request, device.clone()));
        Ok(Creation::Created(device))
    }

    async fn inspect(&self, name: String) -> Result<Device, Problem> {
        self.pass_gate(&name).await;
        let devices = self.devices.lock().unwrap();
        devices
            .get(&name)
            .map(|(_, device)| device.clone())
            .ok_or_else(|| not_found(&name))
    }

    async fn list(&self) -> Result<Vec<Device>, Problem> {
        // Not sorted by name: sorting is the server's part.
        Ok(self
            .devices
            .lock()
            .unwrap()
            .values()
            .rev()
            .map(|(_, device)| device.clone())
            .collect())
    }

    async fn remove_stray(&self, id: u32) -> Result<Removal, Problem> {
        if id == 7 {
            return Ok(Removal {
                name: "stray-1-2".to_owned(),
                id: Some(id),
                elapsed_ms: 0,
                failures: Vec::new(),
            });
        }
        let text = format!("the kernel has no ublk device {id}");
        Err(Problem::new(Code::NotFound, text, "see the findings").about(id.to_string()))
    }

    async fn remove(&self, name: String) -> Result<Removal, Problem> {
        self.remove_now(&name)
    }

    async fn remove_all(&self) -> Result<RemovalReport, Problem> {
        let names: Vec<String> = self.devices.lock().unwrap().keys().cloned().collect();
        let mut report = RemovalReport::default();
        for name in names {
            match self.remove_now(&name) {
                Ok(_) => report.removed.push(name),
                Err(problem) => report.failed.push(FailedRemoval {
                    name,
                    step: "delete".to_owned(),
                    error: problem.detail,
                }),
            }
        }
        Ok(report)
    }

    async fn status(&self) -> Result<Status, Problem> {
        let live = u64::try_from(self.devices.lock().unwrap().len()).unwrap();
        Ok(Status {
            version: "0.0.0".to_owned(),
            pid: std::process::id(),
            uptime_s: 90_061,
            kernel: Kernel {
                release: "6.12.0".to_owned(),
                features: vec!["user_recovery".to_owned()],
                teardown_order: TeardownOrder::CloseThenDelete,
                copy_mode: "plain".to_owned(),
            },
            shards: vec![Shard {
                index: 0,
                devices: live,
                wake_ups: 0,
                in_flight: 0,
                buffers: Usage {
                    in_use: 0,
                    limit: 1 << 20,
                },
                operations: Usage::default(),
                slots: Usage::default(),
            }],
            limits: Vec::new(),
            devices: DeviceCounts {
                live,
                ..DeviceCounts::default()
            },
            shutdown: Some(StopProgress {
                total: 2,
                done: 1,
                ..StopProgress::default()
            }),
            findings: vec![Finding {
                id: 9,
                what: "made by another program".to_owned(),
            }],
        })
    }
}
