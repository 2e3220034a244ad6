//! The forms in which agents and cycles are kept: tens of thousands of them, of which few are looked at.

use std::sync::Arc;

use cicada_contract::text::sha256_hex;
use cicada_crds::{AgentCycle, PersistentAgent, cycle::Phase, status::CharterSource};
use cicada_operator_core::{deletion::is_kept, observed::CycleView};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

/// A cycle that ended this long ago is only of interest to the history limits.
const SETTLED: SignedDuration = SignedDuration::from_hours(1);

/// The number in a resourceVersion, by which events of one object are put in order.
pub fn version(meta: Option<&String>) -> u64 {
    meta.and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// An agent, as JSON: a third of the memory of the decoded object, and decoded in microseconds.
#[derive(Debug)]
pub struct StoredAgent {
    /// Its UID.
    pub uid: Box<str>,
    /// Its resourceVersion.
    pub version: u64,
    /// A cycle is at work.
    pub active: bool,
    /// Our finalizer is on it.
    pub kept: bool,
    /// SHA-256 of its charter, where another one is in force.
    pub charter_sha256: Option<Box<str>>,
    /// How its cycles sign in to the store.
    pub credential: Credential,
    json: Box<[u8]>,
}

impl StoredAgent {
    /// Leaves out what no decision reads.
    pub fn new(mut agent: PersistentAgent) -> Self {
        let charter_sha256 = charter_sha256(&agent);
        slim(&mut agent);
        Self {
            uid: agent.uid().unwrap_or_default().into(),
            version: version(agent.metadata.resource_version.as_ref()),
            active: agent.status.as_ref().is_some_and(|s| s.active_cycle.is_some()),
            kept: is_kept(&agent),
            charter_sha256,
            credential: Credential::of(&agent),
            json: serde_json::to_vec(&agent).unwrap_or_default().into(),
        }
    }

    /// The agent without its long texts.
    pub fn agent(&self) -> Option<Arc<PersistentAgent>> {
        serde_json::from_slice(&self.json).ok().map(Arc::new)
    }
}

fn charter_sha256(agent: &PersistentAgent) -> Option<Box<str>> {
    let in_force = agent.status.as_ref()?.charter.as_ref()?;
    let charter = agent.spec.charter.as_deref().unwrap_or_default();
    (in_force.source != CharterSource::Manifest).then(|| sha256_hex(charter).into())
}

/// How cycles sign in to the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// As the operator's default store says.
    Default,
    /// With this Secret.
    Secret(Box<str>),
    /// Without a Secret.
    Other,
}

impl Credential {
    fn of(agent: &PersistentAgent) -> Self {
        let Some(store) = &agent.spec.store else { return Self::Default };
        let credentials = store.s3.as_ref().and_then(|s3| s3.credentials.as_ref());
        let secret = credentials.and_then(|c| c.secret_name.as_deref());
        secret.map_or(Self::Other, |name| Self::Secret(name.into()))
    }
}

/// Leaves out texts: they are read afresh when a Job is made.
fn slim(agent: &mut PersistentAgent) {
    agent.metadata.managed_fields = None;
    agent.spec.charter = None;
    agent.spec.success = None;
    agent.spec.contacts = vec![];
    if let Some(sql) = agent.spec.executor.sql.as_mut().and_then(|s| s.inline.as_mut()) {
        *sql = String::new();
    }
    for skill in &mut agent.spec.skills {
        (skill.instructions, skill.description) = (None, None);
    }
    for schedule in &mut agent.spec.schedules {
        schedule.instruction = None;
    }
    if let Some(annotations) = agent.metadata.annotations.as_mut() {
        annotations.retain(|k, _| k.starts_with("cicada.dev/"));
    }
}

/// A cycle.
#[derive(Debug)]
pub struct StoredCycle {
    /// Name of its agent.
    pub agent: Arc<str>,
    /// UID of its controller.
    owner: Option<Box<str>>,
    /// Its resourceVersion.
    pub version: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Whole(Box<CycleView>),
    Settled(Settled),
}

#[derive(Debug)]
struct Settled {
    uid: Box<str>,
    created: Timestamp,
    finished: Timestamp,
    succeeded: bool,
    deleting: bool,
    ttl: Option<u32>,
}

impl StoredCycle {
    /// From the object.
    pub fn new(cycle: &AgentCycle, agent: Arc<str>, now: Timestamp) -> Self {
        let owners = cycle.owner_references();
        let owner = owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str().into());
        let version = version(cycle.metadata.resource_version.as_ref());
        let mut this = Self { agent, owner, version, form: Form::Whole(Box::new(CycleView::new(cycle, ""))) };
        this.settle(now);
        this
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        match &self.form {
            Form::Whole(view) => &view.uid,
            Form::Settled(settled) => &settled.uid,
        }
    }

    /// What decisions need; it is the agent's own if its owner has the agent's UID.
    pub fn view(&self, name: &str, agent_uid: &str) -> CycleView {
        let own = self.owner.as_deref() == Some(agent_uid);
        match &self.form {
            Form::Whole(view) => CycleView { own, ..(**view).clone() },
            Form::Settled(s) => CycleView {
                name: name.to_owned(),
                uid: s.uid.to_string(),
                created: s.created,
                own,
                triggers: vec![],
                restore: None,
                bytes: 0,
                ttl: s.ttl.map(u64::from),
                deleting: s.deleting,
                phase: Some(if s.succeeded { Phase::Succeeded } else { Phase::Failed }),
                reason: None,
                started: None,
                finished: Some(s.finished),
                job: None,
                joined: vec![],
            },
        }
    }

    /// Keeps of a cycle that ended a while ago only what the history limits need.
    pub fn settle(&mut self, now: Timestamp) {
        let Form::Whole(view) = &self.form else { return };
        let Some(finished) = view.finished.filter(|at| view.is_terminal() && *at + SETTLED <= now) else {
            return;
        };
        self.form = Form::Settled(Settled {
            uid: view.uid.as_str().into(),
            created: view.created,
            finished,
            succeeded: view.phase == Some(Phase::Succeeded),
            deleting: view.deleting,
            ttl: view.ttl.and_then(|t| u32::try_from(t).ok()),
        });
    }
}
