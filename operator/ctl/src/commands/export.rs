//! `export`: a snapshot as a plain SQLite file, or as a folder of archives with a manifest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cicada_store::{AgentStore, Head, Snapshot};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::restored::{Part, Restored, choose, head};
use crate::args::{ExportArgs, ExportForm};
use crate::exit::UsageError;
use crate::output::{bytes, note};
use crate::progress;
use crate::scratch::Scratch;

/// Version of `manifest.json`.
const MANIFEST_VERSION: u32 = 1;
/// Its name in the folder.
pub(super) const MANIFEST: &str = "manifest.json";

/// What lies in an exported folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    version: u32,
    /// `cluster/namespace/name` of the agent.
    pub(super) owner: String,
    /// Where it came from.
    pub(super) location: String,
    /// The snapshot.
    pub(super) snapshot: String,
    /// The cycle that wrote it.
    pub(super) cycle: String,
    /// When it was published.
    pub(super) created_at: Timestamp,
    /// When it was exported.
    pub(super) exported_at: Timestamp,
    /// The archives, by name: `memory.db.zst`, `ledger.db.zst`.
    pub(super) archives: BTreeMap<String, ExportedArchive>,
}

/// One zstd archive. Sizes in bytes, hashes lower-case hexadecimal SHA-256.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExportedArchive {
    pub(super) archive_size: u64,
    pub(super) archive_sha256: String,
    pub(super) file_size: u64,
    pub(super) file_sha256: String,
}

impl Manifest {
    /// Reads the manifest of an exported folder.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read(&path).with_context(|| {
            format!("{} is no exported folder: can't read {MANIFEST} in it", folder.display())
        })?;
        let manifest: Self =
            serde_json::from_slice(&text).with_context(|| format!("can't understand {}", path.display()))?;
        if manifest.version != MANIFEST_VERSION {
            bail!(
                "{} has version {}, this release knows {MANIFEST_VERSION}",
                path.display(),
                manifest.version
            );
        }
        Ok(manifest)
    }
}

/// The name of a database's archive in an exported folder.
pub(super) fn archive_name(part: Part) -> String {
    format!("{}.db.zst", part.name())
}

/// Runs the command.
pub(super) async fn run(args: ExportArgs) -> anyhow::Result<()> {
    free(&args.to)?;
    let store = args.target.open().await?;
    let head = head(&store).await?;
    let snapshot = choose(&head, args.snapshot.as_deref())?;
    match args.form {
        ExportForm::Sqlite => {
            let part = if args.ledger { Part::Ledger } else { Part::Memory };
            if part.of(snapshot).is_none() {
                bail!("snapshot {} has no {}", snapshot.id, part.name());
            }
            let restored = Restored::fetch(&store, snapshot, &[part]).await?;
            let size = place_file(&restored.file(part), &args.to)?;
            note(&format!(
                "{}: {} of snapshot {}, {}",
                args.to.display(),
                part.name(),
                snapshot.id,
                bytes(size)
            ));
        }
        ExportForm::Folder => folder(&store, &head, snapshot, &args.to).await?,
    }
    Ok(())
}

fn free(to: &Path) -> anyhow::Result<()> {
    if to.symlink_metadata().is_ok() {
        bail!(UsageError(format!("{} is there already; it is never replaced", to.display())));
    }
    let parent = parent(to);
    if !parent.is_dir() {
        bail!(UsageError(format!("there is no folder {}", parent.display())));
    }
    Ok(())
}

fn parent(to: &Path) -> PathBuf {
    to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Copies a file so that under its name there is all of it or nothing, and nothing is replaced.
pub(super) fn place_file(from: &Path, to: &Path) -> anyhow::Result<u64> {
    let failed = || format!("can't write {}", to.display());
    let scratch = Scratch::beside(&parent(to)).with_context(failed)?;
    let mut part = tempfile::NamedTempFile::new_in(scratch.path()).with_context(failed)?;
    let size = std::io::copy(&mut std::fs::File::open(from)?, part.as_file_mut()).with_context(failed)?;
    readable(part.path())?;
    part.as_file().sync_all().with_context(failed)?;
    part.persist_noclobber(to).map_err(|e| e.error).with_context(failed)?;
    Ok(size)
}

/// Temporary files are their maker's only; what people asked for has the usual rights.
fn readable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

async fn folder(store: &AgentStore, head: &Head, snapshot: &Snapshot, to: &Path) -> anyhow::Result<()> {
    let restored = Restored::fetch(store, snapshot, &[Part::Memory, Part::Ledger]).await?;
    let failed = || format!("can't write {}", to.display());
    let scratch = Scratch::beside(&parent(to)).with_context(failed)?;
    let made = scratch.path().join("export");
    std::fs::create_dir(&made).with_context(failed)?;
    let mut archives = BTreeMap::new();
    for part in [Part::Memory, Part::Ledger] {
        if part.of(snapshot).is_none() {
            continue;
        }
        let name = archive_name(part);
        let target = made.join(&name);
        let file = restored.file(part);
        let work = cicada_store::pack(&file, &target);
        let packed = progress::wait(part.name(), "packing", work).await?;
        std::fs::File::open(&target)?.sync_all().with_context(failed)?;
        archives.insert(
            name,
            ExportedArchive {
                archive_size: packed.archive_size,
                archive_sha256: packed.archive_sha256,
                file_size: packed.file_size,
                file_sha256: packed.file_sha256,
            },
        );
    }
    let manifest = Manifest {
        version: MANIFEST_VERSION,
        owner: head.owner.path(),
        location: store.location(),
        snapshot: snapshot.id.clone(),
        cycle: snapshot.cycle.name.clone(),
        created_at: snapshot.created_at,
        exported_at: Timestamp::now(),
        archives,
    };
    let text = serde_json::to_string_pretty(&manifest)? + "\n";
    std::fs::write(made.join(MANIFEST), text).with_context(failed)?;
    readable(&made)?;
    // A rename replaces an empty folder at most, and that only if one was made meanwhile.
    std::fs::rename(made, to).with_context(failed)?;
    note(&format!(
        "{}: snapshot {}, {} and {MANIFEST}",
        to.display(),
        snapshot.id,
        manifest.archives.keys().cloned().collect::<Vec<_>>().join(", ")
    ));
    Ok(())
}
