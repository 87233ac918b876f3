//! The `blockyard` binary: the daemon and the commands that drive it.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod exit;
mod output;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use exit::Exit;
use output::Format;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::usage::answer(&error).into(),
    };
    let format = if cli.json {
        Format::Json
    } else {
        Format::Human
    };
    let exit = match cli.command {
        Command::Serve(mut args) => {
            args.socket = cli.socket;
            args.logs = format;
            match serve::run(args) {
                Ok(()) => Exit::Ok,
                Err(problem) => output::report(format, "serve", &problem),
            }
        }
        Command::Image(command) => cli::run_image(command, format),
        Command::Client(command) => {
            cli::run(command, &cli::Daemon::new(cli.socket, cli.timeout, format))
        }
    };
    exit.into()
}
