//! What leaves for people: messages to contacts, and questions.
//!
//! Whether somebody may be written to is the manifest's and the ledger's word, never the model's: it is
//! looked up anew for each message, outside of the tables that SQL could touch.

use cicada_contract::text::{cut, sha256_hex};
use cicada_memory::ledger::{HumanRequest, OutgoingMessage};
use cicada_memory::{MOUNTS, Value as Cell};
use jiff::SignedDuration;
use serde_json::json;
use tokio::task::block_in_place;

use super::ModelError;
use super::desk::{Desk, Said};
use super::facts::quote;

/// How long a question waits for an answer.
const QUESTION_EXPIRES: SignedDuration = SignedDuration::from_hours(72);

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
        let limits = &config.limits;
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
        let over = |limit: u32, sent: u32| limit > 0 && sent >= limit;
        if over(limits.messages_per_cycle, self.messages)
            || over(limits.messages_per_day, self.before.messages_today + self.messages)
        {
            return Ok(Said::error(
                "not sent: limits.messagesPerCycle or messagesPerDay is reached; say it in one message next time",
            ));
        }
        let now = self.cx.now();
        let cycle = &self.cx.plan.run.cycle;
        // The same text to the same person in one cycle is one message, whichever attempt wrote it.
        let key = json!([cycle.uid, channel, to, subject, body]).to_string();
        let message = OutgoingMessage {
            id: format!("m-{}", &sha256_hex(key)[..32]),
            channel: channel.to_owned(),
            to: to.to_owned(),
            subject,
            body: body.to_owned(),
            conversation: reply_to.map(|id| self.conversation_of(&id)).transpose()?.flatten(),
            attachments_json: None,
            cycle: cycle.name.clone(),
        };
        block_in_place(|| self.ledger.add_outgoing(std::slice::from_ref(&message), now))?;
        self.messages += 1;
        self.changed("__messages");
        Ok(Said::ok(format!("queued as {}; it leaves when this cycle has been saved", message.id)))
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
