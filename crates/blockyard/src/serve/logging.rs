//! Where the daemon's log goes: standard error, human or JSON; the level by `BLOCKYARD_LOG` (default `info`).

use tracing_subscriber::EnvFilter;

use crate::output::Format;

/// Starts logging. A second call changes nothing.
pub(crate) fn start(format: Format) {
    let filter =
        EnvFilter::try_from_env("BLOCKYARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // Fails only when a subscriber is set already, as in tests of this process.
    let _ = match format {
        Format::Human => builder.with_ansi(false).try_init(),
        Format::Json => builder.json().try_init(),
    };
}
