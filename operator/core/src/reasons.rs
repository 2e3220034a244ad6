//! Every reason that conditions, cycles and events can show beside those of the failure classes. Each has a
//! heading in `docs/runbook.md`.

/// The operator's own reasons.
pub const REASONS: &[&str] = &[
    // States of an agent.
    "Stalled",
    "Suspended",
    "Held",
    "Paused",
    "BackingOff",
    "OverBudget",
    // The manifest.
    "UnknownTimeZone",
    "UnparseableSchedule",
    "ScheduleNeverFires",
    "StoreNotConfigured",
    "InvalidSpec",
    "ManifestTooLarge",
    "ResourcesTooSmall",
    "NotSupported",
    // The store.
    "StoreMoved",
    "CredentialsShared",
    // The charter.
    "CharterDiverged",
    "CharterEdited",
    // A cycle that waits.
    "AgentNotFound",
    "AgentBusy",
    "Joined",
    "CyclesPerDay",
    "WaitingForCapacity",
    "Queued",
    "QuotaExceeded",
    "JobForbidden",
    "Unschedulable",
    "ImagePullBackOff",
    "ContainerConfig",
    "PodRejected",
    "PodStarting",
    "NotStarted",
    // A cycle that ended.
    "JobRejected",
    "UnexpectedJob",
    "UnexpectedCycle",
    "OutOfMemory",
    "Evicted",
    "Killed",
    "ReportLost",
    "PodLost",
    "NodeLost",
    "JobDeadlineExceeded",
    "JobDeleted",
    "Canceled",
    "Blocked",
    "SuccessQueryEmpty",
    "Unstated",
    // Events.
    "MissSchedule",
    "MemoryAdopted",
    "DeliveryFailed",
    "MemoryLeftBehind",
    "MemoryDeleted",
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::PathBuf};

    use cicada_contract::FailureClass;

    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
    }

    #[test]
    fn every_reason_has_a_heading_in_the_runbook() {
        let runbook = read("docs/runbook.md");
        let headings: BTreeSet<&str> = runbook.lines().filter_map(|l| l.strip_prefix("### ")).collect();
        for reason in REASONS.iter().copied().chain(FailureClass::all().map(FailureClass::reason)) {
            assert!(headings.contains(reason), "docs/runbook.md has no heading {reason}");
        }
    }

    /// Words that look like a reason in the code stand in the list, so that none is without a heading.
    #[test]
    fn the_list_is_complete() {
        // Reasons that say that all is well need no heading.
        const FINE: [&str; 9] = [
            "Ready",
            "Running",
            "Completed",
            "Recovered",
            "AlreadyHandled",
            "Persisted",
            "NotPersisted",
            "Adopted",
            "SuccessfulCreate",
        ];
        for (file, before) in [
            ("operator/core/src/result.rs", "CycleEnd::failed(\""),
            ("operator/core/src/active.rs", "CycleEnd::failed(\""),
            ("operator/core/src/gate.rs", "gate(State::"),
            ("operator/core/src/spec.rs", "=> \""),
            ("operator/src/reconcile.rs", "CycleEnd::failed(\""),
            ("operator/src/observe.rs", "reason: \""),
        ] {
            for part in read(file).split(before).skip(1) {
                let word: String = part.chars().take_while(char::is_ascii_alphanumeric).collect();
                let known = REASONS.contains(&word.as_str()) || FINE.contains(&word.as_str());
                assert!(known || !word.starts_with(|c: char| c.is_ascii_uppercase()), "{file}: {word}");
            }
        }
    }

    #[test]
    fn alerts_link_to_headings() {
        let rules = read("charts/cicada/templates/prometheusrule.yaml");
        let runbook = read("docs/runbook.md");
        let anchors: BTreeSet<String> = runbook
            .lines()
            .filter_map(|l| l.strip_prefix("### "))
            .map(|h| h.to_lowercase().replace(' ', "-"))
            .collect();
        let links: Vec<&str> =
            rules.lines().filter_map(|l| l.split_once("}}#").map(|(_, a)| a.trim())).collect();
        assert!(links.len() >= 7);
        for link in links {
            assert!(anchors.contains(link), "{link}");
        }
    }
}
