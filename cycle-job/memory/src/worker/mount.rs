//! Mounts in the worker: make, fill, drop, and prove that nothing is left.

use std::sync::PoisonError;

use rusqlite::limits::Limit;
use rusqlite::params_from_iter;

use super::engine::{Clear, Engine};
use crate::capi;
use crate::guard::{names, schema};
use crate::ledger::load::IMAGE_SCHEMA;
use crate::mounts::{Edit, IMAGE, MOUNTS, Mount, MountEdit, MountPolicy, diff};
use crate::protocol::{Fault, FaultKind};
use crate::value::{Row, Value};

/// Begins a transaction in which mounts are emptied or dropped, whatever scratch tables of the agent's refer to
/// them or to each other. The setting changes nothing inside of a transaction, so it comes first.
const BEGIN: &str = "PRAGMA foreign_keys = OFF; BEGIN";
/// Foreign keys hold again; after the end of that transaction.
const KEYS_ON: &str = "PRAGMA foreign_keys = ON";

/// Makes the tables if they are not there.
fn make(engine: &mut Engine) -> Result<(), Fault> {
    if !engine.mounted {
        for mount in MOUNTS {
            engine.connection.execute_batch(&mount.create_sql("temp"))?;
            for trigger in mount.trigger_sql() {
                engine.connection.execute_batch(&trigger)?;
            }
        }
        engine.mounted = true;
    }
    Ok(())
}

/// Fills tables from the image that the ledger worker wrote and the parent put beside the database.
pub(super) fn image(engine: &mut Engine, tables: &[String]) -> Result<(), Fault> {
    let path = engine.directory.join(IMAGE);
    engine.connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?;
    let attached = engine
        .connection
        .execute(&format!("ATTACH ?1 AS {IMAGE_SCHEMA}"), [path.to_string_lossy()])
        .map_err(Fault::from);
    let done = attached.and_then(|_| {
        engine.connection.execute_batch(BEGIN)?;
        or_undo(engine, |engine| {
            make(engine)?;
            let changes = std::rc::Rc::clone(&engine.changes);
            let sql = sql(tables)?;
            capi::unwatched(&engine.connection, &changes, || engine.connection.execute_batch(&sql))?;
            Ok(())
        })?;
        Ok(engine.connection.execute_batch(&format!("{KEYS_ON}; DETACH {IMAGE_SCHEMA}"))?)
    });
    engine.connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    done
}

/// Row by row as bytes: both tables are declared alike, and SQLite then takes no row apart. Emptied in a
/// transaction before, so that the pages that are used again need no copy for a rollback.
fn sql(tables: &[String]) -> Result<String, Fault> {
    let (mut empty, mut fill) = (String::new(), String::new());
    for table in tables {
        let name = find(table)?.name;
        empty.push_str(&format!("DELETE FROM temp.{name}; "));
        fill.push_str(&format!("INSERT INTO temp.{name} SELECT * FROM {IMAGE_SCHEMA}.{name}; "));
    }
    Ok(format!("{empty} COMMIT; BEGIN; {fill} COMMIT"))
}

/// Begins a mount.
pub(super) fn begin(engine: &mut Engine, policy: MountPolicy) -> Result<(), Fault> {
    *engine.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    engine.connection.execute_batch(BEGIN)?;
    or_undo(engine, make)
}

fn find(table: &str) -> Result<&'static Mount, Fault> {
    Mount::find(table).ok_or_else(|| Fault::new(FaultKind::Internal, format!("no mount named {table}")))
}

/// Puts rows into one table. No code of the agent's runs: it can make no trigger on a temporary table, and
/// triggers of the memory file can't be on one.
pub(super) fn rows(engine: &mut Engine, table: &str, clear: &Clear, rows: &[Row]) -> Result<(), Fault> {
    let mount = find(table)?;
    or_undo(engine, |engine| {
        match clear {
            Clear::Nothing => {}
            Clear::All => drop(engine.connection.execute(&format!("DELETE FROM temp.{}", mount.name), [])?),
            Clear::Keys(keys) => {
                let sql = format!("DELETE FROM temp.{} WHERE {} = ?1", mount.name, mount.key);
                let mut delete = engine.connection.prepare_cached(&sql)?;
                keys.iter().try_for_each(|key| delete.execute([key]).map(drop))?;
            }
        }
        let marks = vec!["?"; mount.columns.len()].join(",");
        let mut insert =
            engine.connection.prepare_cached(&format!("INSERT INTO temp.{} VALUES ({marks})", mount.name))?;
        for row in rows {
            insert.execute(params_from_iter(row))?;
        }
        Ok(())
    })?;
    if mount.edit != Edit::ReadOnly {
        let added = diff::keyed(mount, rows.iter().cloned());
        let base = engine.base.entry(mount.name).or_default();
        if *clear == Clear::All {
            base.clear();
        }
        base.extend(added);
    }
    Ok(())
}

/// Puts the agent's edits on top of the fresh rows and commits.
pub(super) fn end(engine: &mut Engine, edits: &[MountEdit]) -> Result<(), Fault> {
    or_undo(engine, |engine| {
        for edit in edits {
            let Some(mount) = Mount::find(&edit.table) else { continue };
            engine
                .connection
                .execute(&format!("DELETE FROM temp.{} WHERE {} = ?1", mount.name, mount.key), [&edit.key])?;
            if let Some(row) = &edit.after {
                let marks = vec!["?"; mount.columns.len()].join(",");
                let sql = format!("INSERT INTO temp.{} VALUES ({marks})", mount.name);
                engine.connection.execute(&sql, params_from_iter(row))?;
            }
        }
        Ok(())
    })?;
    engine.connection.execute_batch(&format!("COMMIT; {KEYS_ON}"))?;
    engine.changes.borrow_mut().clear();
    engine.temp = schema::read(&engine.connection, "temp")?;
    Ok(())
}

fn or_undo(engine: &mut Engine, work: impl FnOnce(&mut Engine) -> Result<(), Fault>) -> Result<(), Fault> {
    let done = work(engine);
    if done.is_err() && !engine.connection.is_autocommit() {
        engine.connection.execute_batch(&format!("ROLLBACK; {KEYS_ON}"))?;
        engine.mounted = false;
    }
    done
}

/// The agent's edits: each editable mount compared with what was mounted.
pub(super) fn edits(engine: &Engine) -> Result<Vec<MountEdit>, Fault> {
    let mut all = vec![];
    for mount in MOUNTS.iter().filter(|m| m.edit != Edit::ReadOnly) {
        let mut statement =
            engine.connection.prepare_cached(&format!("SELECT * FROM temp.{}", mount.name))?;
        let width = mount.columns.len();
        let now: Vec<Row> = statement
            .query_map([], |r| {
                (0..width).map(|n| Ok(Value::from_sql(r.get_ref(n)?))).collect::<rusqlite::Result<Row>>()
            })?
            .collect::<rusqlite::Result<_>>()?;
        let empty = diff::Keyed::new();
        let base = engine.base.get(mount.name).unwrap_or(&empty);
        all.extend(diff::between(mount, base, &diff::keyed(mount, now)));
    }
    Ok(all)
}

/// Drops everything temporary, the agent's scratch tables included, and looks whether all of it is gone.
pub(super) fn unmount(engine: &mut Engine) -> Result<(), Fault> {
    if !engine.connection.is_autocommit() {
        engine.connection.execute_batch("ROLLBACK")?;
    }
    let temp = schema::read(&engine.connection, "temp")?;
    engine.connection.execute_batch(BEGIN)?;
    // Views first: they may name the tables. Triggers and indexes go with their tables.
    for kind in ["view", "table"] {
        for object in temp.values().filter(|o| o.kind == kind && !o.name.starts_with("sqlite_")) {
            engine
                .connection
                .execute_batch(&format!("DROP {kind} IF EXISTS temp.{}", quote(&object.name)))?;
        }
    }
    engine.connection.execute_batch(&format!("COMMIT; {KEYS_ON}"))?;
    engine.changes.borrow_mut().clear();
    engine.mounted = false;
    engine.base.clear();
    assert_clean(engine)
}

/// Nothing temporary is left, and nothing with a reserved name is in the durable schema.
pub(super) fn assert_clean(engine: &mut Engine) -> Result<(), Fault> {
    engine.temp = schema::read(&engine.connection, "temp")?;
    engine.main = schema::read(&engine.connection, "main")?;
    let left: Vec<&str> = engine
        .temp
        .values()
        .filter(|o| !o.name.starts_with("sqlite_"))
        .chain(engine.main.values().filter(|o| !engine.foreign && names::is_reserved(&o.name)))
        .map(|o| o.name.as_str())
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(Fault::new(FaultKind::Residue, format!("temporary tables are left: {}", left.join(", "))))
}

/// A name in double quotes.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
