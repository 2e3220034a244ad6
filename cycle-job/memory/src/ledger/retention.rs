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
        ("DELETE FROM steps WHERE started_at < ?1", keep.steps),
        ("DELETE FROM step_summaries WHERE created_at < ?1", keep.steps),
        ("DELETE FROM cycles WHERE started_at < ?1", keep.cycles),
        ("DELETE FROM ingested WHERE at < ?1", INGESTED_SECONDS),
        // By now the object is gone. Should it not be, it costs its bytes and harms nothing.
        ("DELETE FROM dropped_blobs WHERE dropped_at < ?1", keep.cycles),
    ] {
        c.execute(sql, [before(seconds)])?;
    }
    super::cards::fold_events(c, &before(keep.cycles))?;
    drop_results(c, "created_at < ?1", &before(keep.tool_results), "retention")?;
    shrink(c, size_limit)?;
    // What a row names (again) is not dropped.
    c.execute(
        "DELETE FROM dropped_blobs WHERE blob_key IN (SELECT blob_key FROM tool_results UNION SELECT blob_key FROM files)",
        [],
    )?;
    c.execute("UPDATE dropped_blobs SET epoch = (SELECT max(epoch) FROM cycles) WHERE epoch IS NULL", [])?;
    Ok(())
}

/// Removes results that are not pinned, then notes the objects that held them, in the room that this made. Their
/// time is the running cycle's start: this is also called in the middle of a write, which has no clock. Gives the
/// number of rows.
fn drop_results(c: &Connection, which: &str, value: &str, reason: &str) -> Result<usize, Fault> {
    let mut delete = c.prepare(&format!(
        "DELETE FROM tool_results WHERE {which} AND result_id NOT IN (SELECT result_id FROM tool_pins) RETURNING blob_key"
    ))?;
    let blobs: Vec<Option<String>> = delete.query_map([value], |r| r.get(0))?.collect::<Result<_, _>>()?;
    let mut note = c.prepare_cached(
        "INSERT INTO dropped_blobs (blob_key, dropped_at, reason) \
         SELECT ?1, coalesce(max(started_at), ''), ?2 FROM cycles WHERE true ON CONFLICT DO NOTHING",
    )?;
    for blob in blobs.iter().flatten() {
        note.execute([blob.as_str(), reason])?;
    }
    Ok(blobs.len())
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
    let results = "result_id IN (SELECT result_id FROM tool_results WHERE result_id NOT IN \
                   (SELECT result_id FROM tool_pins) ORDER BY created_at LIMIT ?1)";
    while used(c)? > target && drop_results(c, results, "200", "size")? > 0 {}
    let steps = "DELETE FROM steps WHERE rowid IN (SELECT rowid FROM steps WHERE summarised ORDER BY started_at LIMIT 200)";
    while used(c)? > target && c.execute(steps, [])? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(c: &Connection, sql: &str) -> Vec<String> {
        c.prepare(sql).unwrap().query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn dropped_objects_are_noted_with_the_epoch_of_the_cycle_that_dropped_them() {
        let c = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&c).unwrap();
        c.execute_batch(
            "INSERT INTO cycles (cycle, attempt, uid, epoch, started_at) VALUES ('a', 1, 'u', 7, '2026-12-01T00:00:00Z');
             INSERT INTO dropped_blobs (blob_key, dropped_at, reason) VALUES ('blobs/1-old', '2026-11-30T00:00:00Z', 'retention');",
        )
        .unwrap();
        let result = |id: &str, day: u32, blob: &str| {
            c.execute(
                "INSERT INTO tool_results (result_id, cycle, attempt, step, tool_name, created_at, bytes, line_count, is_json, \
                 is_binary, is_truncated, sha256, blob_key) VALUES (?1, 'a', 1, 1, 'sql', ?2, 1, 1, 0, 0, 0, '', ?3)",
                [id, &format!("2026-{day:02}-01T00:00:00Z"), blob],
            )
            .unwrap();
        };
        result("old", 1, "blobs/2-a");
        result("old-but-pinned", 1, "blobs/2-b");
        result("old-with-a-young-twin", 1, "blobs/2-c");
        result("young", 12, "blobs/2-c");
        c.execute("INSERT INTO tool_pins VALUES ('old-but-pinned', 'recalled', '')", []).unwrap();
        let now: Timestamp = "2026-12-02T00:00:00Z".parse().unwrap();
        apply(&c, &Retention::default(), 1 << 30, now).unwrap();
        assert_eq!(strings(&c, "SELECT result_id FROM tool_results ORDER BY 1"), ["old-but-pinned", "young"]);
        let dropped = "SELECT blob_key || ' ' || epoch FROM dropped_blobs ORDER BY 1";
        assert_eq!(strings(&c, dropped), ["blobs/1-old 7", "blobs/2-a 7"]);
        // Over the size limit, what gives way is noted as well.
        apply(&c, &Retention::default(), 1, now).unwrap();
        assert_eq!(strings(&c, dropped), ["blobs/1-old 7", "blobs/2-a 7", "blobs/2-c 7"]);
    }
}
