//! `import`: any SQLite file that passes the checks of a restore becomes an agent's memory.

use std::path::Path;

use anyhow::{Context, bail};
use cicada_contract::plan::Owner;
use cicada_contract::resources::MIB;
use cicada_crds::PersistentAgent;
use cicada_memory::{Check, MemoryWorker, UnpackLimits};
use cicada_operator_core::spec::sizes;
use cicada_store::{Archive, Head, PackedArchive, PublishRequest, SnapshotKind};
use jiff::Timestamp;

use super::claim::{acquire, at_work, confirm, holding, owner_of, warning};
use super::export::{Manifest, archive_name};
use super::restore::{KEEP_ALL, detached_ledger};
use super::restored::{Part, Restored, blocking, memory_options};
use crate::args::{ImportArgs, Target};
use crate::exit::Missing;
use crate::output::{bytes, count, note};
use crate::progress;

/// Tables by which a ledger is known; no agent's design has all of them.
const LEDGER_TABLES: [&str; 5] = ["documentation", "human_requests", "ingested", "meta", "proposals"];

/// What is to become the memory, checked and packed on this machine.
struct Staged {
    memory: PackedArchive,
    ledger: Option<PackedArchive>,
    tables: u32,
    _files: Restored,
}

/// Runs the command.
pub(super) async fn run(args: ImportArgs) -> anyhow::Result<()> {
    if !args.from.exists() {
        bail!(Missing(format!("can't find {}", args.from.display())));
    }
    let store = args.target.open().await?;
    let seen = store.read_head().await?.map(|at| at.head).filter(|head| !head.is_tombstone());
    if !args.consent.fence
        && let Some(holder) = seen.as_ref().and_then(at_work)
    {
        return Err(cicada_store::AcquireError::Held { holder: Box::new(holder.clone()) })
            .context("nothing was changed; --fence goes ahead without it");
    }
    let owner = match &seen {
        Some(head) => owner_of(&store, head)?,
        None => new_owner(&args).await?,
    };
    let has_memory = seen.as_ref().is_some_and(|head| head.current().is_some());
    let now = Timestamp::now();
    let staged = stage(&args.from, !has_memory, now).await?;
    let too_large = too_large(&args.target, &staged).await?;
    match seen.as_ref().filter(|_| has_memory) {
        Some(head) => {
            let question = question(head, &staged, &args.from);
            confirm(&[too_large.unwrap_or_default(), question].concat(), args.consent.yes)?;
        }
        None => {
            if let Some(warning) = too_large {
                confirm(&format!("{warning}Import {} all the same?", args.from.display()), args.consent.yes)?;
            }
        }
    }
    let owner_path = owner.path();
    let writer = acquire(&store, owner, "import", args.consent.fence).await?;
    let published = holding(writer, async |writer| {
        if !has_memory && writer.head().current().is_some() {
            bail!("the agent got a memory meanwhile: look at it, then import again");
        }
        let request = PublishRequest {
            memory: Archive::New(staged.memory.clone()),
            ledger: staged.ledger.clone().map_or(Archive::Keep, Archive::New),
            done: true,
            checked: true,
            retention: KEEP_ALL,
            ..PublishRequest::new(SnapshotKind::Final, now)
        };
        Ok(progress::wait("import", "uploading", writer.publish(request)).await?)
    })
    .await?;
    note(&format!(
        "{}: {}, {}, is the memory of {owner_path} now",
        published.snapshot.id,
        count(staged.tables, "table"),
        bytes(staged.memory.file_size)
    ));
    Ok(())
}

/// What becomes of a memory above the agent's limit; None = it is below. Where no manifest is known, the default
/// counts.
async fn too_large(target: &Target, staged: &Staged) -> anyhow::Result<Option<String>> {
    let manifest = match target.manifest().await {
        // A folder may get its manifest later.
        Err(error) if error.is::<Missing>() => None,
        known => known?,
    };
    let limit =
        sizes(&manifest.unwrap_or_else(|| PersistentAgent::new("", Default::default())).spec)?.size_limit;
    let size = staged.memory.file_size;
    Ok((size > limit).then(|| {
        format!(
            "The memory is {}, and spec.memory.sizeLimit of {} is {}: nothing is deleted for that, but cycles can add \
             nothing to it until sizeLimit is raised (to {}Mi at least) or rows are deleted.\n",
            bytes(size),
            target.agent,
            bytes(limit),
            size.div_ceil(MIB)
        )
    }))
}

async fn new_owner(args: &ImportArgs) -> anyhow::Result<Owner> {
    let (namespace, name) = args.target.names()?;
    let cluster = match &args.cluster {
        Some(cluster) => cluster.clone(),
        None => args.target.place.cluster_name().await?,
    };
    Ok(Owner { cluster, namespace, name, ..Owner::default() })
}

fn question(head: &Head, staged: &Staged, from: &Path) -> String {
    let warning = warning(head).map(|w| format!("{w}.\n")).unwrap_or_default();
    let size = head.current().and_then(|s| s.memory.as_ref()).map_or(0, |m| m.file_size);
    format!(
        "{warning}{} has a memory of {} in snapshot {}. Put {} ({}, {}) in its place? The earlier snapshots stay listed.",
        head.owner.path(),
        bytes(size),
        head.current.as_deref().unwrap_or_default(),
        from.display(),
        count(staged.tables, "table"),
        bytes(staged.memory.file_size)
    )
}

/// Copies, checks and packs. The ledger of an exported folder is taken only where there is none.
async fn stage(from: &Path, with_ledger: bool, now: Timestamp) -> anyhow::Result<Staged> {
    let files = Restored::new()?;
    let mut ledger = None;
    let file = if from.is_dir() {
        let manifest = Manifest::read(from)?;
        unpack(from, &manifest, Part::Memory, &files)?;
        if manifest.archives.contains_key(&archive_name(Part::Ledger)) {
            if with_ledger {
                unpack(from, &manifest, Part::Ledger, &files)?;
                blocking(
                    || Ok(files.ledger()?.check(Check::Integrity)?),
                    || "the ledger is not sound".into(),
                )?;
                let reason = format!("this memory came from {} by an import", manifest.owner);
                ledger = detached_ledger(&files, true, &reason, now).await?;
            } else {
                note("the agent keeps its own ledger; the folder's is left out");
            }
        }
        // In a folder of its own, so that the check below copies it like any other file.
        let apart = files.scratch().join("unpacked.db");
        std::fs::rename(files.file(Part::Memory), &apart)?;
        apart
    } else {
        from.to_owned()
    };
    let sealed = blocking(|| seal(&file, &files), || format!("{} can't become a memory", from.display()))?;
    let packed = files.scratch().join("memory.new.zst");
    let file = files.file(Part::Memory);
    let work = cicada_store::pack(&file, &packed);
    let memory = progress::wait("memory", "packing", work).await?;
    Ok(Staged { memory, ledger, tables: sealed.tables, _files: files })
}

fn unpack(from: &Path, manifest: &Manifest, part: Part, files: &Restored) -> anyhow::Result<()> {
    let name = archive_name(part);
    let archive = manifest
        .archives
        .get(&name)
        .with_context(|| format!("the manifest in {} names no {name}", from.display()))?;
    let limits = UnpackLimits {
        max_bytes: archive.file_size,
        timeout: std::time::Duration::from_secs(600),
        address_space: 256 * MIB,
    };
    let packed = from.join(&name);
    blocking(
        || {
            let out = files.file(part);
            Ok(cicada_memory::unpack(files.launcher(), &packed, &out, limits, &archive.file_sha256)?)
        },
        || format!("can't unpack {}", packed.display()),
    )?;
    Ok(())
}

/// A clean copy of the file: its log taken in, checked as a whole, its schema against the allow-list.
fn seal(file: &Path, files: &Restored) -> anyhow::Result<cicada_memory::Sealed> {
    let line = progress::spinner("import");
    line.set_message("checking");
    let (options, dir) = (memory_options(file), files.dir(Part::Memory));
    MemoryWorker::open_copy(files.launcher(), file, &dir, options.clone())?.close();
    // The copy is opened once more as an agent's own: that judges its schema.
    let mut memory = MemoryWorker::spawn(files.launcher(), &dir, options)?;
    memory.check(Check::Integrity)?;
    let tables = memory.tables()?;
    if LEDGER_TABLES.iter().all(|name| tables.iter().any(|table| table == name)) {
        bail!(
            "it is a ledger, the platform's tables about an agent, and no memory: export the memory (cicadactl export without --ledger), or both together (--as folder)"
        );
    }
    memory.unmount()?;
    let sealed = memory.seal()?;
    line.finish_and_clear();
    Ok(sealed)
}
