//! Requests, messages, restores and deliveries: once each, in their order.

use cicada_contract::report::{CharterReport, CharterSource};

use super::*;

#[test]
fn requests_by_annotation_token_and_object_run_once_each() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    w.agent.metadata.annotations = Some([(RUN_NOW.to_owned(), "x".to_owned())].into());
    w.at("2026-12-01T08:01:00Z").done();
    w.at("2026-12-01T08:02:00Z");
    assert_eq!((w.jobs_made.len(), w.status().last_handled_run_now.as_deref()), (1, Some("x")));
    w.agent.spec.run_token = Some("x".into());
    w.at("2026-12-01T08:03:00Z").done();
    assert_eq!((w.jobs_made.len(), w.status().last_handled_run_token.as_deref()), (2, Some("x")));
    w.request("mine", &json!({}));
    w.at("2026-12-01T08:04:00Z").done();
    w.at("2026-12-01T08:05:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    assert_eq!(w.jobs_made[2], "mine");
}

#[test]
fn what_waits_while_a_cycle_is_at_work_joins_the_next() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    w.request("one", &json!({}));
    w.at("2026-12-01T08:01:00Z");
    w.request("two", &json!({"message": {"body": "hello"}}));
    w.request("three", &json!({}));
    w.at("2026-12-01T08:02:00Z");
    assert_eq!(w.jobs_made, ["one"]);
    w.done();
    assert_eq!(w.jobs_made, ["one", "three"], "oldest first, then by name");
    assert!(w.log.contains(&"start three with [\"two\"]".to_owned()));
    w.done();
    let two =
        w.cycles.iter().find(|c| c.metadata.name.as_deref() == Some("two")).unwrap().status.clone().unwrap();
    assert_eq!((two.phase, two.lead.unwrap().name.as_str()), (Some(Phase::Succeeded), "three"));
    assert_eq!(w.jobs_made.len(), 2);
}

#[test]
fn what_is_undelivered_gets_delivery_cycles() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let mut report = CycleReport::new(CycleResult::Done);
    report.pending.outbox = 2;
    w.end(&report);
    assert_eq!(w.look_again, ts("2026-12-01T07:01:00Z"));
    w.at("2026-12-01T07:01:00Z");
    assert_eq!(w.jobs_made.len(), 2);
    w.end(&report);
    assert_eq!(w.status().delivery.unwrap().next, Some(ts("2026-12-01T07:06:00Z")));
    w.at("2026-12-01T07:06:00Z").done();
    assert_eq!((w.status().delivery, w.jobs_made.len()), (None, 3));
    // One that failed before it could say what is left is tried again later.
    w.at("2026-12-02T07:00:00Z").end(&report);
    w.at("2026-12-02T07:01:00Z").fail(FailureClass::StoreUnavailable);
    assert_eq!(w.status().delivery.unwrap().next, Some(ts("2026-12-02T07:06:00Z")));
}

/// cloudnative-pg#10622: the winner among those that wait was chosen by name, and pushed a running one aside.
#[test]
fn the_oldest_is_next_whatever_its_name_and_pushes_nobody_aside() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    w.request("z-first", &json!({}));
    w.at("2026-12-01T08:00:01Z");
    w.request("m-second", &json!({}));
    w.at("2026-12-01T08:00:02Z");
    w.request("a-third", &json!({}));
    w.at("2026-12-01T08:00:03Z");
    assert_eq!(w.jobs_made, ["z-first"]);
    w.done();
    assert_eq!(w.jobs_made, ["z-first", "m-second"], "the third joins it");
}

/// cloudnative-pg#11056: a gate ran again on a finished object and set it back. In any order of events a
/// cycle goes Pending, Running, ended, and there is never more than one Job at work (World checks both).
#[test]
fn in_any_order_of_events_cycles_only_go_forward() {
    use proptest::prelude::*;
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&proptest::collection::vec(0..12u8, 1..60), |events| {
            let mut w = World::sql("*/7 * * * *", "2026-12-01T06:00:00Z");
            w.settle();
            for event in events {
                w.now += SignedDuration::from_secs(97);
                match event {
                    0 => w.request(&format!("r{}", w.serial), &json!({})),
                    1 => w.request(&format!("m{}", w.serial), &json!({"triggers": [{"type": "Message"}]})),
                    2 => w.agent.spec.suspend = Some(w.agent.spec.suspend != Some(true)),
                    3 => w.environment.full = !w.environment.full,
                    4 => w.agent.metadata.generation = w.agent.metadata.generation.map(|g| g + 1),
                    5 => {
                        w.agent.metadata.annotations =
                            Some([(RUN_NOW.to_owned(), w.serial.to_string())].into());
                    }
                    6 if w.job.as_ref().is_some_and(|j| j.end.is_none()) => w.done(),
                    7 if w.job.as_ref().is_some_and(|j| j.end.is_none()) => {
                        w.fail(FailureClass::ExecutorFailed);
                    }
                    8 if w.job.as_ref().is_some_and(|j| j.end.is_none()) => {
                        w.fail(FailureClass::SecretMissing);
                    }
                    9 => w.now -= SignedDuration::from_mins(30),
                    10 => {
                        w.cycles
                            .pop_if(|c| c.status.as_ref().is_none_or(|s| s.phase != Some(Phase::Running)));
                    }
                    _ => w.now += SignedDuration::from_hours(5),
                }
                w.settle();
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_restore_makes_a_snapshot_current_once_for_each_token() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    let memory = json!({"restoreFrom": {"snapshot": "3-0-x", "token": "1"}});
    w.agent.spec.memory = Some(serde_json::from_value(memory).unwrap());
    w.at("2026-12-01T08:01:00Z");
    assert_eq!(w.cycles[0].spec.restore.as_ref().unwrap().snapshot, "3-0-x");
    w.request("other", &json!({}));
    w.at("2026-12-01T08:02:00Z").done();
    assert_eq!(w.status().memory.unwrap().applied_restore.as_deref(), Some("3-0-x/1"));
    assert_eq!(w.jobs_made[1], "other", "nothing joins a restore");
    w.done();
    w.at("2026-12-01T09:00:00Z");
    assert_eq!(w.jobs_made.len(), 2);
}

#[test]
fn a_delivery_takes_no_request_along_and_says_nothing_about_the_work() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let mut report = CycleReport::failed(FailureClass::Disrupted, "");
    report.pending.outbox = 1;
    w.end(&report);
    let failed = w.status().last_failure_time;
    assert!(failed.is_some());
    // Even a cycle that failed tells what is left, if it came as far as to send.
    w.at("2026-12-01T07:01:00Z");
    assert_eq!(w.jobs_made.len(), 2);
    w.request("other", &json!({"instruction": "count"}));
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.pending.failed = 1;
    w.end(&report);
    assert_eq!((w.status().last_successful_time, w.status().last_failure_time), (None, failed));
    assert_eq!(conditions::find(&w.status().conditions, "LastCycleFailed").unwrap().status, "True");
    assert_eq!((w.status().delivery, w.jobs_made[2].as_str()), (None, "other"));
    assert!(w.log.iter().any(|l| l == "note DeliveryFailed 1"), "{:?}", w.log);
    // A person's cycle that calls itself a delivery is a cycle.
    w.request("sly", &json!({"triggers": [{"type": "Delivery"}]}));
    assert!(!w.views().last().unwrap().is_delivery());
}

/// In force is what was approved over the manifest's text, and no longer than that text stands.
#[test]
fn a_charter_in_force_beside_the_manifests_is_told_until_either_changes() {
    let sha256 = |text: &str| cicada_contract::text::sha256_hex(text);
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.agent.spec.charter = Some("Watch prices.".into());
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    let told = |source, text: &str| {
        let charter = CharterReport { source, hash: sha256(text), base: sha256("Watch prices.") };
        CycleReport { charter: Some(charter), ..CycleReport::new(CycleResult::Done) }
    };
    let diverged = |w: &World| conditions::is_true(&w.status().conditions, "CharterDiverged");
    w.end(&told(CharterSource::Manifest, "Watch prices."));
    assert!(!diverged(&w));
    for (day, source) in [(2, CharterSource::Person), (3, CharterSource::Agent)] {
        w.at(&format!("2026-12-0{day}T07:00:00Z")).end(&told(source, "Watch prices daily."));
        assert!(diverged(&w), "{:?}", w.status());
    }
    let message = conditions::find(&w.status().conditions, "CharterDiverged").unwrap().message.clone();
    assert!(message.contains(&sha256("Watch prices daily.")[..10]), "{message}");
    // A cycle that fails, and one that found its request handled, say nothing about it.
    w.at("2026-12-04T07:00:00Z").fail(FailureClass::Timeout);
    w.at("2026-12-05T07:00:00Z").end(&CycleReport::new(CycleResult::AlreadyHandled));
    assert!(diverged(&w));
    // What was approved is committed: the edit is in force, and it is the same text.
    let mut committed = w.clone();
    committed.agent.spec.charter = Some("Watch prices daily.".into());
    committed.at("2026-12-05T08:00:00Z");
    // Another edit wins as well, before any cycle.
    w.agent.spec.charter = Some("Watch stocks.".into());
    w.at("2026-12-05T08:00:00Z");
    for (w, text) in [(&committed, "Watch prices daily."), (&w, "Watch stocks.")] {
        let charter = w.status().charter.unwrap();
        assert_eq!(
            (charter.source, charter.hash),
            (cicada_crds::status::CharterSource::Manifest, sha256(text))
        );
        assert!(!diverged(w));
        assert!(w.log.iter().any(|l| l.starts_with("note CharterEdited")), "{:?}", w.log);
    }
}

/// A cycle that only delivers or restores, or that had nothing to do, took the agent's own schedules away.
#[test]
fn only_who_looked_at_them_speaks_about_an_agents_own_schedules() {
    let keys = |w: &World| w.status().agent_schedules.into_iter().map(|s| s.key).collect::<Vec<_>>();
    let mut w = with_own_schedule("0 9 * * 1");
    w.agent.spec.run_token = Some("again".into());
    w.at("2026-12-01T08:00:00Z").end(&CycleReport::new(CycleResult::AlreadyHandled));
    assert_eq!(keys(&w), ["later"]);
    w.request("back", &json!({"restore": {"snapshot": "1-0-x"}}));
    w.at("2026-12-01T08:01:00Z").end(&CycleReport::new(CycleResult::Done));
    assert_eq!(keys(&w), ["later"], "one of a release that does not tell");
    w.request("back-again", &json!({"restore": {"snapshot": "1-0-x"}}));
    let charter = CharterReport { source: CharterSource::Manifest, hash: String::new(), base: String::new() };
    w.at("2026-12-01T08:02:00Z")
        .end(&CycleReport { charter: Some(charter), ..CycleReport::new(CycleResult::Done) });
    assert_eq!(keys(&w), [""; 0], "one that has read the older ledger");
}

/// What would be done in one step while a claimed cycle has no Job: "job" and "status", in this order.
fn start_of(w: &World) -> Vec<&'static str> {
    let word = |action: &Action| match action {
        Action::StartJob { .. } => Some("job"),
        Action::SetCycle { .. } => Some("status"),
        _ => None,
    };
    w.decide().actions.iter().filter_map(word).collect()
}

#[test]
fn a_lone_cycle_gets_its_job_first_and_one_that_others_join_its_status() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.request("a", &json!({}));
    let claim = w.decide();
    w.agent.status = Some(claim.status);
    assert_eq!(start_of(&w), ["job", "status"]);
    w.request("b", &json!({}));
    assert_eq!(start_of(&w), ["status", "status", "job"]);
}

#[test]
fn an_operator_that_dies_between_a_job_and_the_first_status_starts_no_second_and_loses_no_field() {
    for seen_at_work in [true, false] {
        let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
        w.request("a", &json!({}));
        w.at("2026-12-01T08:00:01Z");
        // The status that followed the Job was never written.
        w.cycles[0].status = None;
        if seen_at_work {
            w.at("2026-12-01T08:00:02Z");
            let status = w.cycles[0].status.clone().unwrap();
            assert_eq!(status.phase, Some(Phase::Running));
            assert_eq!(w.look_again, ts("2026-12-01T08:01:02Z"), "whether its pod starts is still looked at");
        }
        w.done();
        let status = w.cycles[0].status.clone().unwrap();
        assert_eq!(status.phase, Some(Phase::Succeeded));
        assert!(status.job.is_some_and(|job| !job.is_empty()));
        assert!(status.started.is_some());
        assert_eq!(w.jobs_made, ["a"]);
    }
}
