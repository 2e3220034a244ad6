//! Messages of people to agents.

use anyhow::{Context, bail};
use cicada_crds::cycle::{AgentCycleSpec, AgentRef, CycleTrigger, TriggerKind};
use cicada_crds::people::Inbound;
use cicada_crds::{AgentCycle, PersistentAgentSpec};
use cicada_memory::normalised_address;
use cicada_store::{INBOX_VERSION, InboxMessage, StoreError};
use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use super::restored::near_agents;
use crate::args::{Place, SendArgs};
use crate::exit::UsageError;
use crate::local::desk::Desk;
use crate::output::{bytes, note};

/// Seconds for which the cycle of a message can be looked at after its end.
pub(super) const CYCLE_KEPT: u64 = 86_400;

/// `send`: durable in the inbox before anything is said; then a cycle, where there is a cluster.
pub(super) async fn send(args: SendArgs) -> anyhow::Result<()> {
    let (namespace, name) = args.target.names()?;
    if args.text.trim().is_empty() {
        bail!(UsageError("the text is empty".into()));
    }
    // Nobody would ever read it otherwise.
    let manifest = args.target.manifest().await?;
    let is_known = manifest.is_some();
    let wakes = manifest.is_none_or(|agent| wakes(&agent.spec, &args.channel, &args.from));
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
        attachments: vec![],
        payload: None,
        at: now,
    };
    let store = args.target.open().await?;
    let new = match store.put_message(&message).await {
        Err(StoreError::TooLarge { limit, .. }) => bail!(UsageError(format!(
            "the message is larger than {}: put it into a file (cicadactl files put) and name that",
            bytes(limit)
        ))),
        done => done?,
    };
    if !is_known && store.read_head().await?.is_none() {
        note(&format!(
            "{namespace}/{name} has no memory there yet{}: it reads the message when it first runs in this store",
            near_agents(&store).await
        ));
    }
    if !new {
        note("this message was there already: it counts once");
    }
    if !wakes {
        note(&format!(
            "in the inbox of {namespace}/{name}; read at the next cycle: {} is no contact on {}, and spec.inbound lets only \
             contacts wake the agent",
            message.from, message.channel
        ));
        return Ok(());
    }
    let hash = message.hash();
    note(&ask_for_cycle(&args.target.place, &namespace, &name, &hash, TriggerKind::Message).await?);
    Ok(())
}

/// Channel of people who have the agent's folder or store in their hands.
pub(crate) const OWN_CHANNEL: &str = "cli";

/// Whether a message wakes the agent; the next cycle reads it in any case.
pub(crate) fn wakes(spec: &PersistentAgentSpec, channel: &str, from: &str) -> bool {
    let from = normalised_address(from);
    let is_contact =
        || spec.contacts.iter().any(|c| c.channel == channel && normalised_address(&c.address) == from);
    channel == OWN_CHANNEL || spec.inbound == Some(Inbound::Anyone) || is_contact()
}

/// A cycle for this message; the same message asks for the same cycle.
pub(crate) fn message_cycle(agent: &str, hash: &str, kind: TriggerKind) -> AgentCycle {
    let spec = AgentCycleSpec {
        agent_ref: AgentRef { name: agent.to_owned() },
        triggers: vec![CycleTrigger { kind, ..CycleTrigger::default() }],
        ttl_seconds_after_finished: Some(CYCLE_KEPT),
        ..AgentCycleSpec::default()
    };
    AgentCycle::new(&format!("{agent}-m{}", &hash[..10]), spec)
}

/// Makes the cycle that reads a message of the inbox, where there is a cluster; gives what becomes of it.
pub(super) async fn ask_for_cycle(
    place: &Place,
    namespace: &str,
    name: &str,
    hash: &str,
    kind: TriggerKind,
) -> anyhow::Result<String> {
    if !place.is_cluster() {
        let running = place.local.as_deref().is_some_and(|dir| Desk::new(dir).is_ok_and(|d| d.is_taken()));
        let when =
            if running { "the running cicadactl local reads it now" } else { "read at the next cycle" };
        return Ok(format!("in the inbox of {namespace}/{name}; {when}"));
    }
    let cycle = message_cycle(name, hash, kind);
    let cycles: Api<AgentCycle> = Api::namespaced(place.client().await?, namespace);
    let made = match cycles.create(&PostParams::default(), &cycle).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => cycle,
        other => other.context("the message is in the inbox, but no cycle could be asked for")?,
    };
    Ok(format!(
        "in the inbox of {namespace}/{name}; cycle {} will read it",
        made.metadata.name.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_wakes_only_who_lets_anyone() {
        let spec = |more: &str| -> PersistentAgentSpec {
            serde_saphyr::from_str(&format!("executor: {{sql: {{inline: SELECT 1}}}}\n{more}")).unwrap()
        };
        let contacts = "contacts: [{channel: mail, address: Ada@Example.com}]";
        for (more, channel, from, expected) in [
            ("", "mail", "ada@example.com", false),
            ("", "cli", "operator", true),
            (contacts, "mail", "ada@example.com", true),
            (contacts, "chat", "ada@example.com", false),
            (contacts, "mail", "eve@example.com", false),
            ("inbound: Anyone", "mail", "eve@example.com", true),
            ("inbound: KnownContacts", "mail", "eve@example.com", false),
        ] {
            assert_eq!(wakes(&spec(more), channel, from), expected, "{more}: {channel} {from}");
        }
    }
}
