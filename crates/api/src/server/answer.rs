//! Answers: JSON, text and problem documents.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use crate::v1::{Code, PROBLEM_JSON, Problem};

/// A JSON document.
pub(super) fn json<T: Serialize>(status: StatusCode, document: &T) -> Response<Body> {
    match serde_json::to_vec(document) {
        Ok(bytes) => respond(status, "application/json", bytes),
        Err(error) => problem(&Problem::new(
            Code::Internal,
            format!("the answer cannot be written as JSON: {error}"),
            "report this as a bug",
        )),
    }
}

/// A text of that media type.
pub(super) fn text(media_type: &'static str, text: String) -> Response<Body> {
    respond(StatusCode::OK, media_type, text.into_bytes())
}

/// A problem document. The connection goes on.
pub(super) fn problem(problem: &Problem) -> Response<Body> {
    respond(status_of(problem), PROBLEM_JSON, document(problem))
}

/// A problem document after which the connection is closed, because what follows on it is not to be read.
pub(super) fn last_problem(refusal: &Problem) -> Response<Body> {
    let mut response = problem(refusal);
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A whole HTTP/1.1 answer as bytes, for connections that have left the HTTP engine or never entered it.
pub(super) fn raw_problem(problem: &Problem) -> Vec<u8> {
    let body = document(problem);
    let mut bytes = format!(
        "HTTP/1.1 {}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        status_of(problem),
        body.len(),
    )
    .into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}

fn respond(status: StatusCode, media_type: &'static str, bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn status_of(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn document(problem: &Problem) -> Vec<u8> {
    // A problem is texts and a number: writing it as JSON has no way to fail.
    serde_json::to_vec(problem).unwrap_or_default()
}
