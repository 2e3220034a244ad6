//! Channels: how a message leaves. Each kind is one file; what they share is [`Sent`].

mod console;
mod email;
pub(crate) mod peer;
pub mod webhook;

use cicada_contract::plan::{Channel, PEER_CHANNEL, SecretRef};
use cicada_memory::ledger::OutboxRow;
use cicada_store::{AgentStore, DeliveryOutcome};

use crate::context::Context;
use crate::secrets::{SecretError, SecretText};

/// What became of one try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// How it ended.
    pub outcome: DeliveryOutcome,
    /// The channel's words, short; never the message or an address.
    pub detail: Option<String>,
}

/// The channels of one agent.
pub struct Channels<'c> {
    cx: &'c Context,
    /// The agent's own part of the store, in which its peers have theirs.
    store: &'c AgentStore,
}

impl<'c> Channels<'c> {
    /// The channels of the plan.
    pub fn open(cx: &'c Context, store: &'c AgentStore) -> Self {
        Self { cx, store }
    }

    /// Sends one message once.
    pub async fn send(&self, row: &OutboxRow) -> Sent {
        if row.message.channel == PEER_CHANNEL {
            return peer::send(self.cx, self.store, row).await;
        }
        let Some(channel) = self.cx.plan.config.channels.get(&row.message.channel) else {
            return Sent {
                outcome: DeliveryOutcome::Failed,
                detail: Some("the manifest has no such channel".into()),
            };
        };
        // A key that is missing today may be there tomorrow.
        self.send_by(channel, row).await.unwrap_or_else(|error| Sent {
            outcome: DeliveryOutcome::Deferred,
            detail: Some(error.to_string()),
        })
    }

    async fn send_by(&self, channel: &Channel, row: &OutboxRow) -> Result<Sent, SecretError> {
        let owner = &self.cx.plan.config.owner;
        let agent = format!("{}/{}", owner.namespace, owner.name);
        Ok(match channel {
            Channel::Console {} => console::send(row),
            Channel::Webhook { url, signing_key } => {
                let key = self.secret(signing_key.as_ref())?;
                webhook::send(url, key.as_ref(), &agent, row, self.cx.now()).await
            }
            Channel::Email { server, from, username, password } => {
                let login = self.secret(username.as_ref())?.zip(self.secret(password.as_ref())?);
                email::send(&email::Server { url: server, from, login }, &agent, row).await
            }
        })
    }

    fn secret(&self, reference: Option<&SecretRef>) -> Result<Option<SecretText>, SecretError> {
        reference.map(|r| self.cx.secrets.get(r)).transpose()
    }

    /// True if the channel's receiver removes duplicates by our key, so that sending again is safe.
    pub fn removes_duplicates(&self, channel: &str) -> bool {
        channel == PEER_CHANNEL
            || matches!(
                self.cx.plan.config.channels.get(channel),
                Some(Channel::Webhook { .. } | Channel::Email { .. })
            )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use cicada_memory::ledger::OutgoingMessage;
    use jiff::Timestamp;

    use super::*;
    use crate::secrets::Secrets;

    pub(crate) fn row() -> OutboxRow {
        OutboxRow {
            message: OutgoingMessage {
                id: "m-1".into(),
                channel: "mail".into(),
                to: "sales@example.org".into(),
                subject: Some("Price drop".into()),
                body: "Milk fell by 12 %.\nBuy.".into(),
                conversation: None,
                attachments_json: None,
                payload_json: None,
                cycle: "price-watch-1".into(),
            },
            attempts: 0,
            created_at: Timestamp::from_second(1_764_547_200).unwrap(),
            next_at: None,
        }
    }

    pub(crate) fn secret(value: &str) -> SecretText {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("s")).unwrap();
        std::fs::write(dir.path().join("s/k"), value).unwrap();
        Secrets::new(Some(dir.path().to_owned()), "shop")
            .get(&SecretRef { name: "s".into(), key: "k".into() })
            .unwrap()
    }
}
