//! Logs.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// Starts logging to standard error.
pub fn start(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let builder =
        tracing_subscriber::fmt().with_env_filter(EnvFilter::try_new(filter)?).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        // Colours are for a terminal: `helm` shows what a Job of ours says.
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
    }
    Ok(())
}
