//! What an edit of a mount must satisfy, told at once as an SQL error.
//!
//! The rules are pure functions; [`register`] makes them callable from the mounts' triggers.

use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use cicada_contract::plan::PAUSE_MAX;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, functions::Context};

use super::MountPolicy;

/// Largest charter in bytes, as in the manifest.
pub(crate) const CHARTER_MAX: usize = 20_000;
/// Largest skill in bytes: what a prompt can carry of one.
pub(crate) const SKILL_MAX: usize = 8 * 1024;

/// A cron expression of five fields; None if it is not one.
pub(crate) fn parse_cron(text: &str) -> Result<Cron, String> {
    let fields = text.split_whitespace().count();
    if !text.trim_start().starts_with('@') && fields != 5 {
        return Err(format!(
            "cron expression has {fields} fields, it needs 5 (minute hour day month weekday)"
        ));
    }
    CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build()
        .parse(text)
        .map_err(|e| format!("cron expression '{text}' is not valid: {e}"))
}

/// A zone of the bundled database: the worker can read no other.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    thread_local! {
        static ZONES: TimeZoneDatabase = TimeZoneDatabase::bundled();
    }
    ZONES.with(|zones| zones.get(name).ok())
}

/// Next time of a cron expression after `now`.
pub(crate) fn next_run(cron: &str, time_zone: &str, now: Timestamp) -> Option<Timestamp> {
    let start = now.to_zoned(zone(time_zone)?);
    parse_cron(cron).ok()?.find_next_occurrence(&start, false).ok().map(|z| z.timestamp())
}

/// Parses what SQL writes as a time: RFC 3339, or SQLite's `YYYY-MM-DD[ HH:MM[:SS]]` as UTC.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = Timestamp::from_str(text) {
        return Some(time);
    }
    let civil = jiff::civil::DateTime::from_str(text).ok()?;
    civil.to_zoned(TimeZone::UTC).ok().map(|z| z.timestamp())
}

/// A schedule as it would be written.
#[derive(Debug, Default, Clone)]
pub(crate) struct ScheduleRow {
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) schedule: Option<String>,
    pub(crate) time_zone: Option<String>,
    pub(crate) run_at: Option<String>,
    pub(crate) instruction: Option<String>,
    pub(crate) name: Option<String>,
}

/// What is wrong with a schedule.
pub(crate) fn schedule_problem(row: &ScheduleRow, policy: &MountPolicy, now: Timestamp) -> Option<String> {
    if !policy.self_management.schedules {
        return Some(
            "schedules of your own are not allowed by the manifest (selfManagement.schedules)".into(),
        );
    }
    let key_ok = !row.key.is_empty()
        && row.key.len() <= 16
        && row.key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if !key_ok {
        return Some("schedule_key needs 1 to 16 letters, digits, - or _".into());
    }
    if let Some(problem) = too_long("instruction", row.instruction.as_deref(), 4000)
        .or_else(|| too_long("name", row.name.as_deref(), 100))
    {
        return Some(problem);
    }
    let time_zone = row.time_zone.as_deref().unwrap_or(if policy.time_zone.is_empty() {
        "UTC"
    } else {
        &policy.time_zone
    });
    if zone(time_zone).is_none() {
        return Some(format!("unknown timezone '{time_zone}': use an IANA name such as Europe/Berlin"));
    }
    match row.kind.as_str() {
        "recurring" => recurring_problem(row.schedule.as_deref().unwrap_or(""), time_zone, policy, now),
        "once" => match row.run_at.as_deref().map(parse_time) {
            None => Some("kind 'once' needs run_at, e.g. '2027-01-31T08:00:00Z'".into()),
            Some(None) => Some("run_at is no time: write it as '2027-01-31T08:00:00Z'".into()),
            Some(Some(at)) if at <= now => Some(format!("run_at lies in the past (it is {now} now)")),
            Some(Some(_)) => None,
        },
        other => Some(format!("kind is '{other}': it must be 'recurring' or 'once'")),
    }
}

fn recurring_problem(cron: &str, time_zone: &str, policy: &MountPolicy, now: Timestamp) -> Option<String> {
    let parsed = match parse_cron(cron) {
        Ok(parsed) => parsed,
        Err(problem) => return Some(problem),
    };
    let mut last = now.to_zoned(zone(time_zone)?);
    let mut shortest = i64::MAX;
    // 64 firings show the shortest gap of any five-field expression: minutes repeat within an hour.
    for turn in 0..64 {
        let Ok(next) = parsed.find_next_occurrence(&last, false) else {
            return (turn == 0).then(|| format!("cron expression '{cron}' never fires"));
        };
        if turn > 0 {
            shortest = shortest.min(next.timestamp().as_second() - last.timestamp().as_second());
        }
        last = next;
    }
    let least = i64::try_from(policy.self_management.min_interval).unwrap_or(i64::MAX);
    (shortest < least).then(|| {
        format!(
            "schedule fires every {} min; the manifest's shortest interval is {} min",
            shortest / 60,
            least / 60
        )
    })
}

/// The configuration as it is, or would be written.
#[derive(Debug, Default, Clone)]
pub(crate) struct ConfigRow {
    pub(crate) charter: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) paused_until: Option<String>,
}

/// What is wrong with an edit of the configuration.
pub(crate) fn config_problem(
    old: &ConfigRow,
    new: &ConfigRow,
    policy: &MountPolicy,
    now: Timestamp,
) -> Option<String> {
    let Some(charter) = &new.charter else { return Some("charter can't be NULL".into()) };
    if new.charter != old.charter && policy.charter_denied() {
        return Some("the charter can't be changed: the manifest denies it (selfManagement.charter)".into());
    }
    if charter.len() > CHARTER_MAX {
        return Some(format!("charter has {} bytes, at most {CHARTER_MAX}", charter.len()));
    }
    if charter.trim().is_empty() {
        return Some("charter can't be empty".into());
    }
    // What stood there before says nothing about this edit.
    let pause = new.paused_until.as_deref().filter(|_| new.paused_until != old.paused_until);
    pause
        .and_then(|until| pause_problem(until, policy, now))
        .or_else(|| too_long("short_description", new.description.as_deref(), 500))
}

fn pause_problem(until: &str, policy: &MountPolicy, now: Timestamp) -> Option<String> {
    if !policy.self_management.schedules {
        return Some(
            "paused_until holds back schedules of your own, and the manifest allows none (selfManagement.schedules)"
                .into(),
        );
    }
    let Some(until) = parse_time(until) else {
        return Some("paused_until is no time: write it as '2027-01-31T08:00:00Z'".into());
    };
    let latest = now + PAUSE_MAX;
    (until > latest).then(|| {
        let days = PAUSE_MAX.as_hours() / 24;
        format!(
            "paused_until lies more than {days} days ahead: the latest is '{}'",
            latest.strftime("%FT%TZ")
        )
    })
}

/// What is wrong with a skill.
pub(crate) fn skill_problem(
    name: &str,
    description: &str,
    tools: &str,
    instructions: &str,
    policy: &MountPolicy,
) -> Option<String> {
    if !policy.self_management.skills {
        return Some("skills of your own are not allowed by the manifest (selfManagement.skills)".into());
    }
    if name.trim().is_empty() || name.len() > 100 {
        return Some("a skill's name needs 1 to 100 bytes".into());
    }
    if !serde_json::from_str::<Vec<String>>(tools).is_ok() {
        return Some("tools_json must be a JSON array of tool names, e.g. '[\"sql\"]'".into());
    }
    let bytes = description.len() + tools.len() + instructions.len();
    (bytes > SKILL_MAX).then(|| format!("skill has {bytes} bytes, at most {SKILL_MAX}"))
}

/// A card as it would be written.
#[derive(Debug, Default, Clone)]
pub(crate) struct CardRow {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) status: String,
    pub(crate) due_at: Option<String>,
    pub(crate) trigger: Option<String>,
    pub(crate) reason: Option<String>,
}

/// What is wrong with a card.
pub(crate) fn card_problem(row: &CardRow, policy: &MountPolicy) -> Option<String> {
    if row.title.trim().is_empty() || row.title.len() > 200 {
        return Some("a card's title needs 1 to 200 bytes".into());
    }
    if row.id.is_empty() || row.id.len() > 64 {
        return Some("card_id needs 1 to 64 bytes; leave it out to get one".into());
    }
    if !["todo", "doing", "done", "rejected"].contains(&row.status.as_str()) {
        return Some(format!("status is '{}': it must be todo, doing, done or rejected", row.status));
    }
    if row.due_at.as_deref().is_some_and(|t| parse_time(t).is_none()) {
        return Some("due_at is no time: write it as '2027-01-31T08:00:00Z'".into());
    }
    if row.status == "rejected" && row.reason.as_deref().is_none_or(|r| r.trim().is_empty()) {
        return Some("a rejected card needs a reason".into());
    }
    if let Some(trigger) = row.trigger.as_deref() {
        if !matches!(serde_json::from_str(trigger), Ok(serde_json::Value::Object(_))) {
            return Some(
                "trigger_json must be a JSON object, e.g. '{\"at\": \"2027-01-31T08:00:00Z\"}'".into(),
            );
        }
        if trigger.len() > 2000 {
            return Some("trigger_json has more than 2000 bytes".into());
        }
    }
    let rejected = |key: &str| policy.rejected_cards.iter().find(|(k, _)| k == key);
    if row.status != "rejected"
        && let Some((_, reason)) = rejected(&normalised_title(&row.title))
            .or_else(|| row.trigger.as_deref().and_then(|t| rejected(&normalised_trigger(t))))
    {
        return Some(format!("a card like this was rejected, which is final: {reason}"));
    }
    too_long("description", Some(&row.description), 4000)
        .or_else(|| too_long("reason", row.reason.as_deref(), 1000))
}

/// Two titles that differ in case, spaces or punctuation are one.
pub(crate) fn normalised_title(title: &str) -> String {
    let words: Vec<String> = title
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join(" ")
}

/// The trigger with its keys in order, marked so that it never equals a title.
pub(crate) fn normalised_trigger(trigger: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(trigger).unwrap_or_default();
    format!("trigger:{value}")
}

fn too_long(what: &str, text: Option<&str>, most: usize) -> Option<String> {
    let bytes = text.map_or(0, str::len);
    (bytes > most).then(|| format!("{what} has {bytes} bytes, at most {most}"))
}

/// The policy that the functions read; the worker sets it with each mount.
pub(crate) type SharedPolicy = Arc<Mutex<MountPolicy>>;

/// Makes the rules callable from the mounts' triggers.
pub(crate) fn register(connection: &Connection, policy: &SharedPolicy) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    let own = Arc::clone(policy);
    connection.create_scalar_function("cicada_policy", 1, flags, {
        let own = Arc::clone(&own);
        move |c| {
            let policy = current(&own);
            let limits = &policy.self_management;
            Ok(match c.get::<String>(0)?.as_str() {
                "schedules" => i64::from(limits.schedules),
                "skills" => i64::from(limits.skills),
                "max_active" => i64::from(limits.max_active_schedules),
                _ => 0,
            })
        }
    })?;
    connection.create_scalar_function("cicada_config_problem", 5, flags, {
        let own = Arc::clone(&own);
        move |c| {
            let old = ConfigRow { charter: text(c, 0), paused_until: text(c, 1), ..ConfigRow::default() };
            let new = ConfigRow { charter: text(c, 2), description: text(c, 3), paused_until: text(c, 4) };
            let policy = current(&own);
            Ok(config_problem(&old, &new, &policy, policy.now.unwrap_or_default()))
        }
    })?;
    connection.create_scalar_function("cicada_schedule_problem", 7, flags, {
        let own = Arc::clone(&own);
        move |c| {
            let row = ScheduleRow {
                key: text(c, 0).unwrap_or_default(),
                kind: text(c, 1).unwrap_or_default(),
                schedule: text(c, 2),
                time_zone: text(c, 3),
                run_at: text(c, 4),
                instruction: text(c, 5),
                name: text(c, 6),
            };
            let policy = current(&own);
            Ok(schedule_problem(&row, &policy, policy.now.unwrap_or_default()))
        }
    })?;
    connection.create_scalar_function("cicada_skill_problem", 4, flags, {
        let own = Arc::clone(&own);
        move |c| {
            let [name, description, tools, instructions] =
                [0, 1, 2, 3].map(|n| text(c, n).unwrap_or_default());
            Ok(skill_problem(&name, &description, &tools, &instructions, &current(&own)))
        }
    })?;
    connection.create_scalar_function("cicada_card_problem", 7, flags, move |c| {
        let row = CardRow {
            id: text(c, 0).unwrap_or_default(),
            title: text(c, 1).unwrap_or_default(),
            description: text(c, 2).unwrap_or_default(),
            status: text(c, 3).unwrap_or_default(),
            due_at: text(c, 4),
            trigger: text(c, 5),
            reason: text(c, 6),
        };
        Ok(card_problem(&row, &current(&own)))
    })
}

fn current(policy: &SharedPolicy) -> MountPolicy {
    policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn text(context: &Context<'_>, index: usize) -> Option<String> {
    match crate::value::Value::from_sql(context.get_raw(index)) {
        crate::value::Value::Null => None,
        value => Some(value.display()),
    }
}
