//! How fast can the kernel create and stop N devices? A minimal server of null devices, nothing of the daemon in it.
//!
//! Two threads with one ring each serve all devices; one more ring runs the control commands, 250 in flight on 64
//! kernel workers. Every phase is done for all devices before the next begins:
//!
//! ```text
//!   create   ADD_DEV, SET_PARAMS | open, map, fetch (the serving threads) | START_DEV
//!   stop     STOP_DEV | delete and close, in the order that is faster on this kernel
//! ```
//!
//! Prints one line of JSON: seconds of each phase, the time until every number is free again, and the order.
#![forbid(unsafe_code)]

mod clock;
mod control;
mod server;

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use block::DeviceId;
use clap::Parser;
use ublk::{Features, TeardownOrder};

use clock::Stopwatch;
use control::Control;

/// Serving threads.
const SERVERS: usize = 2;

/// The command line.
#[derive(Parser)]
#[command(about = "Creates and stops null devices as fast as the kernel can")]
struct Arguments {
    /// How many
    #[arg(long, default_value_t = 300)]
    devices: u32,
    /// With user recovery, as the daemon's devices have it: their stop waits for one grace period more
    #[arg(long)]
    recovery: bool,
    /// The order of teardown, if not the one that is faster on this kernel
    #[arg(long)]
    order: Option<Order>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Order {
    CloseDelete,
    DeleteClose,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    raise_file_limit();
    let control = Control::open()?;
    let order = arguments
        .order
        .map_or_else(|| control.quirks().teardown(), Order::teardown);
    let mut features = Features::USER_COPY;
    if arguments.recovery {
        features = features | Features::USER_RECOVERY | Features::USER_RECOVERY_REISSUE;
    }
    let watch = Stopwatch::start();
    let ids = control.add(arguments.devices, features)?;
    let servers = serve(&ids)?;
    control.start(&ids)?;
    let create_s = watch.elapsed_s();

    let watch = Stopwatch::start();
    control.stop(&ids)?;
    let only_stop_s = watch.elapsed_s();
    match order {
        TeardownOrder::StopCloseDelete => {
            close(servers)?;
            control.delete(&ids)?;
        }
        TeardownOrder::StopDeleteClose => {
            control.delete(&ids)?;
            close(servers)?;
        }
    }
    let stop_s = watch.elapsed_s();
    control.await_gone(&ids)?;
    let gone_s = watch.elapsed_s();
    say(&format!(
        r#"{{"devices":{},"create_s":{create_s:.3},"stop_s":{stop_s:.3},"stop_commands_s":{only_stop_s:.3},"gone_s":{gone_s:.3},"order":"{order:?}"}}"#,
        arguments.devices
    ));
    Ok(())
}

impl Order {
    const fn teardown(self) -> TeardownOrder {
        match self {
            Self::CloseDelete => TeardownOrder::StopCloseDelete,
            Self::DeleteClose => TeardownOrder::StopDeleteClose,
        }
    }
}

type Server = JoinHandle<Result<Vec<Arc<ublk::CharDevice>>>>;

/// Deals the devices out to the serving threads.
fn serve(ids: &[DeviceId]) -> Result<Vec<Server>> {
    let share = ids.len().div_ceil(SERVERS).max(1);
    ids.chunks(share)
        .map(|share| {
            let share = share.to_vec();
            std::thread::Builder::new()
                .spawn(move || server::serve(&share))
                .context("start a serving thread")
        })
        .collect()
}

/// Waits until the kernel has aborted every tag, then closes the char devices.
fn close(servers: Vec<Server>) -> Result<()> {
    for server in servers {
        let devices = server
            .join()
            .map_err(|_| anyhow!("a serving thread panicked"))??;
        ensure!(!devices.is_empty(), "a serving thread had nothing to serve");
        drop(devices);
    }
    Ok(())
}

/// One file per device.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Too few files show when a device cannot be opened.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

#[expect(clippy::print_stdout, reason = "the program's result")]
fn say(line: &str) {
    println!("{line}");
}
