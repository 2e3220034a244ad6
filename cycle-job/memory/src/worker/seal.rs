//! Checks of the file, and the end of a cycle: one clean file without a write-ahead log.

use cicada_contract::report::TableChange;
use rusqlite::Connection;
use rusqlite::limits::Limit;

use super::engine::Engine;
use super::mount::{assert_clean, quote};
use crate::guard::schema::{self, Schema};
use crate::memory::{Check, Sealed};
use crate::protocol::{Fault, FaultKind};

/// Runs SQLite's own check; the first problems are the message. In a `foreign` file a virtual table may be
/// of a kind that is not here: then the other tables are checked one by one.
pub(super) fn check(connection: &Connection, check: Check, foreign: bool) -> Result<(), Fault> {
    let name = match check {
        Check::Quick => "quick_check",
        Check::Integrity => "integrity_check",
    };
    let damaged = |what: &str| Fault::new(FaultKind::Corrupt, format!("the database is damaged: {what}"));
    // A CHECK is the agent's own rule. It may have changed its mind (`random()`, another time), and a row
    // that breaks it now is no damage.
    connection.execute_batch("PRAGMA ignore_check_constraints = ON")?;
    let run = |pragma: &str| -> Result<(), Fault> {
        let problems: Vec<String> =
            connection.prepare(pragma)?.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
        if problems == ["ok"] { Ok(()) } else { Err(damaged(&problems.join("; "))) }
    };
    let done = match run(&format!("PRAGMA {name}(5)")) {
        Err(fault) if fault.kind == FaultKind::Sql && foreign => {
            let tables: Vec<String> = connection
                .prepare("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")?
                .query_map([], |r| r.get(0))?
                .collect::<Result<_, _>>()?;
            tables.iter().try_for_each(|table| run(&format!("PRAGMA {name}({})", quote(table))))
        }
        Err(fault) if fault.kind == FaultKind::Sql => Err(damaged(&fault.message)),
        done => done,
    };
    connection.execute_batch("PRAGMA ignore_check_constraints = OFF")?;
    done
}

/// Tables that the agent made: no shadow tables, none of SQLite's.
pub(crate) fn durable_tables(schema: &Schema) -> Vec<String> {
    let virtuals: Vec<String> = schema
        .values()
        .filter(|o| {
            o.sql.as_deref().is_some_and(|s| schema::module_of(&crate::sql::split::code(s)).is_some())
        })
        .map(|o| o.name.to_lowercase())
        .collect();
    let shadow = |name: &str| {
        let name = name.to_lowercase();
        name.rsplit_once('_').is_some_and(|(base, end)| {
            // Of fts5; of fts4 and rtree, which a file of others may have.
            [
                "data", "idx", "content", "docsize", "config", "segments", "segdir", "stat", "node", "rowid",
                "parent",
            ]
            .contains(&end)
                && virtuals.iter().any(|v| v == base)
        })
    };
    schema
        .values()
        .filter(|o| o.kind == "table" && !o.name.starts_with("sqlite_") && !shadow(&o.name))
        .map(|o| o.name.clone())
        .collect()
}

/// Row counts of tables that exist.
pub(super) fn count(connection: &Connection, tables: &[String]) -> Result<Vec<TableChange>, Fault> {
    let mut counts = vec![];
    for name in tables {
        let sql = format!("SELECT count(*) FROM main.{}", quote(name));
        let Ok(rows) = connection.query_row(&sql, [], |r| r.get::<_, i64>(0)) else { continue };
        let rows = Some(rows.unsigned_abs());
        counts.push(TableChange {
            name: name.clone(),
            rows,
            before: None,
            inserted: 0,
            updated: 0,
            deleted: 0,
        });
    }
    Ok(counts)
}

/// Makes the file whole: no temporary table, the log in the file, the header as other tools expect it. A file
/// with a change, or `always`, is checked; one without is what was restored.
pub(super) fn seal(
    engine: &mut Engine,
    user_version: i32,
    thoroughly: Check,
    always: bool,
) -> Result<(Sealed, bool), Fault> {
    assert_clean(engine)?;
    if !engine.foreign {
        schema::allowed(&engine.main).map_err(|m| Fault::new(FaultKind::Schema, m))?;
    }
    let connection = &engine.connection;
    let found: i32 = connection.query_row("PRAGMA user_version", [], |r| r.get(0))?;
    if found != user_version {
        connection.execute_batch(&format!("PRAGMA user_version = {user_version}"))?;
    }
    let wal = engine.directory.join("memory.db-wal");
    let changed = std::fs::metadata(&wal).is_ok_and(|m| m.len() > 0);
    // Before the log is gone: a process that takes over from one which died here sees that there is a change.
    if changed || always {
        check(connection, thoroughly, engine.foreign)?;
    }
    checkpoint(connection)?;
    rollback_journal(connection)?;
    let compacted = changed && compact(engine)?;
    let name = if compacted { COMPACTED } else { "memory.db" };
    let size = std::fs::metadata(engine.directory.join(name))?.len();
    let tables = u32::try_from(durable_tables(&engine.main).len()).unwrap_or(u32::MAX);
    Ok((Sealed { size, tables, changed }, compacted))
}

/// Name of the copy that takes the file's place.
pub(crate) const COMPACTED: &str = "compacted.db";

/// Writes a copy without free pages, if they are nearly a third of the file and worth the work. A new
/// file and not VACUUM in place, which would hold the whole content in RAM.
fn compact(engine: &Engine) -> Result<bool, Fault> {
    let c = &engine.connection;
    let number = |pragma: &str| c.query_row(pragma, [], |r| r.get::<_, i64>(0));
    let (pages, free) = (number("PRAGMA page_count")?, number("PRAGMA freelist_count")?);
    if free * 10 < pages * 3 || free * number("PRAGMA page_size")? < 1 << 20 {
        return Ok(false);
    }
    let path = engine.directory.join(COMPACTED);
    let _ = std::fs::remove_file(&path);
    // The only ATTACH there ever is: VACUUM INTO needs one.
    c.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?;
    let done = c.execute("VACUUM main INTO ?1", [path.to_string_lossy()]);
    c.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    done.map(|_| true).map_err(Fault::from)
}

/// Copies the whole log into the file.
pub(super) fn checkpoint(connection: &Connection) -> Result<(), Fault> {
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get(0))?;
    if busy != 0 {
        return Err(Fault::new(
            FaultKind::Internal,
            "the log could not be copied into the file: a statement is still open",
        ));
    }
    Ok(())
}

/// Leaves WAL mode, so that a reader without write access can open the file.
pub(super) fn rollback_journal(connection: &Connection) -> Result<(), Fault> {
    connection.flush_prepared_statement_cache();
    let mode: String = connection.query_row("PRAGMA journal_mode = DELETE", [], |r| r.get(0))?;
    if mode != "delete" {
        return Err(Fault::new(
            FaultKind::Internal,
            "the file could not leave WAL mode: a statement is still open",
        ));
    }
    Ok(())
}
