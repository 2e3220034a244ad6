//! Slots: of the manifest's schedules, of the agent's own, and what a clock does to them.

use super::*;

#[test]
fn a_slot_becomes_a_cycle_a_job_and_a_result() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    assert_eq!((w.state(), w.look_again), (State::Idle, ts("2026-12-01T07:00:00Z")));
    let idle_writes = w.status_writes;
    w.at("2026-12-01T07:00:00Z");
    assert_eq!(w.state(), State::Running);
    let slot = names::slot_cycle("a", ts("2026-12-01T07:00:00Z"));
    assert_eq!(w.log, [format!("create {slot}"), format!("start {slot} with []")]);
    w.at("2026-12-01T07:02:00Z").done();
    assert_eq!(w.state(), State::Idle);
    assert_eq!(w.status_writes - idle_writes, 2, "the claim and the end");
    let status = w.status();
    assert_eq!(status.last_successful_time, Some(ts("2026-12-01T07:02:00Z")));
    assert_eq!(status.memory.unwrap().summary.unwrap(), "2.0 MiB, 3 tables");
    assert_eq!(status.last_cycle.unwrap().duration, Some(120));
    let cycle = w.cycles[0].status.clone().unwrap();
    assert_eq!((cycle.phase, cycle.outcome.as_deref()), (Some(Phase::Succeeded), Some("done")));
    assert!(conditions::is_true(&cycle.conditions, "Complete"));
}

#[test]
fn an_idle_agent_is_never_written() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:00Z");
    let writes = w.status_writes;
    for minute in 1..60 {
        w.at(&format!("2026-12-01T08:{minute:02}:00Z"));
    }
    assert_eq!(w.status_writes, writes);
}

/// cloudnative-pg#10562: the child was created, the status write was lost, and the schedule was dead.
#[test]
fn a_lost_status_write_starts_nothing_twice() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z").done();
    // The agent's status is as it was before the slot; cycle and Job are there.
    let mut status = w.status();
    status.schedules[0].last_slot = None;
    (status.last_cycle, status.active_cycle) = (None, None);
    w.agent.status = Some(status);
    w.at("2026-12-01T07:03:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    assert_eq!(w.status().schedules[0].last_slot, Some(ts("2026-12-01T07:00:00Z")));
}

/// agent-sandbox#784: an object of the predicted name that somebody else made is not adopted.
#[test]
fn a_foreign_cycle_in_a_slots_place_skips_the_slot() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    w.request(&names::slot_cycle("a", ts("2026-12-01T07:00:00Z")), &json!({}));
    w.cycles[0].status =
        Some(AgentCycleStatus { phase: Some(Phase::Succeeded), ..AgentCycleStatus::default() });
    w.at("2026-12-01T07:00:00Z").at("2026-12-01T07:01:00Z");
    assert!(w.jobs_made.is_empty());
    assert_eq!(w.status().schedules[0].last_slot, Some(ts("2026-12-01T07:00:00Z")));
}

#[test]
fn all_schedules_that_are_due_start_one_cycle() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    let more = json!({"name": "t", "cron": "*/30 * * * *"});
    w.agent.spec.schedules.push(serde_json::from_value(more).unwrap());
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    assert_eq!(w.cycles[0].spec.triggers.len(), 2);
}

#[test]
fn a_schedule_of_the_agents_own_wakes_it_within_its_limits() {
    let mut w = with_own_schedule("*/10 * * * *");
    w.at("2026-12-01T07:10:00Z");
    assert_eq!(w.jobs_made.len(), 2);
    assert_eq!(w.cycles[1].spec.triggers[0].schedule.as_deref(), Some("agent/later"));
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.agent_schedules =
        vec![serde_json::from_value(json!({"key": "later", "schedule": "*/10 * * * *"})).unwrap()];
    w.end(&report);
    w.at("2026-12-01T07:20:00Z").at("2026-12-01T07:30:00Z");
    assert_eq!(w.jobs_made.len(), 2, "minInterval is half an hour");
    w.at("2026-12-01T07:40:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    w.end(&report);
    w.agent.spec.self_management =
        Some(serde_json::from_value(json!({"schedules": {"allow": false}})).unwrap());
    w.at("2026-12-01T09:00:00Z");
    assert_eq!(w.jobs_made.len(), 3);
}

#[test]
fn a_one_off_of_the_agents_own_runs_once() {
    let mut w = with_own_schedule("2026-12-01T09:00:00Z");
    assert_eq!(w.look_again, ts("2026-12-01T08:00:00Z"), "an hour at most");
    w.at("2026-12-01T09:00:00Z").done();
    w.at("2026-12-01T10:00:00Z");
    assert_eq!(w.jobs_made.len(), 2);
}

/// kubernetes#125761: a step of the clock started what lay between. Neither direction makes a burst: an hour
/// forward is one catch-up, an hour back starts nothing until the time that was reached comes again.
#[test]
fn a_clock_that_steps_an_hour_starts_no_burst() {
    fn minutes(w: &mut World, count: u32) {
        for _ in 0..count {
            w.now += SignedDuration::from_mins(1);
            w.settle();
            if w.job.as_ref().is_some_and(|j| j.end.is_none()) {
                w.done();
            }
        }
    }
    let mut w = World::sql("*/5 * * * *", "2026-12-01T06:00:00Z");
    w.settle();
    minutes(&mut w, 12);
    assert_eq!(w.jobs_made.len(), 2, "06:05 and 06:10");
    w.now += SignedDuration::from_hours(1);
    w.settle();
    assert_eq!(w.jobs_made.len(), 3, "one for all slots in between");
    w.done();
    minutes(&mut w, 5);
    assert_eq!(w.jobs_made.len(), 4, "07:15");
    w.now -= SignedDuration::from_hours(1);
    minutes(&mut w, 60);
    assert_eq!(w.jobs_made.len(), 4, "06:17 to 07:17 had their slots");
    minutes(&mut w, 3);
    assert_eq!(w.jobs_made.len(), 5, "07:20");
}

#[test]
fn an_own_schedule_is_among_the_coming_slots_and_catches_up_nothing_of_a_suspension() {
    let mut w = with_own_schedule("0 * * * *");
    w.at("2026-12-01T07:10:00Z");
    assert_eq!(w.status().next_schedule_time, Some(ts("2026-12-01T08:00:00Z")));
    w.agent.spec.suspend = Some(true);
    w.at("2026-12-01T07:30:00Z");
    w.agent.spec.suspend = None;
    w.at("2026-12-01T08:30:00Z");
    assert_eq!(w.jobs_made.len(), 1, "the slot of eight passed in the suspension");
    w.at("2026-12-01T09:00:00Z");
    assert_eq!(w.jobs_made.len(), 2);
    assert_eq!(w.status().last_schedule_time, Some(ts("2026-12-01T09:00:00Z")));
}
