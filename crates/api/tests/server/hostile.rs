//! Clients that say nothing, too much, or nonsense.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use api::server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::harness::{Harness, hear, talk};

/// Descriptors that the test itself needs beside its two per connection.
const SPARE_FDS: u64 = 600;

/// The slowest answer during the storm. Half a second on two idle cores without optimisation; the rest is for cores
/// that do other things too.
const SLOWEST_ANSWER: Duration = Duration::from_secs(10);

/// As many silent connections as the limits of this process allow, 10,000 at most.
fn silent_connections() -> u64 {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let count = limit
        .current
        .unwrap_or(1 << 20)
        .saturating_sub(SPARE_FDS)
        .min(10_000);
    assert!(
        count >= 2_000,
        "the limit of open files allows {count} connections only"
    );
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_silent_connections_never_lock_out_a_client() {
    let harness = Harness::start();
    let count = silent_connections();
    let socket = harness.socket.clone();
    let storm = tokio::spawn(async move {
        let mut held = Vec::new();
        while u64::try_from(held.len()).unwrap() < count {
            match UnixStream::connect(&socket).await {
                Ok(stream) => held.push(stream),
                // The backlog is full: let the server come to it.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    tokio::task::yield_now().await
                }
                Err(error) => panic!("{error}"),
            }
        }
        held
    });
    let client = harness.client();
    let mut slowest = Duration::ZERO;
    while !storm.is_finished() {
        let begun = Instant::now();
        client.status().await.unwrap();
        slowest = slowest.max(begun.elapsed());
    }
    let held = storm.await.unwrap();
    assert_eq!(u64::try_from(held.len()).unwrap(), count);
    let begun = Instant::now();
    let status = client.status().await.unwrap();
    slowest = slowest.max(begun.elapsed());
    println!(
        "{count} silent connections, slowest answer {} ms",
        slowest.as_millis()
    );
    assert!(slowest < SLOWEST_ANSWER, "{slowest:?}");
    let connections = status
        .limits
        .iter()
        .find(|limit| limit.name == "connections")
        .unwrap();
    assert_eq!((connections.limit, connections.in_use <= 256), (256, true));
    // The displaced ones were closed, not kept.
    let mut first = held.into_iter().next().unwrap();
    assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_request_in_progress_is_not_displaced() {
    let harness = Harness::with_limits(Limits {
        connections_max: 2,
        ..Limits::default()
    });
    let mut waiting = UnixStream::connect(&harness.socket).await.unwrap();
    let request = "PUT /v1/devices/gate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n{\"spec\":\"null:1M\"}";
    waiting.write_all(request.as_bytes()).await.unwrap();
    let client = harness.client();
    while client
        .status()
        .await
        .unwrap()
        .limits
        .iter()
        .all(|limit| limit.name != "changes" || limit.in_use == 0)
    {}
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(UnixStream::connect(&harness.socket).await.unwrap());
        client.status().await.unwrap();
    }
    harness.service.gate.add_permits(1);
    assert_eq!(hear(&mut waiting).await.status, 201);
}

#[tokio::test]
async fn a_gigabyte_is_refused_by_its_declared_length_without_reading_it() {
    let harness = Harness::start();
    let mut stream = UnixStream::connect(&harness.socket).await.unwrap();
    let head = format!(
        "PUT /v1/devices/web HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        1_u64 << 30
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let heard = hear(&mut stream).await;
    heard.problem(413, "body_too_large");
    assert!(heard.head.contains("connection: close"));
}

#[tokio::test]
async fn a_gigabyte_of_chunks_is_cut_off_early() {
    let harness = Harness::start();
    let stream = UnixStream::connect(&harness.socket).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let sender = tokio::spawn(async move {
        let head = "PUT /v1/devices/web HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        writer.write_all(head.as_bytes()).await.unwrap();
        let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 1 << 16], b"\r\n"].concat();
        let mut sent = 0_u64;
        while sent < 1 << 30 && writer.write_all(&chunk).await.is_ok() {
            sent += 1 << 16;
        }
        sent
    });
    let mut answer = Vec::new();
    // Closing with bytes unread resets the connection; what was sent before still arrives.
    let _ = reader.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("body_too_large"));
    let sent = sender.await.unwrap();
    assert!(sent < 8 << 20, "{sent} bytes were taken");
}

#[tokio::test]
async fn heads_that_are_too_large_or_malformed_are_problems() {
    let harness = Harness::start();
    let uri = |len| {
        format!(
            "GET /{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
            "a".repeat(len)
        )
    };
    let header = format!(
        "GET /v1/status HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
        "b".repeat(40_000)
    );
    let many = format!("GET /v1/status HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    for (request, status, code) in [
        (uri(3_000), 414, "uri_too_long"),
        (uri(20_000), 414, "uri_too_long"),
        (uri(200_000), 414, "uri_too_long"),
        (header, 431, "head_too_large"),
        (many, 431, "head_too_large"),
        ("hello\r\n\r\n".to_owned(), 400, "malformed_request"),
        (
            "GET /v1/status HTTP/9.9\r\n\r\n".to_owned(),
            400,
            "malformed_request",
        ),
        (
            "GET /v1/status HTTP/1.1\r\nbad header\r\n\r\n".to_owned(),
            400,
            "malformed_request",
        ),
        ("\x16\x03\x01\x02\x00".to_owned(), 400, "malformed_request"),
    ] {
        talk(&harness.socket, request.as_bytes())
            .await
            .problem(status, code);
    }
    assert_eq!(harness.send("GET", "/v1/status", "").await.status, 200);
}

#[tokio::test]
async fn a_head_or_a_body_that_never_ends_is_given_up() {
    let limits = Limits {
        head_timeout: Duration::from_millis(100),
        body_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let harness = Harness::with_limits(limits);
    talk(&harness.socket, b"GET /v1/st")
        .await
        .problem(408, "request_timeout");
    let head = b"PUT /v1/devices/web HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n{";
    talk(&harness.socket, head)
        .await
        .problem(408, "request_timeout");
    // Who says nothing at all is not answered either.
    let mut silent = UnixStream::connect(&harness.socket).await.unwrap();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn too_many_changes_are_refused_while_reads_go_on() {
    let harness = Harness::with_limits(Limits {
        changes_max: 1,
        ..Limits::default()
    });
    let client = harness.client();
    let first = tokio::spawn({
        let client = client.clone();
        let request = api::v1::DeviceRequest {
            spec: "null:1M".to_owned(),
            ..Default::default()
        };
        async move { client.create("gate", &request).await }
    });
    while client
        .status()
        .await
        .unwrap()
        .limits
        .iter()
        .all(|limit| limit.name != "changes" || limit.in_use == 0)
    {}
    let problem = harness
        .send("DELETE", "/v1/devices/web", "")
        .await
        .problem(503, "limit_reached");
    assert_eq!(problem["object"], "changes");
    harness.service.gate.add_permits(1);
    first.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_refused_even_when_the_mode_lets_it_in() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: needs root to become another user");
        return;
    }
    let harness = Harness::start();
    let directory = harness.socket.parent().unwrap();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&harness.socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let socket = harness.socket.clone();
    let ask = move |uid, gid| {
        let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.sendall(b'GET /v1/status HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n')\nd=b''\nwhile True:\n  p=s.recv(65536)\n  if not p: break\n  d+=p\nsys.stdout.buffer.write(d)";
        let mut command = Command::new("python3");
        command.arg("-c").arg(script).arg(&socket).uid(uid).gid(gid);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let (stranger, member) =
        tokio::task::spawn_blocking(move || (ask(65_534, 65_534), ask(65_534, 0)))
            .await
            .unwrap();
    assert!(stranger.starts_with("HTTP/1.1 403"), "{stranger}");
    assert!(stranger.contains("peer_not_allowed") && stranger.contains("user 65534"));
    assert!(member.starts_with("HTTP/1.1 200"), "{member}");
}
