//! A batch in the worker: one transaction, a savepoint for each statement, all or nothing.

use std::time::{Duration, Instant};

use cicada_contract::report::TableChange;
use cicada_contract::text::cut;

use super::engine::Engine;
use super::{hints, load_file, mount, seal, warnings};
use crate::guard::{Seen, schema};
use crate::protocol::{Fault, FaultKind, Frame, Handover};
use crate::sql::tokens::Token;
use crate::sql::{repair, split};
use crate::tool::{BYTES_MAX, BatchError, BatchOutcome, ROWS_MAX, StatementResult, render};
use crate::value::{Rows, Value};

/// Rows counted beyond those that are returned.
const COUNT_MAX: u64 = 100_000;
/// Longest batch in bytes.
const SQL_MAX: usize = 1_000_000;
/// Bytes of a statement shown in a result.
const SQL_SHOWN: usize = 200;
/// Longest cell in a result, in bytes.
const CELL_MAX: usize = 4000;

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
    if let Some(message) = problem {
        let message = message.to_owned();
        return Err(BatchError { statement: None, sql: String::new(), kind: Some(FaultKind::Sql), message });
    }
    let (sql, notes) = repair::outside(sql);
    done.outcome.result.warnings.extend(notes);
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
        result.warnings.extend(after(engine, &seen, done).map_err(failed)?);
        result.sql = cut(&one_line(text), SQL_SHOWN);
        result.ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        done.outcome.result.statements.push(result);
    }
    Ok(())
}

fn statement(engine: &mut Engine, text: &str) -> Result<(StatementResult, Seen), Fault> {
    let code = split::code(text);
    if let Some(note) = platform_word(&code)? {
        return Ok((StatementResult { note: Some(note), ..StatementResult::default() }, Seen::default()));
    }
    platform(engine, "SAVEPOINT cicada_statement")?;
    let done = match load_file::Load::parse(&code) {
        Some(load) => load.and_then(|load| load_file::run(engine, &load)),
        None => repaired(engine, text, &code),
    }?;
    if engine.connection.is_autocommit() {
        let message = "a trigger rolled the transaction back (RAISE(ROLLBACK)): use RAISE(ABORT)";
        return Err(Fault::new(FaultKind::Sql, message));
    }
    platform(engine, "RELEASE cicada_statement")?;
    Ok(done)
}

/// The model's own BEGIN and COMMIT are understood: the batch is the transaction. A ROLLBACK undoes it.
fn platform_word(code: &[Token<'_>]) -> Result<Option<String>, Fault> {
    let Some(first) = code.first() else { return Ok(None) };
    let is = |n: usize, words: &[&str]| code.get(n).is_some_and(|t| words.iter().any(|w| t.is(w)));
    let refused = |message: &str| Err(Fault::new(FaultKind::Refused, message));
    if first.is("ROLLBACK") {
        if code.iter().any(|t| t.is("TO")) {
            return refused(
                "a part of a batch can't be rolled back: put what may fail into a batch of its own",
            );
        }
        return refused("ROLLBACK undoes the whole batch, as you asked");
    }
    if first.is("VACUUM") {
        if code.iter().any(|t| t.is("INTO")) {
            return refused("other files are out of reach (VACUUM INTO)");
        }
        return Ok(Some(
            "VACUUM is not needed: freed pages are used again, and the platform compacts the file".into(),
        ));
    }
    let mut n = 1;
    let known = match first.text.to_uppercase().as_str() {
        "BEGIN" => {
            n += usize::from(is(1, &["DEFERRED", "IMMEDIATE", "EXCLUSIVE"]));
            true
        }
        "COMMIT" | "END" => true,
        "START" => is(1, &["TRANSACTION"]),
        "SAVEPOINT" => {
            n += 1;
            code.len() == 2
        }
        "RELEASE" => {
            n += 1 + usize::from(is(1, &["SAVEPOINT"]));
            true
        }
        _ => false,
    };
    n += usize::from(is(n, &["TRANSACTION", "WORK"]));
    // With more words it is something else, which SQLite shall judge.
    let note = "was not needed: each batch is one transaction, kept as a whole or not at all";
    Ok((known && code.len() == n).then(|| format!("{} {note}", first.text.to_uppercase())))
}

/// Runs a statement; where SQLite does not know a spelling, in SQLite's own; where it does not know a
/// name, and only if the statement reads, with the nearest one.
fn repaired(engine: &Engine, text: &str, code: &[Token<'_>]) -> Result<(StatementResult, Seen), Fault> {
    if let Some((numbered, notes)) = repair::serial(text).filter(|_| code[0].is("CREATE")) {
        return execute(engine, &numbered, &split::code(&numbered), false)
            .map(|done| with_notes(done, notes));
    }
    let fault = match execute(engine, text, code, false) {
        Err(fault) if fault.kind == FaultKind::Sql => fault,
        done => return done,
    };
    // What an OR FAIL left behind.
    platform(engine, "ROLLBACK TO cicada_statement")?;
    let Some((spelled, notes)) = repair::spelling(text) else { return guessed(engine, text, fault, vec![]) };
    match execute(engine, &spelled, &split::code(&spelled), false) {
        Ok(done) => Ok(with_notes(done, notes)),
        Err(fault) => guessed(engine, &spelled, fault, notes),
    }
}

/// Follows the hints, each a nearest name, as long as they lead on; what comes out is run only if it reads.
fn guessed(
    engine: &Engine,
    text: &str,
    first: Fault,
    mut notes: Vec<String>,
) -> Result<(StatementResult, Seen), Fault> {
    let mut message = None;
    let mut sql = text.to_owned();
    let mut fault = first.message.clone();
    for _ in 0..4 {
        let Some(hint) = hints::for_error(engine, &sql, &fault) else { break };
        message.get_or_insert(hint.message);
        let Some(guess) = hint.guess else { break };
        notes.push(format!("{} was read as {}", guess.from, guess.to));
        sql = guess.sql;
        match execute(engine, &sql, &split::code(&sql), true) {
            Ok(done) => return Ok(with_notes(done, notes)),
            Err(next) if next.kind == FaultKind::Sql => fault = next.message,
            // It writes, or is not allowed: then it is only shown.
            Err(_) => break,
        }
    }
    let message = message.unwrap_or(first.message);
    if sql == text {
        return Err(Fault::new(first.kind, message));
    }
    Err(Fault::new(first.kind, format!("{message}. Did you mean: {}", cut(&one_line(&sql), 400))))
}

fn with_notes((mut result, seen): (StatementResult, Seen), notes: Vec<String>) -> (StatementResult, Seen) {
    result.warnings.splice(0..0, notes);
    (result, seen)
}

/// Compiles and runs one statement with the agent's rights.
fn execute(
    engine: &Engine,
    text: &str,
    code: &[Token<'_>],
    read_only: bool,
) -> Result<(StatementResult, Seen), Fault> {
    let data = ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "SELECT", "EXPLAIN"];
    let data = code.first().is_some_and(|t| data.iter().any(|w| t.is(w)));
    let (done, mut seen) = engine.guard.as_agent(read_only, data, || step(engine, text, code));
    match done {
        Ok((result, dropped)) => {
            seen.dropped = dropped;
            Ok((result, seen))
        }
        Err(fault) => Err(seen.reason.map_or(fault, |reason| Fault::new(FaultKind::Refused, reason))),
    }
}

/// Rows of a dropped table, as they were.
type Dropped = Vec<(String, u64)>;

fn step(engine: &Engine, text: &str, code: &[Token<'_>]) -> Result<(StatementResult, Dropped), Fault> {
    let mut statement = engine.connection.prepare(text)?;
    if statement.parameter_count() > 0 {
        let message = "parameters (?, :name) have no values here: write the values into the statement";
        return Err(Fault::new(FaultKind::Sql, message));
    }
    let dropped = if code[0].is("DROP") { count_dropped(engine) } else { vec![] };
    let mut result = StatementResult {
        columns: statement.column_names().map(str::to_owned).collect(),
        ..StatementResult::default()
    };
    let changes_rows = !statement.readonly()
        && statement.is_explain() == 0
        && ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"].iter().any(|w| code[0].is(w));
    collect(&mut statement, &mut result)?;
    if changes_rows {
        result.changed = Some(engine.connection.changes());
    }
    let scanned = statement.get_status(rusqlite::StatementStatus::FullscanStep);
    result.warnings = warnings::of(code, &result, scanned);
    Ok((result, dropped))
}

/// Row counts of the tables that the compiled statement will drop. Asked with the platform's rights.
fn count_dropped(engine: &Engine) -> Dropped {
    let names = engine.guard.dropped();
    let counts = engine.guard.as_platform(|| seal::count(&engine.connection, &names)).unwrap_or_default();
    counts.into_iter().map(|c| (c.name, c.rows.unwrap_or(0))).collect()
}

/// Steps a statement to its end and keeps what fits.
fn collect(statement: &mut rusqlite::Statement<'_>, result: &mut StatementResult) -> Result<(), Fault> {
    let read_only = statement.readonly();
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
        let value = |n| Ok(render::shorten(Value::from_sql(row.get_ref(n)?), CELL_MAX));
        let values: Vec<Value> = (0..width).map(value).collect::<rusqlite::Result<_>>()?;
        let size: usize = values.iter().map(|v| v.display().len() + 3).sum();
        if bytes + size > BYTES_MAX && !result.rows.is_empty() {
            result.left_out += 1;
            continue;
        }
        bytes += size;
        result.rows.push(values);
    }
    Ok(())
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
