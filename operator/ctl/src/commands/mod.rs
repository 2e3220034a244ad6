//! One file for each group of commands.

mod answer;
mod claim;
mod copy;
mod diff;
mod export;
mod files;
mod gc;
mod hold;
mod import;
mod list;
mod log;
mod memory;
pub(crate) mod messages;
mod outbox;
mod proposals;
mod restore;
mod restored;
mod run;
mod sqlite_file;
mod verify;

use std::process::ExitCode;

use crate::args::{Cli, Command};

/// Runs the command of the line.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Local(args) => return crate::local::run(args).await,
        Command::Send(args) => messages::send(args).await?,
        Command::Log(args) => log::run(args).await?,
        Command::Query(args) => memory::query(args).await?,
        Command::Inspect(args) => memory::inspect(args).await?,
        Command::Snapshots(args) => memory::snapshots(args).await?,
        Command::Run(args) => return run::run(args).await,
        Command::Answer(args) => answer::run(args).await?,
        Command::Hold(args) => hold::hold(args).await?,
        Command::Release(args) => hold::release(args).await?,
        Command::Proposals(args) => proposals::run(args).await?,
        Command::List(args) => list::run(args).await?,
        Command::Diff(args) => return diff::run(args).await,
        Command::Verify(args) => return verify::run(args).await,
        Command::Restore(args) => restore::run(args).await?,
        Command::Export(args) => export::run(args).await?,
        Command::Import(args) => import::run(args).await?,
        Command::Copy(args) => return copy::run(args).await,
        Command::Outbox(args) => outbox::run(args).await?,
        Command::Gc(args) => gc::run(args).await?,
        Command::Files(args) => files::run(args).await?,
        Command::Prompt(args) => sqlite_file::prompt(args)?,
        Command::Sql(args) => return sqlite_file::sql(args),
    }
    Ok(ExitCode::SUCCESS)
}
