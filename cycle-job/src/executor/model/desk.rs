//! Where the tools of one cycle do their work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use cicada_contract::text::{cut, sha256_hex};
use cicada_memory::ledger::{FileEntry, StepRecord, ToolDigest, ToolResultRecord};
use cicada_memory::{LedgerWorker, MemoryWorker};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::ModelError;
use super::facts::quote;
use super::http::{HttpResponse, Rules};
use super::mcp::Servers;
use super::prompt::{defang, result_block};
use super::redact::Redactor;
use super::results;
use super::tools::{HttpCall, ToolCall};
use super::transcript::{Answer, Call};
use super::usage::SpentBefore;
use crate::context::Context;
use crate::executor::sql::{self, SqlExecutorError};
use crate::phase::acquire::Claim;
use crate::phase::checkpoint::checkpoint;

/// Contents above this are objects of the store.
const LEDGER_BYTES: usize = 4096;

/// One tool call that was worked on.
pub(in crate::executor) struct Done {
    pub(in crate::executor) answer: Answer,
    pub(in crate::executor) failed: bool,
    /// For the step's record.
    pub(in crate::executor) record: Value,
}

/// What a tool says to the model.
pub(in crate::executor) struct Said {
    pub(in crate::executor) text: String,
    pub(in crate::executor) failed: bool,
    pub(in crate::executor) result_id: Option<String>,
}

impl Said {
    pub(in crate::executor) fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), failed: false, result_id: None }
    }

    pub(in crate::executor) fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), failed: true, result_id: None }
    }
}

/// A result that the ledger keeps.
pub(in crate::executor) struct Kept {
    pub(in crate::executor) id: String,
    pub(in crate::executor) content: Option<String>,
    pub(in crate::executor) bytes: usize,
    pub(in crate::executor) digest: ToolDigest,
}

/// Both databases, the store and what the manifest allows.
pub(in crate::executor) struct Desk<'c> {
    pub(in crate::executor) cx: &'c Context,
    pub(in crate::executor) claim: &'c mut Claim,
    /// None only while a batch runs.
    pub(in crate::executor) memory: Option<MemoryWorker>,
    pub(in crate::executor) ledger: LedgerWorker,
    pub(in crate::executor) files: Vec<FileEntry>,
    pub(in crate::executor) redactor: Redactor,
    pub(in crate::executor) rules: Rules,
    pub(super) servers: Servers,
    pub(in crate::executor) before: SpentBefore,
    /// Messages of this attempt.
    pub(in crate::executor) messages: u32,
    /// Own files that were written in this cycle.
    pub(in crate::executor) written: BTreeSet<String>,
    /// Calls that may have changed the world, known outcomes included.
    pub(in crate::executor) intents: Vec<StepRecord>,
    /// Number of the newest step of the ledger.
    pub(in crate::executor) step: u32,
    results: u32,
    /// Contents of this cycle that the ledger keeps as objects, by result.
    contents: BTreeMap<String, String>,
    /// Results of the step that runs.
    fresh: BTreeSet<String>,
    stale: BTreeSet<&'static str>,
}

impl<'c> Desk<'c> {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of its own; a builder would only rename them"
    )]
    pub(super) fn new(
        cx: &'c Context,
        claim: &'c mut Claim,
        memory: MemoryWorker,
        ledger: LedgerWorker,
        files: Vec<FileEntry>,
        redactor: Redactor,
        rules: Rules,
        servers: Servers,
        before: SpentBefore,
    ) -> Self {
        Self {
            cx,
            claim,
            memory: Some(memory),
            ledger,
            files,
            redactor,
            rules,
            servers,
            before,
            messages: 0,
            written: BTreeSet::new(),
            intents: vec![],
            step: 0,
            results: 0,
            contents: BTreeMap::new(),
            fresh: BTreeSet::new(),
            stale: BTreeSet::new(),
        }
    }

    /// Begins a step: the results of the one before are no longer the current ones.
    pub(in crate::executor) fn next_step(&mut self) -> u32 {
        self.fresh.clear();
        self.step += 1;
        self.step
    }

    /// Works on one call. `Err` ends the cycle; what the tool did wrong is in the answer.
    pub(in crate::executor) async fn work(
        &mut self,
        call: &Call,
        tool: &ToolCall,
    ) -> Result<Done, ModelError> {
        let started = Instant::now();
        let said = match tool {
            ToolCall::Sql { sql } => self.sql(sql.clone()).await?,
            ToolCall::LoadTable { path, table, durable } => self.load_table(path, table, *durable).await?,
            ToolCall::SendMessage { channel, to, subject, body, reply_to } => {
                self.send_message(channel, to, subject.clone(), body, reply_to.clone())?
            }
            ToolCall::MessagePeer { peer, subject, body } => {
                self.message_peer(peer, subject.clone(), body)?
            }
            ToolCall::RequestHumanInput { question, options } => self.ask(question, options)?,
            ToolCall::ReadFile { path, offset, limit } => self.read_file(path, *offset, *limit),
            ToolCall::WriteFile { path, content, append } => self.write_file(path, content, *append)?,
            ToolCall::RecallResult { result_id, offset, limit } => {
                self.recall(result_id, *offset, *limit).await?
            }
            ToolCall::HttpRequest(request) => self.http(call, request).await?,
            ToolCall::Mcp { name, arguments } => self.mcp(call, name, arguments).await?,
            // `finish` is the loop's own.
            ToolCall::Finish(_) => Said::error("this tool was not expected here"),
        };
        Ok(self.done(call, said, started))
    }

    /// The answer to a call, without secrets and within its bounds.
    pub(in crate::executor) fn done(&self, call: &Call, said: Said, started: Instant) -> Done {
        let text = self.redactor.text(&said.text);
        let arguments = self.redactor.text(&call.arguments.text());
        let record = json!({
            "tool": call.name, "arguments": cut(&arguments, 1000), "sha256": sha256_hex(&arguments),
            "ok": !said.failed, "bytes": text.len(), "ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "result": said.result_id, "error": said.failed.then(|| cut(&text, 300)),
        });
        let answer =
            Answer { call_id: call.id.clone(), name: call.name.clone(), text, result_id: said.result_id };
        Done { answer, failed: said.failed, record }
    }

    async fn sql(&mut self, sql: String) -> Result<Said, ModelError> {
        let Some(memory) = self.memory.take() else { return Ok(Said::error("the memory is not open")) };
        let (memory, result) = sql::batch(self.cx, memory, sql).await;
        self.memory = Some(memory);
        match result {
            Ok(result) => {
                Ok(Said { text: defang(&result.text), failed: result.error.is_some(), result_id: None })
            }
            Err(SqlExecutorError::Stopped(stop)) => Err(ModelError::Stopped(stop)),
            Err(error) => Err(ModelError::Sql(error)),
        }
    }

    async fn load_table(&mut self, path: &str, table: &str, durable: bool) -> Result<Said, ModelError> {
        let durable = if durable { ", 'durable'" } else { "" };
        self.sql(format!("SELECT load_table({}, {}{durable})", quote(path), quote(table))).await
    }

    async fn recall(&mut self, result_id: &str, offset: u64, limit: u64) -> Result<Said, ModelError> {
        let now = self.cx.now();
        let Some(found) = block_in_place(|| self.ledger.recall_result(result_id, now))? else {
            return Ok(Said::error(format!(
                "there is no result {}; SELECT result_id, tool_name FROM __tool_results",
                cut(result_id, 100)
            )));
        };
        let content = match (found.content, found.blob_key) {
            (Some(content), _) => content,
            (None, Some(key)) => match self.claim.store.get_blob(&key).await {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if error.is_retryable() => return Err(error.into()),
                Err(_) => return Ok(Said::error("the content of this result is no longer kept")),
            },
            (None, None) => return Ok(Said::error("this result is not text")),
        };
        Ok(Said::ok(results::slice("result", &content, offset, limit)))
    }

    async fn http(&mut self, call: &Call, request: &HttpCall) -> Result<Said, ModelError> {
        let changes = self.rules.changes_the_world(request);
        let intent = if changes { Some(self.intend(call).await?) } else { None };
        let rules = self.rules.clone();
        let response = tokio::select! {
            response = rules.request(request) => response,
            stop = self.cx.shutdown.wait() => return Err(ModelError::Stopped(stop)),
        };
        if let Some(intent) = intent {
            self.known(intent)?;
        }
        match response {
            Ok(response) => self.http_result(&response).await,
            Err(error) => Ok(Said::error(format!("no response: {}", crate::failure::chain(&error)))),
        }
    }

    async fn http_result(&mut self, response: &HttpResponse) -> Result<Said, ModelError> {
        let kept =
            self.keep("http_request", Some(&response.url), &response.body, response.is_truncated).await?;
        let headers: Vec<String> = response
            .headers
            .iter()
            .filter(|(name, _)| {
                matches!(name.as_str(), "content-type" | "location" | "retry-after" | "link" | "etag")
            })
            .map(|(name, value)| format!("{name}: {}", cut(value, 300)))
            .collect();
        let head = format!("HTTP {} {}\n{}", response.status, cut(&response.url, 500), headers.join("\n"));
        let text =
            format!("{}\n{}", result_block("http headers", &head), results::show("http response", &kept));
        Ok(Said { text, failed: response.status >= 400, result_id: Some(kept.id) })
    }

    async fn mcp(
        &mut self,
        call: &Call,
        name: &str,
        arguments: &serde_json::Map<String, Value>,
    ) -> Result<Said, ModelError> {
        let intent = if self.servers.is_read_only(name) { None } else { Some(self.intend(call).await?) };
        let result = tokio::select! {
            result = self.servers.call(name, arguments) => result,
            stop = self.cx.shutdown.wait() => return Err(ModelError::Stopped(stop)),
        };
        if let Some(intent) = intent {
            self.known(intent)?;
        }
        match result {
            Ok(result) => {
                let kept = self.keep(name, None, result.text.as_bytes(), false).await?;
                Ok(Said {
                    text: results::show(name, &kept),
                    failed: result.is_error,
                    result_id: Some(kept.id),
                })
            }
            Err(error) => Ok(Said::error(format!("no result: {}", crate::failure::chain(&error)))),
        }
    }

    /// Before a call that may change the world: the ledger of the start plus this intent is published, so
    /// that an attempt after a kill knows of it.
    async fn intend(&mut self, call: &Call) -> Result<usize, ModelError> {
        self.step += 1;
        let hash = sha256_hex(call.arguments.text());
        let record = StepRecord {
            cycle: self.cx.plan.run.cycle.name.clone(),
            attempt: self.claim.attempt(),
            step: self.step,
            kind: "intent".into(),
            started_at: self.cx.now(),
            ended_at: None,
            text: Some(format!("{}, arguments {}", call.name, &hash[..16])),
            calls_json: None,
            usage: cicada_contract::report::Usage::default(),
        };
        self.intents.push(record);
        checkpoint(self.cx, self.claim, &self.intents).await?;
        Ok(self.intents.len() - 1)
    }

    /// The call came back, well or not: its outcome is known.
    fn known(&mut self, intent: usize) -> Result<(), ModelError> {
        let now = self.cx.now();
        let Some(record) = self.intents.get_mut(intent) else { return Ok(()) };
        record.ended_at = Some(now);
        let record = record.clone();
        self.cx.note_intents(&self.intents);
        block_in_place(|| self.ledger.record_step(&record))?;
        Ok(())
    }

    /// Keeps a tool's result: in the ledger, or as an object where it is large.
    pub(in crate::executor) async fn keep(
        &mut self,
        tool: &str,
        url: Option<&str>,
        bytes: &[u8],
        is_truncated: bool,
    ) -> Result<Kept, ModelError> {
        self.results += 1;
        let bytes = self.redactor.bytes(bytes);
        let cycle = self.cx.plan.run.cycle.name.clone();
        let id = format!("{cycle}-{}-{}", self.claim.attempt(), self.results);
        let content = String::from_utf8(bytes.clone()).ok();
        let blob_key = if bytes.len() > LEDGER_BYTES {
            Some(self.claim.store.put_blob(self.claim.writer.epoch(), bytes.clone().into()).await?)
        } else {
            None
        };
        if let (Some(content), Some(_)) = (&content, &blob_key) {
            self.contents.insert(id.clone(), content.clone());
        }
        let record = ToolResultRecord {
            result_id: id.clone(),
            cycle,
            attempt: self.claim.attempt(),
            step: self.step,
            tool_name: tool.to_owned(),
            source_url: url.map(|u| self.redactor.text(u)),
            at: self.cx.now(),
            bytes: bytes.len() as u64,
            sha256: sha256_hex(&bytes),
            content: content.clone(),
            is_truncated,
            blob_key,
        };
        let digest = block_in_place(|| self.ledger.record_tool_result(&record))?;
        self.stale.insert("__tool_results");
        self.fresh.insert(id.clone());
        Ok(Kept { id, content, bytes: bytes.len(), digest })
    }

    /// Marks a mount whose source has changed.
    pub(in crate::executor) fn changed(&mut self, mount: &'static str) {
        self.stale.insert(mount);
    }

    /// Mounts what has changed since the last model call.
    pub(in crate::executor) fn refresh(&mut self) -> Result<(), ModelError> {
        let stale: Vec<&str> = std::mem::take(&mut self.stale).into_iter().collect();
        let Some(memory) = self.memory.as_mut().filter(|_| !stale.is_empty()) else { return Ok(()) };
        block_in_place(|| {
            let mut mounts =
                self.ledger.load_tables(&self.cx.plan.config, &self.files, self.cx.now(), &stale)?;
            results::fill(&mut mounts, &self.contents, &self.fresh);
            memory.mount(&mounts)
        })?;
        Ok(())
    }

    /// Writes a step into the ledger.
    pub(in crate::executor) fn record(
        &mut self,
        kind: &str,
        step: u32,
        started_at: Timestamp,
        text: &str,
        calls: &[Value],
        usage: cicada_contract::report::Usage,
    ) -> Result<(), ModelError> {
        let text = self.redactor.text(text);
        let record = StepRecord {
            cycle: self.cx.plan.run.cycle.name.clone(),
            attempt: self.claim.attempt(),
            step,
            kind: kind.to_owned(),
            started_at,
            ended_at: Some(self.cx.now()),
            text: (!text.is_empty()).then(|| cut(&text, 4000)),
            calls_json: Some(Value::Array(calls.to_vec()).to_string()),
            usage,
        };
        block_in_place(|| self.ledger.record_step(&record))?;
        Ok(())
    }
}
