//! Conditions: written only when they change, with the time of the change of their status.

use cicada_contract::text::{cut, printable};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Longest message of a condition. Status stays below 32 KiB.
const MESSAGE_MAX: usize = 512;

/// A condition that should stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its type.
    pub type_: &'static str,
    /// True, False, or nothing to remove it.
    pub status: Option<bool>,
    /// CamelCase.
    pub reason: String,
    /// One line for people.
    pub message: String,
}

impl Wanted {
    /// A condition with its status.
    pub fn new(
        type_: &'static str,
        status: bool,
        reason: impl Into<String>,
        message: impl AsRef<str>,
    ) -> Self {
        Self {
            type_,
            status: Some(status),
            reason: reason.into(),
            message: cut(&printable(message.as_ref()), MESSAGE_MAX),
        }
    }

    /// No such condition: kstatus reads Reconciling and Stalled as abnormal when they are there.
    pub fn absent(type_: &'static str) -> Self {
        Self { type_, status: None, reason: String::new(), message: String::new() }
    }
}

/// Applies what is wanted to `conditions`. A condition keeps its time as long as its status stands.
pub fn apply(conditions: &mut Vec<Condition>, wanted: Wanted, generation: Option<i64>, now: Timestamp) {
    let Some(status) = wanted.status else {
        conditions.retain(|c| c.type_ != wanted.type_);
        return;
    };
    let status = if status { "True" } else { "False" };
    let existing = conditions.iter().position(|c| c.type_ == wanted.type_);
    let since = existing
        .map(|i| &conditions[i])
        .filter(|c| c.status == status)
        .map_or(Time(now), |c| c.last_transition_time.clone());
    let condition = Condition {
        type_: wanted.type_.to_owned(),
        status: status.to_owned(),
        reason: wanted.reason,
        message: wanted.message,
        observed_generation: generation,
        last_transition_time: since,
    };
    match existing {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// True if the condition stands and is True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_changes_with_the_status_only() {
        let (t0, t1) = (Timestamp::from_second(1).unwrap(), Timestamp::from_second(2).unwrap());
        let mut list = vec![];
        apply(&mut list, Wanted::new("Ready", true, "Idle", ""), Some(1), t0);
        apply(&mut list, Wanted::new("Ready", true, "Running", "a\nb"), Some(2), t1);
        assert_eq!(list[0].last_transition_time.0, t0);
        assert_eq!(
            (list[0].reason.as_str(), list[0].message.as_str(), list[0].observed_generation),
            ("Running", "a b", Some(2))
        );
        apply(&mut list, Wanted::new("Ready", false, "Stalled", ""), Some(2), t1);
        assert_eq!(list[0].last_transition_time.0, t1);
        apply(&mut list, Wanted::absent("Ready"), Some(2), t1);
        assert!(list.is_empty());
    }
}
