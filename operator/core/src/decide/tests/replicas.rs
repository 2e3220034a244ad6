//! Two replicas that both believe to lead, each with its own, older view of what waits, take turns in any order on one
//! API server. What the edges do with each action is copied here in its smallest form: preconditions, create and
//! `AlreadyExists`, and what is read afresh.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// What an API server keeps.
struct Server {
    version: u64,
    agent: PersistentAgent,
    cycles: Vec<AgentCycle>,
    /// By the UID of their lead.
    jobs: HashMap<String, JobView>,
    /// How often each cycle was in a Job's plan.
    ran: HashMap<String, u32>,
    now: Timestamp,
}

/// One replica's view, and what is left of its look.
#[derive(Default)]
struct Replica {
    cycles: Vec<AgentCycle>,
    jobs: HashMap<String, JobView>,
    agent: Option<PersistentAgent>,
    made: Vec<String>,
    /// What the cycles were when it was decided.
    decided: Vec<CycleView>,
    todo: VecDeque<Action>,
    status: Option<PersistentAgentStatus>,
    again: bool,
}

/// The rest of the look is dropped: another writer was faster.
struct Conflict;

fn uid(cycle: &AgentCycle) -> &str {
    cycle.metadata.uid.as_deref().unwrap()
}

fn put(cycles: &mut Vec<AgentCycle>, cycle: AgentCycle) {
    match cycles.iter_mut().find(|c| uid(c) == uid(&cycle)) {
        Some(known) => *known = cycle,
        None => cycles.push(cycle),
    }
}

impl Server {
    fn new() -> Self {
        let mut w = World::sql("*/2 * * * *", "2026-12-01T06:00:00Z");
        (w.agent.spec.successful_cycles_history_limit, w.agent.metadata.resource_version) =
            (Some(10_000), Some("0".into()));
        Self {
            version: 0,
            agent: w.agent,
            cycles: vec![],
            jobs: HashMap::new(),
            ran: HashMap::new(),
            now: w.now,
        }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn create(&mut self, name: &str, spec: &serde_json::Value, own: bool) -> AgentCycle {
        if let Some(there) = self.cycles.iter().find(|c| c.metadata.name.as_deref() == Some(name)) {
            return there.clone();
        }
        let version = self.next_version();
        let owner = json!([{"apiVersion": "v", "kind": "PersistentAgent", "name": "a", "uid": "agent-uid", "controller": true}]);
        let mut value = json!({
            "metadata": {"name": name, "namespace": "n", "uid": format!("uid-{version}"), "resourceVersion": version,
                "creationTimestamp": self.now.to_string(), "ownerReferences": if own { owner } else { json!([]) }},
            "spec": spec,
        });
        value["spec"]["agentRef"] = json!({"name": "a"});
        let cycle: AgentCycle = serde_json::from_value(value).unwrap();
        self.cycles.push(cycle.clone());
        cycle
    }

    fn find(&mut self, wanted: &str) -> &mut AgentCycle {
        self.cycles.iter_mut().find(|c| uid(c) == wanted).unwrap()
    }

    /// Ends the Job that is at work, if one is.
    fn end_job(&mut self) {
        let mut report = CycleReport::new(CycleResult::Done);
        report.outcome = Outcome::Done;
        let end = JobEnd {
            at: Some(self.now),
            complete: true,
            message: Some(report.render()),
            exit_code: Some(0),
            attempts: 1,
            ..JobEnd::default()
        };
        if let Some(job) = self.jobs.values_mut().find(|job| job.end.is_none()) {
            job.end = Some(end);
        }
    }

    /// What must be true at any time.
    fn check(&self) {
        for (cycle, times) in &self.ran {
            assert!(*times <= 1, "{cycle} ran {times} times");
        }
        assert!(self.jobs.values().filter(|j| j.end.is_none()).count() <= 1, "two Jobs at once");
        for cycle in &self.cycles {
            let Some(status) = cycle.status.as_ref().filter(|s| s.phase.is_some_and(Phase::is_terminal))
            else {
                continue;
            };
            let lead = status.lead.as_ref().map_or(uid(cycle), |lead| &lead.uid);
            let job = self.jobs.get(lead).expect("what has ended had a Job");
            let inside = lead == uid(cycle) || job.joined.iter().flatten().any(|j| j.uid == uid(cycle));
            assert!(inside && job.end.is_some(), "{cycle:?} ended with a Job that does not have it");
        }
    }
}

impl Replica {
    fn busy(&self) -> bool {
        self.status.is_some() || !self.todo.is_empty()
    }

    /// One request of a look, or the begin of one.
    fn turn(&mut self, server: &mut Server) {
        let done = if self.busy() {
            self.go_on(server)
        } else {
            self.decide(server);
            Ok(())
        };
        if done.is_err() {
            (self.todo, self.status, self.agent, self.again) = (VecDeque::new(), None, None, false);
            self.made.clear();
        }
    }

    fn decide(&mut self, server: &mut Server) {
        if !std::mem::take(&mut self.again) {
            // Each look begins with a read of the agent.
            (self.agent, self.made) = (Some(server.agent.clone()), vec![]);
        }
        let agent = self.agent.as_ref().unwrap();
        let active = agent.status.as_ref().and_then(|s| s.active_cycle.clone());
        let job = active.as_ref().and_then(|a| self.jobs.get(&a.uid));
        // A cycle at work that the view lacks is looked for on the server before it counts as deleted.
        let lead = active.iter().map(|a| a.uid.clone());
        let joined = job.and_then(|j| j.joined.clone()).unwrap_or_default();
        for wanted in lead.chain(joined.into_iter().map(|j| j.uid)) {
            if !self.cycles.iter().any(|c| uid(c) == wanted) {
                put(&mut self.cycles, server.find(&wanted).clone());
            }
        }
        self.decided = self.cycles.iter().map(|c| CycleView::new(c, "agent-uid")).collect();
        let (environment, defaults) = Default::default();
        let seen = Observed { job, ..Observed::new(agent, &self.decided, &environment, &defaults) };
        let plan = decide(&seen, server.now);
        self.made.extend(plan.actions.iter().filter_map(Action::creates));
        let changed = agent.status.clone().unwrap_or_default() != plan.status && !plan.defer_status;
        (self.todo, self.again) = (plan.actions.into(), plan.again);
        self.status = changed.then_some(plan.status);
    }

    fn go_on(&mut self, server: &mut Server) -> Result<(), Conflict> {
        if let Some(action) = self.todo.pop_front() {
            return self.act(server, action);
        }
        let Some(status) = self.status.take() else { return Ok(()) };
        let mut agent = self.agent.take().unwrap();
        if agent.metadata.resource_version != server.agent.metadata.resource_version {
            return Err(Conflict);
        }
        agent.metadata.resource_version = Some(server.next_version());
        agent.status = Some(status);
        server.agent = agent.clone();
        self.agent = Some(agent);
        Ok(())
    }

    fn act(&mut self, server: &mut Server, action: Action) -> Result<(), Conflict> {
        match action {
            Action::CreateCycle { name, spec } => {
                let made = server.create(&name, &serde_json::to_value(&*spec).unwrap(), true);
                put(&mut self.cycles, made);
            }
            Action::SetCycle { cycle, status } => {
                let seen = self.decided.iter().find(|c| c.uid == cycle.uid).unwrap().version;
                let version = server.next_version();
                let there = server.find(&cycle.uid);
                let current = crate::observed::version(there.metadata.resource_version.as_ref()) == seen;
                if current {
                    let before = there.status.as_ref().and_then(|s| s.phase);
                    assert!(!before.is_some_and(Phase::is_terminal), "a terminal cycle never changes");
                    (there.metadata.resource_version, there.status) = (Some(version), Some(*status));
                }
                let there = there.clone();
                put(&mut self.cycles, there);
                return if current { Ok(()) } else { Err(Conflict) };
            }
            Action::StartJob { lead, joined } => return self.start(server, &lead, &joined),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn start(&mut self, server: &mut Server, lead: &CycleRef, joined: &[CycleRef]) -> Result<(), Conflict> {
        let mut inside = vec![];
        for reference in std::iter::once(lead).chain(joined) {
            if !self.made.contains(&reference.name) {
                put(&mut self.cycles, server.find(&reference.uid).clone());
            }
            let seen = self.cycles.iter().find(|c| uid(c) == reference.uid).unwrap();
            if !CycleView::new(seen, "").is_terminal() {
                inside.push(reference.clone());
            }
        }
        if inside.first() != Some(lead) {
            return Err(Conflict);
        }
        if !server.jobs.contains_key(&lead.uid) {
            inside.iter().for_each(|c| *server.ran.entry(c.uid.clone()).or_default() += 1);
            let job = JobView {
                name: names::job(&lead.name, &lead.uid),
                uid: format!("job of {}", lead.uid),
                created: server.now,
                released: server.now,
                started: true,
                joined: Some(inside.split_off(1)),
                ..JobView::default()
            };
            server.jobs.insert(lead.uid.clone(), job);
        }
        self.jobs.insert(lead.uid.clone(), server.jobs[&lead.uid].clone());
        Ok(())
    }

    /// The watches tell of one object that it knows less of, or of all.
    fn hear(&mut self, server: &Server, which: Option<usize>) {
        for (n, cycle) in server.cycles.iter().enumerate() {
            if which.is_none_or(|w| w % server.cycles.len() == n) {
                put(&mut self.cycles, cycle.clone());
            }
        }
        for (n, (lead, job)) in server.jobs.iter().enumerate() {
            if which.is_none_or(|w| w % server.jobs.len() == n) {
                self.jobs.insert(lead.clone(), job.clone());
            }
        }
    }
}

/// argo-workflows#2694, #4558: two controllers ran one thing twice. cloudnative-pg#10622: what waited was set aside by
/// what had been chosen meanwhile. Whatever two replicas see and in whatever order they write, no cycle is in two Jobs,
/// and none ends with a Job that does not have it.
#[test]
fn two_replicas_that_see_different_cycles_wait_run_each_once() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let events = proptest::collection::vec((0..14u8, 0..2usize, 0..64usize), 1..150);
    runner
        .run(&events, |events| {
            let (mut server, mut replicas) = (Server::new(), [Replica::default(), Replica::default()]);
            for (n, (event, which, object)) in events.into_iter().enumerate() {
                match event {
                    0 => drop(server.create(&format!("r{n}"), &json!({}), false)),
                    1 => drop(server.create(
                        &format!("m{n}"),
                        &json!({"triggers": [{"type": "Message"}]}),
                        false,
                    )),
                    2 => server.end_job(),
                    3 => server.now += SignedDuration::from_secs(50),
                    4..7 => replicas[which].hear(&server, Some(object)),
                    _ => replicas[which].turn(&mut server),
                }
                server.check();
            }
            // All is told, all Jobs end, and nothing new comes: everything is done.
            for _ in 0..2000 {
                let open =
                    |c: &AgentCycle| c.status.as_ref().is_none_or(|s| s.phase != Some(Phase::Succeeded));
                if !server.cycles.iter().any(open) {
                    break;
                }
                for replica in &mut replicas {
                    if !replica.busy() {
                        server.end_job();
                        replica.hear(&server, None);
                    }
                    replica.turn(&mut server);
                }
                server.check();
            }
            for cycle in &server.cycles {
                let phase = cycle.status.as_ref().and_then(|s| s.phase);
                assert_eq!(
                    (phase, server.ran.get(uid(cycle))),
                    (Some(Phase::Succeeded), Some(&1)),
                    "{cycle:?}"
                );
            }
            Ok(())
        })
        .unwrap();
}
