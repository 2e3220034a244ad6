//! Faults known from systems that do a part of this job: each test is named after one and shows that it
//! does not happen here.

use cicada_contract::plan::{CharterPolicy, PlanConfig, Retention};
use cicada_memory::ledger::{
    EndKind, FinishCycle, HumanAnswer, HumanRequest, OutboxState, OutboxUpdate, OutgoingMessage,
    ToolResultRecord,
};
use cicada_memory::{FaultKind, LedgerWorker, MOUNTS, MemoryWorker, Mounts, Value};

use crate::support::{Place, config, now};

fn ok(memory: &mut MemoryWorker, sql: &str) -> String {
    let done = memory.batch(sql).unwrap();
    assert!(done.is_ok(), "{}", done.text);
    done.text
}

fn one(memory: &mut MemoryWorker, sql: &str) -> Value {
    memory.query(sql, 1).unwrap().rows[0][0].clone()
}

fn mounted(place: &Place) -> (LedgerWorker, MemoryWorker, Mounts) {
    let mut ledger = place.ledger();
    ledger.ingest(&[crate::path::message("m1", "hello")], now()).unwrap();
    let mounts = ledger.load_mounts(&config(), &[], now()).unwrap();
    let mut memory = place.memory();
    memory.mount(&mounts).unwrap();
    (ledger, memory, mounts)
}

#[test]
fn compaction_works_although_attach_is_denied() {
    let place = Place::new();
    let mut memory = place.memory();
    ok(
        &mut memory,
        "CREATE TABLE t (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10000) INSERT INTO t SELECT hex(randomblob(200)) FROM n; CREATE TABLE kept AS SELECT 42 AS a",
    );
    ok(&mut memory, "VACUUM");
    memory.unmount().unwrap();
    let full = memory.seal().unwrap().size;
    drop(memory);
    let mut memory = place.memory();
    ok(&mut memory, "DELETE FROM t");
    memory.unmount().unwrap();
    let sealed = memory.seal().unwrap();
    assert!(sealed.size < full / 10, "{} of {full}", sealed.size);
    assert_eq!(std::fs::metadata(place.memory_dir().join("memory.db")).unwrap().len(), sealed.size);
    assert!(!place.memory_dir().join("compacted.db").exists());
    assert_eq!(one(&mut place.memory(), "SELECT a FROM kept"), Value::Int(42));
}

#[test]
fn a_partial_batch_is_never_kept() {
    let place = Place::new();
    let mut memory = place.memory();
    ok(&mut memory, "CREATE TABLE t (a PRIMARY KEY)");
    for last in
        ["INSERT INTO t VALUES (1)", "SELECT nope", "syntax error", "ATTACH 'x' AS x", "CREATE TABLE __x (a)"]
    {
        let done =
            memory.batch(&format!("INSERT INTO t VALUES (1), (2); CREATE TABLE u (b); {last}")).unwrap();
        assert_eq!(done.error.unwrap().statement, Some(3), "{last}");
        assert_eq!(
            one(
                &mut memory,
                "SELECT (SELECT count(*) FROM t) || (SELECT count(*) FROM sqlite_schema WHERE name = 'u')"
            ),
            "00".into()
        );
    }
    assert_eq!(memory.changes().unwrap()[0].inserted, 0, "changes of an undone batch don't count");
}

#[test]
fn the_models_own_begin_and_commit_are_understood() {
    let place = Place::new();
    let mut memory = place.memory();
    let text = ok(
        &mut memory,
        "BEGIN TRANSACTION; CREATE TABLE t (a); INSERT INTO t VALUES (1); COMMIT; SELECT a FROM t",
    );
    assert!(text.contains("BEGIN was not needed"), "{text}");
    let failed = memory
        .batch(
            "BEGIN; INSERT INTO t VALUES (2); COMMIT; BEGIN; INSERT INTO t VALUES (3); SELECT nope; COMMIT",
        )
        .unwrap();
    assert!(!failed.is_ok());
    assert_eq!(
        one(&mut memory, "SELECT count(*) FROM t"),
        Value::Int(1),
        "COMMIT in the middle kept nothing"
    );
}

#[test]
fn an_update_of_no_row_is_not_reported_as_success() {
    let place = Place::new();
    let mut memory = place.memory();
    let text = ok(
        &mut memory,
        "CREATE TABLE t (a); INSERT INTO t VALUES ('x'); UPDATE t SET a = 'y' WHERE a = 'X'; DELETE FROM t WHERE a = 'z'",
    );
    assert_eq!(text.matches("warning: 0 rows matched").count(), 2, "{text}");
    let text = ok(&mut memory, "UPDATE t SET a = 'all'");
    assert!(text.contains("no WHERE: UPDATE took all 1 rows"), "{text}");
}

#[test]
fn the_agents_triggers_do_not_fire_on_refresh() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    for trigger in [
        "CREATE TRIGGER t AFTER INSERT ON __messages BEGIN DELETE FROM log; END",
        "CREATE TEMP TRIGGER t AFTER INSERT ON __messages BEGIN DELETE FROM log; END",
        "CREATE TEMP TRIGGER t AFTER INSERT ON __kanban_cards BEGIN DELETE FROM log; END",
    ] {
        let done = memory.batch(&format!("CREATE TABLE IF NOT EXISTS log (a); {trigger}")).unwrap();
        assert_eq!(done.error.unwrap().kind, Some(FaultKind::Refused), "{trigger}");
    }
    ok(
        &mut memory,
        "CREATE TABLE log (a); CREATE TRIGGER own AFTER INSERT ON log BEGIN UPDATE log SET a = a + 1; END; INSERT INTO log VALUES (1)",
    );
    ledger.ingest(&[crate::path::message("m2", "again")], now()).unwrap();
    memory.mount(&ledger.load_tables(&config(), &[], now(), &["__messages"]).unwrap()).unwrap();
    assert_eq!(
        one(&mut memory, "SELECT (SELECT count(*) FROM __messages) || (SELECT a FROM log)"),
        "22".into()
    );
}

#[test]
fn scratch_tables_are_never_persisted() {
    let place = Place::new();
    place.file("a.csv", "x,y\nscratch-canary,1\n");
    let (_, mut memory, _) = mounted(&place);
    ok(
        &mut memory,
        "CREATE TEMP TABLE mine AS SELECT 'scratch-canary-2' AS a; SELECT load_table('a.csv', 'loaded'); \
         CREATE TEMP VIEW v AS SELECT a FROM mine; CREATE INDEX temp.i ON mine (a); CREATE TABLE kept AS SELECT count(*) AS n FROM v",
    );
    memory.unmount().unwrap();
    memory.seal().unwrap();
    drop(memory);
    let bytes = std::fs::read(place.memory_dir().join("memory.db")).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(!has("scratch-canary") && !has("loaded") && has("kept"));
}

#[test]
fn one_canary_per_mount_stays_out_of_the_file_unless_it_was_copied() {
    let place = Place::new();
    let (_, mut memory, mut mounts) = mounted(&place);
    for mount in MOUNTS {
        let mut row = vec![Value::Null; mount.columns.len()];
        for (n, (name, kind)) in mount.columns.iter().enumerate() {
            row[n] = if kind.starts_with("INTEGER") {
                Value::Int(1)
            } else {
                format!("canary-{}-{name}", mount.name).into()
            };
        }
        mounts.tables.insert(mount.name.into(), vec![row]);
    }
    memory.mount(&mounts).unwrap();
    ok(
        &mut memory,
        "CREATE TABLE work (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) INSERT INTO work SELECT hex(randomblob(100)) FROM n",
    );
    ok(
        &mut memory,
        "SELECT a.body, b.path FROM __messages a, __files b ORDER BY 1; CREATE TABLE copied AS SELECT body FROM __messages; UPDATE work SET a = 'x' WHERE rowid % 2",
    );
    memory.unmount().unwrap();
    memory.seal().unwrap();
    drop(memory);
    let bytes = std::fs::read(place.memory_dir().join("memory.db")).unwrap();
    let found: Vec<String> = bytes
        .windows(7)
        .enumerate()
        .filter(|(_, w)| w == b"canary-")
        .map(|(at, _)| String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 22)]).into_owned())
        .collect();
    assert_eq!(found, ["canary-__messages-body"], "only what the agent copied");
}

#[test]
fn a_humans_edit_is_not_lost_to_the_write_back() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    let card = "UPDATE __kanban_cards SET status = 'done' WHERE card_id = 'c1'";
    ok(&mut memory, "INSERT INTO __kanban_cards (card_id, title) VALUES ('c1', 'Look'), ('c2', 'See')");
    ledger.apply_edits(&memory.edits(), &config(), "c1", now()).unwrap();
    // The next cycle sees both; meanwhile a person changes one (here: another cycle's write back).
    let seen = ledger.load_mounts(&config(), &[], now()).unwrap();
    let (mut agent, mut person) = (place_memory(&seen), place_memory(&seen));
    ok(&mut agent.1, &format!("{card}; UPDATE __kanban_cards SET priority = 5 WHERE card_id = 'c2'"));
    ok(
        &mut person.1,
        "UPDATE __kanban_cards SET title = 'Look closely', status = 'doing' WHERE card_id = 'c1'",
    );
    ledger.apply_edits(&person.1.edits(), &config(), "person", now()).unwrap();
    let report = ledger.apply_edits(&agent.1.edits(), &config(), "c2", now()).unwrap();
    assert_eq!((report.applied, report.conflicts.len()), (1, 1));
    assert!(
        report.conflicts[0]
            .contains("kept title=Look closely, status=doing; yours was title=Look, status=done"),
        "{report:?}"
    );
    let rows = ledger.query("SELECT title, status FROM cards ORDER BY card_id", 9).unwrap().rows;
    assert_eq!(rows, [["Look closely".into(), "doing".into()], [Value::from("See"), "todo".into()]]);
    assert_eq!(
        ledger.overview(now(), "UTC").unwrap().notices.len(),
        1,
        "the next prompt has one line with both"
    );
    let events = ledger
        .query("SELECT card_id, from_status, to_status, actor, cycle FROM card_events ORDER BY event_id", 9)
        .unwrap();
    assert_eq!(events.rows.len(), 4);
    assert_eq!(
        events.rows[2],
        [Value::from("c1"), "todo".into(), "doing".into(), "agent".into(), "person".into()]
    );
}

fn place_memory(mounts: &Mounts) -> (Place, MemoryWorker) {
    let place = Place::new();
    let mut memory = place.memory();
    memory.mount(mounts).unwrap();
    (place, memory)
}

#[test]
fn a_native_crash_does_not_end_the_cycle() {
    let place = Place::new();
    let (_, mut memory, _) = mounted(&place);
    ok(
        &mut memory,
        "CREATE TABLE t (a); INSERT INTO t VALUES (1); INSERT INTO __kanban_cards (card_id, title) VALUES ('c1', 'Look')",
    );
    for signal in ["-ILL", "-ABRT", "-KILL"] {
        let id = memory.process_id().unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(150));
            std::process::Command::new("kill").args([signal, &id.to_string()]).status().unwrap();
        });
        let done = memory.batch("INSERT INTO t VALUES (2); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n").unwrap();
        killer.join().unwrap();
        assert!(done.error.as_ref().unwrap().message.contains("signal"), "{}", done.text);
        assert!(done.text.contains("scratch tables are gone"), "{}", done.text);
        assert_eq!(
            one(&mut memory, "SELECT (SELECT count(*) FROM t) || (SELECT title FROM __kanban_cards)"),
            "1Look".into()
        );
    }
    memory.unmount().unwrap();
    assert!(memory.seal().unwrap().changed);
}

#[test]
fn a_hung_worker_is_killed() {
    let place = Place::new();
    let (_, mut memory, _) = mounted(&place);
    let id = memory.process_id().unwrap().to_string();
    std::process::Command::new("kill").args(["-STOP", &id]).status().unwrap();
    let done = memory.batch("SELECT 1").unwrap();
    assert!(done.error.unwrap().message.contains("without yielding"), "{}", done.text);
    ok(&mut memory, "SELECT 1");
}

#[test]
fn schedules_go_in_all_or_not_at_all() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    ok(
        &mut memory,
        "INSERT INTO __agent_schedules (schedule_key, schedule, instruction) VALUES ('a', '0 7 * * *', 'Look.'), ('b', '0 8 * * *', 'See.')",
    );
    // Between mount and write back the manifest took the name `b` for itself.
    let mut changed = config();
    changed.schedules.push(cicada_contract::plan::PlanSchedule {
        name: "b".into(),
        schedule: "0 9 * * *".into(),
        once: false,
        time_zone: None,
        instruction: None,
        next: None,
        last: None,
    });
    let report = ledger.apply_edits(&memory.edits(), &changed, "c1", now()).unwrap();
    assert_eq!(
        (report.conflicts.len(), report.schedules.len()),
        (1, 0),
        "the manifest's row wins: {report:?}"
    );
    let mut strict = config();
    strict.self_management.max_active_schedules = 1;
    let report = ledger.apply_edits(&memory.edits(), &strict, "c1", now()).unwrap();
    assert!(report.refused[0].contains("2 would be enabled") && report.schedules.is_empty(), "{report:?}");
    let report = ledger.apply_edits(&memory.edits(), &config(), "c1", now()).unwrap();
    assert_eq!((report.applied, report.schedules.len()), (2, 2));
    let again = ledger.apply_edits(&memory.edits(), &config(), "c1", now()).unwrap();
    assert_eq!((again.applied, again.conflicts.len()), (0, 0), "the same edits again change nothing");
}

#[test]
fn a_changed_skill_is_a_new_version() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    ok(
        &mut memory,
        "INSERT INTO __agent_skills (skill_id, name, instructions) VALUES ('s1', 'Pricing', 'One.')",
    );
    ledger.apply_edits(&memory.edits(), &config(), "c1", now()).unwrap();
    let mut next = place_memory(&ledger.load_mounts(&config(), &[], now()).unwrap());
    ok(&mut next.1, "UPDATE __agent_skills SET instructions = 'Two.'");
    ledger.apply_edits(&next.1.edits(), &config(), "c2", now()).unwrap();
    let rows = ledger.query("SELECT version, instructions FROM skills ORDER BY version", 9).unwrap().rows;
    assert_eq!(rows, [[Value::Int(1), "One.".into()], [Value::Int(2), "Two.".into()]]);
    let mut last = place_memory(&ledger.load_mounts(&config(), &[], now()).unwrap());
    ok(&mut last.1, "DELETE FROM __agent_skills");
    ledger.apply_edits(&last.1.edits(), &config(), "c3", now()).unwrap();
    assert_eq!(ledger.load_mounts(&config(), &[], now()).unwrap().rows("__agent_skills").len(), 0);
    assert_eq!(
        ledger.query("SELECT count(*) FROM skills", 1).unwrap().rows,
        [[Value::Int(3)]],
        "older versions stay"
    );
}

#[test]
fn a_charter_edit_follows_the_policy() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    ok(
        &mut memory,
        "UPDATE __agent_config SET charter = 'Watch prices.' || char(10) || 'Tell sales.', short_description = 'A watcher'",
    );
    let edits = memory.edits();
    let with = |policy| PlanConfig {
        self_management: cicada_contract::plan::SelfManagement { charter: policy, ..Default::default() },
        ..config()
    };
    let report = ledger.apply_edits(&edits, &with(CharterPolicy::Propose), "c1", now()).unwrap();
    assert_eq!((report.asks[0].kind.as_str(), report.asks[0].summary.as_str()), ("charter", "Tell sales."));
    let charter = |ledger: &mut LedgerWorker, config: &PlanConfig| {
        ledger.load_mounts(config, &[], now()).unwrap().rows("__agent_config")[0][1].clone()
    };
    assert_eq!(charter(&mut ledger, &config()), "Watch prices.".into(), "a proposal is not in force");
    ok(&mut memory, "UPDATE __agent_config SET short_description = 'A watcher of prices'");
    let mut memory = place_memory(&ledger.load_mounts(&config(), &[], now()).unwrap());
    ok(&mut memory.1, "UPDATE __agent_config SET charter = 'Applied.'");
    ledger.apply_edits(&memory.1.edits(), &with(CharterPolicy::Apply), "c2", now()).unwrap();
    assert_eq!(charter(&mut ledger, &config()), "Applied.".into());
    let git = PlanConfig { charter: "Edited in Git.".into(), ..config() };
    assert_eq!(charter(&mut ledger, &git), "Edited in Git.".into(), "an edit of the manifest wins");
    let denied = place_memory(&Mounts {
        policy: ledger.load_mounts(&with(CharterPolicy::Deny), &[], now()).unwrap().policy,
        ..ledger.load_mounts(&config(), &[], now()).unwrap()
    })
    .1
    .batch("UPDATE __agent_config SET charter = 'x'")
    .unwrap();
    assert!(denied.text.contains("the manifest denies it"), "{}", denied.text);
}

#[test]
fn what_waits_is_never_swept_by_the_retention() {
    let place = Place::new();
    let mut ledger = place.ledger();
    ledger
        .ingest(&[crate::path::message("old", "unread"), crate::path::message("read", "x")], now())
        .unwrap();
    let outgoing = |id: &str| OutgoingMessage {
        id: id.into(),
        channel: "Console".into(),
        to: "you".into(),
        subject: None,
        body: "hi".into(),
        conversation: None,
        attachments_json: None,
        cycle: "c".into(),
    };
    ledger.add_outgoing(&[outgoing("o1"), outgoing("o2"), outgoing("o1")], now()).unwrap();
    ledger
        .update_outgoing(
            &[OutboxUpdate {
                id: "o2".into(),
                state: OutboxState::Sent,
                attempts: Some(1),
                error: None,
                next_at: None,
            }],
            now(),
        )
        .unwrap();
    ledger
        .add_human_request(&HumanRequest {
            id: "h1".into(),
            question: "Really?".into(),
            options: vec!["yes".into()],
            cycle: "c".into(),
            at: now(),
            expires_at: "2026-12-04T12:00:00Z".parse().unwrap(),
        })
        .unwrap();
    let answer = HumanAnswer { id: "a1".into(), request: "h1".into(), answer: "yes".into(), at: now() };
    assert_eq!(ledger.answer_requests(&[answer.clone(), answer], now()).unwrap().new, 1);
    let much = "x".repeat(3000);
    for n in 0..50 {
        let record = ToolResultRecord {
            result_id: format!("r{n}"),
            cycle: "c".into(),
            attempt: 1,
            step: n,
            tool_name: "http_request".into(),
            source_url: None,
            at: now(),
            content: Some(much.clone()),
            bytes: 3000,
            sha256: String::new(),
            is_truncated: false,
            blob_key: None,
        };
        ledger.record_tool_result(&record).unwrap();
    }
    assert_eq!(ledger.recall_result("r7", now()).unwrap().unwrap().bytes, 3000);
    assert_eq!(ledger.recall_result("nope", now()).unwrap(), None);
    let later = "2027-06-01T00:00:00Z".parse().unwrap();
    ledger.seal(&Retention::default(), later).unwrap();
    let mut ledger = place.ledger();
    let count = |ledger: &mut LedgerWorker, sql: &str| ledger.query(sql, 1).unwrap().rows[0][0].clone();
    assert_eq!(
        count(&mut ledger, "SELECT count(*) FROM messages WHERE direction = 'in'"),
        Value::Int(2),
        "not handled yet"
    );
    assert_eq!(count(&mut ledger, "SELECT group_concat(message_id) FROM outbox"), "o1".into());
    assert_eq!(
        count(&mut ledger, "SELECT group_concat(result_id) FROM tool_results"),
        "r7".into(),
        "recalled: kept"
    );
    assert_eq!(count(&mut ledger, "SELECT count(*) FROM ingested"), Value::Int(0), "after 90 days");
    let end = FinishCycle {
        cycle: "c".into(),
        attempt: 1,
        kind: EndKind::Final,
        class: None,
        outcome: None,
        summary: None,
        usage: Default::default(),
        report_json: None,
        at: later,
    };
    ledger.finish_cycle(&end).unwrap();
    ledger.seal(&Retention::default(), later).unwrap();
    assert_eq!(
        count(&mut place.ledger(), "SELECT count(*) FROM messages WHERE direction = 'in'"),
        Value::Int(0)
    );
}

#[test]
fn the_nearest_right_name_is_told_and_only_reads_are_guessed() {
    let place = Place::new();
    let mut memory = place.memory();
    ok(
        &mut memory,
        "CREATE TABLE products (id INTEGER PRIMARY KEY, price REAL, name TEXT); INSERT INTO products VALUES (1, 2.5, 'x')",
    );
    let text = ok(&mut memory, "SELECT prise FROM product");
    assert!(
        text.contains("product was read as products") || text.contains("prise was read as price"),
        "{text}"
    );
    let text = ok(&mut memory, "SELECT max(prise) FROM products WHERE name = 'prise' OR 1");
    assert!(text.contains("prise was read as price") && text.contains("2.5"), "{text}");
    let failed = memory.batch("UPDATE products SET prise = 0").unwrap();
    let message = failed.error.unwrap().message;
    assert!(
        message.contains(
            "no such column: prise; the table products has price. Did you mean: UPDATE products SET price = 0"
        ),
        "{message}"
    );
    let failed = memory.batch("SELECT quantity FROM products").unwrap().error.unwrap();
    assert!(failed.message.contains("the columns are id, name, price"), "{failed:?}");
    let failed = memory.batch("SELECT DATE_TRUNC('day', 'now')").unwrap().error.unwrap();
    assert!(failed.message.contains("use strftime"), "{failed:?}");
}

#[test]
fn warnings_name_what_is_probably_not_meant() {
    let place = Place::new();
    let mut memory = place.memory();
    ok(
        &mut memory,
        "CREATE TABLE customers (id, name, mail, day); CREATE TABLE t (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 60000) INSERT INTO t SELECT i FROM n",
    );
    for (sql, warning) in [
        ("SELECT count(*) FROM customers, t", "joined without a condition"),
        ("SELECT count(*) FROM t WHERE a = 7", "without an index"),
        ("CREATE TABLE customer (x)", "much like the existing table customers"),
        ("CREATE TABLE clients (id, name, mail, day)", "much like the existing table"),
        ("INSERT OR IGNORE INTO t SELECT 1 WHERE 0", "0 rows were added"),
        ("SELECT a FROM t", "rows left out"),
    ] {
        let text = ok(&mut memory, sql);
        assert!(text.contains(warning), "{sql}: {text}");
    }
    for sql in [
        "SELECT count(*) FROM customers c JOIN t ON t.a = c.id",
        "SELECT * FROM t, json_each('[1]') LIMIT 1",
        "CREATE TABLE sales2024 (x, y)",
        "CREATE TABLE sales2025 (z, w)",
    ] {
        let text = ok(&mut memory, sql);
        assert!(!text.contains("warning"), "{sql}: {text}");
    }
}
