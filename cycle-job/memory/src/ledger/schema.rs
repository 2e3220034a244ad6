//! The ledger's declared schema. Migrations are additive: each is run once, in order, and never changed
//! after a release.

use rusqlite::Connection;

use crate::protocol::{Fault, FaultKind};

/// Migrations; the number of those that ran is in `meta`.
const MIGRATIONS: &[&str] =
    &[include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];

/// Oldest release, by the number of migrations that it knows, that may go on writing a ledger of this one: all
/// migrations since then only added what such a release does without. Kept in `meta`, so that an upgrade can
/// be taken back.
const WRITABLE_FROM: usize = 2;

/// Tables, what they are for, and their columns; a `!` marks what can be about a person.
const DOCUMENTATION: &str = include_str!("documentation.txt");

/// Writes the documentation into the ledger itself, so that a reader of the file alone has it.
fn document(connection: &Connection) -> Result<(), Fault> {
    let version = cicada_contract::text::sha256_hex(DOCUMENTATION);
    if meta(connection, "documentation")?.as_deref() == Some(version.as_str()) {
        return Ok(());
    }
    connection.execute_batch("BEGIN; DELETE FROM documentation")?;
    let mut insert = connection.prepare("INSERT INTO documentation VALUES (?1, ?2, ?3, ?4)")?;
    for line in DOCUMENTATION.lines() {
        let mut parts = line.split(" | ");
        let (Some(table), Some(note), Some(columns)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        insert.execute((table, "", note, false))?;
        for column in columns.split(' ') {
            let person = column.ends_with('!');
            insert.execute((table, column.trim_end_matches('!'), "", person))?;
        }
    }
    drop(insert);
    set_meta(connection, "documentation", Some(&version))?;
    Ok(connection.execute_batch("COMMIT")?)
}

/// Brings a ledger to this release's schema. One of a later release is used as it is if that release says that
/// this one may; else it is refused.
pub(crate) fn migrate(connection: &Connection) -> Result<(), Fault> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT",
    )?;
    let done: usize = connection
        .query_row("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'schema'", [], |r| r.get::<_, i64>(0))
        .map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let needed = meta(connection, "writable_from")?.and_then(|n| n.parse().ok()).unwrap_or(done);
    if needed > MIGRATIONS.len() {
        let message = format!(
            "the ledger has schema {done} and needs {needed}, this release knows {}: use the release that wrote it, or a later one",
            MIGRATIONS.len()
        );
        return Err(Fault::new(FaultKind::Schema, message));
    }
    for (n, sql) in MIGRATIONS.iter().enumerate().skip(done) {
        connection.execute_batch(&format!(
            "BEGIN; {sql}; INSERT INTO meta VALUES ('schema', '{}') ON CONFLICT (key) DO UPDATE SET value = excluded.value; COMMIT",
            n + 1
        ))?;
    }
    if done < MIGRATIONS.len() {
        set_meta(connection, "writable_from", Some(&WRITABLE_FROM.to_string()))?;
    }
    document(connection)
}

/// A value of `meta`.
pub(crate) fn meta(connection: &Connection, key: &str) -> Result<Option<String>, Fault> {
    use rusqlite::OptionalExtension;
    let value = connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([key], |r| r.get(0))
        .optional()?;
    Ok(value)
}

/// Sets or removes a value of `meta`.
pub(crate) fn set_meta(connection: &Connection, key: &str, value: Option<&str>) -> Result<(), Fault> {
    match value {
        Some(value) => connection
            .prepare_cached(
                "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )?
            .execute([key, value])?,
        None => connection.prepare_cached("DELETE FROM meta WHERE key = ?1")?.execute([key])?,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Connection {
        let c = Connection::open_in_memory().unwrap();
        migrate(&c).unwrap();
        c
    }

    fn strings(c: &Connection, sql: &str) -> Vec<String> {
        c.prepare(sql).unwrap().query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn every_column_is_documented_and_judged() {
        let c = ledger();
        let found = strings(
            &c,
            "SELECT m.name || '.' || x.name FROM sqlite_schema m, pragma_table_info(m.name) x WHERE m.type = 'table' AND m.name NOT GLOB 'sqlite_*' ORDER BY 1",
        );
        let documented = strings(
            &c,
            "SELECT table_name || '.' || column_name FROM documentation WHERE column_name <> '' ORDER BY 1",
        );
        assert_eq!(found, documented);
        assert_eq!(
            strings(
                &c,
                "SELECT person FROM documentation WHERE table_name = 'messages' AND column_name = 'body'"
                    .replace("person", "CAST(person AS TEXT)")
                    .as_str()
            ),
            ["1"]
        );
    }

    #[test]
    fn all_tables_are_strict_and_a_second_migration_changes_nothing() {
        let c = ledger();
        let loose = strings(
            &c,
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND NOT strict AND name NOT GLOB 'sqlite_*'",
        );
        assert_eq!(loose, Vec::<String>::new());
        let before = c.total_changes();
        migrate(&c).unwrap();
        assert_eq!(c.total_changes(), before);
    }

    #[test]
    fn a_ledger_of_a_later_release_is_refused() {
        let c = ledger();
        c.execute("UPDATE meta SET value = '99' WHERE key = 'schema'", []).unwrap();
        c.execute("DELETE FROM meta WHERE key = 'writable_from'", []).unwrap();
        assert!(migrate(&c).unwrap_err().message.contains("schema 99"));
        c.execute("INSERT INTO meta VALUES ('writable_from', '99')", []).unwrap();
        assert!(migrate(&c).unwrap_err().message.contains("needs 99"));
    }

    #[test]
    fn an_upgrade_can_be_taken_back() {
        let c = ledger();
        // What the next release would do: only add, and say who may go on.
        let next = format!(
            "ALTER TABLE cycles ADD COLUMN mood TEXT; CREATE TABLE later (n INTEGER) STRICT;
             UPDATE meta SET value = '{}' WHERE key = 'schema'; UPDATE meta SET value = '{}' WHERE key = 'writable_from'",
            MIGRATIONS.len() + 1,
            MIGRATIONS.len()
        );
        c.execute_batch(&next).unwrap();
        migrate(&c).unwrap();
        c.execute_batch("INSERT INTO cycles (cycle, attempt, uid, started_at) VALUES ('a', 1, 'u', '')")
            .unwrap();
        // And upgraded again, nothing is migrated twice.
        let schema = meta(&c, "schema").unwrap().unwrap();
        assert_eq!(schema, (MIGRATIONS.len() + 1).to_string());
        assert_eq!(meta(&c, "writable_from").unwrap().unwrap(), MIGRATIONS.len().to_string());
        assert_eq!(strings(&c, "SELECT cycle FROM cycles WHERE mood IS NULL"), ["a"]);
    }
}
