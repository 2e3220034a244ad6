//! Messages on their way out: who claimed one, and what became of it.
//!
//! A claim is created before a message is sent and a receipt after, both once. So two pods never send by
//! the same claim, and a claim without a receipt is known to have an unknown outcome.

use std::collections::BTreeMap;

use bytes::Bytes;
use cicada_contract::plan::CycleIdentity;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    agent_store::AgentStore,
    store::{Condition, Result, StoreError},
};

const OUTBOX: &str = "outbox/";

/// The right to send one message once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// 1 for the first.
    pub number: u32,
    /// Who sends.
    pub cycle: CycleIdentity,
    /// Its attempt.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// Of which claim.
    pub number: u32,
    /// How it ended.
    pub outcome: DeliveryOutcome,
    /// The channel's words, short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// Age from which a claim without a receipt counts as unknown: longer than any channel's own time-out.
pub const CLAIM_UNKNOWN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryOutcome {
    /// The receiver took it.
    Sent,
    /// It certainly was not taken; trying again may help.
    Deferred,
    /// It certainly was not taken; trying again won't help.
    Failed,
    /// It may have been taken.
    Unknown,
}

/// What the store knows of one outgoing message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delivery {
    /// Claims by number.
    pub claims: BTreeMap<u32, Claim>,
    /// Receipts by number.
    pub receipts: BTreeMap<u32, Receipt>,
}

impl Delivery {
    /// Number of the claim that would be the next one.
    pub fn next_number(&self) -> u32 {
        self.claims.last_key_value().map_or(1, |(number, _)| number.saturating_add(1))
    }

    /// The newest claim, if it has no receipt.
    pub fn open_claim(&self) -> Option<&Claim> {
        self.claims
            .last_key_value()
            .map(|(_, claim)| claim)
            .filter(|claim| !self.receipts.contains_key(&claim.number))
    }
}

impl AgentStore {
    /// Claims delivery `number` of message `id` (the ledger's); None if another pod was faster. `number` is one
    /// more than the claims that the decision to send has seen: who counted anew here would claim, and send,
    /// beside a pod that claimed after that decision.
    pub async fn claim(
        &self,
        id: &str,
        number: u32,
        cycle: &CycleIdentity,
        attempt: u32,
        now: Timestamp,
    ) -> Result<Option<Claim>> {
        let key = self.key(&format!("{OUTBOX}{id}/claim-{number}"));
        let claim = Claim { number, cycle: cycle.clone(), attempt, at: now };
        let bytes = Bytes::from(serde_json::to_vec(&claim).unwrap_or_default());
        match self.store().put(&key, bytes, Condition::Create).await {
            Ok(_) => Ok(Some(claim)),
            Err(StoreError::AlreadyExists { .. }) => Ok(None),
            // If it landed after all, it is a claim without a receipt: unknown, which is the truth.
            Err(error) => Err(error),
        }
    }

    /// Records what became of a claim. The first receipt of a claim stands.
    pub async fn receipt(&self, id: &str, receipt: &Receipt) -> Result<()> {
        let key = self.key(&format!("{OUTBOX}{id}/receipt-{}", receipt.number));
        let bytes = Bytes::from(serde_json::to_vec(receipt).unwrap_or_default());
        match self.store().put(&key, bytes, Condition::Create).await {
            Ok(_) | Err(StoreError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Everything that the store knows of outgoing messages, by message id.
    pub async fn list_outbox(&self) -> Result<BTreeMap<String, Delivery>> {
        let mut found: BTreeMap<String, Delivery> = BTreeMap::new();
        for object in self.store().list(&self.key(OUTBOX)).await? {
            let Some((id, name)) =
                self.relative(&object.key).strip_prefix(OUTBOX).and_then(|rest| rest.rsplit_once('/'))
            else {
                continue;
            };
            let bytes = match self.store().get(&object.key).await {
                Ok(object) => object.bytes,
                Err(StoreError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            let delivery = found.entry(id.to_owned()).or_default();
            let damaged =
                |_| StoreError::Corrupt { key: object.key.clone(), what: "it can't be decoded".into() };
            if name.starts_with("claim-") {
                let claim: Claim = serde_json::from_slice(&bytes).map_err(damaged)?;
                delivery.claims.insert(claim.number, claim);
            } else if name.starts_with("receipt-") {
                let receipt: Receipt = serde_json::from_slice(&bytes).map_err(damaged)?;
                delivery.receipts.insert(receipt.number, receipt);
            }
        }
        Ok(found)
    }

    /// Removes claims and receipts of a message whose outcome the ledger has in a published snapshot.
    pub async fn delete_outbox(&self, id: &str) -> Result<()> {
        let objects = self.store().list(&self.key(&format!("{OUTBOX}{id}/"))).await?;
        // Receipts first: a claim alone reads as "unknown", a receipt alone as nothing.
        for object in objects.iter().rev() {
            self.store().delete(&object.key).await?;
        }
        Ok(())
    }
}
