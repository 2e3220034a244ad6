//! What keeps an agent from starting, and what is kept of what it did.

use super::*;

#[test]
fn suspended_and_held_agents_start_nothing_but_are_ready() {
    for hold in [false, true] {
        let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
        w.at("2026-12-01T08:00:30Z");
        if hold {
            w.environment.hold = Some("release".into());
        } else {
            w.agent.spec.suspend = Some(true);
        }
        w.request("person", &json!({}));
        w.at("2026-12-01T08:10:00Z");
        assert!(w.jobs_made.is_empty());
        assert!(conditions::is_true(&w.status().conditions, "Ready"));
        assert_eq!(
            w.cycles[0].status.as_ref().unwrap().reason.as_deref(),
            Some(if hold { "Held" } else { "Suspended" })
        );
        w.environment.hold = None;
        w.agent.spec.suspend = None;
        w.at("2026-12-01T08:10:30Z");
        assert!(w.jobs_made.len() == 1);
    }
}

/// KEDA#5656, #4041: an edit or a restart while a child ran deleted it.
#[test]
fn neither_edit_nor_suspension_touches_a_running_cycle() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T06:00:00Z");
    w.at("2026-12-01T06:00:00Z").at("2026-12-01T07:00:00Z");
    w.agent.spec.charter = Some("new".into());
    w.agent.spec.suspend = Some(true);
    w.agent.metadata.generation = Some(2);
    w.at("2026-12-01T07:01:00Z");
    assert_eq!(w.state(), State::Running);
    w.done();
    assert_eq!((w.state(), w.jobs_made.len()), (State::Suspended, 1));
}

#[test]
fn history_limits_keep_the_newest_and_never_touch_what_others_made() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.agent.spec.successful_cycles_history_limit = Some(2);
    w.at("2026-12-01T08:00:30Z");
    w.request("mine", &json!({}));
    w.request("short", &json!({"ttlSecondsAfterFinished": 60}));
    for minute in 1..8 {
        w.at(&format!("2026-12-01T08:{minute:02}:00Z")).done();
    }
    let names: Vec<_> = w.cycles.iter().map(|c| c.metadata.name.clone().unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains(&"mine".to_owned()) && !names.contains(&"short".to_owned()));
}

#[test]
fn the_budget_of_the_day_holds_until_midnight_of_its_zone() {
    let mut w = World::sql("0 * * * *", "2026-12-01T08:30:00Z");
    w.agent.spec.limits =
        Some(serde_json::from_value(json!({"tokensPerDay": 100, "timeZone": "Asia/Tokyo"})).unwrap());
    w.at("2026-12-01T08:30:00Z").at("2026-12-01T09:00:00Z");
    let mut report = CycleReport::new(CycleResult::Done);
    report.usage.input_tokens = 120;
    w.end(&report);
    assert_eq!(w.state(), State::OverBudget);
    w.at("2026-12-01T14:00:00Z");
    assert_eq!(w.jobs_made.len(), 1);
    assert_eq!(w.look_again, ts("2026-12-01T15:00:00Z"), "midnight in Tokyo");
    w.at("2026-12-01T15:00:00Z");
    assert_eq!(w.jobs_made.len(), 2);
}

#[test]
fn a_full_operator_queues() {
    let mut w = World::sql("* * * * *", "2026-12-01T08:00:00Z");
    w.at("2026-12-01T08:00:30Z");
    w.environment.full = true;
    for minute in 1..6 {
        w.at(&format!("2026-12-01T08:{minute:02}:00Z"));
    }
    assert_eq!((w.state(), w.cycles.len()), (State::Queued, 1), "slots don't pile up");
    assert_eq!(w.cycles[0].status.as_ref().unwrap().reason.as_deref(), Some("WaitingForCapacity"));
    assert_eq!(w.look_again, ts("2026-12-01T08:05:05Z"), "nobody tells when a place is free");
    w.environment.full = false;
    w.at("2026-12-01T08:06:00Z");
    assert_eq!(w.jobs_made.len(), 1);
}

#[test]
fn what_an_agent_causes_itself_is_rationed_by_day() {
    let mut w = World::sql("0 7 * * *", "2026-12-01T08:00:00Z");
    w.agent.spec.limits = Some(serde_json::from_value(json!({"cyclesPerDay": 2})).unwrap());
    w.at("2026-12-01T08:00:00Z");
    for n in 0..3 {
        w.request(&format!("m{n}"), &json!({"triggers": [{"type": "Message"}]}));
        w.at(&format!("2026-12-01T09:0{n}:00Z"));
        if n < 2 {
            w.done();
        }
    }
    assert_eq!(w.jobs_made.len(), 2);
    assert_eq!(w.cycles[2].status.as_ref().unwrap().reason.as_deref(), Some("CyclesPerDay"));
    w.at("2026-12-01T23:30:00Z");
    assert_eq!(w.look_again, ts("2026-12-02T00:00:00Z"), "it waits for midnight, and no longer");
    w.now = ts("2026-12-01T09:30:00Z");
    w.request("person", &json!({}));
    w.at("2026-12-01T10:00:00Z");
    assert_eq!(w.jobs_made[2], "person", "a person's request is not rationed");
}

/// Reasons of the warnings since the last call, without the end of each cycle.
fn told(w: &mut World) -> Vec<&'static str> {
    w.warnings.drain(..).filter(|reason| *reason != "SawCompletedJob").collect()
}

/// Who only watches events learns that an agent has stopped: once, however often it is looked at.
#[test]
fn an_agent_that_stalls_says_so_once() {
    let mut w = World::sql("0 * * * *", "2026-12-01T06:30:00Z");
    w.agent.spec.schedules[0].time_zone = Some("Mars/Base".into());
    w.at("2026-12-01T06:30:00Z").at("2026-12-01T06:31:00Z");
    assert_eq!(told(&mut w), ["UnknownTimeZone"], "CronJob's word");
    w.agent.spec.schedules[0].time_zone = None;
    w.agent.metadata.generation = Some(2);
    w.at("2026-12-01T06:32:00Z").at("2026-12-01T07:00:00Z").fail(FailureClass::SecretMissing);
    w.at("2026-12-01T07:01:00Z");
    assert_eq!((told(&mut w), w.state()), (vec!["SecretMissing"], State::Stalled));
    // The next slot finds it missing still.
    w.at("2026-12-01T08:00:00Z").fail(FailureClass::SecretMissing);
    w.at("2026-12-01T08:01:00Z");
    assert_eq!(told(&mut w), [""; 0]);
    w.at("2026-12-01T09:00:00Z").done();
    w.at("2026-12-01T10:00:00Z").fail(FailureClass::SecretMissing);
    assert_eq!(told(&mut w), ["SecretMissing"], "a new stall");
}

#[test]
fn an_agent_that_pauses_says_so_once() {
    let mut w = World::sql("0 * * * *", "2026-12-01T06:30:00Z");
    w.agent.spec.pause_after_failures = Some(2);
    w.at("2026-12-01T06:30:00Z").at("2026-12-01T07:00:00Z").fail(FailureClass::ExecutorFailed);
    assert_eq!(told(&mut w), [""; 0]);
    w.at("2026-12-01T08:00:00Z").fail(FailureClass::ExecutorFailed);
    w.at("2026-12-01T08:01:00Z");
    assert_eq!((told(&mut w), w.state()), (vec!["Paused"], State::Paused));
    w.request("person", &json!({}));
    w.at("2026-12-01T08:02:00Z").fail(FailureClass::ExecutorFailed);
    w.at("2026-12-01T08:03:00Z");
    assert_eq!((told(&mut w), w.state()), (vec![], State::Paused));
}

#[test]
fn an_agent_over_its_budget_says_so_once_a_day_and_after_an_edit_of_its_limits() {
    let spend = |w: &mut World| {
        let mut report = CycleReport::new(CycleResult::Done);
        report.usage.input_tokens = 120;
        w.end(&report);
    };
    let limits = |tokens: u64| Some(serde_json::from_value(json!({"tokensPerDay": tokens})).unwrap());
    let mut w = World::sql("0 9 * * *", "2026-12-01T08:30:00Z");
    w.agent.spec.limits = limits(100);
    for day in ["2026-12-01", "2026-12-02"] {
        w.at(&format!("{day}T08:30:00Z")).at(&format!("{day}T09:00:00Z"));
        spend(&mut w);
        w.at(&format!("{day}T10:00:00Z"));
        assert_eq!((told(&mut w), w.state()), (vec!["OverBudget"], State::OverBudget), "{day}");
    }
    for (generation, tokens, expected) in [(2, 1000, None), (3, 50, Some("OverBudget")), (4, 60, None)] {
        w.agent.spec.limits = limits(tokens);
        w.agent.metadata.generation = Some(generation);
        w.at("2026-12-02T11:00:00Z").at("2026-12-02T11:01:00Z");
        assert_eq!(told(&mut w).first().copied(), expected, "{tokens}");
    }
}
