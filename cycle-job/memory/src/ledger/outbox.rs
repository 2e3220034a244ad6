//! Messages that shall leave: written before they are sent, with what became of each.

use cicada_contract::plan::PEER_CHANNEL;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::mounts::rules::parse_time;
use crate::protocol::Fault;

/// A message that shall leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutgoingMessage {
    /// Unique; also the key by which receivers remove duplicates.
    pub id: String,
    /// Channel.
    pub channel: String,
    /// Receiver's address.
    pub to: String,
    /// Subject.
    pub subject: Option<String>,
    /// Text.
    pub body: String,
    /// Conversation.
    pub conversation: Option<String>,
    /// JSON array of attachments.
    pub attachments_json: Option<String>,
    /// The channel's own data as JSON; of a message to a peer `{"hops": n}`.
    pub payload_json: Option<String>,
    /// Cycle that wrote it.
    pub cycle: String,
}

/// A row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxRow {
    /// The message.
    pub message: OutgoingMessage,
    /// Tries so far.
    pub attempts: u32,
    /// When it was written.
    pub created_at: Timestamp,
    /// Not before this time.
    pub next_at: Option<Timestamp>,
}

/// What became of an outgoing message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxUpdate {
    /// Its id.
    pub id: String,
    /// New state.
    pub state: OutboxState,
    /// Tries in all; None = one more.
    pub attempts: Option<u32>,
    /// Why it failed.
    pub error: Option<String>,
    /// Next try.
    pub next_at: Option<Timestamp>,
}

/// State of an outgoing message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxState {
    /// Waits.
    Pending,
    /// Left, with a receipt.
    Sent,
    /// Given up.
    Failed,
    /// Perhaps left: claimed, without a receipt.
    Unknown,
}

impl OutboxState {
    /// As the ledger writes it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// Queues messages, and shows them among the agent's own.
pub(crate) fn add(c: &Connection, messages: &[OutgoingMessage], now: Timestamp) -> Result<(), Fault> {
    let now = now.to_string();
    for m in messages {
        let attachments = m.attachments_json.as_deref().unwrap_or("[]");
        let new = c
            .prepare_cached(
                "INSERT INTO outbox (message_id, channel, to_address, subject, body, conversation_id, attachments_json, state, cycle, \
                 created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8, ?9, ?9) ON CONFLICT DO NOTHING",
            )?
            .execute(params![m.id, m.channel, m.to, m.subject, m.body, m.conversation, attachments, m.cycle, now])?;
        if new == 0 {
            continue;
        }
        let conversation = m
            .conversation
            .clone()
            .unwrap_or_else(|| format!("{}:{}", m.channel, super::ingest::normalise(&m.to)));
        c.prepare_cached(
            "INSERT INTO messages (message_id, seq, timestamp, channel, direction, to_address, conversation_id, subject, body, \
             body_bytes, attachments_json, status, handled, cycle, peer_agent, payload_json) \
             VALUES (?1, ?2, ?3, ?4, 'out', ?5, ?6, ?7, ?8, ?9, ?10, 'pending', 1, ?11, ?12, ?13)",
        )?
        .execute(params![
            m.id,
            super::ingest::next_seq(c)?,
            now,
            m.channel,
            m.to,
            conversation,
            m.subject,
            m.body,
            i64::try_from(m.body.len()).unwrap_or(i64::MAX),
            attachments,
            m.cycle,
            (m.channel == PEER_CHANNEL).then_some(&m.to),
            m.payload_json
        ])?;
    }
    Ok(())
}

/// Those of `ids` that no longer wait.
pub(crate) fn settled(c: &Connection, ids: &[String]) -> Result<Vec<String>, Fault> {
    let mut statement = c.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM outbox WHERE message_id = ?1 AND state <> 'pending')",
    )?;
    let mut found = vec![];
    for id in ids {
        if statement.query_row([id], |row| row.get(0))? {
            found.push(id.clone());
        }
    }
    Ok(found)
}

/// Messages that wait, oldest first.
pub(crate) fn pending(c: &Connection) -> Result<Vec<OutboxRow>, Fault> {
    let mut statement = c.prepare_cached(
        "SELECT message_id, channel, to_address, subject, body, conversation_id, attachments_json, cycle, attempts, created_at, next_at, \
         (SELECT payload_json FROM messages WHERE messages.message_id = outbox.message_id) FROM outbox WHERE state = 'pending' ORDER BY created_at, message_id",
    )?;
    let rows = statement.query_map([], |r| {
        let created: String = r.get(9)?;
        let next: Option<String> = r.get(10)?;
        Ok(OutboxRow {
            message: OutgoingMessage {
                id: r.get(0)?,
                channel: r.get(1)?,
                to: r.get(2)?,
                subject: r.get(3)?,
                body: r.get(4)?,
                conversation: r.get(5)?,
                attachments_json: r.get(6)?,
                payload_json: r.get(11)?,
                cycle: r.get::<_, Option<String>>(7)?.unwrap_or_default(),
            },
            attempts: r.get(8)?,
            created_at: parse_time(&created).unwrap_or_default(),
            next_at: next.as_deref().and_then(parse_time),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Records what became of messages. A receipt is final: a late failure does not undo it.
pub(crate) fn update(c: &Connection, updates: &[OutboxUpdate], now: Timestamp) -> Result<(), Fault> {
    for u in updates {
        let changed = c
            .prepare_cached(
                "UPDATE outbox SET state = ?2, attempts = coalesce(?3, attempts + 1), error = ?4, next_at = ?5, updated_at = ?6 \
                 WHERE message_id = ?1 AND state <> 'sent'",
            )?
            .execute(params![u.id, u.state.label(), u.attempts, u.error, u.next_at.map(|t| t.to_string()), now.to_string()])?;
        if changed == 0 {
            continue;
        }
        c.prepare_cached("UPDATE messages SET status = ?2 WHERE message_id = ?1")?
            .execute(params![u.id, u.state.label()])?;
        if u.state == OutboxState::Unknown || u.state == OutboxState::Failed {
            let reason = u.error.as_deref().unwrap_or("no receipt came");
            super::cycle::notice(c, &format!("message {} is {}: {reason}", u.id, u.state.label()), now)?;
        }
    }
    Ok(())
}
