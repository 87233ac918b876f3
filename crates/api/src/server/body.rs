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
            "the body is not declared as JSON",
            "send the header content-type: application/json",
        )
        .about("content-type"));
    }
    let bytes = tokio::time::timeout(timeout, collect(request.into_body()))
        .await
        .map_err(|_| body_timeout(timeout))??;
    serde_json::from_slice(&bytes).map_err(|error| not_understood(&error))
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
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn not_understood(error: &serde_json::Error) -> Problem {
    let (code, advice) = if error.is_data() {
        (
            Code::InvalidField,
            "send spec, and optionally size, read_only, queues and depth",
        )
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
