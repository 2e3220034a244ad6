//! `gc`: what no snapshot needs any more.

use cicada_store::{AgentStore, Collectable, Head, ObjectMeta, blob_epoch, collectable};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::claim::{acquire, at_work, holding, owner_of};
use super::restored::head;
use crate::args::{Format, GcArgs};
use crate::output::{Grid, bytes, count_of, note};

/// Runs the command.
pub(super) async fn run(args: GcArgs) -> anyhow::Result<()> {
    let store = args.target.open().await?;
    if !args.yes {
        let (found, head) = look(&store, args.fence).await?;
        show(&found, &head, &store, args.output.format)?;
        note(&format!(
            "{}, {} would go with --yes{}",
            count_of(found.objects.len(), "object"),
            bytes(found.objects.iter().map(|(_, size)| size).sum()),
            later(found.later)
        ));
        return Ok(());
    }
    let seen = head(&store).await?;
    let writer = acquire(&store, owner_of(&store, &seen)?, "gc", args.fence).await?;
    let (done, listing, head) = holding(writer, async |writer| {
        let listing = listing(&store).await?;
        let done = writer.collect(&[], Timestamp::now()).await?;
        let head = writer.head().clone();
        writer.release(Timestamp::now()).await?;
        Ok((done, listing, head))
    })
    .await?;
    let sizes = |key: &String| listing.iter().find(|o| o.key == *key).map_or(0, |o| o.size);
    let gone = done.removed.iter().map(|key| (key.clone(), sizes(key))).collect();
    print(&Collectable { objects: gone, later: done.later }, &head, args.output.format)?;
    note(&format!(
        "{}, {} removed{}{}",
        count_of(done.removed.len(), "object"),
        bytes(done.freed),
        if done.swept > 0 { format!(", {} unfinished uploads too", done.swept) } else { String::new() },
        later(done.later)
    ));
    Ok(())
}

fn later(count: usize) -> String {
    if count == 0 {
        return String::new();
    }
    format!("; {count} more in an hour, when nobody can be reading them")
}

/// What would go now: as `--yes` sees it after its acquire, also what a dead cycle left at HEAD's own epoch.
async fn look(store: &AgentStore, fence: bool) -> anyhow::Result<(Collectable, Head)> {
    let listing = listing(store).await?;
    let head = head(store).await?;
    let own = fence || at_work(&head).is_none();
    Ok((collectable(&listing, &head, &[], own, Timestamp::now()), head))
}

/// Every object, by its key below the agent's prefix.
async fn listing(store: &AgentStore) -> anyhow::Result<Vec<ObjectMeta>> {
    let prefix = store.key("");
    let mut listing = store.store().list(&prefix).await?;
    for object in &mut listing {
        object.key = object.key.strip_prefix(&prefix).unwrap_or(&object.key).to_owned();
    }
    Ok(listing)
}

fn show(found: &Collectable, head: &Head, store: &AgentStore, output: Format) -> anyhow::Result<()> {
    if let Some(holder) = at_work(head) {
        note(&format!(
            "cycle {} works on {} until {}: --yes waits for it, or give --fence",
            holder.cycle.name,
            store.location(),
            holder.deadline
        ));
    }
    print(found, head, output)
}

fn print(found: &Collectable, head: &Head, output: Format) -> anyhow::Result<()> {
    let mut grid = Grid::new(&["object", "bytes", "why"]);
    for (key, size) in &found.objects {
        grid.push([json!(key), json!(size), Json::from(why(key, head))]);
    }
    grid.print(output)
}

/// Why an object may go.
fn why(key: &str, head: &Head) -> String {
    let mut parts = key.split('/');
    match (parts.next(), parts.next()) {
        (Some("snapshots"), Some(id)) => {
            let known = head.dropped.iter().any(|dropped| dropped.keys.iter().any(|k| k == key));
            let epoch = id.split('-').next().unwrap_or_default();
            if known {
                "its snapshot left HEAD's list more than an hour ago".into()
            } else {
                format!("no snapshot names it, and its epoch {epoch} can't publish any more")
            }
        }
        (Some("blobs"), _) if blob_epoch(key).is_some_and(|epoch| head.is_abandoned(epoch)) => {
            "its cycle published nothing and can't any more".into()
        }
        (Some("blobs"), _) => "the ledger has dropped it, and no listed snapshot is older".into(),
        (Some("exports"), _) => "an export older than 7 days".into(),
        (Some("probe"), _) => "left by a probe of the bucket that died".into(),
        _ => "not needed any more".into(),
    }
}
