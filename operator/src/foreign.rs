//! Agents that another instance of the operator works on.
//!
//! Names and preconditions keep two instances from starting anything twice, but they would write their status
//! over each other's for ever. The later one leaves such agents alone and says so, as long as the other's Lease
//! lives. What it may not read counts as dead: two at work are better than none.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cicada_crds::PersistentAgent;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use tokio::time::Instant;

use crate::{context::Context, metrics::KindLabels};

/// A Lease that was not renewed for this long has no holder. Four times its own limit: clocks differ.
const DEAD_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// What was found out about an instance is believed for this long.
const BELIEVED: Duration = Duration::from_secs(30);

/// What is known of other instances.
#[derive(Debug, Default)]
pub struct Foreign {
    known: Mutex<HashMap<String, (Instant, bool)>>,
}

/// True if another instance is at work on this agent.
pub async fn is_at_work(context: &Context, agent: &PersistentAgent) -> bool {
    let named = agent.status.as_ref().and_then(|s| s.operator.as_ref());
    let Some(other) = named.filter(|name| **name != context.instance && !context.share) else { return false };
    let known = |map: &HashMap<String, (Instant, bool)>| {
        map.get(other).filter(|(at, _)| at.elapsed() < BELIEVED).map(|(_, alive)| *alive)
    };
    let cached = known(&context.foreign.known.lock().unwrap_or_else(PoisonError::into_inner));
    let alive = match cached {
        Some(alive) => alive,
        None => look(context, other).await,
    };
    if alive {
        context.metrics.foreign.get_or_create(&KindLabels { kind: other.clone() }).inc();
    }
    alive
}

async fn look(context: &Context, other: &str) -> bool {
    let lease = match other.split_once('/') {
        Some((namespace, name)) => context.api::<Lease>(namespace).get_opt(name).await,
        None => Ok(None),
    };
    let alive = match lease {
        Ok(lease) => is_alive(lease.and_then(|l| l.spec).as_ref(), Timestamp::now()),
        Err(error) => {
            tracing::warn!(instance = other, error = %error, "the Lease of another operator can't be read; its agents are taken over");
            false
        }
    };
    let before = context
        .foreign
        .known
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(other.to_owned(), (Instant::now(), alive));
    if alive && before.is_none_or(|(_, alive)| !alive) {
        tracing::error!(
            instance = other,
            "another operator works on agents of these namespaces; they are left alone"
        );
    }
    alive
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
}
