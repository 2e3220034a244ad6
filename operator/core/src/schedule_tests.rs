use proptest::prelude::*;

use super::*;

fn ts(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn parse(cron: &str, zone: &str) -> Recurring {
    Recurring::parse(cron, Some(zone)).unwrap()
}

/// All slots in [from, to), walked forwards.
fn slots(cron: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let schedule = parse(cron, zone);
    let mut at = ts(from) - SignedDuration::from_nanos(1);
    let mut found = vec![];
    while let Some(next) = schedule.next_after(at).filter(|n| *n < ts(to)) {
        found.push(next.to_zoned(self::zone(Some(zone)).unwrap()).strftime("%m-%d %H:%M%:z").to_string());
        at = next;
    }
    found
}

/// kubernetes#121594: a daily schedule ran twice where the clock goes back, and not at all where it goes forward.
#[test]
fn a_daily_schedule_runs_once_per_local_day() {
    let table: &[(&str, &str, &str, &str, &[&str])] = &[
        // Berlin: 02:00-03:00 is left out on 29 March and repeated on 25 October 2026.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            "2026-03-30T12:00:00Z",
            &["03-28 02:30+01:00", "03-29 03:00+02:00", "03-30 02:30+02:00"],
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-26T12:00:00Z",
            &["10-25 02:30+02:00", "10-26 02:30+01:00"],
        ),
        (
            "0 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-26T12:00:00Z",
            &["10-25 02:00+02:00", "10-26 02:00+01:00"],
        ),
        // Two fixed hours of which one is left out: 03:00 runs once, not twice.
        (
            "0 2,3 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "2026-03-29T12:00:00Z",
            &["03-29 03:00+02:00"],
        ),
        (
            "0,30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            "2026-03-29T12:00:00Z",
            &["03-29 03:00+02:00"],
        ),
        (
            "0,30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-25T12:00:00Z",
            &["10-25 02:00+02:00", "10-25 02:30+02:00"],
        ),
        // New York: 8 March and 1 November 2026.
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-08T00:00:00Z",
            "2026-03-09T12:00:00Z",
            &["03-08 03:00-04:00", "03-09 02:30-04:00"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T00:00:00Z",
            "2026-11-02T12:00:00Z",
            &["11-01 01:30-04:00", "11-02 01:30-05:00"],
        ),
        // Lord Howe moves by half an hour: 5 April (back) and 4 October (forward) 2026.
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00:00Z",
            "2026-04-05T20:00:00Z",
            &["04-05 01:45+11:00", "04-06 01:45+10:30"],
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            "2026-10-05T00:00:00Z",
            &["10-04 02:30+11:00", "10-05 02:15+11:00"],
        ),
        // Santiago jumps at midnight: 6 September 2026 has no 00:00-01:00, and 4 April has 23:00-24:00 twice.
        (
            "0 0 * * *",
            "America/Santiago",
            "2026-09-05T12:00:00Z",
            "2026-09-07T12:00:00Z",
            &["09-06 01:00-03:00", "09-07 00:00-03:00"],
        ),
        (
            "30 23 * * *",
            "America/Santiago",
            "2026-04-04T12:00:00Z",
            "2026-04-06T12:00:00Z",
            &["04-04 23:30-03:00", "04-05 23:30-04:00"],
        ),
        // Apia had no 30 December 2011.
        (
            "0 9 * * *",
            "Pacific/Apia",
            "2011-12-29T12:00:00Z",
            "2012-01-01T00:00:00Z",
            &["12-29 09:00-10:00", "12-31 09:00+14:00", "01-01 09:00+14:00"],
        ),
    ];
    for (cron, zone, from, to, expected) in table {
        assert_eq!(slots(cron, zone, from, to), *expected, "{cron} {zone} {from}");
    }
}

#[test]
fn wildcard_hours_follow_elapsed_time() {
    // Berlin, clock forward: 02:xx does not exist, 01:30 is followed by 03:00 half an hour later.
    assert_eq!(
        slots("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z"),
        ["03-29 01:00+01:00", "03-29 01:30+01:00", "03-29 03:00+02:00", "03-29 03:30+02:00"]
    );
    // Clock back: 02:xx runs in both passes.
    assert_eq!(
        slots("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"),
        ["10-25 02:30+02:00", "10-25 02:30+01:00"]
    );
    assert_eq!(
        slots("@hourly", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", "2026-04-04T18:00:00Z"),
        ["04-05 01:00+11:00", "04-05 02:00+10:30", "04-05 03:00+10:30", "04-05 04:00+10:30"],
        "01:30-02:00 is repeated: no whole hour in it"
    );
}

#[test]
fn what_is_wrong_is_said_in_the_first_words() {
    let table = [
        ("0 7 * * *", Some("Europe/Berln"), "unknown time zone \"Europe/Berln\"", "UnknownTimeZone"),
        ("0 0 7 * * *", None, "6-field cron expression", "UnparseableSchedule"),
        ("0 7 * *", None, "4-field cron expression", "UnparseableSchedule"),
        ("TZ=Europe/Berlin 0 7 * * *", None, "time zone inside the cron expression", "UnparseableSchedule"),
        ("CRON_TZ=UTC 0 7 * * *", None, "time zone inside the cron expression", "UnparseableSchedule"),
        ("60 * * * *", None, "unreadable cron expression", "UnparseableSchedule"),
        ("@reboot", None, "unreadable cron expression", "UnparseableSchedule"),
        ("", None, "unreadable cron expression", "UnparseableSchedule"),
        ("ü * * * *", None, "unreadable cron expression", "UnparseableSchedule"),
        ("0 0 31 2 *", None, "never-firing cron expression", "ScheduleNeverFires"),
        ("0 0 30 2 *", Some("Asia/Tokyo"), "never-firing cron expression", "ScheduleNeverFires"),
    ];
    for (cron, zone, words, reason) in table {
        let error = Recurring::parse(cron, zone).unwrap_err();
        assert!(error.to_string().starts_with(words), "{cron}: {error}");
        assert_eq!(error.reason(), reason, "{cron}");
    }
}

#[test]
fn names_ranges_and_nicknames_are_read() {
    for cron in [
        "0 7 * * MON-FRI",
        "0 7 1 jan *",
        "@daily",
        "@Weekly",
        "*/15 8-18 * * 1-5",
        "0 0 29 2 *",
        "5 4 L * *",
        "0 7 * * 7",
    ] {
        Recurring::parse(cron, None).unwrap();
    }
    assert_eq!(
        slots("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2105-01-01T00:00:00Z"),
        ["02-29 00:00+00:00"],
        "2100 has no 29 February"
    );
}

/// argo-workflows#15732: an image without zone files fell back to another zone in silence.
#[test]
fn zones_are_bundled() {
    assert!(!jiff::tz::TimeZoneDatabase::bundled().is_definitively_empty());
    for name in ["America/Los_Angeles", "Asia/Kolkata", "Pacific/Apia"] {
        jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap();
    }
}

/// argo-workflows#4445, kubernetes#42649: after a long gap the search took minutes or gave up.
#[test]
fn the_cost_does_not_depend_on_the_gap() {
    let schedule = parse("* * * * *", "Europe/Berlin");
    let started = std::time::Instant::now();
    for year in 0..200 {
        let t = ts("2026-06-01T00:00:30Z") + SignedDuration::from_hours(24 * 365 * year);
        assert_eq!(schedule.previous_at_or_before(t), Some(t - SignedDuration::from_secs(30)));
    }
    assert!(started.elapsed() < std::time::Duration::from_millis(500), "{:?}", started.elapsed());
}

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Asia/Kathmandu",
];

fn expression() -> impl Strategy<Value = String> {
    let minute = prop_oneof![
        Just("*".to_owned()),
        Just("*/7".into()),
        (0..60u8).prop_map(|m| m.to_string()),
        Just("0,30".into())
    ];
    let hour = prop_oneof![
        Just("*".to_owned()),
        Just("*/5".into()),
        (0..24u8).prop_map(|h| h.to_string()),
        Just("1,2,3".into()),
        Just("0-4".into()),
        Just("22-23".into())
    ];
    let day = prop_oneof![Just("*".to_owned()), (1..29u8).prop_map(|d| d.to_string()), Just("L".into())];
    let month =
        prop_oneof![Just("*".to_owned()), Just("3,4,10".into()), (1..13u8).prop_map(|m| m.to_string())];
    let weekday = prop_oneof![Just("*".to_owned()), Just("1-5".into()), Just("0".into())];
    (minute, hour, day, month, weekday).prop_map(|(a, b, c, d, e)| format!("{a} {b} {c} {d} {e}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// argo-workflows#13795, #13363: the search for missed slots and the one for the next disagreed.
    #[test]
    fn next_and_previous_agree(cron in expression(), zone in 0..ZONES.len(), seconds in 1_300_000_000i64..1_900_000_000) {
        let schedule = parse(&cron, ZONES[zone]);
        let t = Timestamp::from_second(seconds).unwrap();
        let next = schedule.next_after(t).unwrap();
        prop_assert!(next > t);
        prop_assert_eq!(schedule.previous_at_or_before(next), Some(next), "the next slot is the newest at its own time");
        let just_before = next - SignedDuration::from_nanos(1);
        let previous = schedule.previous_at_or_before(t).unwrap();
        prop_assert!(previous <= t);
        prop_assert_eq!(schedule.previous_at_or_before(just_before), Some(previous), "no slot between previous and next");
        prop_assert_eq!(schedule.next_after(previous), Some(next));
    }

    /// Around every jump of the clock: each existing local day has exactly one slot of a daily schedule.
    #[test]
    fn every_local_day_has_one_slot(hour in 0..24u8, minute in 0..60u8, zone in 0..ZONES.len(), start in 1_300_000_000i64..1_900_000_000) {
        let tz = super::zone(Some(ZONES[zone])).unwrap();
        let Some(jump) = tz.following(Timestamp::from_second(start).unwrap()).next() else { return Ok(()) };
        let schedule = parse(&format!("{minute} {hour} * * *"), ZONES[zone]);
        let first_day = tz.to_datetime(jump.timestamp() - SignedDuration::from_hours(48)).date();
        let start = first_day.to_zoned(tz.clone()).unwrap().timestamp();
        let (mut at, mut days) = (start - SignedDuration::from_nanos(1), std::collections::BTreeMap::new());
        let end = jump.timestamp() + SignedDuration::from_hours(48);
        while let Some(next) = schedule.next_after(at).filter(|n| *n < end) {
            *days.entry(tz.to_datetime(next).date()).or_insert(0) += 1;
            at = next;
        }
        for (day, count) in &days {
            prop_assert_eq!(*count, 1, "{} in {}", day, ZONES[zone]);
        }
    }

    /// argo-workflows#14047: one unreadable schedule stopped the controller.
    #[test]
    fn no_text_panics(cron in "[ -~]{0,40}", zone in "[ -~]{0,20}") {
        if let Ok(schedule) = Recurring::parse(&cron, Some(&zone)) {
            let _ = schedule.next_after(Timestamp::UNIX_EPOCH);
        }
        if let Ok(schedule) = Recurring::parse(&cron, None) {
            let _ = (schedule.next_after(Timestamp::MAX), schedule.previous_at_or_before(Timestamp::MIN));
        }
    }
}
