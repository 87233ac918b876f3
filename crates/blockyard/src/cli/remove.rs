//! `blockyard remove`: one device, many at once, all, or what another installation left.
//!
//! Many are removed concurrently, at most [`CONCURRENCY`] at a time. A failure is one line and the rest goes on; only a
//! daemon that cannot be reached ends it, since every further try would say the same.

use std::time::Duration;

use api::client::Client;
use api::v1::{Code, FailedRemoval, Failure, Problem, Removal, RemovalReport};
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use super::Daemon;
use super::args::RemoveArgs;
use crate::exit::Exit;
use crate::output::{self, Format};

/// Removals asked for at a time: enough to keep the kernel busy, few beside the daemon's own limit.
const CONCURRENCY: usize = 32;
/// How often the progress of `--all` is asked for.
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);
/// How long to wait for it; meanwhile the end of the removal goes unseen.
const PROGRESS_DEADLINE: Duration = Duration::from_secs(1);
/// The step that is named when the daemon refused the request itself.
const REQUEST: &str = "request";

pub(super) async fn run(args: RemoveArgs, daemon: &Daemon) -> Exit {
    if args.all {
        return remove_all(daemon).await;
    }
    let wanted: Vec<_> = args
        .names
        .into_iter()
        .map(Wanted::Device)
        .chain(args.stray.into_iter().map(Wanted::Stray))
        .collect();
    let bar = bar(daemon.format);
    bar.set_length(u64::try_from(wanted.len()).unwrap_or(u64::MAX));
    let (report, exit) = remove_many(wanted, daemon, &bar).await;
    bar.finish_and_clear();
    if daemon.format == Format::Json
        && let Err(problem) = output::print_json(&report)
    {
        return exit.and(output::report(daemon.format, "remove", &problem));
    }
    exit
}

/// What to remove.
enum Wanted {
    /// A device by its name.
    Device(String),
    /// A left-over device by its number.
    Stray(u32),
}

async fn remove_many(
    wanted: Vec<Wanted>,
    daemon: &Daemon,
    bar: &ProgressBar,
) -> (RemovalReport, Exit) {
    let mut waiting = wanted.into_iter();
    let mut tasks = JoinSet::new();
    for wanted in waiting.by_ref().take(CONCURRENCY) {
        tasks.spawn(remove_one(daemon.client.clone(), wanted));
    }
    let mut report = RemovalReport::default();
    let mut exit = Exit::Ok;
    while let Some(joined) = tasks.join_next().await {
        let Ok((name, result)) = joined else {
            exit = exit.and(Exit::Failed);
            continue;
        };
        bar.inc(1);
        let Err(problem) = result else {
            report.removed.push(name);
            waiting
                .next()
                .map(|wanted| tasks.spawn(remove_one(daemon.client.clone(), wanted)));
            continue;
        };
        let what = format!("remove {name}");
        exit = exit.and(bar.suspend(|| output::report(daemon.format, &what, &problem)));
        let is_hopeless = matches!(
            problem.code,
            Code::DaemonUnreachable | Code::PermissionDenied
        );
        report.failed.push(FailedRemoval {
            name,
            step: REQUEST.to_owned(),
            error: problem.detail,
        });
        if is_hopeless {
            break;
        }
        waiting
            .next()
            .map(|wanted| tasks.spawn(remove_one(daemon.client.clone(), wanted)));
    }
    report.removed.sort();
    report.failed.sort_by(|a, b| a.name.cmp(&b.name));
    (report, exit)
}

async fn remove_one(client: Client, wanted: Wanted) -> (String, Result<(), Problem>) {
    let (name, removal) = match wanted {
        Wanted::Device(name) => {
            let removal = client.remove(&name).await;
            (name, removal)
        }
        Wanted::Stray(id) => (id.to_string(), client.remove_stray(id).await),
    };
    let result = match removal {
        Ok(removal) => in_order(&removal),
        Err(error) => Err(error.into()),
    };
    (name, result)
}

/// A device that is gone, but not in order, is a failure: in-flight I/O may have been lost.
fn in_order(removal: &Removal) -> Result<(), Problem> {
    match removal.failures.first() {
        None => Ok(()),
        Some(Failure {
            step,
            error,
            elapsed_ms,
        }) => Err(Problem::new(
            Code::StopFailed,
            format!(
                "the device is gone, but its step {step} failed after {elapsed_ms} ms: {error}"
            ),
            "check what used the device and the daemon's log",
        )
        .about(removal.name.clone())),
    }
}

async fn remove_all(daemon: &Daemon) -> Exit {
    let bar = bar(daemon.format);
    let removal = daemon.client.remove_all();
    tokio::pin!(removal);
    let result = loop {
        tokio::select! {
            result = &mut removal => break result,
            () = tokio::time::sleep(PROGRESS_PERIOD), if !bar.is_hidden() => show_progress(daemon, &bar).await,
        }
    };
    bar.finish_and_clear();
    match result {
        Ok(report) => tell(daemon.format, &report),
        Err(error) => output::report(daemon.format, "remove --all", &error.into()),
    }
}

fn tell(format: Format, report: &RemovalReport) -> Exit {
    let printed = match format {
        Format::Json => output::print_json(report),
        Format::Human => output::print(&format!("removed {} devices\n", report.removed.len())),
    };
    let mut exit = match printed {
        Ok(()) => Exit::Ok,
        Err(problem) => output::report(format, "remove --all", &problem),
    };
    for FailedRemoval { name, step, error } in &report.failed {
        let problem = Problem::new(
            Code::StopFailed,
            format!("step {step} failed: {error}"),
            "see blockyard inspect and the daemon's log",
        )
        .about(name.clone());
        exit = exit.and(output::report(format, &format!("remove {name}"), &problem));
    }
    exit
}

async fn show_progress(daemon: &Daemon, bar: &ProgressBar) {
    // Progress is a courtesy: when it cannot be had, the removal itself tells why.
    let client = daemon.client.clone().with_deadline(PROGRESS_DEADLINE);
    if let Ok(status) = client.status().await
        && let Some(progress) = status.shutdown
    {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        if let Some(step) = progress.in_progress.first() {
            bar.set_message(format!(
                "{}: {} for {} ms",
                step.name, step.step, step.since_ms
            ));
        }
    }
}

fn bar(format: Format) -> ProgressBar {
    output::progress_bar(format, "removing {pos} of {len} [{bar:30}] {elapsed} {msg}")
}
