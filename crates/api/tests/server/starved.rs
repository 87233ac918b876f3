//! The server when the process has no file descriptor left.
//!
//! The limit belongs to the whole process, so the test runs itself again as a process of its own.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::harness::{Harness, hear};

const STATUS: &[u8] = b"GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
const WAIT_AT_GATE: &[u8] =
    b"GET /v1/devices/gate HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[test]
fn without_file_descriptors_idle_connections_make_room_and_the_server_goes_on() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "starved::in_a_process_of_its_own",
            "--ignored",
            "--nocapture",
        ])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("1 passed"),
        "{stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A socket that is made while there are descriptors and connected later.
fn socket() -> OwnedFd {
    rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap()
}

fn connect(fd: OwnedFd, path: &Path) -> UnixStream {
    rustix::net::connect(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true).unwrap();
    UnixStream::from_std(stream).unwrap()
}

/// Takes every descriptor that is left.
fn take_all(taken: &mut Vec<File>) {
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
}

#[tokio::test]
#[ignore = "run by the test above, because it uses up the descriptors of its process"]
async fn in_a_process_of_its_own() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(128);
    setrlimit(Resource::Nofile, limit).unwrap();
    let harness = Harness::start();
    let (first, second, third) = (socket(), socket(), socket());
    let mut idle = connect(socket(), &harness.socket);
    harness.client().status().await.unwrap();
    let mut taken = Vec::new();
    take_all(&mut taken);

    // The idle connection is closed, which makes room for the first client.
    let mut first = connect(first, &harness.socket);
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    first.write_all(WAIT_AT_GATE).await.unwrap();
    while harness.service.at_gate.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }

    // The first is being served and never makes room: the second is told so.
    take_all(&mut taken);
    let mut second = connect(second, &harness.socket);
    let problem = hear(&mut second).await.problem(503, "limit_reached");
    assert_eq!(problem["object"], "open files");

    // With descriptors back, everything goes on.
    drop(taken);
    let mut third = connect(third, &harness.socket);
    third.write_all(STATUS).await.unwrap();
    assert_eq!(hear(&mut third).await.status, 200);
    harness.service.gate.add_permits(1);
    hear(&mut first).await.problem(404, "not_found");
}
