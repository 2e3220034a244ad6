//! `run`: wake an agent now.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use cicada_crds::cycle::{AgentCycleStatus, AgentRef, Phase};
use cicada_crds::{AgentCycle, AgentCycleSpec};
use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use super::messages::CYCLE_KEPT;
use crate::args::{LocalArgs, Output, RunArgs};
use crate::exit::{self, Interrupted};
use crate::interrupt::{InOrder, stopped};
use crate::local::{self, desk};
use crate::output::{line, note};
use crate::target::read_agent;

/// How often a cycle is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Runs the command.
pub(super) async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let (namespace, name) = args.target.names()?;
    let cycle = cycle(&name, args.instruction.clone());
    let place = &args.target.place;
    if place.is_cluster() {
        let client = place.client().await?;
        read_agent(&client, &namespace, &name).await?;
        let cycles: Api<AgentCycle> = Api::namespaced(client, &namespace);
        let made =
            cycles.create(&PostParams::default(), &cycle).await.context("can't make the AgentCycle")?;
        let name = made.metadata.name.unwrap_or_default();
        note(&format!("cycle {namespace}/{name}"));
        if !args.wait {
            return Ok(ExitCode::SUCCESS);
        }
        return follow(async || {
            let found = cycles.get(&name).await;
            found.map(|c| c.status).with_context(|| format!("can't look at the cycle {name}"))
        })
        .await;
    }
    let desk = desk::required(place.local.as_deref(), "run")?;
    let dir = place.local.clone().unwrap_or_default();
    local::known(&dir, &namespace, &name)?;
    if !desk.is_taken() {
        note("no cicadactl local runs on the folder: the cycle runs here");
        let succeeded = local::run_one(here(&args, dir), (&namespace, &name), cycle).await?;
        return Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) });
    }
    let cycle_name = cycle.metadata.name.clone().unwrap_or_default();
    desk.ask(&namespace, &cycle)?;
    note(&format!("cycle {namespace}/{cycle_name}"));
    if !args.wait {
        return Ok(ExitCode::SUCCESS);
    }
    follow(async || {
        if let Some(told) = desk.told(&namespace, &cycle_name) {
            return Ok(told.status);
        }
        if !desk.is_taken() {
            desk.withdraw(&namespace, &cycle_name);
            bail!("the cicadactl local that was to run it has ended; the request is withdrawn");
        }
        Ok(None)
    })
    .await
}

/// A cycle by a name that nobody else has: a second `run` is a second cycle.
fn cycle(agent: &str, instruction: Option<String>) -> AgentCycle {
    let spec = AgentCycleSpec {
        agent_ref: AgentRef { name: agent.to_owned() },
        instruction,
        ttl_seconds_after_finished: Some(CYCLE_KEPT),
        ..AgentCycleSpec::default()
    };
    AgentCycle::new(
        &format!("{agent}-run-{}-{}", Timestamp::now().as_millisecond(), std::process::id()),
        spec,
    )
}

fn here(args: &RunArgs, dir: std::path::PathBuf) -> LocalArgs {
    let place = &args.target.place;
    LocalArgs {
        dir,
        once: true,
        store: place.store.clone(),
        endpoint: place.endpoint.clone(),
        region: place.region.clone(),
        model_url: std::env::var("CICADA_MODEL_URL").ok(),
        output: Output::default(),
    }
}

/// Looks at a cycle until it has ended, and tells each change.
async fn follow(
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<AgentCycleStatus>>,
) -> anyhow::Result<ExitCode> {
    let _in_order = InOrder::begin();
    let mut told = String::new();
    let mut stop = std::pin::pin!(stopped());
    loop {
        let status = look().await?.unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        if phase.is_terminal() {
            line(&end(&status))?;
            return Ok(if phase == Phase::Succeeded {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(exit::FAILED)
            });
        }
        let now = words(&status, &format!("{phase:?}"));
        if now != told {
            note(&now);
            told = now;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = &mut stop => {
                note("the cycle goes on without being watched");
                return Err(Interrupted.into());
            }
        }
    }
}

fn end(status: &AgentCycleStatus) -> String {
    let phase = status.phase.unwrap_or_default();
    let took = status.started.zip(status.finished).map(|(from, to)| to.duration_since(from).as_secs());
    let took = took.map(|s| format!(" in {s} s")).unwrap_or_default();
    let snapshot = status.snapshot_after.as_ref().map(|s| format!("; snapshot {s}")).unwrap_or_default();
    words(status, &format!("{phase:?}{took}")) + &snapshot
}

/// The first words, then outcome or reason, and the message: what there is of them.
fn words(status: &AgentCycleStatus, first: &str) -> String {
    let what = status.outcome.as_deref().or(status.reason.as_deref());
    let parts = [Some(first), what, status.message.as_deref()];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycles_state_is_told_without_gaps() {
        let status =
            |phase, outcome: Option<&str>, reason: Option<&str>, message: Option<&str>| AgentCycleStatus {
                phase: Some(phase),
                outcome: outcome.map(str::to_owned),
                reason: reason.map(str::to_owned),
                message: message.map(str::to_owned),
                ..AgentCycleStatus::default()
            };
        let done = status(Phase::Succeeded, Some("done"), None, Some("10 statements"));
        assert_eq!(end(&done), "Succeeded: done: 10 statements");
        let failed = status(Phase::Failed, None, Some("ExecutorFailed"), Some("no such table"));
        assert_eq!(end(&failed), "Failed: ExecutorFailed: no such table");
        assert_eq!(words(&status(Phase::Pending, None, None, None), "Pending"), "Pending");
    }
}
