//! Peer: into the inbox of another agent of the same namespace, in the same store and with the same
//! credentials: such agents are one trust domain. Both manifests must name the other agent; the receiver's is
//! what protects it, since whoever may write to the store could write there.
//!
//! The inbox takes a message once by its key, so that trying again is safe whatever became of the try before.

use cicada_contract::PlanConfig;
use cicada_contract::plan::{HOPS_MAX, PEER_CHANNEL};
use cicada_contract::text::{cut, printable};
use cicada_memory::ledger::{OutboxRow, OutboxState, OutboxUpdate};
use cicada_store::{AgentStore, DeliveryOutcome, INBOX_VERSION, InboxMessage, StoreError};
use serde_json::{Value, json};

use crate::channel::Sent;
use crate::context::Context;

/// Puts a message into the inbox of its receiver.
pub(super) async fn send(cx: &Context, own: &AgentStore, row: &OutboxRow) -> Sent {
    let peer = row.message.to.as_str();
    if cx.plan.config.peer(peer).is_none() {
        return sent(DeliveryOutcome::Failed, "spec.peers does not name this agent");
    }
    if let Some(problem) = cx.plan.run.peer_problem(peer) {
        return sent(DeliveryOutcome::Failed, problem.text());
    }
    match put(cx, own, row).await {
        Ok(true) => Sent { outcome: DeliveryOutcome::Sent, detail: None },
        Ok(false) => sent(DeliveryOutcome::Sent, "known already"),
        // It may have landed; the key removes the repeat.
        Err(error) if error.is_retryable() => sent(DeliveryOutcome::Unknown, "the store did not answer"),
        Err(StoreError::Unauthorized { .. }) => {
            sent(DeliveryOutcome::Deferred, "the store's credentials may not write to that agent's inbox")
        }
        Err(StoreError::TooLarge { .. } | StoreError::InvalidKey { .. }) => {
            sent(DeliveryOutcome::Failed, "the inbox takes no such message")
        }
        Err(_) => sent(DeliveryOutcome::Deferred, "the store refused the message"),
    }
}

async fn put(cx: &Context, own: &AgentStore, row: &OutboxRow) -> Result<bool, StoreError> {
    let (owner, m) = (&cx.plan.config.owner, &row.message);
    let store = AgentStore::new(own.store().clone(), &owner.namespace, &m.to)?;
    let message = InboxMessage {
        version: INBOX_VERSION,
        // With its sender: ids of two agents never meet.
        id: format!("{}/{}", owner.name, m.id),
        channel: PEER_CHANNEL.into(),
        from: owner.name.clone(),
        to: Some(m.to.clone()),
        subject: m.subject.clone(),
        body: m.body.clone(),
        conversation_id: None,
        peer: Some(path(&owner.namespace, &owner.name)),
        answers: None,
        attachments: vec![],
        payload: Some(json!({"hops": hops(m.payload_json.as_deref())})),
        at: row.created_at,
    };
    store.put_message(&message).await
}

fn sent(outcome: DeliveryOutcome, detail: &str) -> Sent {
    Sent { outcome, detail: Some(detail.to_owned()) }
}

fn path(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// How many messages between agents came one upon the other, this one included. Without a word on it a message
/// is taken for one at the bound: what it causes wakes nobody.
pub(crate) fn hops(payload_json: Option<&str>) -> u32 {
    let payload = payload_json.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let hops = payload.as_ref().and_then(|p| p["hops"].as_u64());
    hops.map_or(HOPS_MAX, |n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// The peer whom a message wakes: it has arrived, and is not one hop too far.
pub(crate) fn wakes(row: &OutboxRow, now: &OutboxUpdate) -> Option<String> {
    let m = &row.message;
    let wakes = m.channel == PEER_CHANNEL
        && now.state == OutboxState::Sent
        && hops(m.payload_json.as_deref()) <= HOPS_MAX;
    wakes.then(|| m.to.clone())
}

/// The agent that sent a message of the inbox, or None where a person did; `Err` says why nobody may read it.
pub(crate) fn sender(config: &PlanConfig, message: &InboxMessage) -> Result<Option<String>, String> {
    let by_channel = message.channel == PEER_CHANNEL;
    let Some(peer) = &message.peer else {
        return if by_channel {
            Err("it came by the channel of agents and names none".into())
        } else {
            Ok(None)
        };
    };
    let shown = cut(&printable(peer), 120);
    if path(&config.owner.namespace, &message.from) != *peer || !by_channel {
        return Err(format!("it says that it is of agent {shown} and contradicts itself"));
    }
    if message.answers.is_some() {
        return Err(format!("agent {shown} answers a question to a person"));
    }
    match config.peer(&message.from) {
        Some(known) => Ok(Some(known.name.clone())),
        None => Err(format!("spec.peers does not name its sender, agent {shown}")),
    }
}

#[cfg(test)]
mod tests {
    use cicada_contract::plan::{Executor, Owner, PlanPeer, SqlSource, StoreConfig};
    use jiff::Timestamp;

    use super::*;
    use crate::channel::tests;

    fn config() -> PlanConfig {
        let owner = Owner { namespace: "shop".into(), name: "editor".into(), ..Owner::default() };
        let store = StoreConfig::Directory { path: "/s".into(), claim_name: None };
        let mut config = PlanConfig::new(owner, store, Executor::Sql(SqlSource::Inline(String::new())));
        config.peers = vec![PlanPeer { name: "writer".into(), messages_per_day: 20 }];
        config
    }

    fn message() -> InboxMessage {
        InboxMessage {
            version: INBOX_VERSION,
            id: "writer/m-1".into(),
            channel: PEER_CHANNEL.into(),
            from: "writer".into(),
            to: Some("editor".into()),
            subject: None,
            body: "hello".into(),
            conversation_id: None,
            peer: Some("shop/writer".into()),
            answers: None,
            attachments: vec![],
            payload: None,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn only_agents_that_the_receiver_names_are_read() {
        let config = config();
        assert_eq!(sender(&config, &message()), Ok(Some("writer".into())));
        let person = InboxMessage { channel: "mail".into(), peer: None, ..message() };
        assert_eq!(sender(&config, &person), Ok(None));
        for wrong in [
            InboxMessage { from: "stranger".into(), peer: Some("shop/stranger".into()), ..message() },
            // Of another namespace, under the name of one that is known.
            InboxMessage { peer: Some("other/writer".into()), ..message() },
            InboxMessage { peer: Some("shop/stranger".into()), ..message() },
            InboxMessage { peer: None, ..message() },
            InboxMessage { channel: "mail".into(), ..message() },
            InboxMessage { answers: Some("h-1".into()), ..message() },
        ] {
            assert!(sender(&config, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_message_wakes_when_it_has_arrived_and_not_above_the_bound() {
        let row = |hops: u32| {
            let mut row = tests::row();
            (row.message.channel, row.message.to) = (PEER_CHANNEL.into(), "editor".into());
            row.message.payload_json = Some(json!({"hops": hops}).to_string());
            row
        };
        let now =
            |state| OutboxUpdate { id: "m-1".into(), state, attempts: Some(1), error: None, next_at: None };
        assert_eq!(wakes(&row(HOPS_MAX), &now(OutboxState::Sent)), Some("editor".into()));
        assert_eq!(wakes(&row(HOPS_MAX + 1), &now(OutboxState::Sent)), None);
        for state in [OutboxState::Pending, OutboxState::Failed, OutboxState::Unknown] {
            assert_eq!(wakes(&row(1), &now(state)), None);
        }
        assert_eq!(wakes(&tests::row(), &now(OutboxState::Sent)), None, "mail wakes no agent");
    }

    #[test]
    fn hops_of_strangers_are_never_too_few() {
        assert_eq!([hops(Some("{\"hops\": 3}")), hops(Some("{\"hops\": 99999999999}"))], [3, u32::MAX]);
        for odd in
            [None, Some("{}"), Some("[]"), Some("x"), Some("{\"hops\": -1}"), Some("{\"hops\": \"1\"}")]
        {
            assert_eq!(hops(odd), HOPS_MAX, "{odd:?}");
        }
    }
}
