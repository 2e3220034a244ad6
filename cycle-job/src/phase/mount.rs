//! mount: puts the manifest's files in place and fills the eight tables.

use std::path::{Component, Path};

use cicada_contract::FailureClass;
use cicada_contract::plan::{FileSource, PlanFile, ProvidedFile};
use cicada_memory::ledger::FileEntry;
use cicada_memory::{LedgerWorker, MemoryWorker, WorkerError};
use cicada_store::StoreError;
use tokio::task::block_in_place;

use crate::context::Context;
use crate::download::{DownloadError, download, measure};
use crate::failure::{Classified, Failure, disk_class, worker_class};
use crate::phase::acquire::{Claim, store_class};
use crate::phase::ingest::Ingested;

/// Largest file of the store, in bytes.
const FILE_MAX_BYTES: u64 = 1 << 30;

/// Both databases are open and the eight tables are there.
pub struct Mounted {
    pub(crate) memory: MemoryWorker,
    pub(crate) ledger: LedgerWorker,
    /// The files in the working directory, as `__files` shows them.
    pub(crate) files: Vec<FileEntry>,
    pub(crate) warnings: Vec<String>,
}

/// Why the tables could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The path leads out of the working directory.
    #[error("files: {path} is not a relative path without `..`")]
    Path {
        /// The path of the manifest.
        path: String,
    },
    /// What the manifest names is not there.
    #[error("{origin} is missing: create it, or correct spec.files")]
    Missing {
        /// What the manifest names.
        origin: String,
    },
    /// A file could not be put in place.
    #[error("could not put the file {path} in place")]
    Place {
        /// The path of the manifest.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The store failed.
    #[error("could not fetch the file {path} from the store")]
    Fetch {
        /// The path of the manifest.
        path: String,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// The download failed, or its bytes are not the ones that the manifest names.
    #[error("could not download the file {path}")]
    Download {
        /// The path of the manifest.
        path: String,
        /// What went wrong.
        #[source]
        source: DownloadError,
    },
    /// A worker could not fill the tables.
    #[error("could not fill the mounted tables")]
    Engine(#[from] WorkerError),
}

impl Classified for MountError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Path { .. } | Self::Missing { .. } => FailureClass::ConfigMissing,
            Self::Fetch { source, .. } => store_class(source),
            Self::Place { source, .. } => disk_class(source, FailureClass::MountFailed),
            Self::Download { source: DownloadError::Write(source), .. } => {
                disk_class(source, FailureClass::MountFailed)
            }
            Self::Download { .. } => FailureClass::MountFailed,
            Self::Engine(e) => worker_class(e, FailureClass::MountFailed),
        }
    }
}

/// Fetches the files and mounts.
pub async fn mount(cx: &Context, claim: &Claim, ingested: Ingested) -> Result<Mounted, Failure> {
    let Ingested { mut memory, mut ledger, warnings } = ingested;
    let mut files = vec![];
    for file in &cx.plan.config.files {
        files.push(place(cx, claim, file).await?);
    }
    block_in_place(|| {
        let mounts = ledger.load_mounts(&cx.plan.config, &files, cx.now())?;
        memory.mount(&mounts)
    })
    .map_err(MountError::from)?;
    Ok(Mounted { memory, ledger, files, warnings })
}

async fn place(cx: &Context, claim: &Claim, file: &PlanFile) -> Result<FileEntry, MountError> {
    let path = Path::new(&file.path);
    if file.path.is_empty() || !path.components().all(|c| matches!(c, Component::Normal(_))) {
        return Err(MountError::Path { path: file.path.clone() });
    }
    let target = cx.work.files().join(path);
    let failed = |source| MountError::Place { path: file.path.clone(), source };
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let (size, sha256) = match &file.from {
        FileSource::Provided(ProvidedFile { path, origin }) => {
            match std::fs::copy(path, &target) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    return Err(MountError::Missing { origin: origin.clone() });
                }
                copied => drop(copied.map_err(failed)?),
            }
            block_in_place(|| measure(&target)).map_err(failed)?
        }
        FileSource::StoreKey(key) => match claim.store.fetch_file(key, &target, FILE_MAX_BYTES).await {
            Ok(fetched) => (fetched.size, fetched.sha256),
            Err(StoreError::NotFound { .. }) => {
                let origin = format!("file {key} in the store (cicadactl files put)");
                return Err(MountError::Missing { origin });
            }
            Err(source) => return Err(MountError::Fetch { path: file.path.clone(), source }),
        },
        FileSource::Url { url, sha256 } => {
            let failed = |source| MountError::Download { path: file.path.clone(), source };
            let size = download(url, sha256, &target).await.map_err(failed)?;
            (size, sha256.to_ascii_lowercase())
        }
    };
    Ok(FileEntry { path: file.path.clone(), mime_type: None, size, sha256 })
}
