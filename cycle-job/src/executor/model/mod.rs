//! The model executor: a language model that works in its memory by tools.
//!
//! The loop's decisions are pure ([`turn`], [`transcript`], [`prompt`], [`tools`], [`usage`]). The edges
//! are [`client`] and [`provider`] (the model), [`http`] (the agent's own requests), and the desk, where
//! tools reach memory, ledger and store. No text reaches the model, the ledger or a log before it went
//! through [`redact`].

pub mod address;
pub mod client;
mod declarations;
pub(in crate::executor) mod desk;
pub(in crate::executor) mod drive;
mod facts;
mod fields;
pub(crate) mod files;
mod hosts;
pub mod http;
pub mod mcp;
mod messages;
mod openai;
pub mod prompt;
pub mod provider;
pub mod redact;
mod results;
pub(in crate::executor) mod spend;
pub(in crate::executor) mod summary;
pub mod tools;
pub mod transcript;
pub mod turn;
pub mod usage;

use std::sync::Arc;

use cicada_contract::plan::{Channel, ModelConfig, SecretRef, StoreConfig};
use cicada_contract::report::{Outcome, Usage};
use cicada_contract::{FailureClass, PlanConfig};
use cicada_memory::ledger::{FileEntry, StepRecord};
use cicada_memory::{LedgerWorker, MemoryWorker, WorkerError};
use cicada_store::{SnapshotKind, StoreError};
use tokio::task::block_in_place;

use crate::context::Context;
use crate::executor::Work;
use crate::executor::sql::SqlExecutorError;
use crate::failure::{Classified, Failure, disk_class, worker_class};
use crate::phase::acquire::{Claim, store_class};
use crate::phase::checkpoint::CheckpointError;
use crate::secrets::{SecretError, SecretText, Secrets};
use crate::shutdown::Stop;

use client::CallError;
use desk::Desk;
use drive::Loop;
use http::{HostSecret, Rules, SystemResolver};
use mcp::Servers;
use prompt::Prompt;
use provider::{ProviderError, ProviderModel, api_key};
use redact::Redactor;
use spend::Meter;
use tools::Offered;
use transcript::{Transcript, WindowTooSmall};
use turn::End;

/// Why a model's work came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A secret of the manifest is not there.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The client can't be made.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The provider has no reply.
    #[error(transparent)]
    Call(#[from] CallError),
    /// What must be in the prompt does not fit.
    #[error(transparent)]
    Window(#[from] WindowTooSmall),
    /// An MCP server of the manifest can't be used as it is written there.
    #[error("{0}")]
    Mcp(String),
    /// The day's budget was spent before.
    #[error(
        "limits.{limit} was spent before the first call; the next day begins at midnight of limits.timeZone"
    )]
    Budget {
        /// Name of the limit.
        limit: &'static str,
    },
    /// A worker failed outside a statement.
    #[error("a worker failed")]
    Worker(#[from] WorkerError),
    /// The sql tool failed outside a statement.
    #[error("the sql tool failed")]
    Sql(#[source] SqlExecutorError),
    /// The store failed.
    #[error("the store failed while the model worked")]
    Store(#[from] StoreError),
    /// The state before a call that changes the world could not be published, so it was not made.
    #[error("could not publish a checkpoint")]
    Checkpoint(#[from] CheckpointError),
    /// A file could not be written.
    #[error("could not write a file of the agent")]
    File(#[from] std::io::Error),
    /// Time is up, or the pod must go. Becomes an interrupted end, not a failure.
    #[error("the cycle was told to stop")]
    Stopped(Stop),
}

impl Classified for ModelError {
    fn class(&self) -> FailureClass {
        match self {
            Self::Secret(e) => e.class(),
            Self::Provider(ProviderError::Secret(_) | ProviderError::NoKey { .. }) => {
                FailureClass::SecretMissing
            }
            Self::Provider(_) | Self::Window(_) | Self::Mcp(_) => FailureClass::ExecutorFailed,
            Self::Call(e) => e.class(),
            Self::Budget { .. } => FailureClass::BudgetExceeded,
            Self::Worker(e) => worker_class(e, FailureClass::WorkerCrashed),
            Self::Sql(e) => e.class(),
            Self::Store(e) => store_class(e),
            Self::Checkpoint(e) => e.class(),
            Self::File(e) => disk_class(e, FailureClass::ExecutorFailed),
            Self::Stopped(Stop::Timeout) => FailureClass::Timeout,
            Self::Stopped(Stop::Signal) => FailureClass::Disrupted,
        }
    }
}

/// Both databases and the files, as the executor gets them and gives them back.
pub struct Bench {
    /// The agent's own tables, with the mounts.
    pub memory: MemoryWorker,
    /// The platform's.
    pub ledger: LedgerWorker,
    /// Files in the working directory.
    pub files: Vec<FileEntry>,
}

/// Lets the model work.
pub async fn run(
    cx: &Context,
    claim: &mut Claim,
    config: &ModelConfig,
    bench: Bench,
) -> Result<(Bench, Work), Failure> {
    Ok(try_run(cx, claim, config, bench).await?)
}

/// A desk that is ready for the first call, and what whoever works at it is told.
pub(in crate::executor) struct Opened<'c> {
    pub(in crate::executor) desk: Desk<'c>,
    pub(in crate::executor) offered: Offered,
    pub(in crate::executor) prompt: Prompt,
    /// Calls of earlier attempts that the prompt tells of.
    pub(in crate::executor) told: Vec<StepRecord>,
}

/// Sets the desk up: reads the day's spend, restores files, connects to MCP servers, builds the prompt.
pub(in crate::executor) async fn open<'c>(
    cx: &'c Context,
    claim: &'c mut Claim,
    bench: Bench,
    redactor: Redactor,
) -> Result<Opened<'c>, ModelError> {
    let Bench { mut memory, mut ledger, mut files } = bench;
    let plan = &cx.plan.config;
    let rules = rules(plan, &cx.secrets)?;
    let overview = block_in_place(|| ledger.overview(cx.now(), &plan.limits.time_zone))?;
    let before = spend::spent_before(cx, claim, &mut ledger, &overview).await?;
    files::restore(cx, claim, &mut files).await?;
    let told = block_in_place(|| open_intents(&mut ledger))?;
    let mut facts = block_in_place(|| facts::gather(cx, &mut ledger, &mut memory, &files, &overview))?;
    let (servers, tools, notes) = Servers::connect(cx, &mut ledger, &redactor).await?;
    facts.warnings.extend(notes);
    let offered = Offered::new(plan, tools);
    let prompt = prompt::build(plan, &cx.plan.run, &facts, cx.now());
    let mut desk = Desk::new(cx, claim, memory, ledger, files, redactor, rules, servers, before);
    desk.changed("__files");
    Ok(Opened { desk, offered, prompt, told })
}

/// Takes the desk down after work that counts: what was told is told, files are stored.
pub(in crate::executor) async fn close(mut desk: Desk<'_>, told: &[StepRecord]) -> Result<Bench, ModelError> {
    block_in_place(|| told.iter().try_for_each(|intent| desk.ledger.record_step(intent)))?;
    desk.store_files().await?;
    let Desk { memory, ledger, files, .. } = desk;
    let Some(memory) = memory else { return Err(ModelError::Stopped(Stop::Signal)) };
    Ok(Bench { memory, ledger, files })
}

async fn try_run(
    cx: &Context,
    claim: &mut Claim,
    config: &ModelConfig,
    bench: Bench,
) -> Result<(Bench, Work), ModelError> {
    let key = api_key(config, &cx.secrets)?;
    let redactor = redactor(&cx.plan.config, &cx.secrets, key.as_ref());
    let llm = ProviderModel::new(config, key.as_ref(), redactor.clone())?;
    let Opened { mut desk, offered, prompt, told } = open(cx, claim, bench, redactor).await?;
    let mut work = Loop {
        desk: &mut desk,
        llm: &llm,
        config,
        offered: &offered,
        usage: Usage::default(),
        meter: Meter::new(cx.now()),
        window: None,
    };
    let result = match work.run(Transcript::new(prompt)).await {
        Ok(end) => work.summarise().await.map(|()| end),
        Err(error) => Err(error),
    };
    let usage = Usage { messages: work.desk.messages, ..work.usage.clone() };
    // However it ended: the spend is known before anything else can fail, and after a restore, too.
    work.meter.tell_last(cx, work.desk.claim, &usage).await;
    cx.note_usage(&usage);
    let (work, told) = match result {
        Ok(end) => (finished(end, usage), told),
        // What was told stays open for the next attempt.
        Err(ModelError::Stopped(stop)) => (interrupted(stop, usage), vec![]),
        Err(error) => return Err(error),
    };
    Ok((close(desk, &told).await?, work))
}

fn finished(end: End, usage: Usage) -> Work {
    // The agent's own words are in the ledger's step; they may hold cells or addresses, so status gets none.
    let message = match end.ended_by {
        Some(limit) => format!(
            "ended by limits.{limit} after {} model and {} tool calls",
            usage.model_calls, usage.tool_calls
        ),
        None if end.summary.is_none() => "the model stopped without calling finish".to_owned(),
        None => format!("{} model and {} tool calls", usage.model_calls, usage.tool_calls),
    };
    Work { outcome: end.outcome, message, ended_by: end.ended_by, usage, kind: SnapshotKind::Final }
}

fn interrupted(stop: Stop, usage: Usage) -> Work {
    let (ended_by, message) = match stop {
        Stop::Timeout => ("timeout", "limits.timeout passed; committed batches are kept"),
        Stop::Signal => ("signal", "the pod was told to stop; committed batches are kept"),
    };
    Work {
        outcome: Outcome::Unstated,
        message: message.into(),
        ended_by: Some(ended_by),
        usage,
        kind: SnapshotKind::Interrupted,
    }
}

/// Calls of earlier attempts of which no end is known, closed: the prompt of this cycle tells of them, and
/// once it has ended no later one should.
fn open_intents(ledger: &mut LedgerWorker) -> Result<Vec<StepRecord>, WorkerError> {
    let rows = ledger.query(
        "SELECT cycle, attempt, step, started_at, text FROM steps WHERE kind = 'intent' AND ended_at IS NULL",
        200,
    )?;
    let text =
        |n: usize, column: &str| rows.get(n, column).map(cicada_memory::Value::display).unwrap_or_default();
    let found = (0..rows.rows.len()).filter_map(|n| {
        let started_at = text(n, "started_at").parse().ok()?;
        Some(StepRecord {
            cycle: text(n, "cycle"),
            attempt: text(n, "attempt").parse().ok()?,
            step: text(n, "step").parse().ok()?,
            kind: "intent".into(),
            started_at,
            // When it ended is not known; that it did not end in sight is what the text says.
            ended_at: Some(started_at),
            text: Some(format!("{} (outcome unknown)", text(n, "text"))),
            calls_json: None,
            usage: Usage::default(),
        })
    });
    Ok(found.collect())
}

fn rules(plan: &PlanConfig, secrets: &Secrets) -> Result<Rules, SecretError> {
    let named = plan.secrets.iter().map(|s| {
        Ok(HostSecret { name: s.name.clone(), value: secrets.get(&s.from)?, hosts: s.allowed_hosts.clone() })
    });
    let secrets = named.collect::<Result<_, SecretError>>()?;
    Ok(Rules { allowed: plan.http.allowed_hosts.clone(), secrets, resolver: Arc::new(SystemResolver) })
}

/// A filter for every secret that the plan names, whoever uses it.
pub(in crate::executor) fn redactor(
    plan: &PlanConfig,
    secrets: &Secrets,
    key: Option<&SecretText>,
) -> Redactor {
    let mut references: Vec<SecretRef> = plan.secrets.iter().map(|s| s.from.clone()).collect();
    for channel in plan.channels.values() {
        match channel {
            Channel::Console {} => {}
            Channel::Webhook { signing_key, .. } => references.extend(signing_key.clone()),
            Channel::Email { username, password, .. } => {
                references.extend(username.iter().chain(password).cloned())
            }
        }
    }
    if let StoreConfig::S3(s3) = &plan.store
        && let Some(name) = &s3.secret_name
    {
        let keys = ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
        references.extend(keys.map(|key| SecretRef { name: name.clone(), key: key.into() }));
    }
    let headers = plan.mcp_servers.iter().filter_map(|m| m.headers_secret.as_ref());
    let headers = headers.flat_map(|name| secrets.all(name).unwrap_or_default()).map(|(_, value)| value);
    let named = references.iter().filter_map(|r| secrets.find(r).ok().flatten());
    let values: Vec<SecretText> = named.chain(headers).chain(key.cloned()).collect();
    Redactor::new(values.iter().map(SecretText::expose))
}

#[cfg(test)]
#[path = "../../../../tests/src/model_server/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the end-to-end tests")]
mod model_server;

#[cfg(test)]
pub(crate) fn test_config() -> cicada_contract::PlanConfig {
    use cicada_contract::plan::{Executor, Owner, Provider};
    let owner = Owner {
        cluster: "test".into(),
        namespace: "shop".into(),
        name: "price-watch".into(),
        uid: "u".into(),
        ..Owner::default()
    };
    let executor = Executor::Model(ModelConfig {
        provider: Provider::OpenAICompatible,
        name: "scripted".into(),
        base_url: None,
        api_key: None,
        temperature: None,
        max_output_tokens: None,
        prices: None,
    });
    let store = StoreConfig::Directory { path: "/tmp/none".into(), claim_name: None };
    PlanConfig {
        charter: "Track prices.".into(),
        channels: [("console".to_owned(), Channel::Console {})].into(),
        ..PlanConfig::new(owner, store, executor)
    }
}
