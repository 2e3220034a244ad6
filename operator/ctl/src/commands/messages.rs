//! Messages of people to agents.

use anyhow::Context;
use cicada_crds::AgentCycle;
use cicada_crds::cycle::{AgentCycleSpec, AgentRef, CycleTrigger, TriggerKind};
use cicada_store::{INBOX_VERSION, InboxMessage};
use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use crate::args::SendArgs;
use crate::output::note;

/// `send`: durable in the inbox before anything is said; then a cycle, where there is a cluster.
pub(super) async fn send(args: SendArgs) -> anyhow::Result<()> {
    let (namespace, name) = args.target.names()?;
    let now = Timestamp::now();
    let message = InboxMessage {
        version: INBOX_VERSION,
        id: args.id.unwrap_or_else(|| format!("{}-{}", now.as_nanosecond(), std::process::id())),
        channel: args.channel,
        from: args.from,
        to: None,
        subject: args.subject,
        body: args.text,
        conversation_id: None,
        peer: None,
        answers: None,
        attachments: None,
        payload: None,
        at: now,
    };
    let store = args.target.open().await?;
    let new = store.put_message(&message).await?;
    if !new {
        note("this message was there already: it counts once");
    }
    if args.target.store.is_some() {
        note(&format!("in the inbox of {namespace}/{name}; read at the next cycle"));
        return Ok(());
    }
    let cycle = cycle(&name, &message.hash());
    let cycles: Api<AgentCycle> = Api::namespaced(args.target.client().await?, &namespace);
    let made = match cycles.create(&PostParams::default(), &cycle).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => cycle,
        other => other.context("the message is in the inbox, but no cycle could be asked for")?,
    };
    note(&format!(
        "in the inbox of {namespace}/{name}; cycle {} will read it",
        made.metadata.name.unwrap_or_default()
    ));
    Ok(())
}

/// A cycle for this message; the same message asks for the same cycle.
fn cycle(agent: &str, hash: &str) -> AgentCycle {
    let trigger = CycleTrigger { kind: TriggerKind::Message, ..CycleTrigger::default() };
    let spec = AgentCycleSpec {
        agent_ref: AgentRef { name: agent.to_owned() },
        triggers: vec![trigger],
        ttl_seconds_after_finished: Some(86_400),
        ..AgentCycleSpec::default()
    };
    AgentCycle::new(&format!("{agent}-m{}", &hash[..10]), spec)
}
