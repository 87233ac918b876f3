//! The routes, and how a call of the service becomes an answer.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Method, Response, StatusCode, Uri};
use axum::routing::{delete, get};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::slots::Slots;
use super::{Limits, answer, body};
use crate::service::{Creation, Service};
use crate::v1::{Code, DeviceList, DeviceRequest, Limit, Problem};
use crate::{metrics, openapi};

/// What every route needs.
pub(super) struct Context<S> {
    service: Arc<S>,
    slots: Arc<Slots>,
    limits: Limits,
    /// One permit per change in progress.
    changes: Arc<Semaphore>,
}

type Shared<S> = State<Arc<Context<S>>>;
type Name = Result<Path<String>, PathRejection>;
type Answer = Response<Body>;

/// The router over that context.
pub(super) fn router<S: Service>(context: Arc<Context<S>>) -> Router {
    Router::new()
        .route("/v1/devices", get(list::<S>).delete(remove_all::<S>))
        .route(
            "/v1/devices/{name}",
            get(inspect::<S>).put(create::<S>).delete(remove::<S>),
        )
        .route("/v1/strays/{id}", delete(remove_stray::<S>))
        .route("/v1/status", get(status::<S>))
        .route("/metrics", get(scrape::<S>))
        .route("/openapi.json", get(document))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(context)
}

impl<S: Service> Context<S> {
    pub(super) fn new(service: Arc<S>, slots: Arc<Slots>, limits: Limits) -> Self {
        let changes = Arc::new(Semaphore::new(limits.changes_max));
        Self {
            service,
            slots,
            limits,
            changes,
        }
    }

    /// Resolves when no change is in progress.
    pub(super) async fn changes_done(&self) {
        let all = u32::try_from(self.limits.changes_max).unwrap_or(u32::MAX);
        // The semaphore is never closed; if it were, there would be nothing to wait for.
        let _permits = self.changes.acquire_many(all).await;
    }

    /// Runs a change to its end, whether or not the client waits for it.
    async fn change<T, F>(&self, call: impl FnOnce(Arc<S>) -> F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        let permit = Arc::clone(&self.changes).try_acquire_owned().map_err(|_| {
            let max = self.limits.changes_max;
            Problem::new(
                Code::LimitReached,
                format!("{max} changes are in progress, which is the limit (limits.changes_max)"),
                "wait until some have ended, then try again",
            )
            .about("changes")
        })?;
        let work = call(Arc::clone(&self.service));
        let task = tokio::spawn(async move {
            let result = work.await;
            drop(permit);
            result
        });
        task.await.unwrap_or_else(|error| Err(panicked(&error)))
    }

    /// Runs a read; it ends with the client.
    async fn read<T, F>(&self, call: impl FnOnce(Arc<S>) -> F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        // A task of its own, so that a panic is an answer; in a set, so that dropping this future aborts it.
        let mut task = JoinSet::new();
        task.spawn(call(Arc::clone(&self.service)));
        match task.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(error)) => Err(panicked(&error)),
            None => Err(Problem::new(
                Code::Internal,
                "the request vanished",
                "report this as a bug",
            )),
        }
    }

    /// The server's own limits.
    fn limits(&self) -> [Limit; 2] {
        let max = self.limits.changes_max;
        let in_use = max.saturating_sub(self.changes.available_permits());
        let changes = Limit {
            name: "changes".to_owned(),
            in_use: u64::try_from(in_use).unwrap_or(u64::MAX),
            limit: u64::try_from(max).unwrap_or(u64::MAX),
        };
        [changes, self.slots.limit()]
    }

    fn add_limits(&self, limits: &mut Vec<Limit>) {
        limits.extend(self.limits());
        limits.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

fn panicked(error: &tokio::task::JoinError) -> Problem {
    tracing::error!(err = %error, "request failed in the daemon");
    Problem::new(
        Code::Internal,
        "the daemon failed while it handled the request",
        "look at the daemon's log and report this as a bug",
    )
}

/// The name in the path, decoded. The service decides whether it is a device's name.
fn name_of(path: Name) -> Result<String, Problem> {
    path.map(|Path(name)| name).map_err(|rejection| {
        Problem::new(
            Code::InvalidName,
            format!(
                "the device's name in the path cannot be decoded: {}",
                rejection.body_text()
            ),
            "use letters, digits, '.', '_' and '-'",
        )
        .about("name")
    })
}

/// An answer, or its problem.
fn settle(result: Result<Answer, Problem>) -> Answer {
    match result {
        Ok(answer) => answer,
        // Nobody knows how much of such a body is still to come.
        Err(problem) if matches!(problem.code, Code::BodyTooLarge | Code::RequestTimeout) => {
            answer::last_problem(&problem)
        }
        Err(problem) => answer::problem(&problem),
    }
}

async fn create<S: Service>(State(context): Shared<S>, name: Name, request: Request) -> Answer {
    let result = async {
        let name = name_of(name)?;
        let body: DeviceRequest = body::read_json(request, context.limits.body_timeout).await?;
        context
            .change(|service| async move { service.create(name, body).await })
            .await
    };
    settle(result.await.map(|creation| match creation {
        Creation::Created(device) => answer::json(StatusCode::CREATED, &device),
        Creation::Existing(device) => answer::json(StatusCode::OK, &device),
    }))
}

async fn inspect<S: Service>(State(context): Shared<S>, name: Name) -> Answer {
    let result = async {
        let name = name_of(name)?;
        context
            .read(|service| async move { service.inspect(name).await })
            .await
    };
    settle(
        result
            .await
            .map(|device| answer::json(StatusCode::OK, &device)),
    )
}

async fn remove<S: Service>(State(context): Shared<S>, name: Name) -> Answer {
    let result = async {
        let name = name_of(name)?;
        context
            .change(|service| async move { service.remove(name).await })
            .await
    };
    settle(
        result
            .await
            .map(|removal| answer::json(StatusCode::OK, &removal)),
    )
}

async fn remove_stray<S: Service>(
    State(context): Shared<S>,
    path: Result<Path<String>, PathRejection>,
) -> Answer {
    let result = async {
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        let id = id.ok_or_else(|| {
            Problem::new(
                Code::InvalidField,
                "the path names no number of a ublk device",
                "use a number from the findings of `blockyard status`",
            )
            .about("id")
        })?;
        context
            .change(|service| async move { service.remove_stray(id).await })
            .await
    };
    settle(
        result
            .await
            .map(|removal| answer::json(StatusCode::OK, &removal)),
    )
}

async fn list<S: Service>(State(context): Shared<S>) -> Answer {
    let result = context
        .read(|service| async move { service.list().await })
        .await;
    settle(result.map(|mut devices| {
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        answer::json(StatusCode::OK, &DeviceList { devices })
    }))
}

async fn remove_all<S: Service>(State(context): Shared<S>) -> Answer {
    let result = context
        .change(|service| async move { service.remove_all().await })
        .await;
    settle(result.map(|report| answer::json(StatusCode::OK, &report)))
}

async fn status<S: Service>(State(context): Shared<S>) -> Answer {
    let result = context
        .read(|service| async move { service.status().await })
        .await;
    settle(result.map(|mut status| {
        context.add_limits(&mut status.limits);
        answer::json(StatusCode::OK, &status)
    }))
}

async fn scrape<S: Service>(State(context): Shared<S>) -> Answer {
    let result = context
        .read(|service| async move { service.metrics().await })
        .await;
    settle(result.and_then(|mut source| {
        context.add_limits(&mut source.status.limits);
        let text = metrics::render(source).map_err(|error| {
            Problem::new(
                Code::Internal,
                format!("the metrics cannot be rendered: {error}"),
                "report this as a bug",
            )
        })?;
        Ok(answer::text(metrics::PROMETHEUS_TEXT, text))
    }))
}

async fn document() -> Answer {
    answer::json(StatusCode::OK, &openapi::document())
}

async fn no_route(uri: Uri) -> Answer {
    answer::problem(
        &Problem::new(
            Code::RouteNotFound,
            format!("there is nothing at {}", uri.path()),
            "see /openapi.json for what there is",
        )
        .about(uri.path()),
    )
}

async fn no_method(method: Method, uri: Uri) -> Answer {
    answer::problem(
        &Problem::new(
            Code::MethodNotAllowed,
            format!("{} does not take {method}", uri.path()),
            "see the header allow, or /openapi.json",
        )
        .about(uri.path()),
    )
}
