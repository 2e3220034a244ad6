//! What a decision is made from: plain data that the edges have gathered.

use cicada_contract::CycleReport;
use cicada_crds::{
    AgentCycle, PersistentAgent,
    cycle::{CycleRef, CycleTrigger, Phase, TriggerKind},
};
use jiff::Timestamp;

use crate::{peers::PeerView, plan::is_owned_by, result::JobEnd, spec::OperatorDefaults};

/// Everything about one agent at one time.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// The agent. Long texts (charter, SQL) may be left out: no decision reads them.
    pub agent: &'a PersistentAgent,
    /// All cycles that refer to it, in any order.
    pub cycles: &'a [CycleView],
    /// The Job of `status.activeCycle`, if there is one.
    pub job: Option<&'a JobView>,
    /// The Job of `status.activeCycle` was there and somebody deleted it.
    pub job_vanished: bool,
    /// The Job that deletes the agent's memory.
    pub delete_job: Option<&'a JobView>,
    /// Why the API server refuses that Job.
    pub delete_refused: Option<String>,
    /// The Job that looks into the store for the agent, without a cycle.
    pub look: Option<&'a LookView>,
    /// Circumstances outside of the agent.
    pub environment: &'a Environment,
    /// The operator's part of each plan.
    pub defaults: &'a OperatorDefaults,
}

impl<'a> Observed<'a> {
    /// An agent with its cycles and without any Job.
    pub fn new(
        agent: &'a PersistentAgent,
        cycles: &'a [CycleView],
        environment: &'a Environment,
        defaults: &'a OperatorDefaults,
    ) -> Self {
        Self {
            agent,
            cycles,
            job: None,
            job_vanished: false,
            delete_job: None,
            delete_refused: None,
            look: None,
            environment,
            defaults,
        }
    }
}

/// Circumstances outside of the agent.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Why nothing may start: the namespace or the operator is on hold.
    pub hold: Option<String>,
    /// As many cycles run as may run.
    pub full: bool,
    /// The store is read by Jobs; `cicadactl local` reads it itself.
    pub looks: bool,
    /// Name of this instance of the operator, for status.
    pub instance: Option<String>,
    /// Another agent signs in to its store with the same Secret.
    pub shares_credentials: bool,
    /// The agent's namespace is being deleted.
    pub namespace_ends: bool,
    /// Lower-case hexadecimal SHA-256 of the manifest's charter, which the agent itself may be here without; needed
    /// only where status has another one in force.
    pub charter_sha256: Option<String>,
    /// Agents of `spec.peers` that are there.
    pub peers: Vec<PeerView>,
}

/// The number in a resourceVersion, by which events of one object are put in order.
pub fn version(meta: Option<&String>) -> u64 {
    meta.and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// What decisions need of an AgentCycle; small, because tens of thousands are kept in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct CycleView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Number in its resourceVersion, which a write of its status names; 0 = not known.
    pub version: u64,
    /// When it was made.
    pub created: Timestamp,
    /// The operator made it for this very agent.
    pub own: bool,
    /// Why it runs; one Request where the spec says nothing.
    pub triggers: Vec<CycleTrigger>,
    /// Snapshot to restore.
    pub restore: Option<String>,
    /// Bytes of message and instruction.
    pub bytes: usize,
    /// Seconds after its end when it is deleted.
    pub ttl: Option<u64>,
    /// It is being deleted.
    pub deleting: bool,
    /// Where it stands; None = no status yet.
    pub phase: Option<Phase>,
    /// Its reason.
    pub reason: Option<String>,
    /// When its Job was made.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// Name of its Job.
    pub job: Option<String>,
    /// Cycles that it takes along.
    pub joined: Vec<CycleRef>,
}

impl CycleView {
    /// From the object. `agent_uid` tells the operator's own cycles from people's.
    pub fn new(cycle: &AgentCycle, agent_uid: &str) -> Self {
        let status = cycle.status.clone().unwrap_or_default();
        let spec = &cycle.spec;
        let message = spec.message.as_ref().map_or(0, crate::plan::message_bytes);
        Self {
            name: cycle.metadata.name.clone().unwrap_or_default(),
            uid: cycle.metadata.uid.clone().unwrap_or_default(),
            version: version(cycle.metadata.resource_version.as_ref()),
            created: cycle.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            own: is_owned_by(cycle, agent_uid),
            triggers: if spec.triggers.is_empty() {
                vec![CycleTrigger::default()]
            } else {
                spec.triggers.clone()
            },
            restore: spec.restore.as_ref().map(|r| r.snapshot.clone()),
            bytes: message + spec.instruction.as_ref().map_or(0, String::len),
            ttl: spec.ttl_seconds_after_finished,
            deleting: cycle.metadata.deletion_timestamp.is_some(),
            phase: status.phase,
            reason: status.reason,
            started: status.started,
            finished: status.finished,
            job: status.job,
            joined: status.joined,
        }
    }

    /// It ended: it never runs again.
    pub fn is_terminal(&self) -> bool {
        self.phase.is_some_and(Phase::is_terminal)
    }

    /// A reference to it.
    pub fn reference(&self) -> CycleRef {
        CycleRef { name: self.name.clone(), uid: self.uid.clone() }
    }

    /// A person asked for it (or a program in a person's name): it runs although the agent is Paused.
    pub fn is_request(&self) -> bool {
        let asked = |t: &CycleTrigger| matches!(t.kind, TriggerKind::Request | TriggerKind::HumanReply);
        self.restore.is_some() || self.triggers.iter().any(asked)
    }

    /// It only delivers what is pending.
    pub fn is_delivery(&self) -> bool {
        self.own && self.triggers.iter().all(|t| t.kind == TriggerKind::Delivery)
    }
}

/// What decisions need of a Job and its newest pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was made.
    pub created: Timestamp,
    /// When its pod could first start: when it was made, or when a queue (Kueue) let it go.
    pub released: Timestamp,
    /// Something (Kueue) keeps it from starting.
    pub suspended: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// One of its pods has run.
    pub started: bool,
    /// Since when it has been about to end, or one of its pods has been terminating.
    pub ending_since: Option<Timestamp>,
    /// Why its pod does not start, once somebody looked.
    pub waiting: Option<Waiting>,
    /// Cycles that its plan takes along beside the lead, as it says itself; None = a Job of an earlier release.
    pub joined: Option<Vec<CycleRef>>,
    /// How it ended.
    pub end: Option<JobEnd>,
    /// The report Job that was started for it.
    pub report_job: Option<ReportJob>,
}

/// A Job that looks into the store for an agent, without a cycle.
#[derive(Debug, Clone, PartialEq)]
pub struct LookView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// It is being deleted.
    pub deleting: bool,
    /// What it found.
    pub found: ReportJob,
}

/// Why a pod does not start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// QuotaExceeded, Unschedulable, ImagePullBackOff, PodRejected, ContainerConfig, ...
    pub reason: String,
    /// One line.
    pub message: String,
}

/// A Job that reads the store for a cycle whose report was lost.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportJob {
    /// It runs.
    Running,
    /// It ended, with what it found.
    Ended(Box<Option<CycleReport>>),
}
