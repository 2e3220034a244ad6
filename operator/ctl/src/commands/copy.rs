//! `copy`: a whole memory to another store, or to another name.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use cicada_contract::plan::Owner;
use cicada_store::{AgentStore, Credentials, ObjectStore};
use jiff::Timestamp;

use super::claim::{acquire, confirm, holding, owner_of, warning};
use super::restored::{head, private_folder, size};
use crate::args::CopyArgs;
use crate::exit::{LEFT_OUT, UsageError};
use crate::output::{bytes, count_of, note, problem};
use crate::progress;

/// Runs the command.
pub(super) async fn run(args: CopyArgs) -> anyhow::Result<ExitCode> {
    let source = args.place.open(&args.from).await?;
    let (namespace, name) = args.place.names(&args.to)?;
    let target = AgentStore::new(target_store(&args, &source).await?, &namespace, &name)?;
    if target.location() == source.location() {
        return Err(UsageError(format!("{} is both source and target", source.location())).into());
    }
    let seen = head(&source).await?;
    let owner = owner_of(&source, &seen)?;
    let new_owner = Owner {
        cluster: args.to_cluster.clone().unwrap_or_else(|| owner.cluster.clone()),
        namespace,
        name,
        ..Owner::default()
    };
    let moved = new_owner.path() != owner.path();
    let current = seen.current().map_or(0, size);
    let warning = warning(&seen).map(|w| format!("{w}.\n")).unwrap_or_default();
    let owned = if moved { format!(", owned by {}", new_owner.path()) } else { String::new() };
    confirm(
        &format!(
            "{warning}Copy {} (the current one {}) from {} to {}{owned}?",
            count_of(seen.snapshots.len(), "snapshot"),
            bytes(current),
            source.location(),
            target.location()
        ),
        args.consent.yes,
    )?;
    let scratch = private_folder()?;
    let writer = acquire(&source, owner, "copy", args.consent.fence).await?;
    let copied = holding(writer, async |writer| {
        let bar = progress::bar("copy", 0);
        let shown = |done: cicada_store::CopyProgress| {
            bar.set_length(done.total);
            bar.set_position(done.bytes);
        };
        let owner = moved.then_some(&new_owner);
        let copied = writer.copy_to(&target, owner, scratch.path(), Timestamp::now(), shown).await;
        bar.finish_and_clear();
        let copied = copied?;
        writer.release(Timestamp::now()).await.context("the copy is whole, but the source is still held")?;
        Ok(copied)
    })
    .await?;
    let done = copied.progress;
    note(&format!(
        "{}, {} copied to {}",
        count_of(done.objects, "object"),
        bytes(done.bytes),
        target.location()
    ));
    if !moved {
        note("the source stays as it is: cycles go on there until spec.store names the copy");
    }
    for left in &copied.left_out {
        problem(&format!("snapshot {} is damaged and was left out: {}", left.snapshot, left.why));
    }
    Ok(if copied.left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) })
}

async fn target_store(args: &CopyArgs, source: &AgentStore) -> anyhow::Result<Arc<dyn ObjectStore>> {
    let Some(url) = &args.to_store else { return Ok(source.store().clone()) };
    let endpoint = args.to_endpoint.as_ref().or(args.place.endpoint.as_ref());
    let region = args.to_region.as_ref().or(args.place.region.as_ref());
    let config = cicada_store::parse_url(url, endpoint.map(String::as_str), region.map(String::as_str))?;
    Ok(cicada_store::open(&config, target_credentials()?).await?)
}

/// Credentials of the target, where they differ from the source's.
fn target_credentials() -> anyhow::Result<Option<Credentials>> {
    let variable = |name: &str| std::env::var(format!("TO_{name}")).ok().filter(|v| !v.is_empty());
    let Some(access_key_id) = variable("AWS_ACCESS_KEY_ID") else { return Ok(None) };
    let secret_access_key = variable("AWS_SECRET_ACCESS_KEY")
        .ok_or_else(|| UsageError("TO_AWS_ACCESS_KEY_ID is set, TO_AWS_SECRET_ACCESS_KEY is not".into()))?;
    let session_token = variable("AWS_SESSION_TOKEN");
    Ok(Some(Credentials { access_key_id, secret_access_key, session_token }))
}
