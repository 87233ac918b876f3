//! The daemon.

use api::v1::{Code, Problem};

use crate::config::{ServeArgs, Settings};

/// Runs the daemon until it is told to end.
///
/// # Errors
///
/// Why it cannot start, or that not every device stopped in order.
pub(crate) fn run(args: ServeArgs) -> Result<(), Problem> {
    let Settings {
        socket,
        state_dir,
        shards,
        stop_concurrency,
        deadlines,
        devices_max,
        api,
        logs,
    } = Settings::load(args)?;
    tracing::debug!(
        ?socket,
        ?state_dir,
        shards,
        stop_concurrency,
        ?deadlines,
        devices_max,
        ?api,
        ?logs,
        "settings"
    );
    Err(Problem::new(
        Code::Internal,
        "serve is not wired yet",
        "use a later release",
    ))
}
