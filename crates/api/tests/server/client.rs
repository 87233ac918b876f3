//! The typed client against the server, and against what is no server.

use std::time::Duration;

use api::Creation;
use api::client::{Client, Error};
use api::v1::{Code, DeviceRequest, DeviceState, Problem};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::harness::Harness;

fn null() -> DeviceRequest {
    DeviceRequest {
        spec: "null:1M".to_owned(),
        ..DeviceRequest::default()
    }
}

fn code(error: Error) -> Code {
    Problem::from(error).code
}

#[tokio::test]
async fn every_call_is_typed() {
    let harness = Harness::start();
    let client = harness.client();
    let created = client.create("web", &null()).await.unwrap();
    assert!(matches!(created, Creation::Created(_)));
    let Creation::Existing(device) = client.create("web", &null()).await.unwrap() else {
        panic!("the same request must find the device");
    };
    assert_eq!(client.inspect("web").await.unwrap(), device);
    assert_eq!(device.state, DeviceState::Live);
    assert_eq!(client.list().await.unwrap().devices, [device]);
    assert_eq!(client.status().await.unwrap().devices.live, 1);
    assert!(
        client
            .metrics()
            .await
            .unwrap()
            .contains("blockyard_devices{state=\"live\"} 1")
    );
    assert_eq!(client.remove("web").await.unwrap().name, "web");
    assert_eq!(client.remove_all().await.unwrap().removed, [""; 0]);
    assert_eq!(
        code(client.inspect("web").await.unwrap_err()),
        Code::NotFound
    );
    assert_eq!(
        code(client.create("a/b", &null()).await.unwrap_err()),
        Code::InvalidName
    );
}

#[tokio::test]
async fn an_absent_daemon_and_a_stale_socket_are_unreachable() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("daemon.sock");
    let client = Client::new(&socket);
    assert_eq!(
        code(client.status().await.unwrap_err()),
        Code::DaemonUnreachable
    );
    drop(UnixListener::bind(&socket).unwrap());
    assert_eq!(
        code(client.status().await.unwrap_err()),
        Code::DaemonUnreachable
    );
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    let harness = Harness::start();
    let client = harness.client().with_deadline(Duration::from_millis(50));
    let error = client.inspect("gate").await.unwrap_err();
    assert!(
        error.to_string().contains("GET /v1/devices/gate"),
        "{error}"
    );
    assert_eq!(code(error), Code::DeadlineExceeded);
}

/// A listener that answers its connections, one after the other, with these bytes.
fn answering(answers: Vec<&'static [u8]>) -> (tempfile::TempDir, Client) {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("daemon.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            if !answer.is_empty() {
                assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
                stream.write_all(answer).await.unwrap();
            }
        }
    });
    let client = Client::new(&socket).with_deadline(Duration::from_secs(10));
    (scratch, client)
}

#[tokio::test]
async fn what_is_not_this_interface_is_said_to_be_so() {
    for answer in [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".as_slice(),
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
    ] {
        let (_scratch, client) = answering(vec![answer]);
        assert_eq!(code(client.list().await.unwrap_err()), Code::InvalidAnswer);
    }
}

#[tokio::test]
async fn a_connection_closed_before_an_answer_is_tried_again() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"devices\":[]}";
    let (_scratch, client) = answering(vec![b"", b"", answer]);
    assert!(client.list().await.unwrap().devices.is_empty());
    let (_scratch, client) = answering(vec![b"", b"", b"", b""]);
    assert_eq!(
        code(client.list().await.unwrap_err()),
        Code::DaemonUnreachable
    );
}
