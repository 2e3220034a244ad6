//! What people hear: events on an agent, or on the operator where its agent is gone.

use std::time::Duration;

use cicada_contract::text::cut;
use cicada_crds::{AgentCycle, PersistentAgent, PersistentAgentStatus};
use cicada_operator_core::{decide::Note, deletion::MEMORY_LEFT, names};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Resource, ResourceExt as _,
    runtime::events::{Event, EventType},
};

use crate::context::Context;

/// Longest wait for the event on a memory that is left: its agent's namespace is about to take our rights away.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells where a memory lies that will not be deleted with its agent. The event is on the operator's own
/// Deployment: in a namespace that is being deleted none can be made.
pub async fn tell_of_left_memory(context: &Context, agent: &PersistentAgent, memory: &str, why: &str) {
    let path = path_of(agent);
    tracing::error!(agent = path, memory, why, "an agent goes and its memory is left behind");
    let event = Event {
        type_: EventType::Warning,
        reason: MEMORY_LEFT.to_owned(),
        note: Some(cut(&format!("{path}: {why}; its memory is left at {memory}"), 1024)),
        action: "Delete".into(),
        secondary: Some(agent.object_ref(&())),
    };
    let written = async {
        let deployment = context.lease.deployment().await;
        context.recorder.publish(&event, &deployment).await
    };
    let written = tokio::time::timeout(PATIENCE, written).await;
    let error = written.map_or_else(|late| Some(late.to_string()), |said| said.err().map(|e| e.to_string()));
    if let Some(error) = error {
        tracing::warn!(agent = path, error, "an event could not be written");
    }
}

/// Tells of a Job that has our labels and is not ours.
pub fn tell_of_stray(context: &Context, job: &Job, why: &str) {
    tracing::warn!(job = %job.name_any(), namespace = job.namespace(), why, "a Job is not the one that its labels say");
    let event = Event {
        type_: EventType::Warning,
        reason: "UnexpectedJob".to_owned(),
        note: Some(cut(why, 1024)),
        action: "Watch".into(),
        secondary: None,
    };
    context.said.say(event, job.object_ref(&()));
}

/// Tells that another instance works on an agent. Not by a condition: its status is the other's.
pub fn tell_of_foreign(context: &Context, agent: &PersistentAgent, other: &str) {
    let note = Note {
        warning: true,
        reason: "ForeignOperator",
        text: format!(
            "the operator {other} works on this agent, so {} leaves it alone; give each its own namespaces, or clear status.operator if the other is gone",
            context.instance
        ),
        cycle: None,
        count: 1,
        heading: Some("ForeignOperator".into()),
    };
    tell(context, agent, vec![note]);
}

/// One line for a cycle that ended, whatever way: beside the line of its start.
pub fn log_end(before: &PersistentAgent, after: &PersistentAgentStatus) {
    let status = before.status.as_ref();
    let Some(active) = status.and_then(|s| s.active_cycle.as_ref()) else { return };
    let last = after.last_cycle.as_ref().filter(|last| last.name == active.name);
    let Some(last) = last.filter(|last| status.and_then(|s| s.last_cycle.as_ref()) != Some(*last)) else {
        return;
    };
    tracing::info!(
        agent = path_of(before),
        cycle = active.name,
        cycle_uid = active.uid,
        job = names::job(&active.name, &active.uid),
        result = last.result,
        seconds = last.duration,
        "a cycle ended"
    );
}

fn path_of(agent: &PersistentAgent) -> String {
    format!("{}/{}", agent.namespace().unwrap_or_default(), agent.name_any())
}

/// Tells people. An event that can't be written is logged and forgotten.
pub fn tell(context: &Context, agent: &PersistentAgent, notes: Vec<Note>) {
    let reference = agent.object_ref(&());
    for note in notes {
        let secondary = note.cycle.as_ref().map(|c| k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(AgentCycle::api_version(&()).into_owned()),
            kind: Some(AgentCycle::kind(&()).into_owned()),
            namespace: agent.namespace(),
            name: Some(c.name.clone()),
            uid: Some(c.uid.clone()),
            ..Default::default()
        });
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason.to_owned(),
            note: Some(text_of(&note, &context.config.runbook_url)),
            action: "Cycle".into(),
            secondary,
        };
        context.said.say(event, reference.clone());
    }
}

/// Its text, then the page that says what to do. An event takes 1024 bytes.
fn text_of(note: &Note, runbook_url: &str) -> String {
    let link = match &note.heading {
        Some(heading) if !runbook_url.is_empty() => format!(" ({runbook_url}#{})", heading.to_lowercase()),
        _ => String::new(),
    };
    format!("{}{link}", cut(&note.text, 1024usize.saturating_sub(link.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_ends_with_the_page_that_says_what_to_do() {
        let mut note = Note {
            warning: true,
            reason: "SawCompletedJob",
            text: "x".repeat(2000),
            cycle: None,
            count: 1,
            heading: Some("MemoryMissing".into()),
        };
        let text = text_of(&note, "https://example.com/runbook.md");
        assert!(
            text.len() <= 1024 && text.ends_with(" (https://example.com/runbook.md#memorymissing)"),
            "{text}"
        );
        assert!(!text_of(&note, "").contains("memorymissing"));
        note.heading = None;
        note.text = "done".into();
        assert_eq!(text_of(&note, "https://example.com"), "done");
    }
}
