//! One cycle's way through both workers.

use cicada_contract::plan::Retention;
use cicada_memory::ledger::{BeginCycle, EndKind, FinishCycle, IncomingMessage};
use cicada_memory::{Check, FaultKind, Value};

use crate::support::{Place, config, now};

pub(crate) fn message(id: &str, body: &str) -> IncomingMessage {
    IncomingMessage {
        id: id.into(),
        channel: "Web".into(),
        from: "ann@example.com".into(),
        to: None,
        conversation: None,
        peer_agent: None,
        subject: None,
        body: body.into(),
        attachments_json: None,
        payload_json: None,
        at: now(),
        cycle: "c1".into(),
    }
}

#[test]
fn a_cycle_goes_from_ingest_to_sealed_files() {
    let place = Place::new();
    place.file("stocks.csv", "symbol,date,price,note\nMSFT,2000-01-01,39.81,\nAAPL,2000-02-01,25,x\n");
    place.file("m.json", r#"[{"a": 1, "b": [1, 2]}, {"a": 2.5, "c": "x", "d": true}]"#);
    let mut ledger = place.ledger();
    ledger
        .begin_cycle(&BeginCycle {
            cycle: "c1".into(),
            uid: "u".into(),
            attempt: 1,
            epoch: 1,
            triggers_json: "[]".into(),
            at: now(),
        })
        .unwrap();
    let report = ledger.ingest(&[message("m1", "hello"), message("m1", "hello")], now()).unwrap();
    assert_eq!((report.new, report.known), (1, 1), "a repeat is one message");
    let mounts = ledger.load_mounts(&config(), &[], now()).unwrap();
    assert_eq!((mounts.tables.len(), mounts.image.tables.len()), (7, 1));

    let mut memory = place.memory();
    memory.check(Check::Integrity).unwrap();
    memory.mount(&mounts).unwrap();
    let done = memory
        .batch(
            "SELECT load_table('stocks.csv', 'stocks', 'durable'); load_table('m.json', 'm');
             CREATE TABLE seen AS SELECT body FROM __messages WHERE is_new; CREATE TABLE t (a INTEGER PRIMARY KEY, b);
             INSERT INTO t (b) VALUES ('x'), ('y'); INSERT INTO __kanban_cards (title) VALUES ('Look');
             UPDATE t SET b = 'z' WHERE a = 1; SELECT count(*), max(price) FROM stocks; SELECT * FROM m",
        )
        .unwrap();
    assert!(done.is_ok(), "{}", done.text);
    assert_eq!(done.statements[7].rows, [[Value::Int(2), Value::Real(39.81)]], "{}", done.text);
    assert_eq!(done.statements[8].rows[0], [Value::Real(1.0), "[1, 2]".into(), Value::Null, Value::Null]);
    let failed = memory.batch("INSERT INTO t (b) VALUES ('gone'); SELECT nope FROM t").unwrap();
    assert_eq!(failed.error.as_ref().unwrap().statement, Some(2));
    assert_eq!(
        memory.query("SELECT count(*) FROM t", 10).unwrap().rows,
        [[Value::Int(2)]],
        "the whole batch is undone"
    );
    assert_eq!(
        memory.query("SELECT note FROM stocks", 10).unwrap().rows[0],
        [Value::Null],
        "an empty cell is NULL"
    );

    let changes = memory.changes().unwrap();
    let of = |name: &str| changes.iter().find(|c| c.name == name).unwrap();
    assert_eq!((of("t").rows, of("t").before, of("t").inserted, of("t").updated), (Some(2), None, 2, 1));
    assert_eq!((of("seen").inserted, of("stocks").inserted, changes.len()), (1, 2, 3));

    let edits = memory.edits();
    assert_eq!(edits.len(), 1);
    let back = ledger.apply_edits(&edits, &config(), "c1", now()).unwrap();
    assert_eq!((back.applied, back.conflicts.len()), (1, 0));
    memory.unmount().unwrap();
    let sealed = memory.seal().unwrap();
    assert!(sealed.changed && sealed.tables == 3, "{sealed:?}");
    ledger
        .finish_cycle(&FinishCycle {
            cycle: "c1".into(),
            attempt: 1,
            kind: EndKind::Final,
            class: None,
            outcome: Some("done".into()),
            summary: None,
            usage: Default::default(),
            report_json: None,
            at: now(),
        })
        .unwrap();
    ledger.seal(&Retention::default(), now()).unwrap();
    drop((memory, ledger));

    let bytes = std::fs::read(place.memory_dir().join("memory.db")).unwrap();
    assert_eq!((bytes[18], bytes[19]), (1, 1), "not in WAL mode");
    assert!(!place.memory_dir().join("memory.db-wal").exists());
    assert!(!bytes.windows(6).any(|w| w == b"__kanb" || w == b"__mess"), "nothing of a mount is in the file");

    let mut again = place.memory();
    again.unmount().unwrap();
    assert!(!again.seal().unwrap().changed, "a cycle that changed nothing says so");
    let mut ledger = place.ledger();
    let mounts = ledger.load_mounts(&config(), &[], now()).unwrap();
    assert_eq!(mounts.rows("__kanban_cards").len(), 1);
    again.mount(&mounts).unwrap();
    let is_new = again.query("SELECT is_new FROM __messages", 9).unwrap().rows;
    assert_eq!(is_new, [[Value::Int(0)]], "handled after a final end");
}

#[test]
fn a_killed_worker_costs_one_statement() {
    let place = Place::new();
    let mut memory = place.memory();
    memory.mount(&place.ledger().load_mounts(&config(), &[], now()).unwrap()).unwrap();
    assert!(
        memory
            .batch("CREATE TABLE t (a); INSERT INTO t VALUES (1); UPDATE __agent_config SET charter = 'New.'")
            .unwrap()
            .is_ok()
    );
    let killer = memory.killer();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        killer.kill();
    });
    let slow = "INSERT INTO t VALUES (2); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let killed = memory.batch(slow).unwrap();
    thread.join().unwrap();
    assert!(killed.error.as_ref().unwrap().message.contains("signal 9"), "{}", killed.text);
    assert_eq!(memory.query("SELECT count(*) FROM t", 1).unwrap().rows, [[Value::Int(1)]]);
    assert_eq!(
        memory.query("SELECT charter FROM __agent_config", 1).unwrap().rows,
        [["New.".into()]],
        "edits are mounted again"
    );
    let timed = memory.batch(slow).unwrap();
    assert_eq!(timed.error.as_ref().unwrap().kind, Some(FaultKind::Timeout), "{}", timed.text);
}

#[test]
fn the_sandbox_is_whole_here() {
    assert_eq!(Place::new().memory().sandbox().label(), "landlock+seccomp");
}

#[test]
fn archives_are_unpacked_or_told_apart() {
    use cicada_memory::{UnpackError, UnpackLimits, unpack};
    let place = Place::new();
    let content = b"some bytes".repeat(1000);
    let sha = cicada_contract::text::sha256_hex(&content);
    let archive = place.dir.path().join("a.zst");
    let out = place.memory_dir().join("memory.db");
    let good = zstd::encode_all(&content[..], 3).unwrap();
    let run = |bytes: &[u8], max: u64| {
        std::fs::write(&archive, bytes).unwrap();
        unpack(
            &crate::support::launcher(),
            &archive,
            &out,
            UnpackLimits { max_bytes: max, ..Default::default() },
            &sha,
        )
    };
    assert_eq!(run(&good, 1 << 20).unwrap().size, 10_000);
    assert_eq!(std::fs::read(&out).unwrap(), content);
    assert!(matches!(run(&good, 9_999), Err(UnpackError::Bomb { .. })));
    assert!(!out.exists());
    let trailing = [good.clone(), good.clone()].concat();
    for bad in [&good[..good.len() - 3], &trailing, b"", b"not zstd"] {
        assert!(matches!(run(bad, 1 << 20), Err(UnpackError::Corrupt { .. })));
    }
}
