//! The one table of failure classes: exit code, reason, metric label, and what each means for the
//! Job, the agent and the person on call.

use serde::{Deserialize, Serialize};

/// Exit code of a cycle that ended as it should.
pub const EXIT_DONE: u8 = 0;
/// Exit code of a cycle that another cycle fenced: neutral, neither success nor failure.
pub const EXIT_FENCED: u8 = 30;
/// Exit code of an attempt that a later attempt of the same cycle fenced: the Job ignores it.
pub const EXIT_SUPERSEDED: u8 = 31;
/// First and last exit code after which the same Job starts another attempt.
pub const RETRY_CODES: std::ops::RangeInclusive<u8> = 10..=19;
/// First and last exit code after which the Job fails at once.
pub const FAIL_CODES: std::ops::RangeInclusive<u8> = 20..=30;

/// What a class means for the agent after the Job has ended with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The Job tries again within its backoff limit; after that the cycle is Failed.
    Retry,
    /// The cycle is Failed; the next slot tries again.
    Fail,
    /// The cycle is Failed and the agent is Stalled until a person acts.
    Stall,
    /// Another writer was faster. Neither a success nor a failure of the agent.
    Neutral,
}

/// Why a cycle did not end as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// SIGTERM: the pod was evicted, deleted or drained.
    Disrupted,
    /// The store could not be reached or answered with a server error.
    StoreUnavailable,
    /// The model's endpoint could not be reached or refused for load.
    ModelUnavailable,
    /// Unpacking took longer than its limit.
    RestoreTimeout,
    /// Restore failed for a reason that is not the archive's: full disk, killed child, missing object.
    RestoreFailed,
    /// The ledger could not take in what had arrived.
    IngestFailed,
    /// The eight tables could not be made.
    MountFailed,
    /// The snapshot could not be uploaded.
    SqlitePersistenceUploadFailed,
    /// A sandboxed child died outside a statement of the agent.
    WorkerCrashed,

    /// HEAD belongs to another owner.
    StoreConflict,
    /// HEAD is missing where one was expected.
    MemoryMissing,
    /// HEAD is older than the operator has seen it.
    StoreRolledBack,
    /// HEAD's bytes are damaged: empty, cut or no HEAD at all.
    HeadCorrupt,
    /// The archive's bytes are damaged.
    RestoreCorrupt,
    /// The archive unpacks to more than it may.
    RestoreBomb,
    /// HEAD, archive, ledger or plan carries a version that this release does not know.
    UnknownVersion,
    /// A referenced Secret or one of its keys does not exist.
    SecretMissing,
    /// A referenced ConfigMap or one of its keys does not exist.
    ConfigMissing,
    /// HEAD does not list the snapshot that is to be restored.
    SnapshotMissing,
    /// The agent whose memory this one shall start from has none.
    SeedMissing,
    /// The store refused the credentials, or the bucket does not exist, or it has no conditional writes.
    StoreRefused,

    /// The executor failed.
    ExecutorFailed,
    /// `limits.timeout` passed.
    Timeout,
    /// The day's budget was spent before the first call.
    BudgetExceeded,
    /// A mounted table was still there after unmount.
    EphemeralResidue,
    /// The finished files did not pass their checks.
    SqlitePersistenceFailed,
    /// The pod's disk is smaller than the plan says.
    DiskBudget,
    /// More attempts than a cycle may have.
    AttemptsExhausted,
    /// The grace period was shorter than a persist takes.
    GraceTooShort,
    /// The plan itself is wrong: a defect or a mismatch of versions.
    PlanInvalid,

    /// Another cycle raised the epoch.
    PersistFenced,
    /// A later attempt of the same cycle raised the epoch.
    Superseded,
}

/// One row of the table.
struct Row {
    class: FailureClass,
    exit_code: u8,
    reason: &'static str,
    label: &'static str,
    ending: Ending,
    /// Counts towards `pauseAfterFailures`.
    counts: bool,
    /// A person should be woken.
    pages: bool,
}

const fn row(
    class: FailureClass,
    exit_code: u8,
    reason: &'static str,
    label: &'static str,
    ending: Ending,
    counts: bool,
    pages: bool,
) -> Row {
    Row { class, exit_code, reason, label, ending, counts, pages }
}

/// Codes are one per class, so that the operator can tell classes apart even when the report is lost.
/// 20-30 hold more classes than codes: those that share one end the same way.
const TABLE: &[Row] = &[
    row(FailureClass::Disrupted, 10, "Disrupted", "disrupted", Ending::Retry, false, false),
    row(
        FailureClass::StoreUnavailable,
        11,
        "StoreUnavailable",
        "store_unavailable",
        Ending::Retry,
        true,
        true,
    ),
    row(
        FailureClass::ModelUnavailable,
        12,
        "ModelUnavailable",
        "model_unavailable",
        Ending::Retry,
        true,
        false,
    ),
    row(FailureClass::RestoreTimeout, 13, "RestoreTimeout", "restore_timeout", Ending::Retry, true, true),
    row(FailureClass::RestoreFailed, 14, "RestoreFailed", "restore_failed", Ending::Retry, true, true),
    row(FailureClass::IngestFailed, 15, "IngestFailed", "ingest_failed", Ending::Retry, true, true),
    row(FailureClass::MountFailed, 16, "MountFailed", "mount_failed", Ending::Retry, true, true),
    row(
        FailureClass::SqlitePersistenceUploadFailed,
        17,
        "PersistenceUploadFailed",
        "sqlite_persistence_upload_failed",
        Ending::Retry,
        true,
        true,
    ),
    row(FailureClass::WorkerCrashed, 18, "WorkerCrashed", "worker_crashed", Ending::Retry, true, true),
    row(FailureClass::StoreConflict, 20, "StoreConflict", "store_conflict", Ending::Stall, true, true),
    row(FailureClass::MemoryMissing, 21, "MemoryMissing", "memory_missing", Ending::Stall, true, true),
    row(FailureClass::StoreRolledBack, 21, "StoreRolledBack", "store_rolled_back", Ending::Stall, true, true),
    row(FailureClass::HeadCorrupt, 22, "HeadCorrupt", "head_corrupt", Ending::Stall, true, true),
    row(FailureClass::RestoreCorrupt, 22, "MemoryCorrupt", "restore_corrupt", Ending::Stall, true, true),
    row(FailureClass::RestoreBomb, 22, "RestoreBomb", "restore_bomb", Ending::Stall, true, true),
    row(FailureClass::UnknownVersion, 23, "UnknownVersion", "unknown_version", Ending::Stall, true, true),
    row(FailureClass::SecretMissing, 24, "SecretMissing", "secret_missing", Ending::Stall, true, true),
    row(FailureClass::ConfigMissing, 24, "ConfigMissing", "config_missing", Ending::Stall, true, true),
    // A word that a person mistyped says nothing about how the agent works.
    row(
        FailureClass::SnapshotMissing,
        24,
        "SnapshotMissing",
        "snapshot_missing",
        Ending::Stall,
        false,
        false,
    ),
    row(FailureClass::SeedMissing, 24, "SeedMissing", "seed_missing", Ending::Stall, true, true),
    row(FailureClass::StoreRefused, 25, "StoreRefused", "store_refused", Ending::Stall, true, true),
    row(FailureClass::ExecutorFailed, 26, "ExecutorFailed", "executor_failed", Ending::Fail, true, false),
    row(FailureClass::Timeout, 27, "Timeout", "timeout", Ending::Fail, true, false),
    row(FailureClass::BudgetExceeded, 27, "BudgetExceeded", "budget_exceeded", Ending::Fail, false, false),
    row(
        FailureClass::EphemeralResidue,
        28,
        "EphemeralResidue",
        "ephemeral_residue",
        Ending::Fail,
        true,
        true,
    ),
    row(
        FailureClass::SqlitePersistenceFailed,
        28,
        "PersistenceFailed",
        "sqlite_persistence_failed",
        Ending::Fail,
        true,
        true,
    ),
    row(FailureClass::DiskBudget, 29, "DiskBudget", "disk_budget", Ending::Fail, true, true),
    row(
        FailureClass::AttemptsExhausted,
        29,
        "AttemptsExhausted",
        "attempts_exhausted",
        Ending::Fail,
        true,
        true,
    ),
    row(FailureClass::GraceTooShort, 29, "GraceTooShort", "grace_too_short", Ending::Fail, true, true),
    row(FailureClass::PlanInvalid, 29, "PlanInvalid", "plan_invalid", Ending::Fail, true, true),
    row(FailureClass::PersistFenced, EXIT_FENCED, "Fenced", "persist_fenced", Ending::Neutral, false, false),
    row(FailureClass::Superseded, EXIT_SUPERSEDED, "Superseded", "superseded", Ending::Neutral, false, false),
];

impl FailureClass {
    /// Every class, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|r| r.class)
    }

    fn row(self) -> &'static Row {
        // The test `every_class_has_exactly_one_row` keeps the table complete; `plan_invalid` is the
        // class of "this program is wrong", so it is the honest answer if that test were ever lost.
        TABLE.iter().find(|r| r.class == self).unwrap_or(&TABLE[TABLE.len() - 3])
    }

    /// Exit code of the cycle job.
    pub fn exit_code(self) -> u8 {
        self.row().exit_code
    }

    /// CamelCase, for conditions and events; also the heading in the runbook.
    pub fn reason(self) -> &'static str {
        self.row().reason
    }

    /// snake_case, for metrics, logs and the report.
    pub fn label(self) -> &'static str {
        self.row().label
    }

    /// What it means for the agent.
    pub fn ending(self) -> Ending {
        self.row().ending
    }

    /// True if another attempt of the same Job may help.
    pub fn is_retryable(self) -> bool {
        self.ending() == Ending::Retry
    }

    /// True if it counts towards `pauseAfterFailures`.
    pub fn counts_towards_pause(self) -> bool {
        self.row().counts
    }

    /// True if the default alerts wake a person.
    pub fn pages(self) -> bool {
        self.row().pages
    }

    /// The class behind an exit code when the report is lost: the first with that code.
    pub fn from_exit_code(code: i32) -> Option<Self> {
        TABLE.iter().find(|r| i32::from(r.exit_code) == code).map(|r| r.class)
    }
}

impl std::fmt::Display for FailureClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_exactly_one_row() {
        // Serde knows every variant by name: each label of the table must parse back to its row's class.
        for row in TABLE {
            let parsed: FailureClass = serde_json::from_value(row.label.into()).unwrap();
            assert_eq!(parsed, row.class);
            assert_eq!(TABLE.iter().filter(|r| r.class == row.class).count(), 1);
        }
        // And an unknown name lists all variants that serde has: compare the counts.
        let error = serde_json::from_value::<FailureClass>("no_such".into()).unwrap_err().to_string();
        assert_eq!(error.matches('`').count() / 2 - 1, TABLE.len(), "{error}");
    }

    #[test]
    fn exit_codes_say_who_retries() {
        for class in FailureClass::all() {
            let code = class.exit_code();
            match class.ending() {
                Ending::Retry => assert!(RETRY_CODES.contains(&code), "{class}"),
                Ending::Fail | Ending::Stall => {
                    assert!(FAIL_CODES.contains(&code) && code != EXIT_FENCED, "{class}")
                }
                Ending::Neutral => assert!(code == EXIT_FENCED || code == EXIT_SUPERSEDED, "{class}"),
            }
        }
    }

    #[test]
    fn classes_that_share_a_code_end_alike() {
        for a in TABLE {
            for b in TABLE.iter().filter(|b| b.exit_code == a.exit_code) {
                assert!(
                    a.ending == b.ending,
                    "{} and {} share {} and end differently",
                    a.label,
                    b.label,
                    a.exit_code
                );
            }
        }
    }

    #[test]
    fn plan_invalid_is_the_fallback_row() {
        assert_eq!(TABLE[TABLE.len() - 3].class, FailureClass::PlanInvalid);
    }
}
