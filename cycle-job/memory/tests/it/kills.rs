//! Killed at any point: what was committed is kept, what was not is gone, edits of mounts go with their batch.

use std::time::Duration;

use cicada_contract::plan::{Approval, Decision};
use cicada_memory::Value;
use proptest::prelude::*;

use crate::support::{Place, config, now};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_that_writes_and_edits_a_card_is_whole_or_not_at_all(delay in 0u64..6000, mount_only in any::<bool>(), rows in 1usize..400) {
        let place = Place::new();
        let mut memory = place.memory();
        memory.mount(&place.ledger().load_mounts(&config(), &[], now()).unwrap()).unwrap();
        prop_assert!(memory.batch("CREATE TABLE t (a); INSERT INTO __kanban_cards (card_id, title) VALUES ('c', '0')").unwrap().is_ok());
        let write = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {rows}) INSERT INTO t SELECT hex(randomblob(50)) FROM n;");
        let edit = "UPDATE __kanban_cards SET title = title + 1";
        let batch = if mount_only { edit.to_owned() } else { format!("{write}{edit}") };
        let killer = memory.killer();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(delay));
            killer.kill();
        });
        let mut done = 0;
        let mut ended = None;
        for _ in 0..50 {
            let result = memory.batch(&batch).unwrap();
            if result.is_ok() {
                done += 1;
            } else {
                ended = Some(result);
                break;
            }
            if thread.is_finished() {
                break;
            }
        }
        thread.join().unwrap();
        let count = memory.query("SELECT count(*) FROM t", 1).unwrap().rows[0][0].clone();
        let title = memory.query("SELECT title FROM __kanban_cards", 1).unwrap().rows[0][0].clone();
        prop_assert_eq!(title.display(), done.to_string(), "edits: the acknowledged batches, {:?}", ended);
        let rows = if mount_only { 0 } else { done * i64::try_from(rows).unwrap() };
        prop_assert_eq!(count, Value::Int(rows), "rows and edits of the same batches");
        let edits = memory.edits();
        let after = edits.iter().find(|e| e.table == "__kanban_cards").and_then(|e| e.after.clone()).unwrap();
        prop_assert_eq!(after[1].display(), done.to_string(), "what is written back is the same");
        memory.check(cicada_memory::Check::Integrity).unwrap();
        memory.unmount().unwrap();
        memory.seal().unwrap();
        drop(memory);
        let version: i64 = rusqlite::Connection::open(place.memory_dir().join("memory.db")).unwrap().query_row("PRAGMA user_version", [], |r| r.get(0)).unwrap();
        prop_assert_eq!(version, 0, "the platform's number is put back");
    }
}

/// The moment between COMMIT and its acknowledgement, which a kill by the clock hardly ever meets: the
/// worker is stopped after it has handed the edits over, and killed with its answer unread.
#[test]
fn a_commit_whose_answer_was_lost_is_found_again() {
    let place = Place::new();
    let mut lost = 0;
    for attempt in 0..60u64 {
        let mut memory = place.memory();
        memory.mount(&place.ledger().load_mounts(&config(), &[], now()).unwrap()).unwrap();
        let killer = memory.killer();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(100 + attempt * 40));
            killer.kill();
        });
        let result = memory.batch("CREATE TABLE IF NOT EXISTS t (a); DELETE FROM t; INSERT INTO t VALUES (1); INSERT INTO __kanban_cards (title) VALUES ('x')").unwrap();
        thread.join().unwrap();
        let rows = memory.query("SELECT count(*) FROM sqlite_schema WHERE name = 't'", 1).unwrap().rows[0][0]
            .clone();
        prop_consistent(result.is_ok(), memory.edits().len(), &rows);
        lost += usize::from(result.warnings.iter().any(|w| w.contains("after the batch was committed")));
        drop(memory);
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(place.memory_dir().join(format!("memory.db{suffix}")));
        }
    }
    println!("answers lost after the commit: {lost} of 60");
}

fn prop_consistent(ok: bool, edits: usize, table: &Value) {
    let expected = if ok { (1, Value::Int(1)) } else { (0, Value::Int(0)) };
    assert_eq!((edits, table.clone()), expected, "batch {ok}");
}

/// Either worker, at any point of the way from the ledger to the mount.
#[test]
fn a_mount_is_whole_whichever_worker_is_killed() {
    let place = Place::new();
    let mut ledger = place.ledger();
    let all: Vec<_> =
        (0..3000).map(|n| crate::path::message(&format!("m{n}"), &"text ".repeat(60))).collect();
    ledger.ingest(&all, now()).unwrap();
    let mut memory = place.memory();
    memory.mount(&ledger.load_mounts(&config(), &[], now()).unwrap()).unwrap();
    for delay in 0..24 {
        let killer = if delay % 2 == 0 { ledger.killer() } else { memory.killer() };
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(delay * 700));
            killer.kill();
        });
        memory.mount(&ledger.load_tables(&config(), &[], now(), &["__messages"]).unwrap()).unwrap();
        thread.join().unwrap();
        let rows = memory.query("SELECT count(*), sum(length(body)) FROM __messages", 1).unwrap().rows;
        assert_eq!(rows, [[Value::Int(3000), Value::Int(900_000)]], "killed after {delay}");
    }
    memory.unmount().unwrap();
    memory.seal().unwrap();
}

/// A person's decision is applied once, also where the ledger's worker dies before it, or after it with the
/// answer on its way.
#[test]
fn a_decision_counts_once_whenever_the_ledger_is_killed() {
    for delay in [0, 200, 500, 900, 1500, 3000] {
        let place = Place::new();
        let mut memory = place.memory();
        let mut ledger = place.ledger();
        memory.mount(&ledger.load_mounts(&config(), &[], now()).unwrap()).unwrap();
        assert!(memory.batch("UPDATE __agent_config SET charter = 'Watch prices daily.'").unwrap().is_ok());
        let asks = ledger.apply_edits(&memory.edits(), &config(), "c1", now()).unwrap().asks;
        let yes = Approval {
            id: asks[0].id.clone(),
            hash: asks[0].hash.clone(),
            decision: Decision::Approved,
            by: String::new(),
        };
        let killer = ledger.killer();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(delay));
            killer.kill();
        });
        ledger.decide_proposals(&[yes], &config(), "c2", now()).unwrap();
        thread.join().unwrap();
        let found = ledger
            .query("SELECT (SELECT count(*) FROM config_changes), (SELECT count(*) FROM notices), (SELECT value FROM meta WHERE key = 'charter')", 1)
            .unwrap();
        let once = [Value::Int(1), Value::Int(1), "Watch prices daily.".into()];
        assert_eq!(found.rows, [once], "killed after {delay} us");
    }
}
