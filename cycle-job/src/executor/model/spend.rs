//! What was spent before this attempt, and telling the store what it spends.

use std::time::Duration;

use cicada_contract::report::Usage;
use cicada_memory::ledger::Overview;
use cicada_memory::{LedgerWorker, Value, WorkerError};
use cicada_store::{AttemptUsage, StoreError};
use jiff::{SignedDuration, Timestamp};
use tokio::task::block_in_place;
use tokio::time::Instant;

use super::ModelError;
use super::usage::SpentBefore;
use crate::context::Context;
use crate::phase::acquire::Claim;

/// At most this often the spend is written while it grows.
const EVERY: Duration = Duration::from_secs(30);
/// After this no budget can ask for an attempt's spend any more: a day, wherever its midnight is, and a bit.
const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(49);

/// What the ledger knows of the day, and what attempts left behind whose ledger was never published.
pub(super) async fn spent_before(
    cx: &Context,
    claim: &Claim,
    ledger: &mut LedgerWorker,
    overview: &Overview,
) -> Result<SpentBefore, ModelError> {
    let today = &overview.today;
    let mut spent = SpentBefore {
        tokens_today: today.input_tokens + today.output_tokens,
        cost_today: today.cost,
        messages_today: today.messages,
        ..SpentBefore::default()
    };
    let now = cx.now();
    let day = day_start(now, &cx.plan.config.limits.time_zone);
    let counted = block_in_place(|| counted(ledger))?;
    for left in claim.store.list_usage().await? {
        let own = left.cycle == cx.plan.run.cycle.uid;
        if own && left.epoch == claim.writer.epoch() {
            continue;
        }
        let known = counted.iter().any(|(uid, epoch, tokens)| {
            *uid == left.cycle && *epoch == left.epoch && *tokens >= tokens_of(&left.usage)
        });
        if own {
            spent.cycle_model_calls += left.usage.model_calls;
            spent.cycle_tool_calls += left.usage.tool_calls;
            spent.cycle_tokens += tokens_of(&left.usage);
        }
        if !known && left.started_at >= day {
            spent.tokens_today += tokens_of(&left.usage);
            spent.cost_today += left.usage.cost;
            spent.messages_today += left.usage.messages;
        }
        if now.duration_since(left.started_at) > FORGET_AFTER {
            claim.store.delete_usage(&left.cycle, left.epoch).await?;
        }
    }
    Ok(spent)
}

fn tokens_of(usage: &Usage) -> u64 {
    usage.input_tokens + usage.output_tokens
}

/// Attempts whose spend is in the ledger: UID, epoch, tokens.
fn counted(ledger: &mut LedgerWorker) -> Result<Vec<(String, u64, u64)>, WorkerError> {
    let rows = ledger.query("SELECT uid, epoch, input_tokens + output_tokens FROM cycles WHERE ended_at IS NOT NULL ORDER BY started_at DESC", 500)?;
    let number = |v: Option<&Value>| v.and_then(Value::as_int).map_or(0, i64::unsigned_abs);
    Ok(rows
        .rows
        .iter()
        .map(|r| (r.first().map(Value::display).unwrap_or_default(), number(r.get(1)), number(r.get(2))))
        .collect())
}

fn day_start(now: Timestamp, time_zone: &str) -> Timestamp {
    let zone = jiff::tz::TimeZone::get(time_zone).unwrap_or(jiff::tz::TimeZone::UTC);
    now.to_zoned(zone).start_of_day().map_or(now, |z| z.timestamp())
}

/// Keeps the store informed, so that an attempt that is killed is counted.
pub(in crate::executor) struct Meter {
    started_at: Timestamp,
    written: Option<Instant>,
}

impl Meter {
    pub(in crate::executor) fn new(started_at: Timestamp) -> Self {
        Self { started_at, written: None }
    }

    /// Writes the spend, but not more often than every 30 s unless `now` is set. The first write must
    /// work: after it no call can go uncounted. Later ones are tried again by the next.
    pub(in crate::executor) async fn tell(
        &mut self,
        cx: &Context,
        claim: &Claim,
        usage: &Usage,
        now: bool,
    ) -> Result<(), StoreError> {
        if !now && self.written.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        let usage = AttemptUsage {
            cycle: cx.plan.run.cycle.uid.clone(),
            epoch: claim.writer.epoch(),
            started_at: self.started_at,
            usage: usage.clone(),
        };
        let result = claim.store.put_usage(&usage).await;
        if self.written.is_some()
            && let Err(error) = &result
        {
            tracing::warn!(error = crate::failure::chain(error), "could not write the attempt's spend");
            return Ok(());
        }
        self.written = Some(Instant::now());
        result
    }

    /// The last word of work that failed. A store that does not take it changes nothing about the failure.
    pub(in crate::executor) async fn tell_last(&mut self, cx: &Context, claim: &Claim, usage: &Usage) {
        if let Err(error) = self.tell(cx, claim, usage, true).await {
            tracing::warn!(error = crate::failure::chain(&error), "could not write the attempt's spend");
        }
    }
}
