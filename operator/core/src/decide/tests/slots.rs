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

/// Ends a cycle that leaves the agent's own schedules as they are.
fn end_with_own(w: &mut World) {
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    let own = w.status().agent_schedules;
    let told = own.iter().map(|s| json!({"key": s.key, "schedule": s.schedule}));
    report.agent_schedules = told.map(|s| serde_json::from_value(s).unwrap()).collect();
    w.end(&report);
}

/// Notes of skipped slots, each with its count.
fn skipped(w: &World) -> Vec<&str> {
    w.log.iter().filter_map(|l| l.strip_prefix("note MissSchedule ")).collect()
}

#[test]
fn slots_that_are_skipped_are_told_by_one_event_for_each_schedule() {
    let mut w = World::sql("0 * * * *", "2026-12-01T06:30:00Z");
    let other = json!({"name": "other", "cron": "*/10 * * * *", "startingDeadlineSeconds": 60});
    w.agent.spec.schedules.push(serde_json::from_value(other).unwrap());
    w.at("2026-12-01T06:30:00Z");
    w.at("2026-12-01T09:05:00Z");
    assert_eq!(skipped(&w), ["2", "15"], "of eight and nine the newer is caught up; none of the other");
    assert_eq!(w.jobs_made.len(), 1);
    w.at("2026-12-01T09:06:00Z").done();
    assert_eq!(skipped(&w).len(), 2);
    // A cycle that takes longer than an interval: each slot but the last.
    w.agent.spec.schedules.pop();
    w.at("2026-12-01T10:00:00Z");
    w.job.as_mut().unwrap().started = true;
    for minute in 0..150 {
        w.at(&format!("2026-12-01T{}:{:02}:30Z", 10 + minute / 60, minute % 60));
    }
    w.done();
    assert_eq!(skipped(&w)[2..], ["1"], "eleven; twelve is caught up");
    assert_eq!(w.jobs_made.len(), 3);
}

#[test]
fn slots_of_the_agents_own_schedules_are_told_as_well() {
    let mut w = with_own_schedule("0 * * * *");
    w.at("2026-12-01T12:10:00Z");
    assert_eq!((skipped(&w), w.jobs_made.len()), (vec!["4"], 2), "eight to eleven; twelve is caught up");
    assert_eq!(w.status().agent_schedules[0].last_missed, Some(ts("2026-12-01T11:00:00Z")));
    end_with_own(&mut w);
    w.at("2026-12-01T12:20:00Z");
    assert_eq!(skipped(&w).len(), 1);
    // Those that come sooner after one another than the manifest allows.
    w.agent.spec.self_management =
        Some(serde_json::from_value(json!({"schedules": {"minInterval": "90m"}})).unwrap());
    w.at("2026-12-01T13:00:00Z").at("2026-12-01T14:00:00Z");
    assert_eq!((skipped(&w), w.jobs_made.len()), (vec!["4", "1"], 3));
}

#[test]
fn a_slot_whose_place_a_stranger_has_is_told_and_counted() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    w.request(&names::slot_cycle("a", ts("2026-12-01T07:00:00Z")), &json!({}));
    w.at("2026-12-01T07:00:00Z");
    assert_eq!(w.log.iter().filter(|l| *l == "note UnexpectedCycle 1").count(), 1, "{:?}", w.log);
}

/// What was added has no past: neither a slot from before, nor a single time.
#[test]
fn a_schedule_that_is_added_starts_nothing_that_is_past() {
    let mut w = World::sql("0 7 1 1 *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z");
    for added in
        [json!({"name": "n", "cron": "0 8 * * *"}), json!({"name": "o", "at": "2026-12-01T08:00:00Z"})]
    {
        w.agent.spec.schedules.push(serde_json::from_value(added).unwrap());
        w.at("2026-12-01T12:00:00Z");
        assert_eq!((w.jobs_made.len(), skipped(&w).len()), (0, 0));
    }
    w.at("2026-12-02T08:00:00Z");
    assert_eq!(w.jobs_made.len(), 1);
}

/// Two times of the agent's own that lie closer together than the manifest allows: the second is late, not lost.
#[test]
fn a_time_of_the_agents_own_that_comes_too_early_waits() {
    let mut w = with_own_schedule("2026-12-01T09:00:00Z");
    let mut second = w.status();
    let mut later = second.agent_schedules[0].clone();
    (later.key, later.schedule) = ("again".into(), "2026-12-01T09:10:00Z".into());
    second.agent_schedules.push(later);
    w.agent.status = Some(second);
    w.at("2026-12-01T09:00:00Z");
    end_with_own(&mut w);
    w.at("2026-12-01T09:10:00Z");
    assert_eq!((w.jobs_made.len(), w.look_again), (2, ts("2026-12-01T09:30:00Z")));
    w.at("2026-12-01T09:30:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    assert_eq!(w.cycles[2].spec.triggers[0].schedule.as_deref(), Some("agent/again"));
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

/// A report of an agent with schedules of its own that it holds back until then.
fn resting(schedules: &[(&str, &str)], until: Option<&str>) -> CycleReport {
    let mut report = CycleReport::new(CycleResult::Done);
    report.outcome = Outcome::Done;
    report.agent_schedules = schedules
        .iter()
        .map(|(key, schedule)| serde_json::from_value(json!({"key": key, "schedule": schedule})).unwrap())
        .collect();
    report.agent_paused_until = until.map(|t| ts(t).as_second());
    report
}

#[test]
fn an_agent_that_rests_is_woken_by_people_and_by_nothing_of_its_own() {
    let own = [("hourly", "0 * * * *"), ("once", "2026-12-01T08:30:00Z")];
    let mut w = World::sql("30 9 * * *", "2026-12-01T06:00:00Z");
    w.request("first", &json!({}));
    w.at("2026-12-01T07:10:00Z").end(&resting(&own, Some("2026-12-01T11:00:00Z")));
    assert_eq!(w.status().agent_paused_until, Some(ts("2026-12-01T11:00:00Z")));
    w.at("2026-12-01T08:00:00Z").at("2026-12-01T08:30:00Z").at("2026-12-01T09:00:00Z");
    assert_eq!(w.jobs_made.len(), 1, "{:?}", w.log);
    w.at("2026-12-01T09:30:00Z");
    assert_eq!(w.cycles[1].spec.triggers[0].schedule.as_deref(), Some("s"), "a schedule of people");
    w.end(&resting(&own, Some("2026-12-01T11:00:00Z")));
    w.request("mail", &json!({"triggers": [{"type": "Message"}]}));
    w.at("2026-12-01T09:40:00Z").end(&resting(&own, Some("2026-12-01T11:00:00Z")));
    assert_eq!((w.jobs_made.len(), w.state()), (3, State::Idle));
    assert_eq!(w.status().next_schedule_time, Some(ts("2026-12-01T11:00:00Z")), "its end is a slot itself");
    w.at("2026-12-01T10:59:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    w.at("2026-12-01T11:00:00Z");
    assert_eq!(w.jobs_made.len(), 4);
    // The report of a cycle that began in the pause and ended after it says nothing of it any more.
    w.at("2026-12-01T11:10:00Z").end(&resting(&own, None));
    w.at("2026-12-01T11:50:00Z");
    assert_eq!(
        (w.jobs_made.len(), w.status().agent_paused_until),
        (4, None),
        "what was skipped stays skipped"
    );
    assert!(!w.log.iter().any(|line| line.contains("Miss")), "{:?}", w.log);
}

#[test]
fn no_slot_of_a_rest_is_caught_up_however_it_ends() {
    // It passes between two slots.
    let own = [("hourly", "0 * * * *")];
    let rest = || {
        let mut w = World::sql("0 23 * * *", "2026-12-01T06:00:00Z");
        w.request("first", &json!({}));
        w.at("2026-12-01T07:10:00Z").end(&resting(&own, Some("2026-12-01T09:30:00Z")));
        w
    };
    let mut w = rest();
    w.at("2026-12-01T09:31:00Z").at("2026-12-01T09:59:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    w.at("2026-12-01T10:00:00Z");
    assert_eq!(w.jobs_made.len(), 2);
    // The agent ends it in a cycle that people asked for.
    let mut w = rest();
    w.request("early", &json!({}));
    w.at("2026-12-01T08:40:00Z").end(&resting(&own, None));
    w.at("2026-12-01T08:41:00Z");
    assert_eq!(w.jobs_made.len(), 2, "the slot of eight o'clock");
    w.at("2026-12-01T09:00:00Z");
    assert_eq!(w.jobs_made.len(), 3);
    // It passes while a cycle is at work, whose report then knows nothing of it.
    let mut w = rest();
    w.request("long", &json!({}));
    w.at("2026-12-01T08:40:00Z");
    w.job.as_mut().unwrap().started = true;
    w.at("2026-12-01T09:45:00Z").end(&resting(&own, None));
    w.at("2026-12-01T09:46:00Z");
    assert_eq!(w.jobs_made.len(), 2, "the slots of eight and nine o'clock");
}

#[test]
fn a_rest_ends_at_its_bound_and_a_cycle_that_tells_nothing_changes_nothing() {
    let own = [("daily", "0 8 * * *")];
    let mut w = World::sql("0 23 1 1 *", "2026-12-01T06:00:00Z");
    w.request("first", &json!({}));
    w.at("2026-12-01T07:00:00Z").end(&resting(&own, Some("2036-01-01T00:00:00Z")));
    let bound = ts("2026-12-31T07:00:00Z");
    assert_eq!(w.status().agent_paused_until, Some(bound), "thirty days");
    w.request("second", &json!({}));
    w.at("2026-12-02T09:00:00Z").fail(FailureClass::StoreUnavailable);
    assert_eq!(w.status().agent_paused_until, Some(bound), "no ledger was read");
    w.at("2026-12-31T08:00:00Z");
    assert_eq!(w.jobs_made.len(), 3);
}
