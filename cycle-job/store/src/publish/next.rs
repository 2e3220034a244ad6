//! The HEAD that follows a publish. Pure.

use jiff::{SignedDuration, Timestamp};

use super::{Archive, PublishRequest, SnapshotRetention};
use crate::{
    agent_store::SNAPSHOTS,
    head::{Dropped, Head, Snapshot, SnapshotKind, order},
};

/// How long HEAD remembers that a snapshot left its list. Collection needs an hour of it.
const DROPPED_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// The next HEAD with a new current snapshot.
pub(super) fn with_snapshot(head: &Head, snapshot: Snapshot, request: &PublishRequest) -> Head {
    let mut next = head.clone();
    if let Some(base) = &snapshot.restored_from {
        pin_newer(&mut next, base);
    }
    match &request.memory {
        Archive::Keep => {}
        Archive::New(packed) if packed.parent.is_some() => {}
        Archive::New(_) => next.whole_next = false,
        // What a person chose is the last that builds on its chain.
        Archive::Existing(_) => next.whole_next = true,
    }
    next.current = Some(snapshot.id.clone());
    if snapshot.kind == SnapshotKind::Final {
        next.add_ended(&snapshot.cycle);
    }
    next.snapshots.push(snapshot);
    next.published += 1;
    if request.checked {
        next.checked_at = Some(next.published);
    }
    next.add_handled(&request.handled_keys);
    if let Some(applied) = &request.applied_restore {
        next.applied_restore = Some(applied.clone());
    }
    if let Some(seeded) = &request.seeded_from {
        next.seeded_from = Some(seeded.clone());
    }
    next.holder = if request.done { None } else { head.holder.clone() };
    retain(&mut next, request.retention, request.now);
    next
}

/// What a restore leaves behind is kept for people to look at.
fn pin_newer(head: &mut Head, base: &str) {
    let bar = order(base);
    for snapshot in &mut head.snapshots {
        // Checkpoints and failures too: their ledgers alone tell of calls with unknown outcome.
        if order(&snapshot.id) > bar && snapshot.pinned.is_none() {
            snapshot.pinned = Some(format!("left behind by the restore of {base}"));
        }
    }
}

/// Drops from the list what retention does not keep. The current snapshot and pinned ones always stay;
/// failed ones and checkpoints go as soon as they are not current.
fn retain(head: &mut Head, retention: SnapshotRetention, now: Timestamp) {
    let current = head.current.clone();
    let counted =
        head.snapshots.iter().filter(|snapshot| snapshot.kind.is_counted() && snapshot.pinned.is_none());
    let mut surplus = counted.count().saturating_sub(retention.count.max(1) as usize);
    let age = SignedDuration::from_secs(i64::try_from(retention.max_age).unwrap_or(i64::MAX));
    let known = head.archives().map(|archive| (archive.key.clone(), archive.clone())).collect();
    let mut left = vec![];
    head.snapshots.retain(|snapshot| {
        let is_current = current.as_ref() == Some(&snapshot.id);
        if is_current || snapshot.pinned.is_some() {
            return true;
        }
        let too_many = snapshot.kind.is_counted() && surplus > 0;
        let too_old = retention.max_age > 0 && now.duration_since(snapshot.created_at) > age;
        if too_many {
            surplus -= 1;
        }
        let stays = snapshot.kind.is_counted() && !too_many && !too_old;
        if !stays {
            left.push(Dropped { id: snapshot.id.clone(), at: now, keys: vec![] });
        }
        stays
    });
    let mut keys = head.settle(known);
    // Those of archives that nothing but a delta had needed go with the first that left.
    for (n, dropped) in left.iter_mut().enumerate().rev() {
        let folder = format!("{SNAPSHOTS}{}/", dropped.id);
        let (own, others) = keys.into_iter().partition(|key: &String| n == 0 || key.starts_with(&folder));
        dropped.keys = own;
        keys = others;
    }
    head.dropped.retain(|dropped| now.duration_since(dropped.at) < DROPPED_KEPT);
    head.dropped.append(&mut left);
}
