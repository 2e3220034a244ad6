//! A small world: one agent, its cycles and Jobs, and an operator that decides and acts until all is quiet.

use cicada_contract::{
    CycleReport, FailureClass,
    report::{CycleResult, MemoryReport, Outcome},
};
use cicada_crds::{AgentCycle, PersistentAgent};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::{
    conditions,
    observed::{Environment, JobView, LookView, ReportJob, Waiting},
    result::JobEnd,
    spec::OperatorDefaults,
};

#[path = "memory_tests.rs"]
mod memory;
#[path = "situation_tests.rs"]
mod situations;
#[path = "status_tests.rs"]
mod status;

fn ts(text: &str) -> Timestamp {
    text.parse().unwrap()
}

struct World {
    agent: PersistentAgent,
    cycles: Vec<AgentCycle>,
    job: Option<JobView>,
    delete_job: Option<JobView>,
    delete_refused: Option<String>,
    look: Option<LookView>,
    environment: Environment,
    defaults: OperatorDefaults,
    now: Timestamp,
    serial: u32,
    /// Everything that was done, in words.
    log: Vec<String>,
    jobs_made: Vec<String>,
    status_writes: u32,
    look_again: Timestamp,
}

impl World {
    fn new(spec: &serde_json::Value, now: &str) -> Self {
        let mut agent: PersistentAgent =
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec}))
                .unwrap();
        agent.metadata.uid = Some("agent-uid".into());
        agent.metadata.generation = Some(1);
        agent.metadata.creation_timestamp = Some(Time(ts(now)));
        Self {
            agent,
            cycles: vec![],
            job: None,
            delete_job: None,
            delete_refused: None,
            look: None,
            environment: Environment::default(),
            defaults: OperatorDefaults::default(),
            now: ts(now),
            serial: 0,
            log: vec![],
            jobs_made: vec![],
            status_writes: 0,
            look_again: ts(now),
        }
    }

    fn sql(schedule: &str, now: &str) -> Self {
        Self::new(
            &json!({
                "executor": {"sql": {"inline": "SELECT 1"}},
                "store": {"directory": {"path": "/store"}},
                "schedules": [{"name": "s", "cron": schedule}],
            }),
            now,
        )
    }

    fn status(&self) -> PersistentAgentStatus {
        self.agent.status.clone().unwrap_or_default()
    }

    fn state(&self) -> State {
        self.status().state.unwrap()
    }

    fn request(&mut self, name: &str, spec: &serde_json::Value) {
        let mut value = json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec});
        value["spec"]["agentRef"] = json!({"name": "a"});
        let mut cycle: AgentCycle = serde_json::from_value(value).unwrap();
        self.serial += 1;
        cycle.metadata.uid = Some(format!("uid-{}", self.serial));
        cycle.metadata.creation_timestamp = Some(Time(self.now));
        self.cycles.push(cycle);
    }

    fn views(&self) -> Vec<CycleView> {
        self.cycles.iter().map(|c| CycleView::new(c, "agent-uid")).collect()
    }

    fn decide(&self) -> Plan {
        let views = self.views();
        let seen = Observed {
            agent: &self.agent,
            cycles: &views,
            job: self.job.as_ref(),
            job_vanished: false,
            delete_job: self.delete_job.as_ref(),
            delete_refused: self.delete_refused.clone(),
            look: self.look.as_ref(),
            environment: &self.environment,
            defaults: &self.defaults,
        };
        decide(&seen, self.now)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::CreateCycle { name, spec } => {
                self.log.push(format!("create {name}"));
                if self.cycles.iter().any(|c| c.metadata.name.as_deref() == Some(&name)) {
                    return;
                }
                self.request(&name, &serde_json::to_value(&*spec).unwrap());
                let owner = json!([{"apiVersion": "v", "kind": "PersistentAgent", "name": "a", "uid": "agent-uid", "controller": true}]);
                self.cycles.last_mut().unwrap().metadata.owner_references =
                    Some(serde_json::from_value(owner).unwrap());
            }
            Action::StartJob { lead, joined } => {
                let active = self.status().active_cycle.expect("a Job is started only for the claimed cycle");
                assert_eq!(active.uid, lead.uid);
                assert!(self.job.as_ref().is_none_or(|j| j.end.is_some()), "two Jobs at once");
                let names: Vec<_> = joined.iter().map(|j| j.name.clone()).collect();
                self.log.push(format!("start {} with {names:?}", lead.name));
                self.jobs_made.push(lead.name.clone());
                self.job = Some(JobView {
                    name: "job".into(),
                    uid: "job-uid".into(),
                    created: self.now,
                    ..JobView::default()
                });
            }
            Action::StartLook => {
                assert!(self.look.is_none(), "two looks at once");
                self.log.push("look".into());
                self.look = Some(LookView {
                    name: "look".into(),
                    uid: "look-uid".into(),
                    deleting: false,
                    found: ReportJob::Running,
                });
            }
            Action::StartReportJob { cycle } => self.log.push(format!("ask {}", cycle.name)),
            Action::SetCycle { cycle, status } => {
                let found =
                    self.cycles.iter_mut().find(|c| c.metadata.uid.as_ref() == Some(&cycle.uid)).unwrap();
                let before = found.status.as_ref().and_then(|s| s.phase);
                assert!(!before.is_some_and(Phase::is_terminal), "a terminal cycle never changes");
                found.status = Some(*status);
            }
            Action::DeleteCycle { cycle } => {
                self.log.push(format!("delete {}", cycle.name));
                self.cycles.retain(|c| c.metadata.uid.as_ref() != Some(&cycle.uid));
            }
            Action::DeleteJob { name, .. } if name == "look" => self.look = None,
            Action::DeleteJob { uid, .. } => {
                self.log.push("delete job".into());
                let gone = if uid == "delete-uid" { &mut self.delete_job } else { &mut self.job };
                *gone = None;
            }
            Action::SetFinalizer { present } => {
                self.agent.metadata.finalizers = present.then(|| vec![deletion::FINALIZER.to_owned()]);
            }
            Action::StartDeleteJob => self.log.push("start delete job".into()),
            Action::Abandon { memory, why } => {
                self.agent.metadata.finalizers = None;
                self.log.push(format!("abandon {memory}: {why}"));
            }
        }
    }

    /// Decides and acts until there is nothing to do.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 12, "does not settle: {:?}", self.log);
            let plan = self.decide();
            let (again, defer) = (plan.again, plan.defer_status);
            self.look_again = plan.look_again;
            let told = plan.notes.iter().filter(|n| n.reason == "DeliveryFailed");
            self.log.extend(told.map(|n| format!("note {} {}", n.reason, n.count)));
            for action in plan.actions {
                self.act(action);
            }
            if !defer && self.status() != plan.status {
                if plan.status.active_cycle.is_none() {
                    self.job = None;
                }
                self.agent.status = Some(plan.status);
                self.status_writes += 1;
            }
            if !again {
                break;
            }
        }
    }

    fn at(&mut self, now: &str) -> &mut Self {
        self.now = ts(now);
        self.settle();
        self
    }

    fn end(&mut self, report: &CycleReport) {
        let end = JobEnd {
            at: Some(self.now),
            complete: report.result != CycleResult::Failed,
            message: Some(report.render()),
            exit_code: Some(report.exit_code().into()),
            attempts: 1,
            ..JobEnd::default()
        };
        self.job.as_mut().expect("a Job is at work").end = Some(end);
        self.settle();
    }

    fn done(&mut self) {
        let mut report = CycleReport::new(CycleResult::Done);
        report.outcome = Outcome::Done;
        let epoch = self.status().memory.and_then(|m| m.epoch).unwrap_or(0) + 1;
        report.memory = Some(MemoryReport {
            snapshot: Some(format!("{epoch}-0-x")),
            epoch,
            size: 2 << 20,
            tables: Some(3),
            ..MemoryReport::default()
        });
        self.end(&report);
    }

    fn fail(&mut self, class: FailureClass) {
        self.end(&CycleReport::failed(class, "it broke"));
    }
}

#[test]
fn a_slot_becomes_a_cycle_a_job_and_a_result() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    assert_eq!((w.state(), w.look_again), (State::Idle, ts("2026-12-01T07:00:00Z")));
    let idle_writes = w.status_writes;
    w.at("2026-12-01T07:00:00Z");
    assert_eq!(w.state(), State::Running);
    let slot = crate::names::slot_cycle("a", ts("2026-12-01T07:00:00Z"));
    assert_eq!(w.log, [format!("create {slot}"), format!("start {slot} with []")]);
    w.at("2026-12-01T07:02:00Z").done();
    assert_eq!(w.state(), State::Idle);
    assert_eq!(w.status_writes - idle_writes, 2, "the claim and the end");
    let status = w.status();
    assert_eq!(status.last_successful_time, Some(ts("2026-12-01T07:02:00Z")));
    assert_eq!(status.memory.unwrap().summary.unwrap(), "2.0 MiB, 3 tables");
    assert_eq!(status.last_cycle.unwrap().duration, Some(120));
    let cycle = w.cycles[0].status.clone().unwrap();
    assert_eq!((cycle.phase, cycle.outcome.as_deref()), (Some(Phase::Succeeded), Some("done")));
    assert!(conditions::is_true(&cycle.conditions, "Complete"));
}

#[test]
fn an_idle_agent_is_never_written() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    let writes = w.status_writes;
    for minute in 1..60 {
        w.at(&format!("2026-12-01T08:{minute:02}:00Z"));
    }
    assert_eq!(w.status_writes, writes);
}

/// cloudnative-pg#10562: the child was created, the status write was lost, and the schedule was dead.
#[test]
fn a_lost_status_write_starts_nothing_twice() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z").done();
    // The agent's status is as it was before the slot; cycle and Job are there.
    let mut status = w.status();
    status.schedules[0].last_slot = None;
    (status.last_cycle, status.active_cycle) = (None, None);
    w.agent.status = Some(status);
    w.at("2026-12-01T07:03:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    assert_eq!(w.status().schedules[0].last_slot, Some(ts("2026-12-01T07:00:00Z")));
}

/// agent-sandbox#784: an object of the predicted name that somebody else made is not adopted.
#[test]
fn a_foreign_cycle_in_a_slots_place_skips_the_slot() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    w.request(&crate::names::slot_cycle("a", ts("2026-12-01T07:00:00Z")), &json!({}));
    w.cycles[0].status =
        Some(AgentCycleStatus { phase: Some(Phase::Succeeded), ..AgentCycleStatus::default() });
    w.at("2026-12-01T07:00:00Z").at("2026-12-01T07:01:00Z");
    assert!(w.jobs_made.is_empty());
    assert_eq!(w.status().schedules[0].last_slot, Some(ts("2026-12-01T07:00:00Z")));
}

#[test]
fn all_schedules_that_are_due_start_one_cycle() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    let more = json!({"name": "t", "cron": "*/30 * * * *"});
    w.agent.spec.schedules.push(serde_json::from_value(more).unwrap());
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    assert_eq!(w.cycles[0].spec.triggers.len(), 2);
}

#[test]
fn requests_by_annotation_token_and_object_run_once_each() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    w.agent.metadata.annotations = Some([(RUN_NOW.to_owned(), "x".to_owned())].into());
    w.at("2026-12-01T08:01:00Z").done();
    w.at("2026-12-01T08:02:00Z");
    assert_eq!((w.jobs_made.len(), w.status().last_handled_run_now.as_deref()), (1, Some("x")));
    w.agent.spec.run_token = Some("x".into());
    w.at("2026-12-01T08:03:00Z").done();
    assert_eq!((w.jobs_made.len(), w.status().last_handled_run_token.as_deref()), (2, Some("x")));
    w.request("mine", &json!({}));
    w.at("2026-12-01T08:04:00Z").done();
    w.at("2026-12-01T08:05:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    assert_eq!(w.jobs_made[2], "mine");
}

#[test]
fn what_waits_while_a_cycle_is_at_work_joins_the_next() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    w.request("one", &json!({}));
    w.at("2026-12-01T08:01:00Z");
    w.request("two", &json!({"message": {"body": "hello"}}));
    w.request("three", &json!({}));
    w.at("2026-12-01T08:02:00Z");
    assert_eq!(w.jobs_made, ["one"]);
    w.done();
    assert_eq!(w.jobs_made, ["one", "three"], "oldest first, then by name");
    assert!(w.log.contains(&"start three with [\"two\"]".to_owned()));
    w.done();
    let two =
        w.cycles.iter().find(|c| c.metadata.name.as_deref() == Some("two")).unwrap().status.clone().unwrap();
    assert_eq!((two.phase, two.lead.unwrap().name.as_str()), (Some(Phase::Succeeded), "three"));
    assert_eq!(w.jobs_made.len(), 2);
}

#[test]
fn a_failure_backs_off_then_pauses_and_a_request_resumes() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.agent.spec.pause_after_failures = Some(3);
    w.at("2026-12-01T08:00:30Z").at("2026-12-01T08:01:00Z").fail(FailureClass::ExecutorFailed);
    assert_eq!(w.state(), State::BackingOff);
    assert!(conditions::is_true(&w.status().conditions, "LastCycleFailed"));
    assert!(conditions::is_true(&w.status().conditions, "Ready"), "a failed cycle never changes Ready");
    w.at("2026-12-01T08:01:30Z");
    assert_eq!(w.jobs_made.len(), 1);
    w.at("2026-12-01T08:02:05Z").fail(FailureClass::ExecutorFailed);
    w.at("2026-12-01T08:04:30Z").fail(FailureClass::Timeout);
    assert_eq!(w.state(), State::Paused);
    w.at("2026-12-01T12:00:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    w.request("message", &json!({"triggers": [{"type": "Message"}]}));
    w.at("2026-12-01T12:01:00Z");
    assert_eq!(w.jobs_made.len(), 3, "a message does not resume");
    w.request("person", &json!({}));
    w.at("2026-12-01T12:02:00Z").done();
    assert_eq!(w.jobs_made[3], "person");
    assert!(w.log.contains(&"start person with [\"message\"]".to_owned()));
    assert_eq!(w.status().consecutive_failures, None);
}

#[test]
fn an_edit_of_the_spec_resumes() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.agent.spec.pause_after_failures = Some(1);
    w.at("2026-12-01T08:00:30Z").at("2026-12-01T08:01:00Z").fail(FailureClass::ExecutorFailed);
    assert_eq!(w.state(), State::Paused);
    w.agent.metadata.generation = Some(2);
    w.at("2026-12-01T09:00:30Z");
    assert_eq!(w.jobs_made.len(), 2);
}

#[test]
fn neutral_ends_never_count() {
    for class in [FailureClass::PersistFenced, FailureClass::Disrupted] {
        let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
        w.at("2026-12-01T08:00:30Z").at("2026-12-01T08:01:00Z").fail(class);
        assert_eq!(w.status().consecutive_failures, None, "{class}");
    }
}

#[test]
fn a_stall_stands_until_a_person_acts() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:30Z").at("2026-12-01T08:01:00Z").fail(FailureClass::MemoryMissing);
    assert_eq!(w.state(), State::Stalled);
    let ready = conditions::find(&w.status().conditions, "Ready").unwrap().clone();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "MemoryMissing"));
    w.at("2026-12-01T10:00:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    w.request("person", &json!({}));
    w.at("2026-12-01T10:01:00Z").done();
    assert_ne!(w.state(), State::Stalled);
    assert!(conditions::find(&w.status().conditions, "Stalled").is_none());
}

/// The operator reads no Secret: the next slot is how it learns that one was created.
#[test]
fn a_missing_secret_is_probed_again() {
    let mut w = World::sql("0 * * * *", "2026-12-01T07:30:00Z");
    w.at("2026-12-01T07:30:00Z").at("2026-12-01T08:00:00Z").fail(FailureClass::SecretMissing);
    assert_eq!(w.state(), State::Stalled);
    w.at("2026-12-01T09:00:00Z").done();
    assert_eq!((w.jobs_made.len(), w.state()), (2, State::Idle));
}

#[test]
fn a_broken_manifest_stalls_with_its_words() {
    let cases = [
        (json!({"name": "s", "cron": "0 0 7 * * *"}), "UnparseableSchedule", "6-field cron expression"),
        (json!({"name": "s", "cron": "0 0 31 2 *"}), "ScheduleNeverFires", "never-firing cron expression"),
        (
            json!({"name": "s", "cron": "0 7 * * *", "timeZone": "Mars/Olympus"}),
            "UnknownTimeZone",
            "unknown time zone",
        ),
    ];
    for (schedule, reason, words) in cases {
        let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
        w.agent.spec.schedules = vec![serde_json::from_value(schedule).unwrap()];
        w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
        let stalled = conditions::find(&w.status().conditions, "Stalled").unwrap().clone();
        assert_eq!(stalled.reason, reason);
        assert!(stalled.message.starts_with(words), "{}", stalled.message);
        assert_eq!((w.state(), w.jobs_made.len()), (State::Stalled, 0));
        // velero#8575: the words go with the fault.
        w.agent.spec.schedules =
            vec![serde_json::from_value(json!({"name": "s", "cron": "0 9 * * *"})).unwrap()];
        w.agent.metadata.generation = Some(2);
        w.at("2026-12-01T07:10:00Z");
        assert!(conditions::find(&w.status().conditions, "Stalled").is_none());
        assert_eq!(w.state(), State::Idle);
    }
}

#[test]
fn suspended_and_held_agents_start_nothing_but_are_ready() {
    for hold in [false, true] {
        let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
        w.at("2026-12-01T08:00:30Z");
        if hold {
            w.environment.hold = Some("release".into());
        } else {
            w.agent.spec.suspend = Some(true);
        }
        w.request("person", &json!({}));
        w.at("2026-12-01T08:10:00Z");
        assert!(w.jobs_made.is_empty());
        assert!(conditions::is_true(&w.status().conditions, "Ready"));
        assert_eq!(
            w.cycles[0].status.as_ref().unwrap().reason.as_deref(),
            Some(if hold { "Held" } else { "Suspended" })
        );
        w.environment.hold = None;
        w.agent.spec.suspend = None;
        w.at("2026-12-01T08:10:30Z");
        assert!(w.jobs_made.len() == 1);
    }
}

/// KEDA#5656, #4041: an edit or a restart while a child ran deleted it.
#[test]
fn neither_edit_nor_suspension_touches_a_running_cycle() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    w.agent.spec.charter = Some("new".into());
    w.agent.spec.suspend = Some(true);
    w.agent.metadata.generation = Some(2);
    w.at("2026-12-01T07:01:00Z");
    assert_eq!(w.state(), State::Running);
    w.done();
    assert_eq!((w.state(), w.jobs_made.len()), (State::Suspended, 1));
}

#[test]
fn deleting_a_running_cycle_cancels_it() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    w.cycles.clear();
    w.at("2026-12-01T07:01:00Z");
    assert!(w.log.contains(&"delete job".to_owned()));
    w.at("2026-12-01T07:02:00Z");
    assert_eq!(
        (w.state(), w.status().last_cycle.unwrap().result.as_deref()),
        (State::Idle, Some("Canceled"))
    );
    assert_eq!(w.status().consecutive_failures, None);
}

/// cloudnative-pg#10859: a run whose node was gone was active for ever.
#[test]
fn a_lost_node_frees_the_agent() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let job = w.job.as_mut().unwrap();
    (job.started, job.ending_since) = (true, Some(ts("2026-12-01T07:05:00Z")));
    w.at("2026-12-01T07:06:00Z");
    assert_eq!(w.state(), State::Running);
    w.at("2026-12-01T07:07:30Z");
    assert_eq!(w.cycles[0].status.as_ref().unwrap().reason.as_deref(), Some("NodeLost"));
    assert_eq!(w.state(), State::Idle);
    assert!(w.log.contains(&"delete job".to_owned()));
}

#[test]
fn a_pod_that_does_not_start_is_explained_then_tried_again() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    assert_eq!(w.look_again, ts("2026-12-01T07:01:00Z"));
    w.job.as_mut().unwrap().waiting =
        Some(Waiting { reason: "ImagePullBackOff".into(), message: "no such image".into() });
    w.at("2026-12-01T07:01:00Z");
    let cycle = w.cycles[0].status.clone().unwrap();
    assert_eq!((cycle.phase, cycle.reason.as_deref()), (Some(Phase::Pending), Some("ImagePullBackOff")));
    w.at("2026-12-01T07:15:00Z");
    assert_eq!(w.state(), State::BackingOff);
    assert_eq!(w.status().consecutive_failures, None);
    w.at("2026-12-01T07:20:01Z");
    assert_eq!(w.jobs_made.len(), 2, "the same cycle again");
    assert_eq!(w.jobs_made[0], w.jobs_made[1]);
}

#[test]
fn a_lost_report_is_asked_for() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    w.job.as_mut().unwrap().end =
        Some(JobEnd { exit_code: Some(137), attempts: 1, at: Some(w.now), ..JobEnd::default() });
    w.at("2026-12-01T07:01:00Z");
    assert!(w.log.last().unwrap().starts_with("ask "));
    w.job.as_mut().unwrap().report_job =
        Some(ReportJob::Ended(Box::new(Some(CycleReport::new(CycleResult::Done)))));
    w.at("2026-12-01T07:02:00Z");
    assert_eq!(w.cycles[0].status.as_ref().unwrap().reason.as_deref(), Some("Recovered"));
}

#[test]
fn history_limits_keep_the_newest_and_never_touch_what_others_made() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.agent.spec.successful_cycles_history_limit = Some(2);
    w.at("2026-12-01T08:00:30Z");
    w.request("mine", &json!({}));
    w.request("short", &json!({"ttlSecondsAfterFinished": 60}));
    for minute in 1..8 {
        w.at(&format!("2026-12-01T08:{minute:02}:00Z")).done();
    }
    let names: Vec<_> = w.cycles.iter().map(|c| c.metadata.name.clone().unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains(&"mine".to_owned()) && !names.contains(&"short".to_owned()));
}

#[test]
fn the_budget_of_the_day_holds_until_midnight_of_its_zone() {
    let mut w = World::sql("0 * * * *", "2026-12-01T08:30:00Z");
    w.agent.spec.limits =
        Some(serde_json::from_value(json!({"tokensPerDay": 100, "timeZone": "Asia/Tokyo"})).unwrap());
    w.at("2026-12-01T08:30:00Z").at("2026-12-01T09:00:00Z");
    let mut report = CycleReport::new(CycleResult::Done);
    report.usage.input_tokens = 120;
    w.end(&report);
    assert_eq!(w.state(), State::OverBudget);
    w.at("2026-12-01T14:00:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    assert_eq!(w.look_again, ts("2026-12-01T15:00:00Z"), "midnight in Tokyo");
    w.at("2026-12-01T15:00:00Z");
    assert_eq!(w.jobs_made.len(), 2);
}

#[test]
fn what_is_undelivered_gets_delivery_cycles() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let mut report = CycleReport::new(CycleResult::Done);
    report.pending.outbox = 2;
    w.end(&report);
    assert_eq!(w.look_again, ts("2026-12-01T07:01:00Z"));
    w.at("2026-12-01T07:01:00Z");
    assert_eq!(w.jobs_made.len(), 2);
    w.end(&report);
    assert_eq!(w.status().delivery.unwrap().next, Some(ts("2026-12-01T07:06:00Z")));
    w.at("2026-12-01T07:06:00Z").done();
    assert_eq!((w.status().delivery, w.jobs_made.len()), (None, 3));
    // One that failed before it could say what is left is tried again later.
    w.at("2026-12-02T07:00:00Z").end(&report);
    w.at("2026-12-02T07:01:00Z").fail(FailureClass::StoreUnavailable);
    assert_eq!(w.status().delivery.unwrap().next, Some(ts("2026-12-02T07:06:00Z")));
}

#[test]
fn a_full_operator_queues() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:30Z");
    w.environment.full = true;
    for minute in 1..6 {
        w.at(&format!("2026-12-01T08:{minute:02}:00Z"));
    }
    assert_eq!((w.state(), w.cycles.len()), (State::Queued, 1), "slots don't pile up");
    assert_eq!(w.cycles[0].status.as_ref().unwrap().reason.as_deref(), Some("WaitingForCapacity"));
    assert_eq!(w.look_again, ts("2026-12-01T08:05:05Z"), "nobody tells when a place is free");
    w.environment.full = false;
    w.at("2026-12-01T08:06:00Z");
    assert_eq!(w.jobs_made.len(), 1);
}

#[test]
fn the_third_unstated_cycle_in_a_row_is_a_failure() {
    let mut w = World::sql("0 * * * *", "2026-12-01T07:30:00Z");
    let model = json!({"model": {"provider": "OpenAI", "name": "m"}});
    w.agent.spec.executor = serde_json::from_value(model).unwrap();
    w.at("2026-12-01T07:30:00Z");
    for hour in 8..11 {
        w.at(&format!("2026-12-01T{hour:02}:00:00Z"));
        w.end(&CycleReport::new(CycleResult::Done));
    }
    assert_eq!(w.status().last_cycle.unwrap().result.as_deref(), Some("Unstated"));
    w.at("2026-12-01T11:00:00Z").done();
    assert_eq!(w.status().unstated_in_a_row, None);
}

fn with_own_schedule(schedule: &str) -> World {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    let own = json!({"key": "later", "schedule": schedule});
    report.agent_schedules = vec![serde_json::from_value(own).unwrap()];
    w.end(&report);
    w
}

#[test]
fn a_schedule_of_the_agents_own_wakes_it_within_its_limits() {
    let mut w = with_own_schedule("*/10 * * * *");
    w.at("2026-12-01T07:10:00Z");
    assert_eq!(w.jobs_made.len(), 2);
    assert_eq!(w.cycles[1].spec.triggers[0].schedule.as_deref(), Some("agent/later"));
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.agent_schedules =
        vec![serde_json::from_value(json!({"key": "later", "schedule": "*/10 * * * *"})).unwrap()];
    w.end(&report);
    w.at("2026-12-01T07:20:00Z").at("2026-12-01T07:30:00Z");
    assert_eq!(w.jobs_made.len(), 2, "minInterval is half an hour");
    w.at("2026-12-01T07:40:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    w.end(&report);
    w.agent.spec.self_management =
        Some(serde_json::from_value(json!({"schedules": {"allow": false}})).unwrap());
    w.at("2026-12-01T09:00:00Z");
    assert_eq!(w.jobs_made.len(), 3);
}

#[test]
fn a_one_off_of_the_agents_own_runs_once() {
    let mut w = with_own_schedule("2026-12-01T09:00:00Z");
    assert_eq!(w.look_again, ts("2026-12-01T08:00:00Z"), "an hour at most");
    w.at("2026-12-01T09:00:00Z").done();
    w.at("2026-12-01T10:00:00Z");
    assert_eq!(w.jobs_made.len(), 2);
}

#[test]
fn what_an_agent_causes_itself_is_rationed_by_day() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.agent.spec.limits = Some(serde_json::from_value(json!({"cyclesPerDay": 2})).unwrap());
    w.at("2026-12-01T08:00:00Z");
    for n in 0..3 {
        w.request(&format!("m{n}"), &json!({"triggers": [{"type": "Message"}]}));
        w.at(&format!("2026-12-01T09:0{n}:00Z"));
        if n < 2 {
            w.done();
        }
    }
    assert_eq!(w.jobs_made.len(), 2);
    assert_eq!(w.cycles[2].status.as_ref().unwrap().reason.as_deref(), Some("CyclesPerDay"));
    w.request("person", &json!({}));
    w.at("2026-12-01T10:00:00Z");
    assert_eq!(w.jobs_made[2], "person", "a person's request is not rationed");
}

/// cloudnative-pg#10622: the winner among those that wait was chosen by name, and pushed a running one aside.
#[test]
fn the_oldest_is_next_whatever_its_name_and_pushes_nobody_aside() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    w.request("z-first", &json!({}));
    w.at("2026-12-01T08:00:01Z");
    w.request("m-second", &json!({}));
    w.at("2026-12-01T08:00:02Z");
    w.request("a-third", &json!({}));
    w.at("2026-12-01T08:00:03Z");
    assert_eq!(w.jobs_made, ["z-first"]);
    w.done();
    assert_eq!(w.jobs_made, ["z-first", "m-second"], "the third joins it");
}

/// cloudnative-pg#11056: a gate ran again on a finished object and set it back. In any order of events a
/// cycle goes Pending, Running, ended, and there is never more than one Job at work (World checks both).
#[test]
fn in_any_order_of_events_cycles_only_go_forward() {
    use proptest::prelude::*;
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&proptest::collection::vec(0..12u8, 1..60), |events| {
            let mut w = World::sql("*/7 * * * *", "2026-12-01T06:00:00Z");
            w.settle();
            for event in events {
                w.now += SignedDuration::from_secs(97);
                match event {
                    0 => w.request(&format!("r{}", w.serial), &json!({})),
                    1 => w.request(&format!("m{}", w.serial), &json!({"triggers": [{"type": "Message"}]})),
                    2 => w.agent.spec.suspend = Some(w.agent.spec.suspend != Some(true)),
                    3 => w.environment.full = !w.environment.full,
                    4 => w.agent.metadata.generation = w.agent.metadata.generation.map(|g| g + 1),
                    5 => {
                        w.agent.metadata.annotations =
                            Some([(RUN_NOW.to_owned(), w.serial.to_string())].into());
                    }
                    6 if w.job.as_ref().is_some_and(|j| j.end.is_none()) => w.done(),
                    7 if w.job.as_ref().is_some_and(|j| j.end.is_none()) => {
                        w.fail(FailureClass::ExecutorFailed);
                    }
                    8 if w.job.as_ref().is_some_and(|j| j.end.is_none()) => {
                        w.fail(FailureClass::SecretMissing);
                    }
                    9 => w.now -= SignedDuration::from_mins(30),
                    10 => {
                        w.cycles
                            .pop_if(|c| c.status.as_ref().is_none_or(|s| s.phase != Some(Phase::Running)));
                    }
                    _ => w.now += SignedDuration::from_hours(5),
                }
                w.settle();
            }
            Ok(())
        })
        .unwrap();
}

/// kubernetes#125761: a step of the clock started what lay between. Neither direction makes a burst: an hour
/// forward is one catch-up, an hour back starts nothing until the time that was reached comes again.
#[test]
fn a_clock_that_steps_an_hour_starts_no_burst() {
    fn minutes(w: &mut World, count: u32) {
        for _ in 0..count {
            w.now += SignedDuration::from_mins(1);
            w.settle();
            if w.job.as_ref().is_some_and(|j| j.end.is_none()) {
                w.done();
            }
        }
    }
    let mut w = World::sql("*/5 * * * *", "2026-12-01T06:00:00Z");
    w.settle();
    minutes(&mut w, 12);
    assert_eq!(w.jobs_made.len(), 2, "06:05 and 06:10");
    w.now += SignedDuration::from_hours(1);
    w.settle();
    assert_eq!(w.jobs_made.len(), 3, "one for all slots in between");
    w.done();
    minutes(&mut w, 5);
    assert_eq!(w.jobs_made.len(), 4, "07:15");
    w.now -= SignedDuration::from_hours(1);
    minutes(&mut w, 60);
    assert_eq!(w.jobs_made.len(), 4, "06:17 to 07:17 had their slots");
    minutes(&mut w, 3);
    assert_eq!(w.jobs_made.len(), 5, "07:20");
}

#[test]
fn a_restore_makes_a_snapshot_current_once_for_each_token() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    let memory = json!({"restoreFrom": {"snapshot": "3-0-x", "token": "1"}});
    w.agent.spec.memory = Some(serde_json::from_value(memory).unwrap());
    w.at("2026-12-01T08:01:00Z");
    assert_eq!(w.cycles[0].spec.restore.as_ref().unwrap().snapshot, "3-0-x");
    w.request("other", &json!({}));
    w.at("2026-12-01T08:02:00Z").done();
    assert_eq!(w.status().memory.unwrap().applied_restore.as_deref(), Some("3-0-x/1"));
    assert_eq!(w.jobs_made[1], "other", "nothing joins a restore");
    w.done();
    w.at("2026-12-01T09:00:00Z");
    assert_eq!(w.jobs_made.len(), 2);
}

/// An agent with deletionPolicy Delete that somebody has deleted.
fn deleted() -> World {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.agent.spec.memory = Some(serde_json::from_value(json!({"deletionPolicy": "Delete"})).unwrap());
    w.at("2026-12-01T06:00:00Z");
    assert!(deletion::is_kept(&w.agent), "before its first cycle");
    w.at("2026-12-01T07:00:00Z").done();
    w.agent.metadata.deletion_timestamp = Some(Time(ts("2026-12-01T08:00:00Z")));
    w
}

fn delete_job(end: Option<JobEnd>) -> JobView {
    JobView { name: "delete".into(), uid: "delete-uid".into(), end, ..JobView::default() }
}

#[test]
fn a_deleted_agent_waits_for_its_memory() {
    let mut w = deleted();
    w.at("2026-12-01T08:00:01Z");
    assert_eq!(w.log.last().unwrap(), "start delete job");
    assert_eq!(w.look_again, ts("2026-12-01T08:01:01Z"));
    w.delete_job = Some(delete_job(None));
    let before = w.log.len();
    w.at("2026-12-01T08:02:00Z");
    assert_eq!(w.log.len(), before);
    w.delete_job = Some(delete_job(Some(JobEnd { complete: true, attempts: 1, ..JobEnd::default() })));
    w.at("2026-12-01T08:03:00Z");
    assert!(!deletion::is_kept(&w.agent) && w.log.len() == before, "{:?}", w.log);
    w.at("2026-12-02T07:00:00Z");
    assert_eq!(w.jobs_made.len(), 1, "nothing runs any more");
}

#[test]
fn an_agent_whose_memory_can_not_be_deleted_goes_and_tells() {
    // The namespace is being deleted: no Job can be made.
    let mut w = deleted();
    w.delete_refused = Some("because it is being terminated".into());
    w.at("2026-12-01T08:00:01Z");
    assert!(!deletion::is_kept(&w.agent));
    assert_eq!(
        w.log.last().unwrap(),
        "abandon /store/n/a; to remove it: rm -r /store/n/a: because it is being terminated"
    );
    // The credentials are gone.
    let failed = |class| {
        let report = CycleReport::failed(class, "Secret n/s3 is missing");
        let message = Some(report.render());
        Some(delete_job(Some(JobEnd { message, attempts: 1, ..JobEnd::default() })))
    };
    let mut w = deleted();
    w.delete_job = failed(FailureClass::SecretMissing);
    w.at("2026-12-01T08:00:30Z");
    assert!(w.log.last().unwrap().ends_with(": SecretMissing: Secret n/s3 is missing"), "{:?}", w.log);
    // An outage is waited for, but not longer than ten minutes.
    let mut w = deleted();
    w.delete_job = failed(FailureClass::StoreUnavailable);
    w.at("2026-12-01T08:05:00Z");
    assert_eq!(w.log[w.log.len() - 2..], ["delete job", "start delete job"]);
    w.delete_job = Some(delete_job(None));
    w.at("2026-12-01T08:10:00Z");
    assert!(w.log.last().unwrap().ends_with("it took longer than 10 minutes"), "{:?}", w.log);
}

#[test]
fn retain_is_the_default_and_a_change_of_mind_counts() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    assert_eq!(w.agent.metadata.finalizers, None);
    let mut w = deleted();
    w.agent.spec.memory = None;
    w.at("2026-12-01T08:00:01Z");
    assert!(!deletion::is_kept(&w.agent) && !w.log.iter().any(|l| l.contains("delete")), "{:?}", w.log);
}

#[test]
fn a_delivery_takes_no_request_along_and_says_nothing_about_the_work() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let mut report = CycleReport::failed(FailureClass::Disrupted, "");
    report.pending.outbox = 1;
    w.end(&report);
    let failed = w.status().last_failure_time;
    assert!(failed.is_some());
    // Even a cycle that failed tells what is left, if it came as far as to send.
    w.at("2026-12-01T07:01:00Z");
    assert_eq!(w.jobs_made.len(), 2);
    w.request("other", &json!({"instruction": "count"}));
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.pending.failed = 1;
    w.end(&report);
    assert_eq!((w.status().last_successful_time, w.status().last_failure_time), (None, failed));
    assert_eq!(conditions::find(&w.status().conditions, "LastCycleFailed").unwrap().status, "True");
    assert_eq!((w.status().delivery, w.jobs_made[2].as_str()), (None, "other"));
    assert!(w.log.iter().any(|l| l == "note DeliveryFailed 1"), "{:?}", w.log);
    // A person's cycle that calls itself a delivery is a cycle.
    w.request("sly", &json!({"triggers": [{"type": "Delivery"}]}));
    assert!(!w.views().last().unwrap().is_delivery());
}
