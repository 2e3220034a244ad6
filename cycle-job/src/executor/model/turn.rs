//! What comes after a reply: the decisions of the tool loop, without any input or output.

use cicada_contract::plan::Limits;
use cicada_contract::report::{Outcome, Usage};

use super::tools::{Finish, Offered, ToolCall};
use super::transcript::{Call, Reply, Stop};
use super::usage::{SpentBefore, reached};

/// How the work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// What the agent says of its cycle.
    pub outcome: Outcome,
    /// Its own words, if it called `finish`; for the ledger, not for status.
    pub summary: Option<String>,
    /// Limit that ended the work before the agent did.
    pub ended_by: Option<&'static str>,
}

/// What to do with one call.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Run the tool.
    Run(ToolCall),
    /// Don't run anything; this is the answer.
    Refuse(String),
    /// Don't run anything: `limits.maxToolCalls` is used up. This is the answer.
    Exhausted(String),
    /// `finish`, which is looked at after all others.
    Finish(Finish),
}

/// The next step of the loop.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Work on the calls in order, then go on with [`after_tools`].
    Tools(Vec<(Call, Task)>),
    /// Tell the model this and call it again.
    Say(&'static str),
    /// Stop.
    End(End),
}

/// State of the loop beside the transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The model was asked for a call, and no call has come since.
    pub asked: bool,
    /// Replies of which calls were refused because of `maxToolCalls`.
    pub refused: u32,
}

/// What a model that only talks is told, once.
pub const ASK_FOR_FINISH: &str = "Your reply called no tool, so nothing happened. If the work of this cycle is complete, \
    or can't go on, call finish now. Otherwise call the tool that comes next.";
/// What a model is told whose reply was cut.
pub const REPLY_WAS_CUT: &str = "Your reply was cut at the output limit before it called a tool. Work in smaller steps: one short call at a time.";

/// The limit that forbids the next model call.
pub fn before_call(
    limits: &Limits,
    before: &SpentBefore,
    usage: &Usage,
    progress: Progress,
) -> Option<&'static str> {
    // After refused calls the model gets one more reply, to finish in order.
    if progress.refused > 1 { Some("maxToolCalls") } else { reached(limits, before, usage) }
}

/// The end that a limit makes.
pub fn ended_by(limit: &'static str) -> End {
    End { outcome: Outcome::Unstated, summary: None, ended_by: Some(limit) }
}

/// Decides about `reply`.
pub fn after_reply(
    reply: &Reply,
    offered: &Offered,
    limits: &Limits,
    before: &SpentBefore,
    usage: &mut Usage,
    progress: &mut Progress,
) -> Next {
    if reply.calls.is_empty() {
        if std::mem::replace(&mut progress.asked, true) {
            return Next::End(End { outcome: Outcome::Unstated, summary: None, ended_by: None });
        }
        return Next::Say(if reply.stop == Stop::Cut { REPLY_WAS_CUT } else { ASK_FOR_FINISH });
    }
    progress.asked = false;
    let mut exhausted = false;
    let mut tasks = vec![];
    for call in &reply.calls {
        let task = task(call, offered, limits, before, usage);
        exhausted |= matches!(task, Task::Exhausted(_));
        tasks.push((call.clone(), task));
    }
    progress.refused += u32::from(exhausted);
    Next::Tools(tasks)
}

/// Decides about one call, and counts it.
pub fn task(
    call: &Call,
    offered: &Offered,
    limits: &Limits,
    before: &SpentBefore,
    usage: &mut Usage,
) -> Task {
    let left =
        limits.max_tool_calls == 0 || before.cycle_tool_calls + usage.tool_calls < limits.max_tool_calls;
    match offered.parse(call) {
        Ok(ToolCall::Finish(finish)) => Task::Finish(finish),
        _ if !left => Task::Exhausted(format!(
            "not executed: limits.maxToolCalls ({}) is used up; call finish now",
            limits.max_tool_calls
        )),
        Ok(parsed) => {
            usage.tool_calls += 1;
            Task::Run(parsed)
        }
        // A call that can't be understood counts too: it must not be a way around the limit.
        Err(problem) => {
            usage.tool_calls += 1;
            Task::Refuse(problem)
        }
    }
}

/// Decides about a `finish` that came with other calls: it counts only if none of them failed, because
/// the model wrote it before it knew. `Err` is the answer to the `finish` call.
pub fn after_tools(finish: Option<&Finish>, failed: usize) -> Option<Result<End, String>> {
    let finish = finish?;
    if failed > 0 {
        return Some(Err(format!(
            "not finished: {failed} other call(s) of the same reply failed; look at their answers, then call finish again"
        )));
    }
    Some(Ok(End { outcome: finish.outcome, summary: Some(finish.summary.clone()), ended_by: None }))
}

/// What the model should know about its limits now, if anything.
pub fn warning(limits: &Limits, before: &SpentBefore, usage: &Usage) -> Option<String> {
    let left = |limit: u32, spent: u32| (limit > 0).then(|| limit.saturating_sub(spent));
    let calls = left(limits.max_model_calls, before.cycle_model_calls + usage.model_calls);
    let tools = left(limits.max_tool_calls, before.cycle_tool_calls + usage.tool_calls);
    match (calls, tools) {
        (Some(n), _) if n <= 2 && n > 0 => {
            Some(format!("{n} model call(s) are left in this cycle: save what matters and call finish."))
        }
        (_, Some(0)) => Some("no tool call is left in this cycle: call finish.".into()),
        (_, Some(n)) if n <= 3 => {
            Some(format!("{n} tool call(s) are left in this cycle: save what matters and call finish."))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
