//! What a cycle may rely on: acquire, publish, and what happens when an answer is lost.

use std::{sync::Arc, time::Duration};

use cicada_contract::{
    FailureClass,
    plan::{CycleIdentity, Expect, Owner},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    AcquireError, AcquireRequest, Acquired, Acquisition, AgentStore, Archive, Condition, DirectoryStore,
    HEAD_KEY, ObjectStore, PackedArchive, PublishError, PublishRequest, SnapshotKind, Start,
    faulty::{Answer, Fault, FaultyStore},
    pack,
};

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_796_000_000).unwrap()
}

pub(super) fn request(cycle: &str) -> AcquireRequest {
    let owner = Owner {
        cluster: "prod".into(),
        namespace: "shop".into(),
        name: "clerk".into(),
        uid: "agent-1".into(),
        ..Owner::default()
    };
    let cycle = CycleIdentity { name: format!("clerk-{cycle}"), uid: cycle.into() };
    AcquireRequest::new(owner, cycle, now() + SignedDuration::from_mins(30), now())
}

pub(super) fn agent(store: Arc<dyn ObjectStore>) -> AgentStore {
    let mut agent = AgentStore::new(store, "shop", "clerk").unwrap();
    agent.pause = Duration::from_millis(1);
    agent
}

/// A directory store that fails on demand, and the agent on it.
pub(super) struct Bench {
    pub(super) dir: tempfile::TempDir,
    pub(super) faulty: Arc<FaultyStore>,
    pub(super) agent: AgentStore,
}

impl Bench {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let faulty = Arc::new(FaultyStore::new(Arc::new(DirectoryStore::new(dir.path().join("store")))));
        let agent = agent(faulty.clone());
        Self { dir, faulty, agent }
    }

    /// Another process's view of the same store, without faults.
    pub(super) fn other(&self) -> AgentStore {
        agent(Arc::new(DirectoryStore::new(self.dir.path().join("store"))))
    }

    pub(super) async fn packed(&self, text: &str) -> PackedArchive {
        let file = self.dir.path().join("file.db");
        std::fs::write(&file, text).unwrap();
        pack(&file, &self.dir.path().join(format!("{text}.zst"))).await.unwrap()
    }
}

pub(super) async fn held(agent: &AgentStore, request: AcquireRequest) -> Acquired {
    match agent.acquire(request).await.unwrap() {
        Acquisition::Held(acquired) => *acquired,
        Acquisition::AlreadyHandled(_) => panic!("already handled"),
    }
}

pub(super) fn last(kind: SnapshotKind) -> PublishRequest {
    PublishRequest { done: true, ..PublishRequest::new(kind, now()) }
}

#[tokio::test]
async fn a_memory_grows_over_cycles_and_unchanged_archives_are_not_uploaded() {
    let bench = Bench::new();
    let mut first = held(&bench.agent, request("c1")).await;
    assert_eq!((first.start, first.attempt, first.writer.epoch()), (Start::Empty, 1, 1));
    let memory = bench.packed("memory").await;
    let ledger = bench.packed("ledger").await;
    let done = first
        .writer
        .publish(PublishRequest {
            memory: Archive::New(memory),
            ledger: Archive::New(ledger),
            handled_keys: vec!["run-1".into()],
            ..last(SnapshotKind::Final)
        })
        .await
        .unwrap();
    assert!(done.snapshot.id.starts_with("1-1-") && done.uploaded > 0 && !done.retried);

    let mut second = held(&bench.agent, request("c2")).await;
    assert_eq!(second.start, Start::Current(done.snapshot.clone()));
    let ledger = Archive::New(bench.packed("ledger2").await);
    let next = second.writer.publish(PublishRequest { ledger, ..last(SnapshotKind::Final) }).await.unwrap();
    assert_eq!(next.snapshot.memory, done.snapshot.memory);
    let down = bench.dir.path().join("down.zst");
    let archive = next.snapshot.ledger.clone().unwrap();
    let got = bench.agent.store().download(&bench.agent.key(&archive.key), &down, u64::MAX).await.unwrap();
    assert_eq!((got.sha256, got.size), (archive.archive_sha256, archive.archive_size));
    assert_eq!(zstd::decode_all(std::fs::File::open(down).unwrap()).unwrap(), b"ledger2");
    let head = bench.agent.read_head().await.unwrap().unwrap().head;
    assert_eq!((head.epoch, head.holder.clone(), head.snapshots.len()), (2, None, 2));
    assert_eq!(head.current().unwrap(), &next.snapshot);
}

/// volsync#1710: after an upgrade two movers wrote one backup.
#[tokio::test]
async fn two_cycles_at_once_publish_once_and_the_other_is_fenced() {
    let bench = Bench::new();
    let mut a = held(&bench.agent, request("a")).await;
    let mut b = held(&bench.other(), request("b")).await;
    let fenced = a.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
    assert!(matches!(&fenced, PublishError::Fenced { by, epoch: 2 } if by == "clerk-b"), "{fenced}");
    assert_eq!(fenced.class(), FailureClass::PersistFenced);
    b.writer.publish(last(SnapshotKind::Final)).await.unwrap();
    let fenced = a.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
    assert!(fenced.is_fenced());
    let head = bench.agent.read_head().await.unwrap().unwrap().head;
    assert_eq!(head.snapshots.len(), 1);
    assert_eq!(head.current().unwrap().cycle.uid, "b");
}

#[tokio::test]
async fn a_later_attempt_supersedes_an_earlier_one() {
    let bench = Bench::new();
    let mut first = held(&bench.agent, request("a")).await;
    let mut second = held(&bench.other(), request("a")).await;
    assert_eq!(second.attempt, 2);
    let error = first.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
    assert!(matches!(error, PublishError::Superseded { attempt: 2, epoch: 2 }), "{error}");
    second.writer.publish(last(SnapshotKind::Final)).await.unwrap();
    let error = first.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::Superseded, "also after its holder is gone");
}

#[tokio::test]
async fn killed_between_publish_and_report_is_recovered_not_repeated() {
    let bench = Bench::new();
    let mut first =
        held(&bench.agent, AcquireRequest { handled_keys: vec!["t".into()], ..request("a") }).await;
    let request_of_a = || AcquireRequest { handled_keys: vec!["t".into()], ..request("a") };
    let publish = PublishRequest { handled_keys: vec!["t".into()], ..last(SnapshotKind::Final) };
    let done = first.writer.publish(publish).await.unwrap();
    let mut again = held(&bench.other(), request_of_a()).await;
    assert_eq!(again.start, Start::Recovered(done.snapshot.clone()));
    again.writer.release(now()).await.unwrap();
    // Other cycles in between, and a retention that has dropped its snapshot, change nothing about it.
    let mut current = done.snapshot;
    for other in ["b", "c", "d"] {
        let retention = crate::SnapshotRetention { count: 1, max_age: 0 };
        let publish = PublishRequest { retention, ..last(SnapshotKind::Final) };
        current = held(&bench.other(), request(other)).await.writer.publish(publish).await.unwrap().snapshot;
    }
    assert_eq!(held(&bench.other(), request_of_a()).await.start, Start::Recovered(current));
    // The same request by another cycle (a re-applied folder) is handled.
    let other = AcquireRequest { handled_keys: vec!["t".into()], ..request("e") };
    let epoch = bench.agent.read_head().await.unwrap().unwrap().head.epoch;
    assert!(matches!(bench.other().acquire(other).await.unwrap(), Acquisition::AlreadyHandled(_)));
    assert_eq!(bench.agent.read_head().await.unwrap().unwrap().head.epoch, epoch, "nothing was written");
}

#[tokio::test]
async fn a_checkpoint_or_an_interruption_is_resumed_and_a_failure_is_not() {
    let bench = Bench::new();
    for (kind, resumed) in
        [(SnapshotKind::Checkpoint, true), (SnapshotKind::Interrupted, true), (SnapshotKind::Failed, false)]
    {
        let cycle = format!("{kind:?}");
        let mut first = held(&bench.agent, request(&cycle)).await;
        let done = first.writer.publish(PublishRequest::new(kind, now())).await.unwrap().snapshot;
        let start = held(&bench.agent, request(&cycle)).await.start;
        assert_eq!(start, if resumed { Start::Resume(done) } else { Start::Current(done) });
    }
}

#[tokio::test]
async fn a_missing_head_is_never_taken_for_a_new_agent() {
    let bench = Bench::new();
    let mut first = held(&bench.agent, request("a")).await;
    let memory = Archive::New(bench.packed("m").await);
    let done = first.writer.publish(PublishRequest { memory, ..last(SnapshotKind::Final) }).await.unwrap();
    let head_key = bench.agent.key(HEAD_KEY);
    bench.agent.store().delete(&head_key).await.unwrap();
    let objects = bench.agent.store().list("").await.unwrap();

    let expect = Expect { snapshot: Some(done.snapshot.id.clone()), epoch: Some(1) };
    for expect in [Expect::default(), expect.clone()] {
        let error = bench.agent.acquire(AcquireRequest { expect, ..request("b") }).await.unwrap_err();
        assert_eq!(error.class(), FailureClass::MemoryMissing);
        assert!(
            error.to_string().contains(&format!("cicada.dev/accept-memory-loss: {}", done.snapshot.id)),
            "{error}"
        );
        assert_eq!(bench.agent.store().list("").await.unwrap(), objects, "nothing is created");
    }
    // Inbox and files alone are no memory: they come before the first cycle.
    for object in &objects {
        bench.agent.store().delete(&object.key).await.unwrap();
    }
    bench.agent.store().put(&bench.agent.key("files/a.csv"), "x".into(), Condition::Any).await.unwrap();
    let error =
        bench.agent.acquire(AcquireRequest { expect: expect.clone(), ..request("b") }).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::MemoryMissing, "status remembers what the bucket forgot");

    let accepted = AcquireRequest { expect, accept_memory_loss: Some(done.snapshot.id), ..request("b") };
    let fresh = held(&bench.agent, accepted).await;
    assert_eq!((fresh.start, fresh.writer.epoch()), (Start::Empty, 2), "epochs are never used twice");
}

#[tokio::test]
async fn a_publish_with_a_removed_or_replaced_head_writes_nothing() {
    let bench = Bench::new();
    let head_key = bench.agent.key(HEAD_KEY);
    let mut first = held(&bench.agent, request("a")).await;
    let old = bench.agent.store().get(&head_key).await.unwrap().bytes;
    first.writer.publish(PublishRequest::new(SnapshotKind::Checkpoint, now())).await.unwrap();
    bench.agent.store().put(&head_key, old, Condition::Any).await.unwrap();
    let error = first.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
    assert!(matches!(error, PublishError::HeadPutBack { epoch: 1 }), "{error}");
    assert_eq!(error.class(), FailureClass::StoreRolledBack);
    for (bytes, class) in
        [("{", FailureClass::HeadCorrupt), (r#"{"version":9}"#, FailureClass::UnknownVersion)]
    {
        bench.agent.store().put(&head_key, bytes.into(), Condition::Any).await.unwrap();
        let error = first.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        assert_eq!(bench.agent.store().get(&head_key).await.unwrap().bytes, bytes);
    }
    bench.agent.store().delete(&head_key).await.unwrap();
    let error = first.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
    assert!(matches!(error, PublishError::HeadRemoved), "{error}");
    assert_eq!(error.class(), FailureClass::MemoryMissing);
    assert!(bench.agent.read_head().await.unwrap().is_none());
}

#[tokio::test]
async fn an_unknown_or_damaged_head_is_refused_and_never_rewritten() {
    let bench = Bench::new();
    let key = bench.agent.key(HEAD_KEY);
    let damaged = FailureClass::HeadCorrupt;
    for (text, class) in [
        (r#"{"version":3,"epoch":1}"#, FailureClass::UnknownVersion),
        ("", damaged),
        ("{", damaged),
        ("\0\0", damaged),
        (r#"{"version":1,"owner":{"cluster":"pr"#, damaged),
    ] {
        bench.agent.store().put(&key, text.into(), Condition::Any).await.unwrap();
        let error = bench.agent.acquire(request("a")).await.unwrap_err();
        assert_eq!(error.class(), class, "{text}: {error}");
        assert_eq!(&bench.agent.store().get(&key).await.unwrap().bytes[..], text.as_bytes());
    }
}

#[tokio::test]
async fn another_owner_is_a_conflict_until_the_memory_is_taken_over() {
    let bench = Bench::new();
    held(&bench.agent, request("a")).await.writer.publish(last(SnapshotKind::Final)).await.unwrap();
    let mut stranger = request("b");
    stranger.owner.cluster = "staging".into();
    let error = bench.agent.acquire(stranger.clone()).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::StoreConflict);
    assert!(error.to_string().starts_with("the memory belongs to prod/shop/clerk;"), "{error}");
    stranger.take_over_from = Some("prod/shop/other".into());
    assert!(matches!(bench.agent.acquire(stranger.clone()).await, Err(AcquireError::Conflict { .. })));
    stranger.take_over_from = Some("prod/shop/clerk".into());
    assert_eq!(held(&bench.agent, stranger).await.writer.head().owner.path(), "staging/shop/clerk");
    // A re-created agent of the same name finds its memory.
    let mut again = request("c");
    again.owner = Owner { cluster: "staging".into(), uid: "agent-2".into(), ..again.owner };
    assert!(held(&bench.agent, again).await.adopted);
}

/// Each write of a cycle meets each fault, with a retry that must find the truth.
#[tokio::test]
async fn an_unclear_answer_is_cleared_up_by_reading_again() {
    for answer in [Answer::Timeout, Answer::Unavailable, Answer::Conflict] {
        for fault in [Fault::Before(answer), Fault::After(answer), Fault::Late(answer)] {
            let bench = Bench::new();
            // Call 1 reads HEAD, 2 lists snapshots, 3 writes HEAD.
            bench.faulty.fail(3, fault);
            let mut first = held(&bench.agent, request("a")).await;
            assert_eq!(first.writer.epoch(), 1, "{fault:?}");
            let landed = bench.faulty.land().await;
            assert!(landed.iter().all(Result::is_err), "a late twin changes nothing: {landed:?}");

            bench.faulty.fail_next(fault);
            let done = first.writer.publish(last(SnapshotKind::Final)).await.unwrap();
            assert!(done.retried, "{fault:?}");
            assert!(bench.faulty.land().await.iter().all(Result::is_err));
            let head = bench.other().read_head().await.unwrap().unwrap().head;
            assert_eq!((head.snapshots.len(), head.current()), (1, Some(&done.snapshot)), "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_write_that_lands_after_the_fence_changes_nothing() {
    let bench = Bench::new();
    let mut slow = held(&bench.agent, request("slow")).await;
    bench.faulty.fail_next(Fault::Late(Answer::Timeout));
    // Its look and all that follows fail as well: it gives up without knowing.
    for call in 2..=30 {
        bench.faulty.fail(bench.faulty.calls() + call, Fault::Before(Answer::Unavailable));
    }
    let error = slow.writer.publish(last(SnapshotKind::Final)).await.unwrap_err();
    assert!(matches!(error, PublishError::Unclear(_)), "{error}");
    assert_eq!(error.class(), FailureClass::SqlitePersistenceUploadFailed);

    let mut next = held(&bench.other(), request("next")).await;
    assert!(matches!(bench.faulty.land().await[..], [Err(crate::StoreError::Precondition { .. })]));
    next.writer.publish(last(SnapshotKind::Final)).await.unwrap();
    let head = bench.other().read_head().await.unwrap().unwrap().head;
    assert!(head.snapshots.iter().all(|snapshot| snapshot.cycle.uid == "next"));
}

#[tokio::test]
async fn an_unclear_publish_that_landed_is_recovered_by_the_next_attempt() {
    let bench = Bench::new();
    let mut first = held(&bench.agent, request("a")).await;
    bench.faulty.fail_next(Fault::After(Answer::Timeout));
    for call in 2..=30 {
        bench.faulty.fail(bench.faulty.calls() + call, Fault::Before(Answer::Unavailable));
    }
    assert!(matches!(first.writer.publish(last(SnapshotKind::Final)).await, Err(PublishError::Unclear(_))));
    assert!(matches!(held(&bench.other(), request("a")).await.start, Start::Recovered(_)));
}

#[tokio::test]
async fn head_knows_how_long_the_newest_persist_of_a_changed_memory_took() {
    let bench = Bench::new();
    let mut first = held(&bench.agent, request("a")).await;
    let began = Some(std::time::Instant::now());
    let memory = Archive::New(bench.packed("memory").await);
    tokio::time::sleep(Duration::from_millis(30)).await;
    first.writer.publish(PublishRequest { memory, began, ..last(SnapshotKind::Final) }).await.unwrap();
    let took = first.writer.head().persist_ms.unwrap();
    assert!((30..30_000).contains(&took), "{took}");
    let mut next = held(&bench.agent, request("b")).await;
    let began = Some(std::time::Instant::now());
    next.writer.publish(PublishRequest { began, ..last(SnapshotKind::Final) }).await.unwrap();
    assert_eq!(next.writer.head().persist_ms, Some(took), "one without a change says nothing of one with it");
}

#[tokio::test]
async fn an_upload_that_takes_too_long_leaves_head_as_it_was() {
    let bench = Bench::new();
    let mut first = held(&bench.agent, request("a")).await;
    let before = bench.agent.read_head().await.unwrap().unwrap();
    let upload_by = Some(std::time::Instant::now());
    let memory = Archive::New(bench.packed("memory").await);
    let late = PublishRequest { memory: memory.clone(), upload_by, ..last(SnapshotKind::Interrupted) };
    let error = first.writer.publish(late).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::GraceTooShort, "{error}");
    let after = bench.agent.read_head().await.unwrap().unwrap();
    assert_eq!((after.etag, after.head), (before.etag, before.head));
    // The writer is as good as before.
    first.writer.publish(PublishRequest { memory, ..last(SnapshotKind::Final) }).await.unwrap();
}
