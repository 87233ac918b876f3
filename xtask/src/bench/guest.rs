//! The guest's side: rounds in which every contender runs once, then the medians.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::daemon::Daemon;
use super::figures::{children_cpu_s, median, ms};
use super::options::Options;
use crate::console::say;

/// What the bare program prints.
#[derive(Debug, Deserialize)]
struct Bare {
    create_s: f64,
    stop_s: f64,
    gone_s: f64,
}

/// Figures by contender and name.
type Table = BTreeMap<(String, &'static str), Vec<f64>>;

/// Runs everything and prints the figures.
pub(crate) fn run(options: &Options, bare: &Path, daemon: &Path) -> Result<()> {
    let mut daemons = vec![daemon];
    daemons.extend(options.against.iter().map(std::path::PathBuf::as_path));
    let mut table = Table::new();
    for round in 1..=options.rounds {
        for recovery in [false, true] {
            run_bare(bare, options.devices, recovery, &mut table)?;
        }
        for (index, binary) in daemons.iter().enumerate() {
            for concurrency in &options.stop_concurrency {
                let contender = format!("daemon {index}, stop {concurrency}");
                let arguments = ["--stop-concurrency".to_owned(), concurrency.to_string()];
                run_daemon(&contender, (binary, &arguments), options, &mut table)
                    .with_context(|| format!("{contender}, round {round}"))?;
            }
        }
    }
    for ((contender, figure), values) in table {
        say(&format!(
            "median: {contender}: {figure} {:.2}",
            median(values)
        ));
    }
    if options.weigh_at.iter().any(|at| *at > 0) {
        for (index, binary) in daemons.iter().enumerate() {
            weigh(index, binary, options)?;
        }
    }
    Ok(())
}

fn run_bare(bare: &Path, devices: u32, recovery: bool, table: &mut Table) -> Result<()> {
    let mut command = Command::new(bare);
    command.args(["--devices", &devices.to_string()]);
    if recovery {
        command.arg("--recovery");
    }
    let output = command.output().context("start the bare program")?;
    ensure!(
        output.status.success(),
        "the bare program ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let contender = if recovery {
        "bare with recovery"
    } else {
        "bare"
    };
    let figures: Bare = serde_json::from_slice(&output.stdout).context("read its figures")?;
    let create_ms = figures.create_s * 1e3 / f64::from(devices);
    let Bare { stop_s, gone_s, .. } = figures;
    say(&format!(
        "{contender}: create {create_ms:.2} ms each, stop {stop_s:.2} s, all gone {gone_s:.2} s"
    ));
    for (figure, value) in [
        ("create ms each", create_ms),
        ("stop s", stop_s),
        ("all gone s", gone_s),
    ] {
        table
            .entry((contender.to_owned(), figure))
            .or_default()
            .push(value);
    }
    Ok(())
}

fn run_daemon(
    contender: &str,
    (binary, arguments): (&Path, &[String]),
    options: &Options,
    table: &mut Table,
) -> Result<()> {
    let devices = options.devices;
    let mut daemon = Daemon::start(binary, arguments)?;
    let before = daemon.weigh()?;
    let created = daemon.fill(devices, options.clients)?;
    let after = daemon.weigh()?;
    let children = children_cpu_s()?;
    let stop_s = daemon.stop()?.as_secs_f64();
    let stop_cpu_s = children_cpu_s()? - children - after.cpu_s;
    let create_ms = ms(created.total) / f64::from(devices);
    let request_ms = median(created.each.iter().copied().map(ms).collect());
    let create_cpu_s = after.cpu_s - before.cpu_s;
    say(&format!(
        "{contender}: create {create_ms:.2} ms each ({request_ms:.1} ms median of a request, {create_cpu_s:.2} s CPU), stop {stop_s:.2} s ({stop_cpu_s:.2} s CPU)"
    ));
    for (figure, value) in [
        ("create ms each", create_ms),
        ("request ms", request_ms),
        ("create CPU s", create_cpu_s),
        ("stop s", stop_s),
        ("stop CPU s", stop_cpu_s),
    ] {
        table
            .entry((contender.to_owned(), figure))
            .or_default()
            .push(value);
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
fn weigh(index: usize, binary: &Path, options: &Options) -> Result<()> {
    let mut daemon = Daemon::start(binary, &[])?;
    let empty = daemon.weigh()?;
    say(&format!(
        "daemon {index}: 0 devices: {} KiB RSS ({} anonymous), {} files, {} threads {:?}",
        empty.rss_kib,
        empty.anonymous_kib,
        empty.files,
        empty.own_threads(),
        empty.threads
    ));
    for at in &options.weigh_at {
        let created = daemon.fill(*at, options.clients)?;
        let now = daemon.weigh()?;
        let count = f64::from(*at);
        say(&format!(
            "daemon {index}: {at} devices: {} KiB RSS ({} anonymous), {} files, {} threads {:?}; per device {:.1} KiB, {:.2} files; {:.2} ms each to create",
            now.rss_kib,
            now.anonymous_kib,
            now.files,
            now.own_threads(),
            now.threads,
            (now.rss_kib as f64 - empty.rss_kib as f64) / count,
            (now.files as f64 - empty.files as f64) / count,
            ms(created.total) / created.each.len() as f64
        ));
    }
    let stop_s = daemon.stop()?.as_secs_f64();
    say(&format!("daemon {index}: stopped in {stop_s:.2} s"));
    Ok(())
}
