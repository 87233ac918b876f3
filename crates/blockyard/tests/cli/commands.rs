//! Every command as it is meant to be used.

use std::io::Read;
use std::process::Stdio;

use serde_json::json;

use crate::harness::{Daemon, blockyard, run};

#[test]
fn create_prints_the_path_and_the_same_again_prints_it_again() {
    let daemon = Daemon::start();
    for _ in 0..2 {
        assert_eq!(
            daemon
                .run(&["create", "web", "null:1M", "--queues", "2"])
                .ok(),
            "/dev/ublkb0\n"
        );
    }
    let device = daemon
        .run(&["create", "web", "null:1M", "--queues", "2", "--json"])
        .json();
    assert_eq!(
        (&device["name"], &device["queues"]),
        (&json!("web"), &json!(2))
    );
}

#[test]
fn create_makes_a_relative_path_absolute_and_leaves_links_alone() {
    let daemon = Daemon::start();
    let directory = daemon.scratch.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("/nonexistent", directory.join("link.img")).unwrap();
    daemon
        .run(&[
            "create",
            "a",
            "raw:link.img",
            "--size",
            "8G",
            "--read-only",
            "--depth",
            "8",
        ])
        .ok();
    let device = daemon.run(&["--json", "inspect", "a"]).json();
    assert_eq!(
        device["spec"],
        format!("raw:{}/link.img", directory.display())
    );
    assert_eq!(device["size_bytes"], 8_u64 << 30);
    assert_eq!(
        (&device["read_only"], &device["depth"]),
        (&json!(true), &json!(8))
    );
}

#[test]
fn list_inspect_and_status_are_for_people_and_for_programs() {
    let daemon = Daemon::start();
    let empty = daemon.run(&["list"]).ok();
    assert_eq!(empty.lines().count(), 1);
    daemon.run(&["create", "web", "null:1M"]).ok();
    let list = daemon.run(&["list"]).ok();
    let row: Vec<_> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row,
        ["web", "live", "/dev/ublkb0", "1M", "rw", "1x64", "null:1M"]
    );
    assert_eq!(
        daemon.run(&["list", "--json"]).json()["devices"][0]["name"],
        "web"
    );
    let inspect = daemon.run(&["inspect", "web"]).ok();
    assert!(
        inspect.contains("link          /dev/blockyard/web\n"),
        "{inspect}"
    );
    let status = daemon.run(&["status"]).ok();
    for line in [
        "up                 1 d 1 h",
        "found              device 9: made by another program",
        "stopping           1 of 2 done",
    ] {
        assert!(
            status.lines().any(|found| found == line),
            "{line} not in\n{status}"
        );
    }
    assert_eq!(daemon.run(&["status", "--json"]).json()["uptime_s"], 90_061);
}

#[test]
fn remove_takes_many_and_goes_on_after_a_failure() {
    let daemon = Daemon::start();
    for name in ["a", "stuck", "z"] {
        daemon.run(&["create", name, "null:1M"]).ok();
    }
    let run = daemon.run(&["remove", "a", "absent", "stuck", "z"]);
    let mut lines: Vec<_> = run.stderr.lines().collect();
    lines.sort_unstable();
    assert_eq!(run.code, 1, "failures of different kinds: {run:?}");
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].starts_with("blockyard: remove absent: "),
        "{run:?}"
    );
    assert!(lines[1].starts_with("blockyard: remove stuck: ") && lines[1].contains("step delete"));
    let list = daemon.run(&["list", "--json"]).json();
    assert_eq!(list["devices"].as_array().unwrap().len(), 1);
}

#[test]
fn remove_of_more_than_run_at_once_removes_them_all() {
    let daemon = Daemon::start();
    let names: Vec<_> = (0..80).map(|n| format!("d{n}")).collect();
    for name in &names {
        daemon.run(&["create", name, "null:1M"]).ok();
    }
    let mut arguments = vec!["remove", "--json"];
    arguments.extend(names.iter().map(String::as_str));
    let run = daemon.run(&arguments);
    assert_eq!(run.code, 0);
    assert_eq!(run.json()["removed"].as_array().unwrap().len(), 80);
    assert_eq!(
        daemon.run(&["list", "--json"]).json(),
        json!({"devices": []})
    );
}

#[test]
fn remove_all_counts_and_names_what_failed() {
    let daemon = Daemon::start();
    for name in ["a", "stuck"] {
        daemon.run(&["create", name, "null:1M"]).ok();
    }
    let run = daemon.run(&["remove", "--all"]);
    assert_eq!((run.code, run.stdout.as_str()), (8, "removed 1 devices\n"));
    assert!(
        run.stderr
            .starts_with("blockyard: remove stuck: step delete failed: "),
        "{run:?}"
    );
    let run = daemon.run(&["remove", "--all", "--json"]);
    assert_eq!(run.json()["failed"][0]["name"], "stuck");
    let problem: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(problem["code"], "stop_failed");
}

#[test]
fn a_device_that_is_gone_but_not_in_order_is_a_failure() {
    let daemon = Daemon::start();
    daemon.run(&["create", "abandoned", "null:1M"]).ok();
    let line = daemon.run(&["remove", "abandoned"]).refused(8);
    assert!(
        line.contains("the device is gone") && line.contains("drain"),
        "{line}"
    );
}

#[test]
fn completion_help_and_version_need_no_daemon() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            run(blockyard(&["completion", shell]))
                .ok()
                .contains("blockyard")
        );
    }
    let help = run(blockyard(&["--help"])).ok();
    for word in [
        "serve",
        "completion",
        "Exit codes:",
        "5  the daemon cannot be reached",
    ] {
        assert!(help.contains(word), "{word} not in\n{help}");
    }
    let version = run(blockyard(&["--version"])).ok();
    assert_eq!(
        version,
        format!("blockyard {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_reader_that_goes_away_is_no_panic_and_no_failure() {
    let daemon = Daemon::start();
    for n in 0..20 {
        daemon.run(&["create", &format!("d{n}"), "null:1M"]).ok();
    }
    for arguments in [
        ["list", "--json"].as_slice(),
        &["completion", "bash"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = daemon
            .command(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        assert_eq!(
            (child.wait().unwrap().code(), stderr.as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}
