//! Slots of a cron expression in a time zone.
//!
//! croner only says which wall-clock minutes match; what happens where a clock jumps is decided here,
//! because two rules are wanted that no cron crate offers together:
//!
//! - an expression with **fixed hours** runs once per local day: a minute that a jump forward leaves out
//!   runs at the first instant after the jump, one that a jump back repeats runs the first time only;
//! - one with **wildcard hours** (`*`, `*/2`) follows elapsed time: left-out minutes don't run, repeated
//!   ones run twice.
//!
//! Both searches cost the same whatever lies between: downtime of years is one step.

use croner::{
    Cron,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};
use jiff::{
    SignedDuration, Timestamp, ToSpan as _,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone},
};

/// Why an expression or a zone can't be used. The first words of each message are stable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not in the bundled zone database.
    #[error("unknown time zone {0:?}: use an IANA name such as Europe/Berlin")]
    UnknownTimeZone(String),
    /// Seconds or a year.
    #[error(
        "{fields}-field cron expression {cron:?}: write 5 fields (minute hour day month weekday), seconds are not supported"
    )]
    FieldCount {
        /// Fields found.
        fields: usize,
        /// The expression.
        cron: String,
    },
    /// `TZ=` or `CRON_TZ=`.
    #[error("time zone inside the cron expression {0:?}: use the field timeZone")]
    InlineTimeZone(String),
    /// Not a cron expression.
    #[error("unreadable cron expression {cron:?}: {problem}")]
    Unparseable {
        /// The expression.
        cron: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No date matches.
    #[error("never-firing cron expression {0:?}: no date matches it")]
    NeverFires(String),
}

impl ScheduleError {
    /// Reason for condition and event; the words of CronJob where it has them.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownTimeZone(_) => "UnknownTimeZone",
            Self::FieldCount { .. } | Self::InlineTimeZone(_) | Self::Unparseable { .. } => {
                "UnparseableSchedule"
            }
            Self::NeverFires(_) => "ScheduleNeverFires",
        }
    }

    /// Only an edit of the manifest helps.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// A zone of the bundled database; None means UTC. The machine's own zone is never used.
pub fn zone(name: Option<&str>) -> Result<TimeZone, ScheduleError> {
    match name {
        None | Some("UTC" | "Etc/UTC") => Ok(TimeZone::UTC),
        Some(name) => jiff::tz::db().get(name).map_err(|_| ScheduleError::UnknownTimeZone(name.to_owned())),
    }
}

/// A cron expression in its zone.
#[derive(Debug, Clone)]
pub struct Recurring {
    cron: Cron,
    zone: TimeZone,
    fixed_hours: bool,
}

impl Recurring {
    /// Reads an expression. Refuses what would never fire, so that each search below ends.
    pub fn parse(cron: &str, zone_name: Option<&str>) -> Result<Self, ScheduleError> {
        let zone = zone(zone_name)?;
        let text = cron.trim();
        check_form(text)?;
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let parsed = parser.parse(text).map_err(|e| ScheduleError::Unparseable {
            cron: text.to_owned(),
            problem: e.to_string().trim_end_matches('.').to_lowercase(),
        })?;
        let hours = if text.starts_with('@') {
            if text.eq_ignore_ascii_case("@hourly") { "*" } else { "0" }
        } else {
            text.split_whitespace().nth(1).unwrap_or("*")
        };
        let this = Self { cron: parsed, zone, fixed_hours: !hours.starts_with('*') };
        // Any start will do: Gregorian dates repeat every 400 years, and croner looks further than that.
        match this.civil(DateTime::constant(2000, 1, 1, 0, 0, 0, 0), true, Direction::Forward) {
            Some(_) => Ok(this),
            None => Err(ScheduleError::NeverFires(text.to_owned())),
        }
    }

    /// First slot after `t`.
    pub fn next_after(&self, t: Timestamp) -> Option<Timestamp> {
        if self.fixed_hours { self.next_fixed(t) } else { self.next_elapsed(t) }
    }

    /// Newest slot at or before `t`.
    pub fn previous_at_or_before(&self, t: Timestamp) -> Option<Timestamp> {
        if self.fixed_hours { self.previous_fixed(t) } else { self.previous_elapsed(t) }
    }

    fn next_fixed(&self, t: Timestamp) -> Option<Timestamp> {
        let mut civil = self.zone.to_datetime(t);
        // The mapping is monotone, so the first later minute is right but for two cases that are skipped:
        // the second pass of a repeated hour, and minutes of a day that does not exist.
        loop {
            civil = self.civil(civil, false, Direction::Forward)?;
            match self.instant(civil) {
                Some(at) if at > t => return Some(at),
                _ => {}
            }
        }
    }

    fn previous_fixed(&self, t: Timestamp) -> Option<Timestamp> {
        let mut civil = self.zone.to_datetime(t);
        let mut inclusive = true;
        // In the second pass of a repeated hour, minutes that the wall clock has yet to show again are past.
        if let Some(back) = self.zone.preceding(t + SignedDuration::from_nanos(1)).next() {
            let before = self.zone.to_datetime(back.timestamp() - SignedDuration::from_nanos(1));
            if before > civil {
                civil = before;
                inclusive = false;
            }
        }
        loop {
            civil = self.civil(civil, inclusive, Direction::Backward)?;
            inclusive = false;
            match self.instant(civil) {
                Some(at) if at <= t => return Some(at),
                _ => {}
            }
        }
    }

    /// When a wall-clock minute of a fixed-hour expression runs; None on a day that does not exist.
    fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
            AmbiguousOffset::Gap { before, after } => {
                // The jump lies between the two readings of the left-out minute.
                let earliest = after.to_timestamp(civil).ok()?;
                let jump = self.zone.following(earliest - SignedDuration::from_nanos(1)).next()?.timestamp();
                let from = before.to_datetime(jump);
                let to = after.to_datetime(jump);
                let day = civil.date().to_datetime(jiff::civil::Time::midnight());
                let next_day = day.checked_add(1.day()).ok()?;
                (!(from <= day && to >= next_day)).then_some(jump)
            }
        }
    }

    fn next_elapsed(&self, t: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (t, false);
        loop {
            let offset = self.zone.to_offset(from);
            let at = offset
                .to_timestamp(self.civil(offset.to_datetime(from), inclusive, Direction::Forward)?)
                .ok()?;
            match self.zone.following(from).next() {
                Some(jump) if at >= jump.timestamp() => (from, inclusive) = (jump.timestamp(), true),
                _ => return Some(at),
            }
        }
    }

    fn previous_elapsed(&self, t: Timestamp) -> Option<Timestamp> {
        let mut from = t;
        loop {
            let offset = self.zone.to_offset(from);
            let at =
                offset.to_timestamp(self.civil(offset.to_datetime(from), true, Direction::Backward)?).ok()?;
            match self.zone.preceding(from + SignedDuration::from_nanos(1)).next() {
                Some(jump) if at < jump.timestamp() => {
                    from = jump.timestamp() - SignedDuration::from_nanos(1);
                }
                _ => return Some(at),
            }
        }
    }

    /// Next or previous matching wall-clock minute, without any zone.
    fn civil(&self, from: DateTime, inclusive: bool, direction: Direction) -> Option<DateTime> {
        let start = from.to_zoned(TimeZone::UTC).ok()?;
        let found: Result<_, CronError> = match direction {
            Direction::Forward => {
                self.cron.find_next_occurrence(&start, inclusive && from.subsec_nanosecond() == 0)
            }
            Direction::Backward => self.cron.find_previous_occurrence(&start, inclusive),
        };
        found.ok().map(|z| z.datetime())
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

fn check_form(text: &str) -> Result<(), ScheduleError> {
    let upper = text.to_ascii_uppercase();
    if upper.starts_with("TZ=") || upper.starts_with("CRON_TZ=") {
        return Err(ScheduleError::InlineTimeZone(text.to_owned()));
    }
    let unparseable =
        |problem: &str| ScheduleError::Unparseable { cron: text.to_owned(), problem: problem.to_owned() };
    if text.starts_with('@') {
        const NAMES: [&str; 7] =
            ["@HOURLY", "@DAILY", "@MIDNIGHT", "@WEEKLY", "@MONTHLY", "@YEARLY", "@ANNUALLY"];
        if NAMES.contains(&upper.as_str()) {
            return Ok(());
        }
        return Err(unparseable("only @hourly, @daily, @weekly, @monthly and @yearly are known"));
    }
    if text.contains('@') || !text.is_ascii() {
        return Err(unparseable("only ASCII letters, digits and * , - / are expected"));
    }
    match text.split_whitespace().count() {
        5 => Ok(()),
        0 => Err(unparseable("it is empty")),
        fields => Err(ScheduleError::FieldCount { fields, cron: text.to_owned() }),
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
