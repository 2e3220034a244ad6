//! Every field of a status, falsified: whole statuses after known events, compared as a whole. Together they
//! have every field that the schemas have.

use std::collections::BTreeSet;

use cicada_contract::report::{
    AgentSchedule, Ask, CharterReport, CharterSource, Pending, PhaseTime, TableChange, Usage,
};
use cicada_crds::generate;
use serde_json::Value;

use super::*;

/// A report that says everything.
fn report() -> CycleReport {
    let ask = |id: &str, kind: &str| Ask {
        id: id.into(),
        kind: kind.into(),
        hash: "1a2b3c4d5e".into(),
        summary: "s".into(),
    };
    CycleReport {
        outcome: Outcome::Done,
        message: "all checked".into(),
        ended_by: Some("maxModelCalls".into()),
        attempt: 2,
        recovered: true,
        memory: Some(MemoryReport {
            snapshot: Some("4-0-new".into()),
            before: Some("3-0-old".into()),
            epoch: 4,
            size: 3 << 20,
            archive_size: 1 << 20,
            tables: Some(2),
            persisted_at: Some(1_796_108_460),
            adopted: true,
            counted: true,
            seeded_from: Some("old/clerk 3-1-a".into()),
        }),
        tables: vec![TableChange {
            name: "prices".into(),
            rows: Some(600),
            before: Some(560),
            inserted: 40,
            updated: 3,
            deleted: 1,
        }],
        usage: Usage {
            model_calls: 5,
            tool_calls: 7,
            input_tokens: 100,
            output_tokens: 20,
            cost: 0.25,
            messages: 2,
            ..Usage::default()
        },
        pending: Pending { inbox: 1, outbox: 2, ..Pending::default() },
        phases: vec![PhaseTime { phase: "persist".into(), ms: 1500 }],
        agent_schedules: vec![AgentSchedule {
            key: "weekly".into(),
            schedule: "0 9 * * 1".into(),
            time_zone: Some("Europe/Berlin".into()),
        }],
        agent_paused_until: Some(ts("2026-12-03T00:00:00Z").as_second()),
        charter: Some(CharterReport {
            source: CharterSource::Person,
            hash: "of the text in force".into(),
            base: cicada_contract::text::sha256_hex(""),
        }),
        asks: vec![ask("charter-1", "charter"), ask("question-1", "human")],
        warnings: vec!["a warning".into()],
        ..CycleReport::new(CycleResult::Done)
    }
}

/// Without the conditions, whose truth `situations.rs` and `memory.rs` show.
fn plain(status: &impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(status).unwrap();
    value.as_object_mut().unwrap().remove("conditions");
    value
}

fn agent_statuses() -> Vec<(Value, Value)> {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.environment.instance = Some("cicada-system/cicada".into());
    w.agent.spec.run_token = Some("release-1".into());
    w.agent.metadata.annotations = Some([(RUN_NOW.to_owned(), "by-hand".to_owned())].into());
    w.at("2026-12-01T06:00:00Z").done();
    w.at("2026-12-01T07:00:00Z");
    let running = plain(&w.status());
    let uid = w.cycles.last().unwrap().metadata.uid.clone();
    let active =
        json!({"name": "a-29935140", "uid": uid, "since": "2026-12-01T07:00:00Z", "store": "file:///store"});
    let checks = vec![(running["activeCycle"].clone(), active)];
    w.now = ts("2026-12-01T07:01:00Z");
    w.end(&report());
    let worked = plain(&w.status());
    let expected = json!({
        "observedGeneration": 1,
        "state": "Idle",
        "operator": "cicada-system/cicada",
        "schedule": "0 7 * * *",
        "schedules": [{
            "name": "s", "since": "2026-12-01T06:00:00Z", "lastSlot": "2026-12-01T07:00:00Z",
            "next": "2026-12-02T07:00:00Z", "observed": "0 7 * * * UTC",
        }],
        "agentSchedules": [{
            "key": "weekly", "schedule": "0 9 * * 1", "timeZone": "Europe/Berlin", "since": "2026-12-01T07:01:00Z",
        }],
        "agentPausedUntil": "2026-12-03T00:00:00Z",
        "lastScheduleTime": "2026-12-01T07:00:00Z",
        "nextScheduleTime": "2026-12-02T07:00:00Z",
        "lastSuccessfulTime": "2026-12-01T07:01:00Z",
        "lastHandledRunToken": "release-1",
        "lastHandledRunNow": "by-hand",
        "lastCycle": {
            "name": "a-29935140", "triggers": ["Schedule"], "started": "2026-12-01T07:00:00Z", "duration": 60,
            "outcome": "done", "result": "Recovered", "message": "all checked",
        },
        "memory": {
            "store": "file:///store", "snapshot": "4-0-new", "epoch": 4, "size": 3 << 20, "archiveSize": 1 << 20,
            "tables": 2, "persistedAt": "2026-12-01T07:01:00Z", "checkedAt": "2026-12-01T07:01:00Z",
            "seededFrom": "old/clerk 3-1-a", "summary": "3.0 MiB, 2 tables",
        },
        "charter": {
            "source": "Person", "hash": "of the text in force", "base": cicada_contract::text::sha256_hex(""),
        },
        "delivery": {
            "inbox": 1, "outbox": 2, "attempts": 0, "since": "2026-12-01T07:01:00Z", "next": "2026-12-01T07:02:00Z",
        },
        "proposals": [{"id": "charter-1", "kind": "charter", "hash": "1a2b3c4d5e", "summary": "s"}],
        "humanRequests": [{"id": "question-1", "kind": "human", "hash": "1a2b3c4d5e", "summary": "s"}],
        "usage": {"day": "2026-12-01", "tokensToday": 120, "costToday": 0.25, "cyclesToday": 0, "tokensTotal": 120},
    });
    [checks, vec![(worked, expected)], rare_fields()].concat()
}

/// What only failures, missed slots and restores write.
fn rare_fields() -> Vec<(Value, Value)> {
    let mut failed = World::new(
        &json!({
            "executor": {"model": {"provider": "OpenAI", "name": "m"}},
            "store": {"directory": {"path": "/store"}},
            "schedules": [{"name": "s", "cron": "0 7 * * *", "startingDeadlineSeconds": 60}],
        }),
        "2026-12-01T06:00:00Z",
    );
    failed.settle();
    failed.at("2026-12-01T07:00:00Z");
    failed.end(&CycleReport::new(CycleResult::Done));
    failed.at("2026-12-02T07:00:00Z").fail(FailureClass::ExecutorFailed);
    failed.at("2026-12-03T09:00:00Z");
    let seen = plain(&failed.status());
    let mut restored = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    let memory = json!({"restoreFrom": {"snapshot": "3-0-x", "token": "1"}});
    restored.agent.spec.memory = Some(serde_json::from_value(memory).unwrap());
    restored.at("2026-12-01T06:00:00Z").done();
    restored.environment.looks = true;
    restored.agent.spec.store =
        Some(serde_json::from_value(json!({"directory": {"path": "/other"}})).unwrap());
    restored.at("2026-12-01T06:10:00Z");
    restored.look.as_mut().unwrap().found = ReportJob::Ended(Box::new(None));
    restored.settle();
    let memory = plain(&restored.status())["memory"].clone();
    let mut own = with_own_schedule("0 * * * *");
    own.at("2026-12-01T09:00:00Z");
    let own = plain(&own.status());
    vec![
        (seen["unstatedInARow"].clone(), json!(1)),
        (seen["consecutiveFailures"].clone(), json!(1)),
        (seen["lastFailureTime"].clone(), json!("2026-12-02T07:00:00Z")),
        (seen["schedules"][0]["lastMissed"].clone(), json!("2026-12-03T07:00:00Z")),
        (json!([memory["appliedRestore"], memory["looked"]]), json!(["3-0-x/1", "file:///other"])),
        (own["agentSchedules"][0]["lastSlot"].clone(), json!("2026-12-01T09:00:00Z")),
        (own["agentSchedules"][0]["lastMissed"].clone(), json!("2026-12-01T08:00:00Z")),
    ]
}

/// Fields that the tables above name one by one.
const AGENT_FIELDS: [&str; 13] = [
    "activeCycle.name",
    "activeCycle.uid",
    "activeCycle.since",
    "activeCycle.store",
    "unstatedInARow",
    "consecutiveFailures",
    "lastFailureTime",
    "schedules[].lastMissed",
    "memory.appliedRestore",
    "memory.looked",
    "agentSchedules[].lastSlot",
    "agentSchedules[].lastMissed",
    "conditions",
];

fn cycle_statuses() -> Vec<(Value, Value)> {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.settle();
    w.request("a-lead", &json!({}));
    w.request("b-joined", &json!({}));
    w.at("2026-12-01T06:10:00Z");
    w.now = ts("2026-12-01T06:11:00Z");
    w.job.as_mut().unwrap().end = Some(JobEnd {
        at: Some(w.now),
        complete: true,
        message: Some(report().render()),
        exit_code: Some(0),
        image: Some("registry/cycle-job@sha256:0".into()),
        attempts: 1,
        ..JobEnd::default()
    });
    w.settle();
    let status = |w: &World, n: usize| plain(w.cycles[n].status.as_ref().unwrap());
    let reference = |n: usize| {
        let meta = &w.cycles[n].metadata;
        json!({"name": meta.name, "uid": meta.uid})
    };
    let lead = json!({
        "observedGeneration": 1,
        "phase": "Succeeded",
        "reason": "Recovered",
        "job": names::job("a-lead", w.cycles[0].metadata.uid.as_ref().unwrap()),
        "image": "registry/cycle-job@sha256:0",
        "attempts": 2,
        "started": "2026-12-01T06:10:00Z",
        "finished": "2026-12-01T06:11:00Z",
        "snapshotBefore": "3-0-old",
        "snapshotAfter": "4-0-new",
        "outcome": "done",
        "recovered": true,
        "endedBy": "maxModelCalls",
        "tables": ["prices: 600 rows (+40 ~3 -1)"],
        "usage": {"modelCalls": 5, "toolCalls": 7, "tokens": 120, "cost": 0.25, "messages": 2},
        "warnings": ["a warning"],
        "message": "all checked",
        "joined": [reference(1)],
    });
    let mut failed = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    failed.settle();
    failed.at("2026-12-01T07:00:00Z").fail(FailureClass::Timeout);
    vec![
        (status(&w, 0), lead),
        (status(&w, 1)["lead"].clone(), reference(0)),
        (status(&failed, 0)["class"].clone(), json!("timeout")),
    ]
}

fn leaves(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    match schema["properties"].as_object() {
        Some(properties) if path != "conditions[]" => {
            for (name, inner) in properties {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(&below, inner, found);
            }
        }
        _ if path == "conditions" => drop(found.insert(path.to_owned())),
        _ if schema["items"]["properties"].is_object() => {
            leaves(&format!("{path}[]"), &schema["items"], found)
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

/// Paths that a value has.
fn paths(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                paths(&below, inner, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().for_each(|inner| paths(&format!("{path}[]"), inner, found));
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

fn check(kind: usize, statuses: &[(Value, Value)], named: &[&str]) {
    for (seen, expected) in statuses {
        assert_eq!(seen, expected);
    }
    let mut all = BTreeSet::new();
    let definition = &generate::definitions()[kind];
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    leaves("", schema, &mut all);
    let mut shown: BTreeSet<String> = named.iter().map(|&path| path.to_owned()).collect();
    statuses.iter().for_each(|(_, expected)| paths("", expected, &mut shown));
    let unshown: Vec<_> = all.difference(&shown).collect();
    assert!(unshown.is_empty(), "no test shows {unshown:?}");
}

#[test]
fn every_field_of_an_agents_status_says_what_happened() {
    check(0, &agent_statuses(), &AGENT_FIELDS);
}

#[test]
fn every_field_of_a_cycles_status_says_what_happened() {
    check(1, &cycle_statuses(), &["lead.name", "lead.uid", "class", "conditions"]);
}

/// Whoever can write a pod's status can write a report. One that the API server would not take over into a status
/// kept the agent at work for ever.
#[test]
fn whatever_a_report_says_the_status_is_one_that_the_schema_takes() {
    let long = || format!("\u{1b}[2J{}", "\u{e9}".repeat(3000));
    let mut forged = report();
    (forged.message, forged.ended_by) = (long(), Some(long()));
    let memory = forged.memory.as_mut().unwrap();
    (memory.snapshot, memory.before, memory.seeded_from) = (Some(long()), Some(long()), Some(long()));
    (memory.epoch, memory.size, memory.archive_size) = (u64::MAX, u64::MAX, u64::MAX);
    (forged.usage.input_tokens, forged.usage.output_tokens, forged.usage.cost) =
        (u64::MAX, u64::MAX, f64::MAX);
    (forged.pending.inbox, forged.pending.outbox, forged.pending.failed) = (u32::MAX, u32::MAX, u32::MAX);
    forged.tables = vec![TableChange { name: long(), ..forged.tables[0].clone() }; 300];
    let ask = |kind: &str| Ask { id: long(), kind: kind.into(), hash: long(), summary: long() };
    forged.asks = [vec![ask("charter"); 300], vec![ask("human"); 300]].concat();
    forged.warnings = vec![long(); 300];
    forged.agent_schedules =
        vec![AgentSchedule { key: long(), schedule: long(), time_zone: Some(long()) }; 300];
    let charter = forged.charter.as_mut().unwrap();
    (charter.hash, charter.base) = (long(), long());
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    for day in 1..4 {
        w.at(&format!("2026-12-0{day}T07:00:00Z"));
        let message = Some(serde_json::to_string(&forged).unwrap());
        let end = JobEnd {
            at: Some(w.now),
            complete: true,
            message,
            image: Some(long()),
            attempts: 1,
            ..JobEnd::default()
        };
        w.job.as_mut().unwrap().end = Some(end);
        // The world refuses a status that the API server would refuse.
        w.settle();
        assert!(serde_json::to_string(&w.status()).unwrap().len() < 32 * 1024);
    }
}
