//! The VM stage, seen from the host: build the test programs once, boot one machine per kernel, count what comes back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testvm::{GUEST_VARIABLE, GuestJob, KERNELS_VARIABLE, KernelLog, KernelSeries, Place, kernel};

use crate::cargo::{self, Metadata};
use crate::console::{self, say};
use crate::host_tests::VM_PREFIX;
use crate::plan::{End, PLAN_FILE, PlannedTest, RESULTS_FILE, TestResult};
use crate::tally::Tally;

/// The most time for one kernel: two kernels and the builds must fit in an hour.
const KERNEL_LIMIT: Duration = Duration::from_secs(22 * 60);
/// The build profile of what runs under emulation: optimised, with the checks kept.
const PROFILE: &str = "test-vm";
/// Where tests find the daemon's binary.
const BINARY_VARIABLE: &str = "BLOCKYARD_BIN";

/// What every kernel's run shares.
struct Stage {
    tests: Vec<PlannedTest>,
    binary: PathBuf,
    target_dir: PathBuf,
}

/// Runs the tests that need a kernel on every kernel of the place.
pub(crate) fn run(place: &Place, only: Option<&str>, tally: &mut Tally) -> Result<()> {
    let stage = console::stage("build for the machines", || Stage::build(only, tally))?;
    match place {
        Place::Host => console::stage("tests on the running kernel", || stage.run_on_host(tally)),
        Place::Guests(all) => {
            let mut failed = Vec::new();
            for series in all {
                let run = || stage.run_in_guest(*series, tally);
                if let Err(error) = console::stage(&format!("tests on kernel {series}"), run) {
                    failed.push(format!("{series}: {error:#}"));
                }
            }
            if !failed.is_empty() {
                bail!("{}", failed.join("; "));
            }
            Ok(())
        }
    }
}

impl Stage {
    fn build(only: Option<&str>, tally: &mut Tally) -> Result<Self> {
        let metadata = Metadata::load()?;
        let names = metadata.integration_tests(|name| name.starts_with(VM_PREFIX));
        let mut arguments = vec!["test", "--workspace", "--no-run", "--profile", PROFILE];
        for name in &names {
            arguments.extend(["--test", name]);
        }
        let mut tests = Vec::new();
        for artifact in cargo::build(&arguments)? {
            let Some(program) = artifact.executable else {
                continue;
            };
            if !artifact.target.name.starts_with(VM_PREFIX) {
                continue;
            }
            let dir = artifact.manifest_path.parent().unwrap_or(Path::new("/"));
            let package = dir.file_name().unwrap_or_default().to_string_lossy();
            let group = format!("{package}::{}", artifact.target.name);
            let ignored = list(&program, &["--ignored"])?;
            for name in list(&program, &[])? {
                if only.is_some_and(|text| !format!("{group} {name}").contains(text)) {
                    continue;
                }
                if ignored.contains(&name) {
                    say(&format!("SKIP {group} {name}: marked as ignored"));
                    tally.skipped += 1;
                    continue;
                }
                tests.push(PlannedTest {
                    group: group.clone(),
                    name,
                    program: program.clone(),
                    dir: dir.to_owned(),
                });
            }
        }
        tests.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
        Ok(Self {
            tests,
            binary: cargo::build_binary("blockyard", PROFILE)?,
            target_dir: metadata.target_directory,
        })
    }

    /// Writes the plan and returns the command that carries it out.
    fn prepare(&self, dir: &Path, seen_as: &Path) -> Result<[String; 3]> {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let plan = dir.join(PLAN_FILE);
        let text = serde_json::to_vec_pretty(&self.tests)?;
        fs::write(&plan, text).with_context(|| format!("write {}", plan.display()))?;
        let own = std::env::current_exe().context("find this program")?;
        let plan = seen_as.join(PLAN_FILE);
        Ok([
            own.to_string_lossy().into_owned(),
            "guest-tests".to_owned(),
            plan.to_string_lossy().into_owned(),
        ])
    }

    fn run_in_guest(&self, series: KernelSeries, tally: &mut Tally) -> Result<()> {
        let kernel = kernel::ensure(series)?;
        let out = self.target_dir.join("testvm").join(series.to_string());
        let mut job = GuestJob::new(self.prepare(&out, Path::new("/out"))?);
        job.timeout = KERNEL_LIMIT;
        job.memory_mib = 4096;
        job.dir = cargo::workspace_root().to_owned();
        job.keep = vec![self.target_dir.clone()];
        job.env = vec![
            (GUEST_VARIABLE.to_owned(), "1".to_owned()),
            (
                BINARY_VARIABLE.to_owned(),
                self.binary.to_string_lossy().into_owned(),
            ),
            ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
        ];
        say(&format!(
            "{} tests on {}",
            self.tests.len(),
            kernel.release()
        ));
        let ran = testvm::run(&kernel, &job, &out, &mut console::output());
        let missing = self.count(&out, tally)?;
        let outcome = ran?;
        let clean = check_kernel_log(&outcome.kernel_log, &out);
        if outcome.status != 0 {
            bail!("the guest's side ended with status {}", outcome.status);
        }
        if missing > 0 {
            bail!("{missing} tests did not run");
        }
        clean
    }

    fn run_on_host(&self, tally: &mut Tally) -> Result<()> {
        let out = self.target_dir.join("testvm").join("host");
        let [program, task, plan] = self.prepare(&out, &out)?;
        let status = Command::new(program)
            .args([task, plan])
            .env(KERNELS_VARIABLE, "host")
            .env(BINARY_VARIABLE, &self.binary)
            .status()
            .context("start the tests")?;
        let missing = self.count(&out, tally)?;
        if !status.success() || missing > 0 {
            bail!("the tests ended with {status}, {missing} did not run");
        }
        Ok(())
    }

    /// Adds the results up; a test without one counts as failed. Returns how many had none.
    fn count(&self, out: &Path, tally: &mut Tally) -> Result<usize> {
        let text = fs::read_to_string(out.join(RESULTS_FILE)).unwrap_or_default();
        let (counted, missing) = count(&self.tests, &text)?;
        for test in &missing {
            say(&format!(
                "FAIL {} {}: it did not end",
                test.group, test.name
            ));
        }
        say(&format!("{counted} here"));
        *tally += counted;
        Ok(missing.len())
    }
}

/// Adds up the lines of a result file against the plan.
fn count<'a>(planned: &'a [PlannedTest], results: &str) -> Result<(Tally, Vec<&'a PlannedTest>)> {
    let mut tally = Tally::default();
    let mut results: Vec<TestResult> = results
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .context("read the results")?;
    let mut missing = Vec::new();
    for test in planned {
        let found = results
            .iter()
            .position(|result| result.group == test.group && result.name == test.name);
        let end = found.map(|index| results.swap_remove(index).end);
        match end {
            Some(End::Passed) => tally.passed += 1,
            Some(End::Skipped) => tally.skipped += 1,
            Some(End::Failed) => tally.failed += 1,
            None => {
                tally.failed += 1;
                missing.push(test);
            }
        }
    }
    Ok((tally, missing))
}

fn check_kernel_log(log: &KernelLog, out: &Path) -> Result<()> {
    let complaints = log.complaints();
    for complaint in complaints.iter().take(20) {
        say(&format!("kernel: {}", complaint.text));
    }
    if !complaints.is_empty() {
        bail!(
            "the kernel complained {} times; see {}",
            complaints.len(),
            out.join("kernel.log").display()
        );
    }
    Ok(())
}

/// Names of a program's tests.
fn list(program: &Path, flags: &[&str]) -> Result<Vec<String>> {
    let output = Command::new(program)
        .args(["--list", "--format", "terse"])
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    if !output.status.success() {
        bail!("{} --list ended with {}", program.display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(name: &str) -> PlannedTest {
        PlannedTest {
            group: "p::vm_x".to_owned(),
            name: name.to_owned(),
            program: "/p".into(),
            dir: "/".into(),
        }
    }

    #[test]
    fn results_are_counted_and_missing_ones_are_failures() {
        let tests = ["a", "b", "c", "d"].map(planned);
        let line = |name: &str, end| {
            let result = TestResult {
                group: "p::vm_x".to_owned(),
                name: name.to_owned(),
                end,
            };
            serde_json::to_string(&result).unwrap() + "\n"
        };
        let results = line("b", End::Skipped) + &line("a", End::Passed) + &line("c", End::Failed);
        let (tally, missing) = count(&tests, &results).unwrap();
        assert_eq!(tally.to_string(), "1 passed, 2 failed, 1 skipped");
        assert_eq!(missing, [&tests[3]]);
    }

    #[test]
    fn a_torn_result_file_is_an_error_and_an_absent_one_fails_everything() {
        let tests = ["a", "b"].map(planned);
        assert!(count(&tests, "{\"group\":").is_err());
        let (tally, missing) = count(&tests, "").unwrap();
        assert_eq!(tally.failed, 2);
        assert_eq!(missing.len(), 2);
    }
}
