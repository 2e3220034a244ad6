//! What callers hand to the ledger and get from it.

use cicada_contract::report::{AgentSchedule, Ask, CharterReport, Usage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A message that arrived. Its text is of a stranger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncomingMessage {
    /// Unique and stable: a repeat is the same message.
    pub id: String,
    /// Channel it came by.
    pub channel: String,
    /// Sender's address.
    pub from: String,
    /// Receiver's address, where the channel has one.
    pub to: Option<String>,
    /// Conversation it belongs to; None = one per sender.
    pub conversation: Option<String>,
    /// Name of the agent that sent it, for messages of peers.
    pub peer_agent: Option<String>,
    /// Subject.
    pub subject: Option<String>,
    /// Text.
    pub body: String,
    /// JSON array of attachments.
    pub attachments_json: Option<String>,
    /// The channel's own data as JSON.
    pub payload_json: Option<String>,
    /// When it was written.
    pub at: Timestamp,
    /// Cycle that ingests it.
    pub cycle: String,
}

/// An answer of a person to a request of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HumanAnswer {
    /// Unique and stable.
    pub id: String,
    /// Request that it answers.
    pub request: String,
    /// The choice or text.
    pub answer: String,
    /// When it was given.
    pub at: Timestamp,
}

/// What ingest did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IngestReport {
    /// New ones.
    pub new: u32,
    /// Ids that were known already.
    pub known: u32,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
}

/// A file in the cycle's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path below the folder, with `/`.
    pub path: String,
    /// MIME type; None = by its name.
    pub mime_type: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Lower-case hexadecimal SHA-256.
    pub sha256: String,
}

/// An attempt begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginCycle {
    /// Name of the cycle.
    pub cycle: String,
    /// Its UID.
    pub uid: String,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Epoch it holds.
    pub epoch: u64,
    /// Its triggers as JSON.
    pub triggers_json: String,
    /// When it began.
    pub at: Timestamp,
}

/// One step of an executor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Name of the cycle.
    pub cycle: String,
    /// Attempt.
    pub attempt: u32,
    /// Number in the attempt, from 1.
    pub step: u32,
    /// `sql`, `model`, `container`, `intent`.
    pub kind: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; None while it runs.
    pub ended_at: Option<Timestamp>,
    /// What was said or done.
    pub text: Option<String>,
    /// Tool calls as a JSON array.
    pub calls_json: Option<String>,
    /// Spend of this step.
    pub usage: Usage,
}

/// A tool's result. Contents above 4 KB are kept as an object by the caller and named by `blob_key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResultRecord {
    /// Its id, unique in the ledger.
    pub result_id: String,
    /// Name of the cycle.
    pub cycle: String,
    /// Attempt.
    pub attempt: u32,
    /// Step.
    pub step: u32,
    /// Name of the tool.
    pub tool_name: String,
    /// Where it came from.
    pub source_url: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The content; None if it is not text.
    pub content: Option<String>,
    /// Bytes of the content.
    pub bytes: u64,
    /// Lower-case hexadecimal SHA-256 of the content.
    pub sha256: String,
    /// The content was cut before.
    pub is_truncated: bool,
    /// Key of the object that holds it, if it is not kept here.
    pub blob_key: Option<String>,
}

/// What is known of a result without reading it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolDigest {
    /// The content is JSON.
    pub is_json: bool,
    /// `object`, `array`, ...
    pub json_type: Option<String>,
    /// Keys of the top level, with commas.
    pub top_keys: Option<String>,
    /// Lines of a text.
    pub line_count: u64,
    /// Shape of the content as JSON.
    pub analysis_json: Option<String>,
    /// The same for the model to read.
    pub text: String,
    /// A query that reads the content.
    pub query: String,
}

/// A result as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecalledResult {
    /// Its id.
    pub result_id: String,
    /// Name of the tool.
    pub tool_name: String,
    /// The content, if it is kept in the ledger.
    pub content: Option<String>,
    /// Key of the object that has it otherwise.
    pub blob_key: Option<String>,
    /// Its bytes.
    pub bytes: u64,
    /// Lower-case hexadecimal SHA-256 of it.
    pub sha256: String,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishCycle {
    /// Name of the cycle.
    pub cycle: String,
    /// Attempt.
    pub attempt: u32,
    /// Kind of the snapshot.
    pub kind: EndKind,
    /// Failure class, if it failed.
    pub class: Option<String>,
    /// What the agent says.
    pub outcome: Option<String>,
    /// One line.
    pub summary: Option<String>,
    /// Spend.
    pub usage: Usage,
    /// The whole report.
    pub report_json: Option<String>,
    /// When it ended.
    pub at: Timestamp,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// All was done: what was ingested is handled.
    Final,
    /// Cut off; goes on later.
    Interrupted,
    /// Undone.
    Failed,
    /// Only messages were sent.
    Delivered,
    /// An older snapshot was made current.
    Restored,
}

impl EndKind {
    /// As the ledger writes it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Delivered => "delivered",
            Self::Restored => "restored",
        }
    }
}

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HumanRequest {
    /// Its id.
    pub id: String,
    /// At most 500 characters.
    pub question: String,
    /// 0 to 8 choices.
    pub options: Vec<String>,
    /// Cycle that asked.
    pub cycle: String,
    /// When.
    pub at: Timestamp,
    /// Until when an answer counts.
    pub expires_at: Timestamp,
}

/// A summary of what lies further back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryRecord {
    /// Conversation of messages; None = of steps.
    pub conversation: Option<String>,
    /// Newest cycle of the steps.
    pub cycle: String,
    /// First source: number of the step or message.
    pub from: i64,
    /// Last source.
    pub to: i64,
    /// Time of the last source, inclusive.
    pub until: String,
    /// The text.
    pub text: String,
}

/// A tool of an MCP server as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolPin {
    /// `<server>.<tool>`.
    pub name: String,
    /// SHA-256 over name, description and schema.
    pub hash: String,
}

/// Use of one table of the memory in a cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableUse {
    /// Its name.
    pub table: String,
    /// Rows now, if they were counted.
    pub rows: Option<u64>,
    /// Its rows or columns changed.
    pub changed: bool,
}

/// What the write back did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WriteBackReport {
    /// Edits that were applied.
    pub applied: u32,
    /// Rows that a person had changed meanwhile: their value stays. One line each, both values named.
    pub conflicts: Vec<String>,
    /// Edits that were refused, with the reason.
    pub refused: Vec<String>,
    /// Enabled schedules of the agent's own, as they now are.
    pub schedules: Vec<AgentSchedule>,
    /// The agent holds them back until then.
    pub paused_until: Option<Timestamp>,
    /// What waits for a person.
    pub asks: Vec<Ask>,
    /// The charter in force from now on; None only before the ledger was asked.
    pub charter: Option<CharterReport>,
}

/// Numbers and lists for prompt and report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Overview {
    /// Messages that are not yet handled.
    pub new_messages: u32,
    /// Messages in the outbox.
    pub pending_outbox: u32,
    /// When the outbox wants the next delivery.
    pub next_delivery: Option<Timestamp>,
    /// Lines for the prompt.
    pub notices: Vec<String>,
    /// Charter in force, if it is not the manifest's.
    pub charter: Option<String>,
    /// Enabled schedules of the agent's own.
    pub schedules: Vec<AgentSchedule>,
    /// What waits for a person.
    pub asks: Vec<Ask>,
    /// Spend of the day so far, in `time_zone`.
    pub today: Usage,
    /// Cycles of the day so far.
    pub cycles_today: u32,
    /// Outcomes of the newest cycles, newest first, at most 5.
    pub last_outcomes: Vec<String>,
    /// Tables of the memory by last use, newest first.
    pub tables_by_use: Vec<String>,
    /// Calls that began and of which no end is known.
    pub open_intents: Vec<String>,
}
