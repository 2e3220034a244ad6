//! `outbox`: what waits to leave, and what became of each try.

use std::collections::BTreeMap;

use cicada_store::{CLAIM_UNKNOWN_AFTER, Delivery, DeliveryOutcome};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::memory::ledger_rows;
use crate::args::OutboxArgs;
use crate::output::{Grid, note, print_document};

/// More than fit on anybody's screen; the ledger's retention removes what was sent.
const ROWS_MAX: usize = 100_000;

/// Runs the command.
pub(super) async fn run(args: OutboxArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let sql = "SELECT message_id, channel, to_address, subject, state, attempts, error, cycle, created_at, next_at \
               FROM outbox ORDER BY created_at, message_id";
    let rows = ledger_rows(&store, sql, ROWS_MAX).await?;
    let deliveries = store.list_outbox().await?;
    let waiting = store.list_inbox().await?.len();
    let now = Timestamp::now();
    let messages: Vec<Json> = rows
        .into_iter()
        .map(|row| message(row, &deliveries, now))
        .filter(|m| args.all || m["state"] != "sent")
        .collect();
    if args.output.format.is_document() {
        return print_document(&json!({"messages": messages, "inbox": waiting}), args.output.format);
    }
    let mut grid =
        Grid::new(&["message", "state", "channel", "to", "created", "claims", "receipts", "next", "detail"]);
    for m in &messages {
        let count = |key: &str| json!(m[key].as_array().map_or(0, Vec::len));
        grid.push([
            m["message"].clone(),
            m["state"].clone(),
            m["channel"].clone(),
            m["to"].clone(),
            m["created"].clone(),
            count("claims"),
            count("receipts"),
            m["next"].clone(),
            m["detail"].clone(),
        ]);
    }
    grid.print(args.output.format)?;
    if messages.is_empty() {
        note(if args.all {
            "no outgoing messages"
        } else {
            "nothing waits to leave; --all shows what was sent"
        });
    }
    if waiting > 0 {
        note(&format!("{waiting} objects are in the inbox: new, or removed by the next cycle"));
    }
    Ok(())
}

fn message(row: Json, deliveries: &BTreeMap<String, Delivery>, now: Timestamp) -> Json {
    let id = row["message_id"].as_str().unwrap_or_default();
    let delivery = deliveries.get(id).cloned().unwrap_or_default();
    let (state, said) = state(row["state"].as_str().unwrap_or_default(), &delivery, now);
    let detail = said.map_or_else(|| row["error"].clone(), Json::from);
    json!({
        "message": id, "state": state, "channel": row["channel"], "to": row["to_address"], "subject": row["subject"],
        "cycle": row["cycle"], "created": row["created_at"], "next": row["next_at"], "attempts": row["attempts"],
        "detail": detail,
        "claims": delivery.claims.values().collect::<Vec<_>>(),
        "receipts": delivery.receipts.values().collect::<Vec<_>>(),
    })
}

/// State of a message: the ledger's, unless the store knows something that no cycle has taken in yet.
fn state(ledger: &str, delivery: &Delivery, now: Timestamp) -> (&'static str, Option<String>) {
    let settled = match ledger {
        "sent" => Some("sent"),
        "failed" => Some("failed"),
        "unknown" => Some("unknown"),
        _ => None,
    };
    if let Some(settled) = settled {
        return (settled, None);
    }
    let Some((number, newest)) = delivery.claims.last_key_value() else { return ("pending", None) };
    match delivery.receipts.get(number) {
        None if now.duration_since(newest.at) < CLAIM_UNKNOWN_AFTER => ("sending", None),
        None => ("unknown", Some(format!("claim {number} of {} has no receipt", newest.at))),
        Some(receipt) => {
            let state = match receipt.outcome {
                DeliveryOutcome::Sent => "sent",
                DeliveryOutcome::Deferred => "pending",
                DeliveryOutcome::Failed => "failed",
                DeliveryOutcome::Unknown => "unknown",
            };
            (state, receipt.detail.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use cicada_store::{Claim, Receipt};
    use jiff::SignedDuration;

    use super::*;

    fn delivery(receipt: Option<DeliveryOutcome>) -> Delivery {
        let at = Timestamp::UNIX_EPOCH;
        let claim = Claim { number: 1, cycle: Default::default(), attempt: 1, at };
        let receipt = receipt.map(|outcome| (1, Receipt { number: 1, outcome, detail: None, at }));
        Delivery { claims: BTreeMap::from([(1, claim)]), receipts: receipt.into_iter().collect() }
    }

    #[test]
    fn a_claim_without_a_receipt_is_sending_and_then_unknown() {
        let after = |minutes| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
        assert_eq!(state("pending", &Delivery::default(), after(0)).0, "pending");
        assert_eq!(state("pending", &delivery(None), after(9)).0, "sending");
        assert_eq!(state("pending", &delivery(None), after(11)).0, "unknown");
        assert_eq!(state("pending", &delivery(Some(DeliveryOutcome::Sent)), after(11)).0, "sent");
        assert_eq!(state("pending", &delivery(Some(DeliveryOutcome::Deferred)), after(11)).0, "pending");
        assert_eq!(state("sent", &delivery(None), after(11)).0, "sent", "what the ledger has settled stays");
    }
}
