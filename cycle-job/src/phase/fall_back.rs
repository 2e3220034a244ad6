//! What a cycle does about a damaged archive: it stops and says how to look and go back, or, where the
//! manifest says so, goes on from the newest sound snapshot.

use cicada_contract::plan::OnCorrupt;
use cicada_store::{Archive, PublishRequest, Snapshot, SnapshotKind, Start};

use crate::context::Context;
use crate::failure::{Classified, Failure, chain};
use crate::phase::acquire::Claim;
use crate::phase::persist::{PersistError, pack, retention};
use crate::phase::put_back::{PutBackError, adapt};
use crate::phase::restore::{RestoreError, Restored, open_at, open_ledger};

/// Falls back if damage is what failed and the manifest wants it; else gives the failure.
pub(crate) async fn after_damage(
    cx: &Context,
    claim: &mut Claim,
    error: RestoreError,
) -> Result<Restored, Failure> {
    let Some(base) = claim.base().cloned() else { return Err(error.into()) };
    let Some(damaged) = error.damaged(&base).map(str::to_owned) else { return Err(error.into()) };
    let before = candidates(claim, &base);
    if cx.plan.config.memory.on_corrupt == OnCorrupt::Stop {
        let earlier = before.iter().find(|s| s.archive_keys().all(|key| key != damaged));
        return Err(Failure::new(error.class(), advice(cx, &base, earlier, &error)));
    }
    let mut bad = vec![damaged];
    for candidate in before {
        if candidate.archive_keys().any(|key| bad.iter().any(|b| b == key)) {
            continue;
        }
        match open_at(cx, claim.origin(), &candidate).await {
            Ok(restored) => return Ok(fall_back(cx, claim, &base, &candidate, restored).await?),
            Err(other) => match other.damaged(&candidate) {
                Some(key) => bad.push(key.to_owned()),
                None => return Err(other.into()),
            },
        }
    }
    Err(Failure::new(error.class(), advice(cx, &base, None, &error)))
}

/// Snapshots before `base`, newest first. What a restore left behind was left on purpose.
fn candidates(claim: &Claim, base: &Snapshot) -> Vec<Snapshot> {
    let listed = claim.writer.head().snapshots.iter().rev();
    listed.filter(|s| s.id != base.id && s.pinned.is_none() && s.kind.is_counted()).cloned().collect()
}

/// The commands that show what would be lost and go back, then the reason: status cuts the line's end.
fn advice(cx: &Context, base: &Snapshot, earlier: Option<&Snapshot>, error: &RestoreError) -> String {
    let owner = &cx.plan.config.owner;
    let agent = format!("{}/{}", owner.namespace, owner.name);
    let next = match earlier {
        Some(earlier) => format!(
            "cicadactl restore {agent} {0}; before it, cicadactl diff {agent} {0} {1}",
            earlier.id, base.id
        ),
        None => "no sound snapshot is listed before it: restore the bucket from a backup".to_owned(),
    };
    format!("snapshot {} is damaged; {next} ({})", base.id, chain(error))
}

/// Makes `to`, which is open, the base of this cycle. The checkpoint keeps it so if the cycle fails.
async fn fall_back(
    cx: &Context,
    claim: &mut Claim,
    base: &Snapshot,
    to: &Snapshot,
    restored: Restored,
) -> Result<Restored, PutBackError> {
    let Restored { memory, mut ledger } = restored;
    let line = format!(
        "snapshot {} of {} was damaged: the memory goes on from snapshot {} of {}, and what came between is not in it",
        base.id, base.created_at, to.id, to.created_at
    );
    adapt(cx, claim, &mut ledger, base, &line).await?;
    tokio::task::block_in_place(|| ledger.seal(&cx.plan.config.memory.retention, cx.now()))?;
    ledger.close();
    let packed = pack(cx, "ledger", true).await?;
    let request = PublishRequest {
        memory: Archive::Existing(to.memory.clone()),
        ledger: packed,
        restored_from: Some(to.id.clone()),
        checked: true,
        retention: retention(cx),
        ..PublishRequest::new(SnapshotKind::Checkpoint, cx.now())
    };
    let published = claim.writer.publish(request).await.map_err(PersistError::from)?;
    tracing::error!(damaged = base.id, snapshot = to.id, "a damaged snapshot was left behind");
    claim.start = Start::Current(published.snapshot);
    Ok(Restored { memory, ledger: open_ledger(cx, &cx.work.ledger()).await? })
}
