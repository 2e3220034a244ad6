use super::*;

fn ts(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(expression: &str, zone: &str) -> Schedule {
    Schedule {
        name: "s".into(),
        cron: Some(expression.into()),
        time_zone: Some(zone.into()),
        ..Schedule::default()
    }
}

/// An agent that is looked at again and again, as an operator does.
struct Agent {
    schedule: Schedule,
    created: Timestamp,
    suspended: bool,
    status: Option<ScheduleStatus>,
    /// The newest slot of which there is a cycle.
    started: Option<Timestamp>,
}

impl Agent {
    fn new(schedule: Schedule, created: &str) -> Self {
        Self { schedule, created: ts(created), suspended: false, status: None, started: None }
    }

    /// Looks, and starts what is due.
    fn look(&mut self, now: &str) -> Evaluated {
        let at = Circumstances { added: self.created, suspended: self.suspended };
        let parsed = parse(&self.schedule).unwrap();
        let result = evaluate(&self.schedule, &parsed, self.status.as_ref(), self.started, at, ts(now));
        let mut status = result.status.clone();
        if result.due.is_some() {
            status.last_slot = result.due;
        }
        self.status = Some(status);
        result
    }
}

#[test]
fn a_slot_starts_once() {
    let mut agent = Agent::new(cron("0 7 * * *", "UTC"), "2026-12-01T06:00:00Z");
    assert_eq!(agent.look("2026-12-01T06:00:00Z").due, None);
    assert_eq!(agent.status.as_ref().unwrap().next, Some(ts("2026-12-01T07:00:00Z")));
    assert_eq!(agent.look("2026-12-01T07:00:00Z").due, Some(ts("2026-12-01T07:00:00Z")));
    assert_eq!(agent.look("2026-12-01T07:00:00Z").due, None);
    assert_eq!(agent.look("2026-12-01T07:30:00Z").due, None);
    assert_eq!(agent.look("2026-12-02T07:00:01Z").due, Some(ts("2026-12-02T07:00:00Z")));
}

#[test]
fn no_slot_before_creation_counts() {
    let mut agent = Agent::new(cron("0 7 * * *", "UTC"), "2026-12-01T07:00:30Z");
    assert_eq!(agent.look("2026-12-01T07:00:40Z").due, None);
}

/// argo-workflows#4445, kubernetes#45825: resuming started what had been missed, or nothing ever again.
#[test]
fn the_end_of_a_suspension_starts_nothing() {
    let mut agent = Agent::new(cron("* * * * *", "UTC"), "2026-12-01T00:00:00Z");
    agent.look("2026-12-01T00:00:30Z");
    agent.suspended = true;
    assert_eq!(agent.look("2026-12-01T00:05:00Z").due, None);
    agent.suspended = false;
    let resumed = agent.look("2026-12-04T00:05:30Z");
    assert_eq!((resumed.due, resumed.skipped), (None, None));
    assert_eq!(agent.look("2026-12-04T00:06:00Z").due, Some(ts("2026-12-04T00:06:00Z")));
}

/// kubernetes#63371, argo-workflows#7182: an edit started a slot that the new expression had in the past.
#[test]
fn an_edit_starts_nothing_that_is_past() {
    let mut agent = Agent::new(cron("0 3 * * *", "UTC"), "2026-12-01T00:00:00Z");
    agent.look("2026-12-01T00:10:00Z");
    agent.schedule = cron("0 1 * * *", "UTC");
    assert_eq!(agent.look("2026-12-01T02:00:00Z").due, None);
    assert_eq!(agent.look("2026-12-01T03:00:00Z").due, None);
    assert_eq!(agent.look("2026-12-02T01:00:00Z").due, Some(ts("2026-12-02T01:00:00Z")));
    agent.schedule.time_zone = Some("Asia/Tokyo".into());
    assert_eq!(agent.look("2026-12-02T17:00:00Z").due, None, "another zone is an edit too");
}

#[test]
fn downtime_is_caught_up_by_one_cycle() {
    let mut agent = Agent::new(cron("*/5 * * * *", "UTC"), "2026-12-01T00:00:00Z");
    agent.look("2026-12-01T00:01:00Z");
    let back = agent.look("2026-12-08T00:03:00Z");
    assert_eq!(back.due, Some(ts("2026-12-08T00:00:00Z")), "the newest");
    let skipped = back.skipped.unwrap();
    let expected = "more than 100 slots from 2026-12-01T00:05:00Z to 2026-12-07T23:55:00Z";
    assert_eq!((skipped.to_string().as_str(), skipped.count), (expected, 100), "the others are told once");
    let again = agent.look("2026-12-08T00:03:30Z");
    assert_eq!((again.due, again.skipped), (None, None));
}

/// CronJob's controller says "too many missed start times" and not which.
#[test]
fn every_skipped_slot_is_told_and_counted_once() {
    let table = [
        // One that is caught up skips none.
        ("2026-12-01T07:30:00Z", true, None),
        ("2026-12-01T08:30:00Z", true, Some(("the slot of 2026-12-01T07:00:00Z", 1))),
        (
            "2026-12-01T10:30:00Z",
            true,
            Some(("3 slots from 2026-12-01T07:00:00Z to 2026-12-01T09:00:00Z", 3)),
        ),
        (
            "2026-12-05T11:30:00Z",
            true,
            Some(("100 slots from 2026-12-01T07:00:00Z to 2026-12-05T10:00:00Z", 100)),
        ),
        (
            "2026-12-05T12:30:00Z",
            true,
            Some(("more than 100 slots from 2026-12-01T07:00:00Z to 2026-12-05T11:00:00Z", 100)),
        ),
        // One that is too old is skipped with the others.
        (
            "2026-12-01T08:30:00Z",
            false,
            Some(("2 slots from 2026-12-01T07:00:00Z to 2026-12-01T08:00:00Z", 2)),
        ),
    ];
    for (now, due, expected) in table {
        let mut schedule = cron("0 * * * *", "UTC");
        schedule.starting_deadline_seconds = (!due).then_some(60);
        let mut agent = Agent::new(schedule, "2026-12-01T06:30:00Z");
        agent.look("2026-12-01T06:30:00Z");
        let back = agent.look(now);
        assert_eq!(back.due.is_some(), due, "{now}");
        let said = back.skipped.map(|s| (s.to_string(), s.count));
        assert_eq!(said, expected.map(|(text, count)| (text.to_owned(), count)), "{now}");
        assert_eq!(agent.look(now).skipped, None, "{now}: told once");
    }
}

/// The cycle of the newest slot was made, and the operator died before it wrote the agent's status: what that slot
/// overtook is told by the write that takes the slot up.
#[test]
fn what_a_started_slot_has_overtaken_is_told_though_its_status_was_lost() {
    let mut agent = Agent::new(cron("0 * * * *", "UTC"), "2026-12-01T06:30:00Z");
    agent.look("2026-12-01T06:30:00Z");
    agent.started = Some(ts("2026-12-01T09:00:00Z"));
    let back = agent.look("2026-12-01T11:10:00Z");
    assert_eq!((back.due, back.status.last_slot), (Some(ts("2026-12-01T11:00:00Z")), agent.started));
    let skipped = back.skipped.unwrap();
    let expected = "3 slots from 2026-12-01T07:00:00Z to 2026-12-01T10:00:00Z";
    assert_eq!(skipped.to_string(), expected, "07:00, 08:00 and 10:00");
    assert_eq!(agent.look("2026-12-01T11:20:00Z").skipped, None);
}

/// argo-workflows#4445: the cost of a look grew with the time for which nobody had looked.
#[test]
fn the_cost_of_a_look_does_not_depend_on_the_gap() {
    let cost = |now: &str| {
        let mut agent = Agent::new(cron("* * * * *", "Europe/Berlin"), "1990-01-01T00:00:00Z");
        agent.look("1990-01-01T00:00:00Z");
        let started = std::time::Instant::now();
        let skipped = agent.look(now).skipped.unwrap();
        assert_eq!((skipped.count, skipped.more), (100, true));
        started.elapsed()
    };
    let least = |now: &str| (0..5).map(|_| cost(now)).min().unwrap();
    let (hours, decades) = (least("1990-01-01T03:00:00Z"), least("2026-01-01T00:00:00Z"));
    assert!(decades < hours * 10, "{decades:?} after 36 years, {hours:?} after three hours");
}

/// A CronJob reports a slot beyond its deadline at every pass.
#[test]
fn a_slot_beyond_its_deadline_is_reported_once() {
    let mut schedule = cron("0 7 * * *", "UTC");
    schedule.starting_deadline_seconds = Some(600);
    let mut agent = Agent::new(schedule, "2026-12-01T06:00:00Z");
    agent.look("2026-12-01T06:30:00Z");
    let late = agent.look("2026-12-01T07:10:01Z");
    assert_eq!((late.due, late.skipped.map(|s| s.newest)), (None, Some(ts("2026-12-01T07:00:00Z"))));
    let again = agent.look("2026-12-01T07:11:00Z");
    assert_eq!((again.due, again.skipped), (None, None));
    assert_eq!(
        agent.look("2026-12-02T07:10:00Z").due,
        Some(ts("2026-12-02T07:00:00Z")),
        "exactly at the deadline"
    );
}

#[test]
fn without_a_deadline_a_weekly_slot_is_caught_up_for_a_day() {
    for (now, due) in [("2026-12-08T06:59:00Z", true), ("2026-12-08T07:01:00Z", false)] {
        let mut agent = Agent::new(cron("0 7 * * MON", "UTC"), "2026-12-01T00:00:00Z");
        agent.look("2026-12-01T00:00:00Z");
        assert_eq!(agent.look(now).due.is_some(), due, "{now}");
    }
}

#[test]
fn a_one_off_runs_once_however_late_but_not_if_written_too_late() {
    let at = |text: &str| Schedule { name: "s".into(), at: Some(ts(text)), ..Schedule::default() };
    let mut agent = Agent::new(at("2026-12-24T08:00:00Z"), "2026-12-01T00:00:00Z");
    assert_eq!(agent.look("2026-12-02T00:00:00Z").due, None);
    assert_eq!(agent.status.as_ref().unwrap().next, Some(ts("2026-12-24T08:00:00Z")));
    assert_eq!(agent.look("2027-03-01T00:00:00Z").due, Some(ts("2026-12-24T08:00:00Z")));
    assert_eq!(agent.look("2027-03-01T00:00:00Z").due, None);
    agent.schedule = at("2027-01-01T00:00:00Z");
    assert_eq!(agent.look("2027-03-02T00:00:00Z").due, None, "it was past when it was written");
    agent.schedule = at("2027-04-01T00:00:00Z");
    agent.look("2027-03-03T00:00:00Z");
    assert_eq!(agent.look("2027-04-01T00:00:00Z").due, Some(ts("2027-04-01T00:00:00Z")));
    let mut late = Agent::new(at("2026-11-30T08:00:00Z"), "2026-12-01T00:00:00Z");
    assert_eq!(late.look("2026-12-01T00:00:01Z").due, None);
}

#[test]
fn a_clock_that_steps_back_starts_nothing_twice() {
    let mut agent = Agent::new(cron("0 * * * *", "UTC"), "2026-12-01T00:00:00Z");
    agent.look("2026-12-01T00:10:00Z");
    assert!(agent.look("2026-12-01T02:00:10Z").due.is_some());
    assert_eq!(agent.look("2026-12-01T01:00:10Z").due, None);
    assert_eq!(agent.look("2026-12-01T02:30:00Z").due, None);
    assert_eq!(agent.look("2026-12-01T03:00:00Z").due, Some(ts("2026-12-01T03:00:00Z")));
}
