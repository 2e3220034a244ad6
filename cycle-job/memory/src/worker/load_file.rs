//! `load_table('path', 'table'[, 'durable'])`: a file of the cycle as a table.
//!
//! The file is read twice and never held whole: once for columns and types over all rows, once to insert.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Component, Path, PathBuf};

use rusqlite::params_from_iter;
use serde_json::value::RawValue;

use super::engine::Engine;
use super::mount::quote;
use crate::guard::{Seen, names};
use crate::mounts::Mount;
use crate::protocol::{Fault, FaultKind};
use crate::sql::tokens::{Kind, Token, unquote};
use crate::tool::StatementResult;
use crate::value::Value;

mod csv_file;
mod json_file;

/// Most columns of a loaded table.
const COLUMNS_MAX: usize = 500;

/// The statement, read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Load {
    path: String,
    table: String,
    durable: bool,
}

impl Load {
    /// None if it is another statement.
    pub(super) fn parse(code: &[Token<'_>]) -> Option<Result<Self, Fault>> {
        let at = usize::from(code.first().is_some_and(|t| t.is("SELECT")));
        if !code.get(at)?.is("load_table") || code.get(at + 1)?.text != "(" {
            return None;
        }
        let wrong = || {
            Fault::new(
                FaultKind::Sql,
                "write it as load_table('path', 'table') or load_table('path', 'table', 'durable')",
            )
        };
        let close = code.iter().position(|t| t.text == ")");
        let args = close.map(|close| &code[at + 2..close]).unwrap_or_default();
        // A name for the result column may follow; it changes nothing.
        let rest = close.map_or(0, |close| code.len() - close - 1);
        let texts: Vec<String> =
            args.iter().step_by(2).filter(|t| t.kind == Kind::Literal).map(|t| unquote(t.text)).collect();
        let commas = args.iter().skip(1).step_by(2).all(|t| t.text == ",");
        let durable = texts.get(2).map(|d| d.as_str());
        Some(match (texts.as_slice(), durable) {
            ([path, table, ..], None | Some("durable" | "scratch"))
                if commas && args.len() == texts.len() * 2 - 1 && rest <= 2 =>
            {
                Ok(Self { path: path.clone(), table: table.clone(), durable: durable == Some("durable") })
            }
            _ => Err(wrong()),
        })
    }

    /// The file in the cycle's folder.
    fn file(&self, directory: &Path) -> Result<PathBuf, Fault> {
        let path = Path::new(&self.path);
        let inside = path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if !inside || self.path.is_empty() {
            return Err(Fault::new(
                FaultKind::Refused,
                format!("{} is not below the files folder: use a path of __files", self.path),
            ));
        }
        let file = directory.join("files").join(path);
        // A link could lead out of the folder.
        if !std::fs::symlink_metadata(&file).is_ok_and(|m| m.is_file()) {
            return Err(Fault::new(
                FaultKind::Sql,
                format!("no file named {}; SELECT path FROM __files lists them", self.path),
            ));
        }
        Ok(file)
    }
}

/// What a file holds.
pub(super) trait Source {
    /// Column names as the file has them, with the narrowest type that fits all rows.
    fn columns(&mut self) -> Result<Vec<(String, Type)>, Fault>;
    /// Hands over each row, in the order of the columns.
    fn rows(
        &mut self,
        columns: &[(String, Type)],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), Fault>,
    ) -> Result<(), Fault>;
}

/// Type of a column, from the values seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Type {
    /// Only NULL.
    #[default]
    Empty,
    /// Integers.
    Integer,
    /// Numbers.
    Real,
    /// Anything else.
    Text,
}

impl Type {
    fn sql(self) -> &'static str {
        match self {
            Self::Integer => "INTEGER",
            Self::Real => "REAL",
            Self::Empty | Self::Text => "TEXT",
        }
    }
}

/// Runs the statement.
pub(super) fn run(engine: &Engine, load: &Load) -> Result<(StatementResult, Seen), Fault> {
    let path = load.file(&engine.directory)?;
    if Mount::find(&load.table).is_some() || names::is_reserved(&load.table) {
        return Err(Fault::new(
            FaultKind::Refused,
            format!("{} belongs to the platform: load into a name of your own", load.table),
        ));
    }
    names::check_plain(&load.table).map_err(|m| Fault::new(FaultKind::Refused, m))?;
    let key = (true, load.table.to_lowercase());
    let durable = engine.main.get(&key);
    if !load.durable && durable.is_some() {
        return Err(Fault::new(
            FaultKind::Refused,
            format!(
                "{0} is a durable table: load under another name, or add rows by load_table('{1}', '{0}', 'durable')",
                load.table, load.path
            ),
        ));
    }
    if load.durable && engine.temp.contains_key(&key) {
        return Err(Fault::new(
            FaultKind::Refused,
            format!("{} is a scratch table: DROP it first, or choose another name", load.table),
        ));
    }
    let mut source = open(&path)?;
    let found = source.columns()?;
    if found.is_empty() {
        return Err(Fault::new(FaultKind::Sql, format!("{} has no columns", load.path)));
    }
    if found.len() > COLUMNS_MAX {
        return Err(Fault::new(
            FaultKind::Sql,
            format!("{} has {} columns, at most {COLUMNS_MAX}", load.path, found.len()),
        ));
    }
    let names = plain_names(found.iter().map(|(name, _)| name.as_str()));
    if let Some(table) = durable.filter(|_| load.durable) {
        fits(engine, &table.name, &names)?;
    }
    let (done, mut seen) = engine.guard.as_agent(false, false, || {
        let schema = if load.durable { "main" } else { "temp" };
        let target = format!("{schema}.{}", quote(&load.table));
        if !load.durable {
            engine.connection.execute_batch(&format!("DROP TABLE IF EXISTS {target}"))?;
        }
        if durable.is_none() {
            let columns: Vec<String> = names
                .iter()
                .zip(&found)
                .map(|(name, (_, kind))| format!("{} {}", quote(name), kind.sql()))
                .collect();
            engine.connection.execute_batch(&format!("CREATE TABLE {target} ({})", columns.join(", ")))?;
        }
        insert(engine, &mut *source, &target, &names, &found)
    });
    seen.schema = true;
    let rows =
        done.map_err(|fault| seen.reason.clone().map_or(fault, |r| Fault::new(FaultKind::Refused, r)))?;
    let place = if load.durable { "durable" } else { "scratch, gone after this cycle" };
    let note = format!("loaded {rows} rows into {} ({place}): {}", load.table, names.join(", "));
    Ok((StatementResult { note: Some(note), changed: Some(rows), ..StatementResult::default() }, seen))
}

fn insert(
    engine: &Engine,
    source: &mut dyn Source,
    target: &str,
    names: &[String],
    found: &[(String, Type)],
) -> Result<u64, Fault> {
    let columns: Vec<String> = names.iter().map(|n| quote(n)).collect();
    let marks = vec!["?"; names.len()].join(",");
    // The number of columns may exceed the agent's limit on parameters.
    let limit = rusqlite::limits::Limit::SQLITE_LIMIT_VARIABLE_NUMBER;
    let before = engine.connection.set_limit(limit, i32::try_from(COLUMNS_MAX).unwrap_or(i32::MAX))?;
    let statement =
        engine.connection.prepare(&format!("INSERT INTO {target} ({}) VALUES ({marks})", columns.join(",")));
    engine.connection.set_limit(limit, before)?;
    let mut statement = statement?;
    let mut count = 0;
    source.rows(found, &mut |row| {
        if count % 256 == 0 && engine.deadline.passed() {
            return Err(Fault::new(FaultKind::Timeout, ""));
        }
        statement.execute(params_from_iter(row))?;
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Every column of the file must be one of the table's.
fn fits(engine: &Engine, table: &str, names: &[String]) -> Result<(), Fault> {
    let mut statement = engine.connection.prepare_cached("SELECT name FROM pragma_table_info(?1, 'main')")?;
    let has: Vec<String> = statement.query_map([table], |r| r.get(0))?.collect::<Result<_, _>>()?;
    let missing: Vec<&str> =
        names.iter().filter(|n| !has.iter().any(|h| h.eq_ignore_ascii_case(n))).map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Sql,
        format!(
            "the file's columns {} are not in {table} ({}): load it as scratch and INSERT ... SELECT",
            missing.join(", "),
            has.join(", ")
        ),
    ))
}

/// Names that need no quotes, each once whatever the case.
fn plain_names<'a>(given: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for (n, name) in given.enumerate() {
        let mut plain: String =
            name.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        plain = plain.trim_matches('_').to_owned();
        plain.truncate(names::NAME_MAX - 4);
        if plain.is_empty() {
            plain = format!("column_{}", n + 1);
        }
        if plain.as_bytes()[0].is_ascii_digit() || names::is_reserved(&plain) {
            plain = format!("c_{plain}");
            plain.truncate(names::NAME_MAX - 4);
        }
        let taken = |candidate: &str| names.iter().any(|t| t.eq_ignore_ascii_case(candidate));
        let mut unique = plain.clone();
        let mut turn = 2;
        while taken(&unique) {
            unique = format!("{plain}_{turn}");
            turn += 1;
        }
        names.push(unique);
    }
    names
}

fn open(path: &Path) -> Result<Box<dyn Source>, Fault> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_lowercase();
    let looks_like_json = || -> std::io::Result<bool> {
        let mut reader = BufReader::new(File::open(path)?);
        let head = reader.fill_buf()?;
        Ok(head.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| matches!(b, b'[' | b'{')))
    };
    match extension.as_str() {
        "json" | "jsonl" | "ndjson" | "geojson" => Ok(Box::new(json_file::JsonFile::new(path))),
        "csv" => Ok(Box::new(csv_file::CsvFile::new(path, b','))),
        "tsv" | "tab" => Ok(Box::new(csv_file::CsvFile::new(path, b'\t'))),
        _ if looks_like_json()? => Ok(Box::new(json_file::JsonFile::new(path))),
        _ => Ok(Box::new(csv_file::CsvFile::new(path, b','))),
    }
}

/// A JSON value as a SQL value: nested ones and booleans as SQLite's own JSON functions have them.
fn json_value(raw: &RawValue) -> Value {
    let text = raw.get().trim();
    match text.as_bytes().first() {
        None | Some(b'n') => Value::Null,
        Some(b't') => Value::Int(1),
        Some(b'f') => Value::Int(0),
        Some(b'"') => serde_json::from_str::<String>(text).map_or(Value::Null, Value::Text),
        Some(b'[' | b'{') => Value::Text(text.to_owned()),
        Some(_) => number(text),
    }
}

fn number(text: &str) -> Value {
    text.parse().map(Value::Int).or_else(|_| text.parse().map(Value::Real)).unwrap_or(Value::Null)
}

fn type_of(value: &Value) -> Type {
    match value {
        Value::Null => Type::Empty,
        Value::Int(_) => Type::Integer,
        Value::Real(_) => Type::Real,
        Value::Text(_) | Value::Blob(_) => Type::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(sql: &str) -> Option<Result<Load, Fault>> {
        Load::parse(&crate::sql::split::code(sql))
    }

    #[test]
    fn the_statement_is_read_bare_and_after_select() {
        let load = |durable| Load { path: "a b.csv".into(), table: "t".into(), durable };
        assert_eq!(parse("load_table('a b.csv','t')").unwrap().unwrap(), load(false));
        assert_eq!(parse("SELECT load_table ( 'a b.csv' , 't', 'durable' )").unwrap().unwrap(), load(true));
        assert_eq!(parse("-- x\nselect LOAD_TABLE('a b.csv','t') AS n").unwrap().unwrap(), load(false));
        assert!(parse("select load_table('a')").unwrap().is_err());
        assert!(parse("select load_table('a' || 'b', 't')").unwrap().is_err());
        assert!(parse("load_table('a','t','forever')").unwrap().is_err());
        assert!(parse("select 'load_table(1,2)'").is_none());
    }

    #[test]
    fn column_names_become_plain_and_unique() {
        let given = ["Total ($)", "total", "TOTAL", "", "2024", "__messages", "größe"];
        let names = plain_names(given.into_iter());
        assert_eq!(names, ["Total", "total_2", "TOTAL_3", "column_4", "c_2024", "messages", "gr__e"]);
    }
}
