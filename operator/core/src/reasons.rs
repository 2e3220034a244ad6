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
    // The last cycle's work.
    "NotPersisted",
    "Interrupted",
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
    "Unknown",
    // Events.
    "MissSchedule",
    "MemoryAdopted",
    "DeliveryFailed",
    "MemoryLeftBehind",
    "MemoryDeleted",
    "ForeignOperator",
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

    /// Sources of the operator, each with its text up to its tests.
    fn sources() -> Vec<(String, String)> {
        let (mut folders, mut found) =
            (vec!["operator/core/src".to_owned(), "operator/src".to_owned()], vec![]);
        while let Some(folder) = folders.pop() {
            let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
            for entry in fs::read_dir(root.join(&folder)).unwrap() {
                let path = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
                let is_test = path.contains("tests") || path.ends_with("/reasons.rs");
                if root.join(&path).is_dir() {
                    folders.push(path);
                } else if path.ends_with(".rs") && !is_test {
                    let text = read(&path);
                    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                    found.push((path, code.to_owned()));
                }
            }
        }
        found
    }

    /// Each word in CamelCase that the code has between quotation marks is a reason with a heading, or stands below
    /// as something else. So no way to write a reason is overlooked.
    #[test]
    fn the_list_is_complete() {
        // All is well.
        const FINE: &[&str] = &[
            "Ready",
            "Running",
            "Completed",
            "Succeeded",
            "Recovered",
            "AlreadyHandled",
            "Persisted",
            "ConditionalWrites",
            "Adopted",
            "SuccessfulCreate",
            // With the reason of its cycle, whose heading the event links to.
            "SawCompletedJob",
        ];
        const KINDS: &[&str] =
            &["PersistentAgent", "AgentCycle", "Job", "ConfigMap", "Deployment", "Context"];
        const CONDITIONS: &[&str] =
            &["Complete", "Failed", "Reconciling", "StoreSafe", "LastCyclePersisted", "LastCycleFailed"];
        const ACTIONS: &[&str] = &["Cycle", "Delete", "Uninstall", "Watch"];
        const OF_KUBERNETES: &[&str] = &[
            "True",
            "False",
            "In",
            "Ignore",
            "FailJob",
            "Never",
            "Memory",
            "File",
            "RuntimeDefault",
            "OnRootMismatch",
            "PodScheduled",
            "DisruptionTarget",
            "FailureTarget",
            "SuccessCriteriaMet",
            "DeadlineExceeded",
            "FailedCreate",
            "ErrImagePull",
            "ErrImageNeverPull",
            "InvalidImageName",
            "ImageInspectError",
            "CreateContainerError",
            "CreateContainerConfigError",
            "RunContainerError",
            "OOMKilled",
        ];
        let classes: Vec<&str> = FailureClass::all().map(FailureClass::reason).collect();
        let known = [REASONS, &classes, FINE, KINDS, CONDITIONS, ACTIONS, OF_KUBERNETES].concat();
        let mut seen = BTreeSet::new();
        for (path, code) in sources() {
            for word in code.split('"').filter(|word| is_camel_case(word)) {
                assert!(known.contains(&word), "{path}: {word} is no reason with a heading and nothing else");
                seen.insert(word.to_owned());
            }
        }
        for word in REASONS {
            assert!(seen.contains(*word), "no code says {word} any more");
        }
    }

    fn is_camel_case(word: &str) -> bool {
        let lower = word.bytes().any(|b| b.is_ascii_lowercase());
        let plain = word.bytes().all(|b| b.is_ascii_alphanumeric());
        lower && plain && word.starts_with(|c: char| c.is_ascii_uppercase())
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
