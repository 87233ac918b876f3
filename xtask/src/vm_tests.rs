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

/// The build profile of what runs under emulation: optimised, with the checks kept.
const PROFILE: &str = "test-vm";
/// Where tests find the daemon's binary.
const BINARY_VARIABLE: &str = "BLOCKYARD_BIN";

/// Which tests, and how.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    /// Those whose name contains this; else all.
    pub(crate) only: Option<&'a str>,
    /// Variables for them, besides those that every test gets.
    pub(crate) env: Vec<(String, String)>,
    /// The most time for one test.
    pub(crate) test_limit: Duration,
    /// The most time for one kernel.
    pub(crate) kernel_limit: Duration,
}

impl<'a> Selection<'a> {
    /// As `cargo xtask test` runs them. Emulation is 10 to 20 times slower than a machine, the longest test takes 3 minutes;
    /// two kernels and the builds must fit in an hour.
    pub(crate) fn ordinary(only: Option<&'a str>) -> Self {
        Self {
            only,
            env: Vec::new(),
            test_limit: Duration::from_secs(10 * 60),
            kernel_limit: Duration::from_secs(22 * 60),
        }
    }
}

/// A line of figures, and the kernel of the test that printed it.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) kernel: String,
    pub(crate) line: String,
}

/// What every kernel's run shares.
struct Stage {
    tests: Vec<PlannedTest>,
    binary: PathBuf,
    target_dir: PathBuf,
    env: Vec<(String, String)>,
    kernel_limit: Duration,
}

/// Runs the tests that need a kernel on every kernel of the place; returns what they printed as figures.
pub(crate) fn run(
    place: &Place,
    selection: &Selection<'_>,
    tally: &mut Tally,
) -> Result<Vec<Figures>> {
    let build = || Stage::build(selection, tally);
    let stage = console::stage("build for the machines", build)?;
    match place {
        Place::Host => console::stage("tests on the running kernel", || stage.run_on_host(tally)),
        Place::Guests(all) => {
            let (mut figures, mut failed) = (Vec::new(), Vec::new());
            for series in all {
                let run = || stage.run_in_guest(*series, tally);
                match console::stage(&format!("tests on kernel {series}"), run) {
                    Ok(lines) => figures.extend(lines),
                    Err(error) => failed.push(format!("{series}: {error:#}")),
                }
            }
            if !failed.is_empty() {
                bail!("{}", failed.join("; "));
            }
            Ok(figures)
        }
    }
}

impl Stage {
    fn build(selection: &Selection<'_>, tally: &mut Tally) -> Result<Self> {
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
                let is_left_out = |text| !format!("{group} {name}").contains(text);
                if selection.only.is_some_and(is_left_out) {
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
                    limit_s: selection.test_limit.as_secs(),
                });
            }
        }
        tests.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
        Ok(Self {
            tests,
            binary: cargo::build_binary("blockyard", PROFILE)?,
            target_dir: metadata.target_directory,
            env: selection.env.clone(),
            kernel_limit: selection.kernel_limit,
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

    fn run_in_guest(&self, series: KernelSeries, tally: &mut Tally) -> Result<Vec<Figures>> {
        let kernel = kernel::ensure(series)?;
        let out = self.target_dir.join("testvm").join(series.to_string());
        let mut job = GuestJob::new(self.prepare(&out, Path::new("/out"))?);
        job.timeout = self.kernel_limit;
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
        job.env.extend(self.env.iter().cloned());
        say(&format!(
            "{} tests on {}",
            self.tests.len(),
            kernel.release()
        ));
        let ran = testvm::run(&kernel, &job, &out, &mut console::output());
        let (figures, missing) = self.count(&out, tally)?;
        let outcome = ran?;
        let clean = check_kernel_log(&outcome.kernel_log, &out);
        if outcome.status != 0 {
            bail!("the guest's side ended with status {}", outcome.status);
        }
        if missing > 0 {
            bail!("{missing} tests did not run");
        }
        clean?;
        Ok(of_kernel(kernel.release(), figures))
    }

    fn run_on_host(&self, tally: &mut Tally) -> Result<Vec<Figures>> {
        let out = self.target_dir.join("testvm").join("host");
        let [program, task, plan] = self.prepare(&out, &out)?;
        let status = Command::new(program)
            .args([task, plan])
            .env(KERNELS_VARIABLE, "host")
            .env(BINARY_VARIABLE, &self.binary)
            .envs(self.env.iter().cloned())
            .status()
            .context("start the tests")?;
        let (figures, missing) = self.count(&out, tally)?;
        if !status.success() || missing > 0 {
            bail!("the tests ended with {status}, {missing} did not run");
        }
        Ok(of_kernel("the running kernel", figures))
    }

    /// Adds the results up; a test without one counts as failed. Returns the lines of figures, and how many tests had no
    /// result.
    fn count(&self, out: &Path, tally: &mut Tally) -> Result<(Vec<String>, usize)> {
        let text = fs::read_to_string(out.join(RESULTS_FILE)).unwrap_or_default();
        let results = parse(&text)?;
        let (counted, missing) = count(&self.tests, &results);
        for test in &missing {
            say(&format!(
                "FAIL {} {}: it did not end",
                test.group, test.name
            ));
        }
        say(&format!("{counted} here"));
        *tally += counted;
        let missing = missing.len();
        let figures = results.into_iter().flat_map(|result| result.figures);
        Ok((figures.collect(), missing))
    }
}

fn of_kernel(kernel: &str, lines: Vec<String>) -> Vec<Figures> {
    let figures = |line| Figures {
        kernel: kernel.to_owned(),
        line,
    };
    lines.into_iter().map(figures).collect()
}

/// The lines of a result file.
fn parse(text: &str) -> Result<Vec<TestResult>> {
    let results = text.lines().map(serde_json::from_str);
    results
        .collect::<Result<_, _>>()
        .context("read the results")
}

/// Adds up results against the plan.
fn count<'a>(planned: &'a [PlannedTest], results: &[TestResult]) -> (Tally, Vec<&'a PlannedTest>) {
    let mut tally = Tally::default();
    let mut missing = Vec::new();
    for test in planned {
        let found = results
            .iter()
            .find(|result| result.group == test.group && result.name == test.name);
        match found.map(|result| result.end) {
            Some(End::Passed) => tally.passed += 1,
            Some(End::Skipped) => tally.skipped += 1,
            Some(End::Failed) => tally.failed += 1,
            None => {
                tally.failed += 1;
                missing.push(test);
            }
        }
    }
    (tally, missing)
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
            limit_s: 1,
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
                figures: Vec::new(),
            };
            serde_json::to_string(&result).unwrap() + "\n"
        };
        let results = line("b", End::Skipped) + &line("a", End::Passed) + &line("c", End::Failed);
        let (tally, missing) = count(&tests, &parse(&results).unwrap());
        assert_eq!(tally.to_string(), "1 passed, 2 failed, 1 skipped");
        assert_eq!(missing, [&tests[3]]);
    }

    #[test]
    fn a_torn_result_file_is_an_error_and_an_absent_one_fails_everything() {
        let tests = ["a", "b"].map(planned);
        assert!(parse("{\"group\":").is_err());
        let (tally, missing) = count(&tests, &parse("").unwrap());
        assert_eq!(tally.failed, 2);
        assert_eq!(missing.len(), 2);
    }
}
