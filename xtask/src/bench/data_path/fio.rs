//! One measurement: fio on a device, and the instructions per I/O that follow from its IOPS.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Options;
use super::command::output;
use super::range::RANGE_BYTES;

/// A guest's second, in instructions.
const INSTRUCTIONS_PER_S: f64 = 1e9;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    pub(crate) const ALL: [Self; 2] = [Self::Read, Self::Write];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "randread",
            Self::Write => "randwrite",
        })
    }
}

/// The part of fio's report that is used.
#[derive(Debug, Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    error: i32,
    read: Side,
    write: Side,
}

#[derive(Debug, Deserialize)]
struct Side {
    iops: f64,
}

/// Instructions per I/O of client, kernel and server together.
pub(crate) fn instructions(device: &Path, direction: Direction, options: &Options) -> Result<f64> {
    let mut command = Command::new("fio");
    command
        .args([
            "--name=bench",
            "--output-format=json",
            "--ioengine=io_uring",
        ])
        .args(["--direct=1", "--bs=4k", "--time_based"])
        .arg(format!("--iodepth={}", options.depth))
        .arg(format!("--rw={direction}"))
        .arg(format!("--size={RANGE_BYTES}"))
        .arg(format!("--runtime={}", options.runtime))
        .arg(format!("--filename={}", device.display()));
    let report = output(&mut command)?;
    from_report(&report, direction)
}

fn from_report(report: &str, direction: Direction) -> Result<f64> {
    let report: Report = serde_json::from_str(report).context("read fio's report")?;
    let job = report.jobs.first().context("fio reports no job")?;
    let iops = match direction {
        Direction::Read => job.read.iops,
        Direction::Write => job.write.iops,
    };
    ensure!(
        job.error == 0 && iops > 0.0,
        "fio reports error {} and {iops} IOPS",
        job.error
    );
    Ok(INSTRUCTIONS_PER_S / iops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_follow_from_the_iops_of_the_direction() {
        let report = |error: i32| {
            format!(
                r#"{{"jobs":[{{"error":{error},"read":{{"iops":100000.0}},"write":{{"iops":0}}}}]}}"#
            )
        };
        let cost = from_report(&report(0), Direction::Read).unwrap();
        assert!((cost - 10_000.0).abs() < 1e-6, "{cost}");
        assert!(from_report(&report(0), Direction::Write).is_err());
        assert!(from_report(&report(5), Direction::Read).is_err());
        assert!(from_report("{}", Direction::Read).is_err());
    }
}
