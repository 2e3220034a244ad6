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
}

impl Agent {
    fn new(schedule: Schedule, created: &str) -> Self {
        Self { schedule, created: ts(created), suspended: false, status: None }
    }

    /// Looks, and starts what is due.
    fn look(&mut self, now: &str) -> Evaluated {
        let at = Circumstances { created: self.created, suspended: self.suspended };
        let result =
            evaluate(&self.schedule, &parse(&self.schedule).unwrap(), self.status.as_ref(), at, ts(now));
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
    assert_eq!((resumed.due, resumed.missed), (None, None));
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
    assert_eq!(back.missed, Some(ts("2026-12-07T23:55:00Z")), "the others are reported once");
    let again = agent.look("2026-12-08T00:03:30Z");
    assert_eq!((again.due, again.missed), (None, None));
}

/// A CronJob reports a slot beyond its deadline at every pass.
#[test]
fn a_slot_beyond_its_deadline_is_reported_once() {
    let mut schedule = cron("0 7 * * *", "UTC");
    schedule.starting_deadline_seconds = Some(600);
    let mut agent = Agent::new(schedule, "2026-12-01T06:00:00Z");
    agent.look("2026-12-01T06:30:00Z");
    let late = agent.look("2026-12-01T07:10:01Z");
    assert_eq!((late.due, late.missed), (None, Some(ts("2026-12-01T07:00:00Z"))));
    let again = agent.look("2026-12-01T07:11:00Z");
    assert_eq!((again.due, again.missed), (None, None));
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
