//! Situations, and what people and tools see of them: State and Ready by our own rules, Argo CD's health by
//! our scripts in a real Lua, kstatus (and with it Flux) by the real library.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use cicada_contract::report::{CharterReport, CharterSource};

use super::*;
use crate::argo_tests::health;

struct Situation {
    name: &'static str,
    prepare: fn(&mut World),
    state: State,
    ready: &'static str,
    argo: &'static str,
    kstatus: &'static str,
}

/// At seven the agent of each wakes.
const SEVEN: &str = "2026-12-01T07:00:00Z";

fn failed(w: &mut World, class: FailureClass) {
    w.at(SEVEN).fail(class);
}

fn row(
    name: &'static str,
    prepare: fn(&mut World),
    state: State,
    ready: &'static str,
    argo: &'static str,
    kstatus: &'static str,
) -> Situation {
    Situation { name, prepare, state, ready, argo, kstatus }
}

fn situations() -> Vec<Situation> {
    vec![
        row("fresh", |_| {}, State::Idle, "True/Ready", "Healthy", "Current"),
        row(
            "running",
            |w| {
                w.at(SEVEN);
            },
            State::Running,
            "True/Ready",
            "Healthy",
            "Current",
        ),
        row("succeeded", |w| w.at(SEVEN).done(), State::Idle, "True/Ready", "Healthy", "Current"),
        row(
            "failed",
            |w| failed(w, FailureClass::ExecutorFailed),
            State::BackingOff,
            "True/BackingOff",
            "Healthy",
            "Current",
        ),
        row(
            "fenced",
            |w| failed(w, FailureClass::PersistFenced),
            State::Idle,
            "True/Ready",
            "Healthy",
            "Current",
        ),
        row(
            "paused",
            |w| {
                w.agent.spec.pause_after_failures = Some(1);
                failed(w, FailureClass::Timeout);
            },
            State::Paused,
            "True/Paused",
            "Healthy",
            "Current",
        ),
        row(
            "stalled by a cycle",
            |w| failed(w, FailureClass::StoreConflict),
            State::Stalled,
            "False/StoreConflict",
            "Degraded",
            "Failed",
        ),
        row(
            "stalled by the manifest",
            |w| {
                w.agent.spec.schedules[0].cron = Some("x".into());
                w.settle();
            },
            State::Stalled,
            "False/UnparseableSchedule",
            "Degraded",
            "Failed",
        ),
        // velero#8575, KEDA#7792: what was wrong was still told after it was mended.
        row(
            "mended",
            |w| {
                let good = w.agent.spec.schedules[0].cron.replace("x".into());
                w.settle();
                w.agent.spec.schedules[0].cron = good;
                w.settle();
            },
            State::Idle,
            "True/Ready",
            "Healthy",
            "Current",
        ),
        row(
            "no store",
            |w| {
                w.agent.spec.store = None;
                w.settle();
            },
            State::Stalled,
            "False/StoreNotConfigured",
            "Degraded",
            "Failed",
        ),
        row(
            "store moved",
            |w| {
                w.at(SEVEN).done();
                let other = json!({"directory": {"path": "/other"}});
                w.agent.spec.store = Some(serde_json::from_value(other).unwrap());
                w.settle();
            },
            State::Stalled,
            "False/StoreMoved",
            "Degraded",
            "Failed",
        ),
        row(
            "another charter in force",
            |w| {
                let sha256 = cicada_contract::text::sha256_hex;
                w.at(SEVEN);
                let mut report = CycleReport::new(CycleResult::Done);
                let (hash, base) = (sha256("approved"), sha256(""));
                report.charter = Some(CharterReport { source: CharterSource::Person, hash, base });
                w.end(&report);
                assert!(conditions::is_true(&w.status().conditions, "CharterDiverged"));
            },
            State::Idle,
            "True/Ready",
            "Healthy",
            "Current",
        ),
        row(
            "suspended",
            |w| {
                w.agent.spec.suspend = Some(true);
                w.settle();
            },
            State::Suspended,
            "True/Suspended",
            "Suspended",
            "Current",
        ),
        row(
            "held",
            |w| {
                w.environment.hold = Some("release".into());
                w.settle();
            },
            State::Held,
            "True/Held",
            "Suspended",
            "Current",
        ),
        row(
            "queued",
            |w| {
                w.environment.full = true;
                w.at(SEVEN);
            },
            State::Queued,
            "True/Ready",
            "Healthy",
            "Current",
        ),
        row(
            "its pod has no place",
            |w| {
                w.at(SEVEN);
                let waiting = Waiting { reason: "Unschedulable".into(), message: "0/1 nodes".into() };
                w.job.as_mut().unwrap().waiting = Some(waiting);
                w.at("2026-12-01T07:01:00Z");
            },
            State::Queued,
            "True/Ready",
            "Healthy",
            "Current",
        ),
        row(
            "never started",
            |w| {
                w.at(SEVEN).at("2026-12-01T07:15:00Z");
            },
            State::BackingOff,
            "True/NotStarted",
            "Healthy",
            "Current",
        ),
        row(
            "over budget",
            |w| {
                w.agent.spec.limits = Some(serde_json::from_value(json!({"costPerDay": 1})).unwrap());
                w.at(SEVEN);
                let mut report = CycleReport::new(CycleResult::Done);
                report.usage.cost = 1.5;
                w.end(&report);
            },
            State::OverBudget,
            "True/OverBudget",
            "Healthy",
            "Current",
        ),
        row(
            "an identity that the own image would share",
            |w| {
                let container = json!({"container": {"image": "i", "command": ["c"]}});
                w.agent.spec.executor = serde_json::from_value(container).unwrap();
                let store = json!({"s3": {"bucket": "b", "endpoint": "http://s3"}});
                w.agent.spec.store = serde_json::from_value(store).unwrap();
                w.settle();
            },
            State::Stalled,
            "False/NotSupported",
            "Degraded",
            "Failed",
        ),
        row(
            "edited",
            |w| w.agent.metadata.generation = Some(2),
            State::Idle,
            "True/Ready",
            "Progressing",
            "InProgress",
        ),
    ]
}

fn object(kind: &str, object: &impl serde::Serialize) -> serde_json::Value {
    let mut value = serde_json::to_value(object).unwrap();
    value["apiVersion"] = json!("cicada.dev/v1alpha1");
    value["kind"] = json!(kind);
    value
}

fn seen(situation: &Situation) -> World {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    (situation.prepare)(&mut w);
    w
}

#[test]
fn every_situation_looks_as_it_is() {
    for situation in situations() {
        let (name, w) = (situation.name, seen(&situation));
        let status = w.status();
        let condition = conditions::find(&status.conditions, "Ready").unwrap();
        assert_eq!(w.state(), situation.state, "{name}");
        assert_eq!(format!("{}/{}", condition.status, condition.reason), situation.ready, "{name}");
        let agent = object("PersistentAgent", &w.agent);
        assert_eq!(health("persistentagent.lua", &agent).0, situation.argo, "{name}");
        for condition in &status.conditions {
            assert_eq!(
                condition.observed_generation, status.observed_generation,
                "{name}: {} (agent-sandbox#1317)",
                condition.type_
            );
        }
        assert!(serde_json::to_string(&status).unwrap().len() < 32 * 1024);
    }
}

/// What kstatus makes of objects: by the library itself, in a program of `tests/cluster/tools`.
fn kstatus(objects: &[serde_json::Value]) -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let tools = std::env::var("CICADA_TOOLS").unwrap_or_else(|_| format!("{root}/target/tools/bin"));
    let mut child = Command::new(format!("{tools}/kstatus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("target/tools/bin/kstatus, which tests/cluster/tools builds");
    let lines: String = objects.iter().map(|o| format!("{o}\n")).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs target/tools/bin/kstatus: tests/run"]
fn flux_waits_for_what_is_not_looked_at_and_fails_on_a_stall() {
    let mut objects = vec![
        json!({"apiVersion": "cicada.dev/v1alpha1", "kind": "PersistentAgent",
            "metadata": {"name": "a", "generation": 1}, "status": {"observedGeneration": -1}}),
        json!({"apiVersion": "cicada.dev/v1alpha1", "kind": "AgentCycle",
            "metadata": {"name": "c", "generation": 1}, "status": {"observedGeneration": -1}}),
    ];
    let mut expected = vec![("agent not looked at", "InProgress"), ("cycle not looked at", "InProgress")];
    for situation in situations() {
        objects.push(object("PersistentAgent", &seen(&situation).agent));
        expected.push((situation.name, situation.kstatus));
    }
    let mut cycle = |name, kstatus, w: &World| {
        let mut cycle = object("AgentCycle", w.cycles.last().unwrap());
        cycle["metadata"]["generation"] = json!(1);
        objects.push(cycle);
        expected.push((name, kstatus));
    };
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    cycle("running cycle", "InProgress", w.at(SEVEN));
    w.request("waits", &json!({}));
    w.settle();
    cycle("waiting cycle", "InProgress", &w);
    w.done();
    w.done();
    cycle("succeeded cycle", "Current", &w);
    w.at("2026-12-02T07:00:00Z").fail(FailureClass::ExecutorFailed);
    cycle("failed cycle", "Failed", &w);
    let found = kstatus(&objects);
    assert_eq!(found.len(), expected.len());
    for ((name, expected), found) in expected.iter().zip(&found) {
        assert_eq!(found, expected, "{name}");
    }
}
