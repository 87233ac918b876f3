//! What the daemon is told: the arguments of `serve`, the configuration file, and the settings that come of them.
//!
//! The command line wins over the file, the file over the defaults. A key that is not known is refused with its
//! name and the file, so that a misspelt limit is never ignored. `docs/configuration.md` describes the file.

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

/// Where the socket is unless somebody says otherwise.
pub(crate) const SOCKET_DEFAULT: &str = "/run/blockyard/blockyard.sock";
/// Where the journal is unless somebody says otherwise.
pub(crate) const STATE_DIR_DEFAULT: &str = "/var/lib/blockyard";
/// Devices stopped at a time unless somebody says otherwise: more does not pay on any kernel tested.
pub(crate) const STOP_CONCURRENCY_DEFAULT: usize = 16;
/// The most shards: one is enough for a core, and a host with more cores has no device that needs them all.
const SHARDS_MAX: u16 = 128;
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(SHARDS_MAX)))]
    pub(crate) shards: Option<u16>,
    /// Devices stopped at a time when all are stopped; 0 is no limit [default: 16]
    #[arg(long, value_name = "N")]
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
    socket: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    shards: Option<u16>,
    stop_concurrency: Option<usize>,
    deadlines: FileDeadlines,
    limits: FileLimits,
}

/// The table `deadlines`, in seconds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileDeadlines {
    open_s: Option<u64>,
    journal_s: Option<u64>,
    add_s: Option<u64>,
    attach_s: Option<u64>,
    start_s: Option<u64>,
    publish_s: Option<u64>,
    drain_s: Option<u64>,
    abandon_s: Option<u64>,
    stop_s: Option<u64>,
    delete_s: Option<u64>,
    await_gone_s: Option<u64>,
    close_s: Option<u64>,
}

/// The table `limits`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileLimits {
    devices_max: Option<usize>,
    connections_max: Option<usize>,
    changes_max: Option<usize>,
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
    #[error("the configuration file {}: {key} must be {range}", .path.display())]
    Range {
        path: PathBuf,
        key: &'static str,
        range: String,
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
            ConfigError::Range { path, .. } => (path, Code::Usage, "correct the value"),
        };
        Self::new(code, error.to_string(), advice).about(path.display().to_string())
    }
}

impl Settings {
    /// Reads the file, if there is one, and puts the arguments over it.
    pub(crate) fn load(args: ServeArgs) -> Result<Self, ConfigError> {
        let file = match &args.config {
            Some(path) => read(path)?,
            None => File::default(),
        };
        Ok(Self::combine(args, file))
    }

    fn combine(args: ServeArgs, file: File) -> Self {
        let defaults = Limits::default();
        let connections_max = file
            .limits
            .connections_max
            .unwrap_or(defaults.connections_max);
        // Changes leave a quarter of the connections to reads, as the defaults do.
        let changes_default = defaults
            .changes_max
            .min(connections_max - connections_max / 4)
            .max(1);
        Self {
            socket: args
                .socket
                .or(file.socket)
                .unwrap_or_else(|| SOCKET_DEFAULT.into()),
            state_dir: args
                .state_dir
                .or(file.state_dir)
                .unwrap_or_else(|| STATE_DIR_DEFAULT.into()),
            shards: args.shards.or(file.shards).unwrap_or_else(shards_default),
            stop_concurrency: args
                .stop_concurrency
                .or(file.stop_concurrency)
                .unwrap_or(STOP_CONCURRENCY_DEFAULT),
            deadlines: file.deadlines.over(Deadlines::default()),
            devices_max: file.limits.devices_max.unwrap_or(DEVICES_MAX_DEFAULT),
            api: Limits {
                connections_max,
                changes_max: file.limits.changes_max.unwrap_or(changes_default),
                ..defaults
            },
            logs: args.logs,
        }
    }
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
        ConfigError::Parse {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            message: error.message().to_owned(),
        }
    })?;
    file.check(path)?;
    Ok(file)
}

impl File {
    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let limits = &self.limits;
        let count = |key, value: Option<usize>, max| (key, value.map(|value| value as u64), max);
        let ranges = [
            ("shards", self.shards.map(u64::from), u64::from(SHARDS_MAX)),
            count("limits.devices_max", limits.devices_max, DEVICES_MAX_MAX),
            count(
                "limits.connections_max",
                limits.connections_max,
                CONNECTIONS_MAX_MAX,
            ),
            count(
                "limits.changes_max",
                limits.changes_max,
                CONNECTIONS_MAX_MAX,
            ),
        ];
        let deadlines = self
            .deadlines
            .entries()
            .map(|(key, value)| (key, value, DEADLINE_S_MAX));
        for (key, value, max) in ranges.into_iter().chain(deadlines) {
            if value.is_some_and(|value| value < 1 || value > max) {
                let range = format!("1 to {max}");
                return Err(ConfigError::Range {
                    path: path.to_owned(),
                    key,
                    range,
                });
            }
        }
        Ok(())
    }
}

impl FileDeadlines {
    fn entries(&self) -> [(&'static str, Option<u64>); 12] {
        [
            ("deadlines.open_s", self.open_s),
            ("deadlines.journal_s", self.journal_s),
            ("deadlines.add_s", self.add_s),
            ("deadlines.attach_s", self.attach_s),
            ("deadlines.start_s", self.start_s),
            ("deadlines.publish_s", self.publish_s),
            ("deadlines.drain_s", self.drain_s),
            ("deadlines.abandon_s", self.abandon_s),
            ("deadlines.stop_s", self.stop_s),
            ("deadlines.delete_s", self.delete_s),
            ("deadlines.await_gone_s", self.await_gone_s),
            ("deadlines.close_s", self.close_s),
        ]
    }

    fn over(&self, defaults: Deadlines) -> Deadlines {
        let pick = |seconds: Option<u64>, default| seconds.map_or(default, Duration::from_secs);
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
            ("shards = 'two'\n", ["string", "line 1"]),
            ("shards = \n", ["line 1", "not understood"]),
            ("shards = 0\n", ["shards must be", "1 to 128"]),
            ("shards = 129\n", ["shards must be", "1 to 128"]),
            (
                "[deadlines]\nstop_s = 0\n",
                ["deadlines.stop_s must be", "1 to 86400"],
            ),
            (
                "[limits]\nconnections_max = 0\n",
                ["limits.connections_max", "1 to 65536"],
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
        assert!(
            file.deadlines
                .entries()
                .iter()
                .all(|(_, value)| value.is_some())
        );
        let from_file = Settings::combine(ServeArgs::default(), file);
        let shards = from_file.shards;
        let defaults = Settings {
            shards,
            ..Settings::load(ServeArgs::default()).unwrap()
        };
        assert_eq!(format!("{from_file:?}"), format!("{defaults:?}"));
    }
}
