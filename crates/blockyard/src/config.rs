//! What the daemon is told: the arguments of `serve`, the configuration file, and the settings that come of them.
//!
//! The command line wins over the file, the file over the defaults. A key that is not known is refused with its
//! name and the file, so that a misspelt limit is never ignored; so is a value out of range. `docs/configuration.md` describes the file.

mod value;

use std::fs;
use std::io::ErrorKind;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::server::Limits;
use api::v1::{Code, Problem};
use manager::Deadlines;
use serde::Deserialize;

use crate::output::Format;
pub(crate) use value::number;
use value::{AbsolutePath, Number};

/// Where the socket is unless somebody says otherwise.
pub(crate) const SOCKET_DEFAULT: &str = "/run/blockyard/blockyard.sock";
/// Where the journal is unless somebody says otherwise.
pub(crate) const STATE_DIR_DEFAULT: &str = "/var/lib/blockyard";
/// Devices stopped at a time unless somebody says otherwise: more does not pay on any kernel tested.
pub(crate) const STOP_CONCURRENCY_DEFAULT: usize = 16;
/// The most shards: one is enough for a core, and a host with more cores has no device that needs them all.
const SHARDS_MAX: u64 = 128;
/// The most shards by default.
const SHARDS_DEFAULT_MAX: u16 = 16;
/// Devices at most unless the file says otherwise. Each costs up to 128 KiB of memory and 3 open files.
const DEVICES_MAX_DEFAULT: usize = 8192;
/// The most devices that the file may allow: the kernel has no more numbers (UBLK_MINORS, Linux 6.8 to 7.3).
const DEVICES_MAX_MAX: u64 = 1 << 20;
/// The most connections, and changes in progress, that the file may allow; each is an open file of the daemon.
const CONNECTIONS_MAX_MAX: u64 = 1 << 16;
/// The longest deadline of a step in seconds: a day.
const DEADLINE_S_MAX: u64 = 24 * 60 * 60;

/// A deadline of the file.
type Seconds = Number<1, DEADLINE_S_MAX>;

/// The arguments of `serve`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML); arguments win over it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the journal, made if it is missing [default: /var/lib/blockyard]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Threads that serve I/O, 1 to 128 [default: one per core, at most 16]
    #[arg(long, value_name = "N", value_parser = number::<u16>(1..=SHARDS_MAX))]
    pub(crate) shards: Option<u16>,
    /// Devices stopped at a time when all are stopped; 0 is no limit [default: 16]
    #[arg(long, value_name = "N", value_parser = number::<usize>(0..=DEVICES_MAX_MAX))]
    pub(crate) stop_concurrency: Option<usize>,
    /// The socket, from the global option.
    #[arg(skip)]
    pub(crate) socket: Option<PathBuf>,
    /// How the log is written, from the global `--json`.
    #[arg(skip)]
    pub(crate) logs: Format,
}

/// What the daemon runs with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The socket.
    pub(crate) socket: PathBuf,
    /// Directory of the journal.
    pub(crate) state_dir: PathBuf,
    /// Threads that serve I/O, at least 1.
    pub(crate) shards: u16,
    /// Devices stopped at a time; 0 is no limit.
    pub(crate) stop_concurrency: usize,
    /// How long each step of a device's life cycle may take.
    pub(crate) deadlines: Deadlines,
    /// The most devices, in whatever state.
    pub(crate) devices_max: usize,
    /// Limits of the control interface.
    pub(crate) api: Limits,
    /// How the log is written.
    pub(crate) logs: Format,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    socket: Option<AbsolutePath>,
    state_dir: Option<AbsolutePath>,
    shards: Option<Number<1, SHARDS_MAX>>,
    stop_concurrency: Option<Number<0, DEVICES_MAX_MAX>>,
    deadlines: FileDeadlines,
    limits: FileLimits,
}

/// The table `deadlines`, in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileDeadlines {
    open_s: Option<Seconds>,
    journal_s: Option<Seconds>,
    add_s: Option<Seconds>,
    attach_s: Option<Seconds>,
    start_s: Option<Seconds>,
    publish_s: Option<Seconds>,
    drain_s: Option<Seconds>,
    abandon_s: Option<Seconds>,
    stop_s: Option<Seconds>,
    delete_s: Option<Seconds>,
    await_gone_s: Option<Seconds>,
    close_s: Option<Seconds>,
}

/// The table `limits`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileLimits {
    devices_max: Option<Number<1, DEVICES_MAX_MAX>>,
    connections_max: Option<Number<2, CONNECTIONS_MAX_MAX>>,
    changes_max: Option<Number<1, CONNECTIONS_MAX_MAX>>,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("the configuration file {} cannot be read: {source}", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the configuration file {} is not understood in line {line}: {message}", .path.display())]
    Parse {
        path: PathBuf,
        line: usize,
        message: String,
    },
    #[error("the configuration file {}: limits.changes_max ({changes}) must be less than limits.connections_max ({connections}), so that status finds room", .path.display())]
    Changes {
        path: PathBuf,
        changes: usize,
        connections: usize,
    },
    #[error("the path {:?} cannot be made absolute: {source}", .path.display())]
    Absolute {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        let (path, code, advice) = match &error {
            ConfigError::Read { path, source } => match source.kind() {
                ErrorKind::PermissionDenied => (
                    path,
                    Code::PermissionDenied,
                    "make it readable for the daemon's user",
                ),
                _ => (
                    path,
                    Code::Usage,
                    "name a TOML file with --config, or leave it out",
                ),
            },
            ConfigError::Parse { path, .. } => (
                path,
                Code::Usage,
                "correct it; docs/configuration.md lists the keys",
            ),
            ConfigError::Changes { path, .. } => (path, Code::Usage, "correct one of the two"),
            ConfigError::Absolute { path, .. } => (path, Code::Usage, "give an absolute path"),
        };
        Self::new(code, error.to_string(), advice).about(path.display().to_string())
    }
}

impl Settings {
    /// Reads the file, if there is one, and puts the arguments over it.
    pub(crate) fn load(args: ServeArgs) -> Result<Self, ConfigError> {
        // Messages and the log show whole paths.
        let args = ServeArgs {
            config: args.config.map(absolute).transpose()?,
            state_dir: args.state_dir.map(absolute).transpose()?,
            socket: args.socket.map(absolute).transpose()?,
            ..args
        };
        let file = match &args.config {
            Some(path) => read(path)?,
            None => File::default(),
        };
        Ok(Self::combine(args, file))
    }

    fn combine(args: ServeArgs, file: File) -> Self {
        let defaults = Limits::default();
        let (connections_max, changes_max) = file.limits.connections_and_changes();
        Self {
            socket: args
                .socket
                .or(file.socket.map(|path| path.0))
                .unwrap_or_else(|| SOCKET_DEFAULT.into()),
            state_dir: args
                .state_dir
                .or(file.state_dir.map(|path| path.0))
                .unwrap_or_else(|| STATE_DIR_DEFAULT.into()),
            shards: args
                .shards
                .or(file
                    .shards
                    .and_then(|shards| shards.value().try_into().ok()))
                .unwrap_or_else(shards_default),
            stop_concurrency: args
                .stop_concurrency
                .or(file.stop_concurrency.map(Number::count))
                .unwrap_or(STOP_CONCURRENCY_DEFAULT),
            deadlines: file.deadlines.over(Deadlines::default()),
            devices_max: file
                .limits
                .devices_max
                .map_or(DEVICES_MAX_DEFAULT, Number::count),
            api: Limits {
                connections_max,
                changes_max,
                ..defaults
            },
            logs: args.logs,
        }
    }
}

fn absolute(path: PathBuf) -> Result<PathBuf, ConfigError> {
    std::path::absolute(&path).map_err(|source| ConfigError::Absolute { path, source })
}

fn shards_default() -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    u16::try_from(cores)
        .unwrap_or(SHARDS_DEFAULT_MAX)
        .min(SHARDS_DEFAULT_MAX)
}

fn read(path: &Path) -> Result<File, ConfigError> {
    let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    let file: File = toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let before = text.get(..offset).unwrap_or_default();
        // A message about a value does not say whose it is.
        let line = before.rsplit('\n').next().unwrap_or_default();
        let message = match line.split_once('=') {
            Some((key, _)) => format!("{}: {}", key.trim(), error.message()),
            None => error.message().to_owned(),
        };
        ConfigError::Parse {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            message,
        }
    })?;
    file.check(path)?;
    Ok(file)
}

impl File {
    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let (connections, changes) = self.limits.connections_and_changes();
        if changes < connections {
            return Ok(());
        }
        Err(ConfigError::Changes {
            path: path.to_owned(),
            changes,
            connections,
        })
    }
}

impl FileLimits {
    fn connections_and_changes(&self) -> (usize, usize) {
        let defaults = Limits::default();
        let connections = self
            .connections_max
            .map_or(defaults.connections_max, Number::count);
        // Changes leave a quarter of the connections to reads, as the defaults do, and one at least.
        let changes_default = defaults
            .changes_max
            .min(connections - connections.div_ceil(4));
        let changes = self.changes_max.map_or(changes_default, Number::count);
        (connections, changes)
    }
}

impl FileDeadlines {
    fn over(&self, defaults: Deadlines) -> Deadlines {
        let pick = |seconds: Option<Seconds>, default| {
            seconds.map_or(default, |seconds| Duration::from_secs(seconds.value()))
        };
        Deadlines {
            open: pick(self.open_s, defaults.open),
            journal: pick(self.journal_s, defaults.journal),
            add: pick(self.add_s, defaults.add),
            attach: pick(self.attach_s, defaults.attach),
            start: pick(self.start_s, defaults.start),
            publish: pick(self.publish_s, defaults.publish),
            drain: pick(self.drain_s, defaults.drain),
            abandon: pick(self.abandon_s, defaults.abandon),
            stop: pick(self.stop_s, defaults.stop),
            delete: pick(self.delete_s, defaults.delete),
            await_gone: pick(self.await_gone_s, defaults.await_gone),
            close: pick(self.close_s, defaults.close),
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, args: ServeArgs) -> Result<Settings, Problem> {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("blockyard.toml");
        fs::write(&path, text).unwrap();
        Settings::load(ServeArgs {
            config: Some(path),
            ..args
        })
        .map_err(Problem::from)
    }

    #[test]
    fn without_a_file_the_defaults_hold() {
        let settings = Settings::load(ServeArgs::default()).unwrap();
        assert_eq!(settings.socket, Path::new(SOCKET_DEFAULT));
        assert_eq!(settings.state_dir, Path::new(STATE_DIR_DEFAULT));
        assert!((1..=SHARDS_DEFAULT_MAX).contains(&settings.shards));
        assert_eq!(settings.stop_concurrency, 16);
        assert_eq!(settings.deadlines, Deadlines::default());
        assert_eq!(
            (settings.api.connections_max, settings.api.changes_max),
            (256, 192)
        );
    }

    #[test]
    fn the_file_wins_over_defaults_and_arguments_win_over_the_file() {
        let text = "
            socket = '/a.sock'
            state_dir = '/state'
            shards = 3
            stop_concurrency = 0
            [deadlines]
            drain_s = 7
            [limits]
            devices_max = 10
            connections_max = 8
        ";
        let args = ServeArgs {
            socket: Some("/b.sock".into()),
            shards: Some(5),
            ..ServeArgs::default()
        };
        let settings = load(text, args).unwrap();
        assert_eq!(settings.socket, Path::new("/b.sock"));
        assert_eq!(settings.state_dir, Path::new("/state"));
        assert_eq!(
            (
                settings.shards,
                settings.stop_concurrency,
                settings.devices_max
            ),
            (5, 0, 10)
        );
        assert_eq!(settings.deadlines.drain, Duration::from_secs(7));
        assert_eq!(settings.deadlines.open, Deadlines::default().open);
        assert_eq!(
            (settings.api.connections_max, settings.api.changes_max),
            (8, 6)
        );
    }

    #[test]
    fn a_wrong_file_is_refused_with_key_line_and_file() {
        for (text, words) in [
            ("shard = 1\n", ["`shard`", "line 1"]),
            (
                "shards = 1\n\n[limits]\ndevice_max = 1\n",
                ["`device_max`", "line 4"],
            ),
            ("[deadlines]\ndrain = 1\n", ["`drain`", "line 2"]),
            (
                "shards = 'two'\n",
                ["line 1: shards:", "a number from 1 to 128"],
            ),
            (
                "socket = 'x.sock'\n",
                ["line 1: socket:", "an absolute path"],
            ),
            (
                "\nstate_dir = 'x'\n",
                ["line 2: state_dir:", "an absolute path"],
            ),
            (
                "[limits]\nconnections_max = 8\nchanges_max = 20\n",
                ["limits.changes_max (20)", "limits.connections_max (8)"],
            ),
            (
                "[limits]\nchanges_max = 256\n",
                ["limits.changes_max (256)", "limits.connections_max (256)"],
            ),
            ("shards = \n", ["line 1", "not understood"]),
            ("shards = 0\n", ["line 1: shards:", "1 to 128"]),
            ("\nshards = 500\n", ["line 2: shards:", "1 to 128"]),
            (
                "[deadlines]\nstop_s = 0\n",
                ["line 2: stop_s:", "1 to 86400"],
            ),
            (
                "[limits]\nconnections_max = 1\n",
                ["line 2: connections_max:", "2 to 65536"],
            ),
        ] {
            let problem = load(text, ServeArgs::default()).unwrap_err();
            assert_eq!(problem.code, Code::Usage);
            for word in words.into_iter().chain(["blockyard.toml"]) {
                assert!(problem.detail.contains(word), "{text:?}: {problem}");
            }
        }
    }

    #[test]
    fn few_connections_leave_one_to_reads() {
        for (connections, changes) in [(2, 1), (3, 2), (4, 3), (8, 6), (1000, 192)] {
            let text = format!("[limits]\nconnections_max = {connections}\n");
            let settings = load(&text, ServeArgs::default()).unwrap();
            assert_eq!(settings.api.changes_max, changes, "{connections}");
        }
    }

    #[test]
    fn relative_arguments_become_absolute() {
        let settings = Settings::load(ServeArgs {
            socket: Some("x.sock".into()),
            state_dir: Some("state".into()),
            ..ServeArgs::default()
        })
        .unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(settings.socket, here.join("x.sock"));
        assert_eq!(settings.state_dir, here.join("state"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let args = ServeArgs {
            config: Some("/nonexistent/x.toml".into()),
            ..ServeArgs::default()
        };
        let problem = Problem::from(Settings::load(args).unwrap_err());
        assert_eq!(problem.object.as_deref(), Some("/nonexistent/x.toml"));
    }

    #[test]
    fn the_documented_example_is_a_whole_file_with_the_defaults() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let documentation = fs::read_to_string(path).unwrap();
        let example = documentation
            .split("```toml\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        let file: File = toml::from_str(example).unwrap();
        file.check(Path::new(path)).unwrap();
        for key in [
            "open_s",
            "journal_s",
            "add_s",
            "attach_s",
            "start_s",
            "publish_s",
            "drain_s",
            "abandon_s",
            "stop_s",
            "delete_s",
            "await_gone_s",
            "close_s",
        ] {
            assert!(example.contains(&format!("\n{key} = ")), "{key}");
        }
        let from_file = Settings::combine(ServeArgs::default(), file);
        let shards = from_file.shards;
        let defaults = Settings {
            shards,
            ..Settings::load(ServeArgs::default()).unwrap()
        };
        assert_eq!(format!("{from_file:?}"), format!("{defaults:?}"));
    }
}
