//! Processes killed with SIGKILL while they write.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    cycles::{agent, held, last, request},
    servers::{VersityGw, config, credentials},
};
use crate::{
    AgentStore, Archive, Condition, DirectoryStore, ObjectStore, PublishRequest, S3Store, SnapshotKind,
    SnapshotRetention, Start, pack,
};

/// What the child process works on: `file:DIR` or `s3:PORT`, and how large its archives are.
const ROLE: &str = "CICADA_TEST_WRITER";

async fn store_of(role: &str) -> Arc<dyn ObjectStore> {
    match role.split_once(':').unwrap() {
        ("file", dir) => Arc::new(DirectoryStore::new(dir)),
        (_, port) => {
            let config = config(port.parse().unwrap(), super::servers::BUCKET, "p");
            Arc::new(S3Store::new(&config, Some(credentials())).await.unwrap())
        }
    }
}

/// The entry point of the child process; as a test of its own there is nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_publishes_until_it_is_killed() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let size: usize = if role.starts_with("s3") { 34 << 20 } else { 200_000 };
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(store_of(&role).await);
    let mut acquired = held(&agent, request(&format!("p{}", std::process::id()))).await;
    for n in 0_u64.. {
        // Random enough not to shrink, so that uploads take a while.
        let mut bytes = vec![0; size];
        rand::Rng::fill(&mut rand::rng(), &mut bytes[..]);
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        let file = dir.path().join("memory.db");
        std::fs::write(&file, bytes).unwrap();
        let memory = Archive::New(pack(&file, &dir.path().join("memory.zst")).await.unwrap());
        let retention = SnapshotRetention { count: 3, max_age: 0 };
        let request = PublishRequest { memory, retention, done: false, ..last(SnapshotKind::Interrupted) };
        println!("writing {n}");
        let done = acquired.writer.publish(request).await.unwrap();
        println!("published {}", done.snapshot.id);
    }
}

fn spawn(role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::kill::child_that_publishes_until_it_is_killed", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills a writer some time after its first publish; gives the last snapshot that it acknowledged.
fn publish_and_kill(role: &str, after: Duration) -> String {
    let mut child = spawn(role);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = String::new();
    while acknowledged.is_empty() {
        let line = lines.next().expect("the writer ended by itself").unwrap();
        if let Some(id) = line.strip_prefix("published ") {
            id.clone_into(&mut acknowledged);
        }
    }
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines.map_while(Result::ok) {
        if let Some(id) = line.strip_prefix("published ") {
            id.clone_into(&mut acknowledged);
        }
    }
    acknowledged
}

/// HEAD names the acknowledged snapshot or the one after it, and everything that it names is whole.
async fn check(agent: &AgentStore, acknowledged: &str, scratch: &Path) {
    let head = agent.read_head().await.unwrap().unwrap().head;
    let current = crate::head::order(head.current.as_deref().unwrap()).unwrap();
    let (epoch, seq) = crate::head::order(acknowledged).unwrap();
    assert!(current == (epoch, seq) || current == (epoch, seq + 1), "{current:?} after {acknowledged}");
    for archive in head.snapshots.iter().filter_map(|snapshot| snapshot.memory.as_ref()) {
        let got =
            agent.store().download(&agent.key(&archive.key), &scratch.join("down"), u64::MAX).await.unwrap();
        assert_eq!((got.sha256, got.size), (archive.archive_sha256.clone(), archive.archive_size));
    }
}

/// volsync#1042, #1429: with real processes, at many moments of their writes.
#[tokio::test]
async fn a_writer_killed_anywhere_leaves_a_whole_memory_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let agent = agent(Arc::new(DirectoryStore::new(&root)));
    for round in 0..15 {
        let role = format!("file:{}", root.display());
        let wait = Duration::from_micros(700 * round);
        let acknowledged = tokio::task::spawn_blocking(move || publish_and_kill(&role, wait)).await.unwrap();
        check(&agent, &acknowledged, dir.path()).await;
    }
    // The next cycle works without a hand, and what the dead have left can be swept away.
    let next = held(&agent, request("next")).await;
    assert!(matches!(next.start, Start::Current(_)));
    agent.store().sweep("", Timestamp::MAX).await.unwrap();
    assert_eq!(std::fs::read_dir(root.join(".cicada-tmp")).unwrap().count(), 0);
    let collected =
        agent.collect(&[], super::cycles::now() + jiff::SignedDuration::from_hours(2)).await.unwrap();
    assert!(!collected.removed.is_empty());
    let head = agent.read_head().await.unwrap().unwrap().head;
    let named: usize = head.snapshots.iter().map(|snapshot| snapshot.archive_keys().count()).sum();
    assert_eq!(agent.snapshot_ids().await.unwrap().len(), named, "nothing unnamed is left");
}

#[tokio::test]
#[ignore = "needs versitygw"]
async fn a_writer_killed_in_an_upload_leaves_a_whole_memory_in_a_bucket() {
    let server = VersityGw::start();
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(Arc::new(server.store("p").await));
    for round in 0..3 {
        let role = format!("s3:{}", server.port);
        let wait = Duration::from_millis(120 * round + 20);
        let acknowledged = tokio::task::spawn_blocking(move || publish_and_kill(&role, wait)).await.unwrap();
        check(&agent, &acknowledged, dir.path()).await;
    }
    // Requests that were on their way when their process died have ended by now, or are swept.
    let swept = agent.store().sweep(&agent.key(""), Timestamp::MAX).await.unwrap();
    println!("{swept} unfinished uploads swept");
    assert_eq!(agent.store().sweep(&agent.key(""), Timestamp::MAX).await.unwrap(), 0);
    agent.store().put(&agent.key("files/a"), "x".into(), Condition::Any).await.unwrap();
    held(&agent, request("next")).await.writer.publish(last(SnapshotKind::Final)).await.unwrap();
}
