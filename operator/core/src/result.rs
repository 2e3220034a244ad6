//! How a cycle ended: from the Job's conditions, the report in the termination message, and, where that
//! is lost, the report of a Job that reads the store.

use cicada_contract::{
    CycleReport, Ending, FailureClass,
    class::EXIT_DONE,
    report::{CycleResult, Outcome},
    text::{cut, printable},
};
use cicada_crds::cycle::Phase;
use jiff::Timestamp;

/// What is known of a Job that has ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobEnd {
    /// When it ended.
    pub at: Option<Timestamp>,
    /// True for Complete.
    pub complete: bool,
    /// Reason of its Failed condition, e.g. BackoffLimitExceeded, DeadlineExceeded, PodFailurePolicy.
    pub reason: Option<String>,
    /// Exit code of the container `cycle` in its newest pod.
    pub exit_code: Option<i32>,
    /// Termination message of that container.
    pub message: Option<String>,
    /// Why the container or the pod ended, in Kubernetes' words, e.g. OOMKilled, Evicted.
    pub pod_reason: Option<String>,
    /// Image that ran.
    pub image: Option<String>,
    /// Pods that it had.
    pub attempts: u32,
}

/// How a cycle ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CycleEnd {
    /// Succeeded or Failed.
    pub phase: Phase,
    /// Reason of the condition; a heading of the runbook where it is a failure.
    pub reason: String,
    /// One line for people.
    pub message: String,
    /// What a failure means for the agent; None after success.
    pub class: Option<FailureClass>,
    /// It counts towards `pauseAfterFailures`.
    pub counts: bool,
    /// The agent stalls until a person acts.
    pub stalls: bool,
    /// The report, if there is one.
    pub report: Option<CycleReport>,
}

impl CycleEnd {
    /// The agent ended without saying how it went.
    pub fn is_unstated(&self) -> bool {
        self.phase == Phase::Succeeded
            && self.reason == "Completed"
            && self.report.as_ref().is_some_and(|r| r.outcome == Outcome::Unstated)
    }

    /// A failure that the operator saw itself.
    pub fn failed(reason: &str, message: impl Into<String>, counts: bool) -> Self {
        Self {
            phase: Phase::Failed,
            reason: reason.to_owned(),
            message: message.into(),
            class: None,
            counts,
            stalls: false,
            report: None,
        }
    }
}

/// Either how a cycle ended, or that the store must be asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It is known.
    Ended(Box<CycleEnd>),
    /// A pod ended without a readable report: a report Job must look whether it had published.
    AskStore,
}

/// What a report Job found in the store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Asked<'a> {
    /// It was not asked.
    NotYet,
    /// It could not say.
    InVain,
    /// This.
    Found(&'a CycleReport),
}

/// Judges a Job that has ended.
pub fn judge(end: &JobEnd, asked: Asked<'_>) -> Verdict {
    let own = end.message.as_deref().and_then(|m| CycleReport::parse(m).ok());
    match (own, asked) {
        (Some(report), _) => Verdict::Ended(Box::new(by_report(report))),
        (None, Asked::NotYet) if end.attempts > 0 => Verdict::AskStore,
        (None, Asked::Found(report)) => Verdict::Ended(Box::new(by_store(report.clone(), end))),
        (None, _) => Verdict::Ended(Box::new(without_report(end))),
    }
}

fn by_report(report: CycleReport) -> CycleEnd {
    let (phase, reason, counts, stalls) = match (report.result, report.class, report.outcome) {
        (CycleResult::AlreadyHandled, ..) => (Phase::Succeeded, "AlreadyHandled", false, false),
        // A day's budget that was spent before the first call still exits with a class.
        (CycleResult::Done, _, Outcome::Blocked) => (Phase::Failed, blocked_reason(&report), true, false),
        (CycleResult::Done, ..) => {
            (Phase::Succeeded, if report.recovered { "Recovered" } else { "Completed" }, false, false)
        }
        (CycleResult::Failed, Some(class), _) => {
            (Phase::Failed, class.reason(), class.counts_towards_pause(), class.ending() == Ending::Stall)
        }
        (CycleResult::Failed, None, _) => (Phase::Failed, "ExecutorFailed", true, false),
    };
    let message = match (report.message.is_empty(), report.result) {
        (false, _) => cut(&printable(&report.message), 512),
        (true, CycleResult::AlreadyHandled) => {
            "the store knows this request as handled: nothing was executed".into()
        }
        (true, _) => String::new(),
    };
    CycleEnd {
        phase,
        reason: reason.into(),
        message,
        class: report.class,
        counts,
        stalls,
        report: Some(report),
    }
}

fn blocked_reason(report: &CycleReport) -> &'static str {
    if report.ended_by.as_deref() == Some("success") { "SuccessQueryEmpty" } else { "Blocked" }
}

/// The store was asked: a published final snapshot counts, whatever became of the pod.
fn by_store(report: CycleReport, end: &JobEnd) -> CycleEnd {
    if report.result == CycleResult::Done {
        let mut ended = by_report(report);
        if ended.phase == Phase::Succeeded {
            ended.reason = "Recovered".into();
        }
        return ended;
    }
    let mut ended = without_report(end);
    ended.report = Some(report);
    ended
}

fn without_report(end: &JobEnd) -> CycleEnd {
    let class = end.exit_code.and_then(FailureClass::from_exit_code);
    if let Some(class) = class {
        return CycleEnd {
            class: Some(class),
            stalls: class.ending() == Ending::Stall,
            ..CycleEnd::failed(
                class.reason(),
                "the report was lost; the exit code says this",
                class.counts_towards_pause(),
            )
        };
    }
    let (reason, message) = match (end.reason.as_deref(), end.pod_reason.as_deref(), end.exit_code) {
        (Some("DeadlineExceeded"), ..) => {
            ("JobDeadlineExceeded", "the Job ran into activeDeadlineSeconds".to_owned())
        }
        (_, Some("OOMKilled"), _) => {
            ("OutOfMemory", "the container was killed at its memory limit".to_owned())
        }
        (_, Some("Evicted"), _) => ("Evicted", "the pod was evicted".to_owned()),
        (_, _, Some(code)) if code == i32::from(EXIT_DONE) => {
            ("ReportLost", "the pod ended with 0 and without a report".to_owned())
        }
        (_, _, Some(code)) => {
            ("Killed", format!("the container ended with exit code {code} and without a report"))
        }
        _ => ("PodLost", "no pod of the Job is left to read".to_owned()),
    };
    let counts = !matches!(reason, "Evicted" | "PodLost");
    CycleEnd::failed(reason, message, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(end: &JobEnd, asked: Asked<'_>) -> CycleEnd {
        match judge(end, asked) {
            Verdict::Ended(e) => *e,
            Verdict::AskStore => panic!("asks the store"),
        }
    }

    fn with(report: &CycleReport) -> JobEnd {
        JobEnd {
            message: Some(report.render()),
            exit_code: Some(report.exit_code().into()),
            attempts: 1,
            ..JobEnd::default()
        }
    }

    #[test]
    fn the_report_decides() {
        let done = CycleReport::new(CycleResult::Done);
        assert_eq!(ended(&with(&done), Asked::NotYet).phase, Phase::Succeeded);
        let mut blocked = done.clone();
        blocked.outcome = Outcome::Blocked;
        let end = ended(&with(&blocked), Asked::NotYet);
        assert_eq!(
            (end.phase, end.reason.as_str(), end.counts, end.stalls),
            (Phase::Failed, "Blocked", true, false)
        );
        let missing =
            ended(&with(&CycleReport::failed(FailureClass::MemoryMissing, "HEAD is gone")), Asked::NotYet);
        assert!(missing.stalls && missing.reason == "MemoryMissing" && missing.message == "HEAD is gone");
        let fenced = ended(&with(&CycleReport::failed(FailureClass::PersistFenced, "")), Asked::NotYet);
        assert!(fenced.phase == Phase::Failed && !fenced.counts && !fenced.stalls);
        let handled = ended(&with(&CycleReport::new(CycleResult::AlreadyHandled)), Asked::NotYet);
        assert_eq!((handled.phase, handled.reason.as_str()), (Phase::Succeeded, "AlreadyHandled"));
    }

    /// prefect-kubernetes#118: one evicted pod made a run failed although its replacement had succeeded.
    #[test]
    fn only_the_newest_pod_counts() {
        let end = JobEnd {
            complete: true,
            attempts: 2,
            pod_reason: None,
            ..with(&CycleReport::new(CycleResult::Done))
        };
        assert_eq!(ended(&end, Asked::NotYet).phase, Phase::Succeeded);
    }

    /// kubernetes#109164: the Job failed although the pod had done its work.
    #[test]
    fn a_published_snapshot_counts_whatever_became_of_the_pod() {
        let killed = JobEnd {
            exit_code: Some(137),
            attempts: 1,
            reason: Some("BackoffLimitExceeded".into()),
            ..JobEnd::default()
        };
        assert_eq!(judge(&killed, Asked::NotYet), Verdict::AskStore);
        let found = CycleReport::new(CycleResult::Done);
        let end = ended(&killed, Asked::Found(&found));
        assert_eq!((end.phase, end.reason.as_str()), (Phase::Succeeded, "Recovered"));
        let not_found = CycleReport::failed(FailureClass::Disrupted, "");
        assert_eq!(ended(&killed, Asked::Found(&not_found)).reason, "Killed");
    }

    /// cloudnative-pg#7892: a failure path left no reason.
    #[test]
    fn every_failure_has_a_reason_and_a_message() {
        for code in [None, Some(0), Some(1), Some(10), Some(21), Some(30), Some(137)] {
            for pod_reason in [None, Some("OOMKilled"), Some("Evicted")] {
                for reason in [None, Some("DeadlineExceeded"), Some("BackoffLimitExceeded")] {
                    let end = JobEnd {
                        exit_code: code,
                        pod_reason: pod_reason.map(str::to_owned),
                        reason: reason.map(str::to_owned),
                        attempts: 1,
                        ..JobEnd::default()
                    };
                    let end = ended(&end, Asked::InVain);
                    assert!(
                        end.phase == Phase::Failed && !end.reason.is_empty() && !end.message.is_empty(),
                        "{end:?}"
                    );
                }
            }
        }
        for class in FailureClass::all() {
            assert_eq!(ended(&with(&CycleReport::failed(class, "x")), Asked::NotYet).reason, class.reason());
        }
    }

    #[test]
    fn a_cut_report_is_no_report() {
        let mut text = CycleReport::new(CycleResult::Done).render();
        text.pop();
        let end = JobEnd { message: Some(text), attempts: 1, exit_code: Some(0), ..JobEnd::default() };
        assert_eq!(judge(&end, Asked::NotYet), Verdict::AskStore);
    }
}
