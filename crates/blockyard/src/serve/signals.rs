//! SIGTERM, SIGINT and SIGHUP (the end of the terminal): the first stops all devices, a later one hurries. Meanwhile the log tells how far it
//! is. Signals that would kill the daemon by default, though nobody means that by them, are ignored.

use std::io;
use std::time::Duration;

use manager::{Event, Manager, Progress};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::clock;
use super::engine::Engine;

/// A signal so soon after the first is the same one twice: `timeout` and shells signal a process and then its group.
const SAME_WITHIN: Duration = Duration::from_millis(500);
/// How often the log tells how far a shutdown is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// How many devices such a line names.
const NAMES_MAX: usize = 5;

/// The signals that are caught, from the moment that this exists.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    ignored: Vec<(&'static str, Signal)>,
}

impl Signals {
    /// Catches them. Before anything of the kernel is touched: a daemon that a signal kills leaves its devices behind.
    pub(crate) fn catch() -> io::Result<Self> {
        let ignored = [
            ("SIGUSR1", SignalKind::user_defined1()),
            ("SIGUSR2", SignalKind::user_defined2()),
            ("SIGALRM", SignalKind::alarm()),
        ];
        let ignored = ignored
            .into_iter()
            .map(|(name, kind)| Ok((name, signal(kind)?)));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            ignored: ignored.collect::<io::Result<_>>()?,
        })
    }

    /// Acts on them until the process ends.
    pub(crate) async fn watch(mut self, engine: Engine) {
        for (name, signal) in self.ignored {
            tokio::spawn(ignore(name, signal));
        }
        let mut first = None;
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = self.hangup.recv() => {}
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
}

async fn ignore(name: &'static str, mut signal: Signal) {
    while signal.recv().await.is_some() {
        tracing::info!(signal = name, "signal ignored; SIGTERM ends the daemon");
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
