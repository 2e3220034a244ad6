//! An older snapshot becomes current because a person asked: once, without a loss, and told.

use cicada_contract::FailureClass;
use cicada_contract::plan::{Mode, Provider};
use cicada_contract::report::{CycleResult, Outcome};
use cicada_store::SnapshotKind;

use crate::agent::Agent;
use crate::delivery::{Hook, message, with_hook};
use crate::model::{finish, server, sql, turn};
use crate::model_server::Turn;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_put_back_once_and_what_is_left_behind_stays() {
    let (hook, url) = Hook::start(&[503]).await;
    let told = vec!["the memory was put back to snapshot".into(), "is unknown".into(), "t, 1 row".into()];
    let cycles = vec![
        vec![turn(vec![sql("CREATE TABLE t (n); INSERT INTO t VALUES (1)"), finish("done")])],
        vec![turn(vec![sql("INSERT INTO t VALUES (2)"), message()]), turn(vec![finish("done")])],
        vec![Turn { expect: told, ..turn(vec![finish("done")]) }],
        vec![Turn { reject: vec!["put back".into()], ..turn(vec![finish("done")]) }],
    ];
    let server = server(cycles).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    with_hook(&mut agent, url);
    agent.cycle().await;
    let target = agent.current().await;
    assert_eq!(agent.cycle().await.pending.outbox, 1, "{}", agent.log());
    let left = agent.current().await;

    let run = agent.next_job(Mode::Restore { snapshot: target.clone() });
    let report = agent.run(&run).await;
    assert_eq!((report.result, report.pending.outbox), (CycleResult::Done, 0), "{report:?}\n{}", agent.log());
    assert!(report.message.contains(&target) && report.warnings.len() == 1, "{report:?}");
    assert_eq!(agent.memory("SELECT n FROM t").await, [["1"]]);
    let head = agent.head().await;
    let current = head.current().unwrap();
    assert_eq!((current.kind, current.restored_from.as_ref()), (SnapshotKind::Final, Some(&target)));
    assert_eq!(
        current.memory,
        head.snapshot(&target).unwrap().memory,
        "no byte of the memory is uploaded again"
    );
    assert_eq!(head.applied_restore.as_ref().unwrap().snapshot, target);
    let pinned: Vec<_> = head.snapshots.iter().filter(|s| s.pinned.is_some()).map(|s| s.id.clone()).collect();
    assert_eq!(pinned, [left]);
    // The message that waited in what is left behind may have left; nobody sends it again.
    assert_eq!(agent.ledger("SELECT state FROM outbox").await, [["unknown"]]);
    agent.age_deliveries(60).await;
    assert_eq!(agent.job(Mode::Delivery).await.pending.outbox, 0);
    assert_eq!(hook.keys().len(), 1);

    // The Job's next attempt, and another cycle for the same request, do nothing.
    let published = agent.head().await.published;
    assert!(agent.run(&run).await.recovered);
    let mut again = agent.next_job(Mode::Restore { snapshot: target });
    again.triggers.clone_from(&run.triggers);
    assert_eq!(agent.run(&again).await.result, CycleResult::AlreadyHandled);
    assert_eq!(agent.head().await.published, published);

    for _ in 0..2 {
        assert_eq!(agent.cycle().await.outcome, Outcome::Done, "{}", agent.log());
    }
    assert_eq!(agent.ledger("SELECT kind FROM cycles ORDER BY started_at").await[1], ["restored"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_waited_in_the_older_ledger_is_not_sent_a_second_time() {
    let (hook, url) = Hook::start(&[503, 200]).await;
    let cycles =
        vec![vec![turn(vec![message()]), turn(vec![finish("done")])], vec![turn(vec![finish("done")])]];
    let server = server(cycles).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    with_hook(&mut agent, url);
    agent.cycle().await;
    let target = agent.current().await;
    agent.age_deliveries(2).await;
    // Delivered and, two cycles later, forgotten by the store.
    assert_eq!(agent.job(Mode::Delivery).await.pending.outbox, 0);
    agent.cycle().await;
    assert_eq!(agent.list("outbox/").await, [""; 0]);
    let report = agent.job(Mode::Restore { snapshot: target }).await;
    assert_eq!(report.result, CycleResult::Done, "{report:?}\n{}", agent.log());
    assert_eq!(agent.ledger("SELECT state FROM outbox").await, [["unknown"]]);
    agent.cycle().await;
    assert_eq!(hook.keys().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_or_not_sound_is_not_put_back() {
    let mut agent = Agent::with_sql("CREATE TABLE IF NOT EXISTS t (n); INSERT INTO t VALUES (1)");
    agent.cycle().await;
    let target = agent.current().await;
    agent.cycle().await;
    let before = agent.head().await;
    let typo = target.replacen('1', "8", 1);
    let report = agent.job(Mode::Restore { snapshot: typo.clone() }).await;
    assert_eq!(report.class, Some(FailureClass::SnapshotMissing));
    let newest = before.current.clone().unwrap();
    for words in [&typo, &format!("did you mean {target}?"), &newest, "cicadactl snapshots shop/price-watch"]
    {
        assert!(report.message.contains(words), "{words}: {report:?}");
    }
    agent.damage(before.snapshot(&target).unwrap().memory.as_ref().unwrap());
    let report = agent.job(Mode::Restore { snapshot: target.clone() }).await;
    assert_eq!(report.class, Some(FailureClass::RestoreCorrupt));
    assert!(report.message.contains(&format!("snapshot {target} can't be restored")), "{report:?}");
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["2"]], "the current memory stays");
    let report = agent.cycle().await;
    assert_eq!(report.result, CycleResult::Done, "{report:?}");
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["3"]]);
}
