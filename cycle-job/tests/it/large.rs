//! Memories that are large enough for deltas, by whole cycles of the real program.

use cicada_contract::plan::{Executor, Provider, SqlSource};
use cicada_contract::{CycleReport, FailureClass};
use cicada_store::{ArchiveRef, DELTA_FROM, Head};

use crate::agent::Agent;
use crate::upgrade::cycle_of_the_first_release;

/// An agent with 70 MB of rows, half of which compress.
async fn large() -> Agent {
    let mut agent = Agent::with_model(Provider::OpenAI, "http://127.0.0.1:1");
    let done = sql(
        &mut agent,
        "CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT, noise BLOB, n INTEGER DEFAULT 0);
         WITH RECURSIVE s(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM s WHERE v < 70000)
         INSERT INTO rows (id, text, noise) SELECT v, printf('%0500d', v), randomblob(480) FROM s",
    )
    .await;
    assert_eq!(done.class, None, "{}", done.message);
    agent
}

async fn sql(agent: &mut Agent, sql: &str) -> CycleReport {
    agent.config.executor = Executor::Sql(SqlSource::Inline(sql.into()));
    agent.config.limits.sql_timeout = 300;
    agent.cycle().await
}

async fn head(agent: &Agent) -> Head {
    agent.store().await.read_head().await.unwrap().unwrap().head
}

async fn memory(agent: &Agent) -> ArchiveRef {
    head(agent).await.current().unwrap().memory.clone().unwrap()
}

const CHANGE: &str = "UPDATE rows SET n = n + 1 WHERE id % 3500 = 7";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_change_of_a_large_memory_is_a_small_upload() {
    let mut agent = large().await;
    let whole = memory(&agent).await;
    assert!(whole.is_whole() && whole.file_size > DELTA_FROM);
    let first = head(&agent).await;
    assert_eq!(first.checked_at, Some(first.published), "what deltas build on was checked as a whole");
    for n in 1..=3 {
        let done = sql(&mut agent, CHANGE).await;
        assert_eq!(done.class, None, "{}", done.message);
        let delta = memory(&agent).await;
        assert_eq!(delta.links().unwrap().len(), n + 1);
        assert!(delta.archive_size * 100 < whole.archive_size, "{} bytes", delta.archive_size);
    }
    let kept = memory(&agent).await;
    sql(&mut agent, "SELECT 1").await;
    assert_eq!(memory(&agent).await, kept, "nothing is uploaded where nothing changed");
    assert_eq!(agent.memory("SELECT sum(n), count(*) FROM rows").await, [["60", "70000"]]);
    let text = head(&agent).await.render();
    assert!(String::from_utf8(text).unwrap().contains("\"version\": 2"));
    let refused = cycle_of_the_first_release(&agent, "old").unwrap_err();
    assert!(refused.starts_with("unknown_version"), "{refused}");
    // Most pages change: a whole archive again, and with it a HEAD that earlier releases read once the last
    // delta has left the list.
    sql(&mut agent, "UPDATE rows SET noise = randomblob(480) WHERE id % 3 > 0").await;
    assert!(memory(&agent).await.is_whole());
    agent.config.memory.retention.snapshots = 1;
    sql(&mut agent, CHANGE).await;
    assert!(!memory(&agent).await.is_whole());
    sql(&mut agent, "UPDATE rows SET noise = randomblob(480)").await;
    let text = head(&agent).await.render();
    assert!(
        String::from_utf8(text).unwrap().contains("\"version\": 1"),
        "without deltas nothing is asked of them"
    );
    cycle_of_the_first_release(&agent, "old").unwrap();
    assert_eq!(sql(&mut agent, CHANGE).await.class, None, "{}", agent.log());
    assert_eq!(agent.memory("SELECT sum(n) FROM rows").await, [["100"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_damage_of_a_chain_has_its_class_and_head_stays() {
    let mut agent = large().await;
    sql(&mut agent, CHANGE).await;
    sql(&mut agent, CHANGE).await;
    let last = memory(&agent).await;
    let links: Vec<ArchiveRef> = last.links().unwrap().into_iter().cloned().collect();
    let store = agent.store().await;
    let path = |link: &ArchiveRef| agent.dir.path().join("store").join(store.key(&link.key));
    let paths: Vec<_> = links.iter().map(path).collect();
    let originals: Vec<_> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let current = head(&agent).await.current.clone();
    let swapped: Vec<_> = vec![(1, Some(originals[2].clone())), (2, Some(originals[1].clone()))];
    let cut = |n: usize| vec![(n, Some(originals[n][..originals[n].len() - 9].to_vec()))];
    for (name, changes, class) in [
        ("another delta's bytes", swapped, FailureClass::RestoreCorrupt),
        ("a delta cut short", cut(1), FailureClass::RestoreCorrupt),
        ("the whole archive cut short", cut(0), FailureClass::RestoreCorrupt),
        ("a delta gone", vec![(1, None)], FailureClass::MemoryMissing),
        ("the whole archive gone", vec![(0, None)], FailureClass::MemoryMissing),
    ] {
        for (n, bytes) in changes {
            match bytes {
                Some(bytes) => std::fs::write(&paths[n], bytes).unwrap(),
                None => std::fs::remove_file(&paths[n]).unwrap(),
            }
        }
        let report = sql(&mut agent, CHANGE).await;
        assert_eq!(report.class, Some(class), "{name}: {}", report.message);
        let head = head(&agent).await;
        let memory = head.current().unwrap().memory.as_ref();
        assert_eq!(memory, Some(&last), "{name}: {:?} after {current:?}", head.current);
        for (path, bytes) in paths.iter().zip(&originals) {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    let done = sql(&mut agent, CHANGE).await;
    assert_eq!(done.class, None, "{}", done.message);
    assert_eq!(agent.memory("SELECT sum(n) FROM rows").await, [["60"]]);
}

/// A whole snapshot, by the two programs that any person with a bucket has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_snapshot_is_read_by_zstd_and_sqlite3() {
    let mut agent = Agent::with_model(Provider::OpenAI, "http://127.0.0.1:1");
    sql(&mut agent, "CREATE TABLE prices (item TEXT, price REAL); INSERT INTO prices VALUES ('tea', 2.5)")
        .await;
    let current = head(&agent).await.current().unwrap().clone();
    for (archive, query, expected) in [
        (current.memory, "SELECT item || ' ' || price FROM prices; PRAGMA integrity_check", "tea 2.5\nok\n"),
        (current.ledger, "SELECT cycle FROM cycles; PRAGMA integrity_check", "price-watch-1\nok\n"),
    ] {
        let archive = agent.dir.path().join("store/shop/price-watch").join(archive.unwrap().key);
        let file = agent.dir.path().join("by-hand.db");
        let run = |program: &str, args: &[&std::ffi::OsStr]| {
            let done = std::process::Command::new(program).args(args).output().unwrap();
            assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).unwrap()
        };
        run(
            "zstd",
            &["-q".as_ref(), "-d".as_ref(), "-f".as_ref(), archive.as_ref(), "-o".as_ref(), file.as_ref()],
        );
        // Nothing but the file: no log, no journal, and no right to write.
        assert_eq!(run("sqlite3", &["-readonly".as_ref(), file.as_ref(), query.as_ref()]), expected);
    }
}
