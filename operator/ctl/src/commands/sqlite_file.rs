//! Any SQLite file through the agent's own tool, on a copy.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use cicada_contract::resources::MIB;
use cicada_memory::{Launcher, MemoryOptions, MemoryWorker, PromptOptions};

use super::restored::private_folder;
use crate::args::{PromptArgs, SqlArgs};
use crate::exit::{Missing, UsageError};
use crate::output::{line, note};

/// Longest time of one statement: a person waits, no cycle.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(300);

/// `prompt`.
pub(super) fn prompt(args: PromptArgs) -> anyhow::Result<()> {
    let folder = private_folder()?;
    let mut worker = open_copy(&args.db, folder.path())?;
    let options = PromptOptions { max_bytes: args.bytes, ..PromptOptions::default() };
    line(worker.schema_prompt(&options)?.trim_end())
}

/// `sql`: the copy stays, so that it can be looked at.
pub(super) fn sql(args: SqlArgs) -> anyhow::Result<ExitCode> {
    let scratch = private_folder()?;
    let mut worker = open_copy(&args.db, scratch.path())?;
    let result = worker.batch(&args.sql)?;
    line(result.text.trim_end())?;
    if result.is_ok() {
        worker.unmount()?;
        worker.seal()?;
    }
    let folder = scratch.keep()?;
    note(&format!(
        "on the copy {}; {} was not changed",
        folder.join("memory.db").display(),
        args.db.display()
    ));
    Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Bytes of a file that is there.
pub(super) fn regular_file(file: &Path) -> anyhow::Result<u64> {
    let meta = match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(Missing(format!("can't find {}", file.display())))
        }
        meta => meta.with_context(|| format!("can't read {}", file.display()))?,
    };
    if !meta.is_file() {
        bail!(UsageError(format!("{} is no file", file.display())));
    }
    Ok(meta.len())
}

fn open_copy(file: &Path, folder: &Path) -> anyhow::Result<MemoryWorker> {
    let size = regular_file(file)?;
    let options = MemoryOptions::new((2 * size).max(256 * MIB), 256 * MIB, STATEMENT_TIMEOUT);
    MemoryWorker::open_copy(&Launcher::current_exe()?, file, folder, options)
        .with_context(|| format!("can't use {} as a database", file.display()))
}
