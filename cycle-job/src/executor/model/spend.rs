//! What was spent before this attempt, and telling the store what it spends.

use std::collections::BTreeSet;
use std::time::Duration;

use cicada_contract::report::Usage;
use cicada_memory::ledger::Overview;
use cicada_memory::{LedgerWorker, Row, WorkerError};
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
/// How far the store's clock and ours may differ.
const CLOCKS_APART: SignedDuration = SignedDuration::from_hours(1);
/// More attempts than an agent can make before they are forgotten.
const ATTEMPTS_MAX: usize = 100_000;

/// What the ledger knows of the day, and what attempts spent that it does not know: they were killed, or a
/// restore, a fall back or an accepted loss has left the snapshots behind that told of them. What was spent
/// stays spent, whatever becomes of the memory.
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
    let counted = block_in_place(|| counted(ledger, now))?;
    for entry in claim.store.list_usage().await? {
        let own = entry.cycle == cx.plan.run.cycle.uid;
        let known = counted.contains(&(entry.cycle.clone(), entry.epoch));
        let is_of_today = entry.modified + CLOCKS_APART >= day;
        if now.duration_since(entry.modified) > FORGET_AFTER {
            claim.store.delete_usage(&entry).await?;
            continue;
        }
        if (own && entry.epoch == claim.writer.epoch()) || !(own || (is_of_today && !known)) {
            continue;
        }
        let Some(left) = claim.store.get_usage(&entry).await? else { continue };
        if own {
            spent.cycle_model_calls += left.usage.model_calls;
            spent.cycle_tool_calls += left.usage.tool_calls;
            spent.cycle_tokens += left.usage.input_tokens + left.usage.output_tokens;
        }
        if !known && left.started_at >= day {
            spent.tokens_today += left.usage.input_tokens + left.usage.output_tokens;
            spent.cost_today += left.usage.cost;
            spent.messages_today += left.usage.messages;
        }
    }
    Ok(spent)
}

/// Attempts that have ended in the ledger, by UID and epoch: their whole spend is in it.
fn counted(ledger: &mut LedgerWorker, now: Timestamp) -> Result<BTreeSet<(String, u64)>, WorkerError> {
    let since = now - FORGET_AFTER;
    let sql = format!(
        "SELECT uid, epoch FROM cycles WHERE ended_at IS NOT NULL AND started_at >= '{since}' ORDER BY started_at DESC"
    );
    let rows = ledger.query(&sql, ATTEMPTS_MAX)?;
    let attempt = |row: &Row| Some((row.first()?.display(), row.get(1)?.as_int()?.unsigned_abs()));
    Ok(rows.rows.iter().filter_map(attempt).collect())
}

fn day_start(now: Timestamp, time_zone: &str) -> Timestamp {
    let zone = jiff::tz::TimeZone::get(time_zone).unwrap_or(jiff::tz::TimeZone::UTC);
    now.to_zoned(zone).start_of_day().map_or(now, |z| z.timestamp())
}

/// Keeps the store informed, so that an attempt is counted that is killed, or whose snapshot is left behind.
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

    /// The last word of all work, before its snapshot is published. A store that does not take it changes nothing
    /// about how the work has ended.
    pub(in crate::executor) async fn tell_last(&mut self, cx: &Context, claim: &Claim, usage: &Usage) {
        if let Err(error) = self.tell(cx, claim, usage, true).await {
            tracing::warn!(error = crate::failure::chain(&error), "could not write the attempt's spend");
        }
    }
}
