//! The report of one cycle: what the pod leaves as its termination message.

use serde::{Deserialize, Serialize};

use crate::class::FailureClass;
use crate::text::{cut, printable};

/// Version of the report.
pub const REPORT_VERSION: u32 = 1;
/// The kubelet cuts a termination message here; a report that is cut is not JSON any more.
pub const REPORT_MAX_BYTES: usize = 4096;
/// Most peers of an agent, all of whom one cycle may wake.
pub const PEERS_MAX: usize = 16;
/// Most tables in the report: the ones with the most changes.
pub const REPORT_TABLES: usize = 10;

/// What a cycle answers. Every text is printable and cut; never a message body, an address or a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleReport {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// How the cycle ended.
    pub result: CycleResult,
    /// Why, if it did not end as it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// What the agent says of its cycle.
    #[serde(default)]
    pub outcome: Outcome,
    /// One line for people, at most 256 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Limit that ended the work before the agent did, e.g. `maxModelCalls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Attempt that wrote this.
    #[serde(default)]
    pub attempt: u32,
    /// A snapshot of this cycle was found: nothing was executed again.
    #[serde(default)]
    pub recovered: bool,
    /// The memory as it now is; None if HEAD could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// Tables with the most changes, at most [`REPORT_TABLES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableChange>,
    /// Spend.
    #[serde(default)]
    pub usage: Usage,
    /// What still waits.
    #[serde(default)]
    pub pending: Pending,
    /// Peers that this cycle delivered a message to which shall wake them, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakes: Vec<String>,
    /// Milliseconds of each phase, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTime>,
    /// Sandbox that the kernel gave: `landlock+seccomp`, `seccomp` or `rlimits`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// Schedules of the agent's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_schedules: Vec<AgentSchedule>,
    /// The agent holds its own schedules back until then, seconds since the Unix epoch; None if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_paused_until: Option<i64>,
    /// The charter in force from the next cycle on. None where the ledger was not read: then `agent_schedules`,
    /// `agent_paused_until` and `asks` say nothing either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charter: Option<CharterReport>,
    /// Proposals and requests that wait for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<Ask>,
    /// Warnings, short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// How a cycle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CycleResult {
    /// A `final` snapshot was published.
    Done,
    /// HEAD knew the request already: nothing was executed.
    AlreadyHandled,
    /// It failed; see the class.
    Failed,
}

/// What the agent says of its cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The work was done.
    Done,
    /// There was nothing to do.
    NothingToDo,
    /// It can't go on without help, or the success query returned no row.
    Blocked,
    /// It said nothing.
    #[default]
    Unstated,
}

/// The memory after the cycle. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// Current snapshot; None before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Snapshot at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Epoch in HEAD.
    pub epoch: u64,
    /// Memory file.
    pub size: u64,
    /// Memory archive.
    pub archive_size: u64,
    /// Durable tables; None where they were not counted (a cycle that failed or executed nothing).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<u32>,
    /// Published at, seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persisted_at: Option<i64>,
    /// The store has this agent's memory from an earlier object of the same name.
    #[serde(default)]
    pub adopted: bool,
    /// The current snapshot holds the work of its cycle. Those of failed cycles and checkpoints hold the
    /// memory as it was before.
    #[serde(default)]
    pub counted: bool,
    /// Agent and snapshot from which the memory was started, as `namespace/name snapshot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeded_from: Option<String>,
}

/// Row changes of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TableChange {
    /// Name, at most 63 bytes.
    pub name: String,
    /// Rows now; None if it was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Rows at the start; None if it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Rows inserted.
    #[serde(default)]
    pub inserted: u64,
    /// Rows updated.
    #[serde(default)]
    pub updated: u64,
    /// Rows deleted.
    #[serde(default)]
    pub deleted: u64,
}

impl TableChange {
    /// Number of changed rows, by which the report chooses its tables.
    pub fn weight(&self) -> u64 {
        self.inserted + self.updated + self.deleted
    }
}

/// Spend of a cycle, all attempts together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Model calls.
    #[serde(default)]
    pub model_calls: u32,
    /// Tool calls.
    #[serde(default)]
    pub tool_calls: u32,
    /// Input tokens, cached ones included.
    #[serde(default)]
    pub input_tokens: u64,
    /// Input tokens from the provider's cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// Output tokens.
    #[serde(default)]
    pub output_tokens: u64,
    /// Cost in the currency of `prices`.
    #[serde(default)]
    pub cost: f64,
    /// Outgoing messages.
    #[serde(default)]
    pub messages: u32,
}

/// What still waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// Objects in the inbox.
    #[serde(default)]
    pub inbox: u32,
    /// Messages in the outbox.
    #[serde(default)]
    pub outbox: u32,
    /// When to deliver again, seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_delivery: Option<i64>,
    /// Messages that this cycle gave up: they wait no longer and did not leave.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Time of one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// Name of the phase.
    pub phase: String,
    /// Milliseconds.
    pub ms: u64,
}

/// The charter in force. Hashes are lower-case hexadecimal SHA-256 of the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CharterReport {
    /// Who put it in force.
    pub source: CharterSource,
    /// Of the text in force.
    pub hash: String,
    /// Of the manifest's text: over another one, nothing but that one is in force.
    pub base: String,
}

/// Who put a charter in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CharterSource {
    /// It is the manifest's.
    Manifest,
    /// The agent, whose manifest lets it.
    Agent,
    /// A person approved what the agent proposed.
    Person,
}

/// A schedule of the agent's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSchedule {
    /// At most 16 bytes.
    pub key: String,
    /// Cron expression or RFC 3339 time.
    pub schedule: String,
    /// IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// Something that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// Its id.
    pub id: String,
    /// `charter`, `tool`, `human`.
    pub kind: String,
    /// Hash of its content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// Of a question its beginning, of a proposal its size; at most 80 bytes.
    pub summary: String,
}

impl CycleReport {
    /// An empty report with this result.
    pub fn new(result: CycleResult) -> Self {
        Self {
            version: REPORT_VERSION,
            result,
            class: None,
            outcome: Outcome::default(),
            message: String::new(),
            ended_by: None,
            attempt: 0,
            recovered: false,
            memory: None,
            tables: vec![],
            usage: Usage::default(),
            pending: Pending::default(),
            wakes: vec![],
            phases: vec![],
            sandbox: String::new(),
            agent_schedules: vec![],
            agent_paused_until: None,
            charter: None,
            asks: vec![],
            warnings: vec![],
        }
    }

    /// A report of a failure.
    pub fn failed(class: FailureClass, message: impl AsRef<str>) -> Self {
        let mut report = Self::new(CycleResult::Failed);
        report.class = Some(class);
        report.message = cut(&printable(message.as_ref()), 256);
        report
    }

    /// Exit code that goes with it.
    pub fn exit_code(&self) -> u8 {
        self.class.map_or(crate::class::EXIT_DONE, FailureClass::exit_code)
    }

    /// JSON of at most [`REPORT_MAX_BYTES`]. Texts are cut first; then, if names are long, the last parts
    /// of the lists go: warnings, phases, asks, tables; most of the message; agent schedules. What decides (result, class,
    /// snapshot, epoch, pending) always stays; the whole report is in the ledger.
    pub fn render(&self) -> String {
        let mut r = self.clone();
        r.message = cut(&printable(&r.message), 256);
        r.tables.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| a.name.cmp(&b.name)));
        r.tables.truncate(REPORT_TABLES);
        r.tables.iter_mut().for_each(|t| t.name = cut(&printable(&t.name), 63));
        r.asks.truncate(10);
        for ask in &mut r.asks {
            ask.id = cut(&printable(&ask.id), 40);
            ask.kind = cut(&printable(&ask.kind), 20);
            ask.hash = cut(&printable(&ask.hash), 16);
            ask.summary = cut(&printable(&ask.summary), 80);
        }
        r.warnings.truncate(5);
        r.warnings.iter_mut().for_each(|w| *w = cut(&printable(w), 120));
        r.agent_schedules.iter_mut().for_each(|s| {
            s.key = cut(&printable(&s.key), 16);
            s.schedule = cut(&printable(&s.schedule), 64);
        });
        loop {
            let json = serde_json::to_string(&r).unwrap_or_default();
            if json.len() <= REPORT_MAX_BYTES {
                return json;
            }
            let shrunk = r.warnings.pop().is_some()
                || r.phases.pop().is_some()
                || r.asks.pop().is_some()
                || r.tables.pop().is_some()
                || shorten(&mut r.message)
                || r.agent_schedules.pop().is_some();
            if !shrunk {
                // Only ids are left; they are ours and short. Reached by no input that a test could build.
                r.message.clear();
                return cut(&serde_json::to_string(&r).unwrap_or_default(), REPORT_MAX_BYTES);
            }
        }
    }

    /// Reads a termination message.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// To its first words; false if that is all it is.
fn shorten(message: &mut String) -> bool {
    let short = cut(message, 64);
    let is_shorter = short.len() < message.len();
    *message = short;
    is_shorter
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
