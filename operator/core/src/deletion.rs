//! An agent whose memory goes with it: the finalizer that keeps it until its delete Job is done.
//!
//! A namespace that is being deleted must not wait for a memory: where no Job can be made, or none can work,
//! the finalizer goes all the same, and people are told where the memory lies and how to remove it.

use cicada_contract::plan::{
    CycleIdentity, Executor, PLAN_VERSION, PlanConfig, PlanRun, SqlSource, StoreConfig,
};
use cicada_contract::{FailureClass, plan::Expect, plan::Mode};
use cicada_crds::{PersistentAgent, store::DeletionPolicy};
use jiff::SignedDuration;

use crate::{
    active::FIRST_LOOK,
    decide::{Action, Step},
    memory_status,
    plan::{owner, store_config},
    result::{Asked, JobEnd, Verdict, judge},
    spec::{OperatorDefaults, SpecError},
};

/// Our finalizer, the one thing that the operator ever writes into the metadata of a user's object.
pub const FINALIZER: &str = "cicada.dev/delete";
/// Reason of the event that tells of a memory that was not deleted with its agent.
pub const MEMORY_LEFT: &str = "MemoryLeftBehind";
/// After this long an agent goes without its memory.
const GIVE_UP_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// The manifest says that the memory goes with the agent.
pub fn deletes(agent: &PersistentAgent) -> bool {
    agent.spec.memory.as_ref().and_then(|m| m.deletion_policy) == Some(DeletionPolicy::Delete)
}

/// True if our finalizer is on the agent.
pub fn is_kept(agent: &PersistentAgent) -> bool {
    agent.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER)
}

/// While it lives: the finalizer is there as long as the manifest says Delete.
pub(crate) fn keep(step: &mut Step<'_>) {
    if step.seen.environment.namespace_ends {
        return leave_with_namespace(step);
    }
    let wanted = deletes(step.seen.agent);
    if wanted != is_kept(step.seen.agent) {
        step.actions.push(Action::SetFinalizer { present: wanted });
        step.again = true;
    }
}

/// It is being deleted.
pub(crate) fn proceed(step: &mut Step<'_>) {
    let agent = step.seen.agent;
    let Some(since) = agent.metadata.deletion_timestamp.as_ref().map(|t| t.0) else { return };
    if !is_kept(agent) {
        return;
    }
    if !deletes(agent) {
        // Somebody changed their mind in time.
        step.actions.push(Action::SetFinalizer { present: false });
        return;
    }
    let done = step.seen.delete_job.and_then(|job| job.end.as_ref()).is_some_and(|end| end.complete);
    if step.seen.environment.namespace_ends && !done {
        return leave_with_namespace(step);
    }
    let give_up_at = since + GIVE_UP_AFTER;
    if let Some(why) = &step.seen.delete_refused {
        return abandon(step, why);
    }
    match step.seen.delete_job {
        Some(job) if job.end.is_some() => ended(step, &job.name, &job.uid, job.end.as_ref()),
        Some(_) | None if step.now >= give_up_at => abandon(step, "it took longer than 10 minutes"),
        Some(_) => {}
        None => step.actions.push(Action::StartDeleteJob),
    }
    step.look_again_at(give_up_at);
    step.look_again_at(step.now + FIRST_LOOK);
}

fn ended(step: &mut Step<'_>, name: &str, uid: &str, end: Option<&JobEnd>) {
    let Some(end) = end else { return };
    if end.complete {
        step.note(false, "MemoryDeleted", "the memory was deleted with its agent".into(), None);
        match memory_status::moved(step) {
            Some((from, to)) => {
                let memory = format!("{from}, under {}", path(step.seen.agent));
                let why = format!("the store of its agent was changed to {to}, where nothing is left");
                step.actions.push(Action::Abandon { memory, why });
            }
            None => step.actions.push(Action::SetFinalizer { present: false }),
        }
        return;
    }
    let Verdict::Ended(how) = judge(end, Asked::InVain) else { return };
    let may_help = how.class.is_none_or(FailureClass::is_retryable);
    let since = step.seen.agent.metadata.deletion_timestamp.as_ref().map_or(step.now, |t| t.0);
    if may_help && step.now < since + GIVE_UP_AFTER {
        step.actions.push(Action::DeleteJob { name: name.to_owned(), uid: uid.to_owned() });
        step.again = true;
    } else {
        abandon(step, &format!("{}: {}", how.reason, how.message));
    }
}

/// No Job can be made in a namespace that is being deleted, and it takes what the operator may do there with
/// it: its Role goes in the same sweep as the agents. Before that Kubernetes waits some seconds.
fn leave_with_namespace(step: &mut Step<'_>) {
    if is_kept(step.seen.agent) {
        abandon(step, "its namespace is being deleted");
    }
}

fn abandon(step: &mut Step<'_>, why: &str) {
    let mut memory = left_behind(step.seen.agent, step.seen.defaults);
    if let Some((from, _)) = memory_status::moved(step) {
        memory = format!("{memory}; before its store was changed: {from}, under {}", path(step.seen.agent));
    }
    step.actions.push(Action::Abandon { memory, why: why.to_owned() });
}

/// Its place below the prefix of its store.
fn path(agent: &PersistentAgent) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&agent.metadata.namespace), part(&agent.metadata.name))
}

/// Where an agent's memory lies, and how to remove it without an operator.
pub fn left_behind(agent: &PersistentAgent, defaults: &OperatorDefaults) -> String {
    let path = path(agent);
    match store_config(&agent.spec, defaults) {
        Ok(store) => leftover(&store, &path),
        Err(_) => format!("{path}/ in the store that the agent had"),
    }
}

/// Where a memory lies, and the command that removes it with no help of ours.
fn leftover(store: &StoreConfig, path: &str) -> String {
    match store {
        StoreConfig::S3(s3) => {
            let prefix = if s3.prefix.is_empty() { String::new() } else { format!("{}/", s3.prefix) };
            let endpoint = s3.endpoint.as_ref().map(|e| format!(" --endpoint-url {e}")).unwrap_or_default();
            let location = format!("s3://{}/{prefix}{path}/", s3.bucket);
            format!("{location}; to remove it: aws s3 rm --recursive {location}{endpoint}")
        }
        StoreConfig::Directory { path: root, claim_name } => {
            let claim = claim_name.as_ref().map(|c| format!(" in claim {c}")).unwrap_or_default();
            format!("{root}/{path}{claim}; to remove it: rm -r {root}/{path}")
        }
    }
}

/// Both parts of the plan of a delete Job: all that it needs is to know whose memory lies where.
pub fn delete_plan(
    agent: &PersistentAgent,
    defaults: &OperatorDefaults,
) -> Result<(PlanConfig, PlanRun), SpecError> {
    let store = store_config(&agent.spec, defaults)?;
    let config =
        PlanConfig::new(owner(agent, defaults), store, Executor::Sql(SqlSource::Inline(String::new())));
    let uid = agent.metadata.uid.clone().unwrap_or_default();
    let run = PlanRun {
        version: PLAN_VERSION,
        config_sha256: config.render().1,
        cycle: CycleIdentity {
            name: format!("{}-delete", agent.metadata.name.as_deref().unwrap_or_default()),
            uid: format!("{uid}-delete"),
        },
        triggers: vec![],
        instructions: vec![],
        messages: vec![],
        approvals: vec![],
        unreachable_peers: vec![],
        expect: Expect::default(),
        mode: Mode::Delete,
    };
    Ok((config, run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cicada_contract::plan::S3Config;

    #[test]
    fn what_is_left_behind_is_named_with_a_command_that_removes_it() {
        let s3 = S3Config {
            bucket: "b".into(),
            prefix: "p".into(),
            endpoint: Some("http://x".into()),
            ..S3Config::default()
        };
        assert_eq!(
            leftover(&StoreConfig::S3(s3), "shop/clerk"),
            "s3://b/p/shop/clerk/; to remove it: aws s3 rm --recursive s3://b/p/shop/clerk/ --endpoint-url http://x"
        );
        let directory = StoreConfig::Directory { path: "/store".into(), claim_name: Some("c".into()) };
        assert_eq!(leftover(&directory, "n/a"), "/store/n/a in claim c; to remove it: rm -r /store/n/a");
    }
}
