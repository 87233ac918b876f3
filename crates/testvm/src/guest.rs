//! Tests that need a kernel: they say so by a call and run themselves inside.
//!
//! ```no_run
//! # #[test]
//! fn the_module_is_there() {
//!     testvm::in_guest(|| assert!(std::path::Path::new("/dev/ublk-control").exists()));
//! }
//! ```
//!
//! Where the body runs: inside a guest ([`GUEST_VARIABLE`] is set), at once. On a host with `BLOCKYARD_VM=defer`, not at
//! all: the VM stage of `cargo xtask test` runs the whole test program in one machine per kernel. On a host with
//! `BLOCKYARD_KERNELS=host`, at once, on the running kernel. Else in a fresh machine per kernel series.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::cache::{self, Lock};
use crate::error::{Error, ErrorKind};
use crate::job::GuestJob;
use crate::series::{KernelSeries, Place};
use crate::{host, kernel, vm};

/// Set to `1` inside a guest.
pub const GUEST_VARIABLE: &str = "BLOCKYARD_GUEST";
/// `defer` leaves tests that need a kernel to the VM stage.
pub const VM_VARIABLE: &str = "BLOCKYARD_VM";
/// Which kernels: `6.12,latest` (the default), one of them, or `host`.
pub const KERNELS_VARIABLE: &str = "BLOCKYARD_KERNELS";

/// Variables that a test may read and that the guest therefore gets.
const PASSED: [&str; 5] = [
    "CARGO_MANIFEST_DIR",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "BLOCKYARD_BIN",
    "BLOCKYARD_ROUNDS",
];

/// Whether this process runs inside a guest.
#[must_use]
pub fn is_guest() -> bool {
    std::env::var_os(GUEST_VARIABLE).is_some_and(|value| value == "1")
}

/// Marks the running test as skipped, in words that `cargo xtask test` counts. The test then returns.
#[expect(clippy::print_stdout, reason = "a test's own report")]
pub fn skip(reason: &str) {
    println!("skipped: {}: {reason}", test_name());
}

/// Runs the body of the calling `#[test]` where a kernel with ublk is; see the module's header.
///
/// # Panics
/// When the body fails, on whichever kernel, or when no machine can be booted.
#[expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and reports on stdout"
)]
pub fn in_guest(body: impl FnOnce()) {
    let place = std::env::var(KERNELS_VARIABLE).unwrap_or_default();
    let place = place
        .parse()
        .unwrap_or_else(|error: Error| panic!("{error}"));
    if is_guest() || place == Place::Host {
        return body();
    }
    let name = test_name();
    if std::env::var_os(VM_VARIABLE).is_some_and(|value| value == "defer") {
        println!("deferred to the VM stage: {name}");
        return;
    }
    let Place::Guests(all) = place else { return };
    for series in all {
        println!("{name}: on {series}");
        if let Err(error) = run_self(&name, series) {
            panic!("{name} on {series}: {}", error.chain());
        }
    }
}

/// The path of the running test: libtest names its threads so.
fn test_name() -> String {
    std::thread::current().name().unwrap_or("main").to_owned()
}

/// Runs this test program in a machine, for the one test.
fn run_self(name: &str, series: KernelSeries) -> Result<(), Error> {
    if name == "main" {
        return Err(Error::new(
            ErrorKind::Invalid,
            "name the running test",
            "in_guest must be called on the test's own thread",
        ));
    }
    host::ensure_packages(&mut Printed)?;
    let kernel = kernel::ensure(series)?;
    let program = std::env::current_exe()
        .map_err(|error| Error::io("find the test program", "this process", error))?;
    let dir = std::env::current_dir()
        .map_err(|error| Error::io("find the current directory", "this process", error))?;
    let program_name = program.to_string_lossy().into_owned();
    let mut job = GuestJob::new([&program_name, "--exact", name, "--nocapture"].map(str::to_owned));
    job.keep.extend(program.parent().map(Path::to_path_buf));
    job.dir = dir;
    job.env = guest_environment();
    let out = tempfile::Builder::new()
        .prefix("testvm-out-")
        .tempdir()
        .map_err(|error| {
            Error::io(
                "create a scratch directory",
                "in the temporary directory",
                error,
            )
        })?;
    // Emulation is slow enough with one machine at a time.
    let _lock = Lock::acquire(&cache::dir()?.join("vm.lock"))?;
    let outcome = vm::run(&kernel, &job, out.path(), &mut Printed)?;
    let complaints = outcome.kernel_log.complaints();
    if outcome.status == 0 && complaints.is_empty() {
        return Ok(());
    }
    let kept: PathBuf = out.keep();
    Err(Error::new(
        ErrorKind::GuestDied,
        "run a test in a guest",
        format!(
            "exit status {}, {} complaints of the kernel {:?}; everything is in {}",
            outcome.status,
            complaints.len(),
            complaints.first().map(|complaint| &complaint.text),
            kept.display()
        ),
    ))
}

/// The variables of a test in a guest.
fn guest_environment() -> Vec<(String, String)> {
    let passed = PASSED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    std::iter::once((GUEST_VARIABLE.to_owned(), "1".to_owned()))
        .chain(passed)
        .collect()
}

/// Prints by the macro, so that libtest captures it as the test's own output.
struct Printed;

impl Write for Printed {
    #[expect(clippy::print_stdout, reason = "the output of a test")]
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        print!("{}", String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
