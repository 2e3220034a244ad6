//! One look at one agent: observe, decide, act, until there is nothing left to do.

use std::sync::Arc;
use std::time::Duration;

use cicada_contract::text::cut;
use cicada_crds::{
    AgentCycle, PersistentAgent,
    cycle::{CycleRef, Phase},
};
use cicada_operator_core::{
    Action, Observed, Plan, active, cycle_status, decide,
    decide::end_active,
    deletion,
    job::Purpose,
    observed::{CycleView, Environment, JobView},
    result::CycleEnd,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use crate::{
    act,
    context::Context,
    error::Error,
    foreign,
    index::{Index, Key},
    numbers, observe,
};

/// Most steps in one look. A cycle's way takes four; more means that something does not settle.
const STEPS: usize = 12;
/// Longest look. The requests in it have no timeout of their own.
const TIMEOUT: Duration = Duration::from_mins(1);
/// A cycle may come before its agent (`kubectl apply` of a folder); after this long it has none.
const ORPHAN_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// An agent of another instance is looked at again after this long: that instance may have gone.
const FOREIGN_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// A forbidden Job (quota, policy) is tried again after this long.
const FORBIDDEN_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// Looks at an agent; returns when to look again, if anything but a change makes that worth it.
pub async fn reconcile(context: &Context, key: &Key) -> Result<Option<Timestamp>, Error> {
    tokio::time::timeout(TIMEOUT, Box::pin(steps(context, key)))
        .await
        .unwrap_or(Err(Error::Timeout(TIMEOUT.as_secs())))
}

async fn steps(context: &Context, key: &Key) -> Result<Option<Timestamp>, Error> {
    let Some(mut agent) = ({ context.index().agent(key) }) else { return orphans(context, key).await };
    let (mut fresh, mut made) = (false, vec![]);
    for _ in 0..STEPS {
        let now = Timestamp::now();
        // Of what was read, too: another instance may have been faster than the index.
        if foreign::is_at_work(context, key, &agent).await {
            context.metrics.agents.forget(key);
            return Ok(Some(now + FOREIGN_WAIT));
        }
        let (plan, cycles) = observe_and_decide(context, key, &agent, None, now).await?;
        let changed = agent.status.clone().unwrap_or_default() != plan.status;
        if plan.actions.is_empty() && !changed {
            numbers::note(context, key, &agent);
            return Ok(plan.look_again);
        }
        if !fresh {
            // The index is a hint: what is written is decided on the object itself, with all its texts.
            let read = context.api::<PersistentAgent>(&key.namespace).get_opt(&key.name).await?;
            let Some(read) = read else {
                context.index().remove_agent(key, agent.uid().as_deref(), now);
                return orphans(context, key).await;
            };
            context.index().put_agent(read.clone());
            agent = Arc::new(read);
            fresh = true;
            continue;
        }
        let (again, look_again) = (plan.again, plan.look_again);
        made.extend(plan.actions.iter().filter_map(Action::creates));
        let known = act::Known { cycles: &cycles, made: &made };
        match apply(context, &mut agent, known, plan, changed).await {
            Ok(()) if again => {}
            Ok(()) => return Ok(look_again),
            Err(Error::Conflict) => {
                context.metrics.api_conflicts.inc();
                return Err(Error::Conflict);
            }
            Err(error) => return explain(context, key, &mut agent, error, now).await.map(Some),
        }
    }
    tracing::warn!(agent = %key, "an agent does not settle; it is looked at again in a minute");
    Ok(Some(Timestamp::now() + SignedDuration::from_secs(60)))
}

async fn observe_and_decide(
    context: &Context,
    key: &Key,
    agent: &PersistentAgent,
    delete_refused: Option<String>,
    now: Timestamp,
) -> Result<(Plan, Vec<CycleView>), Error> {
    let uid = agent.uid().unwrap_or_default();
    let active = agent.status.as_ref().and_then(|s| s.active_cycle.as_ref()).map(|a| a.uid.clone());
    let job = match &active {
        Some(cycle) => observe::job(context, cycle, now).await?,
        None => None,
    };
    let delete_job = match &agent.metadata.deletion_timestamp {
        Some(_) => observe::delete_job(context, &uid).await?,
        None => None,
    };
    let look = observe::look(context, &uid).await?;
    know_active_cycles(context, key, agent, job.as_ref()).await?;
    let (cycles, environment, job_vanished) = {
        let index = context.index();
        let cycles = index.cycles(key, &uid);
        let environment = environment(context, &index, key, agent, &cycles);
        (cycles, environment, active.as_ref().is_some_and(|c| index.job_vanished(c)))
    };
    let seen = Observed {
        job: job.as_ref(),
        job_vanished,
        delete_job: delete_job.as_ref(),
        delete_refused,
        look: look.as_ref(),
        ..Observed::new(agent, &cycles, &environment, &context.config.defaults)
    };
    let mut plan = decide(&seen, now);
    plan.status = context.schema.known("PersistentAgent", plan.status);
    Ok((plan, cycles))
}

/// All that is known beside the agent, its cycles and Jobs.
fn environment(
    context: &Context,
    index: &Index,
    key: &Key,
    agent: &PersistentAgent,
    cycles: &[CycleView],
) -> Environment {
    let since = cycles.iter().filter(|c| !c.is_terminal() && !c.deleting).map(|c| c.created).min();
    Environment {
        hold: context.config.hold.clone().or_else(|| index.hold(&key.namespace)),
        full: index.is_full(key, since, &context.config.capacity),
        looks: true,
        instance: Some(context.instance.clone()),
        shares_credentials: index.shares_credentials(key, &context.config.defaults),
        charter_sha256: index.charter_sha256(key),
        namespace_ends: context.spaces.is_ending(&key.namespace),
        peers: index.peers(agent, &context.config.defaults),
    }
}

/// An active cycle that the index lacks was deleted, which ends its Job, and one that joined it would stay without an
/// end: either is only believed of the API server itself, since the index may be behind.
async fn know_active_cycles(
    context: &Context,
    key: &Key,
    agent: &PersistentAgent,
    job: Option<&JobView>,
) -> Result<(), Error> {
    let Some(active) = agent.status.as_ref().and_then(|s| s.active_cycle.as_ref()) else { return Ok(()) };
    let lead = CycleRef { name: active.name.clone(), uid: active.uid.clone() };
    let joined = job.and_then(|job| job.joined.as_ref());
    let known = { context.index().cycles(key, "") };
    for reference in std::iter::once(&lead).chain(joined.into_iter().flatten()) {
        if known.iter().any(|c| c.uid == reference.uid) {
            continue;
        }
        let read = context.api::<AgentCycle>(&key.namespace).get_opt(&reference.name).await?;
        if let Some(read) = read.filter(|c| c.uid().as_ref() == Some(&reference.uid)) {
            context.index().put_cycle(&read, Timestamp::now());
        }
    }
    Ok(())
}

async fn apply(
    context: &Context,
    agent: &mut act::Agent,
    known: act::Known<'_>,
    plan: Plan,
    changed: bool,
) -> Result<(), Error> {
    for action in plan.actions {
        let active = agent.status.as_ref().and_then(|s| s.active_cycle.as_ref());
        if let (Action::DeleteJob { .. }, Some(active)) = (&action, active) {
            context.index().expect_job_again(&active.uid);
        }
        match &action {
            Action::SetFinalizer { present } => {
                *agent = Arc::new(act::set_finalizer(context, agent, *present).await?);
            }
            Action::Abandon { memory, why } => {
                // First of all: afterwards nobody knows of it any more.
                act::tell_of_left_memory(context, agent, memory, why).await;
                *agent = Arc::new(act::set_finalizer(context, agent, false).await?);
                context.metrics.left_memories.inc();
            }
            _ => act::act(context, agent, known, action).await?,
        }
    }
    if agent.metadata.deletion_timestamp.is_some() && !deletion::is_kept(agent) {
        // With its last finalizer it is gone: there is no status left to write.
        act::tell(context, agent, plan.notes);
        return Ok(());
    }
    if changed && !plan.defer_status {
        let before = agent.clone();
        *agent = Arc::new(act::set_agent(context, agent, &plan.status).await?);
        act::log_end(&before, &plan.status);
    }
    if !plan.defer_status {
        let key = Key::new(&agent.namespace().unwrap_or_default(), &agent.name_any());
        if let Some(ended) = &plan.ended {
            context.metrics.ended(&key, ended);
        }
        numbers::told(context, &key, &plan.notes);
        act::tell(context, agent, plan.notes);
    }
    Ok(())
}

/// A start that the API server refuses is the cycle's end or its reason to wait, not an endless loop.
async fn explain(
    context: &Context,
    key: &Key,
    agent: &mut act::Agent,
    error: Error,
    now: Timestamp,
) -> Result<Timestamp, Error> {
    if agent.metadata.deletion_timestamp.is_some() {
        return explain_deletion(context, key, agent, error, now).await;
    }
    let active = agent.status.as_ref().and_then(|s| s.active_cycle.clone());
    let uid = agent.uid().unwrap_or_default();
    let cycles = context.index().cycles(key, &uid);
    let Some(cycle) = active.and_then(|a| cycles.iter().find(|c| c.uid == a.uid)) else { return Err(error) };
    match &error {
        // A status that is refused (by a policy, say) says nothing about the Job: that is tried again.
        Error::Invalid { what: "Job" | "ConfigMap", message } => {
            let end = CycleEnd::failed("JobRejected", cut(message, 512), true);
            end_cycle(context, key, agent, &cycles, &end, now).await
        }
        Error::Foreign { .. } => {
            let end = CycleEnd::failed("UnexpectedJob", error.to_string(), true);
            end_cycle(context, key, agent, &cycles, &end, now).await
        }
        Error::Forbidden { what: "Job" | "ConfigMap", message } => {
            let [quota, forbidden] = active::JOB_REFUSED;
            let reason = if message.contains("exceeded quota") { quota } else { forbidden };
            if cycle.reason.as_deref() != Some(reason) {
                let status = cycle_status::pending(cycle, reason, &cut(message, 512), now);
                act::set_cycle(context, &key.namespace, &cycle.reference(), cycle.version, &status).await?;
            }
            Ok(now + FORBIDDEN_WAIT)
        }
        _ => Err(error),
    }
}

/// A delete Job that can't be made: in a namespace that is being deleted, or by a broken manifest, never.
async fn explain_deletion(
    context: &Context,
    key: &Key,
    agent: &mut act::Agent,
    error: Error,
    now: Timestamp,
) -> Result<Timestamp, Error> {
    let refused = match &error {
        Error::Invalid { what: "Job" | "plan", message } => message,
        Error::Forbidden { what: "Job", message } if message.contains("being terminated") => message,
        // A quota or a policy may give way until the time is up.
        Error::Forbidden { what: "Job", .. } => return Ok(now + FORBIDDEN_WAIT),
        _ => return Err(error),
    };
    let (plan, cycles) = observe_and_decide(context, key, agent, Some(cut(refused, 256)), now).await?;
    apply(context, agent, act::Known { cycles: &cycles, made: &[] }, plan, false).await?;
    Ok(now)
}

async fn end_cycle(
    context: &Context,
    key: &Key,
    agent: &mut act::Agent,
    cycles: &[CycleView],
    end: &CycleEnd,
    now: Timestamp,
) -> Result<Timestamp, Error> {
    let plan = {
        let held = agent.clone();
        let environment = { environment(context, &context.index(), key, &held, cycles) };
        let seen = Observed::new(&held, cycles, &environment, &context.config.defaults);
        let mut plan = end_active(&seen, end, now);
        plan.status = context.schema.known("PersistentAgent", plan.status);
        plan
    };
    apply(context, agent, act::Known { cycles, made: &[] }, plan, true).await?;
    Ok(now)
}

/// Cycles whose agent does not exist: they wait a moment, then they fail.
async fn orphans(context: &Context, key: &Key) -> Result<Option<Timestamp>, Error> {
    let now = Timestamp::now();
    let cycles = context.index().cycles(key, "");
    let mut next = now + SignedDuration::from_hours(1);
    if cycles.is_empty() {
        // What has gone is forgotten: no queue may grow with all agents that there ever were.
        context.metrics.agents.forget(key);
        return Ok(None);
    }
    if let Some(found) = context.api::<PersistentAgent>(&key.namespace).get_opt(&key.name).await? {
        context.index().put_agent(found);
        return Ok(Some(now));
    }
    // Cycles that people made stay; what is told of the agent goes with it.
    context.metrics.agents.forget(key);
    for cycle in &cycles {
        if cycle.is_terminal() {
            let ttl = cycle
                .ttl
                .zip(cycle.finished)
                .map(|(ttl, at)| at + SignedDuration::from_secs(i64::try_from(ttl).unwrap_or(i64::MAX / 4)));
            match ttl {
                Some(end) if end <= now => delete_cycle(context, key, cycle).await?,
                Some(end) => next = next.min(end),
                None => {}
            }
            continue;
        }
        let message = format!("there is no PersistentAgent {} in this namespace", key.name);
        if now < cycle.created + ORPHAN_GRACE && cycle.phase != Some(Phase::Running) {
            next = next.min(cycle.created + ORPHAN_GRACE);
            if cycle.reason.as_deref() != Some("AgentNotFound") {
                let status = cycle_status::pending(cycle, "AgentNotFound", &message, now);
                act::set_cycle(context, &key.namespace, &cycle.reference(), cycle.version, &status).await?;
            }
            continue;
        }
        let job = context.index().job(&cycle.uid, Purpose::Cycle);
        if let Some((_, job)) = job.filter(|(_, j)| !j.view.deleting && j.ended.is_none()) {
            act::delete_job(context, &key.namespace, &job.view.name, &job.view.uid).await?;
        }
        let end = CycleEnd::failed("AgentNotFound", message, false);
        let status = cycle_status::ended(cycle, &end, None, None, now);
        act::set_cycle(context, &key.namespace, &cycle.reference(), cycle.version, &status).await?;
    }
    Ok(Some(next))
}

async fn delete_cycle(context: &Context, key: &Key, cycle: &CycleView) -> Result<(), Error> {
    // No agent is needed to delete: an empty one stands in its place.
    let mut stand_in = PersistentAgent::new(&key.name, cicada_crds::PersistentAgentSpec::default());
    stand_in.metadata.namespace = Some(key.namespace.to_string());
    act::act(context, &stand_in, act::Known::default(), Action::DeleteCycle { cycle: cycle.reference() })
        .await
}
