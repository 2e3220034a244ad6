//! Does what was decided. Everything here can be repeated.

use std::sync::Arc;

use cicada_crds::{
    AgentCycle, AgentCycleStatus, PersistentAgent, PersistentAgentSpec, PersistentAgentStatus,
    cycle::CycleRef,
};
use cicada_operator_core::{
    decide::{Action, Note},
    deletion::{self, FINALIZER, MEMORY_LEFT},
    job::{self, JobInput, Purpose},
    names,
    observed::CycleView,
    plan::{plan_config, plan_run, store_location},
    spec::{SpecError, sizes},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Resource, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
    runtime::events::{Event, EventType},
};
use serde_json::json;

use crate::{FIELD_MANAGER, context::Context, error::Error, index::Key};

fn may_act(context: &Context) -> Result<(), Error> {
    if context.lease.may_act() { Ok(()) } else { Err(Error::NotLeader) }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }
}

/// Who owns what the operator makes. Without `blockOwnerDeletion`: it would need the right to change
/// finalizers of the owner where the admission plugin for owner references is on.
fn owner<K: Resource<DynamicType = ()>>(object: &K) -> Option<OwnerReference> {
    let mut reference = object.controller_owner_ref(&())?;
    reference.block_owner_deletion = None;
    Some(reference)
}

/// Does one action for `agent`, which was just read from the API server.
pub async fn act(
    context: &Context,
    agent: &PersistentAgent,
    cycles: &[CycleView],
    action: Action,
) -> Result<(), Error> {
    may_act(context)?;
    let namespace = agent.namespace().unwrap_or_default();
    match action {
        Action::CreateCycle { name, spec } => create_cycle(context, agent, &name, *spec).await,
        Action::StartJob { lead, joined } => {
            start_job(context, agent, cycles, &lead, &joined, Purpose::Cycle).await
        }
        Action::StartReportJob { cycle } => {
            start_job(context, agent, cycles, &cycle, &[], Purpose::Report).await
        }
        Action::StartLook => start_look(context, agent).await,
        Action::SetCycle { cycle, status } => set_cycle(context, &namespace, &cycle, &status).await,
        Action::DeleteCycle { cycle } => {
            let api = context.api::<AgentCycle>(&namespace);
            gone_is_fine(api.delete(&cycle.name, &delete_parameters(&cycle.uid)).await.map(|_| ()))?;
            context.index().remove_cycle(&Key::new(&namespace, &cycle.name), &cycle.uid, Timestamp::now());
            Ok(())
        }
        Action::DeleteJob { name, uid } => delete_job(context, &namespace, &name, &uid).await,
        Action::StartDeleteJob => start_delete_job(context, agent).await,
        // Both write the agent itself, which its next status write must know of.
        Action::SetFinalizer { .. } | Action::Abandon { .. } => Ok(()),
    }
}

/// Deletes a Job and its pods, and expects that it may be made again.
pub async fn delete_job(context: &Context, namespace: &str, name: &str, uid: &str) -> Result<(), Error> {
    let api = context.api::<Job>(namespace);
    gone_is_fine(api.delete(name, &delete_parameters(uid)).await.map(|_| ()))?;
    let key = Key::new(namespace, name);
    context.index().update_job(&key, |job| job.view.deleting = true);
    Ok(())
}

fn delete_parameters(uid: &str) -> DeleteParams {
    DeleteParams::background()
        .preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None })
}

/// Somebody else deleted it, or another object has its name by now: either way ours is gone.
fn gone_is_fine(result: Result<(), kube::Error>) -> Result<(), Error> {
    match result {
        Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => Ok(()),
        other => other.map_err(Error::from),
    }
}

async fn create_cycle(
    context: &Context,
    agent: &PersistentAgent,
    name: &str,
    spec: cicada_crds::AgentCycleSpec,
) -> Result<(), Error> {
    let namespace = agent.namespace().unwrap_or_default();
    let api = context.api::<AgentCycle>(&namespace);
    let mut cycle = AgentCycle::new(name, spec);
    cycle.metadata.owner_references = owner(agent).map(|o| vec![o]);
    cycle.metadata.labels = Some(job::labels(&agent.name_any(), None, None));
    let made = match api.create(&post(), &cycle).await {
        Ok(made) => made,
        // Ours from an earlier try, or somebody's: the next decision tells them apart by the owner.
        Err(kube::Error::Api(s)) if s.is_already_exists() => api.get(name).await?,
        Err(e) => return Err(Error::of_write("AgentCycle", e)),
    };
    context.index().put_cycle(&made, Timestamp::now());
    Ok(())
}

/// Writes the whole status of a cycle. The UID keeps it off another object of the same name.
pub async fn set_cycle(
    context: &Context,
    namespace: &str,
    cycle: &CycleRef,
    status: &AgentCycleStatus,
) -> Result<(), Error> {
    may_act(context)?;
    let status = context.schema.known("AgentCycle", status.clone());
    let body = json!({
        "apiVersion": AgentCycle::api_version(&()), "kind": AgentCycle::kind(&()),
        "metadata": {"name": cycle.name, "namespace": namespace, "uid": cycle.uid},
        "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    match context
        .api::<AgentCycle>(namespace)
        .patch_status(&cycle.name, &parameters, &Patch::Apply(&body))
        .await
    {
        Ok(written) => {
            context.index().put_cycle(&written, Timestamp::now());
            Ok(())
        }
        // Server-side apply of a missing object with a UID is a conflict.
        Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => {
            context.index().remove_cycle(&Key::new(namespace, &cycle.name), &cycle.uid, Timestamp::now());
            Ok(())
        }
        Err(e) => Err(Error::of_write("status of an AgentCycle", e)),
    }
}

/// Writes the whole status of an agent, if nobody wrote the agent since it was read.
pub async fn set_agent(
    context: &Context,
    agent: &PersistentAgent,
    status: &PersistentAgentStatus,
) -> Result<PersistentAgent, Error> {
    may_act(context)?;
    let namespace = agent.namespace().unwrap_or_default();
    let body = json!({
        "apiVersion": PersistentAgent::api_version(&()), "kind": PersistentAgent::kind(&()),
        "metadata": {
            "name": agent.name_any(), "namespace": namespace, "uid": agent.uid(),
            "resourceVersion": agent.resource_version(),
        },
        "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let api = context.api::<PersistentAgent>(&namespace);
    let written = api.patch_status(&agent.name_any(), &parameters, &Patch::Apply(&body)).await;
    let written = written.map_err(|e| Error::of_write("status of a PersistentAgent", e))?;
    context.index().put_agent(written.clone());
    Ok(written)
}

/// Creates ConfigMap and Job of a cycle.
async fn start_job(
    context: &Context,
    agent: &PersistentAgent,
    cycles: &[CycleView],
    lead: &CycleRef,
    joined: &[CycleRef],
    purpose: Purpose,
) -> Result<(), Error> {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let invalid = |e: SpecError| Error::Invalid { what: "plan", message: e.to_string() };
    let mut config = plan_config(agent, &context.config.defaults).map_err(invalid)?;
    config.owner.namespace_uid = context.index().namespace_uid(&namespace);
    let sizes = sizes(&agent.spec).map_err(invalid)?;
    let (rendered, sha256) = config.render();
    let mut objects = vec![];
    for reference in std::iter::once(lead).chain(joined) {
        let view = cycles.iter().find(|c| c.uid == reference.uid);
        if let Some(object) = object_of(context, agent, &namespace, reference, view).await? {
            objects.push(object);
        }
    }
    let Some(lead_object) = objects.first().filter(|o| o.uid().as_ref() == Some(&lead.uid)) else {
        return Err(Error::Conflict);
    };
    let references: Vec<&AgentCycle> = objects.iter().collect();
    let run = plan_run(agent, &references, &sha256);
    let run_plan = serde_json::to_string(&run).unwrap_or_default();
    ensure_config_map(context, agent, &rendered, &sha256).await?;
    let job = job::build_job(&JobInput {
        namespace: &namespace,
        agent: &name,
        spec: &agent.spec,
        sizes: &sizes,
        config: &config,
        config_sha256: &sha256,
        run_plan: &run_plan,
        mode: &run.mode,
        inline_config: None,
        name: match purpose {
            Purpose::Report => names::report_job(&lead.name, &lead.uid),
            Purpose::Cycle | Purpose::Delete => names::job(&lead.name, &lead.uid),
        },
        owner: owner(lead_object),
        cycle_uid: Some(&lead.uid),
        purpose,
        defaults: &context.config.defaults,
    });
    create_job(context, &namespace, &job, &lead.uid).await?;
    if purpose == Purpose::Cycle {
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
async fn start_look(context: &Context, agent: &PersistentAgent) -> Result<(), Error> {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let uid = agent.uid().unwrap_or_default();
    let invalid = |e: SpecError| Error::Invalid { what: "plan", message: e.to_string() };
    let mut config = plan_config(agent, &context.config.defaults).map_err(invalid)?;
    config.owner.namespace_uid = context.index().namespace_uid(&namespace);
    let (rendered, sha256) = config.render();
    let run = plan_run(agent, &[], &sha256);
    ensure_config_map(context, agent, &rendered, &sha256).await?;
    let job = job::build_job(&JobInput {
        namespace: &namespace,
        agent: &name,
        spec: &agent.spec,
        sizes: &sizes(&agent.spec).map_err(invalid)?,
        config: &config,
        config_sha256: &sha256,
        run_plan: &serde_json::to_string(&run).unwrap_or_default(),
        inline_config: None,
        name: names::look_job(&name, &uid, &store_location(&config.store)),
        owner: owner(agent),
        mode: &run.mode,
        cycle_uid: Some(&uid),
        purpose: Purpose::Report,
        defaults: &context.config.defaults,
    });
    create_job(context, &namespace, &job, &uid).await
}

/// The whole cycle. One of our own is known from its view; another's is read, since it may hold texts.
async fn object_of(
    context: &Context,
    agent: &PersistentAgent,
    namespace: &str,
    reference: &CycleRef,
    view: Option<&CycleView>,
) -> Result<Option<AgentCycle>, Error> {
    if let Some(view) = view.filter(|v| v.own) {
        let spec = cicada_crds::AgentCycleSpec {
            agent_ref: cicada_crds::cycle::AgentRef { name: agent.name_any() },
            triggers: view.triggers.clone(),
            restore: view.restore.clone().map(|snapshot| cicada_crds::cycle::CycleRestore { snapshot }),
            ..cicada_crds::AgentCycleSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(view.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: Some(view.uid.clone()),
            owner_references: owner(agent).map(|o| vec![o]),
            ..ObjectMeta::default()
        };
        return Ok(Some(AgentCycle { metadata, spec, status: None }));
    }
    let read = context.api::<AgentCycle>(namespace).get_opt(&reference.name).await?;
    Ok(read.filter(|c| c.uid().as_ref() == Some(&reference.uid)))
}

async fn ensure_config_map(
    context: &Context,
    agent: &PersistentAgent,
    rendered: &str,
    sha256: &str,
) -> Result<(), Error> {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let api = context.api::<ConfigMap>(&namespace);
    let map = job::build_config_map(&namespace, &name, rendered, sha256, owner(agent));
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
async fn start_delete_job(context: &Context, agent: &PersistentAgent) -> Result<(), Error> {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let uid = agent.uid().unwrap_or_default();
    let defaults = &context.config.defaults;
    let invalid = |e: SpecError| Error::Invalid { what: "plan", message: e.to_string() };
    let (config, run) = deletion::delete_plan(agent, defaults).map_err(invalid)?;
    // A manifest whose sizes can't be read has a memory all the same.
    let sizes = sizes(&agent.spec).or_else(|_| sizes(&PersistentAgentSpec::default())).map_err(invalid)?;
    let (rendered, sha256) = config.render();
    let job = job::build_job(&JobInput {
        namespace: &namespace,
        agent: &name,
        spec: &agent.spec,
        sizes: &sizes,
        config: &config,
        config_sha256: &sha256,
        run_plan: &serde_json::to_string(&run).unwrap_or_default(),
        mode: &run.mode,
        inline_config: Some(&rendered),
        name: names::delete_job(&name, &uid),
        owner: None,
        cycle_uid: Some(&uid),
        purpose: Purpose::Delete,
        defaults,
    });
    // Its name has the agent's UID in it, so one that is there is ours.
    make_job(context, &namespace, &job, |_| true).await
}

/// Puts our finalizer on an agent or takes it off, if nobody wrote the agent since it was read.
pub async fn set_finalizer(
    context: &Context,
    agent: &PersistentAgent,
    present: bool,
) -> Result<PersistentAgent, Error> {
    may_act(context)?;
    let mut finalizers = agent.finalizers().to_vec();
    finalizers.retain(|f| f != FINALIZER);
    finalizers.extend(present.then(|| FINALIZER.to_owned()));
    let body = json!({"metadata": {
        "uid": agent.uid(), "resourceVersion": agent.resource_version(), "finalizers": finalizers,
    }});
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let api = context.api::<PersistentAgent>(&agent.namespace().unwrap_or_default());
    match api.patch(&agent.name_any(), &parameters, &Patch::Merge(&body)).await {
        Ok(written) => {
            context.index().put_agent(written.clone());
            Ok(written)
        }
        // Gone meanwhile: there is nothing to keep or to let go.
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(agent.clone()),
        Err(e) => Err(Error::of_write("finalizer of a PersistentAgent", e)),
    }
}

/// Tells where a memory lies that was not deleted with its agent. The event is on the operator's own
/// Deployment: in a namespace that is being deleted none can be made.
pub async fn tell_of_left_memory(context: &Context, agent: &PersistentAgent, memory: &str, why: &str) {
    let path = format!("{}/{}", agent.namespace().unwrap_or_default(), agent.name_any());
    context.metrics.left_memories.inc();
    tracing::error!(agent = path, memory, why, "an agent was deleted and its memory is left behind");
    let event = Event {
        type_: EventType::Warning,
        reason: MEMORY_LEFT.to_owned(),
        note: Some(cicada_contract::text::cut(
            &format!("{path}: {why}; its memory is left at {memory}"),
            1024,
        )),
        action: "Delete".into(),
        secondary: Some(agent.object_ref(&())),
    };
    if let Err(error) = context.recorder.publish(&event, &context.lease.deployment()).await {
        tracing::warn!(agent = path, error = %error, "an event could not be written");
    }
}

/// Tells people. An event that can't be written is logged and forgotten.
pub async fn tell(context: &Context, agent: &PersistentAgent, notes: Vec<Note>) {
    let reference = agent.object_ref(&());
    for note in notes {
        let secondary = note.cycle.as_ref().map(|c| k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(AgentCycle::api_version(&()).into_owned()),
            kind: Some(AgentCycle::kind(&()).into_owned()),
            namespace: agent.namespace(),
            name: Some(c.name.clone()),
            uid: Some(c.uid.clone()),
            ..Default::default()
        });
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason.to_owned(),
            note: Some(text_of(&note, &context.config.runbook_url)),
            action: "Cycle".into(),
            secondary,
        };
        if let Err(error) = context.recorder.publish(&event, &reference).await {
            tracing::warn!(agent = %agent.name_any(), reason = note.reason, error = %error, "an event could not be written");
        }
    }
}

/// Its text, then the page that says what to do. An event takes 1024 bytes.
fn text_of(note: &Note, runbook_url: &str) -> String {
    let link = match &note.heading {
        Some(heading) if !runbook_url.is_empty() => format!(" ({runbook_url}#{})", heading.to_lowercase()),
        _ => String::new(),
    };
    format!("{}{link}", cicada_contract::text::cut(&note.text, 1024usize.saturating_sub(link.len())))
}

/// Shared by those who hold an agent over several steps.
pub type Agent = Arc<PersistentAgent>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_ends_with_the_page_that_says_what_to_do() {
        let mut note = Note {
            warning: true,
            reason: "SawCompletedJob",
            text: "x".repeat(2000),
            cycle: None,
            count: 1,
            heading: Some("MemoryMissing".into()),
        };
        let text = text_of(&note, "https://example.com/runbook.md");
        assert!(
            text.len() <= 1024 && text.ends_with(" (https://example.com/runbook.md#memorymissing)"),
            "{text}"
        );
        assert!(!text_of(&note, "").contains("memorymissing"));
        note.heading = None;
        note.text = "done".into();
        assert_eq!(text_of(&note, "https://example.com"), "done");
    }
}
