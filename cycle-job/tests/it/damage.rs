//! Damaged and hostile archives: each its class, nothing lost, and what a person or the manifest does about it.

use std::io::Write;

use cicada_contract::FailureClass;
use cicada_contract::plan::{Mode, OnCorrupt, Provider};
use cicada_contract::report::{CycleResult, Outcome};

use crate::agent::Agent;
use crate::model::{finish, server, sql, turn};
use crate::model_server::Turn;
use crate::processes::Peaks;

const GROW: &str = "CREATE TABLE IF NOT EXISTS t (n); INSERT INTO t VALUES (random())";

async fn grown(cycles: u32) -> (Agent, Vec<String>) {
    let mut agent = Agent::with_sql(GROW);
    let mut ids = vec![];
    for _ in 0..cycles {
        assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
        ids.push(agent.current().await);
    }
    (agent, ids)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_stops_the_cycle_and_names_the_next_commands() {
    let (mut agent, ids) = grown(2).await;
    let head = agent.head().await;
    agent.damage(head.current().unwrap().memory.as_ref().unwrap());
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::RestoreCorrupt), "{report:?}");
    for command in [
        format!("cicadactl restore shop/price-watch {};", ids[0]),
        format!("cicadactl diff shop/price-watch {} {}", ids[0], ids[1]),
    ] {
        assert!(report.message.contains(&command), "{report:?}");
    }
    let after = agent.head().await;
    assert_eq!(after.current().unwrap().memory, head.current().unwrap().memory, "HEAD goes on naming it");
    assert_eq!(
        agent.ledger("SELECT class FROM cycles ORDER BY started_at DESC LIMIT 1").await,
        [["restore_corrupt"]]
    );
    // What the message says works.
    let report = agent.job(Mode::Restore { snapshot: ids[0].clone() }).await;
    assert_eq!(report.result, CycleResult::Done, "{report:?}");
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]]);
    assert!(agent.head().await.snapshot(&ids[1]).unwrap().pinned.is_some());
    assert_eq!(agent.cycle().await.result, CycleResult::Done);
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["2"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cycle_falls_back_to_the_newest_sound_snapshot_and_tells() {
    let told = Turn {
        expect: vec!["was damaged: the memory goes on from snapshot".into()],
        ..turn(vec![finish("done")])
    };
    let grow = |n| vec![turn(vec![sql(&format!("CREATE TABLE t{n} (n)")), finish("done")])];
    let server = server(vec![grow(1), grow(2), grow(3), vec![told], vec![turn(vec![finish("done")])]]).await;
    let mut agent = Agent::with_model(Provider::OpenAICompatible, &server.url);
    agent.config.memory.on_corrupt = OnCorrupt::FallBack;
    for _ in 0..3 {
        agent.cycle().await;
    }
    let head = agent.head().await;
    let ids: Vec<_> = head.snapshots.iter().map(|s| s.id.clone()).collect();
    agent.damage(head.snapshots[2].memory.as_ref().unwrap());
    agent.damage(head.snapshots[1].ledger.as_ref().unwrap());
    let report = agent.cycle().await;
    assert_eq!(
        (report.result, report.outcome),
        (CycleResult::Done, Outcome::Done),
        "{report:?}\n{}",
        agent.log()
    );
    assert_eq!(agent.memory("SELECT name FROM sqlite_schema ORDER BY 1").await, [["t1"]]);
    let head = agent.head().await;
    let pinned: Vec<_> = head.snapshots.iter().filter(|s| s.pinned.is_some()).map(|s| s.id.clone()).collect();
    assert_eq!(pinned, ids[1..]);
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fall_back_is_kept_by_a_cycle_that_fails_afterwards() {
    let (mut agent, ids) = grown(2).await;
    agent.config.memory.on_corrupt = OnCorrupt::FallBack;
    agent.damage(agent.head().await.current().unwrap().memory.as_ref().unwrap());
    let executor = agent.config.executor.clone();
    agent.config.executor =
        cicada_contract::plan::Executor::Sql(cicada_contract::plan::SqlSource::Inline("nonsense".into()));
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::ExecutorFailed), "{report:?}");
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["1"]]);
    assert_eq!(agent.ledger("SELECT count(*) FROM notices WHERE text LIKE '%was damaged%'").await, [["1"]]);
    assert!(agent.head().await.snapshot(&ids[1]).unwrap().pinned.is_some());
    agent.config.executor = executor;
    assert_eq!(agent.cycle().await.result, CycleResult::Done);
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["2"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_sound_snapshot_nothing_is_made_up() {
    let (mut agent, _) = grown(2).await;
    agent.config.memory.on_corrupt = OnCorrupt::FallBack;
    let head = agent.head().await;
    for snapshot in &head.snapshots {
        agent.damage(snapshot.ledger.as_ref().unwrap());
    }
    let report = agent.cycle().await;
    assert_eq!(report.class, Some(FailureClass::RestoreCorrupt));
    assert!(report.message.contains("no sound snapshot"), "{report:?}");
    assert_eq!(agent.job(Mode::Delivery).await.class, Some(FailureClass::RestoreCorrupt));
    let after = agent.head().await;
    assert_eq!((after.current, after.holder), (head.current, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_falls_back_as_a_cycle_does() {
    let (mut agent, ids) = grown(2).await;
    agent.config.memory.on_corrupt = OnCorrupt::FallBack;
    agent.damage(agent.head().await.current().unwrap().ledger.as_ref().unwrap());
    assert_eq!(agent.job(Mode::Delivery).await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.head().await.current().unwrap().restored_from.as_ref(), Some(&ids[0]));
}

/// What a hostile bucket can put in place of the memory, with a HEAD that vouches for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_archives_have_their_class_and_the_memory_stays() {
    let (mut agent, _) = grown(2).await;
    let (other, _) = grown(1).await;
    let head = agent.head().await;
    let archive = head.current().unwrap().memory.clone().unwrap();
    let path = agent.objects().join(&archive.key);
    let sound = std::fs::read(&path).unwrap();
    let foreign = other.head().await.current().unwrap().memory.clone().unwrap();
    let foreign = std::fs::read(other.objects().join(&foreign.key)).unwrap();
    let zeros = {
        let mut encoder = zstd::Encoder::new(vec![], 3).unwrap();
        let part = vec![0; 1 << 20];
        for _ in 0..4096 {
            encoder.write_all(&part).unwrap();
        }
        encoder.finish().unwrap()
    };
    let small = |bytes: &[u8]| {
        let mut encoder = zstd::Encoder::new(vec![], 3).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let corrupt = FailureClass::RestoreCorrupt;
    let limit = agent.config.memory.size_limit;
    // (what, bytes, HEAD vouches for them, class)
    for (what, bytes, vouched, class) in [
        ("4 GiB of zeros that HEAD calls 4 GiB", zeros.clone(), true, FailureClass::DiskBudget),
        ("4 GiB of zeros", zeros.clone(), true, FailureClass::RestoreBomb),
        ("4 GiB of zeros that HEAD calls as large as allowed", zeros, true, FailureClass::RestoreBomb),
        ("two frames", [sound.clone(), small(b"x")].concat(), true, corrupt),
        ("truncated", sound[..sound.len() / 2].to_vec(), true, corrupt),
        ("truncated, HEAD does not know", sound[..sound.len() / 2].to_vec(), false, corrupt),
        ("more bytes than it says", [small(&[b'S'; 1 << 16])].concat(), true, FailureClass::RestoreBomb),
        ("fewer bytes than it says", small(b"SQLite format 3\0"), true, corrupt),
        ("another agent's, swapped in", foreign, false, corrupt),
        ("empty", vec![], true, corrupt),
        ("no archive", b"SQLite format 3\0 and so on".to_vec(), true, corrupt),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        if vouched {
            let file_size = match what {
                "4 GiB of zeros that HEAD calls 4 GiB" => 4 << 30,
                "4 GiB of zeros that HEAD calls as large as allowed" => limit,
                _ => archive.file_size,
            };
            vouch(&agent, &archive.key, &bytes, file_size);
        }
        let run = agent.next_run();
        let child = agent.start(&run);
        let memory = Peaks::of(child.id());
        let report = agent.end(child).await;
        let peaks = memory.end();
        // Of all processes, as if each had its most at the same time. The file is on the disk.
        let total: u64 = peaks.iter().sum();
        assert!(total < 100_000_000, "{what}: {peaks:?}");
        println!("{what}: {total} bytes of RAM in {} processes", peaks.len());
        // Of the archives that keep a worker busy: one that stops at the first bytes can be gone before a look.
        let busy = what.starts_with("4 GiB of zeros") && class == FailureClass::RestoreBomb;
        assert!(!busy || peaks.len() > 1, "{what}: no worker was seen in {peaks:?}");
        assert_eq!(report.class, Some(class), "{what}: {report:?}\n{}", agent.log());
        assert_eq!(report.result, CycleResult::Failed);
        assert!(!agent.dir.path().join("work/memory/memory.db").exists(), "{what}: nothing is opened");
        std::fs::write(&path, &sound).unwrap();
        vouch(&agent, &archive.key, &sound, archive.file_size);
    }
    assert_eq!(agent.cycle().await.result, CycleResult::Done, "{}", agent.log());
    assert_eq!(agent.memory("SELECT count(*) FROM t").await, [["3"]]);
}

/// Writes sizes and hash of these bytes into HEAD, wherever it names the archive.
fn vouch(agent: &Agent, key: &str, bytes: &[u8], file_size: u64) {
    let path = agent.objects().join("HEAD.json");
    let mut head: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for snapshot in head["snapshots"].as_array_mut().unwrap() {
        let archive = &mut snapshot["memory"];
        if archive["key"] == key {
            archive["archiveSize"] = bytes.len().into();
            archive["fileSize"] = file_size.into();
            archive["archiveSha256"] = cicada_contract::text::sha256_hex(bytes).into();
        }
    }
    std::fs::write(path, serde_json::to_vec_pretty(&head).unwrap()).unwrap();
}
