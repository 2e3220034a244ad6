//! Does what was decided. Everything here can be repeated.

mod jobs;
mod tell;

use std::sync::Arc;

use cicada_crds::{AgentCycle, AgentCycleStatus, PersistentAgent, PersistentAgentStatus, cycle::CycleRef};
use cicada_operator_core::{
    decide::Action,
    deletion::FINALIZER,
    job::{self, Purpose},
    observed::CycleView,
};
use jiff::Timestamp;
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;

use self::jobs::{start_delete_job, start_job, start_look};
pub use self::tell::{log_end, tell, tell_of_foreign, tell_of_left_memory, tell_of_stray};
use crate::{FIELD_MANAGER, context::Context, error::Error, index::Key};

/// What is known of an agent's cycles while a decision is acted on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// As they were when it was decided.
    pub cycles: &'a [CycleView],
    /// Names of those that were made in this look: nobody else has run them, since the agent was read before.
    pub made: &'a [String],
}

impl Known<'_> {
    /// resourceVersion of a cycle when it was decided; 0 = not known.
    fn version(&self, uid: &str) -> u64 {
        self.cycles.iter().find(|c| c.uid == uid).map_or(0, |c| c.version)
    }
}

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
    known: Known<'_>,
    action: Action,
) -> Result<(), Error> {
    may_act(context)?;
    let namespace = agent.namespace().unwrap_or_default();
    match action {
        Action::CreateCycle { name, spec } => create_cycle(context, agent, &name, *spec).await,
        Action::WakePeer { peer, uid, name, spec } => {
            wake_peer(context, &Key::new(&namespace, &peer), &uid, &name, *spec).await
        }
        Action::StartJob { lead, joined } => {
            start_job(context, agent, known, &lead, &joined, Purpose::Cycle).await
        }
        Action::StartReportJob { cycle } => {
            start_job(context, agent, known, &cycle, &[], Purpose::Report).await
        }
        Action::StartLook => start_look(context, agent).await,
        Action::SetCycle { cycle, status } => {
            set_cycle(context, &namespace, &cycle, known.version(&cycle.uid), &status).await
        }
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

/// Makes the cycle in which another agent reads what this one sent it. One that is refused (by a quota, say) must
/// not keep the sender from going on: the message is in the inbox, and the next cycle reads it.
async fn wake_peer(
    context: &Context,
    peer: &Key,
    uid: &str,
    name: &str,
    spec: cicada_crds::AgentCycleSpec,
) -> Result<(), Error> {
    let found = { context.index().agent(peer) };
    let Some(agent) = found.filter(|a| a.uid().as_deref() == Some(uid)) else { return Ok(()) };
    match create_cycle(context, &agent, name, spec).await {
        Err(error @ (Error::Forbidden { .. } | Error::Invalid { .. })) => {
            tracing::warn!(agent = %peer, cycle = name, error = %error, "a peer could not be woken; it reads its messages at its next cycle");
            Ok(())
        }
        other => other,
    }
}

/// Writes the whole status of a cycle, if nobody wrote the cycle since it was `seen`, by its resourceVersion (0 = it
/// was not): what was decided on an older view, that it waits or whom it takes along, never replaces what another
/// replica has made of it since. The UID keeps it off another object of the same name.
pub async fn set_cycle(
    context: &Context,
    namespace: &str,
    cycle: &CycleRef,
    seen: u64,
    status: &AgentCycleStatus,
) -> Result<(), Error> {
    may_act(context)?;
    let status = context.schema.known("AgentCycle", status.clone());
    let mut body = json!({
        "apiVersion": AgentCycle::api_version(&()), "kind": AgentCycle::kind(&()),
        "metadata": {"name": cycle.name, "namespace": namespace, "uid": cycle.uid},
        "status": status,
    });
    if seen > 0 {
        body["metadata"]["resourceVersion"] = seen.to_string().into();
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let api = context.api::<AgentCycle>(namespace);
    match api.patch_status(&cycle.name, &parameters, &Patch::Apply(&body)).await {
        Ok(written) => {
            context.index().put_cycle(&written, Timestamp::now());
            Ok(())
        }
        // Server-side apply of a missing object with a UID is a conflict, too.
        Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => {
            let read = api.get_opt(&cycle.name).await?;
            refused(context, &Key::new(namespace, &cycle.name), &cycle.uid, read)
        }
        Err(e) => Err(status_refused(context, "status of an AgentCycle", e)),
    }
}

/// Definitions that were replaced by older ones refuse what they do not know.
fn status_refused(context: &Context, what: &'static str, error: kube::Error) -> Error {
    if matches!(&error, kube::Error::Api(s) if !s.is_conflict() && !s.is_not_found()) {
        context.schema.doubt();
    }
    Error::of_write(what, error)
}

/// Takes in why a cycle's status was refused: another writer was faster, or the cycle has gone, which is fine.
fn refused(context: &Context, key: &Key, uid: &str, read: Option<AgentCycle>) -> Result<(), Error> {
    let now = Timestamp::now();
    match read.filter(|c| c.uid().as_deref() == Some(uid)) {
        Some(read) => {
            context.index().put_cycle(&read, now);
            Err(Error::Conflict)
        }
        None => {
            context.index().remove_cycle(key, uid, now);
            Ok(())
        }
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
    let written = written.map_err(|e| status_refused(context, "status of a PersistentAgent", e))?;
    context.index().put_agent(written.clone());
    Ok(written)
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

/// Shared by those who hold an agent over several steps.
pub type Agent = Arc<PersistentAgent>;
