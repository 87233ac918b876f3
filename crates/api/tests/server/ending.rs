//! Clients that go away, and the end of the server.

use std::time::Duration;

use api::server::Limits;
use api::v1::DeviceRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::harness::{Harness, hear};

const CREATE_GATE: &str = "PUT /v1/devices/gate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n{\"spec\":\"null:1M\"}";

/// Waits until that many changes are in progress.
async fn changes(harness: &Harness, wanted: u64) {
    let client = harness.client();
    loop {
        let status = client.status().await.unwrap();
        let changes = status
            .limits
            .iter()
            .find(|limit| limit.name == "changes")
            .unwrap();
        if changes.in_use == wanted {
            return;
        }
    }
}

#[tokio::test]
async fn a_create_goes_on_when_its_client_goes_away() {
    let harness = Harness::start();
    let mut stream = UnixStream::connect(&harness.socket).await.unwrap();
    stream.write_all(CREATE_GATE.as_bytes()).await.unwrap();
    changes(&harness, 1).await;
    drop(stream);
    harness.service.gate.add_permits(1);
    changes(&harness, 0).await;
    let names: Vec<_> = harness
        .client()
        .list()
        .await
        .unwrap()
        .devices
        .into_iter()
        .map(|d| d.name)
        .collect();
    assert_eq!(names, ["gate"]);
}

#[tokio::test]
async fn a_read_ends_when_its_client_goes_away() {
    let harness = Harness::start();
    let mut stream = UnixStream::connect(&harness.socket).await.unwrap();
    let request = b"GET /v1/devices/gate HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let connections = async || {
        let status = harness.client().status().await.unwrap();
        status
            .limits
            .iter()
            .find(|limit| limit.name == "connections")
            .unwrap()
            .in_use
    };
    while connections().await < 2 {}
    drop(stream);
    while connections().await > 1 {}
    // Nobody is left to take the permit.
    harness.service.gate.add_permits(1);
    tokio::task::yield_now().await;
    assert_eq!(harness.service.gate.available_permits(), 1);
}

#[tokio::test]
async fn the_end_finishes_what_is_in_progress_and_removes_the_socket() {
    let mut harness = Harness::start();
    let mut silent = UnixStream::connect(&harness.socket).await.unwrap();
    let mut stream = UnixStream::connect(&harness.socket).await.unwrap();
    stream.write_all(CREATE_GATE.as_bytes()).await.unwrap();
    changes(&harness, 1).await;
    harness.stop.take().unwrap().send(()).unwrap();
    assert_eq!(
        silent.read(&mut [0]).await.unwrap(),
        0,
        "a silent connection is closed"
    );
    assert!(!harness.socket.exists());
    assert!(!harness.server.is_finished());
    harness.service.gate.add_permits(1);
    assert_eq!(hear(&mut stream).await.status, 201);
    (&mut harness.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_end_does_not_wait_for_ever() {
    let limits = Limits {
        drain_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let mut harness = Harness::with_limits(limits);
    let client = harness.client();
    let request = DeviceRequest {
        spec: "null:1M".to_owned(),
        ..DeviceRequest::default()
    };
    let stuck = tokio::spawn(async move { client.create("gate", &request).await });
    changes(&harness, 1).await;
    harness.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), &mut harness.server)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    stuck
        .await
        .unwrap()
        .expect_err("the connection was cut off");
}
