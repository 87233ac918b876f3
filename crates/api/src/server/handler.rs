//! What is checked before a request reaches the routes: the peer, and what the head declares.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use tower::ServiceExt;

use super::slots::Slot;
use super::{BODY_BYTES_MAX, URI_BYTES_MAX, answer, body};
use crate::v1::{Code, Problem};

/// Makes the handler of each connection.
pub(super) struct Handler {
    routes: Router,
}

/// The handler of one connection.
pub(super) struct PeerHandler {
    routes: Router,
    access: Result<(), Problem>,
    slot: Arc<Slot>,
}

impl Handler {
    pub(super) const fn new(routes: Router) -> Self {
        Self { routes }
    }

    pub(super) fn for_peer(&self, access: Result<(), Problem>, slot: Arc<Slot>) -> PeerHandler {
        if let Err(problem) = &access {
            tracing::warn!(problem = %problem, "peer refused");
        }
        PeerHandler {
            routes: self.routes.clone(),
            access,
            slot,
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for PeerHandler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        // The mark is dropped with the future: when the answer is made, or when the connection goes away.
        let serving = self.slot.try_serve();
        let refusal = match (&serving, &self.access) {
            (None, _) => Some(evicted()),
            (_, Err(problem)) => Some(problem.clone()),
            _ => refused_by_head(&request),
        };
        let routes = self.routes.clone();
        Box::pin(async move {
            let _serving = serving;
            match refusal {
                Some(problem) => Ok(answer::last_problem(&problem)),
                None => routes.oneshot(request.map(Body::new)).await,
            }
        })
    }
}

fn refused_by_head<B>(request: &Request<B>) -> Option<Problem> {
    let uri = request
        .uri()
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    if uri > URI_BYTES_MAX {
        return Some(uri_too_long());
    }
    let declared = request.headers().get(CONTENT_LENGTH)?;
    let length: Option<u64> = declared.to_str().ok().and_then(|text| text.parse().ok());
    length
        .is_none_or(|length| length > BODY_BYTES_MAX)
        .then(body::too_large)
}

/// The refusal of a path longer than the limit.
pub(super) fn uri_too_long() -> Problem {
    Problem::new(
        Code::UriTooLong,
        format!("the path of the request is longer than {URI_BYTES_MAX} bytes"),
        "use a device name of at most 63 characters",
    )
    .about("path")
}

fn evicted() -> Problem {
    Problem::new(
        Code::LimitReached,
        "the connection was idle and had to make room for another",
        "connect again",
    )
    .about("connections")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_decides_before_the_body_is_read() {
        let request = |path: &str, length: &str| {
            Request::builder()
                .uri(path)
                .header(CONTENT_LENGTH, length)
                .body(())
                .unwrap()
        };
        let code = |path: &str, length: &str| {
            refused_by_head(&request(path, length)).map(|problem| problem.code)
        };
        let long = format!("/{}", "a".repeat(URI_BYTES_MAX));
        assert_eq!(code("/v1/status", "0"), None);
        assert_eq!(code("/v1/status", "65536"), None);
        assert_eq!(code("/v1/status", "65537"), Some(Code::BodyTooLarge));
        assert_eq!(
            code("/v1/status", "99999999999999999999999"),
            Some(Code::BodyTooLarge)
        );
        assert_eq!(code(&long, "0"), Some(Code::UriTooLong));
        assert!(refused_by_head(&Request::new(())).is_none());
    }
}
