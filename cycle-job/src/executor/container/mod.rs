//! The container executor: the user's own program works in the memory over MCP.
//!
//! This process has the credentials and both databases. The program runs in another container, under
//! `cycle-job child`, and has nothing but address and token of the server here ([`server`]). Its calls are
//! worked on one after the other at the same desk that a model's calls come to: the same checks,
//! checkpoints, records and bounds.

pub mod server;
mod tools;

use std::time::{Duration, Instant};

use cicada_contract::FailureClass;
use cicada_contract::report::{Outcome, Usage};
use cicada_store::SnapshotKind;
use serde_json::{Map, Value};
use tokio::sync::mpsc::Receiver;
use tokio::task::block_in_place;

use crate::context::Context;
use crate::executor::Work;
use crate::executor::model::desk::{Desk, Said};
use crate::executor::model::drive::difference;
use crate::executor::model::spend::Meter;
use crate::executor::model::tools::{Finish, Offered};
use crate::executor::model::transcript::{Arguments, Call};
use crate::executor::model::turn::{self, Task};
use crate::executor::model::{self, Bench, ModelError, Opened, summary};
use crate::failure::{Classified, Failure};
use crate::phase::acquire::Claim;
use crate::shutdown::Stop;

use server::{Event, Exit};

/// Longest wait for the agent's container once everything is ready for it: an image of some gigabytes on a
/// slow line is there by then. A cycle with less time than twice this waits half its time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(300);
/// A drained pod loses both containers at once: the other one's end may be seen before the own signal.
const SIGNAL_MARGIN: Duration = Duration::from_secs(2);

/// Why the program's work came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// Started without the folder that both containers share: a defect of whoever made the pod.
    #[error("the container executor needs --mcp, the folder that it shares with the agent's container")]
    NoServer,
    /// The other container never came.
    #[error(
        "the agent's container did not start within {} s: kubectl describe the pod tells why",
        .0.as_secs()
    )]
    NotConnected(Duration),
    /// The program said that it failed.
    #[error("the agent's command ended with exit code {code}; kubectl logs -c agent shows what it printed")]
    Exit {
        /// Its exit code; 128 and the signal's number where a signal ended it.
        code: i32,
    },
    /// The container went without a word.
    #[error("the agent's container was lost before its command ended (out of memory?)")]
    Lost,
    /// A tool, a database or the store failed; or the cycle must stop.
    #[error(transparent)]
    Desk(#[from] ModelError),
}

impl Classified for ContainerError {
    fn class(&self) -> FailureClass {
        match self {
            Self::NoServer => FailureClass::PlanInvalid,
            Self::NotConnected(_) | Self::Exit { .. } | Self::Lost => FailureClass::ExecutorFailed,
            Self::Desk(error) => error.class(),
        }
    }
}

/// Lets the program work until it ends.
pub async fn run(cx: &Context, claim: &mut Claim, bench: Bench) -> Result<(Bench, Work), Failure> {
    Ok(try_run(cx, claim, bench).await?)
}

async fn try_run(cx: &Context, claim: &mut Claim, bench: Bench) -> Result<(Bench, Work), ContainerError> {
    let server = cx.server.as_ref().ok_or(ContainerError::NoServer)?;
    let mut events = server.events().ok_or(ContainerError::NoServer)?;
    let redactor = model::redactor(&cx.plan.config, &cx.secrets, None);
    let Opened { desk, offered, prompt, told } = model::open(cx, claim, bench, redactor).await?;
    let parts = prompt.parts.iter().map(|part| part.text.as_str());
    server.open(
        &offered,
        std::iter::once(prompt.system.as_str()).chain(parts).collect::<Vec<_>>().join("\n\n"),
    );
    let mut shift = Shift {
        desk,
        offered,
        usage: Usage::default(),
        meter: Meter::new(cx.now()),
        finish: None,
        is_exhausted: false,
    };
    let result = shift.work(&mut events).await;
    // The program stops now, not when the memory has been saved.
    server.stop();
    let usage = shift.spent();
    shift.meter.tell_last(cx, shift.desk.claim, &usage).await;
    cx.note_usage(&usage);
    result?;
    block_in_place(|| summary::digest(&mut shift.desk.ledger)).map_err(ModelError::from)?;
    let work = shift.done();
    Ok((model::close(shift.desk, &told).await?, work))
}

/// The work of one program.
struct Shift<'c> {
    desk: Desk<'c>,
    offered: Offered,
    usage: Usage,
    meter: Meter,
    /// What it said with `finish`; the last word counts.
    finish: Option<Finish>,
    /// A call was refused because of `limits.maxToolCalls`.
    is_exhausted: bool,
}

impl Shift<'_> {
    /// Answers calls until the program has ended well.
    async fn work(&mut self, events: &mut Receiver<Event>) -> Result<(), ContainerError> {
        self.tell(false).await?;
        let cx = self.desk.cx;
        let patience = CONNECT_TIMEOUT.min(Duration::from_secs(cx.plan.config.limits.timeout) / 2);
        let deadline = tokio::time::Instant::now() + patience;
        let mut is_there = false;
        loop {
            let event = tokio::select! {
                biased;
                stop = cx.shutdown.wait() => return Err(ModelError::Stopped(stop).into()),
                event = events.recv() => event,
                () = tokio::time::sleep_until(deadline), if !is_there => {
                    return Err(ContainerError::NotConnected(patience));
                }
            };
            match event {
                Some(Event::Attached) => is_there = true,
                Some(Event::Call { name, arguments, reply }) => {
                    let said = self.call(name, arguments).await?;
                    // A client that no longer listens changes nothing about what was done.
                    let _ = reply.send(said);
                }
                Some(Event::Exit(Exit { code: 0, .. })) => return Ok(()),
                Some(Event::Exit(Exit { is_signalled: true, .. })) => {
                    return Err(ModelError::Stopped(Stop::Signal).into());
                }
                Some(Event::Exit(Exit { code, .. })) => return Err(ContainerError::Exit { code }),
                Some(Event::Lost) | None => {
                    return Err(match tokio::time::timeout(SIGNAL_MARGIN, cx.shutdown.wait()).await {
                        Ok(stop) => ModelError::Stopped(stop).into(),
                        Err(_) => ContainerError::Lost,
                    });
                }
            }
        }
    }

    /// One call: a step of the ledger, whatever becomes of it.
    async fn call(&mut self, name: String, arguments: Map<String, Value>) -> Result<Said, ModelError> {
        self.desk.refresh()?;
        let step = self.desk.next_step();
        let (started, started_at) = (Instant::now(), self.desk.cx.now());
        let before = self.usage.clone();
        let call = Call {
            id: format!("call-{step}"),
            name: self.offered.own_name(&name).to_owned(),
            arguments: Arguments::Object(arguments),
        };
        let limits = &self.desk.cx.plan.config.limits;
        let task = turn::task(&call, &self.offered, limits, &self.desk.before, &mut self.usage);
        self.is_exhausted |= matches!(task, Task::Exhausted(_));
        let done = match task {
            Task::Run(tool) => self.desk.work(&call, &tool).await?,
            Task::Refuse(words) | Task::Exhausted(words) => {
                self.desk.done(&call, Said::error(words), started)
            }
            Task::Finish(finish) => {
                self.finish = Some(finish);
                self.desk.done(&call, Said::ok("noted; the cycle ends when your program does"), started)
            }
        };
        tracing::info!(
            step,
            tool = call.name,
            ok = !done.failed,
            bytes = done.answer.text.len(),
            "tool called"
        );
        self.desk.record("tool", step, started_at, "", &[done.record], difference(&before, &self.usage))?;
        self.desk.cx.note_usage(&self.spent());
        self.tell(false).await?;
        Ok(Said { text: done.answer.text, failed: done.failed, result_id: done.answer.result_id })
    }

    async fn tell(&mut self, now: bool) -> Result<(), ModelError> {
        let usage = self.spent();
        Ok(self.meter.tell(self.desk.cx, self.desk.claim, &usage, now).await?)
    }

    fn spent(&self) -> Usage {
        Usage { messages: self.desk.messages, ..self.usage.clone() }
    }

    /// Exit code 0 is a word: what the program did not say otherwise is done.
    fn done(&self) -> Work {
        let usage = self.spent();
        Work {
            outcome: self.finish.as_ref().map_or(Outcome::Done, |f| f.outcome),
            message: format!("the agent's command ended well after {} tool calls", usage.tool_calls),
            ended_by: self.is_exhausted.then_some("maxToolCalls"),
            usage,
            kind: SnapshotKind::Final,
        }
    }
}
