//! The tool loop itself: calls the model, works on its calls, until something ends it.

use std::time::Instant;

use cicada_contract::plan::ModelConfig;
use cicada_contract::report::Usage;
use serde_json::Value;
use tokio::task::block_in_place;

use super::ModelError;
use super::client::{self, CallError, Called, Llm};
use super::desk::{Desk, Said};
use super::spend::Meter;
use super::summary;
use super::tools::Offered;
use super::transcript::{Answer, Call, Entry, Reply, Transcript};
use super::turn::{self, End, Next, Progress, Task};
use super::usage::{add_call, is_daily, reached};

/// Most compactions after one refusal for length; each makes the request at least a tenth shorter.
const COMPACTIONS: usize = 8;

/// One cycle's loop.
pub(super) struct Loop<'d, 'c> {
    pub(super) desk: &'d mut Desk<'c>,
    pub(super) llm: &'d dyn Llm,
    pub(super) config: &'d ModelConfig,
    pub(super) offered: &'d Offered,
    pub(super) usage: Usage,
    pub(super) meter: Meter,
    /// Bytes of a conversation that the provider refused for its length, less a tenth.
    pub(super) window: Option<usize>,
}

impl Loop<'_, '_> {
    /// Works until the model finishes or a limit is reached.
    pub(super) async fn run(&mut self, mut transcript: Transcript) -> Result<End, ModelError> {
        let limits = self.desk.cx.plan.config.limits.clone();
        let mut progress = Progress::default();
        loop {
            if let Some(limit) = turn::before_call(&limits, &self.desk.before, &self.usage, progress) {
                if is_daily(limit) && self.usage.model_calls == 0 {
                    return Err(ModelError::Budget { limit });
                }
                return Ok(turn::ended_by(limit));
            }
            self.desk.refresh()?;
            let step = self.desk.next_step();
            let started_at = self.desk.cx.now();
            let spent = self.usage.clone();
            let reply = self.call(&mut transcript).await?;
            let before = self.desk.before;
            let next =
                turn::after_reply(&reply, self.offered, &limits, &before, &mut self.usage, &mut progress);
            let text = reply.text.clone();
            transcript.push(Entry::Model(reply));
            let (end, records) = match next {
                Next::Say(words) => {
                    transcript.push(Entry::Platform(words.to_owned()));
                    (None, vec![])
                }
                Next::End(end) => (Some(end), vec![]),
                Next::Tools(tasks) => {
                    let (answers, records, end) = self.work(&tasks).await?;
                    transcript.push(Entry::Tools(answers));
                    (end, records)
                }
            };
            self.desk.record("model", step, started_at, &text, &records, difference(&spent, &self.usage))?;
            if let Some(end) = end {
                return Ok(end);
            }
            if let Some(words) = turn::warning(&limits, &self.desk.before, &self.usage) {
                transcript.remark(&words);
            }
        }
    }

    /// One reply. Makes room where the provider asks for it; pays for every try.
    async fn call(&mut self, transcript: &mut Transcript) -> Result<Reply, ModelError> {
        for _ in 0..COMPACTIONS {
            if let Some(window) = self.window.filter(|w| transcript.bytes() > *w) {
                transcript.compact(window / 10 * 7)?;
            }
            self.tell(false).await?;
            let called = tokio::select! {
                called = client::call(self.llm, transcript, self.offered, self.desk.cx.attended) => called,
                stop = self.desk.cx.shutdown.wait() => return Err(ModelError::Stopped(stop)),
            };
            let Called { result, lost, tries } = called;
            for tokens in lost {
                add_call(&mut self.usage, tokens, self.config.prices.as_ref());
            }
            match result {
                Ok(reply) => {
                    add_call(&mut self.usage, reply.tokens, self.config.prices.as_ref());
                    tracing::info!(
                        tries,
                        input = reply.tokens.input,
                        output = reply.tokens.output,
                        calls = reply.calls.len(),
                        "model replied"
                    );
                    return Ok(reply);
                }
                Err(CallError::Overflow { message }) => {
                    let sent = transcript.bytes();
                    self.window = Some(sent / 10 * 9);
                    let all = sent + self.offered.bytes();
                    let target =
                        client::target_after_overflow(&message, all).saturating_sub(self.offered.bytes());
                    tracing::info!(sent, target, "the conversation is compacted");
                    transcript.compact(target.min(sent / 10 * 9))?;
                }
                Err(error) => {
                    self.tell(true).await?;
                    return Err(error.into());
                }
            }
        }
        Err(ModelError::Call(CallError::Overflow {
            message: "also after it was shortened several times".into(),
        }))
    }

    /// Summarises what lies far back. Where a limit, a stop or the provider leaves no reply, a plain digest
    /// takes its place.
    pub(super) async fn summarise(&mut self) -> Result<(), ModelError> {
        let config = &self.desk.cx.plan.config;
        let agent = format!("{}/{}", config.owner.namespace, config.owner.name);
        let limits = config.limits.clone();
        for due in block_in_place(|| summary::due(&mut self.desk.ledger))? {
            let text = if reached(&limits, &self.desk.before, &self.usage).is_none() {
                let transcript = summary::request(&agent, &due);
                let offered = Offered::default();
                tokio::select! {
                    called = client::call(self.llm, &transcript, &offered, self.desk.cx.attended) => {
                        for tokens in called.lost.into_iter().chain(called.result.as_ref().map(|r| r.tokens)) {
                            add_call(&mut self.usage, tokens, self.config.prices.as_ref());
                        }
                        called.result.map(|r| r.text).unwrap_or_default()
                    }
                    _ = self.desk.cx.shutdown.wait() => String::new(),
                }
            } else {
                String::new()
            };
            let record = summary::with_text(&due, &self.desk.redactor.text(&text));
            block_in_place(|| self.desk.ledger.add_summary(&record))?;
        }
        Ok(())
    }

    /// Tells the store what was spent so far; at most every 30 s unless `now` is set.
    pub(super) async fn tell(&mut self, now: bool) -> Result<(), ModelError> {
        let usage = Usage { messages: self.desk.messages, ..self.usage.clone() };
        Ok(self.meter.tell(self.desk.cx, self.desk.claim, &usage, now).await?)
    }

    /// Works on the calls of one reply, in order.
    async fn work(
        &mut self,
        tasks: &[(Call, Task)],
    ) -> Result<(Vec<Answer>, Vec<Value>, Option<End>), ModelError> {
        let (mut answers, mut records, mut failed) = (vec![], vec![], 0);
        let mut finish = None;
        for (call, task) in tasks {
            let done = match task {
                Task::Run(tool) => self.desk.work(call, tool).await?,
                Task::Refuse(words) | Task::Exhausted(words) => {
                    self.desk.done(call, Said::error(words.clone()), Instant::now())
                }
                Task::Finish(wanted) => {
                    // Answered below, when it is known how the others went. The first one counts.
                    let at = answers.len();
                    finish.get_or_insert((at, wanted));
                    self.desk.done(call, Said::ok("noted"), Instant::now())
                }
            };
            failed += usize::from(done.failed);
            tracing::info!(
                tool = call.name,
                ok = !done.failed,
                bytes = done.answer.text.len(),
                "tool called"
            );
            answers.push(done.answer);
            records.push(done.record);
        }
        let end = match (turn::after_tools(finish.map(|(_, f)| f), failed), finish) {
            (Some(Ok(end)), _) => Some(end),
            (Some(Err(words)), Some((at, _))) => {
                if let Some(answer) = answers.get_mut(at) {
                    answer.text = words;
                }
                None
            }
            _ => None,
        };
        Ok((answers, records, end))
    }
}

pub(in crate::executor) fn difference(before: &Usage, after: &Usage) -> Usage {
    Usage {
        model_calls: after.model_calls - before.model_calls,
        tool_calls: after.tool_calls - before.tool_calls,
        input_tokens: after.input_tokens - before.input_tokens,
        cached_input_tokens: after.cached_input_tokens - before.cached_input_tokens,
        output_tokens: after.output_tokens - before.output_tokens,
        cost: after.cost - before.cost,
        messages: 0,
    }
}
