//! The command line.

use std::path::PathBuf;

use api::v1::{ByteSize, Problem};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use super::image::ImageCommand;
use crate::config::{ServeArgs, number};
use crate::exit::Exit;
use crate::output;

/// Block devices from files, thousands of them from one process.
///
/// `blockyard serve` runs the daemon; every other command asks the daemon over its socket.
#[derive(Debug, Parser)]
#[command(name = "blockyard", version, after_help = Exit::help(), max_term_width = 100)]
pub(crate) struct Cli {
    /// The daemon's socket [default: /run/blockyard/blockyard.sock]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "BLOCKYARD_SOCKET",
        hide_env_values = true,
        help_heading = "Global options"
    )]
    pub(crate) socket: Option<PathBuf>,
    /// Write results and problems as JSON (serve: the log)
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// How long to wait for the daemon's answer, in seconds
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        default_value_t = 120,
        help_heading = "Global options",
        value_parser = number::<u64>(1..=86_400)
    )]
    pub(crate) timeout: u64,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon
    ///
    /// SIGTERM, SIGINT and SIGHUP stop every device and end it; a second one, half a second later or more, stops waiting for I/O in
    /// flight. The exit code says whether every device stopped in order.
    Serve(ServeArgs),
    /// Work on images and layers that nobody serves; needs no daemon
    #[command(subcommand)]
    Image(ImageCommand),
    #[command(flatten)]
    Client(ClientCommand),
}

/// What to ask the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Create a device and print its path
    ///
    /// The same command again prints the same path; a different one for a name that is taken is a conflict. While the
    /// device lives, /dev/blockyard/NAME points at it.
    Create(CreateArgs),
    /// List the devices
    List,
    /// Show one device
    Inspect {
        /// The device's name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
    /// Stop and remove devices
    ///
    /// Waits until they are gone. A failure of one never stops the others: each is one line on standard error.
    Remove(RemoveArgs),
    /// Show the daemon: kernel, threads, limits and their use, progress of a shutdown
    Status,
    /// Print the completion script of a shell
    Completion {
        /// The shell
        shell: Shell,
    },
}

/// The arguments of `create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The device's name: 1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,
    /// What backs it: raw:PATH is a file or block device, overlaybd:PATH the configuration of a layered image; null:SIZE reads zeros
    /// and drops writes
    pub(crate) spec: String,
    /// Size of the device, such as 8G or 512MiB [default: as large as what backs it]. A smaller file is extended, and stays
    /// so; a larger one is refused
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<ByteSize>,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Hardware queues, 1 to 64 [default: 1]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=64))]
    pub(crate) queues: Option<u16>,
    /// Requests in flight per queue, 1 to 1024 [default: 64]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=1024))]
    pub(crate) depth: Option<u16>,
}

/// The arguments of `remove`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RemoveArgs {
    /// The devices' names
    #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) names: Vec<String>,
    /// Every device
    #[arg(long)]
    pub(crate) all: bool,
    /// A ublk device that another installation left and no process serves, by the kernel's number; see the findings of `status`
    #[arg(long, value_name = "ID")]
    pub(crate) stray: Vec<u32>,
}

/// Prints the completion script.
pub(super) fn completion(shell: Shell) -> Result<(), Problem> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "blockyard", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_defaults_in_the_help_are_the_defaults() {
        let help = |name: &str| {
            let mut cli = Cli::command();
            cli.build();
            cli.find_subcommand_mut(name)
                .unwrap()
                .render_long_help()
                .to_string()
        };
        let serve = help("serve");
        for default in [
            crate::config::STATE_DIR_DEFAULT.to_owned(),
            crate::config::SOCKET_DEFAULT.to_owned(),
            format!("[default: {}]", crate::config::STOP_CONCURRENCY_DEFAULT),
        ] {
            assert!(serve.contains(&default), "{default}");
        }
        let create = help("create");
        assert!(create.contains(&format!(
            "1 to {} [default: {}]",
            manager::QUEUES_MAX,
            manager::QUEUES_DEFAULT
        )));
        assert!(create.contains(&format!(
            "1 to {} [default: {}]",
            manager::DEPTH_MAX,
            manager::DEPTH_DEFAULT
        )));
    }
}
