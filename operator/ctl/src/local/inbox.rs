//! What arrives in an agent's inbox while `local` runs starts a cycle, as `send` does in a cluster.

use std::collections::BTreeSet;

use cicada_crds::AgentCycle;
use cicada_crds::cycle::TriggerKind;
use cicada_store::AgentStore;

use super::world::World;
use crate::commands::messages::{message_cycle, wakes};
use crate::output;

/// What was seen of one agent's inbox.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// None before the first look.
    seen: Option<BTreeSet<String>>,
    store: Option<AgentStore>,
}

impl Inbox {
    /// Cycles for what is new.
    pub(super) async fn look(&mut self, world: &World) -> anyhow::Result<Vec<AgentCycle>> {
        let store = match &self.store {
            Some(store) => store.clone(),
            None => self.store.insert(world.open_store().await?).clone(),
        };
        let mut entries = store.list_inbox().await?;
        let first = self.seen.is_none();
        let seen = self.seen.get_or_insert_default();
        let all: BTreeSet<String> = entries.iter().map(|e| e.hash.clone()).collect();
        entries.retain(|entry| !seen.contains(&entry.hash));
        *seen = all;
        if first && !entries.is_empty() {
            // A message is removed by the cycle after the one that took it in. What is older than the current
            // snapshot was most likely read by then.
            let head = store.read_head().await?.map(|at| at.head);
            let current = head.as_ref().and_then(|h| h.current()).map(|s| s.created_at);
            entries.retain(|entry| current.is_none_or(|created| entry.modified > created));
        }
        let mut cycles = vec![];
        for entry in entries {
            let kind = match store.get_inbox(&entry).await {
                // The end of its sender's cycle wakes this agent, if anything does.
                Ok(message) if message.peer.is_some() => continue,
                Ok(message) if message.answers.is_some() => TriggerKind::HumanReply,
                Ok(message) if !wakes(&world.agent.spec, &message.channel, &message.from) => {
                    output::note(&format!(
                        "{}: a message of {} ({}) waits for the next cycle: the sender is no contact, see spec.inbound",
                        world.path(),
                        message.from,
                        message.channel
                    ));
                    continue;
                }
                Ok(_) => TriggerKind::Message,
                // The next cycle puts it into quarantine.
                Err(_) => continue,
            };
            cycles.push(message_cycle(world.name(), &entry.hash, kind));
        }
        Ok(cycles)
    }
}
