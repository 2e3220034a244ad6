//! What a decision consists of: things to do, the status to write, and what people and metrics hear of it.

use cicada_crds::{AgentCycleSpec, AgentCycleStatus, PersistentAgentStatus, cycle::CycleRef};
use jiff::Timestamp;

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Done first, in order.
    pub actions: Vec<Action>,
    /// Then written, if it differs from what is there; with the resourceVersion that was observed.
    pub status: PersistentAgentStatus,
    /// For people, after all of the above worked.
    pub notes: Vec<Note>,
    /// For metrics: the cycle whose end this takes up.
    pub ended: Option<Ended>,
    /// The status may be left to the next step, which says the same and more: saves a write.
    pub defer_status: bool,
    /// Observe and decide again at once.
    pub again: bool,
    /// Else look again then; None = not before something changes.
    pub look_again: Option<Timestamp>,
}

/// One thing to do. All of them can be repeated.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create an AgentCycle that the agent owns; one of this name that it owns already is as good.
    CreateCycle {
        /// Its name.
        name: String,
        /// Its spec.
        spec: Box<AgentCycleSpec>,
    },
    /// Create an AgentCycle of another agent, which that one owns, for messages that wait in its inbox; one of
    /// this name is as good, and so is an agent that is gone.
    WakePeer {
        /// Name of that agent.
        peer: String,
        /// Its UID.
        uid: String,
        /// Name of the cycle.
        name: String,
        /// Its spec.
        spec: Box<AgentCycleSpec>,
    },
    /// Create the ConfigMap and the Job of the cycle.
    StartJob {
        /// The lead.
        lead: CycleRef,
        /// Those that it takes along.
        joined: Vec<CycleRef>,
    },
    /// Put our finalizer on the agent, or take it off.
    SetFinalizer {
        /// Put it on.
        present: bool,
    },
    /// Create the Job that deletes the agent's memory.
    StartDeleteJob,
    /// Let the agent go without its memory, and tell people.
    Abandon {
        /// Where the memory lies, and how to remove it.
        memory: String,
        /// Why it was not deleted.
        why: String,
    },
    /// Create the Job that reads the store for a cycle whose report was lost.
    StartReportJob {
        /// The cycle.
        cycle: CycleRef,
    },
    /// Create the Job that looks into the store for the agent, without a cycle.
    StartLook,
    /// Write a cycle's status.
    SetCycle {
        /// The cycle.
        cycle: CycleRef,
        /// Its whole status.
        status: Box<AgentCycleStatus>,
    },
    /// Delete a cycle, with the UID as precondition.
    DeleteCycle {
        /// The cycle.
        cycle: CycleRef,
    },
    /// Delete a Job in the background, with the UID as precondition.
    DeleteJob {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

impl Action {
    /// Name of the cycle that it makes for the agent itself.
    pub fn creates(&self) -> Option<String> {
        match self {
            Self::CreateCycle { name, .. } => Some(name.clone()),
            _ => None,
        }
    }
}

/// Something that people should hear of: an event on the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Warning or Normal.
    pub warning: bool,
    /// CamelCase; CronJob's words where they fit.
    pub reason: &'static str,
    /// One line.
    pub text: String,
    /// The cycle that it is about.
    pub cycle: Option<CycleRef>,
    /// How many of what it tells there were, for metrics.
    pub count: u64,
    /// Heading of the runbook that says what to do.
    pub heading: Option<String>,
}

/// A cycle that has ended, in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Reason with which it ended.
    pub result: String,
    /// What the agent said of it: done, nothing_to_do, blocked, unstated; empty where it said nothing.
    pub outcome: String,
    /// From its start to its end.
    pub seconds: u64,
    /// What it cost, in the currency of the prices.
    pub cost: f64,
    /// Each phase with its milliseconds.
    pub phases: Vec<(String, u64)>,
}
