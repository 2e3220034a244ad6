//! By when an agent should have succeeded again.
//!
//! "No success in two intervals" is counted in slots, not in seconds: between the slots of `0 7 * * 1-5` lie 24 or 72
//! hours, and the length of the interval around now would shrink on Monday under a success of Friday.

use cicada_crds::{PersistentAgent, status::State};
use jiff::{SignedDuration, Timestamp};

use crate::{
    due::{self, Parsed},
    schedule::Recurring,
};

/// Two intervals after the last success, or after what counts as one: the agent was made, its schedule was edited, a
/// suspension ended, or a hold did (`released`). Of several schedules the first to say so counts. None while it is
/// suspended or on hold, and where nothing recurs.
pub fn success_due(agent: &PersistentAgent, released: Option<Timestamp>) -> Option<Timestamp> {
    let status = agent.status.as_ref()?;
    if matches!(status.state?, State::Suspended | State::Held) {
        return None;
    }
    let of = |schedule| {
        let Parsed::Recurring(cron) = due::parse(schedule).ok()? else { return None };
        let state = status.schedules.iter().find(|s| s.name == schedule.name)?;
        let since = status.last_successful_time.max(state.since).max(released)?;
        two_intervals_on(&cron, since)
    };
    agent.spec.schedules.iter().filter_map(of).min()
}

/// As far behind the second slot after `t` as `t` is behind its own, which leaves the second cycle the time that the
/// last one took; but not behind the third.
fn two_intervals_on(cron: &Recurring, t: Timestamp) -> Option<Timestamp> {
    let second = cron.next_after(cron.next_after(t)?)?;
    let behind = cron.previous_at_or_before(t).map_or(SignedDuration::ZERO, |slot| t.duration_since(slot));
    let third = cron.next_after(second)?;
    Some((second + behind).min(third))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn due(crons: &[&str], status: serde_json::Value, released: Option<&str>) -> Option<String> {
        let schedules =
            crons.iter().enumerate().map(|(n, cron)| json!({"name": n.to_string(), "cron": cron}));
        let schedules: Vec<_> = schedules.collect();
        let mut status = status;
        let since = status["since"].take();
        status.as_object_mut().unwrap().remove("since");
        let states = (0..crons.len()).map(|n| json!({"name": n.to_string(), "since": since}));
        status["schedules"] = states.collect();
        let agent = json!({"metadata": {"name": "a"}, "status": status,
            "spec": {"executor": {"sql": {"inline": "SELECT 1"}}, "schedules": schedules}});
        let agent: PersistentAgent = serde_json::from_value(agent).unwrap();
        success_due(&agent, released.map(|t| t.parse().unwrap())).map(|t| t.to_string())
    }

    /// 27 November 2026 is a Friday.
    #[test]
    fn a_weekend_is_one_interval() {
        let after = |success: &str| {
            let status =
                json!({"state": "Idle", "lastSuccessfulTime": success, "since": "2026-11-01T00:00:00Z"});
            due(&["0 7 * * 1-5"], status, None).unwrap()
        };
        for (success, expected) in [
            ("2026-11-26T07:02:00Z", "2026-11-30T07:02:00Z"),
            ("2026-11-27T07:02:00Z", "2026-12-01T07:02:00Z"),
            // At a person's request on Sunday: not two days into Tuesday's interval.
            ("2026-11-29T07:00:00Z", "2026-12-02T07:00:00Z"),
            ("2026-11-30T07:02:00Z", "2026-12-02T07:02:00Z"),
        ] {
            assert_eq!(after(success), expected, "{success}");
        }
    }

    #[test]
    fn one_that_never_succeeded_has_two_intervals_from_its_creation() {
        let new = json!({"state": "Idle", "since": "2026-12-01T06:10:00Z"});
        assert_eq!(due(&["0 * * * *"], new.clone(), None).unwrap(), "2026-12-01T08:10:00Z");
        assert_eq!(due(&["0 7 * * *", "0 * * * *"], new.clone(), None).unwrap(), "2026-12-01T08:10:00Z");
        assert_eq!(due(&[], new, None), None);
    }

    #[test]
    fn a_rest_on_purpose_is_no_lack_of_success() {
        let old = |state: &str, since: &str| json!({"state": state, "lastSuccessfulTime": "2026-11-01T07:00:00Z", "since": since});
        for state in ["Suspended", "Held"] {
            assert_eq!(due(&["0 7 * * *"], old(state, "2026-10-01T00:00:00Z"), None), None);
        }
        for state in ["Idle", "Paused", "Stalled", "BackingOff", "OverBudget", "Running"] {
            let due = due(&["0 7 * * *"], old(state, "2026-10-01T00:00:00Z"), None);
            assert_eq!(due.unwrap(), "2026-11-03T07:00:00Z", "{state}");
        }
        // The end of a suspension stands in the schedule's state, that of a hold does not.
        let resumed = due(&["0 7 * * *"], old("Idle", "2026-12-01T07:30:00Z"), None);
        let released = due(&["0 7 * * *"], old("Idle", "2026-10-01T00:00:00Z"), Some("2026-12-01T07:30:00Z"));
        assert_eq!(
            (resumed.unwrap(), released.unwrap()),
            ("2026-12-03T07:30:00Z".into(), "2026-12-03T07:30:00Z".into())
        );
    }
}
