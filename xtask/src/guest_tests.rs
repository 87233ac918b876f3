//! The guest's side of the VM stage: each test in a process of its own, with a time limit, an eye on the kernel's log
//! and on devices that it leaves behind.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use testvm::{Child, Deadline, KernelLog, Waited};

use crate::console::say;
use crate::plan::{End, FIGURES, PlannedTest, RESULTS_FILE, TestResult};

/// How long a killed test may take to die: longer means that the kernel holds it.
const KILL_LIMIT: Duration = Duration::from_secs(30);
/// Names in sysfs of ublk devices that exist.
const DEVICES: &str = "/sys/class/ublk-char";

/// Runs every test of the plan, in its order.
pub(crate) fn run(plan: &Path) -> Result<()> {
    let text = fs::read(plan).with_context(|| format!("read {}", plan.display()))?;
    let tests: Vec<PlannedTest> = serde_json::from_slice(&text).context("read the plan")?;
    let results = plan.with_file_name(RESULTS_FILE);
    let mut results =
        File::create(&results).with_context(|| format!("create {}", results.display()))?;
    for test in &tests {
        let clock = Deadline::after(Duration::from_secs(test.limit_s));
        let log = plan.with_file_name("test.log");
        let (end, why) = match run_one(test, &log, clock) {
            Ok(Verdict { end, why }) => (end, why),
            Err(error) => (End::Failed, Some(format!("{error:#}"))),
        };
        let word = match end {
            End::Passed => "PASS",
            End::Failed => "FAIL",
            End::Skipped => "SKIP",
        };
        say(&format!(
            "{word} [{:>6.1} s] {} {}",
            clock.elapsed().as_secs_f64(),
            test.group,
            test.name
        ));
        let output = fs::read(&log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let figures = figures(&output);
        if end == End::Passed {
            for line in &figures {
                say(&indent(line));
            }
        } else {
            say(&indent(&output));
        }
        if let Some(why) = why {
            say(&indent(&why));
        }
        let line = serde_json::to_string(&TestResult {
            group: test.group.clone(),
            name: test.name.clone(),
            end,
            figures,
        })?;
        writeln!(results, "{line}").context("write a result")?;
    }
    Ok(())
}

/// How a test ended, and what is wrong beside its own output.
struct Verdict {
    end: End,
    why: Option<String>,
}

fn run_one(test: &PlannedTest, log: &Path, deadline: Deadline) -> Result<Verdict> {
    let marker = format!("testvm: test {} {}", test.group, test.name);
    mark(&format!("testvm: expect nothing\n{marker}"))?;
    let devices_before = devices();
    let output = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let mut command = Command::new(&test.program);
    command
        .args(["--exact", &test.name, "--nocapture", "--test-threads=1"])
        .current_dir(&test.dir)
        .env("CARGO_MANIFEST_DIR", &test.dir)
        .stdin(Stdio::null())
        .stdout(output.try_clone().context("share the log")?)
        .stderr(output)
        // A group of its own, so that what it started can be ended with it.
        .process_group(0);
    let mut child = Child::spawn(&mut command)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let waited = child.wait(deadline)?;
    if waited == Waited::DeadlinePassed {
        // Every blocked task's stack goes to the kernel's log: that is where a hang shows its cause.
        fs::write("/proc/sysrq-trigger", "w").context("ask the kernel for blocked tasks")?;
    }
    if let Some(group) = group {
        // Fails when nothing of the group is left, which is the ordinary case.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if waited == Waited::DeadlinePassed
        && child.wait(Deadline::after(KILL_LIMIT))? == Waited::DeadlinePassed
    {
        child.abandon();
        bail!(
            "killed after {} s and does not die: the kernel holds it",
            test.limit_s
        );
    }
    let mut faults = Vec::new();
    match waited {
        Waited::Ended(status) if status.success() => {}
        Waited::Ended(status) => faults.push(format!("ended with {status}")),
        Waited::DeadlinePassed => faults.push(format!("killed after {} s", test.limit_s)),
    }
    let left: Vec<String> = devices()
        .into_iter()
        .filter(|device| !devices_before.contains(device))
        .collect();
    if !left.is_empty() {
        faults.push(format!("left devices behind: {}", left.join(" ")));
    }
    for complaint in kernel_log_since(&marker)?.complaints() {
        faults.push(format!("kernel: {}", complaint.text));
    }
    let text = fs::read_to_string(log).unwrap_or_default();
    let end = if !faults.is_empty() {
        End::Failed
    } else if says_skipped(&text) {
        End::Skipped
    } else {
        End::Passed
    };
    let why = (!faults.is_empty()).then(|| faults.join("\n"));
    Ok(Verdict { end, why })
}

/// Whether the test said that it was skipped: a line of its own, or what libtest puts behind the test's name.
fn says_skipped(output: &str) -> bool {
    output
        .lines()
        .any(|line| line.trim_start().starts_with("skipped: ") || line.contains(" ... skipped: "))
}

/// Lines of figures; the first one of a test's output stands behind the test's name.
fn figures(output: &str) -> Vec<String> {
    let lines = output.lines();
    lines
        .map(|line| line.split_once(" ... ").map_or(line, |(_, rest)| rest))
        .filter_map(|line| line.strip_prefix(FIGURES))
        .map(str::to_owned)
        .collect()
}

/// Writes lines to the kernel's log.
fn mark(lines: &str) -> Result<()> {
    for line in lines.lines() {
        fs::write("/dev/kmsg", line).context("write to the kernel's log")?;
    }
    Ok(())
}

fn kernel_log_since(marker: &str) -> Result<KernelLog> {
    let output = Command::new("dmesg")
        .stderr(Stdio::inherit())
        .output()
        .context("start dmesg")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let since = text
        .rsplit_once(marker)
        .map_or(text.as_ref(), |(_, since)| since);
    Ok(KernelLog::new(since))
}

fn devices() -> Vec<String> {
    let entries = fs::read_dir(DEVICES).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn indent(text: &str) -> String {
    text.trim_end()
        .lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_lines_of_their_own() {
        let output =
            "running 1 test\ntest a ... figures: 3 rounds\nno figures: 4\nfigures: 5 files\n";
        assert_eq!(figures(output), ["3 rounds", "5 files"]);
    }

    #[test]
    fn a_skip_is_told_from_words_that_look_like_one() {
        let cases = [
            (
                "running 1 test\ntest a ... skipped: a: no device\nok\n",
                true,
            ),
            ("skipped: no node\n", true),
            ("test a ... ok\n1 request was skipped: none lost\n", false),
            ("", false),
        ];
        for (output, want) in cases {
            assert_eq!(says_skipped(output), want, "{output}");
        }
    }
}
