//! One published state and its archives.

use std::sync::Arc;

use cicada_contract::plan::CycleIdentity;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Unknown;

/// What a snapshot is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotKind {
    /// The cycle ended as it should.
    Final,
    /// The cycle was cut short by time or a signal; what it had committed is in it.
    Interrupted,
    /// The cycle failed: the memory is as at its start.
    Failed,
    /// Written on the way, before a step that changes the world: the memory is as at the start.
    Checkpoint,
}

impl SnapshotKind {
    /// True for those that retention counts and keeps.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Final | Self::Interrupted)
    }
}

/// One published state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// `<epoch>-<seq>-<random>`; later ones of a memory compare greater by [`order`].
    pub id: String,
    /// What it is worth.
    pub kind: SnapshotKind,
    /// Cycle that wrote it.
    pub cycle: CycleIdentity,
    /// Its attempt.
    pub attempt: u32,
    /// When, by the writer's clock.
    pub created_at: Timestamp,
    /// The memory; None while it has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ArchiveRef>,
    /// The ledger; None while it has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<ArchiveRef>,
    /// Why it may not be collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// Snapshot whose archives it took over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<String>,
    /// Fields of a later release.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Snapshot {
    /// The archives that it names itself.
    pub fn archives(&self) -> impl Iterator<Item = &ArchiveRef> {
        [&self.memory, &self.ledger].into_iter().flatten()
    }

    /// Keys, below the agent's prefix, of all the archives that its files are made of.
    pub fn archive_keys(&self) -> impl Iterator<Item = &str> {
        let below = |archive| std::iter::successors(Some(archive), |a: &&ArchiveRef| a.base.as_deref());
        self.archives().flat_map(below).map(|archive| archive.key.as_str())
    }
}

/// An immutable archive. Sizes in bytes, hashes lower-case hexadecimal SHA-256.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveRef {
    /// Below the agent's prefix.
    pub key: String,
    /// Of the unpacked file.
    pub file_sha256: String,
    /// Of the archive itself.
    pub archive_sha256: String,
    /// Of the unpacked file.
    pub file_size: u64,
    /// Of the archive itself.
    pub archive_size: u64,
    /// Key of the archive whose file this one holds the changes against; None = it is a whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// That archive, where HEAD names it.
    #[serde(skip)]
    pub base: Option<Arc<Self>>,
    /// When it was made, by the writer's clock; None in archives of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_at: Option<Timestamp>,
    /// Fields of a later release.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Epoch and number of a snapshot id; greater = later in the same memory. None if it is no such id.
pub fn order(id: &str) -> Option<(u64, u64)> {
    let mut parts = id.split('-');
    let (epoch, seq, random) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    (parts.next().is_none() && !random.is_empty()).then_some((epoch, seq))
}

/// A new snapshot id.
pub(crate) fn snapshot_id(epoch: u64, seq: u64, random: u64) -> String {
    format!("{epoch}-{seq}-{random:016x}")
}
