//! Does any input make a decoder panic, hang, or take more memory than it may?
//!
//! libFuzzer on instrumented code; the instrumentation needs no unstable compiler. It starts from the reference's files and keeps
//! what it learns under the target directory, so that later runs go on from there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::cargo::{self, Metadata, workspace_root};
use crate::console::{complain, say};

/// The targets, one for each decoder.
const TARGETS: [&str; 6] = [
    "lsmt_layer",
    "log_upper",
    "sparse_upper",
    "zfile",
    "tar",
    "image_config",
];
/// Counters at each edge, and where they are: what libFuzzer is guided by.
const INSTRUMENTATION: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1";
/// Targets that run at once.
const AT_ONCE: usize = 2;
/// Seeds larger than this are left out: a short run would do nothing but read them.
const SEED_BYTES_MAX: u64 = 300_000;
/// Seconds of each target in `cargo xtask test`.
pub(crate) const SHORT_S: u64 = 60;

/// What `cargo xtask prove fuzz` can be told.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask prove fuzz")]
struct Options {
    /// Minutes for each target
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// This target only
    #[arg(long)]
    target: Option<String>,
}

/// Fuzzes each target for as long as asked.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = "cargo xtask prove fuzz".to_owned();
    let options = Options::parse_from(std::iter::once(&name).chain(arguments));
    let targets: Vec<_> = TARGETS
        .into_iter()
        .filter(|target| options.target.as_deref().is_none_or(|only| only == *target))
        .collect();
    if targets.is_empty() {
        bail!("there is no such target; there are: {}", TARGETS.join(", "));
    }
    fuzz(&targets, options.minutes * 60)
}

/// Fuzzes all targets for a short time.
pub(crate) fn short() -> Result<()> {
    fuzz(&TARGETS, SHORT_S)
}

fn fuzz(targets: &[&str], seconds: u64) -> Result<()> {
    let directory = Metadata::load()?.target_directory.join("fuzz");
    let programs = build(&directory)?;
    let mut failed = Vec::new();
    for some in targets.chunks(AT_ONCE) {
        let mut running = Vec::new();
        for target in some {
            let corpus = directory.join("corpus").join(target);
            seed(target, &corpus)?;
            let log = directory.join(format!("{target}.log"));
            let child = start(&programs.join(target), &corpus, &log, seconds)?;
            running.push((*target, child, log));
        }
        for (target, mut child, log) in running {
            let status = child.wait().context("wait for a fuzz target")?;
            let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
            let last = text.lines().rev().find(|line| line.starts_with("Done "));
            match last {
                Some(line) if status.success() => say(&format!("{target}: {line}, no failure")),
                _ => {
                    complain(&text);
                    failed.push(format!("{target} ({status}; {})", log.display()));
                }
            }
        }
    }
    if !failed.is_empty() {
        bail!("fuzzing found failures: {}", failed.join(", "));
    }
    Ok(())
}

/// Builds the targets; returns where they are.
fn build(directory: &Path) -> Result<PathBuf> {
    let host = host()?;
    let mut command = cargo::cargo(&["build", "--release", "--locked", "--target", &host]);
    command
        .arg("--manifest-path")
        .arg(workspace_root().join("fuzz/Cargo.toml"))
        .env("CARGO_TARGET_DIR", directory)
        .env("RUSTFLAGS", INSTRUMENTATION);
    cargo::succeed(&mut command)?;
    Ok(directory.join(host).join("release"))
}

/// The compiler's own platform: naming it keeps the instrumentation out of build scripts.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output();
    let text = String::from_utf8(output.context("start rustc")?.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc names no host")
}

fn start(program: &Path, corpus: &Path, log: &Path, seconds: u64) -> Result<Child> {
    let log = std::fs::File::create(log)?;
    Command::new(program)
        .arg(format!("-max_total_time={seconds}"))
        // The promise: no allocation beyond 64 MiB, no hang.
        .args(["-malloc_limit_mb=64", "-rss_limit_mb=1024", "-timeout=10"])
        .arg(format!("-max_len={SEED_BYTES_MAX}"))
        .arg(format!("-artifact_prefix={}/", corpus.display()))
        .arg(corpus)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("start {}", program.display()))
}

/// Puts the reference's files where the target starts from.
fn seed(target: &str, corpus: &Path) -> Result<()> {
    std::fs::create_dir_all(corpus)?;
    let fixtures = workspace_root().join("crates/overlaybd/tests/fixtures");
    let (ending, front, len): (&[&str], &[u8], u64) = match target {
        "lsmt_layer" => (&["lsmt", "meta"], &[], u64::MAX),
        // Two bytes say how long the data file is: 1023 sectors.
        "log_upper" => (&["index"], &[0xff, 0x03], u64::MAX),
        "sparse_upper" => (&["data"], &[], 4096),
        "zfile" => (&["zfile"], &[], u64::MAX),
        "tar" => (&["tar"], &[], 8192),
        _ => (&["json"], &[], u64::MAX),
    };
    for group in std::fs::read_dir(&fixtures)?.flatten() {
        let Ok(files) = std::fs::read_dir(group.path()) else {
            continue;
        };
        for file in files.flatten() {
            let path = file.path();
            let is_wanted = path
                .extension()
                .is_some_and(|found| ending.iter().any(|ending| *ending == found));
            let size = file.metadata()?.len();
            if !is_wanted || size.min(len) > SEED_BYTES_MAX {
                continue;
            }
            let mut bytes = front.to_vec();
            let content = std::fs::read(&path)?;
            let wanted = usize::try_from(len)
                .unwrap_or(usize::MAX)
                .min(content.len());
            bytes.extend_from_slice(content.get(..wanted).unwrap_or_default());
            std::fs::write(corpus.join(file.file_name()), bytes)?;
        }
    }
    Ok(())
}
