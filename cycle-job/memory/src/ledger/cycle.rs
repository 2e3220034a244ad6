//! Cycles, steps, tool results, and what the next prompt should say.

use cicada_contract::plan::Trigger;
use cicada_contract::report::{AgentSchedule, Ask, Usage};
use cicada_contract::text::cut;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    BeginCycle, EndKind, FinishCycle, HumanRequest, Overview, RecalledResult, StepRecord, TableUse,
    ToolDigest, ToolResultRecord, cards,
};
use crate::mounts::rules::{parse_time, zone};
use crate::protocol::Fault;
use crate::tool::digest;

/// Contents up to this many bytes are kept in the ledger itself.
pub(crate) const INLINE_MAX: usize = 4096;

pub(crate) fn begin(c: &Connection, b: &BeginCycle) -> Result<(), Fault> {
    cards::find_changes_of_people(c, &b.cycle, b.at)?;
    make_way(c, b)?;
    c.execute(
        "INSERT INTO cycles (cycle, attempt, uid, epoch, started_at, triggers_json) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
        params![b.cycle, b.attempt, b.uid, i64::try_from(b.epoch).unwrap_or(i64::MAX), b.at.to_string(), b.triggers_json],
    )?;
    note_fired(c, b)
}

/// The agent sees in `__agent_schedules` when a schedule of its own woke it last.
fn note_fired(c: &Connection, b: &BeginCycle) -> Result<(), Fault> {
    let triggers: Vec<Trigger> = serde_json::from_str(&b.triggers_json).unwrap_or_default();
    for trigger in triggers {
        let Some((key, slot)) = trigger.own_schedule().zip(trigger.slot) else { continue };
        c.prepare_cached("UPDATE schedules SET last_fired_at = ?2 WHERE schedule_key = ?1")?
            .execute(params![key, slot.to_string()])?;
    }
    Ok(())
}

/// An AgentCycle can be deleted and made again under its name. What the earlier one left gets its UID behind the
/// name, so that neither's record is taken for the other's.
fn make_way(c: &Connection, b: &BeginCycle) -> Result<(), Fault> {
    let sql = "SELECT uid FROM cycles WHERE cycle = ?1 AND uid <> ?2";
    let other: Option<String> = c.query_row(sql, [&b.cycle, &b.uid], |r| r.get(0)).optional()?;
    let Some(uid) = other else { return Ok(()) };
    for table in ["cycles", "steps", "step_summaries", "tool_results"] {
        let sql = format!("UPDATE {table} SET cycle = cycle || '~' || ?2 WHERE cycle = ?1");
        c.execute(&sql, [&b.cycle, &uid])?;
    }
    Ok(())
}

pub(crate) fn step(c: &Connection, s: &StepRecord) -> Result<(), Fault> {
    c.prepare_cached(
        "INSERT INTO steps (cycle, attempt, step, kind, started_at, ended_at, text, calls_json, input_tokens, cached_input_tokens, output_tokens) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (cycle, attempt, step) DO UPDATE SET \
         kind = excluded.kind, ended_at = excluded.ended_at, text = excluded.text, calls_json = excluded.calls_json, \
         input_tokens = excluded.input_tokens, cached_input_tokens = excluded.cached_input_tokens, output_tokens = excluded.output_tokens",
    )?
    .execute(params![
        s.cycle,
        s.attempt,
        s.step,
        s.kind,
        s.started_at.to_string(),
        s.ended_at.map(|t| t.to_string()),
        s.text,
        s.calls_json.as_deref().unwrap_or("[]"),
        number(s.usage.input_tokens),
        number(s.usage.cached_input_tokens),
        number(s.usage.output_tokens),
    ])?;
    Ok(())
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(crate) fn tool_result(c: &Connection, r: &ToolResultRecord) -> Result<ToolDigest, Fault> {
    let digest = r.content.as_deref().map(|content| digest::of(&r.result_id, content)).unwrap_or_default();
    let content = r.content.as_deref().filter(|t| t.len() <= INLINE_MAX || r.blob_key.is_none());
    c.prepare_cached(
        "INSERT INTO tool_results (result_id, cycle, attempt, step, tool_name, source_url, created_at, bytes, line_count, is_json, \
         json_type, top_keys, is_binary, is_truncated, content, analysis_json, sha256, blob_key) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        r.result_id,
        r.cycle,
        r.attempt,
        r.step,
        r.tool_name,
        r.source_url,
        r.at.to_string(),
        number(r.bytes),
        number(digest.line_count),
        digest.is_json,
        digest.json_type,
        digest.top_keys,
        r.content.is_none(),
        r.is_truncated,
        content,
        digest.analysis_json,
        r.sha256,
        r.blob_key,
    ])?;
    Ok(digest)
}

pub(crate) fn recall(c: &Connection, id: &str, now: Timestamp) -> Result<Option<RecalledResult>, Fault> {
    let sql = "SELECT result_id, tool_name, content, blob_key, bytes, sha256 FROM tool_results WHERE result_id = ?1";
    let found = c.query_row(sql, [id], |r| {
        Ok(RecalledResult {
            result_id: r.get(0)?,
            tool_name: r.get(1)?,
            content: r.get(2)?,
            blob_key: r.get(3)?,
            bytes: r.get::<_, i64>(4)?.unsigned_abs(),
            sha256: r.get(5)?,
        })
    });
    let found = found.optional()?;
    if found.is_some() {
        let sql = "INSERT INTO tool_pins VALUES (?1, 'recalled', ?2) ON CONFLICT DO NOTHING";
        c.execute(sql, params![id, now.to_string()])?;
    }
    Ok(found)
}

pub(crate) fn finish(c: &Connection, f: &FinishCycle) -> Result<(), Fault> {
    let u = &f.usage;
    c.execute(
        "UPDATE cycles SET ended_at = ?3, kind = ?4, class = ?5, outcome = ?6, summary = ?7, model_calls = ?8, tool_calls = ?9, \
         input_tokens = ?10, cached_input_tokens = ?11, output_tokens = ?12, cost = ?13, messages = ?14, report_json = ?15 \
         WHERE cycle = ?1 AND attempt = ?2",
        params![
            f.cycle,
            f.attempt,
            f.at.to_string(),
            f.kind.label(),
            f.class,
            f.outcome,
            f.summary,
            u.model_calls,
            u.tool_calls,
            number(u.input_tokens),
            number(u.cached_input_tokens),
            number(u.output_tokens),
            u.cost,
            u.messages,
            f.report_json
        ],
    )?;
    if f.kind == EndKind::Final {
        c.execute("UPDATE messages SET handled = 1 WHERE NOT handled AND direction = 'in'", [])?;
        // The agent has read them.
        c.execute(
            "DELETE FROM notices WHERE at < (SELECT min(started_at) FROM cycles WHERE cycle = ?1)",
            [&f.cycle],
        )?;
    }
    Ok(())
}

pub(crate) fn human_request(c: &Connection, r: &HumanRequest) -> Result<(), Fault> {
    c.execute(
        "INSERT INTO human_requests (request_id, question, options_json, state, cycle, created_at, expires_at) \
         VALUES (?1, ?2, ?3, 'open', ?4, ?5, ?6) ON CONFLICT DO NOTHING",
        params![
            r.id,
            r.question.chars().take(500).collect::<String>(),
            serde_json::to_string(&r.options.iter().take(8).collect::<Vec<_>>()).unwrap_or_default(),
            r.cycle,
            r.at.to_string(),
            r.expires_at.to_string()
        ],
    )?;
    Ok(())
}

pub(crate) fn notices(c: &Connection, lines: &[String], now: Timestamp) -> Result<(), Fault> {
    lines.iter().try_for_each(|line| notice(c, line, now))
}

/// One line for the next prompt.
pub(crate) fn notice(c: &Connection, line: &str, now: Timestamp) -> Result<(), Fault> {
    c.prepare_cached("INSERT INTO notices (at, text) VALUES (?1, ?2)")?
        .execute(params![now.to_string(), cut(line, 1000)])?;
    Ok(())
}

pub(crate) fn table_use(c: &Connection, uses: &[TableUse], cycle: &str, now: Timestamp) -> Result<(), Fault> {
    for u in uses {
        c.prepare_cached(
            "INSERT INTO table_stats (table_name, last_used_cycle, last_used_at, last_changed_at, created_cycle, rows) \
             VALUES (?1, ?2, ?3, ?4, ?2, ?5) ON CONFLICT (table_name) DO UPDATE SET last_used_cycle = excluded.last_used_cycle, \
             last_used_at = excluded.last_used_at, last_changed_at = coalesce(excluded.last_changed_at, last_changed_at), \
             rows = coalesce(excluded.rows, rows)",
        )?
        .execute(params![u.table, cycle, now.to_string(), u.changed.then(|| now.to_string()), u.rows.map(number)])?;
    }
    Ok(())
}

/// Numbers and lists for prompt and report.
pub(crate) fn overview(c: &Connection, now: Timestamp, time_zone: &str) -> Result<Overview, Fault> {
    let day = day_start(now, time_zone).to_string();
    let count = |sql: &str| c.query_row(sql, [], |r| r.get::<_, u32>(0));
    let strings = |sql: &str| -> rusqlite::Result<Vec<String>> {
        c.prepare_cached(sql)?.query_map([], |r| r.get(0))?.collect()
    };
    let next: Option<String> = c.query_row(
        "SELECT min(coalesce(next_at, created_at)) FROM outbox WHERE state = 'pending'",
        [],
        |r| r.get(0),
    )?;
    let (today, cycles_today) = c.query_row(
        "SELECT coalesce(sum(model_calls), 0), coalesce(sum(tool_calls), 0), coalesce(sum(input_tokens), 0), \
         coalesce(sum(cached_input_tokens), 0), coalesce(sum(output_tokens), 0), coalesce(sum(cost), 0.0), \
         coalesce(sum(messages), 0), count(DISTINCT cycle) FROM cycles WHERE started_at >= ?1",
        [day],
        |r| {
            let n = |i: usize| r.get::<_, i64>(i).map(i64::unsigned_abs);
            let usage = Usage {
                model_calls: r.get(0)?,
                tool_calls: r.get(1)?,
                input_tokens: n(2)?,
                cached_input_tokens: n(3)?,
                output_tokens: n(4)?,
                cost: r.get(5)?,
                messages: r.get(6)?,
            };
            Ok((usage, r.get(7)?))
        },
    )?;
    Ok(Overview {
        new_messages: count("SELECT count(*) FROM messages WHERE direction = 'in' AND NOT handled")?,
        pending_outbox: count("SELECT count(*) FROM outbox WHERE state = 'pending'")?,
        next_delivery: next.as_deref().and_then(parse_time),
        notices: strings("SELECT text FROM notices ORDER BY notice_id")?,
        charter: super::schema::meta(c, "charter")?,
        schedules: schedules(c)?,
        asks: asks(c, now)?,
        today,
        cycles_today,
        last_outcomes: strings(
            "SELECT outcome FROM cycles WHERE ended_at IS NOT NULL AND outcome IS NOT NULL ORDER BY ended_at DESC LIMIT 5",
        )?,
        tables_by_use: strings("SELECT table_name FROM table_stats ORDER BY last_used_at DESC, table_name")?,
        open_intents: strings(
            "SELECT coalesce(text, kind) || ', started ' || started_at || ', outcome unknown' FROM steps \
             WHERE kind = 'intent' AND ended_at IS NULL ORDER BY started_at",
        )?,
    })
}

fn day_start(now: Timestamp, time_zone: &str) -> Timestamp {
    let zone = zone(time_zone).unwrap_or(jiff::tz::TimeZone::UTC);
    now.to_zoned(zone).start_of_day().map_or(now, |z| z.timestamp())
}

fn schedules(c: &Connection) -> Result<Vec<AgentSchedule>, Fault> {
    let mut statement =
        c.prepare_cached("SELECT schedule_key, coalesce(schedule, run_at, ''), timezone FROM schedules WHERE enabled ORDER BY schedule_key")?;
    let rows = statement
        .query_map([], |r| Ok(AgentSchedule { key: r.get(0)?, schedule: r.get(1)?, time_zone: r.get(2)? }))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What waits for a person, as status shows it: more people may read that than a charter, so that of a proposal it has
/// the size alone.
fn asks(c: &Connection, now: Timestamp) -> Result<Vec<Ask>, Fault> {
    let mut statement = c.prepare_cached(
        "SELECT proposal_id, kind, substr(content_hash, 1, 10), \
                'a ' || kind || ' of ' || length(CAST(content AS BLOB)) || ' bytes' AS summary, created_at FROM proposals WHERE state = 'open' UNION ALL \
         SELECT name, 'tool', substr(changed_hash, 1, 10), 'the MCP tool is not what it was at first use', changed_at FROM mcp_tools \
         WHERE changed_hash IS NOT NULL UNION ALL \
         SELECT request_id, 'human', '', question, created_at FROM human_requests WHERE state = 'open' AND expires_at > ?1 \
         ORDER BY created_at",
    )?;
    let rows = statement.query_map([now.to_string()], |r| {
        let summary: String = r.get(3)?;
        Ok(Ask { id: r.get(0)?, kind: r.get(1)?, hash: r.get(2)?, summary: cut(&summary, 80) })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
