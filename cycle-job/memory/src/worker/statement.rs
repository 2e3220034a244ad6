//! One statement of a batch: read, run, put right where its spelling is another database's.

use cicada_contract::text::cut;

use super::batch::{one_line, platform};
use super::engine::Engine;
use super::{hints, load_file, seal, warnings};
use crate::guard::Seen;
use crate::protocol::{Fault, FaultKind};
use crate::sql::tokens::Token;
use crate::sql::{repair, split};
use crate::tool::{BYTES_MAX, ROWS_MAX, StatementResult, render};
use crate::value::Value;

/// Rows counted beyond those that are returned.
const COUNT_MAX: u64 = 100_000;
/// Longest cell in a result, in bytes.
const CELL_MAX: usize = 4000;

pub(super) fn statement(engine: &mut Engine, text: &str) -> Result<(StatementResult, Seen), Fault> {
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
pub(super) type Dropped = Vec<(String, u64)>;

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
