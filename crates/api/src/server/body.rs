//! Reads a JSON body: declared as JSON, bounded in size and time, no unknown fields.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::BODY_BYTES_MAX;
use crate::v1::{Code, Problem};

/// Reads the body of a request.
pub(super) async fn read_json<T: DeserializeOwned>(
    request: Request<Body>,
    timeout: Duration,
) -> Result<T, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "the body is not declared as JSON in UTF-8",
            "send the header content-type: application/json",
        )
        .about("content-type"));
    }
    let bytes = tokio::time::timeout(timeout, collect(request.into_body()))
        .await
        .map_err(|_| body_timeout(timeout))??;
    if first_of(&bytes) == Some(b'[') {
        // It would be taken as the fields in their order.
        let text = "the body of the request is an array";
        return Err(Problem::new(Code::InvalidField, text, OBJECT_ADVICE).about("body"));
    }
    serde_json::from_slice(&bytes).map_err(|error| not_understood(&error))
}

const OBJECT_ADVICE: &str =
    "send an object with spec, and optionally size, read_only, queues and depth";

/// The first byte that is no space of JSON.
fn first_of(bytes: &[u8]) -> Option<u8> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    bytes.iter().copied().find(|byte| !is_space(byte))
}

/// The refusal of a body larger than the limit, also when only its declared length says so.
pub(super) fn too_large() -> Problem {
    Problem::new(
        Code::BodyTooLarge,
        format!("the body of the request is larger than {BODY_BYTES_MAX} bytes"),
        "send the device's description only, never its content",
    )
    .about("body")
}

fn body_timeout(timeout: Duration) -> Problem {
    Problem::new(
        Code::RequestTimeout,
        format!(
            "the body of the request did not arrive within {} s",
            timeout.as_secs()
        ),
        "send the whole body at once",
    )
    .about("body")
}

async fn collect(mut body: Body) -> Result<Vec<u8>, Problem> {
    let limit = usize::try_from(BODY_BYTES_MAX).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::new(
                Code::MalformedRequest,
                format!("the body of the request cannot be read: {error}"),
                "send a body of the declared length",
            )
            .about("body")
        })?;
        if let Some(data) = frame.data_ref() {
            if bytes.len().saturating_add(data.len()) > limit {
                return Err(too_large());
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    // JSON between systems is UTF-8 (RFC 8259); a body in anything else would not be what the client means.
    let is_utf8 = parts
        .filter_map(|parameter| parameter.split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
        .all(|(_, charset)| {
            charset
                .trim()
                .trim_matches('"')
                .eq_ignore_ascii_case("utf-8")
        });
    essence.eq_ignore_ascii_case("application/json") && is_utf8
}

fn not_understood(error: &serde_json::Error) -> Problem {
    let (code, advice) = if error.is_data() {
        (Code::InvalidField, OBJECT_ADVICE)
    } else {
        (Code::InvalidJson, "send one JSON object in UTF-8")
    };
    Problem::new(
        code,
        format!("the body of the request is not understood: {error}"),
        advice,
    )
    .about("body")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_json_counts_as_json() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json; charset=\"UTF-8\"; version=1", true),
            ("application/json; charset=utf-16", false),
            ("application/jsonp", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(is_json(&headers), expected, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn an_array_is_no_request_though_its_values_would_fit() {
        for (body, code) in [
            (r#" ["null:1G", "1G"]"#, Some(Code::InvalidField)),
            ("[", Some(Code::InvalidField)),
            (r#"{"spec": "null:1G"}"#, None),
            ("{", Some(Code::InvalidJson)),
        ] {
            let request = Request::builder()
                .header(CONTENT_TYPE, "application/json")
                .body(Body::from(body))
                .unwrap();
            let timeout = Duration::from_secs(1);
            let read = read_json::<crate::v1::DeviceRequest>(request, timeout).await;
            assert_eq!(read.err().map(|problem| problem.code), code, "{body}");
        }
    }

    #[tokio::test]
    async fn the_limit_is_inclusive() {
        let max = usize::try_from(BODY_BYTES_MAX).unwrap();
        assert_eq!(
            collect(Body::from(vec![b' '; max])).await.unwrap().len(),
            max
        );
        let problem = collect(Body::from(vec![b' '; max + 1])).await.unwrap_err();
        assert_eq!(problem.code, Code::BodyTooLarge);
    }
}
