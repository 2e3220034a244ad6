//! Any SQLite file through the agent's own tool, on a copy.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use cicada_contract::resources::MIB;
use cicada_memory::{Check, Launcher, MemoryOptions, MemoryWorker};

use crate::args::SqlArgs;
use crate::output::{line, note};

/// `sql`: the copy stays, so that its path can be looked at.
pub(super) fn sql(args: SqlArgs) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("cicada-sql-").tempdir()?.keep();
    let mut worker = open_copy(&args.db, &folder)?;
    let result = worker.batch(&args.sql)?;
    line(result.text.trim_end())?;
    if result.is_ok() {
        worker.unmount()?;
        worker.seal()?;
    }
    note(&format!("on the copy {}; {} was not changed", folder.join("memory.db").display(), args.db.display()));
    Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Opens a copy of `file` (and of its write-ahead log, if it has one) in a worker.
fn open_copy(file: &Path, folder: &Path) -> anyhow::Result<MemoryWorker> {
    let size = copy(file, &folder.join("memory.db"))?;
    let log = PathBuf::from(format!("{}-wal", file.display()));
    if log.exists() {
        copy(&log, &folder.join("memory.db-wal"))?;
    }
    let limit = (2 * size).max(256 * MIB);
    let options = MemoryOptions::new(limit, 256 * MIB, Duration::from_secs(300));
    let mut worker = MemoryWorker::spawn(&Launcher::current_exe()?, folder, options)
        .with_context(|| format!("can't open {} as a SQLite database", file.display()))?;
    worker.check(Check::Quick).with_context(|| format!("{} is damaged", file.display()))?;
    Ok(worker)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<u64> {
    if !from.is_file() {
        bail!("{} is not a file", from.display());
    }
    std::fs::copy(from, to).with_context(|| format!("can't copy {}", from.display()))
}
