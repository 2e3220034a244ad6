//! Holding a memory for one command, as a cycle does: acquire raises the epoch, and whatever was at work
//! before can't publish any more.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, bail};
use cicada_contract::plan::{CycleIdentity, Owner};
use cicada_store::{AcquireRequest, Acquisition, AgentStore, Head, Holder, PublishError, Writer, is_held};
use jiff::{SignedDuration, Timestamp};

use crate::exit::{Interrupted, UsageError};
use crate::interrupt::{InOrder, stopped};
use crate::output;

/// For how long other commands wait for this one, should it die without letting go. Cycles never wait.
const HELD_FOR: SignedDuration = SignedDuration::from_mins(30);

/// Whose memory it is, as HEAD says; its UIDs stay. Refuses a HEAD that lies in the folder of another agent,
/// as a cycle does: it was brought there by hand, and nobody knows whose memory would be written.
pub(super) fn owner_of(store: &AgentStore, head: &Head) -> anyhow::Result<Owner> {
    let owner = &head.owner;
    if store.key("") != format!("{}/{}/", owner.namespace, owner.name) {
        bail!(
            "what lies at {} is the memory of {}; nothing was changed: \
             `cicadactl copy` takes a memory to another agent",
            store.location(),
            owner.path()
        );
    }
    Ok(Owner {
        cluster: owner.cluster.clone(),
        namespace: owner.namespace.clone(),
        name: owner.name.clone(),
        ..Owner::default()
    })
}

/// Acquires the memory for `purpose`. Refuses while a cycle is before its deadline, unless `fence`.
pub(super) async fn acquire(
    store: &AgentStore,
    owner: Owner,
    purpose: &str,
    fence: bool,
) -> anyhow::Result<Writer> {
    let now = Timestamp::now();
    let name = format!("cicadactl-{purpose}");
    // Never the identity of an earlier run: acquire would take this one for a later attempt of it.
    let uid = format!("{name}-{}-{}", now.as_nanosecond(), std::process::id());
    let request = AcquireRequest {
        refuse_if_held: !fence,
        has_other_triggers: true,
        ..AcquireRequest::new(owner, CycleIdentity { name, uid }, now + HELD_FOR, now)
    };
    match store.acquire(request).await {
        Ok(Acquisition::Held(acquired)) => Ok(acquired.writer),
        // There are no keys in the request that could have been handled.
        Ok(Acquisition::AlreadyHandled(_)) => bail!("HEAD takes this command for one that was done before"),
        Err(error @ cicada_store::AcquireError::Held { .. }) => {
            Err(error).context("nothing was changed; --fence goes ahead without it")
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs `work` with the memory held, and lets go of it when it fails or is interrupted.
pub(super) async fn holding<T>(
    mut writer: Writer,
    work: impl AsyncFnOnce(&mut Writer) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let _in_order = InOrder::begin();
    let done = tokio::select! {
        done = work(&mut writer) => done,
        // A request that was on its way may still arrive.
        () = stopped() => Err(Interrupted).context("cicadactl snapshots shows whether it had been done"),
    };
    if done.is_err() {
        match writer.release(Timestamp::now()).await {
            // Whoever holds it by now is told by HEAD itself.
            Ok(()) | Err(PublishError::Fenced { .. }) => {}
            Err(error) => output::note(&format!(
                "the memory could not be let go of: {}; until {} other commands ask for --fence, cycles go ahead",
                cicada_cycle_job::failure::chain(&error),
                Timestamp::now() + HELD_FOR
            )),
        }
    }
    done
}

/// The cycle (or command) that is before its deadline.
pub(super) fn at_work(head: &Head) -> Option<&Holder> {
    is_held(head, Timestamp::now())
}

/// Who is at work and what becomes of it, as a person should read it before going on. None = nobody is.
pub(super) fn warning(head: &Head) -> Option<String> {
    let holder = at_work(head)?;
    Some(format!(
        "cycle {} (attempt {}) works on the memory until {} at the latest; what it did will be lost",
        holder.cycle.name, holder.attempt, holder.deadline
    ))
}

/// Asks on the terminal. Without one, `--yes` must have been given.
pub(super) fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        bail!(UsageError(format!("{question} Not confirmed: there is no terminal to ask on; give --yes")));
    }
    let mut out = io::stderr().lock();
    write!(out, "{} [y/N] ", output::visible(question))?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    bail!("not confirmed; nothing was changed")
}
