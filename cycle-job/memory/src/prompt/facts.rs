//! Facts of one table, from fixed samples.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::{detect, escape, name, quoted};
use crate::mounts::Mount;
use crate::sql::tokens::Kind;
use crate::value::{Value, real_text};
use crate::worker::quote;

/// Rows counted exactly up to this many.
const EXACT_MAX: i64 = 10_000;
/// Rows of a sample at each end.
const ENDS: i64 = 20;
/// Rows of a sample between the ends.
const BETWEEN: i64 = 60;
/// Columns described.
const COLUMNS_MAX: usize = 40;
/// Rows and columns shown.
const SHOWN: (usize, usize) = (3, 8);
/// Longer cells are not read for a sample.
const CELL_MAX: usize = 4000;

/// What the prompt can say about a table, in parts of growing size.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Facts {
    /// `name, 12 rows`.
    pub(crate) head: String,
    /// Collapsed CREATE.
    pub(crate) create: String,
    /// Sample rows.
    pub(crate) samples: String,
    /// A line for each column.
    pub(crate) columns: String,
    /// Columns that were NULL in every sample of at least ten.
    pub(crate) always_null: Vec<String>,
}

/// A table or view of `main` or `temp`.
pub(crate) struct Table<'a> {
    pub(crate) schema: &'a str,
    pub(crate) name: &'a str,
    pub(crate) sql: &'a str,
    pub(crate) view: bool,
}

struct Column {
    name: String,
    kind: String,
    untrusted: bool,
    values: Vec<Value>,
}

/// Reads the facts. What can't be read (a damaged page, a full clock) is left out and said.
pub(crate) fn of(c: &Connection, table: &Table<'_>) -> Facts {
    let mut facts = Facts { create: collapse(table.sql), ..Facts::default() };
    if table.view {
        // A view is a query, perhaps a costly one: its text says enough.
        facts.head = format!("{}, a view", name(table.name));
        return facts;
    }
    match read(c, table) {
        Ok((rows, columns)) => {
            facts.head = format!("{}, {rows}", name(table.name));
            facts.samples = samples(&columns);
            (facts.columns, facts.always_null) = describe(&columns);
        }
        Err(error) => {
            facts.head = format!("{}, not readable ({})", name(table.name), quoted(&error.to_string(), 80))
        }
    }
    facts
}

fn read(c: &Connection, table: &Table<'_>) -> rusqlite::Result<(String, Vec<Column>)> {
    let mount = Mount::find(table.name).filter(|_| table.schema == "temp");
    let mut columns: Vec<Column> = c
        .prepare_cached(
            "SELECT name, type FROM pragma_table_xinfo(?1, ?2) WHERE hidden IN (0, 3) LIMIT 1000",
        )?
        .query_map([table.name, table.schema], |r| {
            let name: String = r.get(0)?;
            let untrusted = mount.is_some_and(|m| m.untrusted.contains(&name.as_str()));
            Ok(Column { name, kind: r.get(1)?, untrusted, values: vec![] })
        })?
        .collect::<Result<_, _>>()?;
    columns.truncate(COLUMNS_MAX);
    let source = format!("{}.{}", table.schema, quote(table.name));
    let list: Vec<String> = columns
        .iter()
        .map(|col| {
            let q = quote(&col.name);
            format!("iif(octet_length({q}) > {CELL_MAX}, substr({q}, 1, 100) || '…', {q})")
        })
        .collect();
    let list = list.join(", ");
    let rowid =
        ["rowid", "_rowid_", "oid"].iter().find(|r| !columns.iter().any(|c| c.name.eq_ignore_ascii_case(r)));
    let ends = rowid.and_then(|rowid| {
        let sql = format!("SELECT (SELECT min({rowid}) FROM {source}), (SELECT max({rowid}) FROM {source})");
        let ends = c.query_row(&sql, [], |r| Ok((r.get::<_, Option<i64>>(0)?, r.get::<_, Option<i64>>(1)?)));
        ends.ok().and_then(|(first, last)| Some((*rowid, first?, last?)))
    });
    let (many, count) = count(c, &source, ends)?;
    let mut take = |sql: String, params: &[i64]| -> rusqlite::Result<()> {
        let mut statement = c.prepare_cached(&sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            for (n, column) in columns.iter_mut().enumerate() {
                column.values.push(Value::from_sql(row.get_ref(n).unwrap_or(ValueRef::Null)));
            }
        }
        Ok(())
    };
    match ends {
        Some((rowid, first, last)) if many => {
            take(format!("SELECT {list} FROM {source} ORDER BY {rowid} LIMIT {ENDS}"), &[])?;
            for n in 1..=BETWEEN {
                let at = first + step(first, last, n, BETWEEN + 1);
                take(
                    format!("SELECT {list} FROM {source} WHERE {rowid} >= ?1 ORDER BY {rowid} LIMIT 1"),
                    &[at],
                )?;
            }
            let tail =
                format!("SELECT {list} FROM {source} WHERE {rowid} > ?1 ORDER BY {rowid} LIMIT {ENDS}");
            take(tail, &[last - ENDS])?;
        }
        _ => take(format!("SELECT {list} FROM {source} LIMIT {}", ENDS * 2 + BETWEEN), &[])?,
    }
    Ok((rows_text(&count), columns))
}

/// Name of the rowid, its first and its last.
type Ends<'a> = Option<(&'a str, i64, i64)>;

/// Number of rows, exact or not, and whether they are more than a sample.
fn count(c: &Connection, source: &str, ends: Ends<'_>) -> rusqlite::Result<(bool, String)> {
    let about = |rows: u64| format!("~{}", two_digits(rows));
    let wide = ends.filter(|(_, first, last)| last.saturating_sub(*first) >= EXACT_MAX);
    let estimated = wide.map(|(rowid, first, last)| estimate(c, source, rowid, first, last)).transpose()?;
    if let Some(rows) = estimated.filter(|rows| *rows > 2 * EXACT_MAX.unsigned_abs()) {
        return Ok((true, about(rows)));
    }
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {})", EXACT_MAX + 1);
    let rows: i64 = c.query_row(&sql, [], |r| r.get(0))?;
    let text = match estimated {
        _ if rows <= EXACT_MAX => rows.to_string(),
        Some(estimated) => about(estimated.max(rows.unsigned_abs())),
        None => format!("~{EXACT_MAX} or more"),
    };
    Ok((rows > ENDS * 2 + BETWEEN, text))
}

fn rows_text(count: &str) -> String {
    format!("{count} row{}", if count == "1" { "" } else { "s" })
}

/// The n-th of `parts` even steps between two rowids.
fn step(first: i64, last: i64, n: i64, parts: i64) -> i64 {
    let span = i128::from(last) - i128::from(first);
    i64::try_from(span * i128::from(n) / i128::from(parts)).unwrap_or(i64::MAX)
}

fn two_digits(rows: u64) -> u64 {
    let mut unit = 1;
    while rows / unit >= 100 {
        unit *= 10;
    }
    (rows + unit / 2) / unit * unit
}

/// Rows read to tell the density at one place.
const RUN: u32 = 50;

/// A range of rowids and how many rows are in it: exactly, or by the density of its first rows.
struct Part {
    to: i64,
    /// Last rowid that was read.
    read_to: i64,
    rows: f64,
    exact: bool,
}

fn probe(statement: &mut rusqlite::Statement<'_>, from: i64, to: i64) -> rusqlite::Result<Part> {
    let row = statement.query_row([from, to], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?;
    Ok(match row {
        (RUN, Some(first), Some(last)) if last < to => {
            // As if it went on like this: too much after a cluster, which a closer look puts right.
            let rows = 1.0 + f64::from(RUN - 1) * distance(first, to) / distance(first, last);
            Part { to, read_to: last, rows, exact: false }
        }
        (count, ..) => Part { to, read_to: to, rows: count.into(), exact: true },
    })
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn distance(from: i64, to: i64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64
}

/// Rows of a large table by the density of its rowids at 15 places, which are among those of the sample, so
/// that they cost no other pages. Where one place says far more than the others (a cluster of numbers in
/// a wide range), it is looked at closer.
fn estimate(c: &Connection, source: &str, rowid: &str, first: i64, last: i64) -> rusqlite::Result<u64> {
    const PLACES: i64 = 15;
    const CLOSER: usize = 100;
    let mut statement = c.prepare_cached(&format!(
        "SELECT count(*), min({rowid}), max({rowid}) FROM (SELECT {rowid} FROM {source} WHERE {rowid} BETWEEN ?1 AND ?2 ORDER BY {rowid} LIMIT {RUN})"
    ))?;
    let at = |n: i64| first + step(first, last, n * BETWEEN / PLACES, BETWEEN + 1);
    let mut parts: Vec<Part> = (0..PLACES)
        .map(|n| probe(&mut statement, at(n), if n + 1 < PLACES { at(n + 1) - 1 } else { last }))
        .collect::<Result<_, _>>()?;
    for _ in 0..CLOSER {
        parts.sort_by(|a, b| a.rows.total_cmp(&b.rows));
        let usual = parts[parts.len() / 2].rows;
        let Some(n) = parts.iter().rposition(|p| !p.exact).filter(|n| parts[*n].rows > 4.0 * usual) else {
            break;
        };
        let Part { to, read_to, .. } = parts.swap_remove(n);
        let middle = read_to + step(read_to, to, 1, 2);
        parts.push(Part { to: read_to, read_to, rows: RUN.into(), exact: true });
        parts.push(probe(&mut statement, read_to + 1, middle.max(read_to + 1))?);
        if middle.max(read_to + 1) < to {
            parts.push(probe(&mut statement, middle.max(read_to + 1) + 1, to)?);
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
    let rows = parts.iter().map(|p| p.rows).sum::<f64>() as u64;
    Ok(rows)
}

/// The CREATE statement on one line without comments, at most 600 bytes.
fn collapse(sql: &str) -> String {
    let mut out = String::new();
    let mut last: Option<char> = None;
    for token in crate::sql::split::code(sql) {
        let tight = matches!(token.text, "," | ")" | "." | "(") || matches!(last, Some('(' | '.') | None);
        if !tight {
            out.push(' ');
        }
        // Only text can hold what looks like a tag or a fence; an operator stands between blanks.
        let free = matches!(token.kind, Kind::Literal | Kind::Quoted | Kind::Open);
        out.push_str(&if free { escape(token.text) } else { token.text.to_owned() });
        last = token.text.chars().last();
        if out.len() > 700 {
            break;
        }
    }
    cicada_contract::text::cut(&out, 600)
}

/// Three rows of at most eight columns that no stranger fills.
fn samples(columns: &[Column]) -> String {
    let shown: Vec<&Column> = columns.iter().filter(|c| !c.untrusted).take(SHOWN.1).collect();
    let count = columns.first().map_or(0, |c| c.values.len());
    if shown.is_empty() || count == 0 {
        return String::new();
    }
    let mut out =
        format!("  sample: {}\n", shown.iter().map(|c| name(&c.name)).collect::<Vec<_>>().join(" | "));
    // First, middle, last: fixed, and spread.
    let picks: BTreeSet<usize> = (0..SHOWN.0).map(|n| n * (count - 1) / (SHOWN.0 - 1).max(1)).collect();
    for row in picks {
        let cells: Vec<String> = shown.iter().map(|c| cell(&c.values[row])).collect();
        out.push_str(&format!("    {}\n", cells.join(" | ")));
    }
    out
}

fn cell(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text, 60),
        Value::Blob(bytes) => format!("blob of {} bytes", bytes.len()),
        other => other.display(),
    }
}

fn describe(columns: &[Column]) -> (String, Vec<String>) {
    let mut out = String::new();
    let mut always_null = vec![];
    for column in columns {
        let known: Vec<&Value> = column.values.iter().filter(|v| !v.is_null()).collect();
        let count = column.values.len();
        let mut parts = vec![];
        if known.is_empty() {
            if count >= 10 {
                always_null.push(column.name.clone());
            }
            if count > 0 {
                parts.push("always NULL".to_owned());
            }
        } else if count > 1 {
            if known.len() < count {
                parts.push(format!("{}% null", ((count - known.len()) * 100 / count).max(1)));
            }
            parts.extend(values(column, &known));
        }
        // What the CREATE and a sample row say already is not said again.
        if parts.is_empty() {
            continue;
        }
        let kind = if column.kind.is_empty() {
            String::new()
        } else {
            format!(" {}", escape(&cicada_contract::text::cut(&column.kind, 30)))
        };
        out.push_str(&format!("  {}{kind}: {}\n", name(&column.name), parts.join(", ")));
    }
    (out, always_null)
}

/// Type, number of distinct values, range and most frequent values of a column's sample.
fn values(column: &Column, known: &[&Value]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for value in known {
        *counts.entry(value.display()).or_default() += 1;
    }
    let texts: Vec<String> = known.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
    let numbers: Vec<f64> = known.iter().filter_map(|v| number(v)).collect();
    let distinct = if counts.len() == known.len() {
        "all distinct".to_owned()
    } else {
        format!("{} distinct", counts.len())
    };
    let mut parts = vec![];
    let whole = |v: &&Value| matches!(v, Value::Int(_));
    let detected = if texts.len() == known.len() {
        detect::column(&texts)
    } else if known.iter().all(whole) {
        let digits: Vec<String> = known.iter().map(|v| v.display()).collect();
        detect::column(&digits).filter(|t| matches!(*t, "boolean-like" | "unix time"))
    } else {
        None
    };
    parts.extend(detected.map(str::to_owned));
    parts.push(distinct);
    if column.untrusted {
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        parts.push(format!("text of strangers, up to {longest} bytes"));
        return parts;
    }
    if numbers.len() == known.len() {
        let (low, high) = numbers.iter().fold((f64::MAX, f64::MIN), |(l, h), n| (l.min(*n), h.max(*n)));
        let shown = |n: f64| if known.iter().all(whole) { format!("{n}") } else { real_text(n) };
        parts.push(format!("{}..{}", shown(low), shown(high)));
    } else if matches!(detected, Some("ISO date" | "date-time")) {
        let (low, high) = (texts.iter().min(), texts.iter().max());
        parts.push(format!("{}..{}", quoted(low.map_or("", |t| t), 35), quoted(high.map_or("", |t| t), 35)));
    }
    if matches!(detected, Some("enum-like" | "boolean-like" | "country" | "language")) {
        let mut top: Vec<(&String, &usize)> = counts.iter().collect();
        top.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let top: Vec<String> = top
            .iter()
            .take(5)
            .map(|(v, n)| format!("{} {}%", quoted(v, 24), *n * 100 / known.len()))
            .collect();
        parts.push(top.join(" "));
    }
    parts
}

fn number(value: &Value) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "shown as a range")]
        Value::Int(n) => Some(*n as f64),
        Value::Real(x) => Some(*x),
        _ => None,
    }
}
