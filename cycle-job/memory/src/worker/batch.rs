//! A batch in the worker: one transaction, a savepoint for each statement, all or nothing.

use std::time::{Duration, Instant};

use cicada_contract::report::TableChange;
use cicada_contract::text::cut;

use super::engine::Engine;
use super::{load_file, mount};
use crate::guard::{Seen, schema};
use crate::mounts::MountEdit;
use crate::protocol::{Fault, FaultKind, Frame};
use crate::sql::split;
use crate::tool::{BYTES_MAX, BatchError, BatchOutcome, ROWS_MAX, StatementResult, render};
use crate::value::{Rows, Value};

/// Rows counted beyond those that are returned.
const COUNT_MAX: u64 = 100_000;
/// Bytes of a statement shown in a result.
const SQL_SHOWN: usize = 200;
/// Longest cell in a result, in bytes.
const CELL_MAX: usize = 4000;

/// Runs a batch. An `Err` is the worker's own trouble; what the SQL did wrong is in the outcome.
pub(super) fn run(engine: &mut Engine, sql: &str, number: i32) -> Result<BatchOutcome, Fault> {
    let mut outcome = BatchOutcome::default();
    engine.changes.borrow_mut().clear();
    platform(engine, "BEGIN")?;
    let ran = statements(engine, sql, &mut outcome).and_then(|mounts| commit(engine, mounts, number));
    engine.deadline.set(None);
    if let Err(error) = ran {
        undo(engine)?;
        outcome.changes.clear();
        outcome.dropped.clear();
        outcome.schema_changed = false;
        outcome.result.error = Some(error);
        return Ok(outcome);
    }
    outcome.changes = changes(engine);
    Ok(outcome)
}

/// A statement of ours, compiled once.
fn platform(engine: &Engine, sql: &str) -> rusqlite::Result<()> {
    engine.connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn undo(engine: &mut Engine) -> Result<(), Fault> {
    // RAISE(ROLLBACK) and out of memory end the transaction by themselves.
    if !engine.connection.is_autocommit() {
        platform(engine, "ROLLBACK")?;
    }
    engine.changes.borrow_mut().clear();
    engine.main = schema::read(&engine.connection, "main")?;
    engine.temp = schema::read(&engine.connection, "temp")?;
    Ok(())
}

/// Runs all statements; true if an editable mount was written.
fn statements(engine: &mut Engine, sql: &str, outcome: &mut BatchOutcome) -> Result<bool, BatchError> {
    let mut mounts = false;
    for (n, text) in split::statements(sql).into_iter().enumerate() {
        let started = Instant::now();
        engine.deadline.set(Some(engine.limit));
        let failed = |fault: Fault| BatchError {
            statement: Some(n + 1),
            sql: cut(&one_line(text), SQL_SHOWN),
            kind: Some(fault.kind),
            message: fault.message,
        };
        let (mut result, seen) = statement(engine, text).map_err(|f| failed(explain(engine, f)))?;
        after(engine, &seen, outcome).map_err(failed)?;
        mounts |= seen.mounts;
        result.sql = cut(&one_line(text), SQL_SHOWN);
        result.ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        outcome.result.statements.push(result);
    }
    Ok(mounts)
}

fn statement(engine: &mut Engine, text: &str) -> Result<(StatementResult, Seen), Fault> {
    if let Some(word) = transaction_word(text) {
        let note =
            format!("{word} was not needed: each batch is one transaction, kept as a whole or not at all");
        return Ok((StatementResult { note: Some(note), ..StatementResult::default() }, Seen::default()));
    }
    platform(engine, "SAVEPOINT cicada_statement")?;
    let done = match load_file::Load::parse(text) {
        Some(load) => load.and_then(|load| load_file::run(engine, &load)),
        None => execute(engine, text),
    }?;
    if engine.connection.is_autocommit() {
        return Err(Fault::new(
            FaultKind::Sql,
            "a trigger rolled the transaction back (RAISE(ROLLBACK)): use RAISE(ABORT)",
        ));
    }
    platform(engine, "RELEASE cicada_statement")?;
    Ok(done)
}

/// The model's own BEGIN, COMMIT and ROLLBACK are understood: the batch is the transaction.
fn transaction_word(text: &str) -> Option<String> {
    let code = split::code(text);
    let first = code.first()?;
    let word = ["BEGIN", "COMMIT", "END", "SAVEPOINT", "RELEASE"].iter().find(|w| first.is(w))?;
    // A file is never loaded, and nothing is run, by what follows these words.
    (code.len() <= 4).then(|| (*word).to_owned())
}

fn execute(engine: &Engine, text: &str) -> Result<(StatementResult, Seen), Fault> {
    let code = split::code(text);
    let data = code.first().is_some_and(|t| {
        ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "SELECT", "EXPLAIN"].iter().any(|w| t.is(w))
    });
    let (done, seen) = engine.guard.as_agent(false, data, || step(engine, text));
    match done {
        Ok(result) => Ok((result, seen)),
        Err(fault) => Err(seen.reason.map_or(fault, |reason| Fault::new(FaultKind::Refused, reason))),
    }
}

fn step(engine: &Engine, text: &str) -> Result<StatementResult, Fault> {
    let before = engine.connection.total_changes();
    let mut statement = engine.connection.prepare(text)?;
    if statement.parameter_count() > 0 {
        return Err(Fault::new(
            FaultKind::Sql,
            "parameters (?, :name) have no values here: write the values into the statement",
        ));
    }
    let read_only = statement.readonly();
    let mut result = StatementResult {
        columns: statement.column_names().into_iter().map(str::to_owned).collect(),
        ..StatementResult::default()
    };
    let width = result.columns.len();
    let mut bytes = 0;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        if result.left_out > 0 || result.rows.len() == ROWS_MAX || bytes >= BYTES_MAX {
            result.left_out += 1;
            if result.left_out >= COUNT_MAX && read_only {
                result.more = true;
                break;
            }
            continue;
        }
        let values: Vec<Value> = (0..width)
            .map(|n| Ok(render::shorten(Value::from_sql(row.get_ref(n)?), CELL_MAX)))
            .collect::<rusqlite::Result<_>>()?;
        let size: usize = values.iter().map(|v| v.display().len() + 3).sum();
        if bytes + size > BYTES_MAX && !result.rows.is_empty() {
            result.left_out += 1;
            continue;
        }
        bytes += size;
        result.rows.push(values);
    }
    drop(rows);
    if !read_only && width == 0 {
        let changes_rows =
            ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"].iter().any(|w| split::code(text)[0].is(w));
        if changes_rows {
            result.changed = Some(engine.connection.changes());
        } else if engine.connection.total_changes() != before {
            result.note = Some("ok".into());
        }
    }
    Ok(result)
}

/// The look at the schema after a statement that changed it, and what the statement touched.
fn after(engine: &mut Engine, seen: &Seen, outcome: &mut BatchOutcome) -> Result<(), Fault> {
    for table in &seen.used {
        if !outcome.used.contains(table) {
            outcome.used.push(table.clone());
        }
    }
    if !seen.schema {
        return Ok(());
    }
    let main = schema::read(&engine.connection, "main")?;
    let temp = schema::read(&engine.connection, "temp")?;
    schema::judge(&engine.connection, (&engine.main, &engine.temp), (&main, &temp))
        .map_err(|reason| Fault::new(FaultKind::Refused, reason))?;
    outcome.schema_changed |= main != engine.main;
    engine.main = main;
    engine.temp = temp;
    Ok(())
}

/// Hands the differences over, then commits.
fn commit(engine: &mut Engine, mounts: bool, number: i32) -> Result<(), BatchError> {
    let failed = |fault: Fault| {
        let message = if fault.kind == FaultKind::Constraint {
            format!("{}: a deferred foreign key was still violated at the end of the batch", fault.message)
        } else {
            fault.message
        };
        BatchError { statement: None, sql: String::new(), kind: Some(fault.kind), message }
    };
    if mounts {
        let edits: Vec<MountEdit> = mount::edits(engine).map_err(failed)?;
        // After a kill this number says whether the commit happened: in WAL mode the file's change
        // counter does not.
        let writes = engine.connection.transaction_state(Some("main")).map_err(|e| failed(e.into()))?
            == rusqlite::TransactionState::Write;
        if writes {
            engine
                .connection
                .execute_batch(&format!("PRAGMA user_version = {number}"))
                .map_err(|e| failed(e.into()))?;
        }
        engine.port.send::<()>(&Frame::Pending(edits)).map_err(|e| failed(e.into()))?;
    }
    platform(engine, "COMMIT").map_err(|e| failed(e.into()))
}

/// Rows changed in durable tables.
fn changes(engine: &Engine) -> Vec<TableChange> {
    let mut log = engine.changes.borrow_mut();
    let all = log
        .iter()
        .filter(|((schema, _), _)| schema == "main")
        .map(|((_, table), c)| TableChange {
            name: table.clone(),
            rows: None,
            before: None,
            inserted: c.inserted,
            updated: c.updated,
            deleted: c.deleted,
        })
        .collect();
    log.clear();
    all
}

/// The platform's reading of an error.
fn explain(engine: &Engine, mut fault: Fault) -> Fault {
    match fault.kind {
        FaultKind::Full => {
            fault.message = format!(
                "the memory is full: sizeLimit is {} bytes. Delete rows or drop tables first, or ask for a higher spec.memory.sizeLimit",
                engine.size_limit
            );
        }
        FaultKind::Timeout => {
            fault.message = format!(
                "stopped after {} s: make it read less (WHERE, LIMIT, an index) or do it in parts",
                engine.limit.as_secs()
            );
        }
        FaultKind::OutOfMemory => {
            fault.message = "out of memory: the statement holds too much at once; do it in parts".into();
        }
        _ => {}
    }
    fault
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One SELECT with at most `max_rows` rows, of the agent's rights and without any write.
pub(super) fn query(engine: &mut Engine, sql: &str, max_rows: usize) -> Result<Rows, Fault> {
    let parts = split::statements(sql);
    let [text] = parts.as_slice() else {
        return Err(Fault::new(
            FaultKind::Sql,
            format!("one statement is needed, {} were given", parts.len()),
        ));
    };
    engine.deadline.set(Some(engine.limit.max(Duration::from_secs(1))));
    let (done, seen) = engine.guard.as_agent(true, true, || read(&engine.connection, text, max_rows));
    engine.deadline.set(None);
    done.map_err(|fault| {
        explain(engine, seen.reason.map_or(fault, |reason| Fault::new(FaultKind::Refused, reason)))
    })
}

/// Steps a query and keeps what it gives.
pub(super) fn read(connection: &rusqlite::Connection, sql: &str, max_rows: usize) -> Result<Rows, Fault> {
    let mut statement = connection.prepare(sql)?;
    let columns: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let width = columns.len();
    let mut answer = Rows { columns, ..Rows::default() };
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        if answer.rows.len() == max_rows {
            answer.more = true;
            break;
        }
        answer
            .rows
            .push((0..width).map(|n| Ok(Value::from_sql(row.get_ref(n)?))).collect::<rusqlite::Result<_>>()?);
    }
    Ok(answer)
}
