//! What a bucket must promise, what is read about it, and what is taken away from it.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::{
    cycles::{Bench, agent, held, last, now, request},
    servers::VersityGw,
};
use crate::{
    AcquireError, AcquireRequest, AgentStore, Archive, BucketFacts, CollectError, Condition, CopyError,
    DirectoryStore, Downloaded, ETag, HEAD_KEY, Object, ObjectMeta, ObjectStore, PublishRequest,
    SnapshotKind, SnapshotRetention, Start, StoreError, conformance, store::Result,
};

/// A server that takes conditions and does not keep them, each in its own way.
#[derive(Debug)]
struct Careless {
    inner: DirectoryStore,
    what: Neglects,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Neglects {
    Create,
    Match,
    /// minio#21526.
    MatchOnMissing,
    /// Compares, then writes: two racing writers both win.
    MatchRace,
    /// The same of creates, as s3mock 4.12.4 does.
    CreateRace,
    /// Refuses the losers of racing creates, and lets them write nevertheless.
    Refusal,
}

#[async_trait]
impl ObjectStore for Careless {
    async fn get(&self, key: &str) -> Result<Object> {
        self.inner.get(key).await
    }
    async fn download(&self, key: &str, file: &Path, max: u64) -> Result<Downloaded> {
        self.inner.download(key, file, max).await
    }
    async fn put(&self, key: &str, bytes: Bytes, condition: Condition) -> Result<ETag> {
        let found = self.inner.get(key).await.ok().map(|object| object.etag);
        let condition = match (&condition, found, self.what) {
            (Condition::Create, _, Neglects::Create)
            | (Condition::Match(_), Some(_), Neglects::Match)
            | (Condition::Match(_), None, Neglects::MatchOnMissing) => Condition::Any,
            (Condition::Match(expected), Some(found), Neglects::MatchRace) if *expected == found => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                Condition::Any
            }
            (Condition::Create, None, Neglects::CreateRace | Neglects::Refusal) => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                let done = self.inner.put(key, bytes.clone(), condition).await;
                if done.is_ok() {
                    return done;
                }
                let written = self.inner.put(key, bytes, Condition::Any).await;
                return if self.what == Neglects::Refusal { done } else { written };
            }
            _ => condition,
        };
        self.inner.put(key, bytes, condition).await
    }
    async fn upload(&self, key: &str, file: &Path, condition: Condition) -> Result<ETag> {
        self.inner.upload(key, file, condition).await
    }
    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        self.inner.list(prefix).await
    }
    async fn sweep(&self, prefix: &str, before: Timestamp) -> Result<usize> {
        self.inner.sweep(prefix, before).await
    }
    async fn facts(&self) -> BucketFacts {
        BucketFacts::default()
    }
    fn needs_probe(&self) -> bool {
        true
    }
    fn location(&self) -> String {
        "s3://careless".into()
    }
}

/// minio#21526, ministack#1435: servers that take a condition and do not keep it.
#[tokio::test]
async fn a_bucket_without_conditional_writes_gets_no_memory() {
    for what in [
        Neglects::Create,
        Neglects::Match,
        Neglects::MatchOnMissing,
        Neglects::MatchRace,
        Neglects::CreateRace,
        Neglects::Refusal,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Careless { inner: DirectoryStore::new(dir.path()), what });
        let agent = agent(store.clone());
        let error = agent.acquire(request("a")).await.unwrap_err();
        assert!(
            matches!(&error, AcquireError::Store(StoreError::NoConditionalWrites { .. })),
            "{what:?}: {error:?}"
        );
        assert_eq!(error.class(), cicada_contract::FailureClass::StoreRefused);
        let AcquireError::Store(source) = error else { panic!() };
        assert!(source.to_string().starts_with("the store has no conditional writes: "), "{source}");
        assert!(store.list("").await.unwrap().is_empty(), "{what:?}: nothing stays behind");
        assert!(conformance::run(store, "trial").await.is_err(), "{what:?}: the suite catches it too");
    }
}

#[tokio::test]
#[ignore = "needs versitygw"]
async fn a_real_bucket_is_probed_and_its_versioning_read() {
    for versioned in [false, true] {
        let server = VersityGw::start_with(versioned);
        let store = server.store("p").await;
        if versioned {
            server.enable_versioning().await;
        }
        let agent = agent(Arc::new(store));
        let facts = agent.probe().await.unwrap();
        if versioned {
            assert_eq!(facts.versioning, Some(true));
        } else {
            assert_ne!(facts.versioning, Some(true));
        }
        assert_ne!(facts.object_lock, Some(true));
        assert!(agent.store().list("").await.unwrap().is_empty());
        held(&agent, request("a")).await.writer.publish(last(SnapshotKind::Final)).await.unwrap();
    }
}

#[tokio::test]
async fn retention_counts_what_cycles_finished_and_never_drops_the_current() {
    let bench = Bench::new();
    let retention = SnapshotRetention { count: 3, max_age: 1000 };
    for n in 0..6_i64 {
        let at = now() + SignedDuration::from_secs(n);
        let mut acquired = held(&bench.agent, request(&format!("c{n}"))).await;
        let checkpoint = PublishRequest { retention, ..PublishRequest::new(SnapshotKind::Checkpoint, at) };
        acquired.writer.publish(checkpoint).await.unwrap();
        let kind = if n % 2 == 0 { SnapshotKind::Final } else { SnapshotKind::Interrupted };
        acquired.writer.publish(PublishRequest { retention, now: at, ..last(kind) }).await.unwrap();
    }
    let listed = |head: &crate::Head| head.snapshots.iter().map(|s| s.cycle.uid.clone()).collect::<Vec<_>>();
    let head = bench.agent.read_head().await.unwrap().unwrap().head;
    assert_eq!(listed(&head), ["c3", "c4", "c5"], "checkpoints are replaced, not counted");
    // A failed cycle pushes nothing sound out.
    let mut failed = held(&bench.agent, request("bad")).await;
    failed.writer.publish(PublishRequest { retention, ..last(SnapshotKind::Failed) }).await.unwrap();
    let head = bench.agent.read_head().await.unwrap().unwrap().head;
    assert_eq!(listed(&head), ["c3", "c4", "c5", "bad"]);
    // By age, all but the current one.
    let late = now() + SignedDuration::from_secs(5000);
    let mut after = held(&bench.agent, request("late")).await;
    after.writer.publish(PublishRequest { retention, now: late, ..last(SnapshotKind::Final) }).await.unwrap();
    let head = bench.agent.read_head().await.unwrap().unwrap().head;
    assert_eq!(listed(&head), ["late"]);
}

async fn publish(bench: &Bench, cycle: &str, text: &str) -> crate::Published {
    publish_among(bench, cycle, text, 2).await
}

/// With `count` snapshots that stay listed.
async fn publish_among(bench: &Bench, cycle: &str, text: &str, count: u32) -> crate::Published {
    let memory = Archive::New(bench.packed(text).await);
    let retention = SnapshotRetention { count, max_age: 0 };
    held(&bench.agent, request(cycle))
        .await
        .writer
        .publish(PublishRequest { memory, retention, ..last(SnapshotKind::Final) })
        .await
        .unwrap()
}

#[tokio::test]
async fn what_left_the_list_goes_an_hour_later_and_no_sooner() {
    let bench = Bench::new();
    let first = publish(&bench, "a", "one").await.snapshot.memory.unwrap();
    publish(&bench, "b", "two").await;
    publish(&bench, "c", "three").await;
    let collected = bench.agent.collect(&[], now()).await.unwrap();
    assert_eq!((collected.removed.len(), collected.later), (0, 1));
    let later = now() + SignedDuration::from_mins(61);
    assert_eq!(bench.agent.collect(&[], later).await.unwrap().removed, [first.key]);
    // Without HEAD nothing can be told from garbage.
    bench.agent.store().delete(&bench.agent.key(HEAD_KEY)).await.unwrap();
    let before = bench.agent.store().list("").await.unwrap();
    assert!(matches!(bench.agent.collect(&[], later).await, Err(CollectError::NoHead)));
    bench
        .agent
        .store()
        .put(&bench.agent.key(HEAD_KEY), r#"{"version":9}"#.into(), Condition::Any)
        .await
        .unwrap();
    assert!(matches!(bench.agent.collect(&[], later).await, Err(CollectError::Read(_))));
    assert_eq!(bench.agent.store().list("").await.unwrap().len(), before.len() + 1);
}

#[tokio::test]
async fn a_fall_back_pins_what_it_leaves_behind() {
    let bench = Bench::new();
    let sound = publish(&bench, "a", "one").await.snapshot;
    let damaged = publish(&bench, "b", "two").await.snapshot;
    let mut acquired = held(&bench.agent, request("c")).await;
    assert_eq!(acquired.start, Start::Current(damaged.clone()));
    let back = PublishRequest {
        memory: Archive::Existing(sound.memory.clone()),
        ledger: Archive::Existing(sound.ledger.clone()),
        restored_from: Some(sound.id.clone()),
        ..PublishRequest::new(SnapshotKind::Checkpoint, now())
    };
    acquired.writer.publish(back).await.unwrap();
    let done = acquired.writer.publish(last(SnapshotKind::Final)).await.unwrap().snapshot;
    assert_eq!(done.memory, sound.memory, "the cycle went on from the sound one");
    for n in 0..4 {
        publish(&bench, &format!("d{n}"), &format!("more {n}")).await;
    }
    let head = bench.agent.read_head().await.unwrap().unwrap().head;
    let pinned = head.snapshot(&damaged.id).unwrap();
    assert_eq!(pinned.pinned.as_deref(), Some(&*format!("left behind by the restore of {}", sound.id)));
    let later = now() + SignedDuration::from_hours(2);
    bench.agent.collect(&[], later).await.unwrap();
    let key = bench.agent.key(&damaged.memory.unwrap().key);
    assert!(bench.agent.store().get(&key).await.is_ok());
}

#[tokio::test]
async fn an_epoch_with_a_lost_answer_collects_nothing_of_its_own() {
    use crate::faulty::{Answer, Fault};
    let bench = Bench::new();
    let mut acquired = held(&bench.agent, request("a")).await;
    let memory = Archive::New(bench.packed("m").await);
    let start = bench.faulty.calls();
    bench.faulty.fail(start + 2, Fault::Late(Answer::Timeout));
    for call in start + 3..start + 30 {
        bench.faulty.fail(call, Fault::Before(Answer::Unavailable));
    }
    acquired.writer.publish(PublishRequest { memory, ..last(SnapshotKind::Final) }).await.unwrap_err();
    while bench.agent.store().list("x").await.is_err() {}
    assert_eq!(acquired.writer.collect(&[], now()).await.unwrap().removed, [""; 0]);
    // It lands: HEAD now names an archive that must be there.
    assert!(bench.faulty.land().await.iter().all(Result::is_ok));
    let Start::Recovered(snapshot) = held(&bench.other(), request("a")).await.start else {
        panic!("not recovered")
    };
    assert!(bench.agent.store().get(&bench.agent.key(&snapshot.memory.unwrap().key)).await.is_ok());
}

#[tokio::test]
async fn a_purge_needs_a_tombstone_and_leaves_only_that() {
    let bench = Bench::new();
    publish(&bench, "a", "one").await;
    bench.agent.store().put(&bench.agent.key("files/a.csv"), "x".into(), Condition::Any).await.unwrap();
    assert!(matches!(bench.agent.purge().await, Err(CollectError::NotDeleted)));
    let mut running = held(&bench.agent, request("running")).await;
    let mut deletion = held(&bench.other(), request("delete")).await;
    deletion.writer.bury(now()).await.unwrap();
    assert!(running.writer.publish(last(SnapshotKind::Final)).await.unwrap_err().is_fenced());
    assert_eq!(bench.agent.purge().await.unwrap(), 2);
    let left: Vec<_> =
        bench.agent.store().list("").await.unwrap().into_iter().map(|object| object.key).collect();
    assert_eq!(left, ["shop/clerk/HEAD.json"]);

    // A late pod of the deleted agent does not bring it back; a new agent of the name begins anew above it.
    let error = bench.agent.acquire(request("running")).await.unwrap_err();
    assert!(matches!(error, AcquireError::Deleted { .. }), "{error}");
    let mut fresh = request("new");
    fresh.owner.uid = "agent-2".into();
    let fresh = held(&bench.agent, fresh).await;
    assert_eq!((fresh.start, fresh.writer.epoch()), (Start::Empty, 4));
}

#[tokio::test]
async fn a_purge_that_died_is_finished_by_the_next() {
    use crate::faulty::Fault;
    let bench = Bench::new();
    for n in 0..3 {
        publish(&bench, &format!("c{n}"), &format!("m{n}")).await;
    }
    let mut deletion = held(&bench.other(), request("delete")).await;
    deletion.writer.bury(now()).await.unwrap();
    bench.faulty.fail(bench.faulty.calls() + 4, Fault::DieAfter);
    assert!(bench.agent.purge().await.is_err());
    let other = bench.other();
    other.purge().await.unwrap();
    assert_eq!(other.store().list("").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_copied_memory_goes_on_elsewhere_and_is_never_copied_over_another() {
    let bench = Bench::new();
    publish(&bench, "a", "one").await;
    let current = publish(&bench, "b", "two").await.snapshot;
    bench.agent.store().put(&bench.agent.key("files/a.csv"), "x".into(), Condition::Any).await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = agent(Arc::new(DirectoryStore::new(elsewhere.path())));
    let mut acquired = held(&bench.agent, request("copy")).await;
    // A copy that broke off has left an archive: it is begun again.
    let archive = current.memory.clone().unwrap();
    target.store().put(&target.key(&archive.key), "half".into(), Condition::Any).await.unwrap();
    let scratch = bench.dir.path();
    let mut seen = vec![];
    let copied =
        acquired.writer.copy_to(&target, None, scratch, now(), |progress| seen.push(progress)).await.unwrap();
    let done = copied.progress;
    assert_eq!((done.objects, seen.len(), done.bytes), (3, 3, done.total));
    assert_eq!(copied.left_out, []);
    acquired.writer.release(now()).await.unwrap();
    let expect = cicada_contract::plan::Expect { snapshot: Some(current.id.clone()), epoch: Some(2) };
    let at_target = held(&target, AcquireRequest { expect: expect.clone(), ..request("next") }).await;
    assert_eq!(at_target.start, Start::Current(current));
    assert!(target.store().get(&target.key("files/a.csv")).await.is_ok());

    let mut again = held(&bench.agent, request("copy2")).await;
    let error = again.writer.copy_to(&target, None, scratch, now(), |_| ()).await.unwrap_err();
    assert!(matches!(error, CopyError::TargetNotEmpty { .. }), "{error}");
    // Where the store moved and nothing was copied, the cycle stops and makes nothing.
    let nowhere = tempfile::tempdir().unwrap();
    let moved: AgentStore = agent(Arc::new(DirectoryStore::new(nowhere.path())));
    let error = moved.acquire(AcquireRequest { expect, ..request("c") }).await.unwrap_err();
    assert_eq!(error.class(), cicada_contract::FailureClass::MemoryMissing);
    assert!(moved.store().list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_copy_leaves_a_damaged_older_snapshot_out_and_names_it() {
    let bench = Bench::new();
    let damaged = publish_among(&bench, "a", "one", 4).await.snapshot;
    let gone = publish_among(&bench, "b", "two", 4).await.snapshot;
    let sound = publish_among(&bench, "c", "three", 4).await.snapshot;
    let current = publish_among(&bench, "d", "four", 4).await.snapshot;
    let key = |snapshot: &crate::Snapshot| bench.agent.key(&snapshot.memory.as_ref().unwrap().key);
    bench.agent.store().put(&key(&damaged), "other bytes".into(), Condition::Any).await.unwrap();
    bench.agent.store().delete(&key(&gone)).await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = agent(Arc::new(DirectoryStore::new(elsewhere.path())));
    let mut acquired = held(&bench.agent, request("copy")).await;
    let scratch = bench.dir.path();
    let copied = acquired.writer.copy_to(&target, None, scratch, now(), |_| ()).await.unwrap();
    let left: Vec<_> = copied.left_out.iter().map(|left| left.snapshot.as_str()).collect();
    assert_eq!(left, [&damaged.id, &gone.id]);
    assert!(copied.left_out[0].why.contains("SHA-256"), "{copied:?}");
    assert!(copied.left_out[1].why.contains("not in the store"), "{copied:?}");
    let head = target.read_head().await.unwrap().unwrap().head;
    let listed: Vec<_> = head.snapshots.iter().map(|s| s.id.as_str()).collect();
    assert_eq!((listed, head.current.as_ref()), (vec![sound.id.as_str(), &current.id], Some(&current.id)));
    for archive in head.archives() {
        assert!(target.store().get(&target.key(&archive.key)).await.is_ok());
    }
    // The current one can't be left out: nothing becomes a memory.
    bench.agent.store().put(&key(&current), "other bytes".into(), Condition::Any).await.unwrap();
    let nowhere = tempfile::tempdir().unwrap();
    let target = agent(Arc::new(DirectoryStore::new(nowhere.path())));
    let error = acquired.writer.copy_to(&target, None, scratch, now(), |_| ()).await.unwrap_err();
    assert!(matches!(&error, CopyError::Damaged { snapshot, .. } if *snapshot == current.id), "{error}");
    assert!(error.to_string().contains("cicadactl restore"), "{error}");
    assert!(target.read_head().await.unwrap().is_none());
}

#[tokio::test]
async fn an_older_head_put_back_stops_the_cycle_and_nothing_newer_is_collected() {
    let bench = Bench::new();
    let store = bench.agent.store();
    let head_key = bench.agent.key(HEAD_KEY);
    publish(&bench, "a", "one").await;
    let older = store.get(&head_key).await.unwrap().bytes;
    let lost = publish(&bench, "b", "two").await.snapshot;
    let newer = store.get(&head_key).await.unwrap().bytes;
    store.put(&head_key, older, Condition::Any).await.unwrap();
    let before = store.list("").await.unwrap();
    let error = bench.agent.acquire(request("c")).await.unwrap_err();
    assert_eq!(error.class(), cicada_contract::FailureClass::StoreRolledBack);
    assert!(error.to_string().contains(&lost.id), "{error}");
    bench.agent.collect(&[], now() + SignedDuration::from_hours(100)).await.unwrap();
    assert_eq!(store.list("").await.unwrap(), before, "nothing is written, nothing is removed");
    store.put(&head_key, newer, Condition::Any).await.unwrap();
    assert_eq!(held(&bench.agent, request("c")).await.start, Start::Current(lost));
}

#[tokio::test]
async fn a_blob_of_a_cycle_that_published_nothing_goes_and_one_that_may_yet_be_published_stays() {
    let bench = Bench::new();
    publish(&bench, "a", "one").await;
    let killed = held(&bench.agent, request("killed")).await;
    let orphan = bench.agent.put_blob(killed.writer.epoch(), "orphan".into()).await.unwrap();
    bench.agent.collect(&[], now()).await.unwrap();
    assert!(bench.agent.get_blob(&orphan).await.is_ok(), "its cycle may be at work: nobody has fenced it");
    let mut next = held(&bench.agent, request("next")).await;
    let kept = bench.agent.put_blob(next.writer.epoch(), "kept".into()).await.unwrap();
    bench.agent.collect(&[], now()).await.unwrap();
    assert!(bench.agent.get_blob(&orphan).await.unwrap_err().is_not_found());
    next.writer.publish(last(SnapshotKind::Final)).await.unwrap();
    next.writer.collect(&[], now()).await.unwrap();
    let mut later = held(&bench.agent, request("later")).await;
    later.writer.collect(&[], now()).await.unwrap();
    assert!(bench.agent.get_blob(&kept).await.is_ok(), "its result is published");
}
