//! One agent's part of an API server, in memory: the same decisions as in a cluster, with child processes
//! in place of Jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::Context;
use cicada_contract::plan::StoreConfig;
use cicada_contract::{CyclePlan, FailureClass, PlanConfig};
use cicada_crds::cycle::{CycleRef, Phase};
use cicada_crds::status::PersistentAgentStatus;
use cicada_crds::{AgentCycle, PersistentAgent};
use cicada_operator_core::decide::{Action, decide};
use cicada_operator_core::deletion::FINALIZER;
use cicada_operator_core::observed::{CycleView, Environment, JobView, Observed, ReportJob};
use cicada_operator_core::peers::PeerView;
use cicada_operator_core::plan::{plan_config, plan_run, store_config, store_location};
use cicada_operator_core::result::JobEnd;
use cicada_operator_core::spec::OperatorDefaults;
use cicada_operator_core::{HOLD, RUN_NOW, names};
use cicada_store::{AgentStore, Credentials};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::child::{self, Ended};
use super::desk::{Desk, Seen};
use super::objects::{owned, peers, uid};
use super::{DEFAULT_NAMESPACE, secrets, summary};
use crate::manifest::Folder;
use crate::{interrupt, output};

/// What belongs to one agent.
pub(super) struct World {
    pub(super) agent: PersistentAgent,
    cycles: Vec<AgentCycle>,
    job: Option<JobView>,
    defaults: OperatorDefaults,
    folder: PathBuf,
    secrets: BTreeMap<String, BTreeMap<String, String>>,
    model_url: Option<String>,
    quiet: bool,
    desk: Desk,
    /// What another process would find out of it.
    seen: Seen,
    /// Names of cycles that other commands asked for.
    asked: BTreeSet<String>,
    /// Agents of the folder that the manifest names.
    peers: Vec<PeerView>,
    /// A cycle ended, and not as it should.
    failed: bool,
}

/// Where a world keeps its files and finds its secrets.
pub(super) struct Settings {
    /// The operator's part of each plan.
    pub(super) defaults: OperatorDefaults,
    /// Folder for plans, reports and working directories.
    pub(super) folder: PathBuf,
    /// Secret manifests of the folder.
    pub(super) secrets: BTreeMap<String, BTreeMap<String, String>>,
    /// Base URL in place of every model's own.
    pub(super) model_url: Option<String>,
    /// No block after each cycle (the caller prints a document).
    pub(super) quiet: bool,
    /// What other commands ask.
    pub(super) desk: Desk,
}

impl World {
    /// A world in which the agent was created now.
    pub(super) fn new(mut agent: PersistentAgent, folder: &[PersistentAgent], settings: Settings) -> Self {
        let name = agent.metadata.name.clone().unwrap_or_default();
        let namespace = agent.metadata.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.into()).clone();
        agent.metadata.uid = Some(uid(&namespace, &name));
        agent.metadata.generation = Some(1);
        agent.metadata.creation_timestamp = Some(Time(Timestamp::now()));
        let peers = peers(&agent, folder, &settings.defaults);
        let folder = settings.folder.join(&namespace).join(&name);
        let Settings { defaults, secrets, model_url, quiet, desk, .. } = settings;
        let mut seen = desk.seen(&namespace, &name);
        let store = store_config(&agent.spec, &defaults).ok().map(|store| store_location(&store));
        seen.memory = seen.memory.filter(|memory| memory.store == store);
        agent.status = Some(PersistentAgentStatus {
            memory: seen.memory.clone(),
            usage: seen.usage.clone(),
            ..PersistentAgentStatus::default()
        });
        Self {
            seen,
            agent,
            cycles: vec![],
            job: None,
            defaults,
            folder,
            secrets,
            model_url,
            quiet,
            desk,
            asked: BTreeSet::new(),
            peers,
            failed: false,
        }
    }

    /// Namespace of the agent.
    pub(super) fn namespace(&self) -> &str {
        self.agent.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Name of the agent.
    pub(super) fn name(&self) -> &str {
        self.agent.metadata.name.as_deref().unwrap_or_default()
    }

    /// `namespace/name`.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }

    /// Takes an edited manifest, with the annotations that commands gave; the running cycle goes on with the
    /// old one. True if something is different.
    pub(super) fn edit(&mut self, agent: PersistentAgent, folder: &Folder) -> bool {
        let mut annotations = agent.metadata.annotations.unwrap_or_default();
        annotations.extend(self.desk.annotations(self.namespace(), Some(self.name())));
        let secrets = folder.secrets.of(self.namespace());
        let mut news = self.secrets != secrets;
        self.secrets = secrets;
        if self.agent.metadata.annotations.as_ref() != Some(&annotations) {
            self.agent.metadata.annotations = Some(annotations);
            news = true;
        }
        if agent.spec != self.agent.spec {
            self.agent.spec = agent.spec;
            self.agent.metadata.generation = self.agent.metadata.generation.map(|g| g + 1);
            news = true;
        }
        self.peers = peers(&self.agent, &folder.agents, &self.defaults);
        news
    }

    /// Takes up the cycles that other commands asked for; true if there is a new one.
    pub(super) fn take_requests(&mut self) -> bool {
        let mut news = false;
        for cycle in self.desk.asked(self.namespace(), self.name()) {
            let name = cycle.metadata.name.clone().unwrap_or_default();
            if self.asked.insert(name) {
                news |= self.add_cycle(cycle);
            }
        }
        news
    }

    /// Tells those who asked how their cycles stand.
    pub(super) fn tell_requests(&mut self) {
        let namespace = self.namespace().to_owned();
        let asked =
            self.cycles.iter().filter(|c| c.metadata.name.as_ref().is_some_and(|n| self.asked.contains(n)));
        let mut ended = vec![];
        for cycle in asked {
            if let Err(error) = self.desk.tell(&namespace, cycle) {
                output::problem(&format!("{}: {error:#}", self.path()));
            }
            if phase(cycle).is_some_and(Phase::is_terminal) {
                ended.extend(cycle.metadata.name.clone());
            }
        }
        self.asked.retain(|name| !ended.contains(name));
    }

    /// Why no cycle of it starts however it is asked; None = it may.
    pub(super) fn stays_asleep(&self) -> Option<String> {
        if self.agent.spec.suspend == Some(true) {
            return Some(format!("{} is suspended", self.path()));
        }
        let own = self.agent.metadata.annotations.as_ref().and_then(|a| a.get(HOLD)).cloned();
        let hold = own.or_else(|| self.environment().hold)?;
        Some(format!("{} is on hold: {hold}", self.path()))
    }

    fn environment(&self) -> Environment {
        let hold = self.desk.annotations(self.namespace(), None).remove(HOLD);
        let charter = self.agent.spec.charter.as_deref().unwrap_or_default();
        let charter_sha256 = Some(cicada_contract::text::sha256_hex(charter));
        Environment { hold, charter_sha256, peers: self.peers.clone(), ..Environment::default() }
    }

    /// The agent's part of its store.
    pub(super) async fn open_store(&self) -> anyhow::Result<AgentStore> {
        let config = store_config(&self.agent.spec, &self.defaults)?;
        let credentials = match &config {
            StoreConfig::S3(s3) => s3.secret_name.as_ref().and_then(|name| self.credentials(name)),
            StoreConfig::Directory { .. } => None,
        };
        let store = cicada_store::open(&config, credentials).await?;
        Ok(AgentStore::new(store, self.namespace(), self.name())?)
    }

    /// As a cycle finds them: the Secret's manifest, else the environment.
    fn credentials(&self, secret: &str) -> Option<Credentials> {
        let find = |key: &str| {
            let given = self.secrets.get(secret).and_then(|s| s.get(key)).cloned();
            given.or_else(|| std::env::var(cicada_cycle_job::secrets::variable_name(secret, key)).ok())
        };
        Some(Credentials {
            access_key_id: find("AWS_ACCESS_KEY_ID")?,
            secret_access_key: find("AWS_SECRET_ACCESS_KEY")?,
            session_token: find("AWS_SESSION_TOKEN"),
        })
    }

    /// Asks for one cycle, as the annotation does in a cluster.
    pub(super) fn request(&mut self, token: &str) {
        self.agent.metadata.annotations.get_or_insert_default().insert(RUN_NOW.to_owned(), token.to_owned());
    }

    /// Adds a cycle that somebody else made; one of this name that is there already is kept. True if it is new.
    pub(super) fn add_cycle(&mut self, mut cycle: AgentCycle) -> bool {
        let name = cycle.metadata.name.clone().unwrap_or_default();
        if self.cycles.iter().any(|c| c.metadata.name.as_deref() == Some(name.as_str())) {
            return false;
        }
        cycle.metadata.namespace.clone_from(&self.agent.metadata.namespace);
        cycle.metadata.uid = Some(format!("{}-{}", name, Timestamp::now().as_nanosecond()));
        cycle.metadata.creation_timestamp = Some(Time(Timestamp::now()));
        self.cycles.push(cycle);
        true
    }

    /// Decides and acts until there is nothing more to do now; gives the time to look again, if there is one.
    pub(super) async fn settle(&mut self) -> anyhow::Result<(Option<Timestamp>, Vec<Ended>)> {
        let mut ended = vec![];
        loop {
            let now = Timestamp::now();
            let uid = self.agent.metadata.uid.clone().unwrap_or_default();
            let views: Vec<CycleView> = self.cycles.iter().map(|c| CycleView::new(c, &uid)).collect();
            let environment = self.environment();
            let seen = Observed {
                job: self.active_job(),
                ..Observed::new(&self.agent, &views, &environment, &self.defaults)
            };
            let plan = decide(&seen, now);
            // The end of a cycle is told by its block.
            for note in plan.notes.iter().filter(|n| n.warning && n.reason != "SawCompletedJob") {
                output::note(&format!("{}: {}: {}", self.path(), note.reason, note.text));
            }
            self.remember(&plan.status);
            self.agent.status = Some(plan.status);
            let acted = !plan.actions.is_empty();
            for action in plan.actions {
                ended.extend(self.act(action).await?);
            }
            if !plan.again && !acted {
                return Ok((plan.look_again, ended));
            }
        }
    }

    /// What the next process must know.
    fn remember(&mut self, status: &PersistentAgentStatus) {
        let now = Seen::of(status);
        if now == self.seen {
            return;
        }
        if let Err(error) = self.desk.remember(self.namespace(), self.name(), &now) {
            output::problem(&format!("{}: {error:#}", self.path()));
        }
        self.seen = now;
    }

    async fn act(&mut self, action: Action) -> anyhow::Result<Option<Ended>> {
        match action {
            Action::CreateCycle { name, spec } => {
                let cycle = owned(&self.agent, &name, *spec);
                self.cycles.push(cycle);
            }
            // Its world is another task, or another process tomorrow: it takes this up as any request.
            Action::WakePeer { peer, uid, name, spec } => {
                let mut owner = PersistentAgent::new(&peer, cicada_crds::PersistentAgentSpec::default());
                owner.metadata.namespace.clone_from(&self.agent.metadata.namespace);
                owner.metadata.uid = Some(uid);
                self.desk.ask(self.namespace(), &owned(&owner, &name, *spec))?;
            }
            Action::StartJob { lead, joined } => return self.start(&lead, &joined).await.map(Some),
            Action::StartReportJob { .. } => {
                // The child's exit code has said all that a report Job could find out here.
                if let Some(job) = &mut self.job {
                    job.report_job = Some(ReportJob::Ended(Box::new(None)));
                }
            }
            // The store is a folder here, and each cycle reads it.
            Action::StartLook => {}
            Action::SetCycle { cycle, status } => {
                self.failed |= status.phase == Some(Phase::Failed);
                if let Some(found) = self.find(&cycle) {
                    found.status = Some(*status);
                }
                // Those who wait see it start, not only end.
                self.tell_requests();
            }
            Action::DeleteCycle { cycle } => {
                self.cycles.retain(|c| c.metadata.uid.as_deref() != Some(cycle.uid.as_str()))
            }
            Action::DeleteJob { .. } => self.job = None,
            Action::SetFinalizer { present } => {
                self.agent.metadata.finalizers = present.then(|| vec![FINALIZER.to_owned()]);
            }
            // Nobody deletes an agent here: one whose manifest is gone stops, and its memory stays.
            Action::StartDeleteJob | Action::Abandon { .. } => {}
        }
        Ok(None)
    }

    /// The Job of the active cycle; one of an earlier cycle says nothing about it.
    fn active_job(&self) -> Option<&JobView> {
        let active = self.agent.status.as_ref()?.active_cycle.as_ref()?;
        self.job.as_ref().filter(|job| job.uid == active.uid)
    }

    fn find(&mut self, cycle: &CycleRef) -> Option<&mut AgentCycle> {
        self.cycles.iter_mut().find(|c| c.metadata.uid.as_deref() == Some(cycle.uid.as_str()))
    }

    /// Runs the cycle to its end: in this process there is nothing else to do for this agent meanwhile.
    async fn start(&mut self, lead: &CycleRef, joined: &[CycleRef]) -> anyhow::Result<Ended> {
        let config = self.config()?;
        let (text, sha256) = config.render();
        let refs: Vec<&CycleRef> = std::iter::once(lead).chain(joined).collect();
        let cycles: Vec<&AgentCycle> = refs
            .iter()
            .filter_map(|r| self.cycles.iter().find(|c| c.metadata.uid.as_deref() == Some(r.uid.as_str())))
            .collect();
        let run = plan_run(&self.agent, &cycles, &self.peers, &sha256);
        let plan = CyclePlan { config, run };
        let environment = secrets::environment(&plan.config, &self.secrets, self.model_url.is_some());
        let created = Timestamp::now();
        let limit = self.agent.spec.backoff_limit.unwrap_or(cicada_crds::agent::BACKOFF_LIMIT);
        let mut attempts = 1;
        let ended = loop {
            let ended = child::run(&plan, &text, &self.folder, &environment).await?;
            if !again(ended.report.class) || attempts > limit || interrupt::requested() {
                break ended;
            }
            output::note(&format!("{}: attempt {attempts} failed: {}", self.path(), ended.report.message));
            attempts += 1;
        };
        self.job = Some(JobView {
            name: names::job(&lead.name, &lead.uid),
            uid: lead.uid.clone(),
            created,
            released: created,
            started: true,
            end: Some(JobEnd {
                at: Some(Timestamp::now()),
                complete: ended.report.class.is_none(),
                exit_code: Some(i32::from(ended.report.exit_code())),
                message: Some(ended.report.render()),
                attempts,
                ..JobEnd::default()
            }),
            ..JobView::default()
        });
        if !self.quiet {
            let next = self.agent.status.as_ref().and_then(|s| s.next_schedule_time).map(|t| t.to_string());
            summary::print(&self.path(), &triggers(&plan), &ended, next.as_deref())?;
        }
        Ok(ended)
    }

    fn config(&self) -> anyhow::Result<PlanConfig> {
        let mut config = plan_config(&self.agent, &self.defaults).with_context(|| self.path())?;
        if let (Some(url), cicada_contract::plan::Executor::Model(model)) =
            (&self.model_url, &mut config.executor)
        {
            model.base_url = Some(url.clone());
        }
        Ok(config)
    }

    /// True if every cycle has ended as it should, also those that the history limits have removed.
    pub(super) fn all_succeeded(&self) -> bool {
        !self.failed && self.cycles.iter().all(|c| phase(c) == Some(Phase::Succeeded))
    }

    /// Why the agent can't run, if a person must act.
    pub(super) fn stalled(&self) -> Option<String> {
        let conditions = &self.agent.status.as_ref()?.conditions;
        let stalled =
            cicada_operator_core::conditions::find(conditions, "Stalled").filter(|c| c.status == "True")?;
        Some(format!("{}: {}: {}", self.path(), stalled.reason, stalled.message))
    }
}

/// Whether another attempt follows at once.
fn again(class: Option<FailureClass>) -> bool {
    match class {
        // Somebody wants it to end, or is there to look after the model's server: the cycle itself has tried it.
        Some(FailureClass::Disrupted | FailureClass::ModelUnavailable) => false,
        class => class.is_some_and(FailureClass::is_retryable),
    }
}

fn phase(cycle: &AgentCycle) -> Option<Phase> {
    cycle.status.as_ref().and_then(|s| s.phase)
}

fn triggers(plan: &CyclePlan) -> String {
    let name = |t: &cicada_contract::plan::Trigger| match (&t.schedule, t.slot) {
        (Some(schedule), Some(slot)) => format!("schedule {schedule} at {slot}"),
        _ => format!("{:?}", t.kind).to_lowercase(),
    };
    plan.run.triggers.iter().map(name).collect::<Vec<_>>().join(", ")
}
