//! SIGTERM, SIGINT and SIGHUP (the end of the terminal): the first stops all devices, a later one hurries. Meanwhile the log tells how far it is.

use std::time::Duration;

use manager::{Event, Manager, Progress};
use tokio::signal::unix::{SignalKind, signal};

use super::clock;
use super::engine::Engine;

/// A signal so soon after the first is the same one twice: `timeout` and shells signal a process and then its group.
const SAME_WITHIN: Duration = Duration::from_millis(500);
/// How often the log tells how far a shutdown is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// How many devices such a line names.
const NAMES_MAX: usize = 5;

/// Watches for signals until the process ends.
pub(crate) async fn watch(engine: Engine) {
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::hangup()),
    ) else {
        tracing::error!("signals cannot be watched; only SIGKILL will end this daemon");
        return;
    };
    let mut first = None;
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
        let Some(first) = first else {
            first = Some(clock::now());
            tracing::info!("signal received; all devices stop");
            engine.signal(Event::Shutdown);
            tokio::spawn(tell_progress(engine.clone()));
            continue;
        };
        if clock::now().duration_since(first) >= SAME_WITHIN {
            tracing::warn!("signal received again; I/O in flight is not waited for any more");
            engine.signal(Event::Hurry);
        }
    }
}

async fn tell_progress(engine: Engine) {
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        let progress = engine
            .query(|manager: &Manager| manager.status().shutdown)
            .await;
        let Ok(Some(Progress {
            total,
            done,
            in_progress,
            ..
        })) = progress
        else {
            return;
        };
        if done == total {
            return;
        }
        let named = in_progress.iter().take(NAMES_MAX);
        let named: Vec<_> = named
            .map(|entry| format!("{} ({})", entry.name, entry.step))
            .collect();
        tracing::info!(done, total, in_progress = %named.join(", "), "devices stop");
    }
}
