//! What arrives goes in once, by its id. Ids are remembered longer than what they stand for, so that a
//! late repeat is not taken for something new.

use cicada_contract::text::sha256_hex;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::{HumanAnswer, IncomingMessage, IngestReport};
use crate::protocol::Fault;

/// Longest body kept, in bytes.
const BODY_MAX: usize = 5 << 20;

/// Marks `id` as taken in; false if it was already.
fn first_time(c: &Connection, id: &str, kind: &str, now: Timestamp) -> Result<bool, Fault> {
    let new = c
        .prepare_cached("INSERT INTO ingested VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
        .execute(params![id, kind, now.to_string()])?;
    Ok(new == 1)
}

/// Takes messages in.
pub(crate) fn messages(
    c: &Connection,
    all: &[IncomingMessage],
    now: Timestamp,
) -> Result<IngestReport, Fault> {
    let mut report = IngestReport::default();
    for message in all {
        if !first_time(c, &format!("message:{}", message.id), "message", now)? {
            report.known += 1;
            continue;
        }
        insert(c, message)?;
        // Peers are agents that the manifest names, nobody whom a person may allow more.
        if message.peer_agent.is_none() {
            contact(c, message, now)?;
        }
        report.new += 1;
    }
    Ok(report)
}

/// Number of the next message.
pub(crate) fn next_seq(c: &Connection) -> Result<i64, Fault> {
    Ok(c.prepare_cached("SELECT coalesce(max(seq), 0) + 1 FROM messages")?.query_row([], |r| r.get(0))?)
}

fn insert(c: &Connection, m: &IncomingMessage) -> Result<(), Fault> {
    let conversation =
        m.conversation.clone().unwrap_or_else(|| format!("{}:{}", m.channel, normalise(&m.from)));
    let body = cicada_contract::text::cut(&m.body, BODY_MAX);
    c.prepare_cached(
        "INSERT INTO messages (message_id, seq, timestamp, channel, direction, from_address, to_address, conversation_id, \
         peer_agent, subject, body, body_bytes, attachments_json, status, payload_json, cycle) \
         VALUES (?1, ?2, ?3, ?4, 'in', ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'received', ?13, ?14)",
    )?
    .execute(params![
        m.id,
        next_seq(c)?,
        m.at.to_string(),
        m.channel,
        m.from,
        m.to,
        conversation,
        m.peer_agent,
        m.subject,
        body,
        i64::try_from(m.body.len()).unwrap_or(i64::MAX),
        m.attachments_json.as_deref().unwrap_or("[]"),
        m.payload_json,
        m.cycle,
    ])?;
    Ok(())
}

/// An unknown sender becomes a contact that a person may allow.
fn contact(c: &Connection, m: &IncomingMessage, now: Timestamp) -> Result<(), Fault> {
    let normalised = normalise(&m.from);
    c.prepare_cached(
        "INSERT INTO contacts (contact_id, channel, address, normalized_address, source, status, requested_at, last_conversed_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, 'message', 'requested', ?5, ?5, ?6) \
         ON CONFLICT (channel, normalized_address) DO UPDATE SET last_conversed_at = excluded.last_conversed_at, updated_at = excluded.updated_at",
    )?
    .execute(params![contact_id(&m.channel, &normalised), m.channel, m.from, normalised, m.at.to_string(), now.to_string()])?;
    Ok(())
}

/// The same contact has the same id in every ledger.
pub(crate) fn contact_id(channel: &str, normalised: &str) -> String {
    format!("contact-{}", &sha256_hex(format!("{channel}\n{normalised}"))[..12])
}

/// Addresses that differ in case and blanks are one.
pub fn normalise(address: &str) -> String {
    address.split_whitespace().collect::<String>().to_lowercase()
}

/// Takes answers of people in.
pub(crate) fn answers(c: &Connection, all: &[HumanAnswer], now: Timestamp) -> Result<IngestReport, Fault> {
    let mut report = IngestReport::default();
    for answer in all {
        if !first_time(c, &format!("answer:{}", answer.id), "answer", now)? {
            report.known += 1;
            continue;
        }
        report.new += 1;
        let state: Option<String> = c
            .prepare_cached("SELECT state FROM human_requests WHERE request_id = ?1")?
            .query_row([&answer.request], |r| r.get(0))
            .optional()?;
        match state.as_deref() {
            Some("open" | "expired") => {
                c.prepare_cached(
                    "UPDATE human_requests SET state = 'answered', answer = ?2, answered_at = ?3 WHERE request_id = ?1",
                )?
                .execute(params![answer.request, answer.answer, answer.at.to_string()])?;
            }
            Some(_) => report
                .warnings
                .push(format!("request {} was answered before; the first answer stays", answer.request)),
            None => report.warnings.push(format!("no request {} is known for an answer", answer.request)),
        }
    }
    Ok(report)
}
