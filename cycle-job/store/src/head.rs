//! HEAD: the one small object of a memory that is ever replaced. It names the current snapshot.
//!
//! ## Why
//! No two HEADs have equal bytes: each carries the random id of the process that wrote it and a counter.
//! So a writer can tell its own write from another's after an answer was lost, and a store's ETag, which
//! depends on the bytes, never names two states. Fields of a later release are kept when this one
//! writes, so that an upgrade can be taken back without a loss.

mod snapshot;

use std::collections::BTreeMap;

use cicada_contract::{
    FailureClass,
    plan::{CycleIdentity, Owner},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use self::snapshot::snapshot_id;
pub use self::snapshot::{ArchiveRef, Snapshot, SnapshotKind, order};

/// Version of a HEAD whose archives are all whole files.
pub const HEAD_VERSION: u32 = 1;
/// Version of a HEAD that names deltas. A release that knows none would take a delta's base for the memory,
/// so it must refuse the whole HEAD. One without deltas is written as version 1 again.
pub const HEAD_VERSION_DELTAS: u32 = 2;
/// Handled requests that are remembered; the oldest go first.
pub const HANDLED_MAX: usize = 1_000;

/// Ended cycles that are remembered: more than may have a pod that still runs.
pub const ENDED_MAX: usize = 100;

/// Epochs without a result that are remembered: more than there are failures in a row before an agent pauses.
pub const ABANDONED_MAX: usize = 100;

/// Fields that this release does not know.
type Unknown = BTreeMap<String, serde_json::Value>;

/// The state of one memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// [`HEAD_VERSION`] or [`HEAD_VERSION_DELTAS`], whichever the content needs; set when it is rendered.
    pub version: u32,
    /// Whose memory it is.
    pub owner: HeadOwner,
    /// Raised by each acquire: the fence against older writers. The first is 1.
    pub epoch: u64,
    /// Who raised it to this number.
    pub acquired_by: Attempt,
    /// Who works on it now; None when a cycle has ended in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// 128 random bits of the process that wrote this, hexadecimal.
    pub writer: String,
    /// Which write of that process this is.
    pub write: u64,
    /// When it was written, by the writer's clock. For people only.
    pub written_at: Timestamp,
    /// Id of the current snapshot, one of `snapshots`; None before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Snapshots that can be restored, oldest first.
    #[serde(default)]
    pub snapshots: Vec<Snapshot>,
    /// Archives that deltas of listed snapshots build on and that no listed snapshot names itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bases: Vec<ArchiveRef>,
    /// The next memory archive must be a whole one: the memory was restored, copied or fell back since the
    /// last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole_next: bool,
    /// Snapshots that left the list; their objects stay an hour longer for those who are reading them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
    /// Keys of handled requests, oldest first, at most [`HANDLED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handled: Vec<String>,
    /// UIDs of cycles that have a `final` snapshot, listed or not, oldest first, at most [`ENDED_MAX`]: a late
    /// attempt of one of them executes nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
    /// Earlier epochs in which no result was published, oldest first, at most [`ABANDONED_MAX`]: what their
    /// cycles put beside the snapshots is named by nobody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abandoned: Vec<u64>,
    /// How long the newest persist of a changed memory took, from the end of the work to the write of HEAD, in
    /// milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persist_ms: Option<u64>,
    /// Restore request that was carried out last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_restore: Option<AppliedRestore>,
    /// The memory of another agent that this one was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeded_from: Option<SeededFrom>,
    /// Snapshots published in all, of every kind.
    #[serde(default)]
    pub published: u64,
    /// Value of `published` when the memory was last checked as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<u64>,
    /// The memory was purged at this time; the rest is a tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// Ids of erasures that are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub erasures: Vec<String>,
    /// Newest entry of the audit chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_head: Option<String>,
    /// Fields of a later release.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Whose memory it is. The names count; the UIDs only tell that an object was made again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadOwner {
    /// Name of the cluster.
    pub cluster: String,
    /// Namespace of the agent.
    pub namespace: String,
    /// Name of the agent.
    pub name: String,
    /// UID of the PersistentAgent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// UID of the namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace_uid: String,
}

impl HeadOwner {
    /// The owner of a plan.
    pub fn new(owner: &Owner, namespace_uid: Option<&str>) -> Self {
        Self {
            cluster: owner.cluster.clone(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            namespace_uid: namespace_uid.unwrap_or_default().to_owned(),
        }
    }

    /// `cluster/namespace/name`, as `takeOverFrom` writes it.
    pub fn path(&self) -> String {
        format!("{}/{}/{}", self.cluster, self.namespace, self.name)
    }
}

/// One attempt of one cycle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The cycle.
    pub cycle: CycleIdentity,
    /// 1 for its first pod.
    pub attempt: u32,
}

/// Who works on a memory now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The cycle.
    pub cycle: CycleIdentity,
    /// 1 for its first pod.
    pub attempt: u32,
    /// When it must have ended. People's commands wait for it; cycles never do.
    pub deadline: Timestamp,
}

/// A snapshot that left the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dropped {
    /// Its id.
    pub id: String,
    /// When it left.
    pub at: Timestamp,
    /// Keys of archives that no listed snapshot needs since then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// A restore that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedRestore {
    /// Token of the request.
    pub token: String,
    /// Snapshot that was asked for.
    pub snapshot: String,
    /// When.
    pub at: Timestamp,
}

/// The memory that another one was started from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeededFrom {
    /// Namespace of its agent.
    pub namespace: String,
    /// Name of its agent.
    pub name: String,
    /// Snapshot that was taken.
    pub snapshot: String,
    /// When, by the writer's clock.
    pub at: Timestamp,
}

/// Why HEAD's bytes can't be used. Nothing is ever written over such a HEAD.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// Written by a release that this one does not know.
    #[error(
        "HEAD has version {found}, this release knows {HEAD_VERSION} to {HEAD_VERSION_DELTAS}: use the release that wrote it"
    )]
    Version {
        /// The version found.
        found: u64,
    },
    /// Not JSON, or not of this shape.
    #[error(
        "HEAD.json is damaged ({size} bytes that are no HEAD): put it back from the bucket's versions or a backup; \
         the snapshots beside it are untouched"
    )]
    Damaged {
        /// Its bytes.
        size: usize,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// It contradicts itself: edited by hand, or put together from two.
    #[error(
        "HEAD.json is damaged ({what}): put it back from the bucket's versions or a backup; the snapshots beside it \
         are untouched"
    )]
    Inconsistent {
        /// The contradiction.
        what: String,
    },
}

impl HeadError {
    /// What a cycle reports that can't go on because of it.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Version { .. } => FailureClass::UnknownVersion,
            Self::Damaged { .. } | Self::Inconsistent { .. } => FailureClass::HeadCorrupt,
        }
    }

    /// HEAD does not mend itself.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

impl Head {
    /// Reads HEAD's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeadError> {
        let damaged = |source| HeadError::Damaged { size: bytes.len(), source };
        let Version { version: found } = serde_json::from_slice(bytes).map_err(damaged)?;
        if !(u64::from(HEAD_VERSION)..=u64::from(HEAD_VERSION_DELTAS)).contains(&found) {
            return Err(HeadError::Version { found });
        }
        let mut head: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        head.link();
        Ok(head)
    }

    /// The bytes to write.
    pub fn render(&self) -> Vec<u8> {
        let has_deltas = self.archives().any(|archive| archive.parent.is_some());
        let version = if has_deltas { HEAD_VERSION_DELTAS } else { HEAD_VERSION };
        // Maps with text keys and plain values: there is nothing in it that serde_json could refuse.
        serde_json::to_vec_pretty(&Self { version, ..self.clone() }).unwrap_or_default()
    }

    /// The current snapshot; None before the first.
    pub fn current(&self) -> Option<&Snapshot> {
        self.current.as_deref().and_then(|id| self.snapshot(id))
    }

    /// Says that the current snapshot is not the newest that is listed. Whoever publishes makes its snapshot current,
    /// a restore too: this HEAD was edited by hand, a cycle would begin with nothing or with an older state, and
    /// what lies there could be collected.
    pub fn check_current(&self) -> Result<(), HeadError> {
        let newest = self.snapshots.last().map(|snapshot| snapshot.id.as_str());
        let what = match (&self.current, newest) {
            (current, newest) if current.as_deref() == newest => return Ok(()),
            (Some(id), _) if self.snapshot(id).is_none() => {
                format!("its current snapshot {id} is not in its list")
            }
            (Some(id), _) => format!("it lists snapshots that are newer than its current one, {id}"),
            (None, _) => "it lists snapshots and calls none of them current".to_owned(),
        };
        Err(HeadError::Inconsistent { what })
    }

    /// A listed snapshot.
    pub fn snapshot(&self, id: &str) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// The newest listed snapshot that a cycle wrote.
    pub fn newest_of(&self, cycle: &CycleIdentity) -> Option<&Snapshot> {
        self.snapshots.iter().rev().find(|snapshot| snapshot.cycle.uid == cycle.uid)
    }

    /// The newest snapshot of an epoch above this HEAD's own, among those that it lists and those `found` in the
    /// store. An epoch is raised in HEAD before anything is uploaded under it, so there is one only where an
    /// older HEAD was put back. HEAD must have been read after `found` was listed.
    pub fn newer<'a>(&'a self, found: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let listed = self.snapshots.iter().map(|snapshot| snapshot.id.as_str());
        let above = |id: &&str| order(id).is_some_and(|(epoch, _)| epoch > self.epoch);
        listed.chain(found).filter(above).max_by_key(|id| order(id))
    }

    /// True if what a cycle of this epoch put beside the snapshots is named by nobody. Of a memory that began as
    /// another agent's nothing is: the keys that it took over have that agent's epochs.
    pub fn is_abandoned(&self, epoch: u64) -> bool {
        self.seeded_from.is_none() && self.abandoned.contains(&epoch)
    }

    /// Remembers, before the epoch is raised, whether a result was published in it. From the raise on it can't be.
    pub(crate) fn close_epoch(&mut self) {
        let is_result = |snapshot: &Snapshot| {
            snapshot.kind.is_counted() && order(&snapshot.id).is_some_and(|(epoch, _)| epoch == self.epoch)
        };
        if !self.snapshots.iter().any(is_result) {
            self.abandoned.push(self.epoch);
            let surplus = self.abandoned.len().saturating_sub(ABANDONED_MAX);
            self.abandoned.drain(..surplus);
        }
    }

    /// True if the memory was purged.
    pub fn is_tombstone(&self) -> bool {
        self.deleted_at.is_some()
    }

    /// Snapshots since the memory was last checked as a whole; None if it never was.
    pub fn snapshots_since_check(&self) -> Option<u64> {
        self.checked_at.map(|at| self.published.saturating_sub(at))
    }

    /// Remembers that a cycle has its `final` snapshot.
    pub(crate) fn add_ended(&mut self, cycle: &CycleIdentity) {
        self.ended.retain(|known| *known != cycle.uid);
        self.ended.push(cycle.uid.clone());
        let surplus = self.ended.len().saturating_sub(ENDED_MAX);
        self.ended.drain(..surplus);
    }

    /// True if the cycle has a `final` snapshot.
    pub fn has_ended(&self, cycle: &CycleIdentity) -> bool {
        self.ended.contains(&cycle.uid)
    }

    /// Remembers handled requests; a repeated key moves to the end.
    pub(crate) fn add_handled(&mut self, keys: &[String]) {
        self.handled.retain(|known| !keys.contains(known));
        self.handled.extend(keys.iter().cloned());
        let surplus = self.handled.len().saturating_sub(HANDLED_MAX);
        self.handled.drain(..surplus);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_796_000_000 + second).unwrap()
    }

    pub(crate) fn cycle(uid: &str) -> CycleIdentity {
        CycleIdentity { name: format!("clerk-{uid}"), uid: uid.into() }
    }

    pub(crate) fn archive(key: &str) -> ArchiveRef {
        ArchiveRef {
            key: key.into(),
            file_sha256: "a".repeat(64),
            archive_sha256: "b".repeat(64),
            file_size: 8192,
            archive_size: 512,
            parent: None,
            base: None,
            made_at: None,
            unknown: Unknown::new(),
        }
    }

    pub(crate) fn snapshot(id: &str, kind: SnapshotKind, uid: &str) -> Snapshot {
        Snapshot {
            id: id.into(),
            kind,
            cycle: cycle(uid),
            attempt: 1,
            created_at: at(0),
            memory: Some(archive(&format!("snapshots/{id}/memory.db.zst"))),
            ledger: Some(archive(&format!("snapshots/{id}/ledger.db.zst"))),
            pinned: None,
            restored_from: None,
            unknown: Unknown::new(),
        }
    }

    pub(crate) fn head(epoch: u64, snapshots: Vec<Snapshot>) -> Head {
        Head {
            version: HEAD_VERSION,
            owner: HeadOwner {
                cluster: "prod".into(),
                namespace: "shop".into(),
                name: "clerk".into(),
                uid: "agent-1".into(),
                namespace_uid: "ns-1".into(),
            },
            epoch,
            acquired_by: Attempt { cycle: cycle("earlier"), attempt: 1 },
            holder: None,
            writer: "00".repeat(16),
            write: 2,
            written_at: at(0),
            current: snapshots.last().map(|snapshot| snapshot.id.clone()),
            snapshots,
            bases: vec![],
            whole_next: false,
            dropped: vec![],
            handled: vec![],
            ended: vec![],
            abandoned: vec![],
            persist_ms: None,
            applied_restore: None,
            seeded_from: None,
            published: 0,
            checked_at: None,
            deleted_at: None,
            erasures: vec![],
            audit_head: None,
            unknown: Unknown::new(),
        }
    }

    #[test]
    fn an_unknown_version_is_refused_whatever_else_it_says() {
        for text in [r#"{"version":3}"#, r#"{"version":0,"epoch":"x"}"#, r#"{"version":4294967297}"#] {
            assert!(matches!(Head::parse(text.as_bytes()), Err(HeadError::Version { .. })), "{text}");
        }
        for text in ["", "{}", "null", r#"{"version":1}"#, r#"{"version":"1"}"#] {
            let error = Head::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.class(), FailureClass::HeadCorrupt, "{text}: {error}");
            assert!(error.to_string().contains("put it back"), "{error}");
        }
    }

    #[test]
    fn fields_of_a_later_release_survive_a_rewrite() {
        let mut value =
            serde_json::to_value(head(3, vec![snapshot("3-1-aa", SnapshotKind::Final, "c")])).unwrap();
        value["inventedLater"] = serde_json::json!({"a": [1]});
        value["snapshots"][0]["fingerprint"] = "f".into();
        value["snapshots"][0]["memory"]["base"] = "1-1-a".into();
        let read = Head::parse(value.to_string().as_bytes()).unwrap();
        let back: serde_json::Value = serde_json::from_slice(&read.render()).unwrap();
        assert_eq!(back, value);
    }

    #[test]
    fn only_the_last_thousand_requests_are_remembered() {
        let mut head = head(1, vec![]);
        for n in 0..HANDLED_MAX + 5 {
            head.add_handled(&[format!("run/{n}")]);
        }
        head.add_handled(&["run/7".into()]);
        assert_eq!(head.handled.len(), HANDLED_MAX);
        assert_eq!(head.handled.first().unwrap(), "run/5");
        assert_eq!(head.handled.last().unwrap(), "run/7");
    }

    #[test]
    fn ended_cycles_are_remembered_beyond_their_snapshots() {
        let mut head = head(1, vec![]);
        for n in 0..=ENDED_MAX {
            head.add_ended(&cycle(&format!("c{n}")));
        }
        assert!(!head.has_ended(&cycle("c0")) && head.has_ended(&cycle("c1")));
        assert_eq!(head.ended.len(), ENDED_MAX);
    }

    #[test]
    fn an_epoch_without_a_result_is_remembered_when_the_next_begins() {
        let mut head = head(3, vec![snapshot("3-1-aa", SnapshotKind::Final, "c")]);
        head.close_epoch();
        assert_eq!(head.abandoned, [0; 0]);
        for (epoch, kind) in [(4, SnapshotKind::Checkpoint), (5, SnapshotKind::Failed)] {
            head.epoch = epoch;
            head.snapshots.push(snapshot(&format!("{epoch}-1-aa"), kind, "c"));
            head.close_epoch();
        }
        assert_eq!(head.abandoned, [4, 5]);
        for epoch in 0..=ABANDONED_MAX {
            head.epoch = 10 + epoch as u64;
            head.close_epoch();
        }
        assert_eq!((head.abandoned.len(), head.abandoned[0]), (ABANDONED_MAX, 11));
    }

    #[test]
    fn a_head_is_older_than_every_snapshot_of_a_later_epoch() {
        let head = head(5, vec![snapshot("5-1-aa", SnapshotKind::Final, "c")]);
        assert_eq!(head.newer(["5-9-zz", "4-1-bb", "strange"]), None);
        assert_eq!(head.newer(["6-1-bb", "10-1-cc", "9-2-dd"]), Some("10-1-cc"));
        let lowered = Head { epoch: 4, ..head };
        assert_eq!(lowered.newer([]), Some("5-1-aa"));
    }

    #[test]
    fn a_head_whose_current_snapshot_is_not_its_newest_is_damaged() {
        let listed = || {
            vec![snapshot("4-1-aa", SnapshotKind::Final, "b"), snapshot("5-1-aa", SnapshotKind::Final, "c")]
        };
        let sound = head(5, listed());
        assert!(sound.check_current().is_ok() && head(5, vec![]).check_current().is_ok());
        let edited = |current: Option<&str>, snapshots| Head {
            current: current.map(str::to_owned),
            ..head(5, snapshots)
        };
        for (damaged, word) in [
            (edited(Some("5-1-ab"), listed()), "not in its list"),
            (edited(Some("5-1-aa"), vec![]), "not in its list"),
            (edited(Some("4-1-aa"), listed()), "newer"),
            (edited(None, listed()), "none of them"),
        ] {
            let error = damaged.check_current().unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert_eq!(error.class(), FailureClass::HeadCorrupt);
        }
    }

    #[test]
    fn snapshot_ids_have_the_order_of_time() {
        let (early, late) = (snapshot_id(9, 12, 7), snapshot_id(10, 1, 3));
        assert!(order(&early) < order(&late) && early > late, "the text alone would sort wrongly");
        assert_eq!(order("10-1-0000000000000003"), Some((10, 1)));
        for bad in ["", "1-2", "a-1-b", "1-2-3-4", "1-2-"] {
            assert_eq!(order(bad), None, "{bad}");
        }
    }
}
