//! Files that Cicada did not make, as `cicadactl prompt --db` and `cicadactl sql --db` open them.

use std::path::{Path, PathBuf};

use cicada_memory::{FaultKind, MemoryWorker, PromptOptions, WorkerError};
use rusqlite::Connection;

use crate::support::{Place, launcher, options};

/// The schema of a browser's history, with all that a memory may not have: names and modules of others,
/// functions that only the browser has, columns that are computed.
const PLACES: &str = "PRAGMA journal_mode = WAL;
    CREATE TABLE moz_origins (id INTEGER PRIMARY KEY, prefix TEXT NOT NULL, host TEXT NOT NULL, frecency INTEGER NOT NULL, UNIQUE (prefix, host));
    CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url LONGVARCHAR, title LONGVARCHAR, rev_host LONGVARCHAR, visit_count INTEGER DEFAULT 0,
        hidden INTEGER DEFAULT 0 NOT NULL, frecency INTEGER DEFAULT -1 NOT NULL, last_visit_date INTEGER, guid TEXT, url_hash INTEGER DEFAULT 0 NOT NULL,
        origin_id INTEGER REFERENCES moz_origins (id), host_len INTEGER GENERATED ALWAYS AS (length(rev_host)) VIRTUAL, title_upper TEXT AS (upper(title)) STORED);
    CREATE UNIQUE INDEX moz_places_guid_uniqueindex ON moz_places (guid);
    CREATE INDEX partial ON moz_places (frecency) WHERE hidden = 0;
    CREATE INDEX expression ON moz_places (lower(title));
    CREATE TABLE moz_historyvisits (id INTEGER PRIMARY KEY, from_visit INTEGER, place_id INTEGER, visit_date INTEGER);
    CREATE TABLE moz_meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
    CREATE TABLE \"table\" (\"select\" TEXT, \"a\"\"b\" TEXT, \"\" TEXT);
    CREATE TABLE __migrations (v);
    CREATE VIRTUAL TABLE pages_fts USING fts5(title, body, tokenize = 'porter unicode61');
    CREATE VIRTUAL TABLE ext_fts USING fts5(title, content = 'moz_places', content_rowid = 'id');
    CREATE VIRTUAL TABLE none_fts USING fts5(title, content = '');
    CREATE VIRTUAL TABLE geo USING rtree(id, minx, maxx);
    CREATE VIEW v_recent AS SELECT p.url, v.visit_date FROM moz_places p JOIN moz_historyvisits v ON v.place_id = p.id ORDER BY 2 DESC;
    CREATE VIEW v_broken AS SELECT get_prefix(url) FROM moz_places;
    CREATE TRIGGER counted AFTER DELETE ON moz_places BEGIN UPDATE moz_origins SET frecency = frecency - 1 WHERE id = OLD.origin_id; END;
    CREATE TRIGGER hashed AFTER UPDATE OF url ON moz_places BEGIN UPDATE moz_places SET url_hash = hash(NEW.url) WHERE id = NEW.id; END;
    INSERT INTO moz_origins VALUES (1, 'https://', 'example.com', 1000);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 12000) INSERT INTO moz_places (id, url, title, rev_host, visit_count, last_visit_date, guid, origin_id)
        SELECT i, 'https://example.com/' || i, 'Page ' || i, 'moc.elpmaxe.', i % 7, 1700000000000000 + i, 'guid' || i, 1 FROM n;
    INSERT INTO moz_historyvisits SELECT id, 0, id, last_visit_date FROM moz_places;
    INSERT INTO moz_meta VALUES ('a', 1), ('b', x'00ff'); INSERT INTO \"table\" VALUES ('x', 'y', 'z');
    INSERT INTO pages_fts SELECT title, 'body of ' || title FROM moz_places LIMIT 500; INSERT INTO ext_fts (ext_fts) VALUES ('rebuild');
    INSERT INTO none_fts SELECT title FROM moz_places LIMIT 10; INSERT INTO geo VALUES (1, 0, 1), (2, 5, 6);
    PRAGMA writable_schema = ON;
    INSERT INTO sqlite_schema VALUES ('table', 'old_fts', 'old_fts', 0, 'CREATE VIRTUAL TABLE old_fts USING fts4(title)'),
        ('table', 'own_fts', 'own_fts', 0, 'CREATE VIRTUAL TABLE own_fts USING fts5(title, tokenize = ''signal'')');
    PRAGMA writable_schema = OFF";

fn make(place: &Place, name: &str, sql: &str) -> PathBuf {
    let file = place.dir.path().join(name);
    Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    file
}

/// A file and what lies beside it.
fn bytes(file: &Path) -> Vec<Option<Vec<u8>>> {
    let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", file.display()));
    ["", "-wal", "-journal", "-shm"].map(|suffix| std::fs::read(beside(suffix)).ok()).to_vec()
}

fn open(file: &Path) -> Result<(Place, MemoryWorker), WorkerError> {
    let copy = Place::new();
    let before = bytes(file);
    let opened = MemoryWorker::open_copy(&launcher(), file, &copy.memory_dir(), options());
    assert_eq!(bytes(file), before, "{} is only read", file.display());
    opened.map(|worker| (copy, worker))
}

/// Runs a batch, and what `cicadactl sql` does after it; the copy is then one file that anybody can read.
fn run(file: &Path, sql: &str) -> String {
    let (copy, mut worker) = open(file).unwrap();
    let done = worker.batch(sql).unwrap();
    if done.is_ok() {
        worker.unmount().unwrap();
        worker.seal().unwrap();
        drop(worker);
        let whole = copy.memory_dir().join("memory.db");
        assert!(!copy.memory_dir().join("memory.db-wal").exists());
        let tables: i64 = Connection::open(whole)
            .unwrap()
            .query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))
            .unwrap();
        assert!(tables > 0);
    }
    done.text
}

fn prompt(file: &Path) -> String {
    open(file).unwrap().1.schema_prompt(&PromptOptions::default()).unwrap()
}

#[test]
fn a_browsers_history_is_described_and_queried() {
    let place = Place::new();
    let file = make(&place, "places.sqlite", PLACES);
    let text = prompt(&file);
    for told in [
        "moz_places, ~12000 rows [durable]",
        "url LONGVARCHAR: URL, all distinct",
        "moz_meta, 2 rows",
        "v_recent, a view",
        "__migrations, 0 rows",
        "pages_fts, 500 rows",
        "old_fts, not readable",
        "own_fts, not readable",
        "geo, 2 rows",
        "table, 1 row",
    ] {
        assert!(text.contains(told), "{told} is missing in {text}");
    }
    assert!(!text.contains("geo_node") && !text.contains("pages_fts_data"), "shadow tables: {text}");
    for (sql, told) in [
        ("DELETE FROM moz_places WHERE id = 5; SELECT frecency FROM moz_origins", "999"),
        ("SELECT count(*) FROM ext_fts WHERE ext_fts MATCH 'page'", "12000"),
        ("INSERT INTO pages_fts VALUES ('a', 'b'); SELECT count(*) FROM pages_fts", "501"),
        ("SELECT id FROM geo WHERE minx > 3", "2"),
        ("SELECT max(host_len) FROM moz_places", "12"),
        ("SELECT * FROM v_recent LIMIT 1", "https://example.com/12000"),
        ("CREATE TABLE mine AS SELECT * FROM moz_meta; SELECT count(*) FROM mine", "2"),
        ("SELECT * FROM v_broken", "no such function: get_prefix"),
        ("UPDATE moz_places SET url = 'x' WHERE id = 6", "no such function: hash"),
        ("SELECT * FROM old_fts", "no such module: fts4"),
        ("DROP TABLE __migrations", "belongs to the platform"),
    ] {
        let text = run(&file, sql);
        assert!(text.contains(told), "{sql}: {text}");
    }
}

#[test]
fn what_was_committed_but_not_checkpointed_is_seen() {
    let place = Place::new();
    let file = place.dir.path().join("live.db");
    let live = Connection::open(&file).unwrap();
    live.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a); INSERT INTO t VALUES (1), (2)")
        .unwrap();
    assert!(bytes(&file)[1].is_some(), "its log is there, and its owner has it open");
    assert!(prompt(&file).contains("t, 2 rows"));
    assert!(run(&file, "SELECT sum(a) FROM t").contains('3'));
}

#[test]
fn what_was_not_committed_is_rolled_back() {
    let place = Place::new();
    let file = make(
        &place,
        "busy.db",
        "CREATE TABLE t (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) INSERT INTO t SELECT 'old' FROM n",
    );
    let busy = Connection::open(&file).unwrap();
    busy.execute_batch("PRAGMA cache_size = 5; BEGIN; UPDATE t SET a = 'new'").unwrap();
    assert!(bytes(&file)[2].is_some(), "a journal that a reader must roll back");
    // As it would be after a crash: the journal's owner is gone.
    let left = place.dir.path().join("left.db");
    std::fs::copy(&file, &left).unwrap();
    std::fs::copy(place.dir.path().join("busy.db-journal"), place.dir.path().join("left.db-journal"))
        .unwrap();
    assert!(run(&left, "SELECT count(*) FROM t WHERE a = 'new'").contains("\n0"));
}

#[test]
fn other_encodings_page_sizes_and_shapes_are_read() {
    let place = Place::new();
    let columns: Vec<String> = (0..1900).map(|n| format!("c{n}")).collect();
    let tables: String = (0..3000).map(|n| format!("CREATE TABLE t{n} (a, b); ")).collect();
    for (name, sql) in [
        (
            "utf16",
            "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('äöü')".to_owned(),
        ),
        ("small", "PRAGMA page_size = 512; CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('äöü')".to_owned()),
        (
            "large",
            "PRAGMA page_size = 65536; CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('äöü')".to_owned(),
        ),
        (
            "vacuum",
            "PRAGMA auto_vacuum = FULL; CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('äöü')".to_owned(),
        ),
        ("wide", format!("CREATE TABLE t ({}); INSERT INTO t (c1899) VALUES ('äöü')", columns.join(", "))),
        ("many", format!("BEGIN; {tables} CREATE TABLE t (a); INSERT INTO t VALUES ('äöü'); COMMIT")),
    ] {
        let file = place.dir.path().join(name);
        let c = Connection::open(&file).unwrap();
        c.execute_batch(&sql).unwrap();
        drop(c);
        assert!(prompt(&file).contains("t, 1 row"), "{name}");
        assert!(run(&file, "SELECT * FROM t").contains("äöü"), "{name}");
    }
}

#[test]
fn numbers_in_clusters_do_not_inflate_the_count() {
    let place = Place::new();
    // Codes as a standard hands them out: blocks of a few thousand in a range of seventy million.
    let file = make(
        &place,
        "codes.db",
        "CREATE TABLE codes (code INTEGER PRIMARY KEY, name TEXT);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 8000)
         INSERT INTO codes SELECT CASE WHEN i < 6000 THEN 2000 + i ELSE 62000000 + i * 5 END, 'code ' || i FROM n;
         INSERT INTO codes VALUES (69036405, 'last');
         CREATE TABLE large (id INTEGER PRIMARY KEY, a);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 60000)
         INSERT INTO large SELECT i + (i / 20000) * 1000000000, i FROM n",
    );
    let text = prompt(&file);
    assert!(text.contains("codes, 8001 rows"), "{text}");
    let about: u64 = text.split("large, ~").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((45_000..75_000).contains(&about), "{about}");
}

#[test]
fn what_is_no_sound_database_is_told_clearly() {
    let place = Place::new();
    let sound = std::fs::read(make(&place, "sound.db", &PLACES.replace("WAL", "DELETE"))).unwrap();
    let noise = |seed: u32, len: usize| -> Vec<u8> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        (0..len).map(next).collect()
    };
    let patched = |at: usize, with: &[u8]| {
        let mut bytes = sound.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes
    };
    let middle = sound.len() / 2 / 4096 * 4096;
    for (name, content, told) in [
        ("cut", sound[..middle + 100].to_vec(), "malformed"),
        ("schema", patched(100, &noise(1, 400)), "malformed"),
        ("pages", patched(middle, &noise(2, 5 * 4096)), "malformed"),
        ("encrypted", noise(3, 100_000), "not a SQLite database"),
        ("text", b"hello\n".repeat(100), "not a SQLite database"),
        ("head", sound[..60].to_vec(), "not a SQLite database"),
        ("empty", vec![], "the file is empty"),
        ("page-size", patched(16, &[0, 3]), "not a database"),
        ("future", patched(18, &[9, 9]), "not a database"),
    ] {
        let file = place.dir.path().join(name);
        std::fs::write(&file, content).unwrap();
        let error = open(&file).err().unwrap();
        assert!(error.is_corrupt() && error.to_string().contains(told), "{name}: {error}");
    }
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let place = Place::new();
    let path = |name: &str| place.dir.path().join(name);
    std::fs::create_dir(path("folder")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", path("endless")).unwrap();
    std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
    for name in ["folder", "pipe", "endless", "dangling"] {
        let opened = MemoryWorker::open_copy(&launcher(), &path(name), &place.memory_dir(), options());
        assert_eq!(opened.unwrap_err().fault(), Some(FaultKind::Io), "{name}");
    }
    // A file that its owner may only read is copied to one that can be written; so is what a link names.
    let file = make(&place, "read-only.db", "CREATE TABLE t (a)");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    std::os::unix::fs::symlink(&file, path("link")).unwrap();
    let (copy, _worker) = open(&path("link")).unwrap();
    let mode = std::fs::metadata(copy.memory_dir().join("memory.db")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}
