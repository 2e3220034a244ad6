//! A memory that is deleted goes as a whole, by the fence, and does not come back.

use cicada_contract::FailureClass;
use cicada_contract::plan::Mode;
use cicada_contract::report::CycleResult;
use cicada_store::{AcquireRequest, Acquisition};

use crate::agent::Agent;

const GROW: &str = "CREATE TABLE IF NOT EXISTS t (n); INSERT INTO t VALUES (1)";

async fn grown() -> Agent {
    let mut agent = Agent::with_sql(GROW);
    for _ in 0..2 {
        assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    }
    for key in [
        "inbox/aa.json",
        "outbox/m/claim-1",
        "files/a.csv",
        "usage/c/1.json",
        "blobs/1-aa",
        "erasures/1.json",
        "later/x",
    ] {
        let path = agent.objects().join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "{}").unwrap();
    }
    agent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_but_the_tombstone_and_again_changes_nothing() {
    let mut agent = grown().await;
    let late = agent.next_run();
    let run = agent.next_job(Mode::Delete);
    let epoch = agent.head().await.epoch;
    for attempt in 0..2 {
        let report = agent.run(&run).await;
        assert_eq!(report.result, CycleResult::Done, "{attempt}: {report:?}\n{}", agent.log());
        assert_eq!(agent.list("").await, ["HEAD.json"]);
        let head = agent.head().await;
        assert!(head.is_tombstone() && head.epoch == epoch + 1 && head.snapshots.is_empty());
    }
    // A pod of the same agent that starts late makes no new memory.
    assert_eq!(agent.run(&late).await.class, Some(FailureClass::PersistFenced));
    assert_eq!(agent.list("").await, ["HEAD.json"]);
    // Another agent of this name starts empty, above every epoch that was used.
    agent.config.owner.uid = "uid-2".into();
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]]);
    assert_eq!(agent.head().await.epoch, epoch + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_anywhere_it_is_finished_by_the_next_attempt() {
    // Before the tombstone: the epoch was raised.
    let mut agent = grown().await;
    let run = agent.next_job(Mode::Delete);
    let store = agent.store().await;
    let now = jiff::Timestamp::now();
    let request = AcquireRequest::new(agent.config.owner.clone(), run.cycle.clone(), now, now);
    let Acquisition::Held(mut held) = store.acquire(request).await.unwrap() else { panic!() };
    assert_eq!(agent.run(&run).await.result, CycleResult::Done);
    assert_eq!(agent.list("").await, ["HEAD.json"]);
    // The one that was thought dead wakes up.
    assert!(held.writer.bury(now).await.unwrap_err().is_fenced());

    // After the tombstone, and with a part removed.
    let mut agent = grown().await;
    let run = agent.next_job(Mode::Delete);
    let store = agent.store().await;
    let request = AcquireRequest::new(agent.config.owner.clone(), run.cycle.clone(), now, now);
    let Acquisition::Held(mut held) = store.acquire(request).await.unwrap() else { panic!() };
    held.writer.bury(now).await.unwrap();
    std::fs::remove_dir_all(agent.objects().join("inbox")).unwrap();
    assert_eq!(agent.run(&run).await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.list("").await, ["HEAD.json"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_without_head_goes_and_another_owners_stays() {
    let mut agent = grown().await;
    std::fs::remove_file(agent.objects().join("HEAD.json")).unwrap();
    assert_eq!(agent.job(Mode::Delete).await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.list("").await, ["HEAD.json"]);

    let mut agent = grown().await;
    agent.config.owner.cluster = "another".into();
    let before = agent.list("").await;
    assert_eq!(agent.job(Mode::Delete).await.class, Some(FailureClass::StoreConflict));
    assert_eq!(agent.list("").await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cycle_at_work_is_fenced_by_the_deletion() {
    let mut agent = grown().await;
    let store = agent.store().await;
    let now = jiff::Timestamp::now();
    let cycle = agent.next_run().cycle;
    let request = AcquireRequest::new(agent.config.owner.clone(), cycle, now, now);
    let Acquisition::Held(mut held) = store.acquire(request).await.unwrap() else { panic!() };
    assert_eq!(agent.job(Mode::Delete).await.result, CycleResult::Done);
    let publish = cicada_store::PublishRequest::new(cicada_store::SnapshotKind::Final, now);
    assert!(held.writer.publish(publish).await.unwrap_err().is_fenced());
    assert_eq!(agent.list("").await, ["HEAD.json"]);
}
