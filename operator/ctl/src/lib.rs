//! All that people type: run agents on this machine, send messages, read and repair memories.
//!
//! `cicadactl` starts itself anew as the cycle job (`cicadactl cycle-job run ...`) and, through it, as the
//! sandboxed workers, so that one file is a whole platform.

mod args;
mod commands;
mod exit;
mod interrupt;
mod local;
mod manifest;
mod names;
mod output;
mod progress;
mod scratch;
mod target;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches};

/// Runs the program. Not generic, so that it is compiled here and not once more in each program.
pub fn entry(mut args: Vec<OsString>) -> ExitCode {
    // All of these must come before the runtime starts: a worker's sandbox holds for its only thread.
    let is_called_cycle_job =
        args.first().is_some_and(|a| Path::new(a).file_name().is_some_and(|n| n == "cycle-job"));
    if is_called_cycle_job || args.get(1).is_some_and(|a| a == "worker") {
        return cicada_cycle_job::entry(args);
    }
    if args.get(1).is_some_and(|a| a == "cycle-job") {
        args.remove(1);
        return cicada_cycle_job::entry(args);
    }
    let cli = match parse(args) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    start_logging();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::problem(&format!("could not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    runtime.spawn(interrupt::watch());
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => code,
        Err(error) => {
            // Libraries repeat their sources in their own text: each is said once.
            output::problem(&cicada_cycle_job::failure::chain(error.as_ref()));
            ExitCode::from(exit::code(&error))
        }
    }
}

/// On standard error; `CICADA_LOG` filters. Libraries say in their errors what is of use: what they log besides is for
/// those who ask for it.
fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CICADA_LOG")
        .unwrap_or_else(|_| "off,cicada=warn".into());
    let colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .log_internal_errors(false)
        .without_time()
        .try_init();
}

/// Name of the program, as its help writes it.
const NAME: &str = "cicadactl";
/// Its file's name where kubectl finds it as `kubectl cicada`.
const PLUGIN_FILE: &str = "kubectl-cicada";
/// Its name then.
const PLUGIN_NAME: &str = "kubectl cicada";

fn parse(args: Vec<OsString>) -> Result<args::Cli, clap::Error> {
    let file = args.first().and_then(|path| Path::new(path).file_stem());
    let command = args::Cli::command();
    let command = if file.is_some_and(|name| name == PLUGIN_FILE) {
        output::call_program(PLUGIN_NAME);
        called(command, PLUGIN_NAME).bin_name(PLUGIN_NAME)
    } else {
        command
    };
    args::Cli::from_arg_matches(&command.try_get_matches_from(args)?)
}

/// The same commands, with another name in their texts.
fn called(command: Command, name: &'static str) -> Command {
    let rename = |text: Option<String>| text.unwrap_or_default().replace(NAME, name);
    let after = rename(command.get_after_help().map(ToString::to_string));
    let about = rename(command.get_about().map(ToString::to_string));
    command
        .after_help(after)
        .about(about)
        .mut_args(|arg| {
            let help = arg.get_help().map(|h| h.to_string().replace(NAME, name));
            if let Some(help) = help { arg.help(help) } else { arg }
        })
        .mut_subcommands(|below| called(below, name))
}
