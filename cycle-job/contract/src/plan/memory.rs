//! Bounds and retention of memory and ledger.

use serde::{Deserialize, Serialize};

/// Bounds and retention of memory and ledger. Bytes and seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryConfig {
    /// Largest memory file, in bytes.
    pub size_limit: u64,
    /// Largest ledger file, in bytes.
    pub ledger_size_limit: u64,
    /// What is kept for how long.
    pub retention: Retention,
    /// What a cycle does with a damaged archive.
    #[serde(default)]
    pub on_corrupt: OnCorrupt,
    /// Owner from whom this agent takes the memory over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_over_from: Option<String>,
    /// Loss of this snapshot was accepted by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_memory_loss: Option<String>,
    /// A new namespace UID is a conflict.
    #[serde(default)]
    pub refuse_namespace_reuse: bool,
    /// The memory that this one starts from while it has nothing of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_from: Option<SeedFrom>,
}

/// A memory of another agent in the same store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedFrom {
    /// Namespace of that agent.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// One of its snapshots; None = the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            size_limit: 256 << 20,
            ledger_size_limit: 256 << 20,
            retention: Retention::default(),
            on_corrupt: OnCorrupt::default(),
            take_over_from: None,
            accept_memory_loss: None,
            refuse_namespace_reuse: false,
            seed_from: None,
        }
    }
}

/// What is kept for how long, in seconds; `snapshots` is a count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// Most snapshots of kind `final` or `interrupted`.
    pub snapshots: u32,
    /// Oldest snapshot.
    pub max_age: u64,
    /// Messages.
    pub messages: u64,
    /// Tool results.
    pub tool_results: u64,
    /// Steps.
    pub steps: u64,
    /// Cycles.
    pub cycles: u64,
}

impl Default for Retention {
    fn default() -> Self {
        let day = 86_400;
        Self {
            snapshots: 30,
            max_age: 90 * day,
            messages: 30 * day,
            tool_results: 30 * day,
            steps: 30 * day,
            cycles: 400 * day,
        }
    }
}

/// What a cycle does with a damaged archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnCorrupt {
    /// Stop and wait for a person.
    #[default]
    Stop,
    /// Go on from the newest sound snapshot.
    FallBack,
}
