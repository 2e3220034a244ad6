//! A batch in the worker: one transaction, a savepoint for each statement, all or nothing.

use std::time::{Duration, Instant};

use cicada_contract::report::TableChange;
use cicada_contract::text::cut;

use super::engine::Engine;
use super::statement::{Dropped, statement};
use super::{mount, warnings};
use crate::guard::{Seen, schema};
use crate::protocol::{Fault, FaultKind, Frame, Handover};
use crate::sql::{repair, split};
use crate::tool::{BatchError, BatchOutcome, StatementResult};
use crate::value::{Rows, Value};

/// Longest batch in bytes.
const SQL_MAX: usize = 1_000_000;
/// Most statements of a batch: each is looked at, and answered, on its own.
const STATEMENTS_MAX: usize = 2000;
/// Bytes of rows in the results of one batch; later statements give only their counts.
const ROOM: usize = 200_000;
/// Longest name of a result's column, and longest warning, in bytes.
const NAME_SHOWN: usize = 500;
/// Bytes of a statement shown in a result.
const SQL_SHOWN: usize = 200;

/// What the statements of a batch did so far.
#[derive(Default)]
struct Done {
    outcome: BatchOutcome,
    dropped: Dropped,
    /// An editable mount was written.
    mounts: bool,
    /// The durable schema changed.
    schema: bool,
}

/// Runs a batch. An `Err` is the worker's own trouble; what the SQL did wrong is in the outcome.
pub(super) fn run(engine: &mut Engine, sql: &str, number: i32) -> Result<BatchOutcome, Fault> {
    let mut done = Done::default();
    engine.changes.borrow_mut().clear();
    platform(engine, "BEGIN")?;
    let ran = statements(engine, sql, &mut done).and_then(|()| commit(engine, &done, number));
    engine.deadline.set(None);
    match ran {
        Ok(changes) => forget_facts(engine, done.schema, &changes),
        Err(error) => {
            undo(engine)?;
            done.outcome.result.error = Some(error);
        }
    }
    Ok(done.outcome)
}

/// The prompt's facts of changed tables are read anew.
fn forget_facts(engine: &mut Engine, schema: bool, changes: &[TableChange]) {
    if schema {
        engine.facts.clear();
    }
    for change in changes {
        engine.facts.remove(&("main".to_owned(), change.name.clone()));
        // A full-text table changes through its shadow tables.
        if let Some((table, _)) = change.name.rsplit_once('_') {
            engine.facts.remove(&("main".to_owned(), table.to_owned()));
        }
    }
}

/// A statement of ours, compiled once.
pub(super) fn platform(engine: &Engine, sql: &str) -> rusqlite::Result<()> {
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

/// Runs all statements.
fn statements(engine: &mut Engine, sql: &str, done: &mut Done) -> Result<(), BatchError> {
    let problem = if sql.len() > SQL_MAX {
        Some("a batch may have at most 1,000,000 bytes: load large data by load_table()")
    } else if sql.contains('\0') {
        // SQLite would read up to it and leave the rest out in silence.
        Some("the text has a NUL character: write char(0) for one in a value")
    } else {
        None
    };
    let whole = |message: &str| BatchError {
        statement: None,
        sql: String::new(),
        kind: Some(FaultKind::Sql),
        message: message.to_owned(),
    };
    if let Some(message) = problem {
        return Err(whole(message));
    }
    let (sql, notes) = repair::outside(sql);
    done.outcome.result.warnings.extend(notes);
    let parts = split::statements(sql);
    if parts.len() > STATEMENTS_MAX {
        return Err(whole(
            "a batch may have at most 2,000 statements: INSERT takes many rows, load_table() a file",
        ));
    }
    let mut room = ROOM;
    for (n, text) in parts.into_iter().enumerate() {
        let started = Instant::now();
        engine.deadline.set(Some(engine.limit));
        let failed = |fault: Fault| BatchError {
            statement: Some(n + 1),
            sql: cut(&one_line(text), SQL_SHOWN),
            kind: Some(fault.kind),
            message: fault.message,
        };
        let (mut result, seen) = statement(engine, text).map_err(|f| failed(explain(engine, f)))?;
        result.warnings.extend(after(engine, &seen, done).map_err(failed)?);
        result.sql = cut(&one_line(text), SQL_SHOWN);
        result.ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        bound(&mut result, &mut room);
        done.outcome.result.statements.push(result);
    }
    Ok(())
}

/// Keeps a result short whatever was asked: it goes into a prompt.
fn bound(result: &mut StatementResult, room: &mut usize) {
    let size: usize = result.rows.iter().flatten().map(|v| v.display().len() + 3).sum();
    if size > *room {
        result.left_out += result.rows.len() as u64;
        result.rows.clear();
        result
            .warnings
            .push("its rows are left out, since the batch gave much: ask in a batch of its own".into());
    } else {
        *room -= size;
    }
    for text in result.columns.iter_mut().chain(&mut result.warnings) {
        *text = cut(text, NAME_SHOWN);
    }
}

/// The look at the schema after a statement that changed it, and what the statement touched.
fn after(engine: &mut Engine, seen: &Seen, done: &mut Done) -> Result<Vec<String>, Fault> {
    done.dropped.extend(seen.dropped.iter().cloned());
    done.mounts |= seen.mounts;
    for table in &seen.used {
        if !done.outcome.used.contains(table) {
            done.outcome.used.push(table.clone());
        }
    }
    if !seen.schema {
        return Ok(vec![]);
    }
    let main = schema::read(&engine.connection, "main")?;
    let temp = schema::read(&engine.connection, "temp")?;
    schema::judge(&engine.connection, (&engine.main, &engine.temp), (&main, &temp))
        .map_err(|reason| Fault::new(FaultKind::Refused, reason))?;
    done.schema |= main != engine.main;
    let duplicates = warnings::duplicates(&engine.main, &main);
    engine.main = main;
    engine.temp = temp;
    Ok(duplicates)
}

/// Hands over what the commit carries, then commits. A batch that writes the memory also writes its
/// number: after a kill it says whether the commit happened (in WAL mode the file's change counter does
/// not). One that only edits mounts counts from its acknowledgement.
fn commit(engine: &mut Engine, done: &Done, number: i32) -> Result<Vec<TableChange>, BatchError> {
    let work = |engine: &mut Engine| -> Result<Vec<TableChange>, Fault> {
        let writes = engine.connection.transaction_state(Some("main"))? == rusqlite::TransactionState::Write;
        let edits = if done.mounts { Some(mount::edits(engine)?) } else { None };
        let handover = Handover { edits, changes: changes(engine), dropped: done.dropped.clone() };
        let changes = handover.changes.clone();
        if writes {
            engine.connection.execute_batch(&format!("PRAGMA user_version = {number}"))?;
        }
        if writes || done.mounts {
            engine.port.send::<()>(&Frame::Pending(handover))?;
        }
        platform(engine, "COMMIT")?;
        Ok(changes)
    };
    work(engine).map_err(|fault| {
        let mut message = fault.message;
        if fault.kind == FaultKind::Constraint {
            message.push_str(": a deferred foreign key was still violated at the end of the batch");
        }
        BatchError { statement: None, sql: String::new(), kind: Some(fault.kind), message }
    })
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
        FaultKind::OutOfMemory if !fault.message.contains("too big") => {
            fault.message = "out of memory: the statement holds too much at once; do it in parts".into();
        }
        _ => {}
    }
    fault
}

pub(super) fn one_line(text: &str) -> String {
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
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
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
