//! Logs.

use std::{io::IsTerminal as _, process::ExitCode};

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// Starts logging to standard error.
pub fn start(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(filter)?)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        // Colours are for a terminal: `helm` shows what a Job of ours says.
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
    }
    // Its own words would be no JSON.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, message = panic.payload_as_str().unwrap_or_default(), "a defect: panic");
    }));
    Ok(())
}

/// The end of a command; its error is a line of the log, in the log's form.
pub fn ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), "ended by an error");
        ExitCode::FAILURE
    })
}
