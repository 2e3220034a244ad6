//! From SQLite's errors to the nearest right name.

use super::engine::Engine;
use crate::sql::nearest::nearest;
use crate::sql::{repair, split};

/// What to say about an error, and perhaps a guess at what was meant.
pub(super) struct Hint {
    pub(super) message: String,
    pub(super) guess: Option<Guess>,
}

/// The statement with one name replaced.
pub(super) struct Guess {
    pub(super) sql: String,
    pub(super) from: String,
    pub(super) to: String,
}

/// Functions of other databases, and what does their work here.
const FUNCTIONS: &[(&str, &str)] = &[
    ("DATE_TRUNC", "strftime('%Y-%m', x)"),
    ("DATE_FORMAT", "strftime(format, x)"),
    ("TO_CHAR", "strftime(format, x) or printf()"),
    ("TO_DATE", "date(x)"),
    ("EXTRACT", "strftime('%Y', x)"),
    ("YEAR", "strftime('%Y', x)"),
    ("MONTH", "strftime('%m', x)"),
    ("DAY", "strftime('%d', x)"),
    ("DATEDIFF", "julianday(a) - julianday(b)"),
    ("DATEADD", "datetime(x, '+1 day')"),
    ("DATE_ADD", "datetime(x, '+1 day')"),
    ("LEFT", "substr(x, 1, n)"),
    ("RIGHT", "substr(x, -n)"),
    ("GREATEST", "max(a, b), which gives NULL if one is NULL"),
    ("LEAST", "min(a, b), which gives NULL if one is NULL"),
    ("SPLIT_PART", "substr() with instr(), or json_each()"),
    ("STDDEV", "sqrt(avg(x*x) - avg(x)*avg(x))"),
    ("ARRAY_AGG", "json_group_array(x)"),
    ("JSON_AGG", "json_group_array(x)"),
    ("JSON_BUILD_OBJECT", "json_object(k, v)"),
    ("GENERATE_SERIES", "WITH RECURSIVE"),
    ("MD5", "sha256(x)"),
    ("UUID", "lower(hex(randomblob(16)))"),
    ("GEN_RANDOM_UUID", "lower(hex(randomblob(16)))"),
];

/// None if there is nothing to add.
pub(super) fn for_error(engine: &Engine, sql: &str, message: &str) -> Option<Hint> {
    let wrong = |prefix: &str| {
        message.strip_prefix(prefix).map(|rest| rest.split(" - ").next().unwrap_or(rest).trim())
    };
    if let Some(table) = wrong("no such table: ") {
        return Some(unknown_table(engine, sql, message, table));
    }
    if let Some(column) = wrong("no such column: ") {
        return Some(unknown_column(engine, sql, message, column));
    }
    if let Some(rest) = message.strip_prefix("table ").and_then(|m| m.split_once(" has no column named ")) {
        return Some(unknown_column(engine, sql, message, rest.1));
    }
    if let Some(function) = wrong("no such function: ") {
        let instead = FUNCTIONS.iter().find(|(name, _)| function.eq_ignore_ascii_case(name))?.1;
        return Some(Hint { message: format!("{message}; use {instead}"), guess: None });
    }
    None
}

fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn tables(engine: &Engine) -> Vec<&str> {
    let all = engine.main.values().chain(engine.temp.values());
    all.filter(|o| matches!(o.kind.as_str(), "table" | "view") && !o.name.starts_with("sqlite_"))
        .map(|o| o.name.as_str())
        .collect()
}

fn unknown_table(engine: &Engine, sql: &str, message: &str, table: &str) -> Hint {
    let all = tables(engine);
    match nearest(bare(table), all.iter().copied()) {
        Some(near) => {
            Hint { message: format!("{message}; there is {near}"), guess: guess(sql, bare(table), near) }
        }
        None => Hint { message: format!("{message}; the tables are {}", list(&all)), guess: None },
    }
}

fn unknown_column(engine: &Engine, sql: &str, message: &str, column: &str) -> Hint {
    let code = split::code(sql);
    let named = |table: &&str| code.iter().any(|t| t.name().is_some_and(|n| n.eq_ignore_ascii_case(table)));
    let mut columns: Vec<(String, String)> = vec![];
    for table in tables(engine).into_iter().filter(named) {
        let found = columns_of(&engine.connection, table).unwrap_or_default();
        columns.extend(found.into_iter().map(|column| (table.to_owned(), column)));
    }
    let wrong = bare(column).trim_matches('"');
    let mut names: Vec<&str> = columns.iter().map(|(_, c)| c.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match nearest(wrong, names.iter().copied()) {
        Some(near) => {
            let table = columns.iter().find(|(_, c)| c == near).map_or("", |(t, _)| t);
            Hint {
                message: format!("{message}; the table {table} has {near}"),
                guess: guess(sql, wrong, near),
            }
        }
        None if columns.is_empty() => Hint { message: message.to_owned(), guess: None },
        None => Hint { message: format!("{message}; the columns are {}", list(&names)), guess: None },
    }
}

fn guess(sql: &str, from: &str, to: &str) -> Option<Guess> {
    // A name that needs quotes is not one that was mistyped.
    if !crate::guard::names::is_plain(to) {
        return None;
    }
    repair::rename(sql, from, to).map(|sql| Guess { sql, from: from.to_owned(), to: to.to_owned() })
}

fn list(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().copied().take(30).collect();
    let more = names.len().saturating_sub(shown.len());
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

fn columns_of(connection: &rusqlite::Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached("SELECT name FROM pragma_table_xinfo(?1)")?;
    statement.query_map([table], |r| r.get(0))?.collect()
}
