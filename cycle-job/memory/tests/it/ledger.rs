//! What becomes of the agent's edits, and what the ledger keeps.

use cicada_contract::plan::Retention;
use cicada_memory::ledger::{
    BeginCycle, EndKind, FinishCycle, HumanAnswer, HumanRequest, IncomingMessage, OutboxState, OutboxUpdate,
    OutgoingMessage, ToolResultRecord,
};
use cicada_memory::{FaultKind, LedgerOptions, LedgerWorker, MemoryWorker, Mounts, Value};

use crate::faults::{mounted, ok, one};
use crate::support::{Place, config, now};

pub(crate) fn place_memory(mounts: &Mounts) -> (Place, MemoryWorker) {
    let place = Place::new();
    let mut memory = place.memory();
    memory.mount(mounts).unwrap();
    (place, memory)
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
        payload_json: None,
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
fn a_full_ledger_with_nothing_to_give_up_says_what_to_do() {
    let place = Place::new();
    let limit = LedgerOptions { size_limit: 1 << 20, ..Default::default() };
    let mut ledger =
        LedgerWorker::spawn(&crate::support::launcher(), &place.dir.path().join("ledger"), limit).unwrap();
    let large = crate::path::message("m1", &"x".repeat(2 << 20));
    let error = ledger.ingest(&[large], now()).unwrap_err();
    assert_eq!(error.fault(), Some(FaultKind::Full));
    assert!(error.to_string().contains("spec.memory.ledgerSizeLimit"), "{error}");
    let small = ledger.ingest(&[crate::path::message("m1", "unread")], now()).unwrap();
    assert_eq!(small.new, 1, "nothing of the failed one was kept");
}

#[test]
fn a_ledger_above_its_limit_gives_up_old_results_only() {
    let place = Place::new();
    let limit = LedgerOptions { size_limit: 2 << 20, ..Default::default() };
    let mut ledger =
        LedgerWorker::spawn(&crate::support::launcher(), &place.dir.path().join("ledger"), limit).unwrap();
    ledger.ingest(&[crate::path::message("m1", "unread")], now()).unwrap();
    let much: String = (0..4000).map(|n| char::from(b'a' + u8::try_from(n * 7 % 26).unwrap())).collect();
    let mut stored = 0;
    for n in 0..470u32 {
        let record = ToolResultRecord {
            result_id: format!("r{n:03}"),
            cycle: "c".into(),
            attempt: 1,
            step: n,
            tool_name: "t".into(),
            source_url: None,
            at: now() + std::time::Duration::from_secs(n.into()),
            content: Some(much.clone()),
            bytes: 4000,
            sha256: String::new(),
            is_truncated: false,
            blob_key: None,
        };
        stored += usize::from(ledger.record_tool_result(&record).is_ok());
    }
    assert_eq!(stored, 470, "a full ledger still takes the newest");
    ledger.seal(&Retention::default(), now()).unwrap();
    let mut ledger = place.ledger();
    let row = ledger
        .query("SELECT count(*), max(result_id), (SELECT count(*) FROM messages) FROM tool_results", 1)
        .unwrap()
        .rows[0]
        .clone();
    assert!(row[0].as_int().unwrap() < 300 && row[1].as_str() == Some("r469"), "{row:?}: the oldest went");
    assert_eq!(row[2], Value::Int(1));
}

fn begin(cycle: &str) -> BeginCycle {
    BeginCycle {
        cycle: cycle.into(),
        uid: "u".into(),
        attempt: 1,
        epoch: 1,
        triggers_json: "[]".into(),
        at: now(),
    }
}

#[test]
fn a_card_event_names_who_changed_the_card() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    ok(&mut memory, "INSERT INTO __kanban_cards (card_id, title) VALUES ('c1', 'Look'), ('c2', 'See')");
    ledger.apply_edits(&memory.edits(), &config(), "c1", now()).unwrap();
    let seen = ledger.load_mounts(&config(), &[], now()).unwrap();
    // A person begins a card in the store itself, by no means of ours.
    drop(ledger);
    let by_hand = rusqlite::Connection::open(place.dir.path().join("ledger/ledger.db")).unwrap();
    by_hand.execute("UPDATE cards SET status = 'doing' WHERE card_id = 'c1'", []).unwrap();
    drop(by_hand);
    let mut ledger = place.ledger();
    ledger.begin_cycle(&begin("c2")).unwrap();
    ledger.begin_cycle(&begin("c2")).unwrap();
    // Meanwhile the agent, which does not know of it, has begun another.
    let mut agent = place_memory(&seen);
    ok(&mut agent.1, "UPDATE __kanban_cards SET status = 'doing' WHERE card_id = 'c2'");
    let report = ledger.apply_edits(&agent.1.edits(), &config(), "c2", now()).unwrap();
    assert!(report.refused[0].contains("c2 was put back to todo: card c1 is doing"), "{report:?}");
    ledger.begin_cycle(&begin("c3")).unwrap();
    let events = ledger
        .query("SELECT card_id, from_status, to_status, actor, cycle FROM card_events ORDER BY event_id", 9)
        .unwrap();
    let row = |cells: [&str; 5]| cells.map(|c| if c.is_empty() { Value::Null } else { c.into() });
    assert_eq!(
        events.rows,
        [
            row(["c1", "", "todo", "agent", "c1"]),
            row(["c2", "", "todo", "agent", "c1"]),
            row(["c1", "todo", "doing", "person", "c2"]),
            row(["c2", "todo", "doing", "agent", "c2"]),
            row(["c2", "doing", "todo", "platform", "c2"]),
        ]
    );
}

#[test]
fn bodies_of_old_messages_give_way_to_new_ones() {
    let place = Place::new();
    let mut ledger = place.ledger();
    let body = |n: usize| format!("{n} {}", "x".repeat(999_990));
    let all: Vec<_> = (0..8).map(|n| crate::path::message(&format!("m{n}"), &body(n))).collect();
    ledger.ingest(&all, now()).unwrap();
    let mut memory = place.memory();
    memory.mount(&ledger.load_mounts(&config(), &[], now()).unwrap()).unwrap();
    let sql = "SELECT substr(message_id, 2) || ':' || length(body) || ':' || body_is_truncated || ':' || body_bytes FROM __messages ORDER BY seq";
    let rows: Vec<String> = memory.query(sql, 9).unwrap().rows.iter().map(|r| r[0].display()).collect();
    let whole = |n: usize| format!("{n}:999992:0:999992");
    assert_eq!(rows[..2], ["0:0:1:999992", "1:0:1:999992"]);
    assert!(
        rows[2].starts_with("2:") && rows[2].ends_with(":1:999992") && rows[2] != "2:0:1:999992",
        "{}",
        rows[2]
    );
    assert_eq!(rows[3..], [3, 4, 5, 6, 7].map(whole));
}

/// A stranger who sends much beside his words must not leave the agent without memory to mount it.
#[test]
fn what_lies_beside_old_messages_gives_way_too() {
    let place = Place::new();
    let mut ledger = place.ledger();
    let payload = |n: usize| format!("{{\"n\": {n}, \"x\": \"{}\"}}", "x".repeat(999_900));
    let all: Vec<_> = (0..8)
        .map(|n| IncomingMessage {
            payload_json: Some(payload(n)),
            subject: Some("s".repeat(5000)),
            ..crate::path::message(&format!("m{n}"), "short")
        })
        .collect();
    ledger.ingest(&all, now()).unwrap();
    let mut memory = place.memory();
    memory.mount(&ledger.load_mounts(&config(), &[], now()).unwrap()).unwrap();
    let sql = "SELECT group_concat(payload_json ->> 'n', ',' ORDER BY seq) || ' ' || count(body) || ' ' || max(length(subject)) FROM __messages";
    assert_eq!(one(&mut memory, sql), "3,4,5,6,7 8 1000".into());
}

#[test]
fn a_refresh_brings_what_changed_and_keeps_the_rest() {
    let place = Place::new();
    let (mut ledger, mut memory, _) = mounted(&place);
    let result = |ledger: &mut LedgerWorker, id: &str| {
        let record = ToolResultRecord {
            result_id: id.into(),
            cycle: "c1".into(),
            attempt: 1,
            step: 1,
            tool_name: "t".into(),
            source_url: None,
            at: now(),
            content: Some(format!("content of {id}")),
            bytes: 9,
            sha256: String::new(),
            is_truncated: false,
            blob_key: None,
        };
        ledger.record_tool_result(&record).unwrap();
    };
    let seen = |memory: &mut MemoryWorker| {
        one(memory, "SELECT group_concat(result_id || is_current_step || result_text, ';' ORDER BY result_id) FROM __tool_results").display()
    };
    for (id, shown) in [("r1", "r11content of r1"), ("r2", "r10content of r1;r21content of r2")] {
        result(&mut ledger, id);
        let mut mounts = ledger.load_tables(&config(), &[], now(), &["__tool_results"]).unwrap();
        let rows = mounts.tables.get_mut("__tool_results").unwrap();
        rows.iter_mut().for_each(|r| r[3] = Value::from(r[0] == id.into()));
        memory.mount(&mounts).unwrap();
        assert_eq!(seen(&mut memory), shown);
    }
    ok(&mut memory, "CREATE TEMP TABLE scratch (a); UPDATE __agent_config SET short_description = 'kept'");
    memory.killer().kill();
    // A new process has what the old one had after the last refresh.
    assert_eq!(seen(&mut memory), "r10content of r1;r21content of r2");
    assert_eq!(
        one(&mut memory, "SELECT short_description || (SELECT count(*) FROM __messages) FROM __agent_config"),
        "kept1".into()
    );
    assert!(!place.memory_dir().join("mounts.db").exists(), "read and gone");
}
