//! Agents that another instance of the operator works on.
//!
//! Names and preconditions keep two instances from starting anything twice, but they would write their status
//! over each other's for ever. The later one leaves such agents alone and says so, until the other's Lease has
//! stood unchanged for a while by our own clock. A Lease that can't be read says nothing: its agents are left
//! alone until a person clears `status.operator`.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cicada_crds::PersistentAgent;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::{act, context::Context, index::Key, metrics::KindLabels};

/// A Lease that was not renewed for this long has no holder. Four times its own limit: clocks differ.
const DEAD_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// A Lease that stands for this long is nobody's: three times its own limit, and more than the gap of a rollout.
/// Shorter than the time between two looks at an agent, so that the second one sees it.
const STANDS: Duration = Duration::from_secs(45);
/// What was found out about an instance is believed for this long.
const BELIEVED: Duration = Duration::from_secs(15);

/// What is known of other instances.
#[derive(Debug, Default)]
pub struct Foreign {
    known: Mutex<HashMap<String, Sight>>,
    /// Agents of which people were told.
    told: Mutex<HashSet<Key>>,
}

/// What was seen of another instance's Lease.
#[derive(Debug, Clone)]
struct Sight {
    looked: Instant,
    /// Its resourceVersion; empty if there is no Lease.
    version: String,
    since: Instant,
    alive: bool,
}

impl Sight {
    /// After a look that found this version, or none that could be read.
    fn next(before: Option<&Self>, version: Option<&str>, now: Instant) -> Self {
        let unread = Self { looked: now, version: "unread".into(), since: now, alive: true };
        let Some(version) = version else { return unread };
        match before.filter(|b| b.version == version) {
            Some(b) => Self { looked: now, alive: now.duration_since(b.since) < STANDS, ..b.clone() },
            None => Self { version: version.to_owned(), ..unread },
        }
    }
}

/// True if another instance is at work on this agent.
pub async fn is_at_work(context: &Context, key: &Key, agent: &PersistentAgent) -> bool {
    let told = || context.foreign.told.lock().unwrap_or_else(PoisonError::into_inner);
    let named = agent.status.as_ref().and_then(|s| s.operator.as_ref());
    let Some(other) = named.filter(|name| **name != context.instance && !context.share) else {
        told().remove(key);
        return false;
    };
    let before = { context.foreign.known.lock().unwrap_or_else(PoisonError::into_inner).get(other).cloned() };
    let sight = match before {
        Some(sight) if sight.looked.elapsed() < BELIEVED => sight,
        before => look(context, other, before.as_ref()).await,
    };
    if !sight.alive {
        told().remove(key);
        return false;
    }
    context.metrics.foreign.get_or_create(&KindLabels { kind: other.clone() }).inc();
    if told().insert(key.clone()) {
        act::tell_of_foreign(context, agent, other);
    }
    true
}

async fn look(context: &Context, other: &str, before: Option<&Sight>) -> Sight {
    let lease = match other.split_once('/') {
        Some((namespace, name)) => context.api::<Lease>(namespace).get_opt(name).await,
        None => Ok(None),
    };
    let version = match &lease {
        Ok(lease) => Some(lease.as_ref().and_then(Lease::resource_version).unwrap_or_default()),
        Err(_) => None,
    };
    let sight = Sight::next(before, version.as_deref(), Instant::now());
    if before.is_none_or(|b| b.alive != sight.alive) {
        report(other, sight.alive, lease.err());
    }
    let mut known = context.foreign.known.lock().unwrap_or_else(PoisonError::into_inner);
    known.insert(other.to_owned(), sight.clone());
    sight
}

/// Once for each change.
fn report(other: &str, alive: bool, unread: Option<kube::Error>) {
    match unread {
        Some(error) => tracing::error!(
            instance = other,
            error = %error,
            "the Lease of another operator can't be read; its agents are left alone. If it is gone, clear status.operator of its agents"
        ),
        None if alive => tracing::error!(
            instance = other,
            "another operator works on agents of these namespaces; they are left alone"
        ),
        None => tracing::warn!(instance = other, "another operator has gone; its agents are taken over"),
    }
}

/// True if the Lease is held and was renewed lately.
pub(crate) fn is_alive(spec: Option<&LeaseSpec>, now: Timestamp) -> bool {
    let Some(spec) = spec else { return false };
    let held = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
    held && spec.renew_time.as_ref().is_some_and(|t| t.0 + DEAD_AFTER > now)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    #[test]
    fn only_a_lease_that_is_held_and_renewed_lives() {
        let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let lease = |holder: Option<&str>, seconds: i64| LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            renew_time: Some(MicroTime(now - SignedDuration::from_secs(seconds))),
            ..LeaseSpec::default()
        };
        assert!(is_alive(Some(&lease(Some("pod"), 5)), now));
        for dead in [None, Some(&lease(Some("pod"), 61)), Some(&lease(None, 5)), Some(&lease(Some(""), 5))] {
            assert!(!is_alive(dead, now), "{dead:?}");
        }
    }

    /// Whatever a Lease says (released in a rollout, deleted, a clock that is behind): only that it stands, seen
    /// by our own clock, gives its agents away. So no two instances take an agent from each other in turns.
    #[test]
    fn agents_are_taken_over_from_a_lease_that_stands_and_never_at_first_sight() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for version in ["", "7"] {
            let first = Sight::next(None, Some(version), at(0));
            assert!(first.alive, "an absent one may be made again by its living holder");
            let second = Sight::next(Some(&first), Some(version), at(44));
            let third = Sight::next(Some(&second), Some(version), at(45));
            assert_eq!((second.alive, third.alive), (true, false));
            assert!(Sight::next(Some(&third), Some("8"), at(60)).alive, "it lives again");
        }
        assert!(STANDS > Duration::from_secs(2 * crate::lease::TTL));
    }

    /// A Role gives the right to few Leases, and an API server may not answer: neither says that nobody is there.
    #[test]
    fn what_can_not_be_read_lives() {
        let start = Instant::now();
        let mut sight = Sight::next(None, None, start);
        for minutes in 1..100 {
            sight = Sight::next(Some(&sight), None, start + Duration::from_mins(minutes));
            assert!(sight.alive);
        }
        assert!(Sight::next(Some(&sight), Some("7"), start + Duration::from_mins(101)).alive);
    }
}
