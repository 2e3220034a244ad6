//! The forms in which agents and cycles are kept: tens of thousands of them, of which few are looked at.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use cicada_contract::text::sha256_hex;
use cicada_crds::{AgentCycle, PersistentAgent, cycle::Phase, status::CharterSource};
use cicada_operator_core::{
    deletion::is_kept,
    observed::{CycleView, version},
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

/// A cycle that ended this long ago is only of interest to the history limits.
const SETTLED: SignedDuration = SignedDuration::from_hours(1);

/// An agent, as packed JSON: a tenth of the memory of the decoded object, and decoded in microseconds.
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
    packed: Packed,
}

/// Text that is packed by what most agents have in common.
#[derive(Debug)]
struct Packed {
    bytes: Box<[u8]>,
    /// Length of the text; 0 where it is not packed.
    length: usize,
}

/// A plain agent. It decides how small others become, never whether they can be read.
const SAMPLE: &[u8] = include_bytes!("sample-agent.json");

type Packer = (zstd::bulk::Compressor<'static>, zstd::bulk::Decompressor<'static>);

/// One for all, since each has tables of its own.
fn packer() -> MutexGuard<'static, Option<Packer>> {
    static PACKER: LazyLock<Mutex<Option<Packer>>> = LazyLock::new(|| {
        let level = zstd::DEFAULT_COMPRESSION_LEVEL;
        let compressor = zstd::bulk::Compressor::with_dictionary(level, SAMPLE).ok();
        Mutex::new(compressor.zip(zstd::bulk::Decompressor::with_dictionary(SAMPLE).ok()))
    });
    PACKER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Packed {
    fn new(text: &[u8]) -> Self {
        let packed = packer().as_mut().and_then(|(compressor, _)| compressor.compress(text).ok());
        match packed.filter(|_| !text.is_empty()) {
            Some(bytes) => Self { bytes: bytes.into(), length: text.len() },
            None => Self { bytes: text.into(), length: 0 },
        }
    }

    fn text(&self) -> Option<Cow<'_, [u8]>> {
        if self.length == 0 {
            return Some(Cow::Borrowed(&self.bytes));
        }
        packer().as_mut()?.1.decompress(&self.bytes, self.length).ok().map(Cow::Owned)
    }
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
            packed: Packed::new(&serde_json::to_vec(&agent).unwrap_or_default()),
        }
    }

    /// The agent without its long texts.
    pub fn agent(&self) -> Option<Arc<PersistentAgent>> {
        serde_json::from_slice(&self.packed.text()?).ok().map(Arc::new)
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

/// A UID, without the memory of its text where it is the usual one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Uid {
    /// A UUID.
    Number([u8; 16]),
    /// Anything else.
    Text(Box<str>),
}

impl Uid {
    /// From its text.
    pub fn new(text: &str) -> Self {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let number = u128::from_str_radix(&digits, 16).map(|n| Self::Number(n.to_be_bytes())).ok();
        number.filter(|n| n.to_string() == text).unwrap_or_else(|| Self::Text(text.into()))
    }
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(bytes) => {
                let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
                write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            }
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A cycle.
#[derive(Debug)]
pub struct StoredCycle {
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Uid,
    /// UID of its controller.
    owner: Option<Uid>,
    /// Its resourceVersion.
    pub version: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Whole(Box<CycleView>),
    Settled(Settled),
}

/// Times in seconds since the Unix epoch.
#[derive(Debug)]
struct Settled {
    created: i64,
    finished: i64,
    succeeded: bool,
    deleting: bool,
    ttl: Option<u32>,
}

impl StoredCycle {
    /// From the object.
    pub fn new(cycle: &AgentCycle, now: Timestamp) -> Self {
        let owners = cycle.owner_references();
        let view = CycleView::new(cycle, "");
        let mut this = Self {
            name: view.name.as_str().into(),
            uid: Uid::new(&view.uid),
            owner: owners.iter().find(|o| o.controller == Some(true)).map(|o| Uid::new(&o.uid)),
            version: view.version,
            form: Form::Whole(Box::new(view)),
        };
        this.settle(now);
        this
    }

    /// All that is known, of one that has not ended a while ago.
    pub fn whole(&self) -> Option<&CycleView> {
        match &self.form {
            Form::Whole(view) => Some(view),
            Form::Settled(_) => None,
        }
    }

    /// What decisions need; it is the agent's own if its owner has the agent's UID.
    pub fn view(&self, agent_uid: &Uid) -> CycleView {
        let own = self.owner.as_ref() == Some(agent_uid);
        let time = |seconds| Timestamp::from_second(seconds).unwrap_or_default();
        match &self.form {
            Form::Whole(view) => CycleView { own, ..(**view).clone() },
            Form::Settled(s) => CycleView {
                name: self.name.to_string(),
                uid: self.uid.to_string(),
                version: self.version,
                created: time(s.created),
                own,
                triggers: vec![],
                restore: None,
                bytes: 0,
                ttl: s.ttl.map(u64::from),
                deleting: s.deleting,
                phase: Some(if s.succeeded { Phase::Succeeded } else { Phase::Failed }),
                reason: None,
                started: None,
                finished: Some(time(s.finished)),
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
            created: view.created.as_second(),
            finished: finished.as_second(),
            succeeded: view.phase == Some(Phase::Succeeded),
            deleting: view.deleting,
            ttl: view.ttl.and_then(|t| u32::try_from(t).ok()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_kept_small_and_whole() {
        let mut agent: PersistentAgent = serde_json::from_slice(SAMPLE).unwrap();
        agent.metadata.name = Some("another".into());
        agent.spec.charter = Some("x".repeat(5000));
        let stored = StoredAgent::new(agent.clone());
        assert!(stored.packed.bytes.len() < 400, "{} bytes", stored.packed.bytes.len());
        slim(&mut agent);
        assert_eq!(*stored.agent().unwrap(), agent);
        for text in [&b""[..], b"{}"] {
            assert_eq!(&*Packed::new(text).text().unwrap(), text);
        }
    }

    #[test]
    fn a_uid_stays_what_it_is() {
        let small = "0d5f9a3c-0000-4b1e-9c55-0123456789ab";
        assert!(matches!(Uid::new(small), Uid::Number(_)));
        let others =
            ["", "u", "0D5F9A3C-0000-4B1E-9C55-0123456789AB", "0d5f-9a3c00004b1e9c550123456789ab", "+1"];
        for text in others.into_iter().chain([small]) {
            assert_eq!(Uid::new(text).to_string(), text);
        }
    }
}
