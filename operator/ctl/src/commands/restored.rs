//! A snapshot on this machine: downloaded, checked against HEAD, unpacked into a folder of its own and
//! opened by sandboxed workers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use cicada_contract::resources::MIB;
use cicada_memory::{
    Launcher, LedgerOptions, LedgerWorker, Link, MemoryOptions, MemoryWorker, UnpackError, UnpackLimits,
};
use cicada_store::{AgentStore, ArchiveRef, ChainError, Head, Snapshot, StoreError};

use crate::exit::Missing;
use crate::output::note;
use crate::progress;
use crate::scratch::Scratch;
use crate::target::did_you_mean;

/// Longest time of one statement, and of one unpacking: a person waits, no cycle.
const PATIENCE: Duration = Duration::from_secs(600);

/// Snapshots that a message names at most.
const SNAPSHOTS_NAMED: usize = 3;

/// One of the two databases of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The agent's own tables.
    Memory,
    /// The platform's tables about it.
    Ledger,
}

impl Part {
    /// As people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Ledger => "ledger",
        }
    }

    /// What a snapshot has of it.
    pub(super) fn of(self, snapshot: &Snapshot) -> Option<&ArchiveRef> {
        match self {
            Self::Memory => snapshot.memory.as_ref(),
            Self::Ledger => snapshot.ledger.as_ref(),
        }
    }
}

/// Why an archive is not on this machine.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// HEAD names it, but it is not there.
    #[error("{key} is not in the store, although HEAD names it")]
    Gone {
        /// Below the agent's prefix.
        key: String,
    },
    /// Its bytes are not those that were published.
    #[error("{key} has SHA-256 {found}, HEAD says {expected}")]
    WrongHash {
        /// Below the agent's prefix.
        key: String,
        /// What was found.
        found: String,
        /// What HEAD says.
        expected: String,
    },
    /// It does not unpack.
    #[error("can't unpack {key}")]
    Unpack {
        /// Below the agent's prefix.
        key: String,
        /// What the worker said.
        #[source]
        source: UnpackError,
    },
    /// HEAD does not name what it builds on.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The store failed.
    #[error("can't download {key}")]
    Store {
        /// Below the agent's prefix.
        key: String,
        /// What it said.
        #[source]
        source: StoreError,
    },
}

impl FetchError {
    /// True if the archive itself is at fault, not the way to it.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Gone { .. } | Self::WrongHash { .. } | Self::Chain(_) => true,
            Self::Unpack { source, .. } => {
                matches!(source, UnpackError::Corrupt { .. } | UnpackError::Bomb { .. })
            }
            Self::Store { .. } => false,
        }
    }
}

/// Downloads one archive; its bytes are those that HEAD names.
async fn download(store: &AgentStore, archive: &ArchiveRef, to: &Path) -> Result<(), FetchError> {
    let key = || archive.key.clone();
    let wrong =
        |found: String| FetchError::WrongHash { key: key(), found, expected: archive.archive_sha256.clone() };
    match store.store().download(&store.key(&archive.key), to, archive.archive_size).await {
        Ok(found) if found.sha256 == archive.archive_sha256 => Ok(()),
        Ok(found) => Err(wrong(found.sha256)),
        Err(StoreError::TooLarge { limit, .. }) => Err(wrong(format!("of more than {limit} bytes"))),
        Err(StoreError::NotFound { .. }) => Err(FetchError::Gone { key: key() }),
        Err(source) => Err(FetchError::Store { key: key(), source }),
    }
}

/// A temporary folder for a memory that passes through this machine.
pub(super) fn private_folder() -> std::io::Result<Scratch> {
    Scratch::new()
}

/// A folder with one folder for each database, removed with the value.
pub(super) struct Restored {
    folder: Scratch,
    launcher: Launcher,
}

impl Restored {
    /// With nothing in it yet.
    pub(super) fn new() -> anyhow::Result<Self> {
        let folder = private_folder()?;
        for part in [Part::Memory, Part::Ledger] {
            std::fs::create_dir(folder.path().join(part.name()))?;
        }
        Ok(Self { folder, launcher: Launcher::current_exe()? })
    }

    /// With what a snapshot has of `parts`.
    pub(super) async fn fetch(
        store: &AgentStore,
        snapshot: &Snapshot,
        parts: &[Part],
    ) -> anyhow::Result<Self> {
        let restored = Self::new()?;
        for part in parts {
            if let Some(archive) = part.of(snapshot) {
                restored.unpack(store, archive, *part).await?;
            }
        }
        Ok(restored)
    }

    /// The folder of a database.
    pub(super) fn dir(&self, part: Part) -> PathBuf {
        self.folder.path().join(part.name())
    }

    /// The database's file.
    pub(super) fn file(&self, part: Part) -> PathBuf {
        self.dir(part).join(format!("{}.db", part.name()))
    }

    /// A place beside the databases.
    pub(super) fn scratch(&self) -> &Path {
        self.folder.path()
    }

    /// How workers are started.
    pub(super) fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// Downloads one archive, with what it builds on, and makes its file.
    pub(super) async fn unpack(
        &self,
        store: &AgentStore,
        archive: &ArchiveRef,
        part: Part,
    ) -> Result<(), FetchError> {
        let chain = archive.links()?;
        let total: u64 = chain.iter().map(|link| link.archive_size).sum();
        let bar = progress::bar(part.name(), total);
        let mut links = vec![];
        for (n, link) in chain.into_iter().enumerate() {
            let packed = self.folder.path().join(format!("{}-{n}.zst", part.name()));
            progress::follow(&bar, &packed, download(store, link, &packed)).await?;
            let (file_size, file_sha256) = (link.file_size, link.file_sha256.clone());
            links.push(Link { archive: packed, file_size, file_sha256 });
        }
        bar.finish_and_clear();
        let limits =
            UnpackLimits { max_bytes: archive.file_size, timeout: PATIENCE, address_space: 256 * MIB };
        let out = self.file(part);
        let unpacked = tokio::task::block_in_place(|| {
            cicada_memory::unpack_chain(&self.launcher, &links, &out, limits, |_| {})
        });
        for link in links {
            // Only room is lost if it stays.
            let _ = std::fs::remove_file(link.archive);
        }
        unpacked.map(|_| ()).map_err(|source| FetchError::Unpack { key: archive.key.clone(), source })
    }

    /// Opens the memory, or makes an empty one.
    pub(super) fn memory(&self) -> anyhow::Result<MemoryWorker> {
        self.memory_for(PATIENCE)
    }

    /// The same, with this longest time of a statement.
    pub(super) fn memory_for(&self, patience: Duration) -> anyhow::Result<MemoryWorker> {
        let options = MemoryOptions { sql_timeout: patience, ..memory_options(&self.file(Part::Memory)) };
        Ok(MemoryWorker::spawn(&self.launcher, &self.dir(Part::Memory), options)?)
    }

    /// Opens the ledger, or makes an empty one.
    pub(super) fn ledger(&self) -> anyhow::Result<LedgerWorker> {
        self.ledger_for(PATIENCE)
    }

    /// The same, with this longest time of a request.
    pub(super) fn ledger_for(&self, patience: Duration) -> anyhow::Result<LedgerWorker> {
        let size = std::fs::metadata(self.file(Part::Ledger)).map_or(0, |m| m.len());
        let limits = LedgerOptions::new(256 * MIB, (2 * size).max(1024 * MIB));
        let options = LedgerOptions { timeout: patience, ..limits };
        Ok(LedgerWorker::spawn(&self.launcher, &self.dir(Part::Ledger), options)?)
    }
}

/// Room for a file of any size.
pub(super) fn memory_options(file: &Path) -> MemoryOptions {
    let size = std::fs::metadata(file).map_or(0, |m| m.len());
    MemoryOptions::new((2 * size).max(256 * MIB), 256 * MIB, PATIENCE)
}

/// HEAD, or why there is none. One that can't be the newest is used, and that is said: whoever looks at an older state
/// must know.
pub(super) async fn head(store: &AgentStore) -> anyhow::Result<Head> {
    // Listed before HEAD is read: no cycle that runs beside can make HEAD look old. A key may have no right to list.
    let ids = store.snapshot_ids().await.unwrap_or_default();
    let head = bare_head(store).await?;
    // Once is enough where a command looks again and again.
    static TOLD: AtomicBool = AtomicBool::new(false);
    if let Some(wrong) = doubt(&head, &ids).filter(|_| !TOLD.swap(true, Ordering::Relaxed)) {
        let agent = head.owner.path();
        let agent = agent.split_once('/').map_or(agent.as_str(), |(_, agent)| agent);
        note(&format!("warning: {wrong}; cicadactl verify {agent} says what to do"));
    }
    Ok(head)
}

/// Why a HEAD can't be the newest one.
fn doubt(head: &Head, ids: &[String]) -> Option<String> {
    if let Some(newer) = head.newer(ids.iter().map(String::as_str)) {
        return Some(format!(
            "this is an older state: HEAD.json ends at epoch {}, and the store has snapshot {newer}",
            head.epoch
        ));
    }
    let wrong = head.check_current().err()?;
    Some(cicada_cycle_job::failure::chain(&wrong))
}

/// HEAD without a doubt about it, for those who judge it themselves.
pub(super) async fn bare_head(store: &AgentStore) -> anyhow::Result<Head> {
    let Some(at) = store.read_head().await? else {
        let left = store.store().list(&store.key("snapshots/")).await?;
        if !left.is_empty() {
            bail!(
                "HEAD.json is missing at {}, and {} there: \
                 bring HEAD.json back from the bucket's versions or a backup",
                store.location(),
                match left.len() {
                    1 => "an archive of a snapshot is".to_owned(),
                    many => format!("{many} archives of snapshots are"),
                }
            );
        }
        let near = near_agents(store).await;
        bail!(Missing(format!(
            "no memory at {}: the agent has not run yet, or it is another store{near}",
            store.location()
        )));
    };
    if let Some(at) = at.head.deleted_at {
        bail!(Missing(format!("the memory at {} was deleted at {at}", store.location())));
    }
    Ok(at.head)
}

/// Agents of the same namespace with a similar name. A store that can't list only has no advice.
pub(super) async fn near_agents(store: &AgentStore) -> String {
    let own = store.key("");
    let mut parts = own.split('/');
    let (Some(namespace), Some(name)) = (parts.next(), parts.next()) else { return String::new() };
    let listing = store.store().list(&format!("{namespace}/")).await.unwrap_or_default();
    let names: Vec<String> = listing
        .iter()
        .filter_map(|o| o.key.strip_suffix("/HEAD.json")?.strip_prefix(namespace)?.strip_prefix('/'))
        .map(str::to_owned)
        .collect();
    did_you_mean(name, &names)
}

/// The snapshot named, or the current one.
pub(super) fn choose<'h>(head: &'h Head, id: Option<&str>) -> anyhow::Result<&'h Snapshot> {
    match id {
        None | Some("current") => {
            head.current().ok_or_else(|| Missing("the memory has no snapshot yet".into()).into())
        }
        Some(id) => {
            // The number of a snapshot is enough where it is clear: nobody types sixteen random digits.
            let begins = format!("{id}-");
            let found: Vec<&Snapshot> =
                head.snapshots.iter().filter(|s| s.id == id || s.id.starts_with(&begins)).collect();
            match found.as_slice() {
                [one] => Ok(one),
                [] => bail!(Missing(format!("no snapshot {id}{}", known_snapshots(id, head)))),
                several => {
                    bail!(Missing(format!("more than one snapshot begins with {begins}: {}", ids(several))))
                }
            }
        }
    }
}

/// The snapshot that may be meant, else the newest ones.
fn known_snapshots(id: &str, head: &Head) -> String {
    let all: Vec<String> = head.snapshots.iter().map(|s| s.id.clone()).collect();
    let near = did_you_mean(id, &all);
    if !near.is_empty() || all.is_empty() {
        return near;
    }
    let newest: Vec<&Snapshot> = head.snapshots.iter().rev().take(SNAPSHOTS_NAMED).collect();
    format!("; the newest are {} (cicadactl snapshots lists them all)", ids(&newest))
}

fn ids(snapshots: &[&Snapshot]) -> String {
    snapshots.iter().map(|s| s.id.as_str()).collect::<Vec<_>>().join(", ")
}

/// What both databases of a snapshot need on disk, in bytes.
pub(super) fn size(snapshot: &Snapshot) -> u64 {
    [&snapshot.memory, &snapshot.ledger].into_iter().flatten().map(|a| a.file_size).sum()
}

/// Context for a database that does not open.
pub(super) fn unusable(part: Part, snapshot: &Snapshot) -> String {
    format!("can't open the {} of snapshot {}; cicadactl verify tells more", part.name(), snapshot.id)
}

/// Runs blocking work of a worker.
pub(super) fn blocking<T>(
    work: impl FnOnce() -> anyhow::Result<T>,
    context: impl FnOnce() -> String,
) -> anyhow::Result<T> {
    tokio::task::block_in_place(work).with_context(context)
}
