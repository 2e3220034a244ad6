//! One agent, its processes, and what must hold of them.

mod check;
pub(super) mod talk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cicada_contract::plan::{
    Executor, PlanMessage, PlanPeer, PlanRun, Provider, SqlSource, StoreConfig, Trigger, TriggerKind,
};
use cicada_contract::report::{CycleReport, CycleResult};
use cicada_contract::{FailureClass, plan};
use cicada_store::{AgentStore, Head, InboxMessage};
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::agent::Agent;
use crate::delivery::with_hook;
use crate::matrix::fault::{Attempt, End, Fault, Point};
use crate::matrix::s3::{Bucket, credentials};
use crate::matrix::stand_ins::{SQL, StandIns};
use crate::small_disk::SmallDisk;

/// Attempts of one cycle before it must have ended; faults happen in the first three.
const ATTEMPTS: usize = 7;
pub(super) const DISTURBED: usize = 3;
/// Few enough that an agent comes to its bound.
pub(super) const PEER_MESSAGES: u32 = 6;

pub(super) struct World {
    rng: StdRng,
    agent: Agent,
    bucket: Option<Arc<Bucket>>,
    stand_ins: StandIns,
    direct: AgentStore,
    full_disk: SmallDisk,
    attempts: u32,
    messages: u32,
    /// Bodies that must be in the memory from now on.
    acknowledged: BTreeSet<String>,
    /// Bodies in the inbox: some cycle must take them in.
    promised: BTreeSet<String>,
    /// Order of what was seen noted.
    noted: Vec<String>,
    epoch: u64,
    /// Peers that the reports of the last run wake, as the operator reads them: one report for each cycle.
    pub(super) wakes: BTreeSet<String>,
    /// In the last run another cycle passed by.
    pub(super) passed_by: bool,
    /// Of the last attempts, for the report of a failure.
    last_logs: Vec<String>,
    pub(super) counts: BTreeMap<String, u32>,
}

/// How a cycle ended for the operator.
enum Ended {
    Done,
    /// For good, without its work.
    Failed,
}

impl World {
    /// An agent in a store of its own, and whom it writes to, if it has a model that can.
    pub(super) async fn new(seed: u64, bucket: Option<Arc<Bucket>>) -> Self {
        Self::build("price-watch", "editor", seed, bucket, None).await
    }

    /// Its peer, in the same store.
    pub(super) async fn beside(&self, seed: u64) -> Self {
        let store = Some(self.agent.config.store.clone());
        Self::build("editor", "price-watch", seed, self.bucket.clone(), store).await
    }

    async fn build(
        name: &str,
        peer: &str,
        seed: u64,
        bucket: Option<Arc<Bucket>>,
        beside: Option<StoreConfig>,
    ) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let stand_ins = StandIns::start(Some((name.to_owned(), peer.to_owned()))).await;
        let mut agent = Agent::with_model(Provider::OpenAICompatible, &stand_ins.url("/v1/"));
        agent.config.owner.name = name.to_owned();
        agent.config.peers = vec![PlanPeer { name: peer.to_owned(), messages_per_day: PEER_MESSAGES }];
        // The strict one: nothing of a cycle stays that did not end well.
        if rng.random_bool(0.6) {
            agent.config.executor = Executor::Sql(SqlSource::Inline(SQL.into()));
        }
        if let Some(store) = beside {
            agent.config.store = store;
        }
        agent.config.inbound = plan::Inbound::Anyone;
        agent.config.memory.retention.snapshots = 3;
        agent.config.http.allowed_hosts =
            vec![plan::AllowedHost { host: "127.0.0.1".into(), port: Some(stand_ins.port()), private: true }];
        with_hook(&mut agent, stand_ins.url("/hook"));
        let direct = match &bucket {
            None => agent.store().await,
            Some(bucket) => {
                let prefix = match &agent.config.store {
                    StoreConfig::S3(s3) => s3.prefix.clone(),
                    StoreConfig::Directory { .. } => format!("run-{seed}"),
                };
                agent.config.store = bucket.config(&prefix);
                agent.secret("store", "AWS_ACCESS_KEY_ID", &credentials().access_key_id);
                agent.secret("store", "AWS_SECRET_ACCESS_KEY", &credentials().secret_access_key);
                let config: StoreConfig = bucket.direct(&prefix);
                let store = cicada_store::open(&config, Some(credentials())).await.unwrap();
                AgentStore::new(store, "shop", name).unwrap()
            }
        };
        let size = rng.random_range(100..1500);
        let full_disk = SmallDisk::mount(&agent.dir.path().join("small"), size);
        Self {
            rng,
            agent,
            bucket,
            stand_ins,
            direct,
            full_disk,
            attempts: 0,
            messages: 0,
            acknowledged: BTreeSet::new(),
            promised: BTreeSet::new(),
            noted: vec![],
            epoch: 0,
            wakes: BTreeSet::new(),
            passed_by: false,
            last_logs: vec![],
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// One cycle with faults, and what must hold after it.
    pub(super) async fn run(&mut self) {
        if self.rng.random_bool(0.2) {
            self.put_message().await;
        }
        let run = self.next_cycle();
        self.cycle(&run, DISTURBED).await;
        self.settle_wire().await;
        self.check().await;
    }

    /// Whether it has a model, which alone can write to a peer.
    pub(super) fn writes(&self) -> bool {
        matches!(self.agent.config.executor, Executor::Model(_))
    }

    async fn settle_wire(&mut self) {
        if let Some(bucket) = &self.bucket {
            let landed = bucket.calm().await;
            *self.counts.entry("landed late".into()).or_default() += u32::try_from(landed).unwrap();
        }
    }

    /// After all faults the agent works without a hand, and nothing waits that nobody will look at.
    pub(super) async fn settle(&mut self) {
        for _ in 0..2 {
            let run = self.next_cycle();
            assert!(matches!(self.cycle(&run, 0).await, Ended::Done));
        }
        self.check().await;
        let lost: Vec<_> = self.promised.iter().filter(|body| !self.noted.contains(body)).collect();
        assert!(lost.is_empty(), "accepted messages never reached the agent: {lost:?}");
        self.check_outbox().await;
    }

    async fn put_message(&mut self) {
        self.messages += 1;
        let body = format!("inbox {}", self.messages);
        let message = InboxMessage {
            version: cicada_store::INBOX_VERSION,
            id: body.clone(),
            channel: "cli".into(),
            from: "sales".into(),
            to: None,
            subject: None,
            body: body.clone(),
            conversation_id: None,
            peer: None,
            answers: None,
            attachments: vec![],
            payload: None,
            at: Timestamp::now(),
        };
        assert!(self.direct.put_message(&message).await.unwrap());
        self.promised.insert(body);
        self.count("inbox message");
    }

    /// A new cycle, whose message is its own name.
    fn next_cycle(&mut self) -> PlanRun {
        let mut run = self.agent.next_run();
        let body = format!("cycle {}", run.cycle.name);
        run.messages = vec![PlanMessage {
            id: run.cycle.uid.clone(),
            channel: "cli".into(),
            from: "sales".into(),
            subject: None,
            body,
            attachments: vec![],
            at: Timestamp::now(),
        }];
        let handled_key = self.rng.random_bool(0.5).then(|| format!("token-{}", run.cycle.name));
        run.triggers = vec![Trigger {
            kind: TriggerKind::Request,
            schedule: None,
            slot: None,
            token: handled_key.clone(),
            handled_key,
        }];
        run
    }

    /// One cycle, as a Job with retries would work through it.
    async fn cycle(&mut self, run: &PlanRun, disturbed: usize) -> Ended {
        for attempt in 0..ATTEMPTS {
            let fault = if attempt < disturbed { Fault::random(&mut self.rng) } else { Fault::None };
            if let Some(bucket) = &self.bucket {
                if attempt < disturbed {
                    bucket.disturb(&mut self.rng);
                } else {
                    bucket.calm().await;
                }
            }
            let end = self.attempt(run, fault).await;
            if let Some(ended) = self.judge(run, &end) {
                return ended;
            }
            assert!(attempt + 1 < ATTEMPTS, "{} did not end:\n{}", run.cycle.name, end.log);
        }
        unreachable!("the last attempt was judged")
    }

    /// What the operator would make of an attempt; None = another attempt.
    fn judge(&mut self, run: &PlanRun, end: &End) -> Option<Ended> {
        self.last_logs.push(format!("{} {}\n{}", run.cycle.name, end.status, end.log));
        self.last_logs.drain(..self.last_logs.len().saturating_sub(5));
        let Some(code) = end.code() else {
            self.count("killed");
            return None;
        };
        let text = std::fs::read_to_string(&end.report).unwrap_or_else(|e| panic!("{e}: {}", end.log));
        let report = CycleReport::parse(&text).unwrap();
        assert_eq!(code, i32::from(report.exit_code()));
        let Some(class) = report.class else {
            assert!(matches!(report.result, CycleResult::Done | CycleResult::AlreadyHandled), "{report:?}");
            if report.recovered || report.result == CycleResult::AlreadyHandled {
                self.count("recovered");
            }
            self.count("done");
            self.acknowledged.extend(run.messages.iter().map(|m| m.body.clone()));
            self.wakes.extend(report.wakes);
            return Some(Ended::Done);
        };
        self.count(class.label());
        match class {
            // A killed worker looks like a statement that was too much for it; a full disk fails statements.
            FailureClass::ExecutorFailed
                if ["disk is full", "the worker died"].iter().any(|cause| report.message.contains(cause)) =>
            {
                Some(Ended::Failed)
            }
            // A repeated statement of ours means that a message was handled twice.
            FailureClass::ExecutorFailed
            | FailureClass::RestoreCorrupt
            | FailureClass::MemoryMissing
            | FailureClass::StoreConflict
            | FailureClass::StoreRolledBack
            | FailureClass::EphemeralResidue
            | FailureClass::PlanInvalid => panic!("{class}: {}\n{}", report.message, end.log),
            FailureClass::PersistFenced => {
                self.count("fenced");
                // By another attempt of this cycle or by another cycle: the operator looks at HEAD.
                None
            }
            class if class.is_retryable() => None,
            FailureClass::Superseded => None,
            _ => Some(Ended::Failed),
        }
    }

    async fn attempt(&mut self, run: &PlanRun, fault: Fault) -> End {
        self.count(format!("fault {fault:?}"));
        let point = Point::random(&mut self.rng);
        let mut attempt = self.start(run, fault, point);
        if matches!(fault, Fault::None | Fault::FullDisk) || !attempt.reach(point).await {
            return attempt.end().await;
        }
        match fault {
            Fault::None | Fault::FullDisk => {}
            Fault::Kill => attempt.signal(libc::SIGKILL),
            Fault::Terminate => attempt.signal(libc::SIGTERM),
            Fault::KillWorker => {
                if attempt.kill_worker(&mut self.rng) {
                    self.count("worker killed");
                }
            }
            Fault::Message => self.put_message().await,
            Fault::Pause => {
                attempt.signal(libc::SIGSTOP);
                self.pass_by(run, || attempt.signal(libc::SIGCONT)).await;
            }
        }
        attempt.end().await
    }

    /// While an attempt stands still: another attempt of its cycle, or another cycle.
    async fn pass_by(&mut self, run: &PlanRun, go_on: impl Fn()) {
        let other = if self.rng.random_bool(0.5) { run.clone() } else { self.next_cycle() };
        let passing = self.start(&other, Fault::None, Point::After(Duration::ZERO)).end();
        tokio::pin!(passing);
        // In a directory the stopped one may hold the lock of HEAD, which others wait for.
        let passed = tokio::time::timeout(Duration::from_secs(5), &mut passing).await;
        go_on();
        let end = match passed {
            Ok(end) => end,
            Err(_) => passing.await,
        };
        self.count("passed by");
        self.passed_by = true;
        self.judge(&other, &end);
    }

    fn start(&mut self, run: &PlanRun, fault: Fault, point: Point) -> Attempt {
        self.attempts += 1;
        let name = format!("attempt-{}", self.attempts);
        let folder = self.agent.dir.path().join(&name);
        let work = if fault == Fault::FullDisk { self.full_disk.path.clone() } else { folder.join("work") };
        let mut command = tokio::process::Command::from(self.agent.command("run", run, &folder, &work));
        // The SDK says far too much below info.
        command.env("CICADA_LOG", "debug,hyper=info,aws=info,h2=info").kill_on_drop(true);
        Attempt::start(command, folder.join("report.json"), point)
    }

    /// Of the last attempts.
    pub(super) fn logs(&self) -> String {
        self.last_logs.join("\n\n")
    }

    async fn head(&self) -> Option<Head> {
        self.direct.read_head().await.unwrap().map(|at| at.head)
    }
}
