//! deliver: messages leave only after the snapshot that contains them is current.
//!
//! For each: claim (created once), send, receipt. A pod that dies between claim and receipt leaves an
//! unknown outcome; only channels whose receivers remove duplicates by our key are then tried again.

use cicada_contract::report::Pending;
use cicada_memory::ledger::{OutboxRow, OutboxUpdate};
use cicada_store::{Delivery, DeliveryOutcome, Receipt, StoreError};
use jiff::{SignedDuration, Timestamp};

use crate::channel::{Channels, Sent};
use crate::context::Context;
use crate::phase::acquire::Claim;
use crate::phase::ingest::row_update;
use crate::shutdown::Stop;

/// Pauses before the next delivery, by number of tries; then every two hours.
const PAUSES: [SignedDuration; 3] =
    [SignedDuration::from_mins(1), SignedDuration::from_mins(5), SignedDuration::from_mins(30)];
const LAST_PAUSE: SignedDuration = SignedDuration::from_hours(2);
/// After this age a message is given up.
const GIVE_UP_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// Age from which a claim without a receipt counts as unknown: longer than any channel's own time-out.
const CLAIM_UNKNOWN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Sends what waits. A message that can't be sent now stays for the next delivery; nothing here fails a cycle.
pub async fn deliver(cx: &Context, claim: &Claim, outbox: &[OutboxRow]) -> Pending {
    let channels = Channels::open(cx);
    let mut waiting = vec![];
    for row in outbox {
        if cx.shutdown.requested() == Some(Stop::Signal) {
            waiting.push(row.next_at.unwrap_or_else(|| cx.now()));
            continue;
        }
        match deliver_one(cx, claim, &channels, row).await {
            Ok(Some(next)) => waiting.push(next),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    message_id = row.message.id,
                    error = crate::failure::chain(&error),
                    "could not deliver"
                );
                waiting.push(cx.now() + PAUSES[0]);
            }
        }
    }
    Pending {
        // What this cycle took in is removed by the next one; it waits for nothing.
        inbox: 0,
        outbox: u32::try_from(waiting.len()).unwrap_or(u32::MAX),
        next_delivery: waiting.iter().min().map(|t| t.as_second()),
    }
}

/// One message: when it wants to be tried again, or None when it is settled.
async fn deliver_one(
    cx: &Context,
    claim: &Claim,
    channels: &Channels<'_>,
    row: &OutboxRow,
) -> Result<Option<Timestamp>, StoreError> {
    let now = cx.now();
    if let Some(next) = row.next_at.filter(|next| *next > now) {
        return Ok(Some(next));
    }
    let id = &row.message.id;
    let Some(own) = claim.store.claim(id, &cx.plan.run.cycle, claim.attempt(), now).await? else {
        return Ok(Some(now + PAUSES[0]));
    };
    let Sent { outcome, detail } = channels.send(row).await;
    let outcome = given_up(outcome, row.created_at, cx.now());
    let receipt = Receipt { number: own.number, outcome, detail, at: cx.now() };
    claim.store.receipt(id, &receipt).await?;
    tracing::info!(message_id = id, channel = row.message.channel, outcome = ?outcome, "message delivered");
    Ok((outcome == DeliveryOutcome::Deferred).then(|| next_try(own.number, cx.now())))
}

/// A message that was deferred for a day has failed.
fn given_up(outcome: DeliveryOutcome, created_at: Timestamp, now: Timestamp) -> DeliveryOutcome {
    match outcome {
        DeliveryOutcome::Deferred if now.duration_since(created_at) > GIVE_UP_AFTER => {
            DeliveryOutcome::Failed
        }
        other => other,
    }
}

fn next_try(tries: u32, now: Timestamp) -> Timestamp {
    let index = usize::try_from(tries.saturating_sub(1)).unwrap_or(usize::MAX);
    now + PAUSES.get(index).copied().unwrap_or(LAST_PAUSE)
}

/// What a receipt means for the ledger's row. `resend` tells whether the channel's receiver removes
/// duplicates: then an unknown outcome is tried again, else it stays unknown and the agent is told.
pub(crate) fn update(id: String, delivery: &Delivery, resend: bool, now: Timestamp) -> Option<OutboxUpdate> {
    let (_, newest) = delivery.claims.last_key_value()?;
    let (outcome, detail) = match delivery.receipts.get(&newest.number) {
        Some(receipt) => (receipt.outcome, receipt.detail.clone()),
        // Younger: its pod may still be sending.
        None if now.duration_since(newest.at) < CLAIM_UNKNOWN_AFTER => return None,
        None => (DeliveryOutcome::Unknown, None),
    };
    let outcome =
        if outcome == DeliveryOutcome::Unknown && resend { DeliveryOutcome::Deferred } else { outcome };
    let next_at = (outcome == DeliveryOutcome::Deferred).then(|| next_try(newest.number, newest.at));
    Some(row_update(id, newest.number, outcome, detail, next_at))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cicada_memory::ledger::OutboxState;

    use super::*;

    fn delivery(receipt: Option<DeliveryOutcome>) -> Delivery {
        let at = Timestamp::UNIX_EPOCH;
        let claim = cicada_store::Claim { number: 2, cycle: Default::default(), attempt: 1, at };
        let receipts = receipt.map(|outcome| (2, Receipt { number: 2, outcome, detail: None, at }));
        Delivery { claims: BTreeMap::from([(2, claim)]), receipts: receipts.into_iter().collect() }
    }

    #[test]
    fn an_unknown_outcome_is_sent_again_only_where_receivers_remove_duplicates() {
        let later = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(11);
        let state = |resend| update("m".into(), &delivery(None), resend, later).unwrap().state;
        assert_eq!(state(true), OutboxState::Pending);
        assert_eq!(state(false), OutboxState::Unknown);
    }

    #[test]
    fn a_young_claim_is_left_to_its_pod() {
        let soon = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(9);
        assert_eq!(update("m".into(), &delivery(None), true, soon), None);
    }

    #[test]
    fn a_deferred_message_fails_after_a_day() {
        let start = Timestamp::UNIX_EPOCH;
        assert_eq!(
            given_up(DeliveryOutcome::Deferred, start, start + SignedDuration::from_hours(23)),
            DeliveryOutcome::Deferred
        );
        assert_eq!(
            given_up(DeliveryOutcome::Deferred, start, start + SignedDuration::from_hours(25)),
            DeliveryOutcome::Failed
        );
    }

    #[test]
    fn pauses_grow_to_two_hours() {
        let pause = |tries| next_try(tries, Timestamp::UNIX_EPOCH).as_second() / 60;
        assert_eq!([1, 2, 3, 4, 9].map(pause), [1, 5, 30, 120, 120]);
    }
}
