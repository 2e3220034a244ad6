//! One file for each group of commands.

mod files;
mod memory;
mod messages;
mod sqlite_file;

use std::process::ExitCode;

use crate::args::{Cli, Command};

/// Runs the command of the line.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Local(args) => return crate::local::run(args).await,
        Command::Send(args) => messages::send(args).await?,
        Command::Log(args) => memory::log(args).await?,
        Command::Query(args) => memory::query(args).await?,
        Command::Inspect(args) => memory::inspect(args).await?,
        Command::Snapshots(args) => memory::snapshots(args).await?,
        Command::Files(args) => files::run(args).await?,
        Command::Prompt(args) => sqlite_file::prompt(args)?,
        Command::Sql(args) => return sqlite_file::sql(args),
    }
    Ok(ExitCode::SUCCESS)
}
