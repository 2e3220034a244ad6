//! `list`: all agents of a store, or of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use cicada_crds::{PersistentAgent, PersistentAgentStatus};
use cicada_store::{AgentStore, HEAD_KEY, Head, ObjectStore, ReadHeadError};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value as Json, json};

use super::claim::at_work;
use crate::args::{ListArgs, Place};
use crate::output::{Grid, bytes, note};

/// HEADs that are read at once.
const AT_ONCE: usize = 8;

/// Runs the command.
pub(super) async fn run(args: ListArgs) -> anyhow::Result<()> {
    let grid = match args.place.whole_store().await? {
        Some(store) => of_store(&args.place, store).await?,
        None => of_cluster(&args.place).await?,
    };
    if grid.rows.is_empty() {
        note("no agents");
    }
    grid.print(args.output.format)
}

async fn of_store(place: &Place, store: Arc<dyn ObjectStore>) -> anyhow::Result<Grid> {
    let prefix = place.namespace.as_ref().map(|n| format!("{n}/")).unwrap_or_default();
    let listing = store.list(&prefix).await?;
    let found = places(listing.iter().map(|object| object.key.as_str()));
    let heads = found.into_iter().map(|((namespace, name), left)| {
        let store = store.clone();
        async move {
            let head = AgentStore::new(store, &namespace, &name)?.read_head().await;
            anyhow::Ok((format!("{namespace}/{name}"), left, head))
        }
    });
    let mut heads = stream::iter(heads.collect::<Vec<_>>()).buffered(AT_ONCE);
    let mut grid =
        Grid::new(&["agent", "state", "snapshot", "memory", "snapshots", "epoch", "written", "owner"]);
    while let Some(next) = heads.next().await {
        let (agent, left, head) = next?;
        match head {
            Ok(Some(at)) => grid.push(row(&agent, &at.head)),
            Ok(None) => match left {
                Left::Snapshots => {
                    note(&format!(
                        "{agent}: HEAD.json is missing, and archives of snapshots are there: bring it back from the bucket's \
                         versions or a backup"
                    ));
                    grid.push(without_head(&agent, "no HEAD"));
                }
                Left::Others => grid.push(without_head(&agent, "no memory yet")),
                // It went between listing and reading.
                Left::Head => {}
            },
            Err(error @ ReadHeadError::Store(_)) => return Err(error).context(agent),
            Err(ReadHeadError::Head(error)) => {
                note(&format!("{agent}: {}", cicada_cycle_job::failure::chain(&error)));
                grid.push(without_head(&agent, "unreadable"));
            }
        }
    }
    Ok(grid)
}

/// What says that there is an agent, in the order of its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// Messages or files that wait for its first cycle.
    Others,
    /// Archives.
    Snapshots,
    Head,
}

/// Agents, by namespace and name, of a store's keys.
fn places<'a>(keys: impl Iterator<Item = &'a str>) -> BTreeMap<(String, String), Left> {
    let mut found = BTreeMap::new();
    for key in keys {
        let mut parts = key.splitn(3, '/');
        let (Some(namespace), Some(name), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let left = match rest.split_once('/').map(|(folder, _)| folder) {
            None if rest == HEAD_KEY => Left::Head,
            Some("snapshots") => Left::Snapshots,
            Some("inbox" | "files") => Left::Others,
            _ => continue,
        };
        let known = found.entry((namespace.to_owned(), name.to_owned())).or_insert(left);
        *known = left.max(*known);
    }
    found
}

fn without_head(agent: &str, state: &str) -> [Json; 8] {
    let nothing = || Json::Null;
    [json!(agent), json!(state), nothing(), nothing(), nothing(), nothing(), nothing(), nothing()]
}

fn row(agent: &str, head: &Head) -> [Json; 8] {
    let state = if head.is_tombstone() {
        "deleted"
    } else if at_work(head).is_some() {
        "at work"
    } else if head.current.is_none() {
        "empty"
    } else {
        "idle"
    };
    let size = head.current().and_then(|s| s.memory.as_ref()).map(|m| bytes(m.file_size));
    [
        json!(agent),
        json!(state),
        json!(head.current),
        json!(size),
        json!(head.snapshots.len()),
        json!(head.epoch),
        json!(head.written_at.strftime("%Y-%m-%d %H:%M:%S").to_string()),
        json!(head.owner.path()),
    ]
}

async fn of_cluster(place: &Place) -> anyhow::Result<Grid> {
    let client = place.client().await.context("no --store and no --local given")?;
    let agents: Api<PersistentAgent> = match &place.namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let found = agents.list(&ListParams::default()).await.context("can't list the PersistentAgents")?;
    let mut grid = Grid::new(&[
        "agent",
        "state",
        "ready",
        "schedule",
        "own schedules",
        "last success",
        "memory",
        "active cycle",
    ]);
    let now = Timestamp::now();
    for agent in found.items {
        let status = agent.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready").map(|c| c.status.clone());
        let path = format!(
            "{}/{}",
            agent.metadata.namespace.unwrap_or_default(),
            agent.metadata.name.unwrap_or_default()
        );
        grid.push([
            json!(path),
            json!(status.state.map(cicada_crds::status::State::as_str)),
            json!(ready),
            json!(status.schedule),
            json!(own_schedules(&status, now)),
            json!(status.last_successful_time.map(|t| t.to_string())),
            json!(status.memory.and_then(|m| m.summary)),
            json!(status.active_cycle.map(|c| c.name)),
        ]);
    }
    Ok(grid)
}

/// How many schedules the agent made itself, and until when it holds them back.
fn own_schedules(status: &PersistentAgentStatus, now: Timestamp) -> Option<String> {
    let count = status.agent_schedules.len();
    match status.agent_paused_until.filter(|until| *until > now) {
        Some(until) => Some(format!("{count}, paused until {}", until.strftime("%Y-%m-%d %H:%M:%S"))),
        None => (count > 0).then(|| count.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_head_is_listed_by_what_it_left() {
        let keys = [
            "lab/a/HEAD.json",
            "lab/a/inbox/1",
            "lab/b/snapshots/1-1-aa/memory.db.zst",
            "lab/b/inbox/1",
            "lab/c/inbox/1",
            "lab/d/files/x/HEAD.json",
            "lab/e/other",
            "README",
        ];
        let found = places(keys.into_iter());
        let of = |name: &str| found.get(&("lab".to_owned(), name.to_owned())).copied();
        assert_eq!(of("a"), Some(Left::Head));
        assert_eq!(of("b"), Some(Left::Snapshots));
        assert_eq!((of("c"), of("d"), of("e")), (Some(Left::Others), Some(Left::Others), None));
    }
}
