//! Machines seen from the host: results come back, time limits hold, a panic is told from a result.
#![expect(
    clippy::unwrap_used,
    reason = "a test and what it calls fail by panicking"
)]

use std::fs;
use std::time::Duration;

use testvm::{
    Deadline, DeviceManager, Disk, ErrorKind, GuestJob, KernelSeries, Outcome, Vm, host, kernel,
    run,
};

fn sh(script: &str) -> GuestJob {
    let mut job = GuestJob::new(["sh", "-c", script]);
    job.timeout = Duration::from_secs(180);
    job
}

fn run_on_old(job: &GuestJob) -> (Result<Outcome, testvm::Error>, String, tempfile::TempDir) {
    host::ensure_packages(&mut std::io::sink()).unwrap();
    let kernel = kernel::ensure(KernelSeries::V6_12).unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut log = Vec::new();
    let outcome = run(&kernel, job, out.path(), &mut log);
    (outcome, String::from_utf8(log).unwrap(), out)
}

#[test]
fn status_output_files_disks_and_kept_directories_come_through() {
    let kept = tempfile::tempdir().unwrap();
    fs::write(kept.path().join("file"), "from the host").unwrap();
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(1 << 20).unwrap();

    let mut job = sh(
        "echo \"$GREETING\"; cat file; pwd; echo from the guest > /out/result; \
                      echo changed > file; echo on disk > /dev/disk/by-id/virtio-scratch; sync; exit 42",
    );
    job.dir = kept.path().to_owned();
    job.env
        .push(("GREETING".to_owned(), "it's here".to_owned()));
    job.device_manager = DeviceManager::Udevd;
    job.disks.push(Disk {
        path: disk.path().to_owned(),
        serial: "scratch".to_owned(),
    });
    let (outcome, log, out) = run_on_old(&job);

    let outcome = outcome.unwrap();
    assert_eq!(outcome.status, 42, "{log}");
    assert_eq!(
        log,
        format!("it's here\nfrom the host{}\n", kept.path().display())
    );
    assert!(outcome.kernel_log.text().contains("Linux version 6.12"));
    assert_eq!(outcome.kernel_log.complaints(), []);
    assert_eq!(
        fs::read_to_string(out.path().join("result")).unwrap(),
        "from the guest\n"
    );
    assert_eq!(fs::read_to_string(out.path().join("log")).unwrap(), log);
    // The guest's changes of the host's files stay in the guest, those of its disk do not.
    assert_eq!(
        fs::read_to_string(kept.path().join("file")).unwrap(),
        "from the host"
    );
    assert!(fs::read(disk.path()).unwrap().starts_with(b"on disk\n"));
}

#[test]
fn a_panic_is_no_result_and_shows_the_console() {
    let (outcome, _, _out) = run_on_old(&sh("echo c > /proc/sysrq-trigger; sleep 1000"));
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GuestDied, "{error}");
    assert!(error.to_string().contains("Kernel panic"), "{error}");
}

/// In so little memory the machine ends before the job begins.
#[test]
fn a_kernel_that_dies_before_the_job_begins_is_booted_again_and_then_given_up() {
    let mut job = sh("true");
    job.memory_mib = 64;
    let (outcome, log, out) = run_on_old(&job);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GuestDied, "{error}");
    assert!(!out.path().join("begun").exists());
    assert_eq!(log.matches("boot 2 of 3 follows").count(), 1, "{log}");
    assert_eq!(log.matches("boot 3 of 3 follows").count(), 1, "{log}");
}

#[test]
fn a_job_that_cannot_begin_says_why() {
    let mut job = sh("true");
    job.modules = vec!["no_such_module".to_owned()];
    let (outcome, log, _out) = run_on_old(&job);
    assert_eq!(outcome.unwrap().status, 125);
    assert!(log.contains("no_such_module"), "{log}");
}

#[test]
fn the_time_limit_ends_the_machine() {
    let mut job = sh("sleep 1000");
    job.timeout = Duration::from_secs(2);
    let (outcome, _, out) = run_on_old(&job);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(!is_served(out.path()));
}

#[test]
fn cutting_the_power_leaves_no_process_behind() {
    host::ensure_packages(&mut std::io::sink()).unwrap();
    let kernel = kernel::ensure(KernelSeries::V6_12).unwrap();
    let out = tempfile::tempdir().unwrap();
    let vm = Vm::boot(&kernel, &sh("sleep 1000"), out.path()).unwrap();
    // A process that was just started has no arguments for a moment.
    let limit = Deadline::after(Duration::from_secs(30));
    while !is_served(out.path()) {
        assert!(
            !limit.remaining().is_zero(),
            "no process serves the machine"
        );
        std::thread::yield_now();
    }
    vm.cut_power();
    assert!(!is_served(out.path()));
}

/// Whether a process names the directory among its arguments, as the file server of a machine does.
fn is_served(dir: &std::path::Path) -> bool {
    let needle = dir.display().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(&needle))
}
