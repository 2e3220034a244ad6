//! What every phase of one cycle may use: the plan, the working directory, secrets, the stop signal.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cicada_contract::CyclePlan;
use cicada_contract::report::{PhaseTime, Usage};
use cicada_contract::resources::{Resources, resources};
use cicada_memory::Launcher;
use cicada_memory::ledger::StepRecord;
use jiff::Timestamp;

use crate::executor::container::server::AgentServer;
use crate::phase::base::Base;
use crate::secrets::Secrets;
use crate::shutdown::Shutdown;
use crate::work_dir::WorkDir;

/// Time that is kept for the last write of HEAD, an object of a few KB, and for the report.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// What every phase may use.
pub struct Context {
    /// The plan.
    pub plan: CyclePlan,
    /// The working directory.
    pub work: WorkDir,
    /// How to start a sandboxed child.
    pub launcher: Launcher,
    /// Secrets by reference.
    pub secrets: Secrets,
    /// Signal and time limit.
    pub shutdown: Shutdown,
    /// Resource numbers of this plan.
    pub resources: Resources,
    /// What restore learned of the memory that the cycle starts from.
    pub base: Base,
    /// What the agent's own container talks to.
    pub server: Option<AgentServer>,
    /// People wait for the cycle: what won't pass by itself is told early.
    pub attended: bool,
    times: Mutex<Vec<PhaseTime>>,
    /// What stays of an executor that fails: its spend, and calls that may have changed the world.
    spent: Mutex<Usage>,
    intents: Mutex<Vec<StepRecord>>,
}

impl Context {
    /// A context for `plan`.
    pub fn new(
        plan: CyclePlan,
        work: WorkDir,
        launcher: Launcher,
        secrets: Secrets,
        shutdown: Shutdown,
    ) -> Self {
        let memory = &plan.config.memory;
        let resources = resources(memory.size_limit, memory.ledger_size_limit, 0);
        Self {
            plan,
            work,
            launcher,
            secrets,
            shutdown,
            resources,
            base: Base::default(),
            server: None,
            attended: false,
            times: Mutex::default(),
            spent: Mutex::default(),
            intents: Mutex::default(),
        }
    }

    /// The present moment. The only place where a cycle reads the clock for data.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// When the holder in HEAD stops being taken for alive: the time limit and the grace period after it.
    pub fn holder_deadline(&self) -> Timestamp {
        self.now() + Duration::from_secs(self.plan.config.limits.timeout) + self.grace()
    }

    /// Time between SIGTERM and SIGKILL.
    fn grace(&self) -> Duration {
        Duration::from_secs(self.plan.config.grace_seconds.unwrap_or(self.resources.grace_seconds))
    }

    /// When uploads must be done so that HEAD can still be written before SIGKILL; None while nobody has
    /// told us to stop.
    pub fn upload_by(&self) -> Option<Instant> {
        let signalled = self.shutdown.signalled_at()?.into_std();
        // From the signal on, where there is no time at all.
        Some(signalled + self.grace().saturating_sub(LAST_WRITE))
    }

    /// Runs one phase and notes how long it took. Milliseconds of every phase end up in report and ledger.
    pub async fn phase<T>(&self, name: &'static str, work: impl Future<Output = T>) -> T {
        tracing::info!(phase = name, "phase started");
        let started = Instant::now();
        let result = work.await;
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(phase = name, ms, "phase ended");
        if let Ok(mut times) = self.times.lock() {
            times.push(PhaseTime { phase: name.to_owned(), ms });
        }
        result
    }

    /// The times so far.
    pub fn times(&self) -> Vec<PhaseTime> {
        self.times.lock().map(|t| t.clone()).unwrap_or_default()
    }

    /// Notes what the executor has spent so far.
    pub fn note_usage(&self, usage: &Usage) {
        if let Ok(mut spent) = self.spent.lock() {
            spent.clone_from(usage);
        }
    }

    /// What the executor has spent.
    pub fn spent(&self) -> Usage {
        self.spent.lock().map(|s| s.clone()).unwrap_or_default()
    }

    /// Notes the calls that may have changed the world, with the outcomes that are known.
    pub fn note_intents(&self, intents: &[StepRecord]) {
        if let Ok(mut noted) = self.intents.lock() {
            *noted = intents.to_vec();
        }
    }

    /// Those calls.
    pub fn intents(&self) -> Vec<StepRecord> {
        self.intents.lock().map(|i| i.clone()).unwrap_or_default()
    }

    /// Path of an archive in the working directory.
    pub fn archive(&self, name: &str) -> PathBuf {
        self.work.archives().join(name)
    }
}
