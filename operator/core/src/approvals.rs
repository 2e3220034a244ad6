//! Decisions of people about what the agent proposed: from the manifest and its annotations to the plan.

use cicada_contract::plan::{Approval, Decision};
use cicada_crds::PersistentAgent;

use crate::{APPROVE, REJECT, spec::SpecError};

/// Most decisions in one plan; the run part travels as an annotation.
const MAX: usize = 64;

/// All decisions that the object names now. What has not the form `<proposal>-<hash>` is left out; in the
/// manifest [`problem`] refuses it. A rejection wins over an approval of the same content.
pub fn approvals(agent: &PersistentAgent) -> Vec<Approval> {
    let annotation = |name: &str| agent.metadata.annotations.as_ref().and_then(|a| a.get(name)).cloned();
    let listed = |name: &str, decision| {
        let text = annotation(name).unwrap_or_default();
        let parsed: Vec<_> =
            text.split(',').filter_map(|part| Approval::parse(part, decision, "annotation")).collect();
        parsed
    };
    let rejected = listed(REJECT, Decision::Rejected);
    let approved = agent
        .spec
        .approvals
        .iter()
        .filter_map(|text| Approval::parse(text, Decision::Approved, "spec.approvals"))
        .chain(listed(APPROVE, Decision::Approved));
    let mut all = rejected;
    for approval in approved {
        if !all.iter().any(|known| known.id == approval.id && known.hash == approval.hash) {
            all.push(approval);
        }
    }
    all.truncate(MAX);
    all
}

/// The first entry of `spec.approvals` that names no content.
pub(crate) fn problem(agent: &PersistentAgent) -> Option<SpecError> {
    let wrong = |text: &&String| Approval::parse(text, Decision::Approved, "").is_none();
    let text = agent.spec.approvals.iter().find(wrong)?;
    Some(SpecError::Value {
        field: "approvals".into(),
        problem: format!("{text:?} is not <proposal>-<hash> as status.proposals shows it"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(approvals: &[&str], annotations: &serde_json::Value) -> PersistentAgent {
        let spec = json!({"executor": {"sql": {"inline": "SELECT 1"}}, "approvals": approvals});
        serde_json::from_value(json!({"metadata": {"name": "a", "annotations": annotations}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn manifest_and_annotations_decide_and_a_rejection_wins() {
        let agent = agent(
            &["charter-1a2b3c4d-1a2b3c4d5e", "crm.find-bbbbbbbbbb"],
            &json!({
                APPROVE: "charter-1a2b3c4d-1a2b3c4d5e, schedule-9-cccccccccc,nonsense",
                REJECT: "crm.find-bbbbbbbbbb",
            }),
        );
        let seen: Vec<_> = approvals(&agent).into_iter().map(|a| (a.id, a.decision, a.by)).collect();
        let text = str::to_owned;
        assert_eq!(
            seen,
            [
                (text("crm.find"), Decision::Rejected, text("annotation")),
                (text("charter-1a2b3c4d"), Decision::Approved, text("spec.approvals")),
                (text("schedule-9"), Decision::Approved, text("annotation")),
            ]
        );
        assert_eq!(problem(&agent), None);
    }

    #[test]
    fn an_entry_of_the_manifest_that_names_nothing_is_told() {
        let agent = agent(&["charter-1a2b3c4d"], &json!({}));
        assert!(approvals(&agent).is_empty());
        assert!(problem(&agent).unwrap().to_string().contains("charter-1a2b3c4d"));
    }
}
