//! `run`: wake an agent now.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use cicada_crds::cycle::{AgentCycleStatus, AgentRef, Phase};
use cicada_crds::{AgentCycle, AgentCycleSpec};
use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use super::claim::stopped;
use super::messages::CYCLE_KEPT;
use crate::args::{Format, LocalArgs, RunArgs};
use crate::exit::{self, Interrupted};
use crate::local::{self, desk};
use crate::manifest::read_folder;
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
    if !desk.is_taken() {
        note("no cicadactl local runs on the folder: the cycle runs here");
        let succeeded = local::run_one(here(&args, dir), (&namespace, &name), cycle).await?;
        return Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) });
    }
    known(&dir, &namespace, &name)?;
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
        output: Format::Table,
    }
}

/// A wrong name would wait for ever.
fn known(dir: &Path, namespace: &str, name: &str) -> anyhow::Result<()> {
    let folder = read_folder(dir)?;
    if folder.agents.iter().any(|agent| local::is(agent, namespace, name)) {
        return Ok(());
    }
    Err(local::missing(&folder, dir, namespace, name).into())
}

/// Looks at a cycle until it has ended, and tells each change.
async fn follow(
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<AgentCycleStatus>>,
) -> anyhow::Result<ExitCode> {
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
        let now = format!("{phase:?} {}", status.reason.as_deref().unwrap_or_default());
        if now != told {
            note(now.trim_end());
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
    let what = status.outcome.as_deref().or(status.reason.as_deref()).unwrap_or_default();
    let message = cicada_contract::text::printable(status.message.as_deref().unwrap_or_default());
    let took = status.started.zip(status.finished).map(|(from, to)| to.duration_since(from).as_secs());
    let took = took.map(|s| format!(" in {s} s")).unwrap_or_default();
    let snapshot = status.snapshot_after.as_ref().map(|s| format!("; snapshot {s}")).unwrap_or_default();
    format!("{phase:?}{took}: {what} {message}{snapshot}")
}
