//! A memory that starts from another agent's: once, whole, and without touching the other.

use std::time::Duration;

use cicada_contract::FailureClass;
use cicada_contract::plan::{Executor, Provider, SeedFrom, SqlSource};
use cicada_contract::report::{CycleReport, CycleResult};
use cicada_store::SnapshotKind;
use serde_json::json;

use crate::agent::{Agent, until};
use crate::delivery::{Hook, message, with_hook};
use crate::mcp::{self, Crm};
use crate::model::{call, finish, server, sql, turn};

const GROW: &str = "CREATE TABLE IF NOT EXISTS t (n); INSERT INTO t VALUES (1)";

/// An agent with so many cycles behind it.
async fn grown(cycles: u32) -> Agent {
    let mut old = Agent::with_sql(GROW);
    for _ in 0..cycles {
        assert_eq!(old.cycle().await.result, CycleResult::Done, "{}", old.log());
    }
    old
}

/// An agent that shall start from `old`.
fn seeded(old: &Agent, snapshot: Option<&str>) -> Agent {
    let mut new = old.beside("clerk", Executor::Sql(SqlSource::Inline(GROW.into())));
    new.config.memory.seed_from = Some(SeedFrom {
        namespace: "shop".into(),
        name: "price-watch".into(),
        snapshot: snapshot.map(str::to_owned),
    });
    new
}

async fn rows(agent: &Agent) -> String {
    agent.memory("SELECT count(*) FROM t").await[0][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_a_memory_starts_from_the_one_that_is_named() {
    let mut old = grown(2).await;
    let (objects, snapshot) = (old.list("").await, old.current().await);
    let mut new = seeded(&old, None);
    let report = new.cycle().await;
    assert_eq!(report.result, CycleResult::Done, "{report:?}\n{}", new.log());
    assert_eq!(rows(&new).await, "3");
    let told = report.memory.unwrap().seeded_from;
    assert_eq!(told, Some(format!("shop/price-watch {snapshot}")));
    let head = new.head().await;
    assert_eq!(head.seeded_from.unwrap().snapshot, snapshot);
    assert_eq!(head.owner.name, "clerk");
    let notices = new.ledger("SELECT text FROM notices").await;
    assert!(notices[0][0].contains(&format!("snapshot {snapshot} of shop/price-watch")), "{notices:?}");
    assert_eq!(new.ledger("SELECT count(*) FROM cycles WHERE kind = 'final'").await, [["3"]]);
    assert_eq!(old.list("").await, objects, "the other memory is only read");
    // Both go on, each alone.
    old.cycle().await;
    assert_eq!(new.cycle().await.result, CycleResult::Done);
    assert_eq!((rows(&old).await, rows(&new).await), ("3".into(), "4".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_may_be_named_and_a_memory_that_exists_is_never_replaced() {
    let mut old = grown(1).await;
    let first = old.current().await;
    old.cycle().await;
    let mut new = seeded(&old, Some(&first));
    assert_eq!(new.cycle().await.result, CycleResult::Done, "{}", new.log());
    assert_eq!(rows(&new).await, "2");
    let mut third = old.beside("third", Executor::Sql(SqlSource::Inline(GROW.into())));
    third.cycle().await;
    third.config.memory.seed_from.clone_from(&new.config.memory.seed_from);
    let report = third.cycle().await;
    assert_eq!((rows(&third).await.as_str(), report.memory.unwrap().seeded_from), ("2", None));
}

/// What lies beside the archives comes along; what waits to leave there leaves from there alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_results_come_along_and_no_message_leaves_twice() {
    let (hook, url) = Hook::start(&[503, 200]).await;
    let crm = Crm::default().start().await;
    // Echoed by the server, too long for the ledger.
    let find = call("crm.find", json!({"id": "9".repeat(6000)}));
    let file = call("write_file", json!({"path": "notes/big.md", "content": "tea ".repeat(5000)}));
    let cycles = vec![
        vec![turn(vec![sql("CREATE TABLE t (n)"), find, file, message()]), turn(vec![finish("done")])],
        vec![turn(vec![finish("done")])],
    ];
    let server = server(cycles).await;
    let mut old = Agent::with_model(Provider::OpenAICompatible, &server.url);
    old.secret("crm", "x-token", "t");
    old.config.mcp_servers = vec![mcp::config(crm)];
    with_hook(&mut old, url.clone());
    assert_eq!(old.cycle().await.pending.outbox, 1, "{}", old.log());
    let mut new = seeded(&old, None);
    with_hook(&mut new, url);
    let report = new.cycle().await;
    assert_eq!((report.result, report.pending.outbox), (CycleResult::Done, 0), "{report:?}\n{}", new.log());
    assert_eq!(new.ledger("SELECT state FROM outbox").await, [["unknown"]]);
    for folder in ["blobs/", "files/agent/"] {
        let theirs = old.list(folder).await;
        assert_eq!((theirs.len(), new.list(folder).await), (1, theirs), "{folder}");
    }
    assert_eq!(hook.keys().len(), 1, "only the first agent has tried");
}

async fn fails(agent: &mut Agent, class: FailureClass, words: &[&str]) {
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(class), "{report:?}\n{}", agent.log());
    for word in words {
        assert!(report.message.contains(word), "{word}: {report:?}");
    }
    assert_eq!(agent.head().await.current().unwrap().memory, None, "nothing of its own was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_that_is_not_there_or_not_sound_is_told_and_mended() {
    let mut old = grown(1).await;
    let sound = old.current().await;
    let mut new = seeded(&old, None);
    let name = |new: &mut Agent, name: &str, snapshot: Option<&str>| {
        let from =
            SeedFrom { namespace: "shop".into(), name: name.into(), snapshot: snapshot.map(str::to_owned) };
        new.config.memory.seed_from = Some(from);
    };
    name(&mut new, "price-watcher", None);
    fails(&mut new, FailureClass::SeedMissing, &["shop/price-watcher", "has no memory"]).await;
    // One whose first cycles failed has a HEAD, and no memory either.
    let mut broken =
        old.beside("broken", Executor::Sql(SqlSource::Inline("INSERT INTO nowhere VALUES (1)".into())));
    broken.cycle().await;
    name(&mut new, "broken", None);
    fails(&mut new, FailureClass::SeedMissing, &["shop/broken", "has no memory"]).await;
    let typo = sound.replacen('1', "7", 1);
    name(&mut new, "price-watch", Some(&typo));
    let meant = format!("did you mean {sound}?");
    fails(&mut new, FailureClass::SnapshotMissing, &[&typo, &meant, "cicadactl snapshots shop/price-watch"])
        .await;
    old.cycle().await;
    old.damage(old.head().await.current().unwrap().memory.as_ref().unwrap());
    name(&mut new, "price-watch", None);
    fails(&mut new, FailureClass::RestoreCorrupt, &["can't be the seed", "memory.seedFrom.snapshot"]).await;
    // The failures before it are no memory.
    name(&mut new, "price-watch", Some(&sound));
    assert_eq!(new.cycle().await.result, CycleResult::Done, "{}", new.log());
    assert_eq!(rows(&new).await, "2");
}

/// The same check as of a cycle of that agent itself: nobody starts from what was, unless a person names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_whose_head_was_put_back_is_refused_unless_its_snapshot_is_named() {
    let mut old = grown(1).await;
    let path = old.objects().join("HEAD.json");
    let (before, first) = (std::fs::read(&path).unwrap(), old.current().await);
    old.cycle().await;
    let (after, newest) = (std::fs::read(&path).unwrap(), old.current().await);
    let mut new = seeded(&old, None);
    std::fs::write(&path, &before).unwrap();
    let words = ["shop/price-watch", "was rolled back", &newest, "cicadactl verify shop/price-watch"];
    fails(&mut new, FailureClass::StoreRolledBack, &words).await;
    let edited = String::from_utf8(after.clone()).unwrap();
    let current = |id: &str| format!("\"current\": \"{id}\"");
    assert!(edited.contains(&current(&newest)), "{edited}");
    std::fs::write(&path, edited.replacen(&current(&newest), &current(&first), 1)).unwrap();
    fails(&mut new, FailureClass::HeadCorrupt, &["newer than its current one"]).await;
    std::fs::write(&path, &before).unwrap();
    let mut named = seeded(&old, Some(&first));
    named.config.owner.name = "named".into();
    assert_eq!(named.cycle().await.result, CycleResult::Done, "{}", named.log());
    assert_eq!(rows(&named).await, "2");
    std::fs::write(&path, &after).unwrap();
    assert_eq!(new.cycle().await.result, CycleResult::Done, "{}", new.log());
    assert_eq!(rows(&new).await, "3");
}

/// What one attempt leaves, its next one ends; what was found then is what would have been without a death.
async fn ends_well(new: &Agent, run: &cicada_contract::plan::PlanRun, when: &str) {
    let report: CycleReport = new.run(run).await;
    assert_eq!(report.result, CycleResult::Done, "{when}: {report:?}\n{}", new.log());
    assert_eq!(rows(new).await, "3", "{when}");
    let head = new.head().await;
    assert!(head.seeded_from.is_some(), "{when}");
    let finals = head.snapshots.iter().filter(|s| s.kind == SnapshotKind::Final).count();
    assert_eq!((finals, head.holder), (1, None), "{when}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_before_or_after_the_seed_is_published_costs_nothing() {
    let old = grown(2).await;
    let objects = old.list("").await;
    let lines =
        ["\"phase\":\"restore\"", "checkpoint published", "\"phase\":\"execute\"", "\"phase\":\"persist\""];
    for (n, line) in lines.into_iter().enumerate() {
        let mut new = seeded(&old, None);
        new.config.owner.name = format!("clerk-{n}");
        let run = new.next_run();
        let mut child = new.start(&run);
        until(line, || new.log().contains(line)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        ends_well(&new, &run, line).await;
    }
    assert_eq!(old.list("").await, objects);
}

/// At moments that nobody chose, also between an effect and its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_at_any_moment_of_the_first_cycle_seeds_once() {
    let old = grown(2).await;
    for step in 0..16_u64 {
        let mut new = seeded(&old, None);
        new.config.owner.name = format!("clerk-{step}");
        let run = new.next_run();
        let mut child = new.start(&run);
        tokio::time::sleep(Duration::from_millis(15 * step)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        ends_well(&new, &run, &format!("after {} ms", 15 * step)).await;
    }
}
