//! Names that are made from what they stand for, so that a second try makes the same object again.

use data_encoding::BASE32_NOPAD;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

/// Longest label value and Job name.
const LABEL_MAX: usize = 63;

/// The first `length` characters of the base32 form of SHA-256 over the parts, in lower case.
fn hash(parts: &[&str], length: usize) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        // With its length before it, no two lists of parts give the same bytes.
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let mut text = BASE32_NOPAD.encode(&digest.finalize()).to_ascii_lowercase();
    text.truncate(length);
    text
}

/// Name of the cycle of a slot. All schedules that are due in this minute are its triggers.
pub fn slot_cycle(agent: &str, slot: Timestamp) -> String {
    format!("{agent}-{}", slot.as_second().div_euclid(60))
}

/// Name of the cycle of a request, delivery or restore. `kind` keeps the same token of two kinds apart.
pub fn request_cycle(agent: &str, agent_uid: &str, kind: &str, token: &str) -> String {
    format!("{agent}-r{}", hash(&[agent_uid, kind, token], 8))
}

/// Name of the cycle in which a peer reads what a cycle of another agent sent it.
pub fn peer_cycle(peer: &str, peer_uid: &str, sender: &str, sender_cycle_uid: &str) -> String {
    format!("{peer}-p{}", hash(&[peer_uid, "peer", sender, sender_cycle_uid], 10))
}

/// Name of a cycle's Job. Never that of a CronJob's Job, which ends in digits only.
pub fn job(cycle: &str, cycle_uid: &str) -> String {
    format!("{}-c{}", stem(cycle), hash(&[cycle_uid], 10))
}

/// Name of the Job that reads the store when a cycle ended without a report.
pub fn report_job(cycle: &str, cycle_uid: &str) -> String {
    format!("{}-v{}", stem(cycle), hash(&[cycle_uid, "report"], 10))
}

/// Name of the Job that looks whether this location has a memory of this agent.
pub fn look_job(agent: &str, agent_uid: &str, location: &str) -> String {
    format!("{}-v{}", stem(agent), hash(&[agent_uid, "look", location], 10))
}

/// Name of the Job that purges a deleted agent's memory.
pub fn delete_job(agent: &str, agent_uid: &str) -> String {
    format!("{}-d{}", stem(agent), hash(&[agent_uid, "delete"], 10))
}

/// Name of the ConfigMap with this content.
pub fn config_map(agent: &str, sha256_hex: &str) -> String {
    format!("{agent}-{}", sha256_hex.get(..10).unwrap_or(sha256_hex))
}

/// A label value that stands for `text`: itself if it fits, else its start and a hash.
pub fn label_value(text: &str) -> String {
    if text.len() <= LABEL_MAX {
        return text.to_owned();
    }
    let start: String = text.chars().filter(char::is_ascii).take(50).collect();
    format!("{}-{}", start.trim_end_matches(['.', '-', '_']), hash(&[text], 10))
}

fn stem(name: &str) -> String {
    name.chars().take(50).map(|c| if c == '.' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_name_and_another_slot_another() {
        let slot: Timestamp = "2026-12-01T07:00:00Z".parse().unwrap();
        assert_eq!(slot_cycle("price-watch", slot), "price-watch-29935140");
        assert_ne!(slot_cycle("a", slot), slot_cycle("a", slot + jiff::SignedDuration::from_mins(1)));
    }

    /// cloudnative-pg#10612: a name made from the clock made another run with each retry.
    #[test]
    fn a_request_is_named_by_its_token_only() {
        let name = request_cycle("a", "uid-1", "run-now", "x");
        assert_eq!(name, request_cycle("a", "uid-1", "run-now", "x"));
        assert_ne!(name, request_cycle("a", "uid-1", "run-token", "x"));
        assert_ne!(
            name,
            request_cycle("a", "uid-2", "run-now", "x"),
            "a new agent of the same name asks anew"
        );
        assert_ne!(request_cycle("a", "u", "kx", "y"), request_cycle("a", "u", "k", "xy"));
        assert!(
            name.len() == "a-r".len() + 8
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        );
    }

    /// argo-workflows#5407: a long name made a Job that could not be created.
    #[test]
    fn job_names_and_labels_always_fit() {
        for length in [1, 50, 52, 63, 253] {
            let name = "a.".repeat(127)[..length].replace("..", ".");
            for job in [
                job(&name, "u"),
                report_job(&name, "u"),
                look_job(&name, "u", "s3://b/p"),
                delete_job(&name, "u"),
            ] {
                assert!(job.len() <= LABEL_MAX && !job.contains('.'), "{job}");
                assert!(!job.rsplit('-').next().unwrap().bytes().all(|b| b.is_ascii_digit()), "{job}");
            }
            assert!(label_value(&name).len() <= LABEL_MAX);
        }
        assert_ne!(label_value(&"a".repeat(64)), label_value(&"a".repeat(65)));
        assert_ne!(job("a", "u1"), job("a", "u2"));
    }
}
