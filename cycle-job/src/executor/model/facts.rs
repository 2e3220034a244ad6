//! What the prompt is made of, read from the ledger and the memory.

use cicada_contract::PlanConfig;
use cicada_memory::ledger::{FileEntry, Overview};
use cicada_memory::mounts::Mount;
use cicada_memory::{
    LedgerWorker, MOUNTS, MemoryWorker, Mounts, PromptOptions, Row, Rows, Value, WorkerError,
};
use jiff::{SignedDuration, Timestamp};

use super::prompt::{Card, Facts, HumanAnswer, NewMessage, Summary};
use crate::context::Context;

/// Most new messages that are read for the prompt.
const MESSAGES: usize = 200;
/// Most summaries in the prompt: newer ones build on older ones.
const SUMMARIES: usize = 3;
/// A person's clock and ours may differ by this much when an answer is judged new.
const CLOCK_MARGIN: SignedDuration = SignedDuration::from_secs(60);

/// Reads all of it.
pub(super) fn gather(
    cx: &Context,
    ledger: &mut LedgerWorker,
    memory: &mut MemoryWorker,
    files: &[FileEntry],
    overview: &Overview,
) -> Result<Facts, WorkerError> {
    let config = &cx.plan.config;
    let now = cx.now();
    let tables = ["__agent_config", "__kanban_cards", "__contacts"];
    let mounts = ledger.load_tables(config, files, now, &tables)?;
    let since = last_final(ledger, &cx.plan.run.cycle.name)?;
    let mut warnings = overview.notices.clone();
    warnings.extend(
        overview
            .open_intents
            .iter()
            .map(|line| format!("a call of an earlier attempt: {line}; check before you repeat it")),
    );
    Ok(Facts {
        charter: charter(config, &mounts),
        summaries: summaries(ledger)?,
        schema: memory.schema_prompt(&PromptOptions {
            used: overview.tables_by_use.clone(),
            ..PromptOptions::default()
        })?,
        warnings,
        cards: cards(&mounts),
        answers: answers(ledger, since, now)?,
        messages: messages(ledger, &mounts)?,
        own_schedules: own_schedules(cx, ledger)?,
    })
}

/// Cells of a mount's row by column name.
struct Cells<'r> {
    mount: &'static Mount,
    row: &'r Row,
}

impl Cells<'_> {
    fn get(&self, column: &str) -> Option<&Value> {
        self.row.get(self.mount.column(column)?)
    }

    fn text(&self, column: &str) -> String {
        self.optional(column).unwrap_or_default()
    }

    fn optional(&self, column: &str) -> Option<String> {
        self.get(column).filter(|v| !v.is_null()).map(Value::display)
    }

    fn flag(&self, column: &str) -> bool {
        self.get(column).and_then(Value::as_int) == Some(1)
    }
}

fn rows<'m>(mounts: &'m Mounts, table: &str) -> impl Iterator<Item = Cells<'m>> {
    let mount = MOUNTS.iter().find(|m| m.name == table);
    mounts.rows(table).iter().filter_map(move |row| Some(Cells { mount: mount?, row }))
}

fn charter(config: &PlanConfig, mounts: &Mounts) -> String {
    rows(mounts, "__agent_config")
        .next()
        .and_then(|r| r.optional("charter"))
        .unwrap_or_else(|| config.charter.clone())
}

fn cards(mounts: &Mounts) -> Vec<Card> {
    rows(mounts, "__kanban_cards")
        .filter(|r| matches!(r.text("status").as_str(), "todo" | "doing"))
        .map(|r| Card {
            id: r.text("card_id"),
            title: r.text("title"),
            status: r.text("status"),
            priority: r.get("priority").and_then(Value::as_int).unwrap_or(0),
            due_at: r.optional("due_at"),
            description: r.text("description"),
        })
        .collect()
}

fn messages(ledger: &mut LedgerWorker, mounts: &Mounts) -> Result<Vec<NewMessage>, WorkerError> {
    let normalised = |text: &str| text.trim().to_lowercase();
    let instructing: Vec<(String, String)> = rows(mounts, "__contacts")
        .filter(|r| r.flag("may_instruct"))
        .map(|r| (r.text("channel"), normalised(&r.text("normalized_address"))))
        .collect();
    let sql = "SELECT message_id, channel, from_address, peer_agent, subject, body, attachments_json, timestamp FROM messages \
               WHERE direction = 'in' AND NOT handled ORDER BY seq";
    let new = ledger.query(sql, MESSAGES)?;
    let message = |row| {
        let text = |name| column(&new, row, name).unwrap_or_default();
        let (channel, from) = (text("channel"), text("from_address"));
        let is_peer = column(&new, row, "peer_agent").is_some();
        // A contact of the same words as an agent's channel and name does not make that agent a person.
        let may_instruct = !is_peer && instructing.contains(&(channel.clone(), normalised(&from)));
        NewMessage {
            id: text("message_id"),
            channel,
            from,
            subject: column(&new, row, "subject"),
            body: text("body"),
            attachments: serde_json::from_str(&text("attachments_json")).unwrap_or_default(),
            at: text("timestamp"),
            is_peer,
            may_instruct,
        }
    };
    Ok((0..new.rows.len()).map(message).collect())
}

fn column(rows: &Rows, row: usize, name: &str) -> Option<String> {
    rows.get(row, name).filter(|v| !v.is_null()).map(Value::display)
}

/// When the last cycle began that ended as it should; what came later is new.
fn last_final(ledger: &mut LedgerWorker, cycle: &str) -> Result<Timestamp, WorkerError> {
    let sql = format!(
        "SELECT max(started_at) AS at FROM cycles WHERE kind = 'final' AND cycle <> {}",
        quote(cycle)
    );
    let rows = ledger.query(&sql, 1)?;
    Ok(column(&rows, 0, "at").and_then(|t| t.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH))
}

fn answers(
    ledger: &mut LedgerWorker,
    since: Timestamp,
    now: Timestamp,
) -> Result<Vec<HumanAnswer>, WorkerError> {
    let margin = since.checked_sub(CLOCK_MARGIN).unwrap_or(since);
    let sql = format!(
        "SELECT request_id, question, CASE WHEN state = 'answered' THEN answer END AS answer FROM human_requests \
         WHERE (state = 'answered' AND answered_at >= '{margin}') \
         OR (state <> 'answered' AND expires_at > '{since}' AND expires_at <= '{now}') ORDER BY created_at, request_id"
    );
    let rows = ledger.query(&sql, 20)?;
    Ok((0..rows.rows.len())
        .map(|n| HumanAnswer {
            request: column(&rows, n, "request_id").unwrap_or_default(),
            question: column(&rows, n, "question").unwrap_or_default(),
            answer: column(&rows, n, "answer"),
        })
        .collect())
}

fn summaries(ledger: &mut LedgerWorker) -> Result<Vec<Summary>, WorkerError> {
    let mut all = vec![];
    for (kind, table) in [("messages", "message_summaries"), ("steps", "step_summaries")] {
        let rows = ledger.query(
            &format!("SELECT text, created_at FROM {table} ORDER BY created_at DESC, summary_id DESC"),
            SUMMARIES,
        )?;
        let newest = (0..rows.rows.len()).rev().map(|n| Summary {
            kind: kind.into(),
            until: column(&rows, n, "created_at").unwrap_or_default(),
            text: column(&rows, n, "text").unwrap_or_default(),
        });
        all.extend(newest);
    }
    Ok(all)
}

/// Instructions of the agent's own schedules among the triggers.
fn own_schedules(cx: &Context, ledger: &mut LedgerWorker) -> Result<Vec<(String, String)>, WorkerError> {
    let mut found = vec![];
    for trigger in &cx.plan.run.triggers {
        let Some(key) = trigger.own_schedule() else { continue };
        let sql = format!(
            "SELECT coalesce(name, schedule_key) AS name, instruction FROM schedules WHERE schedule_key = {}",
            quote(key)
        );
        let rows = ledger.query(&sql, 1)?;
        if let (Some(name), Some(instruction)) = (column(&rows, 0, "name"), column(&rows, 0, "instruction")) {
            found.push((name, instruction));
        }
    }
    Ok(found)
}

/// A text as an SQL literal.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\0', "").replace('\'', "''"))
}
