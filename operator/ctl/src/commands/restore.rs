//! `restore`: an older snapshot becomes the current one.

use anyhow::{Context, bail};
use cicada_contract::plan::Retention;
use cicada_memory::Check;
use cicada_memory::ledger::{OutboxState, OutboxUpdate};
use cicada_store::{
    AgentStore, Archive, Head, PackedArchive, PublishRequest, Snapshot, SnapshotKind, SnapshotRetention,
};
use jiff::Timestamp;

use super::claim::{acquire, at_work, confirm, holding, owner_of, warning};
use super::restored::{Part, Restored, blocking, choose, head, unusable};
use crate::args::RestoreArgs;
use crate::output::{bytes, note};
use crate::progress;

/// A command of a person's drops nothing from HEAD's list: only cycles know the manifest's retention.
pub(super) const KEEP_ALL: SnapshotRetention = SnapshotRetention { count: u32::MAX, max_age: 0 };

/// Runs the command.
pub(super) async fn run(args: RestoreArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    let seen = head(&store).await?;
    let base = choose(&seen, Some(&args.snapshot))?.clone();
    if seen.current.as_deref() == Some(base.id.as_str()) {
        bail!("{} is the current snapshot already; nothing was changed", base.id);
    }
    if !args.consent.fence
        && let Some(holder) = at_work(&seen)
    {
        return Err(cicada_store::AcquireError::Held { holder: Box::new(holder.clone()) })
            .context("nothing was changed; --fence goes ahead without it");
    }
    let owner = owner_of(&store, &seen)?;
    confirm(&question(&seen, &base), args.consent.yes)?;
    let now = Timestamp::now();
    let restored = sound(&store, &base).await?;
    let reason = format!("snapshot {} was restored by a person", base.id);
    let ledger = detached_ledger(&restored, base.ledger.is_some(), &reason, now).await?;
    let writer = acquire(&store, owner, "restore", args.consent.fence).await?;
    let published = holding(writer, async |writer| {
        let Some(listed) = writer.head().snapshot(&base.id) else {
            bail!("snapshot {} left HEAD's list meanwhile", base.id);
        };
        let request = PublishRequest {
            memory: Archive::Existing(listed.memory.clone()),
            ledger: ledger.clone().map_or(Archive::Existing(None), Archive::New),
            restored_from: Some(base.id.clone()),
            done: true,
            checked: true,
            retention: KEEP_ALL,
            ..PublishRequest::new(SnapshotKind::Final, now)
        };
        Ok(progress::wait("restore", "publishing", writer.publish(request)).await?)
    })
    .await?;
    let left = seen.current.as_deref().unwrap_or("nothing");
    note(&format!(
        "{} has the state of {}; {left} and what lies between stays listed and is pinned",
        published.snapshot.id, base.id
    ));
    Ok(())
}

fn question(head: &Head, base: &Snapshot) -> String {
    let later: Vec<&Snapshot> = head.snapshots.iter().skip_while(|s| s.id != base.id).skip(1).collect();
    let size = base.memory.as_ref().map_or(0, |m| m.file_size);
    let warning = warning(head).map(|w| format!("{w}.\n")).unwrap_or_default();
    format!(
        "{warning}Restore {} of {} (cycle {}, memory {})? {} later snapshots are left behind.",
        base.id,
        base.created_at,
        base.cycle.name,
        bytes(size),
        later.len()
    )
}

/// The snapshot on this machine, if it passes the checks of a restore as a whole.
async fn sound(store: &AgentStore, base: &Snapshot) -> anyhow::Result<Restored> {
    let restored = Restored::fetch(store, base, &[Part::Memory, Part::Ledger])
        .await
        .with_context(|| format!("snapshot {} can't be restored", base.id))?;
    if base.memory.is_some() {
        blocking(|| Ok(restored.memory()?.check(Check::Integrity)?), || unusable(Part::Memory, base))?;
    }
    if base.ledger.is_some() {
        blocking(|| Ok(restored.ledger()?.check(Check::Integrity)?), || unusable(Part::Ledger, base))?;
    }
    Ok(restored)
}

/// The ledger as it goes on elsewhere or later: what waits to leave in it may have left long since, so it
/// becomes `unknown` and is not sent again; the agent reads `reason` in its next prompt. Packed for upload.
pub(super) async fn detached_ledger(
    restored: &Restored,
    exists: bool,
    reason: &str,
    now: Timestamp,
) -> anyhow::Result<Option<PackedArchive>> {
    if !exists {
        return Ok(None);
    }
    blocking(|| rewrite(restored, reason, now), || "can't write the ledger".into())?;
    let packed = restored.scratch().join("ledger.new.zst");
    let file = restored.file(Part::Ledger);
    let work = cicada_store::pack(&file, &packed);
    Ok(Some(progress::wait("ledger", "packing", work).await?))
}

fn rewrite(restored: &Restored, reason: &str, now: Timestamp) -> anyhow::Result<()> {
    let mut ledger = restored.ledger()?;
    let pending = ledger.pending_outgoing()?;
    let updates: Vec<OutboxUpdate> = pending
        .into_iter()
        .map(|row| OutboxUpdate {
            id: row.message.id,
            state: OutboxState::Unknown,
            attempts: Some(row.attempts),
            error: Some(reason.to_owned()),
            next_at: None,
        })
        .collect();
    ledger.update_outgoing(&updates, now)?;
    ledger.add_notices(&[reason.to_owned()], now)?;
    // Retention is the manifest's business.
    let forever = u64::MAX;
    let keep = Retention {
        snapshots: u32::MAX,
        max_age: forever,
        messages: forever,
        tool_results: forever,
        steps: forever,
        cycles: forever,
    };
    ledger.seal(&keep, now)?;
    Ok(())
}
