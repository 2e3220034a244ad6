//! What leaves: messages to contacts and to other agents, and questions.
//!
//! Whether somebody may be written to is the manifest's and the ledger's word, never the model's: it is
//! looked up anew for each message, outside of the tables that SQL could touch.

use cicada_contract::plan::{HOPS_MAX, PEER_CHANNEL, TriggerKind};
use cicada_contract::text::{cut, sha256_hex};
use cicada_memory::ledger::{HumanRequest, OutgoingMessage};
use cicada_memory::{MOUNTS, Row, Rows, Value as Cell};
use jiff::{SignedDuration, tz::TimeZone};
use serde_json::json;
use tokio::task::block_in_place;

use super::ModelError;
use super::desk::{Desk, Said};
use super::facts::quote;
use crate::channel::peer;

/// How long a question waits for an answer.
const QUESTION_EXPIRES: SignedDuration = SignedDuration::from_hours(72);

/// New messages of agents that are looked at for their hops: all, in any sane case.
const NEW_MESSAGES_MAX: usize = 10_000;

impl Desk<'_> {
    pub(super) fn send_message(
        &mut self,
        channel: &str,
        to: &str,
        subject: Option<String>,
        body: &str,
        reply_to: Option<String>,
    ) -> Result<Said, ModelError> {
        let config = &self.cx.plan.config;
        let channel = match (channel, config.channels.keys().next()) {
            ("", Some(only)) if config.channels.len() == 1 => only.as_str(),
            (name, _) => name,
        };
        let names = config.channels.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        if !config.channels.contains_key(channel) {
            return Ok(Said::error(format!(
                "not sent: there is no channel {channel:?}; the manifest has: {names}"
            )));
        }
        if !self.may_write_to(channel, to)? {
            return Ok(Said::error(format!(
                "not sent: {} on {channel} is no contact that you may write to (see allow_outbound in __contacts); a person can allow it in the manifest",
                cut(to, 100)
            )));
        }
        if let Some(refused) = self.over_limits() {
            return Ok(refused);
        }
        let message = OutgoingMessage {
            conversation: reply_to.map(|id| self.conversation_of(&id)).transpose()?.flatten(),
            ..self.outgoing(channel, to, subject, body)
        };
        self.queue(&message)?;
        Ok(Said::ok(format!("queued as {}; it leaves when this cycle has been saved", message.id)))
    }

    fn over_limits(&self) -> Option<Said> {
        let limits = &self.cx.plan.config.limits;
        let over = |limit: u32, sent: u32| limit > 0 && sent >= limit;
        let is_over = over(limits.messages_per_cycle, self.messages)
            || over(limits.messages_per_day, self.before.messages_today + self.messages);
        is_over.then(|| {
            Said::error(
                "not sent: limits.messagesPerCycle or messagesPerDay is reached; say it in one message next time",
            )
        })
    }

    fn outgoing(&self, channel: &str, to: &str, subject: Option<String>, body: &str) -> OutgoingMessage {
        let cycle = &self.cx.plan.run.cycle;
        // The same text to the same receiver in one cycle is one message, whichever attempt wrote it.
        let key = json!([cycle.uid, channel, to, subject, body]).to_string();
        OutgoingMessage {
            id: format!("m-{}", &sha256_hex(key)[..32]),
            channel: channel.to_owned(),
            to: to.to_owned(),
            subject,
            body: body.to_owned(),
            conversation: None,
            attachments_json: None,
            payload_json: None,
            cycle: cycle.name.clone(),
        }
    }

    fn queue(&mut self, message: &OutgoingMessage) -> Result<(), ModelError> {
        block_in_place(|| self.ledger.add_outgoing(std::slice::from_ref(message), self.cx.now()))?;
        self.messages += 1;
        self.changed("__messages");
        Ok(())
    }

    /// A message to another agent. Whom it may write to is the manifest's word; whether that agent reads it is
    /// the other manifest's.
    pub(super) fn message_peer(
        &mut self,
        to: &str,
        subject: Option<String>,
        body: &str,
    ) -> Result<Said, ModelError> {
        let plan = &self.cx.plan;
        let Some(peer) = plan.config.peer(to) else {
            let names: Vec<&str> = plan.config.peers.iter().map(|p| p.name.as_str()).collect();
            return Ok(Said::error(format!(
                "not sent: {} is no agent that you may write to; spec.peers names: {}",
                cut(to, 100),
                names.join(", ")
            )));
        };
        if let Some(problem) = plan.run.peer_problem(to) {
            return Ok(Said::error(format!("not sent: {}; a person can change that", problem.text())));
        }
        if let Some(refused) = self.over_limits() {
            return Ok(refused);
        }
        if peer.messages_per_day > 0 && self.sent_today(to)? >= peer.messages_per_day {
            return Ok(Said::error(format!(
                "not sent: messagesPerDay of peer {to} in spec.peers is reached; say it in one message next time"
            )));
        }
        let hops = self.hops_so_far()?.saturating_add(1);
        let message = OutgoingMessage {
            payload_json: Some(json!({"hops": hops}).to_string()),
            ..self.outgoing(PEER_CHANNEL, to, subject, body)
        };
        self.queue(&message)?;
        let when = if hops > HOPS_MAX {
            format!(
                "; {to} reads it when it next wakes by itself: too many messages between agents came one upon the other"
            )
        } else {
            String::new()
        };
        Ok(Said::ok(format!("queued as {}; it leaves when this cycle has been saved{when}", message.id)))
    }

    /// Messages to a peer since midnight, this cycle's included.
    fn sent_today(&mut self, peer: &str) -> Result<u32, ModelError> {
        let zone = TimeZone::get(&self.cx.plan.config.limits.time_zone).unwrap_or(TimeZone::UTC);
        let now = self.cx.now();
        let midnight = now.to_zoned(zone).start_of_day().map_or(now, |z| z.timestamp()).to_string();
        // Without its Z a time sorts before all later ones, with fractions or without.
        let sql = format!(
            "SELECT count(*) FROM messages WHERE direction = 'out' AND channel = {} AND to_address = {} AND timestamp >= {}",
            quote(PEER_CHANNEL),
            quote(peer),
            quote(midnight.trim_end_matches('Z'))
        );
        let rows = block_in_place(|| self.ledger.query(&sql, 1))?;
        let count = rows.rows.first().and_then(|r| r.first()).and_then(Cell::as_int).unwrap_or(0);
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// How far the messages of agents have come that this cycle is about: the farthest of the new ones. One that
    /// an agent woke and that finds none new (another cycle has read it) goes on from the newest.
    fn hops_so_far(&mut self) -> Result<u32, ModelError> {
        let by_peer = self.cx.plan.run.triggers.iter().any(|t| t.kind == TriggerKind::Peer);
        let of = "SELECT payload_json FROM messages WHERE direction = 'in' AND peer_agent IS NOT NULL";
        let hops = |rows: &Rows| {
            let of_row = |row: &Row| row.first().map(|cell| peer::hops(cell.as_str()));
            rows.rows.iter().filter_map(of_row).max()
        };
        let new = block_in_place(|| self.ledger.query(&format!("{of} AND NOT handled"), NEW_MESSAGES_MAX))?;
        if let Some(hops) = hops(&new) {
            return Ok(hops);
        }
        if !by_peer {
            return Ok(0);
        }
        let newest = block_in_place(|| self.ledger.query(&format!("{of} ORDER BY seq DESC LIMIT 1"), 1))?;
        Ok(hops(&newest).unwrap_or(0))
    }

    /// The manifest decides; addresses are compared without case.
    fn may_write_to(&mut self, channel: &str, to: &str) -> Result<bool, ModelError> {
        let rows = block_in_place(|| {
            self.ledger.load_tables(&self.cx.plan.config, &self.files, self.cx.now(), &["__contacts"])
        })?;
        let Some(mount) = MOUNTS.iter().find(|m| m.name == "__contacts") else { return Ok(false) };
        let cell = |row: &'_ cicada_memory::Row, column: &str| {
            mount.column(column).and_then(|n| row.get(n)).map(Cell::display).unwrap_or_default()
        };
        let wanted = to.trim().to_lowercase();
        Ok(rows.rows("__contacts").iter().any(|row| {
            cell(row, "channel") == channel
                && cell(row, "address").trim().to_lowercase() == wanted
                && cell(row, "allow_outbound") == "1"
        }))
    }

    fn conversation_of(&mut self, message_id: &str) -> Result<Option<String>, ModelError> {
        let sql = format!("SELECT conversation_id FROM messages WHERE message_id = {}", quote(message_id));
        let rows = block_in_place(|| self.ledger.query(&sql, 1))?;
        Ok(rows.rows.first().and_then(|r| r.first()).filter(|v| !v.is_null()).map(Cell::display))
    }

    pub(super) fn ask(&mut self, question: &str, options: &[String]) -> Result<Said, ModelError> {
        let now = self.cx.now();
        let cycle = &self.cx.plan.run.cycle;
        // Short, because a person types it.
        let id = format!("h-{}", &sha256_hex(json!([cycle.uid, question, options]).to_string())[..8]);
        let request = HumanRequest {
            id: id.clone(),
            question: question.to_owned(),
            options: options.to_vec(),
            cycle: cycle.name.clone(),
            at: now,
            expires_at: now + QUESTION_EXPIRES,
        };
        block_in_place(|| self.ledger.add_human_request(&request))?;
        Ok(Said::ok(format!(
            "asked as {id}; the answer comes in a later cycle, or the request expires at {}",
            request.expires_at
        )))
    }
}
