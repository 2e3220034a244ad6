//! The manifest with its defaults, and what can be wrong with it beyond what the schema refuses.

use cicada_contract::resources::{MIB, Resources, resources};
use cicada_crds::{PersistentAgentSpec, agent, store::Store, units};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::schedule::{self, ScheduleError};

/// Disk that one file from a ConfigMap may take: a ConfigMap holds 1 MiB.
const CONFIG_MAP_FILE: u64 = MIB;
/// Disk that is set aside for a file whose size is not known beforehand.
const STORE_FILE: u64 = 64 * MIB;

/// What the operator (or `local`) adds where a manifest says nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OperatorDefaults {
    /// Name of the cluster in the owner of each memory.
    pub cluster: String,
    /// Store of agents that name none.
    pub store: Option<Store>,
    /// Name of an earlier cluster whose agents' memories those of the same names here take over; empty = none.
    pub adopt_from: String,
    /// Base URL of models whose manifest names none: a gateway in the cluster.
    pub model_base_url: Option<String>,
    /// ConfigMap in each agent's namespace with certificates, as PEM, that cycles trust beside the public ones.
    pub ca_config_map_name: Option<String>,
    /// Image of the cycle job.
    pub cycle_image: String,
    /// When to pull it.
    pub cycle_image_pull_policy: Option<String>,
    /// Secrets for pulling it, in each agent's namespace.
    pub image_pull_secrets: Vec<String>,
    /// Folder in which ConfigMaps are mounted, each in a folder of its name.
    pub config_maps_dir: String,
    /// Folder against which `files[].from.path` is resolved; None in a cluster.
    pub local_dir: Option<String>,
}

impl Default for OperatorDefaults {
    fn default() -> Self {
        Self {
            cluster: String::new(),
            store: None,
            adopt_from: String::new(),
            model_base_url: None,
            ca_config_map_name: None,
            cycle_image: String::new(),
            cycle_image_pull_policy: None,
            image_pull_secrets: vec![],
            config_maps_dir: crate::job::CONFIG_MAPS_DIR.to_owned(),
            local_dir: None,
        }
    }
}

/// What is wrong with a manifest. The first words of each message are stable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A schedule can't be used.
    #[error("{error} (schedule {name})")]
    Schedule {
        /// Its name.
        name: String,
        /// Why.
        error: ScheduleError,
    },
    /// `limits.timeZone` is not known.
    #[error("{0} (limits.timeZone)")]
    LimitsZone(ScheduleError),
    /// Neither the agent nor the operator names a store.
    #[error("no store: set spec.store, or a default store when installing the chart")]
    NoStore,
    /// More or fewer executors than one.
    #[error("exactly one executor is needed: model, sql or container")]
    Executors,
    /// The sql executor has no statements or two sources.
    #[error("exactly one source of SQL is needed: inline or configMapKeyRef")]
    SqlSource,
    /// More or fewer stores than one.
    #[error("exactly one store is needed: s3 or directory")]
    Stores,
    /// A field that is read in code has a value that can't be used.
    #[error("unusable value in {field}: {problem}")]
    Value {
        /// Path of the field.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// `files[].from.path` outside of `local`.
    #[error("local file {0:?}: files[].from.path works in cicadactl local only")]
    LocalFile(String),
    /// The rendered config is larger than a ConfigMap may be.
    #[error("manifest too large: its plan has {bytes} bytes, at most {max} fit a ConfigMap; move texts to files from the store", max = cicada_contract::plan::CONFIG_MAX_BYTES)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// An override is below what the size limits need.
    #[error("resources too small: {resource} is {found} bytes, the size limits need {needed}")]
    ResourcesTooSmall {
        /// `memory` or `ephemeral-storage`.
        resource: &'static str,
        /// Bytes given.
        found: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// A combination that this release does not run.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

impl SpecError {
    /// Reason for the condition Stalled, and a heading of the runbook.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Schedule { error, .. } | Self::LimitsZone(error) => error.reason(),
            Self::NoStore | Self::Stores => "StoreNotConfigured",
            Self::Executors | Self::SqlSource | Self::Value { .. } | Self::LocalFile(_) => "InvalidSpec",
            Self::TooLarge { .. } => "ManifestTooLarge",
            Self::ResourcesTooSmall { .. } => "ResourcesTooSmall",
            Self::Unsupported(_) => "NotSupported",
        }
    }

    /// Only an edit of the manifest or of the operator's configuration helps.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Numbers of a manifest after defaults, in bytes and seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Largest memory file.
    pub size_limit: u64,
    /// Largest ledger file.
    pub ledger_size_limit: u64,
    /// `limits.timeout`.
    pub timeout: u64,
    /// `terminationGracePeriodSeconds`.
    pub grace: u64,
    /// `backoffLimit`.
    pub backoff_limit: u32,
    /// What the pod gets.
    pub resources: Resources,
}

/// Seconds of an optional duration.
pub(crate) fn seconds(field: &str, span: Option<&units::Span>, default: u64) -> Result<u64, SpecError> {
    span.map_or(Ok(default), |s| {
        s.seconds().ok_or_else(|| SpecError::Value {
            field: field.to_owned(),
            problem: format!("{:?} is not a duration such as 30s, 5m or 1h30m", s.0),
        })
    })
}

/// Computes the numbers, and refuses those that can't work.
pub fn sizes(spec: &PersistentAgentSpec) -> Result<Sizes, SpecError> {
    let memory = spec.memory.clone().unwrap_or_default();
    let size = |field: &str, quantity: Option<&_>| {
        let bytes = quantity.map_or(Some(256 * MIB), units::bytes);
        // SQLite needs a few pages; beyond 64 GiB the disk budget would no longer fit a node.
        bytes.filter(|b| (MIB..=64 << 30).contains(b)).ok_or_else(|| SpecError::Value {
            field: field.to_owned(),
            problem: "it must lie between 1Mi and 64Gi".into(),
        })
    };
    let size_limit = size("memory.sizeLimit", memory.size_limit.as_ref())?;
    let ledger_size_limit = size("memory.ledgerSizeLimit", memory.ledger_size_limit.as_ref())?;
    let timeout = seconds("limits.timeout", spec.limits.as_ref().and_then(|l| l.timeout.as_ref()), 1800)?;
    if !(60..=86_400).contains(&timeout) {
        return Err(SpecError::Value {
            field: "limits.timeout".into(),
            problem: "it must lie between 1m and 24h".into(),
        });
    }
    let files = spec
        .files
        .iter()
        .map(|f| if f.from.config_map_key_ref.is_some() { CONFIG_MAP_FILE } else { STORE_FILE })
        .sum();
    let resources = resources(size_limit, ledger_size_limit, files);
    let pod = spec.pod.as_ref();
    let grace = pod.and_then(|p| p.termination_grace_period_seconds).and_then(|g| u64::try_from(g).ok());
    for (resource, needed) in
        [("memory", resources.container_memory), ("ephemeral-storage", resources.ephemeral_storage)]
    {
        let limit = pod.and_then(|p| p.resources.as_ref()).and_then(|r| r.limits.get(resource));
        if let Some(found) = limit.and_then(units::bytes).filter(|found| *found < needed) {
            return Err(SpecError::ResourcesTooSmall { resource, found, needed });
        }
    }
    Ok(Sizes {
        size_limit,
        ledger_size_limit,
        timeout,
        grace: grace.unwrap_or(resources.grace_seconds),
        backoff_limit: spec.backoff_limit.unwrap_or(agent::BACKOFF_LIMIT),
        resources,
    })
}

/// Zone whose midnight starts a day.
pub fn day_zone(spec: &PersistentAgentSpec) -> Result<TimeZone, SpecError> {
    schedule::zone(spec.limits.as_ref().and_then(|l| l.time_zone.as_deref())).map_err(SpecError::LimitsZone)
}
