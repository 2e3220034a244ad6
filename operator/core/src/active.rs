//! The one cycle that is at work: start its Job, watch it start, take up its end.

use cicada_crds::{
    cycle::{CycleRef, Phase},
    status::{ActiveCycle, LastCycle},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    agent_status, cycle_status,
    decide::{Action, Ended, Note, Step},
    gate::NOT_STARTED,
    job::START_TIMEOUT,
    names,
    observed::{CycleView, JobView, ReportJob, Waiting},
    peers,
    result::{Asked, CycleEnd, JobEnd, Verdict, judge},
    spec,
};

/// A Job without a started pod is looked at after this long.
pub const FIRST_LOOK: SignedDuration = SignedDuration::from_secs(60);
/// Reasons of a cycle whose Job the API server refuses for now.
pub const JOB_REFUSED: [&str; 2] = ["QuotaExceeded", "JobForbidden"];
/// Reason of a cycle that another takes along.
const JOINED: &str = "Joined";
/// A pod that is still terminating this long after its grace period is on a node that is gone.
const NODE_LOST_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Result of a cycle that was deleted while it was at work.
const CANCELED: &str = "Canceled";

pub(crate) fn proceed(step: &mut Step<'_>, active: &ActiveCycle) {
    let Some(seen) = step.seen.cycles.iter().find(|c| c.uid == active.uid).filter(|c| !c.deleting) else {
        return canceled(step, active);
    };
    if seen.is_terminal() {
        return already_ended(step, seen);
    }
    let cycle = &as_its_job_says(seen, step.seen.job);
    tell_those_who_wait(step, cycle);
    match step.seen.job {
        None if step.seen.job_vanished => {
            let end = CycleEnd::failed("JobDeleted", "somebody deleted the Job of this cycle", false);
            finish(step, cycle, &end, None);
        }
        None => start(step, cycle),
        Some(job) => match &job.end {
            Some(end) => ended(step, cycle, job, end),
            None => watch(step, cycle, job, cycle.joined != seen.joined),
        },
    }
}

/// Who joined is what the Job has in its plan. Two replicas that see different cycles waiting write different lists
/// into the lead's status, each with a precondition, but only one of them makes the Job: whoever is not in it waits
/// on, and is neither ended with the lead nor run by it.
fn as_its_job_says(lead: &CycleView, job: Option<&JobView>) -> CycleView {
    let joined = job.and_then(|j| j.joined.as_ref()).unwrap_or(&lead.joined);
    CycleView { joined: joined.clone(), ..lead.clone() }
}

/// Cycles that came meanwhile say what they wait for, and so do those that were to join and did not.
fn tell_those_who_wait(step: &mut Step<'_>, lead: &CycleView) {
    let joined = |c: &CycleView| lead.joined.iter().any(|j| j.uid == c.uid);
    // Before the Job is made, all that wait may still join.
    if lead.phase != Some(Phase::Running) {
        return;
    }
    let untold = |c: &CycleView| c.phase.is_none() || c.reason.as_deref() == Some(JOINED);
    for cycle in step.waiting().into_iter().filter(|c| c.uid != lead.uid && untold(c)) {
        if !joined(cycle) {
            step.keep_waiting(cycle, "AgentBusy", &format!("cycle {} is at work", lead.name));
        }
    }
}

fn start(step: &mut Step<'_>, cycle: &CycleView) {
    if let Some(problem) = &step.problem {
        // The manifest broke between claim and start: give the agent back, the cycle waits.
        let (reason, message) = (problem.reason(), problem.to_string());
        step.keep_waiting(cycle, reason, &message);
        step.status.active_cycle = None;
        return;
    }
    let since = step.status.active_cycle.as_ref().and_then(|a| a.since).unwrap_or(step.now);
    if is_refused(cycle) && step.now >= since + start_timeout() {
        let waiting = Waiting { reason: cycle.reason.clone().unwrap_or_default(), ..Waiting::default() };
        return not_started(step, cycle, since, &waiting);
    }
    let lead = cycle.reference();
    // What an earlier try wrote stands: the Job may exist with just these.
    let joined = if cycle.phase == Some(Phase::Running) { cycle.joined.clone() } else { step.joined(cycle) };
    let (before, mut statuses) = (step.actions.len(), vec![]);
    if cycle.phase != Some(Phase::Running) {
        let job = names::job(&cycle.name, &cycle.uid);
        step.set_cycle(lead.clone(), cycle_status::running(cycle, &job, &joined, step.now));
        for view in step.waiting().into_iter().filter(|c| joined.iter().any(|j| j.uid == c.uid)) {
            step.keep_waiting(view, JOINED, &format!("cycle {} takes it along", lead.name));
        }
        // Who joins stands in the lead's status before the Job is there, since the next try must take the same
        // along. A lead alone is a slot, which waits for as few writes as can be.
        if joined.is_empty() {
            statuses = step.actions.split_off(before);
        }
    }
    step.note(false, "SuccessfulCreate", format!("started cycle {}", cycle.name), Some(lead.clone()));
    step.actions.push(Action::StartJob { lead, joined });
    step.actions.extend(statuses);
    step.look_again_at(step.now + FIRST_LOOK);
}

/// The Job is there and has not ended. `corrected`: the lead's status names others than those that it takes along.
fn watch(step: &mut Step<'_>, cycle: &CycleView, job: &JobView, corrected: bool) {
    let grace = spec::sizes(&step.seen.agent.spec).map_or(600, |s| s.grace);
    if let Some(since) = job.ending_since {
        let lost_at =
            since + SignedDuration::from_secs(i64::try_from(grace).unwrap_or(600)) + NODE_LOST_AFTER;
        if step.now >= lost_at {
            delete_job(step, job);
            let end = CycleEnd::failed(
                "NodeLost",
                "the pod did not end within its grace period: its node is gone",
                false,
            );
            return finish(step, cycle, &end, None);
        }
        step.look_again_at(lost_at);
    }
    if job.suspended {
        return step.keep_waiting(cycle, "Queued", "the Job is suspended, for example by Kueue");
    }
    let timeout = job.released + start_timeout();
    // Without a status it was left between its Job and its first status.
    let bare = cycle.phase.is_none() && job.waiting.is_none() && step.now < timeout;
    if bare || corrected || (job.started && cycle.phase != Some(Phase::Running)) {
        let name = job.name.clone();
        step.set_cycle(cycle.reference(), cycle_status::running(cycle, &name, &cycle.joined, step.now));
    }
    if corrected {
        return step.look_again_at(step.now + FIRST_LOOK);
    }
    if job.started {
        return;
    }
    let waiting = job.waiting.clone();
    if step.now >= timeout {
        delete_job(step, job);
        return not_started(step, cycle, job.created, &waiting.unwrap_or_default());
    }
    if let Some(waiting) = waiting {
        step.keep_waiting(cycle, &waiting.reason, &waiting.message);
    }
    // Images and quota change without telling us; a minute is soon enough for a status.
    step.look_again_at(step.now + FIRST_LOOK);
    step.look_again_at(timeout);
}

fn start_timeout() -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(START_TIMEOUT).unwrap_or(900))
}

/// The cycle's Job is refused, by a quota or a policy: it does not even wait in a pod.
fn is_refused(cycle: &CycleView) -> bool {
    cycle.phase == Some(Phase::Pending) && cycle.reason.as_deref().is_some_and(|r| JOB_REFUSED.contains(&r))
}

/// The cycle at work waits for its pod, or for its Job: nothing runs yet, and somebody else decides when.
pub(crate) fn is_queued(step: &Step<'_>) -> bool {
    let active = step.status.active_cycle.as_ref();
    match step.seen.job {
        Some(job) => job.end.is_none() && !job.started && (job.suspended || job.waiting.is_some()),
        None => step.seen.cycles.iter().any(|c| active.is_some_and(|a| a.uid == c.uid) && is_refused(c)),
    }
}

/// Neither success nor failure: the cycle goes back to the queue, and the agent waits a while.
fn not_started(step: &mut Step<'_>, cycle: &CycleView, since: Timestamp, waiting: &Waiting) {
    let reason = if waiting.reason.is_empty() { NOT_STARTED } else { &waiting.reason };
    let separator = if waiting.message.is_empty() { "" } else { ": " };
    let message = format!("not started within {START_TIMEOUT} s: {reason}{separator}{}", waiting.message);
    let mut fresh = cycle.clone();
    (fresh.started, fresh.job, fresh.joined) = (None, None, vec![]);
    step.set_cycle(cycle.reference(), cycle_status::pending(&fresh, reason, &message, step.now));
    step.note(true, NOT_STARTED, format!("cycle {}: {message}", cycle.name), Some(cycle.reference()));
    step.status.active_cycle = None;
    step.status.last_cycle = Some(LastCycle {
        name: cycle.name.clone(),
        triggers: agent_status::kinds(cycle),
        started: Some(since),
        duration: Some(step.now.duration_since(since).as_secs()),
        outcome: None,
        result: Some(NOT_STARTED.into()),
        message: Some(cycle_status::line(&message, 256)),
    });
    step.again = true;
}

fn ended(step: &mut Step<'_>, cycle: &CycleView, job: &JobView, end: &JobEnd) {
    let asked = match &job.report_job {
        Some(ReportJob::Running) => {
            step.look_again_at(step.now + FIRST_LOOK);
            return;
        }
        Some(ReportJob::Ended(report)) => report.as_ref().as_ref().map_or(Asked::InVain, Asked::Found),
        None => Asked::NotYet,
    };
    match judge(end, asked) {
        Verdict::AskStore => {
            step.actions.push(Action::StartReportJob { cycle: cycle.reference() });
            step.look_again_at(step.now + FIRST_LOOK);
        }
        Verdict::Ended(how) => {
            let mut cycle = cycle.clone();
            // A Job that ended before its cycle had a status.
            cycle.job.get_or_insert_with(|| job.name.clone());
            cycle.started.get_or_insert(job.created);
            finish(step, &cycle, &how, Some(end));
        }
    }
}

/// Writes the end of those that joined the lead, then its own, and frees the agent: an operator that dies in between
/// finds the lead at work, and does the rest.
pub(crate) fn finish(step: &mut Step<'_>, cycle: &CycleView, end: &CycleEnd, job: Option<&JobEnd>) {
    let end = &agent_status::count_unstated(step, end);
    let (now, lead) = (step.now, cycle.reference());
    // Before the cycle ends for all who look: an operator that dies in between finds both undone.
    wake_peers(step, cycle, end);
    for reference in &cycle.joined {
        let joined = step.seen.cycles.iter().find(|c| c.uid == reference.uid);
        if let Some(joined) = joined.filter(|c| !c.is_terminal() && !c.deleting) {
            step.set_cycle(
                joined.reference(),
                cycle_status::ended(joined, end, None, Some(lead.clone()), now),
            );
        }
    }
    step.set_cycle(lead, cycle_status::ended(cycle, end, job, None, now));
    conclude_cycle(step, cycle, end, job.and_then(|j| j.at).unwrap_or(now));
}

fn wake_peers(step: &mut Step<'_>, cycle: &CycleView, end: &CycleEnd) {
    if let Some(report) = &end.report {
        peers::wake(step, cycle, report);
    }
}

fn conclude_cycle(step: &mut Step<'_>, cycle: &CycleView, end: &CycleEnd, at: Timestamp) {
    agent_status::take_up(step, cycle, end, at);
    let text = match end.message.as_str() {
        "" => format!("cycle {} ended: {}", cycle.name, end.reason),
        message => format!("cycle {} ended: {}: {message}", cycle.name, end.reason),
    };
    let failed = end.phase == Phase::Failed;
    let heading = failed.then(|| end.reason.clone());
    let note = Note {
        warning: failed,
        reason: "SawCompletedJob",
        text,
        cycle: Some(cycle.reference()),
        count: 1,
        heading,
    };
    step.notes.push(note);
    step.status.active_cycle = None;
    step.again = true;
}

/// The cycle's end was written, but not the agent's: an operator was restarted in between.
fn already_ended(step: &mut Step<'_>, cycle: &CycleView) {
    let job = step.seen.job.and_then(|j| j.end.as_ref().map(|e| (j, e)));
    if let Some((job, end)) = job {
        let asked = match &job.report_job {
            Some(ReportJob::Ended(report)) => report.as_ref().as_ref().map_or(Asked::InVain, Asked::Found),
            _ => Asked::InVain,
        };
        if let Verdict::Ended(how) = judge(end, asked) {
            wake_peers(step, cycle, &how);
            return conclude_cycle(step, cycle, &how, end.at.unwrap_or(step.now));
        }
    }
    let mut end = CycleEnd::failed(cycle.reason.as_deref().unwrap_or("Unknown"), "", false);
    end.phase = cycle.phase.unwrap_or(Phase::Failed);
    conclude_cycle(step, cycle, &end, cycle.finished.unwrap_or(step.now));
}

/// Somebody deleted the cycle: its Job gets SIGTERM, and the agent is free once the Job is gone.
/// Cycles that had joined it name no lead yet, so they simply wait again.
fn canceled(step: &mut Step<'_>, active: &ActiveCycle) {
    if let Some(job) = step.seen.job {
        delete_job(step, job);
        step.look_again_at(step.now + FIRST_LOOK);
        return;
    }
    let cycle = CycleRef { name: active.name.clone(), uid: active.uid.clone() };
    step.note(
        false,
        CANCELED,
        format!("cycle {} was deleted while it was at work", active.name),
        Some(cycle),
    );
    let seconds = active.since.map(|s| step.now.duration_since(s).as_secs());
    step.ended = Some(Ended {
        result: CANCELED.into(),
        outcome: String::new(),
        seconds: seconds.unwrap_or(0).max(0).unsigned_abs(),
        cost: 0.0,
        phases: vec![],
    });
    step.status.last_cycle = Some(LastCycle {
        name: active.name.clone(),
        started: active.since,
        duration: seconds,
        result: Some(CANCELED.into()),
        ..LastCycle::default()
    });
    step.status.active_cycle = None;
    step.again = true;
}

fn delete_job(step: &mut Step<'_>, job: &JobView) {
    if !job.deleting {
        step.actions.push(Action::DeleteJob { name: job.name.clone(), uid: job.uid.clone() });
    }
}
