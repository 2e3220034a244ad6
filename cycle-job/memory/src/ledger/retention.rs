//! What is kept for how long, applied at seal.

use cicada_contract::plan::Retention;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;

use crate::protocol::Fault;

/// Ids of what was taken in are kept this long, whatever the retention: a late repeat must not count as new.
const INGESTED_SECONDS: u64 = 90 * 86_400;

/// Removes what is older than its retention, then, above the size limit, oldest digests and summarised
/// steps first. Unhandled messages and a pending outbox always stay.
pub(crate) fn apply(c: &Connection, keep: &Retention, size_limit: u64, now: Timestamp) -> Result<(), Fault> {
    let before = |seconds: u64| {
        let age = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX / 4));
        now.checked_sub(age).unwrap_or(Timestamp::MIN).to_string()
    };
    for (sql, seconds) in [
        (
            "DELETE FROM messages WHERE timestamp < ?1 AND (handled OR direction = 'out') AND message_id NOT IN \
          (SELECT message_id FROM outbox WHERE state = 'pending')",
            keep.messages,
        ),
        ("DELETE FROM outbox WHERE updated_at < ?1 AND state <> 'pending'", keep.messages),
        ("DELETE FROM message_summaries WHERE created_at < ?1", keep.messages),
        (
            "INSERT INTO dropped_blobs SELECT DISTINCT blob_key, ?1, 'retention' FROM tool_results WHERE created_at < ?1 \
          AND blob_key IS NOT NULL AND result_id NOT IN (SELECT result_id FROM tool_pins) ON CONFLICT DO NOTHING",
            keep.tool_results,
        ),
        (
            "DELETE FROM tool_results WHERE created_at < ?1 AND result_id NOT IN (SELECT result_id FROM tool_pins)",
            keep.tool_results,
        ),
        ("DELETE FROM steps WHERE started_at < ?1", keep.steps),
        ("DELETE FROM step_summaries WHERE created_at < ?1", keep.steps),
        ("DELETE FROM cycles WHERE started_at < ?1", keep.cycles),
        ("DELETE FROM ingested WHERE at < ?1", INGESTED_SECONDS),
    ] {
        c.execute(sql, [before(seconds)])?;
    }
    shrink(c, size_limit)
}

/// Pages in use, in bytes.
fn used(c: &Connection) -> Result<u64, Fault> {
    let number = |pragma: &str| c.query_row(pragma, [], |r| r.get::<_, i64>(0)).map(i64::unsigned_abs);
    Ok((number("PRAGMA page_count")? - number("PRAGMA freelist_count")?) * number("PRAGMA page_size")?)
}

/// Above the size limit, removes the oldest results, then the oldest summarised steps.
pub(crate) fn shrink(c: &Connection, size_limit: u64) -> Result<(), Fault> {
    // A tenth stays free, so that the next cycle can write at all.
    let target = size_limit / 10 * 9;
    let mut objects = vec![];
    for sql in [
        "DELETE FROM tool_results WHERE result_id IN (SELECT result_id FROM tool_results WHERE result_id NOT IN \
         (SELECT result_id FROM tool_pins) ORDER BY created_at LIMIT 200) RETURNING blob_key",
        "DELETE FROM steps WHERE rowid IN (SELECT rowid FROM steps WHERE summarised ORDER BY started_at LIMIT 200) RETURNING NULL",
    ] {
        while used(c)? > target {
            let gone: Vec<Option<String>> =
                c.prepare_cached(sql)?.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?;
            if gone.is_empty() {
                break;
            }
            objects.extend(gone.into_iter().flatten());
        }
    }
    for key in objects {
        // The running cycle's start: this is also called in the middle of a write, which has no clock.
        c.prepare_cached("INSERT INTO dropped_blobs SELECT ?1, coalesce(max(started_at), ''), 'size' FROM cycles ON CONFLICT DO NOTHING")?
            .execute([key])?;
    }
    Ok(())
}
