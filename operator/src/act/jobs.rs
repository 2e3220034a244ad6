//! The Jobs of cycles, looks and deletions, with the ConfigMap that holds their plan.

use cicada_contract::{PlanConfig, PlanRun};
use cicada_crds::{AgentCycle, PersistentAgent, PersistentAgentSpec, cycle::CycleRef};
use cicada_operator_core::{
    deletion,
    job::{self, JobInput, Purpose},
    names,
    observed::CycleView,
    plan::{plan_config, plan_run, store_location},
    spec::{Sizes, sizes},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt as _, api::ObjectMeta};

use super::{Known, may_act, owner, post};
use crate::{context::Context, error::Error};

/// The plan's config part, as it is and as it is written, and the numbers of the Job.
struct Planned {
    config: PlanConfig,
    rendered: String,
    sha256: String,
    sizes: Sizes,
}

/// What one Job has of its own.
struct Wanted<'a> {
    name: String,
    owner: Option<OwnerReference>,
    /// Of the cycle, or of the agent where there is none.
    uid: &'a str,
    purpose: Purpose,
    joined: &'a [CycleRef],
}

impl Planned {
    fn new(config: PlanConfig, sizes: Sizes) -> Self {
        let (rendered, sha256) = config.render();
        Self { config, rendered, sha256, sizes }
    }

    /// With what the manifest alone does not say.
    fn of(context: &Context, agent: &PersistentAgent) -> Result<Self, Error> {
        let mut config = plan_config(agent, &context.config.defaults)?;
        config.owner.namespace_uid = context.index().namespace_uid(&agent.namespace().unwrap_or_default());
        Ok(Self::new(config, sizes(&agent.spec)?))
    }

    fn job(&self, context: &Context, agent: &PersistentAgent, run: &PlanRun, wanted: Wanted<'_>) -> Job {
        let Wanted { name, owner, uid, purpose, joined } = wanted;
        job::build_job(&JobInput {
            namespace: &agent.namespace().unwrap_or_default(),
            agent: &agent.name_any(),
            spec: &agent.spec,
            sizes: &self.sizes,
            config: &self.config,
            config_sha256: &self.sha256,
            run_plan: &serde_json::to_string(run).unwrap_or_default(),
            mode: &run.mode,
            // Its ConfigMap goes with the agent.
            inline_config: (purpose == Purpose::Delete).then_some(self.rendered.as_str()),
            name,
            owner,
            cycle_uid: Some(uid),
            purpose,
            joined,
            defaults: &context.config.defaults,
        })
    }
}

/// Creates ConfigMap and Job of a cycle. Cycles that ended or went meanwhile are not in it.
pub(super) async fn start_job(
    context: &Context,
    agent: &PersistentAgent,
    known: Known<'_>,
    lead: &CycleRef,
    joined: &[CycleRef],
    purpose: Purpose,
) -> Result<(), Error> {
    let namespace = agent.namespace().unwrap_or_default();
    let planned = Planned::of(context, agent)?;
    let mut objects = vec![];
    for reference in std::iter::once(lead).chain(joined) {
        if let Some(object) = object_of(context, agent, known, reference).await? {
            objects.push(object);
        }
    }
    let Some(lead_object) = objects.first().filter(|o| o.uid().as_ref() == Some(&lead.uid)) else {
        return Err(Error::Conflict);
    };
    let references: Vec<&AgentCycle> = objects.iter().collect();
    let reference = |c: &AgentCycle| CycleRef { name: c.name_any(), uid: c.uid().unwrap_or_default() };
    let joined: Vec<CycleRef> = objects.iter().skip(1).map(reference).collect();
    let there = context.index().peers(agent, &context.config.defaults);
    let run = plan_run(agent, &references, &there, &planned.sha256);
    ensure_config_map(context, agent, &planned).await?;
    let name = match purpose {
        Purpose::Report => names::report_job(&lead.name, &lead.uid),
        Purpose::Cycle | Purpose::Delete => names::job(&lead.name, &lead.uid),
    };
    let job = planned.job(
        context,
        agent,
        &run,
        Wanted { name, owner: owner(lead_object), uid: &lead.uid, purpose, joined: &joined },
    );
    create_job(context, &namespace, &job, &lead.uid).await?;
    if purpose == Purpose::Cycle {
        let path = format!("{namespace}/{}", agent.name_any());
        let (cycle, job) = (&lead.name, job.name_any());
        tracing::info!(
            agent = path,
            cycle,
            cycle_uid = lead.uid,
            job,
            joined = joined.len(),
            "a cycle started"
        );
        let slots = objects.iter().flat_map(|c| &c.spec.triggers).filter_map(|t| t.slot);
        let now = Timestamp::now();
        for slot in slots {
            context.metrics.creation_skew_seconds.observe(now.duration_since(slot).as_secs_f64());
        }
    }
    Ok(())
}

/// Creates ConfigMap and Job of a look into the store. It belongs to the agent, and has its UID in the place
/// of a cycle's.
pub(super) async fn start_look(context: &Context, agent: &PersistentAgent) -> Result<(), Error> {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let uid = agent.uid().unwrap_or_default();
    let planned = Planned::of(context, agent)?;
    let run = plan_run(agent, &[], &[], &planned.sha256);
    ensure_config_map(context, agent, &planned).await?;
    let name = names::look_job(&name, &uid, &store_location(&planned.config.store));
    let wanted = Wanted { name, owner: owner(agent), uid: &uid, purpose: Purpose::Report, joined: &[] };
    let job = planned.job(context, agent, &run, wanted);
    create_job(context, &namespace, &job, &uid).await
}

/// The whole cycle, unless it has ended or gone. One that was made in this very look is known from its view. Any
/// other is read: it may hold texts, and another replica may have run it since the watch last told of it. That is
/// over once the agent is ours, and a replica ends its cycles before it lets the agent go.
async fn object_of(
    context: &Context,
    agent: &PersistentAgent,
    known: Known<'_>,
    reference: &CycleRef,
) -> Result<Option<AgentCycle>, Error> {
    let namespace = agent.namespace().unwrap_or_default();
    let view = known.cycles.iter().find(|c| c.uid == reference.uid);
    if let Some(view) = view.filter(|v| v.own && known.made.contains(&v.name)) {
        let spec = cicada_crds::AgentCycleSpec {
            agent_ref: cicada_crds::cycle::AgentRef { name: agent.name_any() },
            triggers: view.triggers.clone(),
            restore: view.restore.clone().map(|snapshot| cicada_crds::cycle::CycleRestore { snapshot }),
            ..cicada_crds::AgentCycleSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(view.name.clone()),
            namespace: Some(namespace),
            uid: Some(view.uid.clone()),
            owner_references: owner(agent).map(|o| vec![o]),
            ..ObjectMeta::default()
        };
        return Ok(Some(AgentCycle { metadata, spec, status: None }));
    }
    let read = context.api::<AgentCycle>(&namespace).get_opt(&reference.name).await?;
    let read = read.filter(|c| c.uid().as_ref() == Some(&reference.uid));
    if let Some(read) = &read {
        context.index().put_cycle(read, Timestamp::now());
    }
    Ok(read.filter(|c| !CycleView::new(c, "").is_terminal()))
}

async fn ensure_config_map(
    context: &Context,
    agent: &PersistentAgent,
    planned: &Planned,
) -> Result<(), Error> {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let api = context.api::<ConfigMap>(&namespace);
    let map = job::build_config_map(&namespace, &name, &planned.rendered, &planned.sha256, owner(agent));
    // A read is cheaper than a refused write, and all cycles but the first of a manifest find it.
    if let Some(found) = api.get_opt(&map.name_any()).await? {
        return same_content(&found, &map);
    }
    match api.create(&post(), &map).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(s)) if s.is_already_exists() => {
            same_content(&api.get(&map.name_any()).await?, &map)
        }
        Err(e) => Err(Error::of_write("ConfigMap", e)),
    }
}

fn same_content(found: &ConfigMap, wanted: &ConfigMap) -> Result<(), Error> {
    if found.data == wanted.data {
        Ok(())
    } else {
        Err(Error::Foreign { what: "ConfigMap", name: wanted.name_any() })
    }
}

async fn create_job(context: &Context, namespace: &str, job: &Job, cycle_uid: &str) -> Result<(), Error> {
    may_act(context)?;
    make_job(context, namespace, job, |found| found.owner_references().iter().any(|o| o.uid == cycle_uid))
        .await
}

/// Creates a Job, or takes the one that is there already for what an earlier try made, if it is ours.
async fn make_job(
    context: &Context,
    namespace: &str,
    job: &Job,
    is_ours: impl FnOnce(&Job) -> bool,
) -> Result<(), Error> {
    let api = context.api::<Job>(namespace);
    let made = match api.create(&post(), job).await {
        Ok(made) => made,
        Err(kube::Error::Api(s)) if s.is_already_exists() => {
            let found = api.get(&job.name_any()).await?;
            if !is_ours(&found) {
                return Err(Error::Foreign { what: "Job", name: job.name_any() });
            }
            if found.metadata.deletion_timestamp.is_some() {
                // The one before it has not gone yet.
                return Err(Error::Conflict);
            }
            found
        }
        Err(e) => return Err(Error::of_write("Job", e)),
    };
    context.index().put_job(&made);
    Ok(())
}

/// Creates the Job that deletes an agent's memory. It carries its whole plan and belongs to nobody: with the
/// agent's objects gone it still ends its work.
pub(super) async fn start_delete_job(context: &Context, agent: &PersistentAgent) -> Result<(), Error> {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let uid = agent.uid().unwrap_or_default();
    let (config, run) = deletion::delete_plan(agent, &context.config.defaults)?;
    // A manifest whose sizes can't be read has a memory all the same.
    let sizes = sizes(&agent.spec).or_else(|_| sizes(&PersistentAgentSpec::default()))?;
    let name = names::delete_job(&name, &uid);
    let wanted = Wanted { name, owner: None, uid: &uid, purpose: Purpose::Delete, joined: &[] };
    let job = Planned::new(config, sizes).job(context, agent, &run, wanted);
    // Its name has the agent's UID in it, so one that is there is ours.
    make_job(context, &namespace, &job, |_| true).await
}
