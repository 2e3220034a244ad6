//! Which names the agent may give.

use crate::mounts::RESERVED_PREFIX;

/// Prefix of the platform's functions and of what it may put beside the agent's tables later.
const PLATFORM_PREFIX: &str = "cicada_";

/// Longest name in bytes.
pub(crate) const NAME_MAX: usize = 63;

/// True for names that only the platform gives.
pub(crate) fn is_reserved(name: &str) -> bool {
    let starts = |prefix: &str| name.get(..prefix.len()).is_some_and(|p| p.eq_ignore_ascii_case(prefix));
    starts(RESERVED_PREFIX) || starts(PLATFORM_PREFIX)
}

/// A plain name: letters, digits and underscores of ASCII, so that no look-alike passes for another
/// name, and no quoting is needed anywhere.
pub(crate) fn is_plain(name: &str) -> bool {
    let bytes = name.as_bytes();
    (1..=NAME_MAX).contains(&bytes.len())
        && !bytes[0].is_ascii_digit()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// Judges the name of a new table, view, index or trigger.
pub(crate) fn check_new(name: &str) -> Result<(), String> {
    if is_reserved(name) {
        return Err(format!(
            "names that begin with {RESERVED_PREFIX} or {PLATFORM_PREFIX} belong to the platform: choose another for {name}"
        ));
    }
    check_plain(name)
}

/// Judges the name of a new column.
pub(crate) fn check_plain(name: &str) -> Result<(), String> {
    if is_plain(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    Err(format!(
        "name {shown:?} is not allowed: use letters, digits and _ (at most {NAME_MAX}), not a digit first"
    ))
}
