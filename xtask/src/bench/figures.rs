//! Figures: what a process weighs, medians, and how they are written.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Clock ticks per second in /proc, the same on every x86-64 kernel.
const TICKS_PER_S: f64 = 100.0;

/// What a process costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weight {
    pub(crate) rss_kib: u64,
    /// The part of it that is the process's own memory, not mapped files.
    pub(crate) anonymous_kib: u64,
    pub(crate) files: usize,
    /// Threads by name, io_uring's workers among them.
    pub(crate) threads: BTreeMap<String, usize>,
    /// User and system time since the start.
    pub(crate) cpu_s: f64,
}

impl Weight {
    pub(crate) fn of(process: u32) -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            fs::read_to_string(&path).with_context(|| format!("read {path}"))
        };
        let status = read("status")?;
        let mut threads = BTreeMap::new();
        let tasks = fs::read_dir(format!("/proc/{process}/task")).context("read the threads")?;
        for task in tasks {
            let comm = fs::read_to_string(task.context("read a thread")?.path().join("comm"));
            // A thread may end while it is looked at.
            let name = comm.unwrap_or_default();
            *threads.entry(family(name.trim()).to_owned()).or_default() += 1;
        }
        let files = fs::read_dir(format!("/proc/{process}/fd")).context("read the files")?;
        Ok(Self {
            rss_kib: field(&status, "VmRSS:")?,
            anonymous_kib: field(&status, "RssAnon:")?,
            files: files.count(),
            threads,
            cpu_s: cpu_s(&read("stat")?, 14).context("read the CPU time")?,
        })
    }

    /// Threads that the process has made itself.
    pub(crate) fn own_threads(&self) -> usize {
        self.threads
            .iter()
            .filter(|(name, _)| !name.starts_with("iou-"))
            .map(|(_, count)| count)
            .sum()
    }
}

/// User and system time of children that have been waited for.
pub(crate) fn children_cpu_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("read the CPU time")?;
    cpu_s(&stat, 16).context("read the CPU time")
}

/// Field `first` (counted from 1 as in proc(5)) and the next, in seconds.
fn cpu_s(stat: &str, first: usize) -> Option<f64> {
    // The second field is a name in parentheses that may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = |field: usize| rest.split_whitespace().nth(field - 3)?.parse::<f64>().ok();
    Some((ticks(first)? + ticks(first + 1)?) / TICKS_PER_S)
}

/// `shard-3` and `iou-wrk-77` without their numbers.
fn family(name: &str) -> &str {
    name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '-')
}

fn field(status: &str, name: &str) -> Result<u64> {
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .with_context(|| format!("no {name} in the status"))
}

/// The median, of an even number the mean of the middle two; zero of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or_default();
    f64::midpoint(at(values.len().saturating_sub(1) / 2), at(values.len() / 2))
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_weighed() {
        let weight = Weight::of(std::process::id()).unwrap();
        assert!(weight.rss_kib > weight.anonymous_kib && weight.anonymous_kib > 0);
        assert!(weight.files >= 3 && weight.own_threads() >= 2, "{weight:?}");
    }

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 25 75 20 0";
        assert_eq!(cpu_s(stat, 14), Some(2.0));
        assert_eq!(cpu_s(stat, 16), Some(1.0));
        assert_eq!(cpu_s("nothing", 14), None);
    }

    #[test]
    fn names_lose_their_numbers_and_medians_need_no_order() {
        assert_eq!(
            (family("shard-12"), family("iou-wrk-9"), family("x")),
            ("shard", "iou-wrk", "x")
        );
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).abs() < f64::EPSILON);
    }
}
