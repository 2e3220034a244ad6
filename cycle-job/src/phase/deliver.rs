//! deliver: messages leave only after the snapshot that contains them is current.
//!
//! For each: claim (created once), send, receipt. A pod that dies between claim and receipt leaves an
//! unknown outcome; only channels whose receivers remove duplicates by our key are then tried again.

use std::collections::BTreeSet;

use cicada_contract::report::Pending;
use cicada_memory::ledger::{OutboxRow, OutboxState, OutboxUpdate};
use cicada_store::{CLAIM_UNKNOWN_AFTER, Delivery, DeliveryOutcome, ReadHeadError, Receipt, StoreError};
use jiff::{SignedDuration, Timestamp};

use crate::channel::{Channels, Sent, peer};
use crate::context::Context;
use crate::phase::acquire::Claim;
use crate::shutdown::Stop;

/// Pauses before the next delivery, by number of tries; then every two hours.
const PAUSES: [SignedDuration; 3] =
    [SignedDuration::from_mins(1), SignedDuration::from_mins(5), SignedDuration::from_mins(30)];
const LAST_PAUSE: SignedDuration = SignedDuration::from_hours(2);
/// After this age a message is given up.
const GIVE_UP_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// What a delivery did.
#[derive(Debug, Default)]
pub struct Delivered {
    /// What still waits, and what was given up.
    pub pending: Pending,
    /// Peers whom a message wakes that has arrived, each once.
    pub wakes: BTreeSet<String>,
    /// What is now known of each message, for the ledger. The next ingest would find out the same.
    pub outcomes: Vec<OutboxUpdate>,
}

/// Sends what waits. A message that can't be sent now stays for the next delivery; nothing here fails a cycle.
pub async fn deliver(cx: &Context, claim: &Claim, outbox: &[OutboxRow]) -> Delivered {
    let mut done = Delivered::default();
    if outbox.is_empty() {
        return done;
    }
    let mut waiting = vec![];
    match claim.store.list_outbox().await {
        Ok(known) => {
            let channels = Channels::open(cx, &claim.store);
            for row in outbox {
                let delivery = known.get(&row.message.id).cloned().unwrap_or_default();
                waiting.extend(one(cx, claim, &channels, row, delivery, &mut done).await);
            }
        }
        // Without knowing what was sent before, nothing is sent.
        Err(error) => {
            tracing::warn!(error = crate::failure::chain(&error), "could not read claims and receipts");
            waiting = vec![cx.now() + PAUSES[0]; outbox.len()];
        }
    }
    // What this cycle took in is removed by the next one; it waits for nothing.
    done.pending.outbox = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    done.pending.next_delivery = waiting.iter().min().map(|t| t.as_second());
    done
}

/// One message: when it wants to be tried again, or None when it is settled.
async fn one(
    cx: &Context,
    claim: &Claim,
    channels: &Channels<'_>,
    row: &OutboxRow,
    mut delivery: Delivery,
    done: &mut Delivered,
) -> Option<Timestamp> {
    let resend = channels.removes_duplicates(&row.message.channel);
    match next(row, &delivery, resend, cx.now()) {
        Next::Wait(until) => return Some(until),
        Next::Known => {}
        Next::Send if cx.shutdown.requested() == Some(Stop::Signal) => {
            return Some(row.next_at.unwrap_or_else(|| cx.now()));
        }
        Next::Send => {
            if let Err(error) = send(cx, claim, channels, row, &mut delivery).await {
                let id = &row.message.id;
                tracing::warn!(message_id = id, error = crate::failure::chain(&error), "could not deliver");
                return Some(cx.now() + PAUSES[0]);
            }
        }
    }
    let outcome = update(row, &delivery, resend, cx.now())?;
    let waits_until = outcome.next_at;
    done.wakes.extend(peer::wakes(row, &outcome));
    done.pending.failed += u32::from(outcome.state == OutboxState::Failed);
    done.outcomes.push(outcome);
    waits_until
}

/// Why a message was not sent now.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("another cycle has raised the epoch and delivers from here on")]
    Fenced,
    #[error("another pod claimed it first")]
    Claimed,
    #[error("could not read HEAD")]
    Head(#[from] ReadHeadError),
    #[error("could not write claim or receipt")]
    Store(#[from] StoreError),
}

/// Claims the message, sends it, and leaves the receipt. Another pod that was faster is left to do it.
///
/// Before the claim HEAD is read again: a pod that stood still while others went on would otherwise send what
/// they sent, since settled claims are removed.
async fn send(
    cx: &Context,
    claim: &Claim,
    channels: &Channels<'_>,
    row: &OutboxRow,
    delivery: &mut Delivery,
) -> Result<(), SendError> {
    let id = &row.message.id;
    let epoch = claim.store.read_head().await?.map(|at| at.head.epoch);
    if epoch != Some(claim.writer.epoch()) {
        return Err(SendError::Fenced);
    }
    let Some(own) =
        claim.store.claim(id, delivery.next_number(), &cx.plan.run.cycle, claim.attempt(), cx.now()).await?
    else {
        return Err(SendError::Claimed);
    };
    let Sent { outcome, detail } = channels.send(row).await;
    let outcome = given_up(outcome, row.created_at, cx.now());
    let receipt = Receipt { number: own.number, outcome, detail, at: cx.now() };
    claim.store.receipt(id, &receipt).await?;
    tracing::info!(message_id = id, channel = row.message.channel, outcome = ?outcome, "message delivered");
    delivery.receipts.insert(own.number, receipt);
    delivery.claims.insert(own.number, own);
    Ok(())
}

/// What is to be done about a message that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Send,
    Wait(Timestamp),
    /// Claims and receipts say what became of it.
    Known,
}

/// Decides from claims and receipts, so that a pod that died after sending is not repeated by the next.
fn next(row: &OutboxRow, delivery: &Delivery, resend: bool, now: Timestamp) -> Next {
    let Some((_, newest)) = delivery.claims.last_key_value() else {
        return row.next_at.filter(|at| *at > now).map_or(Next::Send, Next::Wait);
    };
    match update(row, delivery, resend, now) {
        None => Next::Wait(newest.at + CLAIM_UNKNOWN_AFTER),
        Some(known) if known.state != OutboxState::Pending => Next::Known,
        Some(known) => known.next_at.filter(|at| *at > now).map_or(Next::Send, Next::Wait),
    }
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

/// What claims and receipts mean for the ledger's row. `resend` tells whether the channel's receiver removes
/// duplicates: then an unknown outcome is tried again for a day, else it stays unknown and the agent is told.
pub(crate) fn update(
    row: &OutboxRow,
    delivery: &Delivery,
    resend: bool,
    now: Timestamp,
) -> Option<OutboxUpdate> {
    let (_, newest) = delivery.claims.last_key_value()?;
    let (outcome, detail) = match delivery.receipts.get(&newest.number) {
        Some(receipt) => (receipt.outcome, receipt.detail.clone()),
        // Younger: its pod may still be sending.
        None if now.duration_since(newest.at) < CLAIM_UNKNOWN_AFTER => return None,
        None => (DeliveryOutcome::Unknown, None),
    };
    let again = resend && newest.at.duration_since(row.created_at) <= GIVE_UP_AFTER;
    let outcome =
        if outcome == DeliveryOutcome::Unknown && again { DeliveryOutcome::Deferred } else { outcome };
    Some(OutboxUpdate {
        id: row.message.id.clone(),
        state: state_of(outcome),
        attempts: Some(newest.number),
        error: detail,
        next_at: (outcome == DeliveryOutcome::Deferred).then(|| next_try(newest.number, newest.at)),
    })
}

/// State in the ledger of a delivery outcome.
fn state_of(outcome: DeliveryOutcome) -> OutboxState {
    match outcome {
        DeliveryOutcome::Sent => OutboxState::Sent,
        DeliveryOutcome::Deferred => OutboxState::Pending,
        DeliveryOutcome::Failed => OutboxState::Failed,
        DeliveryOutcome::Unknown => OutboxState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::channel::tests;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn row() -> OutboxRow {
        OutboxRow { created_at: START, ..tests::row() }
    }

    fn delivery(receipt: Option<DeliveryOutcome>) -> Delivery {
        let claim = cicada_store::Claim { number: 2, cycle: Default::default(), attempt: 1, at: START };
        let receipts = receipt.map(|outcome| (2, Receipt { number: 2, outcome, detail: None, at: START }));
        Delivery { claims: BTreeMap::from([(2, claim)]), receipts: receipts.into_iter().collect() }
    }

    fn after(minutes: i64) -> Timestamp {
        START + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn an_unknown_outcome_is_sent_again_only_where_receivers_remove_duplicates() {
        for receipt in [None, Some(DeliveryOutcome::Unknown)] {
            let known = delivery(receipt);
            let state = |resend| update(&row(), &known, resend, after(11)).unwrap().state;
            assert_eq!([state(true), state(false)], [OutboxState::Pending, OutboxState::Unknown]);
            let next = |resend| next(&row(), &known, resend, after(11));
            assert_eq!([next(true), next(false)], [Next::Send, Next::Known]);
        }
    }

    #[test]
    fn what_is_still_unknown_after_a_day_stays_so() {
        let old = OutboxRow { created_at: START - SignedDuration::from_hours(25), ..tests::row() };
        let state = update(&old, &delivery(Some(DeliveryOutcome::Unknown)), true, after(11)).unwrap().state;
        assert_eq!(state, OutboxState::Unknown);
    }

    #[test]
    fn a_young_claim_is_left_to_its_pod() {
        assert_eq!(update(&row(), &delivery(None), true, after(9)), None);
        assert_eq!(next(&row(), &delivery(None), true, after(9)), Next::Wait(after(10)));
    }

    /// A pod that dies between the receipt and its report is followed by one whose ledger says "pending".
    #[test]
    fn what_has_a_receipt_is_not_sent_again() {
        for (outcome, wanted) in [
            (DeliveryOutcome::Sent, Next::Known),
            (DeliveryOutcome::Failed, Next::Known),
            (DeliveryOutcome::Deferred, Next::Wait(after(5))),
        ] {
            assert_eq!(next(&row(), &delivery(Some(outcome)), true, after(1)), wanted);
        }
        assert_eq!(next(&row(), &delivery(Some(DeliveryOutcome::Deferred)), true, after(5)), Next::Send);
    }

    #[test]
    fn a_message_without_claims_waits_for_its_time() {
        assert_eq!(next(&row(), &Delivery::default(), false, after(0)), Next::Send);
        let later = OutboxRow { next_at: Some(after(3)), ..row() };
        assert_eq!(next(&later, &Delivery::default(), false, after(1)), Next::Wait(after(3)));
        assert_eq!(next(&later, &Delivery::default(), false, after(3)), Next::Send);
    }

    #[test]
    fn a_deferred_message_fails_after_a_day() {
        let outcome =
            |hours| given_up(DeliveryOutcome::Deferred, START, START + SignedDuration::from_hours(hours));
        assert_eq!([outcome(23), outcome(25)], [DeliveryOutcome::Deferred, DeliveryOutcome::Failed]);
    }

    #[test]
    fn pauses_grow_to_two_hours() {
        let pause = |tries| next_try(tries, START).as_second() / 60;
        assert_eq!([1, 2, 3, 4, 9].map(pause), [1, 5, 30, 120, 120]);
    }
}
