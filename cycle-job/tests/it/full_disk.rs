//! A full disk is called a full disk, wherever a cycle meets it, and nothing is lost.

use cicada_contract::plan::{Executor, SqlSource, StoreConfig};
use cicada_contract::report::CycleResult;
use cicada_contract::{CycleReport, FailureClass};

use crate::agent::Agent;
use crate::small_disk::SmallDisk;

/// One row of random bytes in each cycle.
const GROW: &str = "CREATE TABLE IF NOT EXISTS t (n); INSERT INTO t SELECT randomblob(400000)";

fn statement(agent: &mut Agent, sql: &str) {
    agent.config.executor = Executor::Sql(SqlSource::Inline(sql.to_owned()));
}

/// A larger limit of a database would not help.
fn blames_the_disk(report: &CycleReport) {
    assert!(!report.message.to_lowercase().contains("sizelimit"), "{report:?}");
}

/// Where plan, working directory and report share a disk, as under `cicadactl local`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_left_however_little_room_there_is() {
    let mut agent = Agent::with_sql(GROW);
    agent.cycle().await;
    for kib in (16..200).step_by(8) {
        let disk = SmallDisk::mount(&agent.dir.path().join("small"), kib);
        let path = disk.path.join("report.json");
        cicada_cycle_job::reserve_report(&path).unwrap();
        let run = agent.next_run();
        let mut process = agent.command("run", &run, &disk.path, &disk.path.join("work"));
        let output = process.output().unwrap();
        let (text, log) = (std::fs::read_to_string(&path).unwrap(), String::from_utf8_lossy(&output.stderr));
        let report = CycleReport::parse(&text).unwrap_or_else(|e| panic!("{kib} KiB: {e}: {text:?}\n{log}"));
        assert_eq!(report.class, Some(FailureClass::DiskBudget), "{kib} KiB: {report:?}\n{log}");
        blames_the_disk(&report);
    }
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_has_one_class_wherever_a_cycle_meets_it() {
    let mut agent = Agent::with_sql(GROW);
    agent.cycle().await;
    let mut kinds = std::collections::BTreeSet::new();
    // From too small for the restore to enough for all: each phase runs out of room somewhere in between.
    for kib in (200..4_000).step_by(120) {
        let disk = SmallDisk::mount(&agent.dir.path().join("small"), kib);
        let run = agent.next_run();
        let mut process = agent.command("run", &run, agent.dir.path(), &disk.path);
        let output = process.output().unwrap();
        let text = std::fs::read_to_string(agent.dir.path().join("report.json")).unwrap();
        let report = CycleReport::parse(&text).unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        if report.result == CycleResult::Done {
            kinds.insert("done".to_owned());
            break;
        }
        assert_eq!(report.class, Some(FailureClass::DiskBudget), "{kib} KiB: {report:?}\n{log}");
        blames_the_disk(&report);
        kinds.insert(report.message.split(':').next().unwrap().to_owned());
        assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]], "{kib} KiB");
    }
    println!("{kinds:?}");
    assert!(kinds.contains("done") && kinds.len() >= 3, "{kinds:?}");
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["2"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_own_disk_is_full_says_so_and_keeps_the_memory() {
    let mut agent = Agent::with_sql("CREATE TABLE t (n); INSERT INTO t VALUES (1)");
    let disk = SmallDisk::mount(&agent.dir.path().join("store"), 1_000);
    agent.config.store = StoreConfig::Directory { path: disk.path.display().to_string(), claim_name: None };
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    statement(&mut agent, "INSERT INTO t SELECT randomblob(2000000)");
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::DiskBudget), "{report:?}\n{}", agent.log());
    assert!(report.message.contains("the store's disk has no room"), "{report:?}");
    assert_eq!(agent.memory("SELECT n FROM t").await, [["1"]]);
    statement(&mut agent, "INSERT INTO t VALUES (2)");
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["2"]]);
}
