//! The daemon's state as Prometheus text.
//!
//! Nothing is counted here: each scrape renders one snapshot of what the status and the devices tell. A device costs
//! about 1 KB of text; the label is its name, which is bounded in length and characters.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use crate::service::MetricsSource;
use crate::v1::{Device, Shard, Status};

/// The media type of the Prometheus text format.
pub const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders the snapshot.
///
/// # Errors
///
/// Only if the encoder fails, which writing to memory does not.
pub fn render(source: MetricsSource) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("blockyard");
    registry.register_collector(Box::new(Exposition(source)));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Exposition(MetricsSource);

/// One series per device: name, help, and the counter it reads.
type DeviceCounter = (&'static str, &'static str, fn(&Device) -> u64);

const DEVICE_COUNTERS: [DeviceCounter; 9] = [
    ("device_reads", "Completed reads", |d| d.stats.reads),
    ("device_writes", "Completed writes", |d| d.stats.writes),
    ("device_flushes", "Completed flushes", |d| d.stats.flushes),
    ("device_discards", "Completed discards", |d| {
        d.stats.discards
    }),
    (
        "device_write_zeroes",
        "Completed write-zeroes requests",
        |d| d.stats.write_zeroes,
    ),
    ("device_read_bytes", "Bytes read", |d| d.stats.read_bytes),
    ("device_written_bytes", "Bytes written", |d| {
        d.stats.written_bytes
    }),
    (
        "device_zero_copy_bytes",
        "Bytes of reads that were not copied",
        |d| d.stats.zero_copy_bytes,
    ),
    ("device_errors", "Requests answered with an error", |d| {
        d.stats.errors
    }),
];

const DEVICE_GAUGES: [DeviceCounter; 2] = [
    ("device_in_flight", "Requests being served", |d| {
        d.stats.in_flight
    }),
    ("device_size_bytes", "Size of the device in bytes", |d| {
        d.size_bytes.unwrap_or(0)
    }),
];

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.encode_daemon(&mut encoder)?;
        let devices = &self.0.devices;
        for (name, help, read) in DEVICE_COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for device in devices {
                let labels = [("device", device.name.as_str())];
                ConstCounter::new(read(device)).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in DEVICE_GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for device in devices {
                let labels = [("device", device.name.as_str())];
                family.encode_family(&labels)?.encode_gauge(&read(device))?;
            }
        }
        Ok(())
    }
}

impl Exposition {
    fn encode_daemon(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.0.status;
        encoder
            .encode_descriptor(
                "info",
                "Version of the daemon and of the kernel",
                None,
                MetricType::Gauge,
            )?
            .encode_family(&[
                ("version", status.version.as_str()),
                ("kernel", status.kernel.release.as_str()),
                ("copy_mode", status.kernel.copy_mode.as_str()),
            ])?
            .encode_gauge(&1)?;
        encoder
            .encode_descriptor(
                "uptime_seconds",
                "Seconds since the daemon started",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&status.uptime_s)?;
        encode_counts(encoder, status)?;
        encode_limits(encoder, status)?;
        encode_shards(encoder, status)?;
        encode_progress(encoder, status)
    }
}

fn encode_counts(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let counts = &status.devices;
    let mut family =
        encoder.encode_descriptor("devices", "Devices by state", None, MetricType::Gauge)?;
    for (state, count) in [
        ("live", counts.live),
        ("creating", counts.creating),
        ("stopping", counts.stopping),
        ("quarantined", counts.quarantined),
    ] {
        family
            .encode_family(&[("state", state)])?
            .encode_gauge(&count)?;
    }
    let findings = u64::try_from(status.findings.len()).unwrap_or(u64::MAX);
    encoder
        .encode_descriptor(
            "findings",
            "Devices found at start and left alone",
            None,
            MetricType::Gauge,
        )?
        .encode_gauge(&findings)
}

fn encode_limits(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let mut family =
        encoder.encode_descriptor("limit", "The most there can be", None, MetricType::Gauge)?;
    for limit in &status.limits {
        family
            .encode_family(&[("name", limit.name.as_str())])?
            .encode_gauge(&limit.limit)?;
    }
    let mut family = encoder.encode_descriptor(
        "in_use",
        "How much of a limit is in use",
        None,
        MetricType::Gauge,
    )?;
    for limit in &status.limits {
        family
            .encode_family(&[("name", limit.name.as_str())])?
            .encode_gauge(&limit.in_use)?;
    }
    Ok(())
}

/// One series per shard: name, help, and the figure it reads.
type ShardGauge = (&'static str, &'static str, fn(&Shard) -> u64);

fn encode_shards(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let gauges: [ShardGauge; 8] = [
        ("shard_devices", "Devices a shard serves queues of", |s| {
            s.devices
        }),
        ("shard_in_flight", "Requests a shard is serving", |s| {
            s.in_flight
        }),
        ("shard_buffers", "I/O buffers in use", |s| s.buffers.in_use),
        ("shard_buffers_limit", "I/O buffers at most", |s| {
            s.buffers.limit
        }),
        (
            "shard_operations",
            "Operations on files and disks below under way",
            |s| s.operations.in_use,
        ),
        (
            "shard_operations_limit",
            "Operations on files and disks below at most",
            |s| s.operations.limit,
        ),
        ("shard_slots", "Tags that have a slot for zero copy", |s| {
            s.slots.in_use
        }),
        ("shard_slots_limit", "Slots for zero copy", |s| {
            s.slots.limit
        }),
    ];
    for (name, help, read) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for shard in &status.shards {
            family
                .encode_family(&[("shard", shard.index)])?
                .encode_gauge(&read(shard))?;
        }
    }
    Ok(())
}

fn encode_progress(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let Some(progress) = &status.shutdown else {
        return Ok(());
    };
    for (name, help, value) in [
        ("stop_total", "Devices to take down", progress.total),
        ("stop_done", "Devices taken down or failed", progress.done),
    ] {
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{
        DeviceCounts, DeviceState, DeviceStats, Kernel, Limit, StopProgress, TeardownOrder, Usage,
    };

    fn source() -> MetricsSource {
        let status = Status {
            version: "1.2.3".to_owned(),
            pid: 7,
            uptime_s: 60,
            kernel: Kernel {
                release: "6.12.0".to_owned(),
                features: Vec::new(),
                teardown_order: TeardownOrder::CloseThenDelete,
                copy_mode: "plain".to_owned(),
            },
            shards: vec![Shard {
                index: 3,
                devices: 1,
                wake_ups: 0,
                in_flight: 2,
                buffers: Usage {
                    in_use: 40,
                    limit: 80,
                },
                operations: Usage {
                    in_use: 3,
                    limit: 257,
                },
                slots: Usage {
                    in_use: 64,
                    limit: 128,
                },
            }],
            limits: vec![Limit {
                name: "devices".to_owned(),
                in_use: 1,
                limit: 10,
            }],
            devices: DeviceCounts {
                live: 1,
                ..DeviceCounts::default()
            },
            shutdown: Some(StopProgress {
                total: 5,
                done: 2,
                ..StopProgress::default()
            }),
            findings: Vec::new(),
        };
        MetricsSource {
            status,
            devices: vec![device()],
        }
    }

    fn device() -> Device {
        Device {
            name: "web".to_owned(),
            spec: "null:1M".to_owned(),
            state: DeviceState::Live,
            step: None,
            path: None,
            link: "/dev/blockyard/web".to_owned(),
            id: Some(0),
            size_bytes: Some(1 << 20),
            read_only: false,
            queues: 1,
            depth: 64,
            copy_mode: None,
            shards: vec![3],
            created_at: None,
            stats: DeviceStats {
                reads: 11,
                zero_copy_bytes: 7,
                in_flight: 2,
                ..DeviceStats::default()
            },
            failure: None,
        }
    }

    #[test]
    fn every_figure_of_the_snapshot_is_a_series() {
        let text = render(source()).unwrap();
        for line in [
            "blockyard_info{version=\"1.2.3\",kernel=\"6.12.0\",copy_mode=\"plain\"} 1",
            "blockyard_device_reads_total{device=\"web\"} 11",
            "blockyard_device_in_flight{device=\"web\"} 2",
            "blockyard_device_size_bytes{device=\"web\"} 1048576",
            "blockyard_devices{state=\"live\"} 1",
            "blockyard_limit{name=\"devices\"} 10",
            "blockyard_in_use{name=\"devices\"} 1",
            "blockyard_shard_buffers{shard=\"3\"} 40",
            "blockyard_shard_operations{shard=\"3\"} 3",
            "blockyard_shard_operations_limit{shard=\"3\"} 257",
            "blockyard_shard_slots{shard=\"3\"} 64",
            "blockyard_shard_slots_limit{shard=\"3\"} 128",
            "blockyard_device_zero_copy_bytes_total{device=\"web\"} 7",
            "blockyard_stop_done 2",
            "blockyard_uptime_seconds 60",
            "# TYPE blockyard_device_reads_total counter",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} not in\n{text}"
            );
        }
    }
}
