//! A cycle that dies at each of its calls in turn, before and after the effect: the next attempt always
//! works without a hand, nothing acknowledged is lost, nothing runs twice.

use super::cycles::{Bench, held, last, now, request};
use crate::{
    AcquireRequest, Acquisition, AgentStore, Archive, PublishRequest, SnapshotKind, SnapshotRetention, Start,
    faulty::{Answer, Fault},
};

/// The store's part of a cycle: acquire, checkpoint, end, collect. True when its end was acknowledged.
async fn cycle(bench: &Bench, agent: &AgentStore) -> bool {
    let request = AcquireRequest { handled_keys: vec!["token".into()], ..request("c") };
    let acquired = match agent.acquire(request).await {
        Ok(Acquisition::Held(acquired)) => acquired,
        Ok(Acquisition::AlreadyHandled(_)) => return true,
        Err(_) => return false,
    };
    let mut acquired = *acquired;
    if let Start::Recovered(_) = acquired.start {
        return acquired.writer.release(now()).await.is_ok();
    }
    let ledger = Archive::New(bench.packed("intent").await);
    let checkpoint = PublishRequest { ledger, ..PublishRequest::new(SnapshotKind::Checkpoint, now()) };
    if acquired.writer.publish(checkpoint).await.is_err() {
        return false;
    }
    let end = PublishRequest {
        memory: Archive::New(bench.packed("memory").await),
        ledger: Archive::New(bench.packed("ledger").await),
        handled_keys: vec!["token".into()],
        retention: SnapshotRetention { count: 1, max_age: 0 },
        ..last(SnapshotKind::Final)
    };
    let ended = acquired.writer.publish(end).await.is_ok();
    if ended {
        let _ = acquired.writer.collect(&[], now()).await;
    }
    ended
}

async fn bench_with_a_memory() -> Bench {
    let bench = Bench::new();
    let before = PublishRequest {
        memory: Archive::New(bench.packed("before").await),
        ledger: Archive::New(bench.packed("before2").await),
        ..last(SnapshotKind::Final)
    };
    held(&bench.other(), request("earlier")).await.writer.publish(before).await.unwrap();
    bench
}

async fn calls_of_a_whole_cycle() -> u64 {
    let bench = bench_with_a_memory().await;
    assert!(cycle(&bench, &bench.agent).await);
    println!("{:#?}", bench.faulty.log());
    bench.faulty.calls()
}

/// volsync#1042, #653, #1429, #1415: a killed mover left a lock, and every later try failed until a hand removed it.
#[tokio::test]
async fn a_cycle_that_dies_at_any_call_is_finished_by_its_next_attempt() {
    let calls = calls_of_a_whole_cycle().await;
    assert!(calls >= 8, "{calls}");
    for call in 1..=calls {
        for fault in [Fault::DieBefore, Fault::DieAfter] {
            let bench = bench_with_a_memory().await;
            bench.faulty.fail(call, fault);
            let acknowledged = cycle(&bench, &bench.agent).await;
            let head = bench.other().read_head().await.unwrap().unwrap().head;
            let was_final =
                head.newest_of(&request("c").cycle).is_some_and(|s| s.kind == SnapshotKind::Final);
            assert!(was_final || !acknowledged, "call {call}, {fault:?}");
            whole(&bench.other()).await;
            assert!(cycle(&bench, &bench.other()).await, "call {call}, {fault:?}");
            let after = bench.other().read_head().await.unwrap().unwrap().head;
            whole(&bench.other()).await;
            assert_eq!(after.holder, None);
            let finals =
                after.snapshots.iter().filter(|s| s.cycle.uid == "c" && s.kind == SnapshotKind::Final);
            assert_eq!(finals.count(), 1, "call {call}, {fault:?}");
            if was_final {
                assert_eq!(
                    after.current, head.current,
                    "recovered, not executed again: call {call}, {fault:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn an_outage_at_any_call_is_overcome_or_left_to_the_next_attempt() {
    let calls = calls_of_a_whole_cycle().await;
    for call in 1..=calls {
        for answer in [Answer::Timeout, Answer::Conflict] {
            for fault in [Fault::Before(answer), Fault::After(answer), Fault::Late(answer)] {
                let bench = bench_with_a_memory().await;
                bench.faulty.fail(call, fault);
                if !cycle(&bench, &bench.agent).await {
                    assert!(cycle(&bench, &bench.other()).await, "call {call}, {fault:?}");
                }
                bench.faulty.land().await;
                whole(&bench.other()).await;
                let head = bench.other().read_head().await.unwrap().unwrap().head;
                assert_eq!(head.current().unwrap().kind, SnapshotKind::Final, "call {call}, {fault:?}");
            }
        }
    }
}

/// Everything that HEAD names is there, and is what HEAD says.
async fn whole(agent: &AgentStore) {
    let head = agent.read_head().await.unwrap().unwrap().head;
    let dir = tempfile::tempdir().unwrap();
    for archive in head.snapshots.iter().flat_map(|snapshot| [&snapshot.memory, &snapshot.ledger]).flatten() {
        let file = dir.path().join("down");
        let got = agent.store().download(&agent.key(&archive.key), &file, u64::MAX).await.unwrap();
        assert_eq!(got.sha256, archive.archive_sha256);
    }
}

#[tokio::test]
async fn an_upload_that_fails_in_passing_is_retried_and_said_so() {
    let bench = bench_with_a_memory().await;
    let mut acquired = held(&bench.agent, request("c")).await;
    bench.faulty.fail_next(Fault::Before(Answer::Unavailable));
    let memory = Archive::New(bench.packed("m").await);
    let done = acquired.writer.publish(PublishRequest { memory, ..last(SnapshotKind::Final) }).await.unwrap();
    assert!(done.retried);
    // One that goes on failing leaves HEAD as it was.
    let mut acquired = held(&bench.agent, request("d")).await;
    for ahead in 1..=3 {
        bench.faulty.fail(bench.faulty.calls() + ahead, Fault::Before(Answer::Unavailable));
    }
    let memory = Archive::New(bench.packed("n").await);
    let error =
        acquired.writer.publish(PublishRequest { memory, ..last(SnapshotKind::Final) }).await.unwrap_err();
    assert_eq!(error.class(), cicada_contract::FailureClass::SqlitePersistenceUploadFailed);
    assert_eq!(bench.other().read_head().await.unwrap().unwrap().head.current, Some(done.snapshot.id));
    bench.faulty.fail_next(Fault::Before(Answer::Unauthorized));
    let memory = Archive::New(bench.packed("o").await);
    let error =
        acquired.writer.publish(PublishRequest { memory, ..last(SnapshotKind::Final) }).await.unwrap_err();
    assert_eq!(error.class(), cicada_contract::FailureClass::StoreRefused, "{error}");
}

/// HEAD as version 1 wrote it, and as it must stay readable.
#[tokio::test]
async fn a_head_of_the_first_release_is_read_and_carried_on() {
    let text = include_str!("head-v1.json");
    let bench = Bench::new();
    let key = bench.agent.key(crate::HEAD_KEY);
    bench.agent.store().put(&key, text.into(), crate::Condition::Create).await.unwrap();
    let mut acquired = held(&bench.agent, request("c")).await;
    let Start::Current(base) = acquired.start.clone() else { panic!("not current") };
    assert_eq!(base.id, "7-2-00000000000000ab");
    acquired.writer.publish(PublishRequest::new(SnapshotKind::Checkpoint, now())).await.unwrap();
    let bytes = bench.agent.store().get(&key).await.unwrap().bytes;
    let old: serde_json::Value = serde_json::from_str(text).unwrap();
    let new: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    for field in [
        "version",
        "owner",
        "handled",
        "appliedRestore",
        "checkedAt",
        "erasures",
        "auditHead",
        "inventedLater",
    ] {
        assert_eq!(new[field], old[field], "{field}");
    }
    assert_eq!(new["snapshots"][0], old["snapshots"][0], "with the fields of a later release");
    assert_eq!((new["epoch"].as_u64(), new["published"].as_u64()), (Some(8), Some(12)));
}
