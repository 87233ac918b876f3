//! Everything that can go wrong: the exit code, and exactly one line that says what, why and what to do.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;

use crate::harness::{Daemon, blockyard, run};

#[test]
fn wrong_usage_ends_with_2() {
    for (arguments, word) in [
        (vec![], "command"),
        (vec!["frobnicate"], "frobnicate"),
        (vec!["create", "web"], "SPEC"),
        (
            vec!["create", "web", "--qeues", "2"],
            "blockyard create --help",
        ),
        (vec!["create", "web", "null:1M", "--size", "8GB"], "8GB"),
        (
            vec!["create", "web", "null:1M", "--size", "99999999999999999999"],
            "too large",
        ),
        (vec!["create", "web", "null:1M", "--depth", "0"], "depth"),
        (vec!["remove"], "--all"),
        (vec!["remove", "a", "--all"], "--all"),
        (vec!["serve", "--shards", "many"], "a number from 1 to 128"),
        (
            vec!["serve", "--config", "/nonexistent.toml"],
            "/nonexistent.toml",
        ),
        (vec!["list", "--timeout", "0"], "timeout"),
    ] {
        let line = run(blockyard(&arguments)).refused(2);
        assert!(line.contains(word), "{arguments:?}: {line}");
    }
}

#[test]
fn what_the_daemon_refuses_has_its_exit_code_and_object() {
    let daemon = Daemon::start();
    daemon.run(&["create", "web", "null:1M"]).ok();
    for (arguments, code, word) in [
        (vec!["create", "a/b", "null:1M"], 2, "a/b"),
        (vec!["create", "a", "tape:1M"], 2, "unknown spec"),
        (
            vec!["create", "a", "null:1M", "--size", "0"],
            2,
            "size is 0",
        ),
        (vec!["create", "a", "raw:/missing"], 3, "no such file"),
        (vec!["inspect", "absent"], 3, "absent"),
        (vec!["remove", "absent"], 3, "absent"),
        (vec!["create", "web", "null:2M"], 4, "web"),
        (vec!["create", "a", "raw:/used"], 4, "in use"),
        (vec!["create", "a", "raw:/old"], 6, "no ublk"),
        (vec!["create", "a", "raw:/denied"], 7, "permission"),
        (vec!["create", "a", "raw:/full"], 9, "no space"),
        (vec!["create", "panic", "null:1M"], 1, "daemon failed"),
    ] {
        let line = daemon.run(&arguments).refused(code);
        assert!(line.contains(word), "{arguments:?}: {line}");
        assert!(
            line.starts_with(&format!("blockyard: {}", arguments[0])),
            "{line}"
        );
    }
}

#[test]
fn a_problem_is_a_document_with_json() {
    let daemon = Daemon::start();
    for (arguments, status, code, exit) in [
        (["--json", "inspect", "absent"], 404, "not_found", 3),
        (["--json", "create", "absent"], 400, "usage", 2),
    ] {
        let run = daemon.run(&arguments);
        assert_eq!((run.code, run.stdout.as_str()), (exit, ""));
        assert_eq!(run.stderr.lines().count(), 1);
        let problem: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
        assert_eq!(
            (&problem["code"], &problem["status"]),
            (&code.into(), &status.into())
        );
    }
}

#[test]
fn an_unreachable_daemon_ends_with_5_and_says_how_to_start_it() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("daemon.sock");
    let socket = socket.to_str().unwrap();
    let commands = [
        vec!["list"],
        vec!["status"],
        vec!["remove", "a", "b", "c"],
        vec!["remove", "--all"],
    ];
    for stale in [false, true] {
        if stale {
            drop(UnixListener::bind(socket).unwrap());
        }
        for command in &commands {
            let arguments = [command.as_slice(), &["--socket", socket]].concat();
            let line = run(blockyard(&arguments)).refused(5);
            assert!(
                line.contains(socket) && line.contains("blockyard serve"),
                "{line}"
            );
        }
    }
}

#[test]
fn a_path_that_is_no_socket_is_called_so() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, "no socket").unwrap();
    for path in [file.as_path(), scratch.path()] {
        let path = path.to_str().unwrap();
        let line = run(blockyard(&["list", "--socket", path])).refused(4);
        assert!(line.contains(&format!("{path} is not a socket")), "{line}");
    }
}

#[test]
fn a_daemon_that_does_not_answer_ends_with_8() {
    let daemon = Daemon::start();
    let line = daemon
        .run(&["inspect", "gate", "--timeout", "1"])
        .refused(8);
    assert!(
        line.contains("GET /v1/devices/gate") && line.contains("within 1 s"),
        "{line}"
    );
}

#[test]
fn no_permission_for_the_socket_ends_with_7() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: needs root to become another user");
        return;
    }
    let daemon = Daemon::start();
    let open = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(daemon.scratch.path(), open(0o755)).unwrap();
    let ask = || {
        let mut command = daemon.command(&["list"]);
        command.uid(65_534).gid(65_534);
        run(command)
    };
    let line = ask().refused(7);
    assert!(line.contains("no permission to connect"), "{line}");
    std::fs::set_permissions(&daemon.socket, open(0o666)).unwrap();
    let line = ask().refused(7);
    assert!(line.contains("user 65534"), "{line}");
}

#[test]
fn a_wrong_configuration_file_is_refused_with_key_and_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("blockyard.toml");
    std::fs::write(&path, "stop_concurency = 4\n").unwrap();
    let path = path.to_str().unwrap();
    let line = run(blockyard(&["serve", "--config", path])).refused(2);
    assert!(
        line.contains("`stop_concurency`") && line.contains(path),
        "{line}"
    );
}
