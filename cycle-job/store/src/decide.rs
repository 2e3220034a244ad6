//! What acquire does about a memory, decided from its HEAD alone. Pure.

use cicada_contract::plan::CycleIdentity;
use jiff::Timestamp;

use crate::{
    acquire::{ATTEMPTS_MAX, AcquireError, AcquireRequest, Start},
    agent_store::ReadHeadError,
    head::{Attempt, HEAD_VERSION, Head, HeadOwner, Holder, SnapshotKind, order},
};

/// What to do about a memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Write this HEAD (writer and counter are filled in by whoever writes it).
    Take {
        /// The next HEAD.
        head: Box<Head>,
        /// What the cycle starts from.
        start: Start,
        /// Number of this attempt.
        attempt: u32,
        /// The memory was written by an earlier object of the same name.
        adopted: bool,
    },
    /// Write nothing: every request was handled.
    AlreadyHandled,
}

/// Decides about a memory from its HEAD and from the ids of snapshots whose objects exist, whether HEAD names
/// them or not.
pub fn decide(
    head: Option<&Head>,
    snapshot_ids: &[String],
    request: &AcquireRequest,
) -> Result<Decision, AcquireError> {
    match head {
        None => without_head(snapshot_ids, request),
        Some(head) => match head.deleted_at {
            Some(at) => after_deletion(head, at, snapshot_ids, request),
            None => with_head(head, snapshot_ids, request),
        },
    }
}

fn without_head(snapshot_ids: &[String], request: &AcquireRequest) -> Result<Decision, AcquireError> {
    let newest = snapshot_ids.iter().max_by_key(|id| order(id));
    let expect = &request.expect;
    let evidence = if let Some(snapshot) = &expect.snapshot {
        Some((format!("snapshot {snapshot} was expected"), snapshot.clone()))
    } else if let Some(newest) = newest {
        Some((format!("there are snapshots, the newest is {newest}"), newest.clone()))
    } else {
        expect.epoch.map(|epoch| (format!("epoch {epoch} was expected"), format!("epoch-{epoch}")))
    };
    if let Some((found, token)) = evidence
        && request.accept_memory_loss.as_ref() != Some(&token)
    {
        return Err(AcquireError::MemoryMissing { found, token });
    }
    // Never an epoch that an archive's key already carries.
    let used = newest.and_then(|id| order(id)).map_or(0, |(epoch, _)| epoch).max(expect.epoch.unwrap_or(0));
    Ok(empty(used + 1, request))
}

fn after_deletion(
    head: &Head,
    at: Timestamp,
    snapshot_ids: &[String],
    request: &AcquireRequest,
) -> Result<Decision, AcquireError> {
    // A late attempt of the agent that was deleted must not bring its memory back to life.
    let same_object = !head.owner.uid.is_empty() && head.owner.uid == request.owner.uid;
    if same_object {
        return Err(AcquireError::Deleted { at });
    }
    if let Some(snapshot) = &request.expect.snapshot
        && request.accept_memory_loss.as_ref() != Some(snapshot)
    {
        let found = format!("snapshot {snapshot} was expected and the store has a tombstone of {at}");
        return Err(AcquireError::MemoryMissing { found, token: snapshot.clone() });
    }
    // What status expects of a memory that was deleted says nothing about the tombstone's age.
    let evidence = newer(head, snapshot_ids);
    check_rollback(head, evidence.into_iter().collect(), request)?;
    Ok(empty(above(head, snapshot_ids, request), request))
}

fn with_head(
    head: &Head,
    snapshot_ids: &[String],
    request: &AcquireRequest,
) -> Result<Decision, AcquireError> {
    check_owner(&head.owner, request)?;
    head.check_current().map_err(ReadHeadError::Head)?;
    let evidence = expected(head, request).into_iter().chain(newer(head, snapshot_ids)).collect();
    check_rollback(head, evidence, request)?;
    let own = head.newest_of(&request.cycle);
    let has_ended = head.has_ended(&request.cycle);
    if !has_ended && is_handled(head, request) {
        return Ok(Decision::AlreadyHandled);
    }
    if let Some(holder) = &head.holder
        && request.refuse_if_held
        && holder.cycle.uid != request.cycle.uid
        && request.now < holder.deadline
    {
        return Err(AcquireError::Held { holder: Box::new(holder.clone()) });
    }
    let attempt = attempts_before(head, &request.cycle) + 1;
    if !has_ended && attempt > ATTEMPTS_MAX {
        return Err(AcquireError::AttemptsExhausted);
    }
    let current = head.current();
    let start = match (current, own) {
        (None, _) => Start::Empty,
        (Some(current), _) if has_ended => Start::Recovered(current.clone()),
        // Only if no other cycle has published on top of it; its ledger then knows what was left open.
        (Some(current), Some(own))
            if own.id == current.id
                && matches!(own.kind, SnapshotKind::Interrupted | SnapshotKind::Checkpoint) =>
        {
            Start::Resume(own.clone())
        }
        (Some(current), _) => Start::Current(current.clone()),
    };
    let mut next = head.clone();
    next.close_epoch();
    next.epoch = above(head, snapshot_ids, request);
    next.owner = known_owner(&head.owner, request);
    let adopted = !head.owner.uid.is_empty() && head.owner.uid != next.owner.uid;
    hold(&mut next, request, attempt);
    Ok(Decision::Take { head: Box::new(next), start, attempt, adopted })
}

/// The request's owner, with the UIDs of HEAD where the request knows none (people's commands).
fn known_owner(before: &HeadOwner, request: &AcquireRequest) -> HeadOwner {
    let mut owner = HeadOwner::new(&request.owner, request.namespace_uid.as_deref());
    if owner.path() == before.path() {
        if owner.uid.is_empty() {
            owner.uid.clone_from(&before.uid);
        }
        if owner.namespace_uid.is_empty() {
            owner.namespace_uid.clone_from(&before.namespace_uid);
        }
    }
    owner
}

fn check_owner(owner: &HeadOwner, request: &AcquireRequest) -> Result<(), AcquireError> {
    let found = owner.path();
    if found != request.owner.path() && request.take_over_from.as_ref() != Some(&found) {
        return Err(AcquireError::Conflict { found });
    }
    let reused = !owner.namespace_uid.is_empty()
        && request.namespace_uid.as_ref().is_some_and(|uid| *uid != owner.namespace_uid);
    if request.refuse_namespace_reuse && reused && request.take_over_from.as_ref() != Some(&found) {
        return Err(AcquireError::NamespaceReused);
    }
    Ok(())
}

/// What speaks for a later HEAD than the one found: in words, and as the token that accepts the loss.
struct Evidence {
    words: String,
    token: String,
}

/// A HEAD that is not what was seen: an older one was put back by hand, a bucket restored from a backup, or
/// another bucket stands under the same name. A person may accept it, by any of the tokens.
fn check_rollback(
    head: &Head,
    evidence: Vec<Evidence>,
    request: &AcquireRequest,
) -> Result<(), AcquireError> {
    let accepted = request.accept_memory_loss.as_ref();
    if evidence.iter().any(|found| Some(&found.token) == accepted) {
        return Ok(());
    }
    let Some(Evidence { words, token }) = evidence.into_iter().next() else { return Ok(()) };
    let found = state(Some(head.epoch), head.current.as_deref());
    Err(AcquireError::RolledBack { found, expected: words, token })
}

/// HEAD is below what the operator (or `local`) has seen of it.
fn expected(head: &Head, request: &AcquireRequest) -> Option<Evidence> {
    let expect = &request.expect;
    let older_epoch = expect.epoch.is_some_and(|epoch| head.epoch < epoch);
    let older_snapshot = expect.snapshot.as_deref().is_some_and(|expected| {
        order(expected).is_some() && head.current.as_deref().and_then(order) < order(expected)
    });
    (older_epoch || older_snapshot).then(|| Evidence {
        words: format!("expected was {}", state(expect.epoch, expect.snapshot.as_deref())),
        token: expect.snapshot.clone().unwrap_or_else(|| format!("epoch-{}", expect.epoch.unwrap_or(0))),
    })
}

/// HEAD is below what it lists itself or what lies beside it.
fn newer(head: &Head, snapshot_ids: &[String]) -> Option<Evidence> {
    let newer = head.newer(snapshot_ids.iter().map(String::as_str))?;
    Some(Evidence { words: format!("and snapshot {newer} is of a later epoch"), token: newer.to_owned() })
}

/// An epoch that no pod and no archive's key has ever carried.
fn above(head: &Head, snapshot_ids: &[String], request: &AcquireRequest) -> u64 {
    let newer = head.newer(snapshot_ids.iter().map(String::as_str)).and_then(order);
    head.epoch.max(request.expect.epoch.unwrap_or(0)).max(newer.map_or(0, |(epoch, _)| epoch)) + 1
}

fn state(epoch: Option<u64>, snapshot: Option<&str>) -> String {
    format!(
        "epoch {}, snapshot {}",
        epoch.map_or_else(|| "unknown".into(), |epoch| epoch.to_string()),
        snapshot.unwrap_or("none")
    )
}

fn is_handled(head: &Head, request: &AcquireRequest) -> bool {
    let keys = &request.handled_keys;
    !request.has_other_triggers && !keys.is_empty() && keys.iter().all(|key| head.handled.contains(key))
}

fn attempts_before(head: &Head, cycle: &CycleIdentity) -> u32 {
    let of_holder = head.holder.iter().map(|holder| (&holder.cycle, holder.attempt));
    let of_epoch = (&head.acquired_by.cycle, head.acquired_by.attempt);
    let of_snapshots = head.snapshots.iter().map(|snapshot| (&snapshot.cycle, snapshot.attempt));
    of_holder
        .chain([of_epoch])
        .chain(of_snapshots)
        .filter(|(known, _)| known.uid == cycle.uid)
        .map(|(_, attempt)| attempt)
        .max()
        .unwrap_or(0)
}

fn empty(epoch: u64, request: &AcquireRequest) -> Decision {
    let mut head = Head {
        version: HEAD_VERSION,
        owner: HeadOwner::new(&request.owner, request.namespace_uid.as_deref()),
        epoch,
        acquired_by: Attempt::default(),
        holder: None,
        writer: String::new(),
        write: 0,
        written_at: request.now,
        current: None,
        snapshots: vec![],
        bases: vec![],
        whole_next: false,
        dropped: vec![],
        handled: vec![],
        ended: vec![],
        abandoned: vec![],
        persist_ms: None,
        applied_restore: None,
        seeded_from: None,
        published: 0,
        checked_at: None,
        deleted_at: None,
        erasures: vec![],
        audit_head: None,
        unknown: std::collections::BTreeMap::new(),
    };
    hold(&mut head, request, 1);
    Decision::Take { head: Box::new(head), start: Start::Empty, attempt: 1, adopted: false }
}

fn hold(head: &mut Head, request: &AcquireRequest, attempt: u32) {
    head.acquired_by = Attempt { cycle: request.cycle.clone(), attempt };
    head.holder = Some(Holder { cycle: request.cycle.clone(), attempt, deadline: request.deadline });
    head.written_at = request.now;
}

#[cfg(test)]
mod tests {
    use cicada_contract::plan::{Expect, Owner};

    use super::*;
    use crate::head::tests::{at, cycle, head, snapshot};

    fn request(uid: &str) -> AcquireRequest {
        let owner = Owner {
            cluster: "prod".into(),
            namespace: "shop".into(),
            name: "clerk".into(),
            uid: "agent-1".into(),
            ..Owner::default()
        };
        AcquireRequest::new(owner, cycle(uid), at(1800), at(0))
    }

    fn expecting(epoch: Option<u64>, snapshot: Option<&str>) -> AcquireRequest {
        AcquireRequest { expect: Expect { epoch, snapshot: snapshot.map(str::to_owned) }, ..request("c") }
    }

    fn taken(decision: Result<Decision, AcquireError>) -> (Head, Start, u32) {
        match decision.unwrap() {
            Decision::Take { head, start, attempt, .. } => (*head, start, attempt),
            Decision::AlreadyHandled => panic!("already handled"),
        }
    }

    #[test]
    fn a_head_below_what_was_seen_is_a_rollback() {
        let known = head(5, vec![snapshot("5-2-aa", SnapshotKind::Final, "x")]);
        for (epoch, seen, sound) in [
            (None, None, true),
            (Some(5), Some("5-2-aa"), true),
            (Some(4), Some("4-9-zz"), true),
            (Some(5), Some("5-1-zz"), true),
            (Some(6), None, false),
            (Some(5), Some("5-3-aa"), false),
            (None, Some("6-1-aa"), false),
        ] {
            let mut request = expecting(epoch, seen);
            let decision = decide(Some(&known), &[], &request);
            if sound {
                assert_eq!(taken(decision).0.epoch, 6, "{epoch:?} {seen:?}");
                continue;
            }
            let Err(AcquireError::RolledBack { token, .. }) = decision else {
                panic!("{epoch:?} {seen:?}: {decision:?}")
            };
            request.accept_memory_loss = Some("something else".into());
            assert!(decide(Some(&known), &[], &request).is_err());
            request.accept_memory_loss = Some(token);
            // Above everything that was ever used, so that no old pod can meet its own epoch again.
            assert_eq!(taken(decide(Some(&known), &[], &request)).0.epoch, epoch.unwrap_or(0).max(5) + 1);
        }
    }

    #[test]
    fn an_older_head_beside_newer_snapshots_is_a_rollback() {
        let known = head(5, vec![snapshot("5-2-aa", SnapshotKind::Final, "x")]);
        let lowered = Head { epoch: 4, ..known.clone() };
        let owner = HeadOwner { uid: "agent-0".into(), ..known.owner.clone() };
        let tombstone = Head { deleted_at: Some(at(0)), owner, ..head(5, vec![]) };
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let later = ids(&["5-2-aa", "9-1-bb", "12-3-cc"]);
        assert!(
            decide(Some(&known), &ids(&["5-9-zz"]), &request("c")).is_ok(),
            "a killed pod's, of this epoch"
        );
        for (head, ids, newest, next) in [
            (&known, &later, "12-3-cc", 13),
            (&lowered, &ids(&["5-9-zz"]), "5-9-zz", 6),
            (&lowered, &ids(&[]), "5-2-aa", 6),
            (&tombstone, &later, "12-3-cc", 13),
        ] {
            let error = decide(Some(head), ids, &request("c")).unwrap_err();
            assert_eq!(error.class(), cicada_contract::FailureClass::StoreRolledBack);
            let text = error.to_string();
            assert!(text.contains(&format!("accept-memory-loss: {newest}")), "{text}");
            assert!(text.contains("cicadactl verify"), "{text}");
            let accepted = AcquireRequest { accept_memory_loss: Some(newest.into()), ..request("c") };
            let taken = taken(decide(Some(head), ids, &accepted)).0;
            assert_eq!(taken.epoch, next, "above all that was ever used");
        }
        // What status expected and what lies there differ: one word of a person is enough for both.
        let expecting = AcquireRequest {
            accept_memory_loss: Some("9-1-bb".into()),
            ..expecting(Some(9), Some("9-1-bb"))
        };
        assert_eq!(taken(decide(Some(&known), &later, &expecting)).0.epoch, 13);
    }

    #[test]
    fn without_head_only_a_place_without_traces_starts_empty() {
        let none: [String; 0] = [];
        assert_eq!(taken(decide(None, &none, &request("c"))).0.epoch, 1);
        let traces = ["9-1-aa".to_owned(), "10-1-bb".to_owned()];
        let error = decide(None, &traces, &request("c")).unwrap_err();
        assert!(matches!(&error, AcquireError::MemoryMissing { token, .. } if token == "10-1-bb"), "{error}");
        let error = decide(None, &none, &expecting(Some(3), None)).unwrap_err();
        assert!(matches!(&error, AcquireError::MemoryMissing { token, .. } if token == "epoch-3"), "{error}");
        let accepted = AcquireRequest { accept_memory_loss: Some("10-1-bb".into()), ..request("c") };
        assert_eq!(taken(decide(None, &traces, &accepted)).0.epoch, 11);
    }

    #[test]
    fn attempts_are_counted_and_end() {
        let mut known = head(5, vec![]);
        for before in 0..=ATTEMPTS_MAX {
            let decision = decide(Some(&known), &[], &request("c"));
            if before == ATTEMPTS_MAX {
                assert!(matches!(decision, Err(AcquireError::AttemptsExhausted)));
                break;
            }
            let (next, _, attempt) = taken(decision);
            assert_eq!(attempt, before + 1);
            known = next;
        }
        assert_eq!(taken(decide(Some(&known), &[], &request("another"))).2, 1);
        // One that has its final snapshot is recovered, however many pods it took.
        known.snapshots.push(snapshot("5-1-aa", SnapshotKind::Final, "c"));
        known.current = Some("5-1-aa".into());
        known.ended.push("c".into());
        assert!(matches!(taken(decide(Some(&known), &[], &request("c"))).1, Start::Recovered(_)));
    }

    #[test]
    fn requests_are_handled_only_if_all_of_them_are() {
        let mut known = head(5, vec![]);
        known.handled = vec!["a".into(), "b".into()];
        let with = |keys: &[&str], others| AcquireRequest {
            handled_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            has_other_triggers: others,
            ..request("c")
        };
        for (request, handled) in [
            (with(&["a"], false), true),
            (with(&["a", "b"], false), true),
            (with(&["a", "c"], false), false),
            (with(&["a"], true), false),
            (with(&[], false), false),
        ] {
            let decision = decide(Some(&known), &[], &request).unwrap();
            assert_eq!(decision == Decision::AlreadyHandled, handled, "{:?}", request.handled_keys);
        }
    }

    #[test]
    fn people_wait_for_a_holder_and_cycles_fence_it() {
        let (known, _, _) = taken(decide(Some(&head(5, vec![])), &[], &request("running")));
        let mut person = AcquireRequest { refuse_if_held: true, ..request("restore") };
        let error = decide(Some(&known), &[], &person).unwrap_err();
        assert!(error.to_string().starts_with("cycle clerk-running works on the memory until "), "{error}");
        person.now = at(1801);
        assert!(decide(Some(&known), &[], &person).is_ok(), "after its deadline");
        assert_eq!(taken(decide(Some(&known), &[], &request("next"))).0.epoch, 7);
    }

    #[test]
    fn uids_are_kept_where_people_know_none_and_a_new_namespace_can_be_refused() {
        let known = head(5, vec![]);
        let mut person = request("c");
        person.owner.uid = String::new();
        assert_eq!(taken(decide(Some(&known), &[], &person)).0.owner, known.owner);
        let mut again = AcquireRequest { namespace_uid: Some("ns-2".into()), ..request("c") };
        assert!(decide(Some(&known), &[], &again).is_ok());
        again.refuse_namespace_reuse = true;
        assert!(matches!(decide(Some(&known), &[], &again), Err(AcquireError::NamespaceReused)));
        again.take_over_from = Some("prod/shop/clerk".into());
        assert!(decide(Some(&known), &[], &again).is_ok());
    }
}
