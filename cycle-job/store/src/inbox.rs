//! Messages on their way in: one object each, created once, until a later cycle has restored the snapshot
//! that took it in.

use bytes::Bytes;
use cicada_contract::attachment::{Attachment, attachments_problem};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    agent_store::AgentStore,
    store::{Condition, Result, StoreError},
};

/// Version of the objects.
pub const INBOX_VERSION: u32 = 1;
/// Largest object that is read as a message, bytes: the largest body with room for attachments' names.
pub const INBOX_MAX_BYTES: u64 = 1 << 20;
const INBOX: &str = "inbox/";
const QUARANTINE: &str = "quarantine/inbox/";

/// A message as it lies in the inbox. All text in it is the sender's and is trusted by nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxMessage {
    /// [`INBOX_VERSION`].
    pub version: u32,
    /// The sender's own id of the message; with the channel it makes the key, so a repeat is one message.
    pub id: String,
    /// Channel it came by.
    pub channel: String,
    /// Sender's address on it.
    pub from: String,
    /// Address it was sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Text.
    #[serde(default)]
    pub body: String,
    /// Conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// `namespace/name` of the agent that sent it. Whoever may write to the store can claim it: the receiver
    /// reads only what agents send that its manifest names, and as a stranger's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Id of the human request that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<String>,
    /// Files that came with it: names, types and sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The channel's own data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<serde_json::Value>,
    /// When it was accepted.
    pub at: Timestamp,
}

/// One object of the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEntry {
    /// Its name: hash of channel and id.
    pub hash: String,
    /// Bytes.
    pub size: u64,
    /// When it was put in, by the store's clock.
    pub modified: Timestamp,
}

/// Why an object of the inbox could not be read as a message.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// It never will be: quarantine it.
    #[error("inbox object {hash} is no message: {why}")]
    Poison {
        /// Its name.
        hash: String,
        /// What is wrong with it; holds nothing of its content.
        why: String,
    },
    /// The store failed.
    #[error("could not read the inbox")]
    Store(#[from] StoreError),
}

impl InboxError {
    /// True if the same call may work later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}

impl InboxMessage {
    /// Name of its object: lower-case hexadecimal SHA-256 of channel and id, each with its length, so
    /// that no two pairs meet.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        for part in [&self.channel, &self.id] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hex::encode(hash.finalize())
    }
}

impl AgentStore {
    /// Puts a message in; durable when it returns. False if it was there already.
    pub async fn put_message(&self, message: &InboxMessage) -> Result<bool> {
        let bytes = serde_json::to_vec(message).unwrap_or_default();
        let key = self.key(&format!("{INBOX}{}.json", message.hash()));
        if bytes.len() as u64 > INBOX_MAX_BYTES {
            return Err(StoreError::TooLarge { key, limit: INBOX_MAX_BYTES });
        }
        match self.store().put(&key, Bytes::from(bytes), Condition::Create).await {
            Ok(_) => Ok(true),
            // By an earlier try of this sender, or another: the same message by the key's making.
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What is in the inbox, oldest first by the store's clock.
    pub async fn list_inbox(&self) -> Result<Vec<InboxEntry>> {
        let objects = self.store().list(&self.key(INBOX)).await?;
        let mut entries: Vec<_> = objects
            .into_iter()
            .filter_map(|object| {
                let name = self.relative(&object.key).strip_prefix(INBOX)?;
                // An object by another name is quarantined by that name.
                let hash = name.strip_suffix(".json").unwrap_or(name).to_owned();
                Some(InboxEntry { hash, size: object.size, modified: object.modified })
            })
            .collect();
        entries.sort_by(|a, b| (a.modified, &a.hash).cmp(&(b.modified, &b.hash)));
        Ok(entries)
    }

    /// Reads one message.
    pub async fn get_inbox(&self, entry: &InboxEntry) -> Result<InboxMessage, InboxError> {
        let poison = |why: String| InboxError::Poison { hash: entry.hash.clone(), why };
        if entry.size > INBOX_MAX_BYTES {
            return Err(poison(format!("{} bytes are more than {INBOX_MAX_BYTES}", entry.size)));
        }
        let object = self.store().get(&self.inbox_key(&entry.hash)).await?;
        let message: InboxMessage = serde_json::from_slice(&object.bytes)
            .map_err(|error| poison(format!("it can't be decoded ({:?} error)", error.classify())))?;
        if message.version != INBOX_VERSION {
            return Err(poison(format!("version {} is not known", message.version)));
        }
        if message.hash() != entry.hash {
            return Err(poison("its name does not belong to its channel and id".into()));
        }
        if let Some(problem) = attachments_problem(&message.attachments) {
            return Err(poison(problem));
        }
        Ok(message)
    }

    /// Removes a message that was taken in. Not an error if it is gone.
    pub async fn delete_inbox(&self, hash: &str) -> Result<()> {
        self.store().delete(&self.inbox_key(hash)).await
    }

    /// Moves an object that is no message out of the way, byte for byte; gives its new key below the
    /// agent's prefix. Of one above 32 MiB only a note is kept.
    pub async fn quarantine(&self, hash: &str) -> Result<String> {
        let from = self.inbox_key(hash);
        let bytes = match self.store().get(&from).await {
            Ok(object) => object.bytes,
            Err(StoreError::TooLarge { limit, .. }) => Bytes::from(format!("more than {limit} bytes")),
            Err(error) => return Err(error),
        };
        let target = format!("{QUARANTINE}{hash}.json");
        // A second pod may be doing the same; both write the same bytes.
        self.store().put(&self.key(&target), bytes, Condition::Any).await?;
        self.store().delete(&from).await?;
        Ok(target)
    }

    fn inbox_key(&self, hash: &str) -> String {
        self.key(&format!("{INBOX}{hash}.json"))
    }
}
