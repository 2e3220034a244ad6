//! What people hear: events on an agent, or on the operator where its agent is gone.

use cicada_crds::{AgentCycle, PersistentAgent};
use cicada_operator_core::{decide::Note, deletion::MEMORY_LEFT};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Resource, ResourceExt as _,
    runtime::events::{Event, EventType},
};

use crate::context::Context;

/// Tells where a memory lies that was not deleted with its agent. The event is on the operator's own
/// Deployment: in a namespace that is being deleted none can be made.
pub async fn tell_of_left_memory(context: &Context, agent: &PersistentAgent, memory: &str, why: &str) {
    let path = format!("{}/{}", agent.namespace().unwrap_or_default(), agent.name_any());
    context.metrics.left_memories.inc();
    tracing::error!(agent = path, memory, why, "an agent was deleted and its memory is left behind");
    let event = Event {
        type_: EventType::Warning,
        reason: MEMORY_LEFT.to_owned(),
        note: Some(cicada_contract::text::cut(
            &format!("{path}: {why}; its memory is left at {memory}"),
            1024,
        )),
        action: "Delete".into(),
        secondary: Some(agent.object_ref(&())),
    };
    if let Err(error) = context.recorder.publish(&event, &context.lease.deployment()).await {
        tracing::warn!(agent = path, error = %error, "an event could not be written");
    }
}

/// Tells of a Job that has our labels and is not ours.
pub async fn tell_of_stray(context: &Context, job: &Job, why: String) {
    tracing::warn!(job = %job.name_any(), namespace = job.namespace(), why, "a Job is not the one that its labels say");
    let event = Event {
        type_: EventType::Warning,
        reason: "UnexpectedJob".to_owned(),
        note: Some(cicada_contract::text::cut(&why, 1024)),
        action: "Watch".into(),
        secondary: None,
    };
    if let Err(error) = context.recorder.publish(&event, &job.object_ref(&())).await {
        tracing::warn!(job = %job.name_any(), error = %error, "an event could not be written");
    }
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
    format!("{}{link}", cicada_contract::text::cut(&note.text, 1024usize.saturating_sub(link.len())))
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
