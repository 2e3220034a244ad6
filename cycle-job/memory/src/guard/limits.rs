//! Settings of a connection that runs foreign SQL.

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;

/// Longest text or blob in bytes: one message body or tool result (5 MB) with room, far below the heap limit.
const LENGTH_MAX: i32 = 16 << 20;

/// Most columns of a table of the agent's.
pub(crate) const COLUMNS_MAX: i32 = 1000;
/// As SQLite itself has it: a file of others with more than our own limit would not be read at all.
pub(crate) const FOREIGN_COLUMNS_MAX: i32 = 2000;

/// Makes `connection` safe for foreign SQL and foreign schemas. WAL with synchronous off: a killed
/// process loses nothing that was committed; a lost node loses the whole directory anyway.
pub(crate) fn harden(connection: &Connection, columns: i32) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, LENGTH_MAX),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, 1_000_000),
        (Limit::SQLITE_LIMIT_COLUMN, columns),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 500),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 200),
        (Limit::SQLITE_LIMIT_VDBE_OP, 2_000_000),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
        (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 100),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 32),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, value)?;
    }
    // What is temporary is in RAM only: there zeroed pages would protect nothing.
    connection.execute_batch(
        "PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; PRAGMA temp.secure_delete = OFF; PRAGMA synchronous = OFF; PRAGMA recursive_triggers = OFF; \
         PRAGMA cell_size_check = ON; PRAGMA cache_size = -16384;",
    )
}

/// Bounds the file at `size_limit` bytes.
pub(crate) fn cap_size(connection: &Connection, size_limit: u64) -> rusqlite::Result<()> {
    let page: u64 = connection.query_row("PRAGMA page_size", [], |r| r.get::<_, i64>(0))?.unsigned_abs();
    let pages = (size_limit / page.max(512)).max(1);
    connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
}
