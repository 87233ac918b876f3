//! Promise: nobody who can reach the socket can take the daemon away from the others.

use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::guest::{Daemon, eventually, on_a_kernel, run, sh};

/// Connections that send nothing.
const SILENT: usize = 10_000;

/// Resident memory in KiB.
fn resident_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// This process may open as many files as it needs; ends with the process.
fn allow_open_files(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.map(|maximum| maximum.max(count));
    let raised = Rlimit {
        current: Some(count),
        maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

#[test]
fn ten_thousand_silent_connections_keep_nobody_out() {
    on_a_kernel(|| {
        allow_open_files(SILENT as u64 + 200);
        let daemon = Daemon::start();
        daemon.create("dev", "null:1M");
        let files = daemon.open_files();
        let mut silent = Vec::with_capacity(SILENT);
        while silent.len() < SILENT {
            silent.push(UnixStream::connect(daemon.socket()).unwrap());
            if silent.len() % 2_500 == 0 {
                assert_eq!(
                    daemon.names(),
                    ["dev"],
                    "beside {} connections",
                    silent.len()
                );
            }
        }
        let status = daemon.see("/v1/status");
        assert_eq!(status["devices"]["live"], 1);
        let open = daemon.open_files();
        assert!(open < files + 400, "{open} open files, {files} before");
        drop(silent);
        eventually("the connections are closed", || {
            (daemon.open_files() <= files).then_some(())
        });
        daemon.stop();
    });
}

#[test]
fn a_body_of_a_gibibyte_is_refused_and_not_kept() {
    on_a_kernel(|| {
        let daemon = Daemon::start();
        let before = resident_kib(&daemon);
        let url = "http://localhost/v1/devices/dev";
        let socket = daemon.socket().display().to_string();
        // Announced, and in chunks that say nothing about the whole.
        for extra in ["", "-H 'transfer-encoding: chunked'"] {
            let answer = sh(&format!(
                "truncate -s 1G {body}
                 curl -sS --unix-socket {socket} {url} -T {body} -H 'content-type: application/json' -H 'expect:' {extra} \
                 -w '\\n%{{http_code}}' 2>&1 || true",
                body = daemon.path("body").display()
            ));
            let is_told = answer.contains("body_too_large") && answer.contains("413");
            let is_cut = answer.contains("reset")
                || answer.contains("Send failure")
                || answer.contains("Broken pipe");
            assert!(is_told || is_cut, "{answer}");
            println!("{answer}");
        }
        let grown = resident_kib(&daemon).saturating_sub(before);
        assert!(grown < 8 << 10, "{grown} KiB more");
        assert_eq!(daemon.names(), [""; 0]);
        let garbage = run(&[
            "sh",
            "-c",
            &format!(
                "head -c 1M /dev/urandom | timeout 20 curl -sS --unix-socket {socket} {url} -X PUT --data-binary @- -w '%{{http_code}}'"
            ),
        ]);
        assert!(garbage.stdout.contains("413"), "{garbage:?}");
        daemon.stop();
    });
}
