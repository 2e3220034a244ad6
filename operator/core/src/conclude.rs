//! State and the conditions that follow from everything else.

use cicada_crds::{PersistentAgentStatus, status::State};

use crate::{
    active, charter,
    conditions::{self, Wanted},
    decide::{RESTING, Step},
    gate::{self, Gate},
    plan::store_secret,
};

/// Sets them, at the end of each decision.
pub(crate) fn conclude(step: &mut Step<'_>, gate: Option<&Gate>) {
    let waiting = !step.waiting().is_empty() && step.seen.environment.full;
    let state = match (&step.status.active_cycle, gate) {
        (Some(_), _) if active::is_queued(step) => State::Queued,
        (Some(_), _) => State::Running,
        (None, Some(gate)) => gate.state,
        (None, None) if waiting => State::Queued,
        (None, None) => RESTING,
    };
    step.status.state = Some(state);
    if let Some(instance) = &step.seen.environment.instance {
        step.status.operator = Some(instance.clone());
    }
    let generation = step.status.observed_generation;
    let stall = gate::stall(step);
    tell_what_stops(step, stall.clone());
    let wanted = match (stall, gate) {
        (Some((reason, message)), _) => {
            [Wanted::new("Stalled", true, reason, &message), Wanted::new("Ready", false, reason, &message)]
        }
        (None, Some(gate)) => {
            [Wanted::absent("Stalled"), Wanted::new("Ready", true, gate.reason.clone(), &gate.message)]
        }
        // One reason for Idle and Running: a condition that changed with each cycle would wake every watcher.
        (None, None) => [Wanted::absent("Stalled"), Wanted::new("Ready", true, "Ready", "")],
    };
    let shared = credentials_shared(step);
    let charter = charter::conclude(step);
    for wanted in wanted.into_iter().chain([Wanted::absent("Reconciling"), shared, charter]) {
        conditions::apply(&mut step.status.conditions, wanted, generation, step.now);
    }
    for condition in &mut step.status.conditions {
        condition.observed_generation = generation;
    }
}

/// Tells people, once each time, that the agent does not go on by itself any more.
fn tell_what_stops(step: &mut Step<'_>, stall: Option<(&'static str, String)>) {
    let (agent, none) = (step.seen.agent, PersistentAgentStatus::default());
    let before = agent.status.as_ref().unwrap_or(&none);
    let stalled_before = conditions::find(&before.conditions, "Stalled").map(|c| c.reason.as_str());
    // An edit of the spec may have lowered a limit: what stands is told unless the state shows it already.
    let edited = before.observed_generation != step.status.observed_generation;
    let stopped_before = gate::stops(&agent.spec, before, step.now);
    let was_stopped = |reason: &str| {
        stopped_before.iter().any(|(known, _)| *known == reason)
            && (!edited || before.state.is_some_and(|state| state.as_str() == reason))
    };
    let stops = gate::stops(&agent.spec, &step.status, step.now);
    let new = stops.into_iter().filter(|(reason, _)| !was_stopped(reason));
    let told: Vec<_> =
        stall.into_iter().filter(|(reason, _)| stalled_before != Some(*reason)).chain(new).collect();
    for (reason, message) in told {
        step.note(true, reason, message, None);
    }
}

/// Agents with one credential can read each other's memories: who relies on a border must be told.
fn credentials_shared(step: &Step<'_>) -> Wanted {
    let secret = store_secret(&step.seen.agent.spec, step.seen.defaults);
    match secret.filter(|_| step.seen.environment.shares_credentials) {
        Some(secret) => Wanted::new(
            "CredentialsShared",
            true,
            "CredentialsShared",
            format!(
                "other agents of this namespace use the Secret {secret} too: each can read the memories of all"
            ),
        ),
        None => Wanted::absent("CredentialsShared"),
    }
}
