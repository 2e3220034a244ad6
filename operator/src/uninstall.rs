//! Before the operator is uninstalled: takes its finalizer off all agents, which nobody would take off later, and
//! tells where their memories lie.
//!
//! A running operator would put the finalizer back, so its Lease is taken first. It is not given back: after it
//! has run out, an operator that was not uninstalled after all goes on as before.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use cicada_contract::text::cut;
use cicada_crds::PersistentAgent;
use cicada_operator_core::deletion::{self, FINALIZER, MEMORY_LEFT};
use jiff::Timestamp;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::{DeserializeGuard, PartialObjectMeta},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    FIELD_MANAGER,
    args::Instance,
    config::Config,
    lease::{Holder, RENEW, TRUST},
};

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time for all of it; the chart's Job has a little more.
const LIMIT: Duration = Duration::from_secs(50);
/// How it calls itself in the Lease: it holds it, and leads nobody.
pub(crate) const IDENTITY: &str = "uninstall-";
/// Why a memory stays.
const WHY: &str = "the operator is uninstalled, so that the memory does not go with the agent";

type Guarded = DeserializeGuard<PersistentAgent>;

/// What this is about.
struct Installation {
    client: Client,
    config: Config,
    lease: Holder,
    recorder: Recorder,
    namespaces: Vec<String>,
    /// Its name in the status of its agents.
    instance: String,
}

/// Runs the command.
pub fn run(instance: &Instance) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let installation = Installation::new(instance).await?;
        tokio::time::timeout(LIMIT, installation.end())
            .await
            .context("not all finalizers went in time; run it again")?
    })
}

impl Installation {
    async fn new(instance: &Instance) -> anyhow::Result<Self> {
        let config = Config::load(instance.config.as_deref())?;
        let kube_config =
            kube::Config::infer().await.context("found neither a service account nor a kubeconfig")?;
        let client = Client::try_from(kube_config.clone()).context("could not make a client")?;
        let identity = format!("{IDENTITY}{}", std::process::id());
        let reporter = Reporter { controller: FIELD_MANAGER.into(), instance: Some(identity.clone()) };
        Ok(Self {
            config,
            lease: Holder::new(client.clone(), kube_config, &instance.namespace, &instance.lease, &identity),
            recorder: Recorder::new(client.clone(), reporter),
            client,
            instance: instance.name(),
            namespaces: instance.namespaces(),
        })
    }

    async fn end(&self) -> anyhow::Result<ExitCode> {
        if !self.agents().await?.iter().any(|agent| self.is_ours(agent) && is_concerned(agent)) {
            tracing::info!("no agent has the finalizer {FINALIZER}");
            return Ok(ExitCode::SUCCESS);
        }
        while !self.lease.seize(Timestamp::now()).await.context("could not take the Lease")? {
            tokio::time::sleep(PAUSE).await;
        }
        let (seized, mut renewed, mut told) = (Instant::now(), Instant::now(), HashSet::new());
        loop {
            let looked = Instant::now();
            let kept: Vec<_> =
                self.agents().await?.into_iter().filter(|a| self.is_ours(a) && is_kept(a)).collect();
            // Who led before may have written until here; a look after that shows what stays so.
            if kept.is_empty() && looked.duration_since(seized) > TRUST {
                tracing::info!(agents = told.len(), "no agent has the finalizer {FINALIZER} any more");
                return Ok(ExitCode::SUCCESS);
            }
            for agent in kept {
                // First of all: afterwards nobody knows of it any more.
                if told.insert(agent.uid()) {
                    self.tell(&agent).await;
                }
                self.let_go(&agent).await?;
            }
            if renewed.elapsed() > RENEW {
                renewed = Instant::now();
                self.lease.seize(Timestamp::now()).await.context("could not renew the Lease")?;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// No other installation works on it: that one goes on.
    fn is_ours(&self, agent: &Guarded) -> bool {
        let operator = |agent: &PersistentAgent| agent.status.as_ref()?.operator.clone();
        agent.0.as_ref().ok().and_then(operator).is_none_or(|name| name == self.instance)
    }

    async fn agents(&self) -> anyhow::Result<Vec<Guarded>> {
        let mut all = vec![];
        if self.namespaces.is_empty() {
            all = listed(Api::all(self.client.clone())).await?;
        }
        for namespace in &self.namespaces {
            all.extend(listed(Api::namespaced(self.client.clone(), namespace)).await?);
        }
        Ok(all)
    }

    /// Takes the finalizer off, unless somebody else wrote the agent meanwhile, which the next look sees.
    async fn let_go(&self, agent: &Guarded) -> anyhow::Result<()> {
        let finalizers: Vec<_> = agent.finalizers().iter().filter(|f| *f != FINALIZER).collect();
        let body = json!({"metadata": {
            "uid": agent.uid(), "resourceVersion": agent.resource_version(), "finalizers": finalizers,
        }});
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let api: Api<PartialObjectMeta<PersistentAgent>> =
            Api::namespaced(self.client.clone(), &agent.namespace().unwrap_or_default());
        match api.patch_metadata(&agent.name_any(), &parameters, &Patch::Merge(&body)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => Ok(()),
            Err(error) => {
                let path = path_of(agent);
                Err(error).with_context(|| format!("could not take the finalizer off {path}"))
            }
        }
    }

    /// By a line of the log, which Helm shows, and by an event, which stays for a while.
    async fn tell(&self, agent: &Guarded) {
        let path = path_of(agent);
        let memory = match &agent.0 {
            Ok(agent) => deletion::left_behind(agent, &self.config.defaults),
            Err(_) => format!("{path}/ in the store that the agent has"),
        };
        tracing::warn!(agent = path, memory, "{WHY}");
        let event = Event {
            type_: EventType::Warning,
            reason: MEMORY_LEFT.to_owned(),
            note: Some(cut(&format!("{path}: {WHY}: {memory}"), 1024)),
            action: "Uninstall".into(),
            secondary: agent.0.as_ref().ok().map(|agent| agent.object_ref(&())),
        };
        if let Err(error) = self.recorder.publish(&event, &self.lease.deployment().await).await {
            tracing::warn!(agent = path, error = %error, "an event could not be written");
        }
    }
}

fn is_kept(agent: &Guarded) -> bool {
    agent.finalizers().iter().any(|f| f == FINALIZER)
}

/// It has the finalizer, or a running operator may be about to put it on.
fn is_concerned(agent: &Guarded) -> bool {
    is_kept(agent) || agent.0.as_ref().is_ok_and(deletion::deletes)
}

fn path_of(agent: &Guarded) -> String {
    format!("{}/{}", agent.namespace().unwrap_or_default(), agent.name_any())
}

/// All agents there; none where the definitions, the namespace or our rights in it have gone already.
async fn listed(api: Api<Guarded>) -> anyhow::Result<Vec<Guarded>> {
    let mut all = vec![];
    let mut parameters = ListParams::default().limit(500);
    loop {
        let page = match api.list(&parameters).await {
            Ok(page) => page,
            Err(kube::Error::Api(s)) if s.is_not_found() || s.is_forbidden() => {
                tracing::warn!(error = %s.message, "agents can't be listed; none is let go there");
                return Ok(all);
            }
            Err(error) => return Err(error).context("could not list agents"),
        };
        all.extend(page.items);
        match page.metadata.continue_.filter(|c| !c.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(all),
        }
    }
}
