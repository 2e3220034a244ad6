//! Files from the store may be damaged or hostile: each is told apart, and none ends the cycle.

use std::path::Path;
use std::time::{Duration, Instant};

use cicada_memory::{
    Check, FaultKind, MemoryOptions, MemoryWorker, PromptOptions, UnpackError, UnpackLimits, unpack,
};
use rusqlite::Connection;

use crate::support::{Place, launcher, options};

fn open(place: &Place) -> Result<MemoryWorker, cicada_memory::WorkerError> {
    let mut worker = MemoryWorker::spawn(&launcher(), &place.memory_dir(), options())?;
    worker.check(Check::Integrity)?;
    Ok(worker)
}

fn sound(path: &Path) -> Vec<u8> {
    let c = Connection::open(path).unwrap();
    c.execute_batch(
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c REAL); CREATE INDEX i ON t (b); \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000) INSERT INTO t SELECT i, 'text number ' || i, i / 3.0 FROM n; \
         CREATE VIEW v AS SELECT b FROM t; CREATE VIRTUAL TABLE f USING fts5(x); INSERT INTO f SELECT b FROM t LIMIT 200",
    )
    .unwrap();
    drop(c);
    std::fs::read(path).unwrap()
}

/// Text in the schema or pages of a file, changed behind SQLite's back.
fn patched(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut out = bytes.to_vec();
    let at = out.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
    out[at..at + to.len()].copy_from_slice(to.as_bytes());
    out
}

#[test]
fn damaged_files_are_told_from_sound_ones() {
    let place = Place::new();
    let path = place.memory_dir().join("memory.db");
    let good = sound(&path);
    assert!(open(&place).is_ok());
    let mut root = good.clone();
    root[4096..4196].fill(0xff);
    let mut short = good.clone();
    short.truncate(good.len() / 2);
    let mut size = good.clone();
    size[16..18].copy_from_slice(&[0x03, 0x01]);
    let mut freelist = good.clone();
    freelist[32..40].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 5]);
    let encrypted: Vec<u8> =
        good.iter().enumerate().map(|(n, b)| b ^ u8::try_from(n * 7 % 251).unwrap()).collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("overwritten root page", root),
        ("cut in half", short),
        ("wrong page size", size),
        ("freelist into a table", freelist),
        ("broken index", patched(&good, "text number 7", "txet number 7")),
        ("encrypted", encrypted),
        ("text", b"hello world, I am no database at all. ".repeat(100)),
        ("short", b"SQLite format 3\0".to_vec()),
        ("schema that is no SQL", patched(&good, "CREATE TABLE t (a", "CREATE TABEL t (a")),
    ];
    for (name, bytes) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = open(&place).err().unwrap_or_else(|| panic!("{name} was taken for sound"));
        assert!(error.is_corrupt(), "{name}: {error}");
    }
    std::fs::write(&path, b"").unwrap();
    assert!(open(&place).is_ok(), "an empty file is an empty memory");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(open(&place).is_err());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(open(&place).is_err());
}

#[test]
fn a_wal_mode_header_without_its_log_is_no_damage() {
    let place = Place::new();
    let path = place.memory_dir().join("memory.db");
    let mut bytes = sound(&path);
    bytes[18..20].copy_from_slice(&[2, 2]);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(
        open(&place).unwrap().query("SELECT count(*) FROM t", 1).unwrap().rows[0][0].display(),
        "3000"
    );
}

#[test]
fn a_schema_with_the_platforms_names_or_foreign_modules_is_refused() {
    for sql in [
        "CREATE TABLE __messages (a)",
        "CREATE TABLE t (a); CREATE INDEX __i ON t (a)",
        "CREATE VIEW cicada_v AS SELECT 1",
        "CREATE VIRTUAL TABLE r USING rtree(id, a, b)",
    ] {
        let place = Place::new();
        let path = place.memory_dir().join("memory.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        assert_eq!(open(&place).unwrap_err().fault(), Some(FaultKind::Schema), "{sql}");
        let copy = Place::new();
        let worker = MemoryWorker::open_copy(&launcher(), &path, &copy.memory_dir(), options());
        assert!(worker.is_ok(), "a person may look at it: {sql}");
    }
}

#[test]
fn hostile_schemas_do_nothing_at_open_or_first_use() {
    let place = Place::new();
    let path = place.memory_dir().join("memory.db");
    let c = Connection::open(&path).unwrap();
    c.execute_batch(
        "CREATE TABLE t (a, b DEFAULT (hex(randomblob(100))), c AS (printf('%1000d', a)), CHECK (length(a) < 100));
         CREATE TABLE log (x);
         CREATE VIEW bomb AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n;
         CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log SELECT i FROM bomb; END;
         CREATE TRIGGER del BEFORE DELETE ON t BEGIN SELECT RAISE(IGNORE); END;
         INSERT INTO log VALUES (1);",
    )
    .unwrap();
    drop(c);
    let mut worker = open(&place).unwrap();
    let prompt = worker.schema_prompt(&PromptOptions::default()).unwrap();
    assert!(prompt.contains("bomb, a view"));
    let done = worker.batch("INSERT INTO t (a) VALUES (1)").unwrap();
    // Which limit the endless trigger meets first is a matter of the machine's speed.
    let kind = done.error.unwrap().kind;
    assert!(matches!(kind, Some(FaultKind::Timeout | FaultKind::Full | FaultKind::OutOfMemory)), "{kind:?}");
    assert_eq!(worker.query("SELECT count(*) FROM log", 1).unwrap().rows[0][0].display(), "1");
    worker.unmount().unwrap();
    worker.seal().unwrap();
}

/// Bytes at random places, some seconds long: every outcome is an answer, none a hang or an escape.
#[test]
fn mutated_files_never_hang_nor_end_the_cycle() {
    let place = Place::new();
    let path = place.memory_dir().join("memory.db");
    let good = sound(&path);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 16).unwrap()
    };
    let seconds = std::env::var("CICADA_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    let (started, mut corrupt, mut survived, mut died) = (Instant::now(), 0, 0, 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        let mut bytes = good.clone();
        for _ in 0..=next() % 12 {
            // Headers of pages matter most: half of all changes are there.
            let page = next() % (bytes.len() / 4096) * 4096;
            let at = page + if next() % 2 == 0 { next() % 120 } else { next() % 4096 };
            bytes[at] = u8::try_from(next() % 256).unwrap();
        }
        for suffix in ["-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(place.memory_dir().join(format!("memory.db{suffix}")));
        }
        std::fs::write(&path, bytes).unwrap();
        let fast = MemoryOptions { sql_timeout: Duration::from_secs(1), ..options() };
        let Ok(mut worker) = MemoryWorker::spawn(&launcher(), &place.memory_dir(), fast) else {
            corrupt += 1;
            continue;
        };
        let _ = worker.check(Check::Quick);
        let _ = worker.schema_prompt(&PromptOptions::default());
        for sql in [
            "SELECT count(*), max(b) FROM t",
            "INSERT INTO t (b) VALUES ('new'); DELETE FROM t WHERE a % 3 = 0",
            "SELECT * FROM f WHERE f MATCH 'text'",
            "DROP TABLE t",
        ] {
            match worker.batch(sql) {
                Ok(result) if result.is_ok() => survived += 1,
                Ok(result) if result.error.as_ref().is_some_and(|e| e.kind.is_none()) => died += 1,
                _ => corrupt += 1,
            }
        }
        let _ = worker.unmount();
        let _ = worker.seal();
    }
    println!("statements answered {survived}, told as damaged {corrupt}, workers lost {died}");
    assert!(corrupt > 0 && survived > 0);
}

#[test]
fn archives_of_every_wrong_kind_have_their_class() {
    let place = Place::new();
    let out = place.memory_dir().join("memory.db");
    let content = b"SQLite format 3\0 and more".repeat(5000);
    let sha = cicada_contract::text::sha256_hex(&content);
    let good = zstd::encode_all(&content[..], 3).unwrap();
    let archive = place.dir.path().join("a.zst");
    let run = |bytes: &[u8]| {
        std::fs::write(&archive, bytes).unwrap();
        let limits =
            UnpackLimits { max_bytes: 1 << 20, timeout: Duration::from_secs(20), address_space: 256 << 20 };
        let done = unpack(&launcher(), &archive, &out, limits, &sha);
        assert_eq!(done.is_ok(), out.exists(), "nothing half unpacked is left");
        done
    };
    assert!(run(&good).is_ok());
    let window = |log: u32| {
        let mut encoder = zstd::Encoder::new(vec![], 3).unwrap();
        encoder.window_log(log).unwrap();
        std::io::Write::write_all(&mut encoder, &content).unwrap();
        encoder.finish().unwrap()
    };
    let mut dictionary = good.clone();
    dictionary[4] |= 1;
    let mut checksum = zstd::Encoder::new(vec![], 3).unwrap();
    checksum.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut checksum, &content).unwrap();
    let mut checksum = checksum.finish().unwrap();
    *checksum.last_mut().unwrap() ^= 1;
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4][..], &good].concat();
    let other = zstd::encode_all(&b"other content"[..], 3).unwrap();
    for (name, bytes) in [
        ("dictionary", dictionary),
        ("wrong checksum", checksum),
        ("skippable frame first", skippable),
        ("two frames", [good.clone(), good.clone()].concat()),
        ("trailing byte", [good.clone(), vec![0]].concat()),
        ("cut", good[..good.len() - 1].to_vec()),
        ("first bytes only", good[..5].to_vec()),
        ("gzip", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3]),
        ("empty", vec![]),
        ("other content", other),
    ] {
        assert!(matches!(run(&bytes), Err(UnpackError::Corrupt { .. })), "{name}: {:?}", run(&bytes));
    }
    let zeros = zstd::encode_all(std::io::Read::take(std::io::repeat(0), 4 << 30), 1).unwrap();
    let started = Instant::now();
    for (name, bytes) in [("4 GiB of zeros", zeros), ("window of 2^27", window(27))] {
        assert!(matches!(run(&bytes), Err(UnpackError::Bomb { .. })), "{name}: {:?}", run(&bytes));
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    let mut sized = zstd::Encoder::new(vec![], 3).unwrap();
    sized.set_pledged_src_size(Some(content.len() as u64)).unwrap();
    std::io::Write::write_all(&mut sized, &content).unwrap();
    let mut lying = sized.finish().unwrap();
    lying[6] ^= 0x10;
    assert!(
        matches!(run(&lying), Err(UnpackError::Corrupt { .. } | UnpackError::Bomb { .. })),
        "{:?}",
        run(&lying)
    );
    assert!(run(&window(23)).is_ok());
}

/// A rule that the agent gave itself and that does not hold any more must not cost it its memory.
#[test]
fn what_the_agent_declares_never_looks_like_damage() {
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300)";
    for (name, sql) in [
        ("random check", format!("CREATE TABLE t (a CHECK (random() % 2)); {rows} INSERT OR IGNORE INTO t SELECT i FROM n")),
        ("check of the connection", format!("CREATE TABLE t (a CHECK (total_changes() < 400)); {rows} INSERT INTO t SELECT i FROM n")),
        ("check of the row before", "CREATE TABLE t (a CHECK (last_insert_rowid() < 2)); INSERT INTO t VALUES (1), (2)".to_owned()),
        ("random default", format!("CREATE TABLE t (a, b DEFAULT (random())); {rows} INSERT INTO t (a) SELECT i FROM n; ALTER TABLE t ADD COLUMN c NOT NULL DEFAULT 'x'")),
        ("rank function that is none", "CREATE VIRTUAL TABLE t USING fts5(a); INSERT INTO t VALUES ('x'); INSERT INTO t (t, rank) VALUES ('rank', 'nope()')".to_owned()),
        ("small pages of full text", format!("CREATE VIRTUAL TABLE t USING fts5(a, detail = none, columnsize = 0); INSERT INTO t (t, rank) VALUES ('pgsz', 32); {rows} INSERT INTO t SELECT hex(randomblob(20)) FROM n")),
        ("text that is none", "CREATE TABLE t (a TEXT UNIQUE); INSERT INTO t VALUES (CAST(x'ff00fe' AS TEXT)), (char(0) || 'a'); CREATE INDEX i ON t (upper(a))".to_owned()),
        ("view of nothing", "CREATE TABLE t (a); CREATE VIEW v AS SELECT * FROM t; DROP TABLE t".to_owned()),
        ("computed and renamed", "CREATE TABLE t (a, b AS (a || 'x') STORED UNIQUE, c AS (length(b))) STRICT".replace(" STRICT", "") + "; INSERT INTO t VALUES (1); ALTER TABLE t RENAME COLUMN a TO z; CREATE INDEX i ON t (c) WHERE b > 'a'"),
        ("regular expression in an index", "CREATE TABLE t (a); INSERT INTO t VALUES ('ab'); CREATE INDEX i ON t (regexp_replace(a, 'b', 'c'))".to_owned()),
    ] {
        let place = Place::new();
        let mut memory = place.memory();
        let done = memory.batch(&sql).unwrap();
        assert!(done.is_ok(), "{name}: {}", done.text);
        memory.unmount().unwrap();
        memory.seal().unwrap_or_else(|e| panic!("{name}: {e}"));
        drop(memory);
        let mut again = place.memory();
        again.check(Check::Integrity).unwrap_or_else(|e| panic!("{name}: {e}"));
        again.schema_prompt(&PromptOptions::default()).unwrap();
        assert!(again.batch("CREATE TABLE after (a); INSERT INTO after VALUES (1)").unwrap().is_ok(), "{name}");
    }
}
