//! The client commands: what they are told, and how their answers are shown.

mod args;
mod create;
mod image;
mod remove;
mod show;
mod status;
mod table;
pub(crate) mod usage;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use api::client::Client;
use api::v1::{Code, Problem};

use crate::config::SOCKET_DEFAULT;
use crate::exit::Exit;
use crate::output::{self, Format};
use args::ClientCommand;
pub(crate) use args::{Cli, Command};

/// The daemon that a command speaks to, and how it shows the answer.
pub(crate) struct Daemon {
    client: Client,
    format: Format,
}

impl Daemon {
    pub(crate) fn new(socket: Option<PathBuf>, timeout_s: u64, format: Format) -> Self {
        let socket = socket.unwrap_or_else(|| SOCKET_DEFAULT.into());
        let client = Client::new(socket).with_deadline(Duration::from_secs(timeout_s));
        Self { client, format }
    }
}

/// Runs a client command to its end.
pub(crate) fn run(command: ClientCommand, daemon: &Daemon) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let detail = format!("the runtime cannot be started: {error}");
            let problem = Problem::new(Code::LimitReached, detail, "raise the limit of open files");
            return output::report(daemon.format, "start", &problem);
        }
    };
    match command {
        ClientCommand::Create(args) => {
            let what = format!("create {}", args.name);
            settle(&runtime, daemon, &what, create::run(args, daemon))
        }
        ClientCommand::List => settle(&runtime, daemon, "list", show::list(daemon)),
        ClientCommand::Inspect { name } => settle(
            &runtime,
            daemon,
            &format!("inspect {name}"),
            show::inspect(&name, daemon),
        ),
        ClientCommand::Remove(args) => runtime.block_on(remove::run(args, daemon)),
        ClientCommand::Status => settle(&runtime, daemon, "status", status::run(daemon)),
        ClientCommand::Completion { shell } => settle(
            &runtime,
            daemon,
            "completion",
            std::future::ready(args::completion(shell)),
        ),
    }
}

/// Runs an image command to its end.
pub(crate) fn run_image(command: image::ImageCommand, format: Format) -> Exit {
    match image::run(command, format) {
        Ok(()) => Exit::Ok,
        Err(problem) => output::report(format, "image", &problem),
    }
}

fn settle(
    runtime: &tokio::runtime::Runtime,
    daemon: &Daemon,
    what: &str,
    work: impl Future<Output = Result<(), Problem>>,
) -> Exit {
    match runtime.block_on(work) {
        Ok(()) => Exit::Ok,
        Err(problem) => output::report(daemon.format, what, &problem),
    }
}
