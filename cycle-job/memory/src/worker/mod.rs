//! The workers' own main: everything here runs in the sandboxed child.

mod batch;
mod engine;
mod hints;
mod ledger;
mod load_file;
mod mount;
mod overlay;
mod seal;
mod statement;
mod unpack;
mod warnings;

use std::process::ExitCode;

pub(crate) use engine::{Clear, MemoryRequest, MountRows};
pub(crate) use ledger::LedgerRequest;
pub(crate) use mount::quote;
pub(crate) use overlay::PAGES;
pub(crate) use seal::{COMPACTED, durable_tables};
pub use unpack::Link;
pub(crate) use unpack::UnpackRequest;
pub(crate) use warnings::similar;

use crate::guard::limits;
use crate::protocol::{Fault, FaultKind, Frame, Hello, Port, WorkerArgs};
use crate::{Sandbox, capi, sandbox, sys};

/// Runs a worker until its parent closes the pipe. `args` is what follows `worker` on the command line:
/// the kind and its options. Must be called before any thread is started.
pub fn worker_main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let mut args = args.into_iter();
    let (Some(kind), Some(options)) = (args.next(), args.next()) else {
        return usage();
    };
    let Ok(options) = serde_json::from_str::<WorkerArgs>(&options) else { return usage() };
    let limits = sys::Limits {
        address_space: options.address_space,
        file_size: options.file_size,
        // Longer than the longest cycle (24 h): the clocks of the statements end sooner.
        cpu_seconds: 48 * 3600,
    };
    if let Err(error) = sys::apply(limits) {
        return fail(
            &Port::new(),
            Fault::new(FaultKind::Build, format!("could not set resource limits: {error}")),
        );
    }
    capi::initialise(options.heap);
    // Time zones are compiled in; reading them once here shows a broken build before any request.
    let _ = crate::mounts::rules::zone("UTC");
    let port = Port::new();
    let level = sandbox::enter(&options.directory, options.read.as_deref());
    let served = match kind.as_str() {
        "memory" => engine::serve(&port, &options, level),
        "ledger" => ledger::serve(&port, &options, level),
        "unpack" => unpack::serve(&port),
        _ => return usage(),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fail(&port, fault),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: worker memory|ledger|unpack <options as JSON>; the cycle job starts it itself");
    ExitCode::from(2)
}

fn fail(port: &Port, fault: Fault) -> ExitCode {
    eprintln!("{}", fault.message);
    let _ = port.send::<()>(&Frame::Failed(fault));
    ExitCode::from(1)
}

/// Opens a database file the way all workers do: created if absent, hardened, WAL without sync.
pub(crate) fn open(
    path: &std::path::Path,
    options: &WorkerArgs,
    level: Sandbox,
) -> Result<(rusqlite::Connection, Hello), Fault> {
    let created = std::fs::metadata(path).map_or(true, |m| m.len() == 0);
    check_header(path, created)?;
    let wal = path.with_extension("db-wal");
    let dirty = std::fs::metadata(&wal).is_ok_and(|m| m.len() > 0);
    // Asked of an empty database: a damaged one could not answer.
    if let Some(problem) = crate::flags::problem(&rusqlite::Connection::open_in_memory()?) {
        return Err(Fault::new(FaultKind::Build, problem));
    }
    let connection = rusqlite::Connection::open(path)?;
    limits::harden(
        &connection,
        if options.foreign { limits::FOREIGN_COLUMNS_MAX } else { limits::COLUMNS_MAX },
    )?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    limits::cap_size(&connection, options.size_limit)?;
    let user_version = connection.query_row("PRAGMA user_version", [], |r| r.get(0))?;
    Ok((connection, Hello { sandbox: level, user_version, created, dirty }))
}

/// A file that is no database is told from a damaged one before SQLite sees it.
fn check_header(path: &std::path::Path, created: bool) -> Result<(), Fault> {
    if created {
        return Ok(());
    }
    let meta = std::fs::symlink_metadata(path)?;
    if !meta.is_file() {
        return Err(Fault::new(FaultKind::Corrupt, "not a regular file"));
    }
    let mut head = [0; 100];
    let read = std::io::Read::read(&mut std::fs::File::open(path)?, &mut head)?;
    if read < 100 || &head[..16] != b"SQLite format 3\0" {
        return Err(Fault::new(
            FaultKind::Corrupt,
            "not a SQLite database: the first 16 bytes are not its mark",
        ));
    }
    Ok(())
}
