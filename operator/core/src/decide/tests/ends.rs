//! Ends of cycles, good and bad, and what an agent does after each.

use super::*;

/// volsync#1042, #1429: a Job that could not succeed was made again every half an hour, for ever.
#[test]
fn a_failure_backs_off_then_pauses_and_a_request_resumes() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.agent.spec.pause_after_failures = Some(3);
    w.at("2026-12-01T08:00:30Z").at("2026-12-01T08:01:00Z").fail(FailureClass::ExecutorFailed);
    assert_eq!(w.state(), State::BackingOff);
    assert!(conditions::is_true(&w.status().conditions, "LastCycleFailed"));
    assert!(conditions::is_true(&w.status().conditions, "Ready"), "a failed cycle never changes Ready");
    w.at("2026-12-01T08:01:30Z");
    assert_eq!(w.jobs_made.len(), 1);
    w.at("2026-12-01T08:02:05Z").fail(FailureClass::ExecutorFailed);
    w.at("2026-12-01T08:04:30Z").fail(FailureClass::Timeout);
    assert_eq!(w.state(), State::Paused);
    w.at("2026-12-01T12:00:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    w.request("message", &json!({"triggers": [{"type": "Message"}]}));
    w.at("2026-12-01T12:01:00Z");
    assert_eq!(w.jobs_made.len(), 3, "a message does not resume");
    w.request("person", &json!({}));
    w.at("2026-12-01T12:02:00Z").done();
    assert_eq!(w.jobs_made[3], "person");
    assert!(w.log.contains(&"start person with [\"message\"]".to_owned()));
    assert_eq!(w.status().consecutive_failures, None);
}

#[test]
fn an_edit_of_the_spec_resumes() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.agent.spec.pause_after_failures = Some(1);
    w.at("2026-12-01T08:00:30Z").at("2026-12-01T08:01:00Z").fail(FailureClass::ExecutorFailed);
    assert_eq!(w.state(), State::Paused);
    w.agent.metadata.generation = Some(2);
    w.at("2026-12-01T09:00:30Z");
    assert_eq!(w.jobs_made.len(), 2);
}

#[test]
fn neutral_ends_never_count() {
    for class in [FailureClass::PersistFenced, FailureClass::Disrupted] {
        let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
        w.at("2026-12-01T08:00:30Z").at("2026-12-01T08:01:00Z").fail(class);
        assert_eq!(w.status().consecutive_failures, None, "{class}");
    }
}

#[test]
fn a_stall_stands_until_a_person_acts() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:30Z").at("2026-12-01T08:01:00Z").fail(FailureClass::MemoryMissing);
    assert_eq!(w.state(), State::Stalled);
    let ready = conditions::find(&w.status().conditions, "Ready").unwrap().clone();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "MemoryMissing"));
    w.at("2026-12-01T10:00:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    w.request("person", &json!({}));
    w.at("2026-12-01T10:01:00Z").done();
    assert_ne!(w.state(), State::Stalled);
    assert!(conditions::find(&w.status().conditions, "Stalled").is_none());
}

/// The operator reads no Secret: the next slot is how it learns that one was created.
#[test]
fn a_missing_secret_is_probed_again() {
    let mut w = World::sql("0 * * * *", "2026-12-01T07:30:00Z");
    w.at("2026-12-01T07:30:00Z").at("2026-12-01T08:00:00Z").fail(FailureClass::SecretMissing);
    assert_eq!(w.state(), State::Stalled);
    w.at("2026-12-01T09:00:00Z").done();
    assert_eq!((w.jobs_made.len(), w.state()), (2, State::Idle));
}

/// cloudnative-pg#5108: a cron expression that never fires made a backup of the year 0. kube-rs#1779: a wait without
/// bound overflowed the queue.
#[test]
fn a_broken_manifest_stalls_with_its_words() {
    let cases = [
        (json!({"name": "s", "cron": "0 0 7 * * *"}), "UnparseableSchedule", "6-field cron expression"),
        (json!({"name": "s", "cron": "0 0 31 2 *"}), "ScheduleNeverFires", "never-firing cron expression"),
        (
            json!({"name": "s", "cron": "0 7 * * *", "timeZone": "Mars/Olympus"}),
            "UnknownTimeZone",
            "unknown time zone",
        ),
    ];
    for (schedule, reason, words) in cases {
        let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
        w.agent.spec.schedules = vec![serde_json::from_value(schedule).unwrap()];
        w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
        let stalled = conditions::find(&w.status().conditions, "Stalled").unwrap().clone();
        assert_eq!(stalled.reason, reason);
        assert!(stalled.message.starts_with(words), "{}", stalled.message);
        assert_eq!((w.state(), w.jobs_made.len()), (State::Stalled, 0));
        assert_eq!(w.look_again, Timestamp::MAX, "nobody looks before an edit");
        // velero#8575: the words go with the fault.
        w.agent.spec.schedules =
            vec![serde_json::from_value(json!({"name": "s", "cron": "0 9 * * *"})).unwrap()];
        w.agent.metadata.generation = Some(2);
        w.at("2026-12-01T07:10:00Z");
        assert!(conditions::find(&w.status().conditions, "Stalled").is_none());
        assert_eq!(w.state(), State::Idle);
    }
}

/// What else there is to wait for is waited for, and never beyond an hour.
#[test]
fn a_broken_manifest_with_something_to_wait_for_is_looked_at_again() {
    let broken = || {
        let mut w = World::sql("0 0 31 2 *", "2026-12-01T06:00:00Z");
        w.at("2026-12-01T06:00:00Z");
        assert_eq!(w.look_again, Timestamp::MAX);
        w
    };
    let mut w = broken();
    w.agent
        .spec
        .schedules
        .push(serde_json::from_value(json!({"name": "good", "cron": "5 6 * * *"})).unwrap());
    w.at("2026-12-01T06:01:00Z");
    assert_eq!(w.look_again, ts("2026-12-01T06:05:00Z"), "another schedule's slot is told as skipped");
    let mut w = broken();
    w.request("person", &json!({"ttlSecondsAfterFinished": 86400}));
    let ended = json!({"phase": "Failed", "finished": "2026-12-01T06:00:00Z"});
    w.cycles[0].status = Some(serde_json::from_value(ended).unwrap());
    w.at("2026-12-01T06:01:00Z");
    assert_eq!(w.look_again, ts("2026-12-01T07:01:00Z"), "a cycle is to be deleted");
    let mut w = broken();
    w.agent.spec.schedules[0].cron = Some("0 7 1 1 *".into());
    w.at("2026-12-01T06:01:00Z");
    assert_eq!(w.look_again, ts("2026-12-01T07:01:00Z"), "one that fires in a month");
}

#[test]
fn deleting_a_running_cycle_cancels_it() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    w.cycles.clear();
    w.at("2026-12-01T07:01:00Z");
    assert!(w.log.contains(&"delete job".to_owned()));
    w.at("2026-12-01T07:02:00Z");
    assert_eq!(
        (w.state(), w.status().last_cycle.unwrap().result.as_deref()),
        (State::Idle, Some("Canceled"))
    );
    assert_eq!(w.status().consecutive_failures, None);
    assert_eq!(w.counted, ["Canceled"]);
}

/// cloudnative-pg#10859: a run whose node was gone was active for ever.
#[test]
fn a_lost_node_frees_the_agent() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let job = w.job.as_mut().unwrap();
    (job.started, job.ending_since) = (true, Some(ts("2026-12-01T07:05:00Z")));
    w.at("2026-12-01T07:06:00Z");
    assert_eq!(w.state(), State::Running);
    w.at("2026-12-01T07:07:30Z");
    assert_eq!(w.cycles[0].status.as_ref().unwrap().reason.as_deref(), Some("NodeLost"));
    assert_eq!(w.state(), State::Idle);
    assert!(w.log.contains(&"delete job".to_owned()));
}

#[test]
fn a_pod_that_does_not_start_is_explained_then_tried_again() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    assert_eq!(w.look_again, ts("2026-12-01T07:01:00Z"));
    w.job.as_mut().unwrap().waiting =
        Some(Waiting { reason: "ImagePullBackOff".into(), message: "no such image".into() });
    w.at("2026-12-01T07:01:00Z");
    let cycle = w.cycles[0].status.clone().unwrap();
    assert_eq!((cycle.phase, cycle.reason.as_deref()), (Some(Phase::Pending), Some("ImagePullBackOff")));
    w.at("2026-12-01T07:15:00Z");
    assert_eq!(w.state(), State::BackingOff);
    assert_eq!(w.status().consecutive_failures, None);
    w.at("2026-12-01T07:20:01Z");
    assert_eq!(w.jobs_made.len(), 2, "the same cycle again");
    assert_eq!(w.jobs_made[0], w.jobs_made[1]);
}

/// Kueue: a Job may wait for hours before it may start; that is nobody's failure.
#[test]
fn a_job_in_a_queue_is_waited_for_and_has_its_whole_time_to_start_afterwards() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    w.job.as_mut().unwrap().suspended = true;
    w.at("2026-12-01T07:00:30Z").at("2026-12-01T09:00:00Z");
    let cycle = w.cycles[0].status.clone().unwrap();
    assert_eq!((cycle.phase, cycle.reason.as_deref()), (Some(Phase::Pending), Some("Queued")));
    assert_eq!((w.state(), w.jobs_made.len()), (State::Queued, 1));
    let job = w.job.as_mut().unwrap();
    (job.suspended, job.released) = (false, w.now);
    w.at("2026-12-01T09:14:59Z");
    assert_eq!((w.state(), w.log.contains(&"delete job".to_owned())), (State::Running, false));
    w.at("2026-12-01T09:15:00Z");
    assert_eq!((w.state(), w.log.contains(&"delete job".to_owned())), (State::BackingOff, true));
}

#[test]
fn a_job_that_is_refused_for_a_quarter_of_an_hour_gives_the_agent_back() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    // As the edge does when the API server refuses the Job.
    w.job = None;
    let view = w.views()[0].clone();
    w.cycles[0].status = Some(crate::cycle_status::pending(&view, "QuotaExceeded", "no room", w.now));
    w.jobs_made.clear();
    w.agent.status.as_mut().unwrap().active_cycle.as_mut().unwrap().since = Some(w.now);
    let plan = w.decide();
    assert_eq!(plan.status.state, Some(State::Queued));
    assert!(plan.actions.iter().any(|a| matches!(a, Action::StartJob { .. })), "it is tried again");
    w.at("2026-12-01T07:15:00Z");
    assert_eq!((w.state(), w.jobs_made.len()), (State::BackingOff, 0));
    let last = w.status().last_cycle.unwrap();
    assert_eq!(last.result.as_deref(), Some("NotStarted"));
    assert_eq!(last.message.as_deref(), Some("not started within 900 s: QuotaExceeded"));
    w.at("2026-12-01T07:20:01Z");
    assert_eq!(w.jobs_made.len(), 1, "the same cycle again");
}

/// A scheduler's message on a large cluster, or a person's words in an annotation, are longer than a status may be.
#[test]
fn texts_of_others_of_any_length_never_keep_a_status_from_being_written() {
    let long = "0/120 nodes are available:\n".repeat(200);
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let waiting = Waiting { reason: "Unschedulable".into(), message: long.clone() };
    w.job.as_mut().unwrap().waiting = Some(waiting);
    w.at("2026-12-01T07:01:00Z");
    assert!(w.cycles[0].status.as_ref().unwrap().message.as_ref().unwrap().starts_with("0/120 nodes"));
    assert_eq!(w.state(), State::Queued);
    w.at("2026-12-01T07:15:00Z");
    assert_eq!(w.state(), State::BackingOff);
    w.environment.hold = Some(long.clone());
    w.request("asked", &json!({}));
    w.at("2026-12-01T07:30:00Z");
    assert_eq!(w.state(), State::Held);
    let reason = |w: &World| w.cycles[1].status.as_ref().and_then(|s| s.reason.clone());
    assert_eq!(reason(&w).as_deref(), Some("Held"));
    w.environment.hold = None;
    w.at("2026-12-01T07:31:00Z");
    let broken = JobEnd { complete: true, image: Some(long.clone()), attempts: 1, ..JobEnd::default() };
    let mut report = CycleReport::new(CycleResult::Done);
    report.message = long.clone();
    let end = JobEnd { message: Some(report.render()), at: Some(w.now), ..broken };
    w.job.as_mut().unwrap().end = Some(end);
    w.settle();
    assert_eq!(w.state(), State::Idle);
}

#[test]
fn a_lost_report_is_asked_for() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    w.job.as_mut().unwrap().end =
        Some(JobEnd { exit_code: Some(137), attempts: 1, at: Some(w.now), ..JobEnd::default() });
    w.at("2026-12-01T07:01:00Z");
    assert!(w.log.last().unwrap().starts_with("ask "));
    w.job.as_mut().unwrap().report_job =
        Some(ReportJob::Ended(Box::new(Some(CycleReport::new(CycleResult::Done)))));
    w.at("2026-12-01T07:02:00Z");
    assert_eq!(w.cycles[0].status.as_ref().unwrap().reason.as_deref(), Some("Recovered"));
}

#[test]
fn the_third_unstated_cycle_in_a_row_is_a_failure() {
    let mut w = World::sql("0 * * * *", "2026-12-01T07:30:00Z");
    let model = json!({"model": {"provider": "OpenAI", "name": "m"}});
    w.agent.spec.executor = serde_json::from_value(model).unwrap();
    w.at("2026-12-01T07:30:00Z");
    for hour in 8..11 {
        w.at(&format!("2026-12-01T{hour:02}:00:00Z"));
        w.end(&CycleReport::new(CycleResult::Done));
    }
    assert_eq!(w.status().last_cycle.unwrap().result.as_deref(), Some("Unstated"));
    w.at("2026-12-01T11:00:00Z").done();
    assert_eq!(w.status().unstated_in_a_row, None);
}
