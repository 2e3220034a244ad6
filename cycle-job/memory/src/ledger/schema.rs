//! The ledger's declared schema. Migrations are additive: each is run once, in order, and never changed
//! after a release.

use rusqlite::Connection;

use crate::protocol::{Fault, FaultKind};

/// Migrations; the number of those that ran is in `meta`.
const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql")];

/// Brings a ledger to this release's schema. A ledger of a later release is refused.
pub(crate) fn migrate(connection: &Connection) -> Result<(), Fault> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT",
    )?;
    let done: usize = connection
        .query_row("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'schema'", [], |r| r.get::<_, i64>(0))
        .map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
    if done > MIGRATIONS.len() {
        let message = format!(
            "the ledger has schema {done}, this release knows {}: use the release that wrote it, or a later one",
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
    Ok(())
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
