//! ingest: what arrived since goes into the ledger, each message once by its id.
//!
//! An inbox object is removed only when the snapshot that this cycle restored has it already: until then
//! a lost snapshot could still need it. An object that can't be read as a message goes to quarantine;
//! what strangers send never fails a cycle.

use std::collections::BTreeSet;

use cicada_contract::FailureClass;
use cicada_contract::attachment::Attachment;
use cicada_contract::plan::{PEER_CHANNEL, PlanMessage};
use cicada_memory::ledger::{BeginCycle, HumanAnswer, IncomingMessage, OutboxState};
use cicada_memory::{LedgerWorker, MemoryWorker, WorkerError};
use cicada_store::{InboxEntry, InboxError, InboxMessage, StoreError};
use jiff::Timestamp;
use tokio::task::block_in_place;

use crate::channel::{Channels, peer};
use crate::context::Context;
use crate::failure::{Classified, Failure, worker_class};
use crate::phase::acquire::{Claim, store_class};
use crate::phase::deliver::update;
use crate::phase::restore::Restored;

/// The ledger knows all that had arrived.
pub struct Ingested {
    pub(crate) memory: MemoryWorker,
    pub(crate) ledger: LedgerWorker,
    pub(crate) warnings: Vec<String>,
}

/// Why the ledger could not take it in.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The inbox could not be read.
    #[error("could not read the inbox")]
    Store(#[from] StoreError),
    /// The ledger could not be written.
    #[error("could not write what arrived into the ledger")]
    Engine(#[from] WorkerError),
}

impl Classified for IngestError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Store(e) => store_class(e),
            Self::Engine(e) => worker_class(e, FailureClass::IngestFailed),
        }
    }
}

/// Takes in inbox, the cycle's own messages and delivery receipts.
pub async fn ingest(cx: &Context, claim: &Claim, restored: Restored) -> Result<Ingested, Failure> {
    let Restored { memory, mut ledger } = restored;
    let warnings = try_ingest(cx, claim, &mut ledger).await?;
    Ok(Ingested { memory, ledger, warnings })
}

async fn try_ingest(
    cx: &Context,
    claim: &Claim,
    ledger: &mut LedgerWorker,
) -> Result<Vec<String>, IngestError> {
    let now = cx.now();
    block_in_place(|| ledger.begin_cycle(&begin(cx, claim, now)))?;
    let mut warnings = vec![];
    let entries = claim.store.list_inbox().await?;
    let known = block_in_place(|| known_ids(ledger, &entries))?;
    let (mut messages, mut answers) = (vec![], vec![]);
    for entry in &entries {
        if known.contains(&entry.hash) {
            claim.store.delete_inbox(&entry.hash).await?;
            continue;
        }
        match claim.store.get_inbox(entry).await {
            Ok(message) => match peer::sender(&cx.plan.config, &message) {
                Ok(peer) => sort(cx, entry, message, peer, &mut messages, &mut answers),
                Err(why) => {
                    let key = claim.store.quarantine(&entry.hash).await?;
                    warnings.push(format!("a message was not read: {why}; it is now {key}"));
                }
            },
            Err(InboxError::Poison { why, .. }) => {
                let key = claim.store.quarantine(&entry.hash).await?;
                warnings.push(format!("an inbox object is no message ({why}); it is now {key}"));
            }
            // Another pod was faster with it.
            Err(InboxError::Store(StoreError::NotFound { .. })) => {}
            Err(InboxError::Store(error)) => return Err(error.into()),
        }
    }
    messages.extend(cx.plan.run.messages.iter().map(|m| from_plan(cx, m)));
    let taken = block_in_place(|| {
        let mut report = ledger.ingest(&messages, now)?;
        report.warnings.extend(ledger.answer_requests(&answers, now)?.warnings);
        Ok::<_, WorkerError>(report)
    })?;
    warnings.extend(taken.warnings);
    let run = &cx.plan.run;
    let decided =
        block_in_place(|| ledger.decide_proposals(&run.approvals, &cx.plan.config, &run.cycle.name, now))?;
    decided.iter().for_each(|line| tracing::info!("{line}"));
    receipts(cx, claim, ledger, now).await?;
    Ok(warnings)
}

pub(crate) fn begin(cx: &Context, claim: &Claim, now: Timestamp) -> BeginCycle {
    let run = &cx.plan.run;
    BeginCycle {
        cycle: run.cycle.name.clone(),
        uid: run.cycle.uid.clone(),
        attempt: claim.attempt(),
        epoch: claim.writer.epoch(),
        triggers_json: serde_json::to_string(&run.triggers).unwrap_or_default(),
        at: now,
    }
}

/// Which of these the restored ledger has, as a message or as an answer. Names of objects are checked to be hashes
/// before they become SQL.
fn known_ids(ledger: &mut LedgerWorker, entries: &[InboxEntry]) -> Result<BTreeSet<String>, WorkerError> {
    let mut known = BTreeSet::new();
    let hashes: Vec<&str> = entries
        .iter()
        .map(|e| e.hash.as_str())
        .filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()))
        .collect();
    for chunk in hashes.chunks(500) {
        let ids = chunk.iter().flat_map(|h| ["message", "answer"].map(|kind| format!("'{kind}:{h}'")));
        let list = ids.collect::<Vec<_>>().join(",");
        let rows = ledger.query(&format!("SELECT id FROM ingested WHERE id IN ({list})"), 2 * chunk.len())?;
        let ids = rows.rows.iter().filter_map(|r| r.first()?.as_str()?.split_once(':'));
        known.extend(ids.map(|(_, hash)| hash.to_owned()));
    }
    Ok(known)
}

fn sort(
    cx: &Context,
    entry: &InboxEntry,
    message: InboxMessage,
    peer_agent: Option<String>,
    messages: &mut Vec<IncomingMessage>,
    answers: &mut Vec<HumanAnswer>,
) {
    if let Some(request) = message.answers {
        answers.push(HumanAnswer { id: entry.hash.clone(), request, answer: message.body, at: message.at });
        return;
    }
    messages.push(IncomingMessage {
        id: entry.hash.clone(),
        channel: message.channel,
        from: message.from,
        to: message.to,
        conversation: message.conversation_id,
        peer_agent,
        subject: message.subject,
        body: message.body,
        attachments_json: json(&message.attachments),
        payload_json: message.payload.map(|p| p.to_string()),
        at: message.at,
        cycle: cx.plan.run.cycle.name.clone(),
    });
}

/// As the ledger and `__messages` have them.
fn json(attachments: &[Attachment]) -> Option<String> {
    (!attachments.is_empty()).then(|| serde_json::to_string(attachments).unwrap_or_default())
}

fn from_plan(cx: &Context, message: &PlanMessage) -> IncomingMessage {
    IncomingMessage {
        id: message.id.clone(),
        // A person's words don't come by the channel of agents, whatever their cycle says.
        channel: Some(message.channel.clone())
            .filter(|c| c != PEER_CHANNEL)
            .unwrap_or_else(|| "cycle".into()),
        from: message.from.clone(),
        to: None,
        conversation: None,
        peer_agent: None,
        subject: message.subject.clone(),
        body: message.body.clone(),
        attachments_json: json(&message.attachments),
        payload_json: None,
        at: message.at,
        cycle: cx.plan.run.cycle.name.clone(),
    }
}

/// Takes receipts of earlier deliveries in; what the restored ledger has settled is removed from the store.
/// Gives the number of messages that are settled by them. Call it once for a restored ledger: what a second
/// call would find settled is not yet in any snapshot.
pub(crate) async fn receipts(
    cx: &Context,
    claim: &Claim,
    ledger: &mut LedgerWorker,
    now: Timestamp,
) -> Result<usize, IngestError> {
    let deliveries = claim.store.list_outbox().await?;
    if deliveries.is_empty() {
        return Ok(0);
    }
    let channels = Channels::open(cx, &claim.store);
    let pending = block_in_place(|| ledger.pending_outgoing())?;
    let ids: Vec<String> = deliveries.keys().cloned().collect();
    // A message that this ledger does not know at all is of a later snapshot: a pod that stood still until
    // others went on must not take away what they claimed.
    for id in block_in_place(|| ledger.settled_outgoing(&ids))? {
        claim.store.delete_outbox(&id).await?;
    }
    let mut updates = vec![];
    for (id, delivery) in deliveries {
        let row = pending.iter().find(|row| row.message.id == id);
        updates.extend(
            row.and_then(|row| {
                update(row, &delivery, channels.removes_duplicates(&row.message.channel), now)
            }),
        );
    }
    block_in_place(|| ledger.update_outgoing(&updates, now))?;
    Ok(updates.iter().filter(|u| u.state != OutboxState::Pending).count())
}
