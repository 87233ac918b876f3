//! Each route, and each way a request can be wrong.

use serde_json::json;

use crate::harness::{Harness, talk};

#[tokio::test]
async fn a_device_is_created_found_listed_and_removed() {
    let harness = Harness::start();
    let body = r#"{"spec":"raw:/image","size":"8G","queues":2}"#;
    let created = harness.send("PUT", "/v1/devices/web", body).await;
    assert_eq!(created.status, 201);
    let device = created.json();
    assert_eq!(device["path"], "/dev/ublkb0");
    assert_eq!(device["link"], "/dev/blockyard/web");
    assert_eq!(device["size_bytes"], 8_u64 << 30);
    assert_eq!(device["state"], "live");
    let again = harness
        .send(
            "PUT",
            "/v1/devices/web",
            r#"{"size":8589934592,"queues":2,"spec":"raw:/image"}"#,
        )
        .await;
    assert_eq!((again.status, again.json()), (200, device.clone()));
    assert_eq!(
        harness.send("GET", "/v1/devices/web", "").await.json(),
        device
    );
    harness
        .send("PUT", "/v1/devices/api", r#"{"spec":"null:1M"}"#)
        .await;
    let list = harness.send("GET", "/v1/devices", "").await.json();
    let names: Vec<_> = list["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| &d["name"])
        .collect();
    assert_eq!(names, ["api", "web"]);
    let removed = harness.send("DELETE", "/v1/devices/web", "").await;
    assert_eq!(removed.status, 200);
    assert_eq!(
        removed.json(),
        json!({"name": "web", "id": 0, "elapsed_ms": 3, "failures": []})
    );
    harness
        .send("DELETE", "/v1/devices/web", "")
        .await
        .problem(404, "not_found");
    harness
        .send("GET", "/v1/devices/web", "")
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn removing_all_reports_what_failed_and_goes_on() {
    let harness = Harness::start();
    for name in ["a", "stuck", "z"] {
        harness
            .send(
                "PUT",
                &format!("/v1/devices/{name}"),
                r#"{"spec":"null:1M"}"#,
            )
            .await;
    }
    let report = harness.send("DELETE", "/v1/devices", "").await.json();
    assert_eq!(report["removed"], json!(["a", "z"]));
    assert_eq!(report["failed"][0]["name"], "stuck");
    assert_eq!(report["failed"][0]["step"], "delete");
    assert!(
        report["failed"][0]["error"]
            .as_str()
            .unwrap()
            .contains("no answer")
    );
}

#[tokio::test]
async fn status_shows_the_servers_own_limits_and_metrics_and_openapi_are_served() {
    let harness = Harness::start();
    let status = harness.send("GET", "/v1/status", "").await.json();
    assert_eq!(
        status["limits"],
        json!([
            {"name": "changes", "in_use": 0, "limit": 192},
            {"name": "connections", "in_use": 1, "limit": 256},
        ])
    );
    let metrics = harness.send("GET", "/metrics", "").await;
    assert!(
        metrics
            .head
            .contains("content-type: text/plain; version=0.0.4")
    );
    assert!(
        metrics
            .body
            .contains("blockyard_limit{name=\"connections\"} 256\n")
    );
    let document = harness.send("GET", "/openapi.json", "").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    assert!(document["paths"]["/v1/devices/{name}"]["put"].is_object());
}

#[tokio::test]
async fn every_path_of_the_openapi_document_is_routed() {
    let harness = Harness::start();
    let document = harness.send("GET", "/openapi.json", "").await.json();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let path = path.replace("{name}", "web");
            let heard = harness.send(&method.to_uppercase(), &path, "").await;
            assert!(
                !heard.body.contains("route_not_found") && heard.status != 405,
                "{method} {path}: {heard:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_wrong_body_is_refused_with_its_reason() {
    let harness = Harness::start();
    for (body, code, word) in [
        (r#"{"spec":"null:1M""#, "invalid_json", "EOF"),
        ("nonsense", "invalid_json", "expected"),
        (r#"{"spec":"null:1M"} {}"#, "invalid_json", "trailing"),
        (r#"{"spec":"null:1M","deep":1}"#, "invalid_field", "deep"),
        (r#"{"size":1}"#, "invalid_field", "spec"),
        (r#"{"spec":"null:1M","size":"8GB"}"#, "invalid_field", "8GB"),
        (r#"{"spec":"null:1M","size":-5}"#, "invalid_field", "-5"),
        (
            r#"{"spec":"null:1M","queues":65536}"#,
            "invalid_field",
            "65536",
        ),
        (
            r#"{"spec":"null:1M","read_only":"no"}"#,
            "invalid_field",
            "bool",
        ),
        ("[]", "invalid_field", "an array"),
        (r#"{"spec":"tape:1M"}"#, "unknown_spec", "spec"),
        (r#"{"spec":"null:1M","size":0}"#, "invalid_size", "0"),
    ] {
        let problem = harness
            .send("PUT", "/v1/devices/web", body)
            .await
            .problem(400, code);
        assert!(
            problem["detail"].as_str().unwrap().contains(word),
            "{body}: {problem}"
        );
    }
    assert_eq!(
        harness.send("GET", "/v1/devices", "").await.json(),
        json!({"devices": []})
    );
}

#[tokio::test]
async fn a_body_that_is_not_utf8_or_not_declared_as_json_is_refused() {
    let harness = Harness::start();
    let head = "PUT /v1/devices/web HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let bytes = [
        head.as_bytes(),
        b"content-type: application/json\r\ncontent-length: 13\r\n\r\n{\"spec\":\"\xff\"}  ",
    ]
    .concat();
    talk(&harness.socket, &bytes)
        .await
        .problem(400, "invalid_json");
    for header in ["", "content-type: application/x-www-form-urlencoded\r\n"] {
        let request = format!("{head}{header}content-length: 18\r\n\r\n{{\"spec\":\"null:1M\"}}");
        talk(&harness.socket, request.as_bytes())
            .await
            .problem(415, "unsupported_media_type");
    }
}

#[tokio::test]
async fn names_are_decoded_and_judged_by_the_service() {
    let harness = Harness::start();
    let body = r#"{"spec":"null:1M"}"#;
    for name in ["a%2Fb", "a%20b", "%C3%A9", &"x".repeat(64)] {
        let path = format!("/v1/devices/{name}");
        harness
            .send("PUT", &path, body)
            .await
            .problem(400, "invalid_name");
    }
    harness
        .send("PUT", "/v1/devices/%ff", body)
        .await
        .problem(400, "invalid_name");
    harness
        .send("PUT", "/v1/devices/a/b", body)
        .await
        .problem(404, "route_not_found");
    harness
        .send("PUT", "/v1/devices/", body)
        .await
        .problem(404, "route_not_found");
}

#[tokio::test]
async fn conflicts_and_refusals_of_the_service_keep_their_code_and_object() {
    let harness = Harness::start();
    harness
        .send("PUT", "/v1/devices/web", r#"{"spec":"null:1M"}"#)
        .await;
    let problem = harness
        .send("PUT", "/v1/devices/web", r#"{"spec":"null:2M"}"#)
        .await
        .problem(409, "name_taken");
    assert_eq!(problem["object"], "web");
    for (spec, status, code) in [
        ("raw:/missing", 422, "source_not_found"),
        ("raw:/used", 409, "source_in_use"),
        ("raw:/full", 507, "no_space"),
        ("raw:/old", 503, "ublk_missing"),
    ] {
        let body = json!({"spec": spec}).to_string();
        harness
            .send("PUT", "/v1/devices/other", &body)
            .await
            .problem(status, code);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let harness = Harness::start();
    let problem = harness
        .send("GET", "/v2/devices", "")
        .await
        .problem(404, "route_not_found");
    assert_eq!(problem["object"], "/v2/devices");
    for (method, path, allow) in [
        ("POST", "/v1/devices", "delete"),
        ("PATCH", "/v1/devices/web", "put"),
        ("PUT", "/v1/status", "get"),
        ("DELETE", "/metrics", "get"),
    ] {
        let heard = harness.send(method, path, "").await;
        heard.problem(405, "method_not_allowed");
        let allowed = heard.head.lines().find(|line| line.starts_with("allow:"));
        assert!(
            allowed.is_some_and(|line| line.contains(allow)),
            "{heard:?}"
        );
    }
}

#[tokio::test]
async fn a_panic_of_the_service_is_an_answer_and_the_server_goes_on() {
    let harness = Harness::start();
    harness
        .send("PUT", "/v1/devices/panic", r#"{"spec":"null:1M"}"#)
        .await
        .problem(500, "internal");
    harness
        .send("GET", "/v1/devices/panic", "")
        .await
        .problem(500, "internal");
    assert_eq!(harness.send("GET", "/v1/status", "").await.status, 200);
}

#[tokio::test]
async fn several_requests_use_one_connection() {
    let harness = Harness::start();
    let first = "GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n";
    let last = "GET /v1/devices HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let heard = talk(&harness.socket, format!("{first}{first}{last}").as_bytes()).await;
    assert_eq!(heard.body.matches("HTTP/1.1 200 OK").count(), 2);
    assert!(heard.body.ends_with("{\"devices\":[]}"));
}
