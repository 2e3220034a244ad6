//! One cycle of a persistent agent: a plan in, a report out.
//!
//! ```text
//! acquire -> restore -> ingest -> mount -> execute -> write back -> unmount -> seal -> persist -> deliver -> report
//! ```
//! Each phase is one file below [`phase`] with its own error enum; [`cycle`] is the paragraph that calls
//! them. The states between them are types, so that an order which would endanger the memory (a snapshot
//! of a file that still has mounts in it, say) does not compile.
//!
//! This process has the credentials and therefore never opens a SQLite file: that happens in sandboxed
//! children of `cicada-memory`, the same program started anew.

pub mod args;
pub mod channel;
mod child;
pub mod context;
pub mod cycle;
pub mod download;
pub mod executor;
pub mod failure;
pub mod phase;
pub mod secrets;
pub mod shutdown;
pub mod work_dir;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cicada_contract::plan::Executor;
use cicada_contract::report::REPORT_MAX_BYTES;
use cicada_contract::{CyclePlan, CycleReport, FailureClass};
use cicada_memory::Launcher;
use clap::Parser;

use crate::args::{Cli, Command, RunArgs};
use crate::context::Context;
use crate::executor::container::server::{AgentServer, mark_ended};
use crate::failure::{chain, disk_class};
use crate::secrets::Secrets;
use crate::shutdown::Shutdown;
use crate::work_dir::WorkDir;

/// Runs the program that `args` names.
///
/// A worker is entered before anything else happens: its sandbox holds for the calling thread only, so
/// no other thread may exist yet. (A `Vec` and not any iterator: a generic function would be compiled, with
/// the whole cycle behind it, once more in each program that calls it.)
pub fn entry(args: Vec<OsString>) -> ExitCode {
    if args.get(1).is_some_and(|a| a == "worker") {
        let rest: Vec<String> = args.iter().skip(2).map(|a| a.to_string_lossy().into_owned()).collect();
        return cicada_memory::worker_main(rest);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    if !matches!(cli.command, Command::Child(_)) {
        start_logging();
    }
    // The AWS SDK and reqwest share one TLS provider; a second call finds it installed, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "could not start the runtime");
            return ExitCode::from(FailureClass::PlanInvalid.exit_code());
        }
    };
    let (args, report_only) = match cli.command {
        Command::Run(args) => (args, false),
        Command::Report(args) => (args, true),
        Command::Child(args) => {
            let code = runtime.block_on(child::run(args));
            runtime.shutdown_timeout(Duration::from_millis(100));
            return code;
        }
    };
    let report = match Launcher::current_exe() {
        Ok(launcher) => runtime.block_on(run(&args, launcher, report_only)),
        Err(error) => {
            CycleReport::failed(FailureClass::WorkerCrashed, format!("could not find this program: {error}"))
        }
    };
    // A worker that is being killed must not hold the exit back.
    runtime.shutdown_timeout(Duration::from_secs(1));
    finish(&args, &report)
}

/// JSON lines on standard error; `CICADA_LOG` filters as in `info,cicada_store=debug`.
fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CICADA_LOG").unwrap_or_else(|_| "info".into());
    let _ = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        // They go to standard error as well, and panic where that has no reader left.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}

async fn run(args: &RunArgs, launcher: Launcher, report_only: bool) -> CycleReport {
    let plan = match read_plan(args) {
        Ok(plan) => plan,
        Err(report) => return *report,
    };
    let namespace = plan.config.owner.namespace.clone();
    let timeout = Duration::from_secs(plan.config.limits.timeout);
    let prepared = Shutdown::listen(timeout, args.attended)
        .and_then(|shutdown| Ok((shutdown, WorkDir::prepare(&args.work)?)));
    let (shutdown, work) = match prepared {
        Ok(both) => both,
        Err(error) => {
            return CycleReport::failed(
                disk_class(&error, FailureClass::RestoreFailed),
                format!("could not prepare the working directory: {error}"),
            );
        }
    };
    let secrets = Secrets::new(args.secrets.clone(), &namespace);
    let server = match (&plan.config.executor, &args.mcp) {
        (Executor::Container(_), Some(folder)) if !report_only => match AgentServer::start(folder).await {
            Ok(server) => Some(server),
            Err(error) => return CycleReport::failed(FailureClass::ExecutorFailed, chain(&error)),
        },
        _ => None,
    };
    let mut context = Context::new(plan, work, launcher, secrets, shutdown);
    context.server = server;
    context.attended = args.attended;
    if report_only { cycle::report_only(&context).await } else { cycle::run(&context).await }
}

fn read_plan(args: &RunArgs) -> Result<CyclePlan, Box<CycleReport>> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|e| {
            // The config part is a ConfigMap volume with `optional: true`: absent means deleted.
            Box::new(CycleReport::failed(
                FailureClass::ConfigMissing,
                format!("plan file {} can't be read: {e}", path.display()),
            ))
        })
    };
    CyclePlan::parse(&read(&args.config)?, &read(&args.run)?).map_err(|error| {
        let class = match error {
            cicada_contract::plan::PlanError::Version { .. } => FailureClass::UnknownVersion,
            _ => FailureClass::PlanInvalid,
        };
        Box::new(CycleReport::failed(class, chain(&error)))
    })
}

/// Takes the room of a report before anything else is written: a disk that is full has none later. What is there until
/// the report is written is none.
pub fn reserve_report(path: &Path) -> std::io::Result<()> {
    std::fs::write(path, [b' '; REPORT_MAX_BYTES])
}

/// In place, so that the room which was reserved for it is used.
fn write_report(path: &Path, report: &str) -> std::io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
    file.write_all(report.as_bytes())?;
    if file.metadata()?.is_file() {
        file.set_len(report.len() as u64)?;
    }
    Ok(())
}

/// Writes the report and turns it into the exit code. The report is an extra: a lost one is made again
/// from the store, so failing to write it changes nothing about the cycle's result.
fn finish(args: &RunArgs, report: &CycleReport) -> ExitCode {
    if let Some(folder) = &args.mcp {
        mark_ended(folder);
    }
    if let Err(error) = write_report(&args.report, &report.render()) {
        tracing::warn!(error = &error as &dyn std::error::Error, "could not write the report");
    }
    match report.class {
        Some(class) if class.pages() => {
            tracing::error!(class = %class, message = report.message, "cycle failed")
        }
        Some(class) => tracing::warn!(class = %class, message = report.message, "cycle failed"),
        None => tracing::info!(outcome = ?report.outcome, recovered = report.recovered, "cycle ended"),
    }
    ExitCode::from(report.exit_code())
}
