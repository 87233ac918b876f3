//! The daemon: everything is put together here, and taken apart.
//!
//! ```text
//!   settings -> signals -> kernel probe -> journal -> socket -> shards -> engine (manager) -> API server
//!   SIGTERM  -> engine stops all devices -> report -> server ends -> exit status
//! ```
//!
//! What can fail is done before anything of the kernel is touched, so a daemon that cannot start leaves nothing behind.

mod backing;
mod clock;
mod engine;
mod file_limit;
mod findings;
mod guarded;
mod handles;
mod identity;
mod journal;
mod kernel;
mod links;
mod logging;
mod presence;
mod problems;
mod service;
mod signals;
mod steps;

use std::path::Path;
use std::sync::{Arc, Mutex};

use api::server::Server;
use api::socket::BoundSocket;
use api::v1::Problem;
use dataplane::{CopyMode, Dataplane, DataplaneConfig, ShardEvent, ShardLimits};
use image::serving::Workspace;
use manager::{Inventory, Manager, Report, TeardownOrder};
use reactor::uring::{SLOTS_MAX, UringLimits};
use tokio::sync::{Semaphore, mpsc};
use ublk::{ControlLimits, ControlRing};

use crate::config::{ServeArgs, Settings};
use backing::{Leases, Shared};
use engine::Engine;
use handles::HandleTable;
use journal::Journal;
use kernel::Kernel;
use links::Links;
use presence::Presence;
use service::Daemon;
use signals::Signals;
use steps::Driver;

/// Where the links to devices are.
const LINKS: &str = "/dev/blockyard";
/// Threads of the control plane's runtime. It only waits and passes on; the work is elsewhere.
const RUNTIME_THREADS: usize = 2;
/// Threads for calls that may block: opening files, closing char devices. More wait for their turn.
const BLOCKING_THREADS_MAX: usize = 64;
/// Those of them that may open files: a file system that hangs at every open leaves the others for devices that go.
const OPENS_MAX: usize = 32;
/// The most memory for decompressed blocks of images, for each shard and each block size in use: enough for what starts of virtual
/// machines read again, little beside what the devices themselves take.
const BLOCK_CACHE_BYTES: usize = 16 << 20;
/// How long the end of the process waits for calls that block.
const RUNTIME_END: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs the daemon until it is told to end.
///
/// # Errors
///
/// Why it cannot start, or that not every device stopped in order.
pub(crate) fn run(args: ServeArgs) -> Result<(), Problem> {
    let settings = Settings::load(args)?;
    logging::start(settings.logs);
    let file_shortage = file_limit::raise(settings.devices_max);
    let started = clock::now();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(|error| problems::runtime(&error))?;
    let (signals, leases) = {
        let _context = runtime.enter();
        Signals::catch()
            .and_then(|signals| Ok((signals, Leases::watched()?)))
            .map_err(|error| problems::runtime(&error))?
    };
    ublk::check_kernel().map_err(|error| problems::kernel(&error))?;
    let control = ControlRing::open(Path::new(ublk::CONTROL_NODE), ControlLimits::default())
        .map_err(|error| problems::kernel(&error))?;
    let probe = ublk::probe(&control).map_err(|error| problems::kernel(&error))?;
    problems::check_features(&probe)?;
    let (journal, found) =
        Journal::open(&settings.state_dir).map_err(|error| problems::journal(&error))?;
    let socket = BoundSocket::bind(&settings.socket)?;
    let links =
        Links::open(Path::new(LINKS)).map_err(|error| problems::links(Path::new(LINKS), &error))?;
    let (events, shard_events) = mpsc::unbounded_channel();
    let plane = Dataplane::start(
        DataplaneConfig {
            shards: settings.shards,
            limits: ShardLimits::default(),
            ring: UringLimits {
                slots: match CopyMode::best(&probe) {
                    CopyMode::ZeroCopy => SLOTS_MAX,
                    CopyMode::UserCopy => 0,
                },
                ..UringLimits::default()
            },
        },
        // Nobody listens any more only when the process ends.
        Arc::new(move |event| drop(events.send(event))),
    )
    .map_err(|error| problems::shards(&error))?;
    let kernel = Kernel::new(control, probe);
    let driver = Arc::new(Driver {
        instance: found.instance,
        kernel,
        workspaces: workspaces(&plane),
        plane,
        links,
        handles: HandleTable::default(),
        opens: Arc::new(Semaphore::new(OPENS_MAX)),
        shared: Arc::new(Shared::new(leases)),
    });
    let parts = Parts {
        settings,
        driver,
        journal,
        found,
        socket,
        started,
        shard_events,
        file_shortage,
        signals,
    };
    let result = runtime.block_on(serve(parts));
    runtime.shutdown_timeout(RUNTIME_END);
    result
}

/// One for each shard.
fn workspaces(plane: &Dataplane) -> Vec<Workspace> {
    let workspaces = (0..plane.shards()).map(|_| Workspace::new(BLOCK_CACHE_BYTES));
    workspaces.collect()
}

struct Parts {
    settings: Settings,
    driver: Arc<Driver>,
    journal: Journal,
    found: journal::Found,
    socket: BoundSocket,
    started: std::time::Instant,
    shard_events: mpsc::UnboundedReceiver<ShardEvent>,
    file_shortage: Option<file_limit::Shortage>,
    signals: Signals,
}

async fn serve(parts: Parts) -> Result<(), Problem> {
    let Parts {
        settings,
        driver,
        journal,
        found,
        socket,
        started,
        shard_events,
        file_shortage,
        signals,
    } = parts;
    let devices = driver
        .kernel
        .devices()
        .await
        .map_err(|fault| problems::survey(&fault))?;
    let inventory = Inventory {
        instance: found.instance,
        records: found.records,
        kernel: devices.iter().map(kernel::kernel_device).collect(),
    };
    let presence = Presence::show(found.instance);
    let manager = Manager::new(
        manager_settings(&settings, &driver),
        &inventory,
        clock::now(),
    );
    if found.is_lost {
        tracing::error!(state_dir = %settings.state_dir.display(), "the journal was lost; devices of an earlier run are known by their stamps only, and are removed");
    }
    let findings = findings::tell(manager.findings());
    let (engine, finished) = Engine::start(manager, Arc::clone(&driver), journal);
    tokio::spawn(log_shard_events(shard_events, Arc::clone(&driver)));
    tokio::spawn(signals.watch(engine.clone()));
    let daemon = Daemon {
        engine,
        driver,
        started,
        findings: Mutex::new(findings),
        presence,
    };
    if let Some(shortage) = file_shortage {
        shortage.warn();
    }
    tracing::info!(socket = %settings.socket.display(), shards = settings.shards, "ready");
    let (report_in, report_out) = tokio::sync::oneshot::channel();
    let ended = async move {
        let report = finished.await.unwrap_or_default();
        // Read below, after the server has ended.
        let _ = report_in.send(report);
    };
    Server::new(socket, Arc::new(daemon), settings.api)
        .run(ended)
        .await
        .map_err(|error| problems::server(&error))?;
    conclude(&report_out.await.unwrap_or_default())
}

fn manager_settings(settings: &Settings, driver: &Driver) -> manager::Settings {
    manager::Settings {
        devices_max: settings.devices_max,
        stop_concurrency: settings.stop_concurrency,
        teardown_order: match driver.kernel.probe().quirks.teardown() {
            ublk::TeardownOrder::StopCloseDelete => TeardownOrder::CloseThenDelete,
            ublk::TeardownOrder::StopDeleteClose => TeardownOrder::DeleteThenClose,
        },
        deadlines: settings.deadlines,
    }
}

/// Says how the shutdown went, device by device for those that did not go as they should.
fn conclude(report: &Report) -> Result<(), Problem> {
    for failure in &report.failed {
        tracing::error!(device = %failure.name, step = %failure.first.step, err = %failure, "device did not stop in order");
    }
    tracing::info!(
        stopped = report.removed.len(),
        failed = report.failed.len(),
        "all devices have ended"
    );
    if report.failed.is_empty() {
        Ok(())
    } else {
        Err(problems::stop_failed(&report.failed))
    }
}

async fn log_shard_events(mut events: mpsc::UnboundedReceiver<ShardEvent>, driver: Arc<Driver>) {
    while let Some(event) = events.recv().await {
        match event {
            ShardEvent::TargetPanicked { key, message } => {
                let name = driver.handles.fail(manager::DeviceKey(key.0), &message);
                tracing::error!(device = %name, err = %message, "the device's target panicked; it answers every request with EIO until it is removed");
            }
            ShardEvent::ProtocolFault { key, detail } => {
                let name = driver.handles.fail(manager::DeviceKey(key.0), &detail);
                tracing::error!(device = %name, err = %detail, "the kernel refused a command of the device; remove the device");
            }
        }
    }
}
