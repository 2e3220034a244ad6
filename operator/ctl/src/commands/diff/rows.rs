//! Rows of one table in two memories. A row is known by its primary key, else by its rowid. Of each row of
//! the older side only two hashes are kept, 32 bytes; pages are read one after the other.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use anyhow::bail;
use cicada_memory::{MemoryWorker, Row, Rows, Value};
use serde_json::{Value as Json, json};

use crate::commands::memory::cell;
use crate::output::Grid;

/// Rows of one page; fewer where they are large.
const PAGE_ROWS: usize = 5_000;
/// What one page may hold, in bytes: both sides and their JSON fit into little memory.
const PAGE_BYTES: u64 = 8 << 20;
/// Columns that a table can have at most.
const COLUMNS_MAX: usize = 32_767;

/// Whose rows are wanted, and how many.
pub(super) struct Wanted {
    pub(super) table: String,
    pub(super) rows: usize,
}

/// What changed in a table.
#[derive(Debug, Default)]
pub(super) struct RowChanges {
    pub(super) added: u64,
    pub(super) changed: u64,
    pub(super) removed: u64,
    /// Names of what a row is known by, then of the other columns that both sides have.
    columns: Vec<String>,
    /// Rows that differ, as many as were wanted.
    rows: Vec<Sample>,
}

/// A row that differs.
#[derive(Debug)]
struct Sample {
    before: Option<Row>,
    after: Option<Row>,
}

/// How rows of a table are read on both sides.
struct Plan {
    table: String,
    /// What a row is known by: expressions.
    key: Vec<String>,
    /// The other columns that both sides have: expressions.
    rest: Vec<String>,
    columns: Vec<String>,
}

/// Compares the rows of a table that both sides have.
pub(super) fn compare(
    table: &str,
    before: &mut MemoryWorker,
    after: &mut MemoryWorker,
    wanted: Option<usize>,
) -> anyhow::Result<RowChanges> {
    let plan = plan(table, before, after)?;
    let mut changed = RowChanges { columns: plan.columns.clone(), ..RowChanges::default() };
    let wanted = wanted.unwrap_or(0);
    let mut known: HashMap<u128, u128> = HashMap::new();
    plan.each(before, |row| {
        known.insert(hash(&row[..plan.key.len()]), hash(&row[plan.key.len()..]));
    })?;
    let mut edited = HashMap::new();
    plan.each(after, |row| {
        let (key, rest) = row.split_at(plan.key.len());
        let id = hash(key);
        match known.remove(&id) {
            Some(old) if old == hash(rest) => {}
            Some(_) => {
                changed.changed += 1;
                if edited.len() + changed.rows.len() < wanted {
                    edited.insert(id, row);
                }
            }
            None => {
                changed.added += 1;
                if edited.len() + changed.rows.len() < wanted {
                    changed.rows.push(Sample { before: None, after: Some(row) });
                }
            }
        }
    })?;
    changed.removed = known.len() as u64;
    if changed.rows.len() < wanted && (!edited.is_empty() || !known.is_empty()) {
        plan.each(before, |row| {
            let id = hash(&row[..plan.key.len()]);
            if let Some(after) = edited.remove(&id) {
                changed.rows.push(Sample { before: Some(row), after: Some(after) });
            } else if known.contains_key(&id) && changed.rows.len() + edited.len() < wanted {
                changed.rows.push(Sample { before: Some(row), after: None });
            }
        })?;
    }
    Ok(changed)
}

/// A name as SQL.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

struct Column {
    name: String,
    /// Its place in the primary key, from 1; 0 = not in it.
    key: i64,
}

struct Layout {
    columns: Vec<Column>,
    without_rowid: bool,
}

fn layout(table: &str, worker: &mut MemoryWorker) -> anyhow::Result<Layout> {
    let name = literal(&Value::from(table));
    let list = worker
        .query(&format!("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = {name}"), 1)?;
    let without_rowid = list.rows.first().and_then(|r| r.first()?.as_int()) == Some(1);
    // Hidden columns of a full-text table (its own name, rank) hold no data.
    let rows = worker.query(
        &format!("SELECT name, pk FROM pragma_table_xinfo({name}) WHERE hidden <> 1 ORDER BY cid"),
        COLUMNS_MAX,
    )?;
    let column = |row: &Row| Column {
        name: row.first().map(Value::display).unwrap_or_default(),
        key: row.get(1).and_then(Value::as_int).unwrap_or(0),
    };
    Ok(Layout { columns: rows.rows.iter().map(column).collect(), without_rowid })
}

impl Layout {
    fn key(&self) -> Vec<String> {
        let mut key: Vec<&Column> = self.columns.iter().filter(|c| c.key > 0).collect();
        key.sort_by_key(|c| c.key);
        key.into_iter().map(|c| c.name.clone()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|c| c.name.eq_ignore_ascii_case(name))
    }
}

fn plan(table: &str, before: &mut MemoryWorker, after: &mut MemoryWorker) -> anyhow::Result<Plan> {
    let (a, b) = (layout(table, before)?, layout(table, after)?);
    let mut key = a.key();
    let same_key = key.iter().map(|k| k.to_lowercase()).eq(b.key().iter().map(|k| k.to_lowercase()));
    if key.is_empty() || !same_key {
        if a.without_rowid || b.without_rowid {
            bail!("its primary key is another one");
        }
        let free = ["rowid", "_rowid_", "oid"].into_iter().find(|name| !a.has(name) && !b.has(name));
        let Some(rowid) = free else { bail!("it has no primary key, and columns hide its rowid") };
        key = vec![rowid.to_owned()];
    }
    let is_key = |name: &str| key.iter().any(|k| k.eq_ignore_ascii_case(name));
    let rest: Vec<String> =
        a.columns.iter().map(|c| c.name.clone()).filter(|name| b.has(name) && !is_key(name)).collect();
    let columns = key.iter().chain(&rest).cloned().collect();
    let quoted = |names: &[String]| names.iter().map(|n| quote(n)).collect();
    // A bare rowid, not a quoted one: SQLite would take "rowid" for a text if it did not know it.
    let key = if key.len() == 1 && !a.has(&key[0]) { key } else { quoted(&key) };
    Ok(Plan { table: quote(table), key, rest: quoted(&rest), columns })
}

impl Plan {
    /// Calls `take` with each row, key first.
    fn each(&self, worker: &mut MemoryWorker, mut take: impl FnMut(Row)) -> anyhow::Result<()> {
        let columns = self.key.iter().chain(&self.rest).cloned().collect::<Vec<_>>().join(", ");
        let order = self.key.join(", ");
        let limit = self.page(worker)?;
        let mut after: Option<Vec<Value>> = None;
        let mut nulls = false;
        loop {
            let place = match &after {
                None => String::new(),
                Some(key) => {
                    let values: Vec<String> = key.iter().map(literal).collect();
                    format!("WHERE ({order}) > ({})", values.join(", "))
                }
            };
            let sql = format!("SELECT {columns} FROM {} {place} ORDER BY {order} LIMIT {limit}", self.table);
            let Rows { rows, .. } = worker.query(&sql, limit)?;
            let full = rows.len() == limit;
            let last = rows.last().map(|row| row[..self.key.len()].to_vec());
            for row in rows {
                nulls |= row[..self.key.len()].iter().any(Value::is_null);
                take(row);
            }
            // SQLite lets NULL into most primary keys; there is no "after NULL".
            if nulls {
                bail!("its primary key holds NULL");
            }
            match last {
                Some(last) if full => after = Some(last),
                _ => return Ok(()),
            }
        }
    }

    /// Rows of one page, from the average size of a row.
    fn page(&self, worker: &mut MemoryWorker) -> anyhow::Result<usize> {
        let lengths: Vec<String> =
            self.rest.iter().chain(&self.key).map(|c| format!("coalesce(length({c}), 0)")).collect();
        let sql = format!(
            "SELECT max(size) FROM (SELECT {} + 32 AS size FROM {} LIMIT 1000000)",
            lengths.join(" + "),
            self.table
        );
        let largest = worker.query(&sql, 1)?.rows.first().and_then(|r| r.first()?.as_int()).unwrap_or(1);
        let fits = PAGE_BYTES / largest.unsigned_abs().max(1);
        Ok(usize::try_from(fits).unwrap_or(PAGE_ROWS).clamp(1, PAGE_ROWS))
    }
}

/// A value as SQL.
fn literal(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Real(x) if x.is_infinite() => if *x > 0.0 { "9e999" } else { "-9e999" }.into(),
        // Seventeen digits name every double.
        Value::Real(x) => format!("{x:.17e}"),
        other => other.display(),
    }
}

/// 128 bits of a row. Whoever makes two different rows of one hash misleads a listing, nothing else.
fn hash(values: &[Value]) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        for value in values {
            match value {
                Value::Null => hasher.write_u8(0),
                Value::Int(n) => {
                    hasher.write_u8(1);
                    hasher.write_i64(*n);
                }
                Value::Real(x) => {
                    hasher.write_u8(2);
                    hasher.write_u64(x.to_bits());
                }
                Value::Text(text) => {
                    hasher.write_u8(3);
                    hasher.write_usize(text.len());
                    hasher.write(text.as_bytes());
                }
                Value::Blob(bytes) => {
                    hasher.write_u8(4);
                    hasher.write_usize(bytes.len());
                    hasher.write(bytes);
                }
            }
        }
        u128::from(hasher.finish())
    };
    (half(0) << 64) | half(1)
}

impl RowChanges {
    /// True if anything differs.
    pub(super) fn any(&self) -> bool {
        self.added + self.changed + self.removed > 0
    }

    /// The rows that differ, for documents.
    pub(super) fn samples(&self) -> Vec<Json> {
        let object = |row: &Option<Row>| {
            row.as_ref()
                .map(|row| Json::Object(self.columns.iter().cloned().zip(row.iter().map(cell)).collect()))
        };
        self.rows.iter().map(|s| json!({"before": object(&s.before), "after": object(&s.after)})).collect()
    }

    /// The rows that differ, for people: `+` added, `-` removed, `<` and `>` before and after a change.
    pub(super) fn grid(&self) -> Grid {
        let columns = std::iter::once(String::new()).chain(self.columns.iter().cloned()).collect();
        let mut grid = Grid { columns, rows: vec![] };
        for sample in &self.rows {
            let both = sample.before.is_some() && sample.after.is_some();
            let sides = [
                (&sample.before, if both { "<" } else { "-" }),
                (&sample.after, if both { ">" } else { "+" }),
            ];
            for (row, sign) in sides {
                if let Some(row) = row {
                    grid.push(std::iter::once(json!(sign)).chain(row.iter().map(cell)));
                }
            }
        }
        grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_as_sql_is_that_value() {
        assert_eq!(literal(&Value::from("it's")), "'it''s'");
        assert_eq!(literal(&Value::Blob(vec![1, 255])), "x'01ff'");
        assert_eq!(literal(&Value::Real(0.1)).parse::<f64>().unwrap().to_bits(), 0.1_f64.to_bits());
        assert_eq!(literal(&Value::Real(f64::NEG_INFINITY)), "-9e999");
        assert_eq!(literal(&Value::Int(i64::MIN)), "-9223372036854775808");
    }

    #[test]
    fn rows_that_differ_have_hashes_that_differ() {
        let row = |a: &str, b: &str| hash(&[Value::from(a), Value::from(b)]);
        assert_eq!(row("a", "b"), row("a", "b"));
        assert_ne!(row("ab", ""), row("a", "b"));
        assert_ne!(hash(&[Value::Null]), hash(&[Value::Int(0)]));
        assert_ne!(hash(&[Value::from("1")]), hash(&[Value::Int(1)]));
    }
}
