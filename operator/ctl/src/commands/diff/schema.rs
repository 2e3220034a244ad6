//! Differences of two schemas.

use std::collections::BTreeMap;

use cicada_memory::MemoryWorker;
use serde_json::{Value as Json, json};

/// Objects that an agent may have at most: far more than a model can oversee.
const OBJECTS_MAX: usize = 100_000;

/// SQL of each object, by kind and name.
pub(super) type Objects = BTreeMap<(String, String), String>;

/// One object that differs.
pub(super) struct SchemaChange {
    kind: String,
    name: String,
    before: Option<String>,
    after: Option<String>,
}

/// Everything that has SQL; the rest follows from it.
pub(super) fn read(worker: &mut MemoryWorker) -> anyhow::Result<Objects> {
    let rows =
        worker.query("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL", OBJECTS_MAX)?;
    let object = |row: &cicada_memory::Row| {
        let text = |n: usize| row.get(n).map(cicada_memory::Value::display).unwrap_or_default();
        ((text(0), text(1)), text(2))
    };
    Ok(rows.rows.iter().map(object).collect())
}

/// What was made, changed and dropped.
pub(super) fn changes(before: &Objects, after: &Objects) -> Vec<SchemaChange> {
    let mut keys: Vec<_> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| SchemaChange {
            kind: key.0.clone(),
            name: key.1.clone(),
            before: before.get(key).cloned(),
            after: after.get(key).cloned(),
        })
        .collect()
}

impl SchemaChange {
    /// One block for people.
    pub(super) fn text(&self) -> String {
        let one_line = |sql: &str| {
            cicada_contract::text::printable(&sql.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let head =
            |what: &str| format!("{} {} {what}", self.kind, cicada_contract::text::printable(&self.name));
        match (&self.before, &self.after) {
            (None, Some(sql)) => format!("{}: {}", head("added"), one_line(sql)),
            (Some(_), None) => head("dropped"),
            (before, after) => format!(
                "{}\n  - {}\n  + {}",
                head("changed"),
                one_line(before.as_deref().unwrap_or_default()),
                one_line(after.as_deref().unwrap_or_default())
            ),
        }
    }

    pub(super) fn json(&self) -> Json {
        json!({"kind": self.kind, "name": self.name, "before": self.before, "after": self.after})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_change_is_told() {
        let objects = |all: &[(&str, &str)]| -> Objects {
            all.iter().map(|(n, sql)| (("table".to_owned(), (*n).to_owned()), (*sql).to_owned())).collect()
        };
        let before =
            objects(&[("a", "CREATE TABLE a(x)"), ("b", "CREATE TABLE b(x)"), ("c", "CREATE TABLE c(x)")]);
        let after = objects(&[
            ("a", "CREATE TABLE a(x)"),
            ("b", "CREATE TABLE b(x,\n y)"),
            ("d", "CREATE TABLE d(x)"),
        ]);
        let texts: Vec<String> = changes(&before, &after).iter().map(SchemaChange::text).collect();
        assert_eq!(
            texts,
            [
                "table b changed\n  - CREATE TABLE b(x)\n  + CREATE TABLE b(x, y)",
                "table c dropped",
                "table d added: CREATE TABLE d(x)",
            ]
        );
    }
}
