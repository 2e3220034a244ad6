//! The Lease: which replica acts.
//!
//! It saves work, it does not keep anything safe: names, resourceVersions and the epoch in the store do
//! that. A replica that loses it ends, so that nothing half-done goes on.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::{Lease, LeaseSpec},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{sync::OnceCell, time::Instant};

/// Seconds after which another replica may take over.
pub const TTL: u64 = 15;
/// Time between two renewals.
pub const RENEW: Duration = Duration::from_secs(5);
/// A request about the Lease that has no answer by then is tried again on another connection: one that
/// died without a word never answers.
pub const ANSWER: Duration = Duration::from_secs(3);
/// A replica that could not renew for this long stops acting, before another one may start.
pub const TRUST: Duration = Duration::from_secs(11);

/// What to write if `me` may hold the Lease now; None if another holder is alive.
///
/// `unchanged` is for how long, by our own monotonic clock, the holder has written nothing. The times in
/// the Lease are for people: a clock that steps by an hour must not make a living holder look dead.
pub fn claim(
    current: Option<&LeaseSpec>,
    me: &str,
    unchanged: Duration,
    now: Timestamp,
) -> Option<LeaseSpec> {
    let current = current.cloned().unwrap_or_default();
    let holder = current.holder_identity.as_deref().filter(|h| !h.is_empty());
    let mine = holder == Some(me);
    let ttl = current.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(TTL);
    if holder.is_some() && !mine && unchanged < Duration::from_secs(ttl) {
        return None;
    }
    Some(LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(TTL).ok(),
        acquire_time: if mine { current.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(current.lease_transitions.unwrap_or(0) + i32::from(!mine)),
        ..LeaseSpec::default()
    })
}

/// One replica's side of the Lease.
#[derive(Debug)]
pub struct Holder {
    /// Makes a client whose pool holds no connection that may have died.
    config: kube::Config,
    api: Mutex<Api<Lease>>,
    namespace: String,
    name: String,
    me: String,
    /// When the newest successful renewal was *sent*: its effect can't be older.
    renewed: Mutex<Option<Instant>>,
    /// The resourceVersion that was seen last, and since when it has stood.
    seen: Mutex<Option<(String, Instant)>>,
    deployment_uid: OnceCell<Option<String>>,
}

impl Holder {
    /// For a Lease of this name.
    pub fn new(client: Client, config: kube::Config, namespace: &str, name: &str, me: &str) -> Self {
        Self {
            api: Mutex::new(Api::namespaced(client, namespace)),
            config,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            me: me.to_owned(),
            renewed: Mutex::new(None),
            seen: Mutex::new(None),
            deployment_uid: OnceCell::new(),
        }
    }

    fn api(&self) -> Api<Lease> {
        self.api.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Goes on with a fresh connection: a pool may hold several that died without a word, and each would cost
    /// one try.
    pub fn reconnect(&self) {
        match Client::try_from(self.config.clone()) {
            Ok(client) => {
                *self.api.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                    Api::namespaced(client, &self.namespace);
            }
            Err(error) => tracing::warn!(error = %error, "could not make a client for the lease"),
        }
    }

    /// For how long the Lease has had this resourceVersion, as far as we have seen.
    fn unchanged(&self, lease: Option<&Lease>) -> Duration {
        let version = lease.and_then(|l| l.metadata.resource_version.clone()).unwrap_or_default();
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match seen.as_ref().filter(|(known, _)| *known == version) {
            Some((_, since)) => since.elapsed(),
            None => seen.insert((version, Instant::now())).1.elapsed(),
        }
    }

    /// The operator's Deployment, whose name the chart gives the Lease, too. With its UID, by which `kubectl
    /// describe` finds events; without it where there is no such Deployment or no right to read it.
    pub async fn deployment(&self) -> ObjectReference {
        let read = async {
            let client = self.api().into_client();
            let found = Api::<Deployment>::namespaced(client, &self.namespace).get_opt(&self.name).await;
            if let Err(error) = &found {
                tracing::warn!(error = %error, "the operator's Deployment can't be read; events on it have no UID");
            }
            found.ok().flatten().and_then(|d| d.metadata.uid)
        };
        let uid = self.deployment_uid.get_or_init(|| read).await.clone();
        ObjectReference {
            uid,
            api_version: Some("apps/v1".into()),
            kind: Some("Deployment".into()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            ..ObjectReference::default()
        }
    }

    /// True if this replica may act. Asked before every write: a process that was stopped for a while
    /// must notice it here, by the monotonic clock, before it does anything.
    pub fn may_act(&self) -> bool {
        let renewed = *self.renewed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        renewed.is_some_and(|at| at.elapsed() < TRUST)
    }

    /// Takes or renews the Lease; true if this replica holds it now.
    pub async fn tick(&self, now: Timestamp) -> Result<bool, kube::Error> {
        let sent = Instant::now();
        let seen = self.api().get_opt(&self.name).await?;
        let unchanged = self.unchanged(seen.as_ref());
        let spec = seen.as_ref().and_then(|l| l.spec.as_ref());
        let Some(spec) = claim(spec, &self.me, unchanged, now) else {
            return Ok(false);
        };
        let held = self.write(seen.as_ref(), spec).await?;
        if held {
            *self.renewed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(sent);
        }
        Ok(held)
    }

    /// Takes the Lease whoever holds it: that replica ends, and has stopped to act after [`TRUST`].
    pub async fn seize(&self, now: Timestamp) -> Result<bool, kube::Error> {
        let sent = Instant::now();
        let seen = self.api().get_opt(&self.name).await?;
        let spec = seen.as_ref().and_then(|l| l.spec.as_ref());
        let Some(spec) = claim(spec, &self.me, Duration::MAX, now) else { return Ok(false) };
        let held = self.write(seen.as_ref(), spec).await?;
        if held {
            *self.renewed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(sent);
        }
        Ok(held)
    }

    /// Lets the next replica start at once.
    pub async fn release(&self) -> Result<(), kube::Error> {
        *self.renewed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        let seen = self.api().get_opt(&self.name).await?;
        let Some(mut spec) = seen.as_ref().and_then(|l| l.spec.clone()) else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(&self.me) {
            return Ok(());
        }
        spec.holder_identity = None;
        self.write(seen.as_ref(), spec).await.map(|_| ())
    }

    async fn write(&self, seen: Option<&Lease>, spec: LeaseSpec) -> Result<bool, kube::Error> {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            resource_version: seen.and_then(|l| l.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease { metadata, spec: Some(spec) };
        let parameters =
            PostParams { field_manager: Some(crate::FIELD_MANAGER.into()), ..PostParams::default() };
        let written = match seen {
            Some(_) => self.api().replace(&self.name, &parameters, &lease).await,
            None => self.api().create(&parameters, &lease).await,
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(s)) if s.is_conflict() || s.is_already_exists() => Ok(false),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_free_one_keeps_its_own_waits_for_a_live_one_takes_a_dead_one() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let after = Duration::from_secs;
        let a = claim(None, "a", after(0), now).unwrap();
        assert!(claim(Some(&a), "b", after(14), now).is_none());
        let kept = claim(Some(&a), "a", after(3), now).unwrap();
        assert_eq!(
            (kept.lease_transitions, kept.acquire_time.clone()),
            (a.lease_transitions, a.acquire_time.clone())
        );
        assert_eq!(claim(Some(&a), "b", after(16), now).unwrap().lease_transitions, Some(2));
        // agent-sandbox#1249: without a release every rollout waited for the Lease to run out.
        let released = LeaseSpec { holder_identity: None, ..a };
        assert!(claim(Some(&released), "b", after(1), now).is_some());
    }

    /// kubernetes#23731: a step of the clock made two leaders.
    #[test]
    fn a_step_of_the_clock_takes_the_lease_from_nobody() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let a = claim(None, "a", Duration::ZERO, now).unwrap();
        for hours in [-1, 1] {
            let stepped = now + jiff::SignedDuration::from_hours(hours);
            assert!(claim(Some(&a), "b", Duration::from_secs(5), stepped).is_none());
            assert!(claim(Some(&a), "b", Duration::from_secs(TTL), stepped).is_some());
        }
    }

    #[test]
    fn a_replica_stops_acting_before_another_may_start() {
        assert!(TRUST + RENEW / 2 < Duration::from_secs(TTL));
    }

    /// A connection that died costs one try, not the Lease.
    #[test]
    fn one_lost_answer_does_not_cost_the_lease() {
        let next_try = RENEW + ANSWER + crate::run::ASK;
        assert!(next_try + Duration::from_secs(1) < TRUST);
    }
}
