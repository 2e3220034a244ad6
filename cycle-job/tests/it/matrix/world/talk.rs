//! What an agent has said to its peer and heard from it, by its own current ledger and the store.

use std::collections::{BTreeMap, BTreeSet};

use cicada_contract::plan::Mode;
use cicada_store::{Condition, DeliveryOutcome};
use serde_json::Value;

use super::check::sqlite;
use super::{Ended, World};

/// A message to the peer.
#[derive(Debug)]
pub(in crate::matrix) struct Said {
    pub(in crate::matrix) id: String,
    pub(in crate::matrix) hops: u64,
    /// Day on which it was written.
    pub(in crate::matrix) day: String,
    /// The ledger or a receipt says that it has arrived.
    pub(in crate::matrix) is_sent: bool,
    /// The ledger says it.
    pub(in crate::matrix) is_settled: bool,
}

/// Messages of the peer, by their text.
#[derive(Debug, Default)]
pub(in crate::matrix) struct Heard {
    /// In the ledger, with their hops.
    pub(in crate::matrix) taken_in: BTreeMap<String, u64>,
    /// In the inbox.
    pub(in crate::matrix) waiting: BTreeSet<String>,
}

impl Heard {
    pub(in crate::matrix) fn has(&self, body: &str) -> bool {
        self.taken_in.contains_key(body) || self.waiting.contains(body)
    }
}

impl World {
    /// Rows of a query on the current ledger.
    async fn ledger(&self, sql: &str) -> Vec<Value> {
        let Some(head) = self.head().await else { return vec![] };
        let Some(archive) = head.current().and_then(|s| s.ledger.as_ref()) else { return vec![] };
        let file = self.unpack(archive).await;
        // One JSON object for each row.
        sqlite(&file, sql).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What it has said to its peer.
    pub(in crate::matrix) async fn said(&self) -> BTreeMap<String, Said> {
        let sql = "SELECT json_object('id', m.message_id, 'body', m.body, 'hops', m.payload_json ->> '$.hops', \
                   'day', substr(m.timestamp, 1, 10), 'state', o.state) FROM messages m JOIN outbox o USING (message_id) \
                   WHERE m.channel = 'Peer'";
        let known = self.direct.list_outbox().await.unwrap();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        let said = |row: &Value| {
            let id = text(row, "id");
            let is_sent = |r: &cicada_store::Receipt| r.outcome == DeliveryOutcome::Sent;
            let has_receipt = known.get(&id).is_some_and(|d| d.receipts.values().any(is_sent));
            let is_settled = row["state"] == "sent";
            let said = Said {
                id,
                hops: row["hops"].as_u64().unwrap(),
                day: text(row, "day"),
                is_sent: is_settled || has_receipt,
                is_settled,
            };
            (text(row, "body"), said)
        };
        self.ledger(sql).await.iter().map(said).collect()
    }

    /// What it has heard from its peer. Each message is in its ledger once.
    pub(in crate::matrix) async fn heard(&self) -> Heard {
        let sql = "SELECT json_object('body', body, 'hops', payload_json ->> '$.hops', 'times', count(*)) FROM messages \
                   WHERE direction = 'in' AND channel = 'Peer' GROUP BY body";
        let mut heard = Heard::default();
        for row in self.ledger(sql).await {
            assert_eq!(row["times"], 1, "{row} was taken in more than once");
            heard.taken_in.insert(row["body"].as_str().unwrap().to_owned(), row["hops"].as_u64().unwrap());
        }
        for entry in self.direct.list_inbox().await.unwrap() {
            let message = self.direct.get_inbox(&entry).await.unwrap();
            heard.waiting.extend(message.peer.is_some().then_some(message.body));
        }
        heard
    }

    /// Lets claims of messages to its peer look old enough for another try, and delivers.
    pub(in crate::matrix) async fn deliver_to_peer(&mut self, disturbed: usize) {
        if self.head().await.is_none() {
            return;
        }
        let ids: Vec<String> = self.said().await.into_values().map(|said| said.id).collect();
        for id in ids {
            let prefix = self.direct.key(&format!("outbox/{id}/"));
            for object in self.direct.store().list(&prefix).await.unwrap() {
                let bytes = self.direct.store().get(&object.key).await.unwrap().bytes;
                let mut value: Value = serde_json::from_slice(&bytes).unwrap();
                let at: jiff::Timestamp = value["at"].as_str().unwrap().parse().unwrap();
                value["at"] = (at - jiff::SignedDuration::from_mins(11)).to_string().into();
                let aged = value.to_string().into();
                self.direct.store().put(&object.key, aged, Condition::Any).await.unwrap();
            }
        }
        let run = self.agent.next_job(Mode::Delivery);
        let ended = self.cycle(&run, disturbed).await;
        self.settle_wire().await;
        assert!(disturbed > 0 || matches!(ended, Ended::Done));
        self.check().await;
    }

    /// Whom this agent must have noted in its memory.
    pub(in crate::matrix) fn must_note(&mut self, bodies: impl IntoIterator<Item = String>) {
        self.promised.extend(bodies);
    }
}
