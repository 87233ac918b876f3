//! `blockyard list` and `blockyard inspect`.

use api::v1::{ByteSize, Device, Problem};

use super::{Daemon, table};
use crate::output::{self, Format};

pub(super) async fn list(daemon: &Daemon) -> Result<(), Problem> {
    let list = daemon.client.list().await?;
    match daemon.format {
        Format::Json => output::print_json(&list),
        Format::Human => output::print(&listing(&list.devices)),
    }
}

pub(super) async fn inspect(name: &str, daemon: &Daemon) -> Result<(), Problem> {
    let device = daemon.client.inspect(name).await?;
    match daemon.format {
        Format::Json => output::print_json(&device),
        Format::Human => output::print(&description(&device)),
    }
}

fn listing(devices: &[Device]) -> String {
    let header = ["NAME", "STATE", "PATH", "SIZE", "MODE", "QUEUES", "SPEC"].map(str::to_owned);
    let rows = devices.iter().map(|device| {
        [
            device.name.clone(),
            state(device),
            device.path.clone().unwrap_or_else(|| "-".to_owned()),
            size(device),
            mode(device).to_owned(),
            format!("{}x{}", device.queues, device.depth),
            device.spec.clone(),
        ]
    });
    table::columns(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
}

fn description(device: &Device) -> String {
    let stats = &device.stats;
    let shards: Vec<_> = device.shards.iter().map(u32::to_string).collect();
    let mut rows = vec![
        ["name", &device.name].map(str::to_owned),
        ["spec", &device.spec].map(str::to_owned),
        ["state".to_owned(), state(device)],
        ["path", device.path.as_deref().unwrap_or("-")].map(str::to_owned),
        ["link", &device.link].map(str::to_owned),
        ["size".to_owned(), size(device)],
        ["mode", mode(device)].map(str::to_owned),
        [
            "queues".to_owned(),
            format!("{} of depth {}", device.queues, device.depth),
        ],
        ["copy mode", device.copy_mode.as_deref().unwrap_or("-")].map(str::to_owned),
        ["shards".to_owned(), shards.join(" ")],
        ["created", device.created_at.as_deref().unwrap_or("-")].map(str::to_owned),
        [
            "reads".to_owned(),
            format!(
                "{} ({} bytes, {} by zero copy)",
                stats.reads, stats.read_bytes, stats.zero_copy_bytes
            ),
        ],
        [
            "writes".to_owned(),
            format!("{} ({} bytes)", stats.writes, stats.written_bytes),
        ],
        ["flushes".to_owned(), stats.flushes.to_string()],
        ["discards".to_owned(), stats.discards.to_string()],
        ["write-zeroes".to_owned(), stats.write_zeroes.to_string()],
        ["errors".to_owned(), stats.errors.to_string()],
        ["in flight".to_owned(), stats.in_flight.to_string()],
    ];
    if let Some(failure) = &device.failure {
        let text = format!(
            "{} after {} ms: {}",
            failure.step, failure.elapsed_ms, failure.error
        );
        rows.push(["failure".to_owned(), text]);
    }
    table::columns(&rows)
}

fn state(device: &Device) -> String {
    match &device.step {
        Some(step) => format!("{} ({step})", device.state.as_str()),
        None => device.state.as_str().to_owned(),
    }
}

fn size(device: &Device) -> String {
    device
        .size_bytes
        .map_or_else(|| "-".to_owned(), |bytes| ByteSize(bytes).to_string())
}

const fn mode(device: &Device) -> &'static str {
    if device.read_only { "ro" } else { "rw" }
}

#[cfg(test)]
mod tests {
    use api::v1::{DeviceState, DeviceStats, Failure};

    use super::*;

    fn device() -> Device {
        Device {
            name: "web".to_owned(),
            spec: "raw:/srv/web.img".to_owned(),
            state: DeviceState::Quarantined,
            step: Some("delete".to_owned()),
            path: None,
            link: "/dev/blockyard/web".to_owned(),
            id: None,
            size_bytes: Some(8 << 30),
            read_only: true,
            queues: 2,
            depth: 64,
            copy_mode: None,
            shards: vec![0, 1],
            created_at: None,
            stats: DeviceStats::default(),
            failure: Some(Failure {
                step: "delete".to_owned(),
                error: "no answer".to_owned(),
                elapsed_ms: 30_000,
            }),
        }
    }

    #[test]
    fn a_device_is_one_line_of_the_list() {
        let text = listing(&[device()]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("NAME  STATE"));
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            [
                "web",
                "quarantined",
                "(delete)",
                "-",
                "8G",
                "ro",
                "2x64",
                "raw:/srv/web.img"
            ]
        );
    }

    #[test]
    fn a_failure_is_shown_with_its_step() {
        assert!(description(&device()).contains("failure       delete after 30000 ms: no answer"));
    }
}
