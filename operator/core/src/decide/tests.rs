//! A small world: one agent, its cycles and Jobs, and an operator that decides and acts until all is quiet.

use cicada_contract::{
    CycleReport, FailureClass,
    report::{CycleResult, MemoryReport, Outcome},
};
use cicada_crds::{AgentCycle, PersistentAgent, cycle::Phase};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::{
    RUN_NOW, conditions, names,
    observed::{CycleView, Environment, JobView, LookView, ReportJob, Waiting},
    result::JobEnd,
    spec::OperatorDefaults,
};

mod deletions;
mod ends;
mod limits;
mod memory;
mod peers;
mod replicas;
mod requests;
mod situations;
mod slots;
mod status;

fn ts(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[derive(Clone)]
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
    /// Reasons of the warnings that people heard.
    warnings: Vec<&'static str>,
    jobs_made: Vec<String>,
    /// Cycles of other agents, by name.
    woken: Vec<(String, cicada_crds::AgentCycleSpec)>,
    status_writes: u32,
    /// Results of the cycles that were counted.
    counted: Vec<String>,
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
            warnings: vec![],
            jobs_made: vec![],
            woken: vec![],
            status_writes: 0,
            counted: vec![],
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
        let charter = self.agent.spec.charter.as_deref().unwrap_or_default();
        let charter_sha256 = Some(cicada_contract::text::sha256_hex(charter));
        let environment = Environment { charter_sha256, ..self.environment.clone() };
        let seen = Observed {
            job: self.job.as_ref(),
            delete_job: self.delete_job.as_ref(),
            delete_refused: self.delete_refused.clone(),
            look: self.look.as_ref(),
            ..Observed::new(&self.agent, &views, &environment, &self.defaults)
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
            Action::WakePeer { uid, name, spec, .. } => {
                self.log.push(format!("wake {uid}"));
                if !self.woken.iter().any(|(known, _)| *known == name) {
                    self.woken.push((name, *spec));
                }
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
                    released: self.now,
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
                assert_fits("AgentCycle", &*status);
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
            self.look_again = plan.look_again.unwrap_or(Timestamp::MAX);
            let worth = ["DeliveryFailed", "CharterEdited", MISSED, OCCUPIED];
            // What is said of a status goes with its write.
            let told = plan.notes.iter().filter(|n| worth.contains(&n.reason) && !defer);
            self.log.extend(told.map(|n| format!("note {} {}", n.reason, n.count)));
            if !defer {
                self.warnings.extend(plan.notes.iter().filter(|n| n.warning).map(|n| n.reason));
                self.counted.extend(plan.ended.map(|e| e.result));
            }
            for action in plan.actions {
                self.act(action);
            }
            if !defer && self.status() != plan.status {
                if plan.status.active_cycle.is_none() {
                    self.job = None;
                }
                assert_fits("PersistentAgent", &plan.status);
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

/// The API server takes this status: one that it refuses is never written, and its object stands still.
fn assert_fits(kind: &str, status: &impl serde::Serialize) {
    fn walk(at: &str, schema: &serde_json::Value, value: &serde_json::Value) {
        let most = |key: &str| schema[key].as_u64().map_or(usize::MAX, |n| usize::try_from(n).unwrap());
        match value {
            serde_json::Value::String(text) => {
                assert!(text.chars().count() <= most("maxLength"), "{at}: {} characters", text.len());
                assert!(!text.chars().any(char::is_control), "{at}: not printable: {text:?}");
            }
            serde_json::Value::Array(items) => {
                assert!(items.len() <= most("maxItems"), "{at}: {} items", items.len());
                items.iter().for_each(|item| walk(&format!("{at}[]"), &schema["items"], item));
            }
            serde_json::Value::Object(fields) => fields
                .iter()
                .for_each(|(name, field)| walk(&format!("{at}.{name}"), &schema["properties"][name], field)),
            serde_json::Value::Number(n) => assert!(n.as_i64().is_some() || n.is_f64(), "{at}: {n}"),
            _ => {}
        }
    }
    static CRDS: std::sync::LazyLock<Vec<serde_json::Value>> =
        std::sync::LazyLock::new(|| cicada_crds::generate::definitions().into_iter().collect());
    let crd = CRDS.iter().find(|c| c["spec"]["names"]["kind"] == kind).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    walk(kind, schema, &serde_json::to_value(status).unwrap());
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
