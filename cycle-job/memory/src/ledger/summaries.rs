//! Summaries of older steps and messages. Their sources stay until their own retention.

use rusqlite::{Connection, params};

use super::SummaryRecord;
use crate::protocol::Fault;

/// Adds a summary; one of the same sources changes nothing.
pub(crate) fn add(c: &Connection, s: &SummaryRecord) -> Result<(), Fault> {
    let key = format!("{:?} {} {} {}", s.conversation, s.cycle, s.from, s.until);
    let id = &cicada_contract::text::sha256_hex(key)[..16];
    match &s.conversation {
        Some(conversation) => {
            c.prepare_cached(
                "INSERT INTO message_summaries VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
            )?
            .execute(params![id, conversation, s.from, s.to, s.text, s.until])?;
        }
        None => {
            c.prepare_cached(
                "INSERT INTO step_summaries VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
            )?
            .execute(params![id, s.cycle, s.from, s.to, s.text, s.until])?;
            c.prepare_cached("UPDATE steps SET summarised = 1 WHERE NOT summarised AND started_at <= ?1")?
                .execute([&s.until])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_covers_its_steps_and_leaves_them() {
        let c = Connection::open_in_memory().unwrap();
        super::super::schema::migrate(&c).unwrap();
        for n in 1..=3 {
            let sql =
                "INSERT INTO steps (cycle, attempt, step, kind, started_at) VALUES ('c', 1, ?1, 'model', ?2)";
            c.execute(sql, params![n, format!("2026-12-01T00:00:0{n}Z")]).unwrap();
        }
        let summary = SummaryRecord {
            conversation: None,
            cycle: "c".into(),
            from: 1,
            to: 2,
            until: "2026-12-01T00:00:02Z".into(),
            text: "two steps".into(),
        };
        add(&c, &summary).unwrap();
        add(&c, &summary).unwrap();
        let count = |sql: &str| c.query_row(sql, [], |r| r.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM step_summaries"), 1);
        assert_eq!(count("SELECT count(*) FROM steps WHERE NOT summarised"), 1);
        assert_eq!(count("SELECT count(*) FROM steps"), 3);
    }
}
