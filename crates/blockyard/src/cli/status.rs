//! `blockyard status`.

use api::v1::{Problem, Status, StopProgress};

use super::{Daemon, table};
use crate::output::{self, Format};

pub(super) async fn run(daemon: &Daemon) -> Result<(), Problem> {
    let status = daemon.client.status().await?;
    match daemon.format {
        Format::Json => output::print_json(&status),
        Format::Human => output::print(&description(&status)),
    }
}

fn description(status: &Status) -> String {
    let kernel = &status.kernel;
    let counts = &status.devices;
    let row = |key: &str, value: String| [key.to_owned(), value];
    let mut rows = vec![
        row(
            "daemon",
            format!("blockyard {}, process {}", status.version, status.pid),
        ),
        row("up", uptime(status.uptime_s)),
        row("kernel", kernel.release.clone()),
        row("features", kernel.features.join(" ")),
        row("teardown", kernel.teardown_order.as_str().to_owned()),
        row("copy mode", kernel.copy_mode.clone()),
        row(
            "devices",
            format!(
                "{} live, {} creating, {} stopping, {} quarantined",
                counts.live, counts.creating, counts.stopping, counts.quarantined
            ),
        ),
    ];
    rows.extend(status.shards.iter().map(|shard| {
        let (buffers, operations, slots) = (shard.buffers, shard.operations, shard.slots);
        row(
            &format!("shard {}", shard.index),
            format!(
                "{} devices, {} in flight, {} of {} buffers, {} of {} operations below, {} tags on {} slots",
                shard.devices,
                shard.in_flight,
                buffers.in_use,
                buffers.limit,
                operations.in_use,
                operations.limit,
                slots.in_use,
                slots.limit
            ),
        )
    }));
    rows.extend(status.limits.iter().map(|limit| {
        row(
            &format!("limit {}", limit.name),
            format!("{} of {}", limit.in_use, limit.limit),
        )
    }));
    if let Some(progress) = &status.shutdown {
        rows.extend(stopping(progress));
    }
    rows.extend(
        status
            .findings
            .iter()
            .map(|finding| row("found", format!("device {}: {}", finding.id, finding.what))),
    );
    table::columns(&rows)
}

fn stopping(progress: &StopProgress) -> impl Iterator<Item = [String; 2]> {
    let row = |key: &str, value: String| [key.to_owned(), value];
    let total = row(
        "stopping",
        format!("{} of {} done", progress.done, progress.total),
    );
    let in_progress = progress.in_progress.iter().map(move |step| {
        row(
            "",
            format!("{}: {} for {} ms", step.name, step.step, step.since_ms),
        )
    });
    let failed = progress.failed.iter().map(move |failure| {
        row(
            "failed",
            format!("{}: {}: {}", failure.name, failure.step, failure.error),
        )
    });
    std::iter::once(total).chain(in_progress).chain(failed)
}

fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", seconds % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_has_two_units() {
        for (seconds, text) in [
            (59, "0 min 59 s"),
            (3_700, "1 h 1 min"),
            (90_061, "1 d 1 h"),
        ] {
            assert_eq!(uptime(seconds), text);
        }
    }
}
