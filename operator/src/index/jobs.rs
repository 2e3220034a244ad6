//! Jobs of ours.

use std::collections::HashSet;

use cicada_operator_core::{
    job::{AGENT_LABEL, CONFIG_SHA256, CYCLE_LABEL, JOINED, PURPOSE_LABEL, Purpose},
    names,
    observed::{JobView, Waiting, version},
    result::JobEnd,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;

use super::{Index, Key, Kind};

/// A Job, without its template.
#[derive(Debug, Clone)]
pub struct JobEntry {
    /// What decisions need.
    pub view: JobView,
    /// UID of the cycle that it works for.
    pub cycle_uid: String,
    /// What it is for.
    pub purpose: &'static str,
    /// Name of its agent.
    pub agent: String,
    /// Name of the ConfigMap with its plan.
    pub plan: String,
    /// Its Complete or Failed condition: when, complete, reason.
    pub ended: Option<(Timestamp, bool, Option<String>)>,
    /// Pods that it had.
    pub attempts: u32,
    /// When its pod was last looked at.
    pub looked: Option<Timestamp>,
    version: u64,
}

impl Index {
    /// Takes in a Job of ours; returns the key of its agent.
    pub fn put_job(&mut self, job: &Job) -> Option<Key> {
        let namespace = job.namespace().unwrap_or_default();
        let key = Key::new(&namespace, &job.name_any());
        let uid = job.uid().unwrap_or_default();
        self.note_listed(Kind::Job, &uid);
        let mut entry = job_entry(job)?;
        let known = self.jobs.get(&key).filter(|k| k.view.uid == uid);
        // Names of agents are short enough for a label.
        let agent = Some(Key::new(&namespace, &entry.agent));
        if self.gone.contains_key(&uid) || known.is_some_and(|k| k.version > entry.version) {
            return agent;
        }
        if let Some(known) = known {
            entry.looked = known.looked;
            entry.view.waiting.clone_from(&known.view.waiting);
            entry.view.end.clone_from(&known.view.end);
            entry.view.ending_since =
                entry.view.ending_since.and(known.view.ending_since.or(entry.view.ending_since));
        }
        // One that is being deleted may be so by our own hand, and made again: see `expect_job_again`.
        if !entry.view.deleting {
            self.had_job.insert(entry.cycle_uid.clone());
        }
        self.jobs_of.entry(entry.cycle_uid.clone()).or_default().insert(key.clone());
        self.jobs.insert(key, entry);
        agent
    }

    /// Notes a Job that has our labels and is not ours; true if it is new.
    pub fn note_stray(&mut self, job: &Job) -> bool {
        self.strays.insert(job.uid().unwrap_or_default())
    }

    /// Forgets a Job; returns the key of its agent.
    pub fn remove_job(&mut self, key: &Key, uid: &str, now: Timestamp) -> Option<Key> {
        self.strays.remove(uid);
        self.gone.insert(uid.to_owned(), now);
        if self.jobs.get(key).is_none_or(|j| j.view.uid != uid) {
            return None;
        }
        self.drop_job(key)
    }

    pub(super) fn drop_job(&mut self, key: &Key) -> Option<Key> {
        let entry = self.jobs.remove(key)?;
        if let Some(jobs) = self.jobs_of.get_mut(&entry.cycle_uid) {
            jobs.remove(key);
            if jobs.is_empty() {
                self.jobs_of.remove(&entry.cycle_uid);
            }
        }
        Some(Key::new(&key.namespace, &entry.agent))
    }

    /// The Job of this purpose for a cycle.
    pub fn job(&self, cycle_uid: &str, purpose: Purpose) -> Option<(Key, JobEntry)> {
        let keys = self.jobs_of.get(cycle_uid)?;
        let found = keys.iter().filter_map(|k| self.jobs.get(k).map(|j| (k.clone(), j.clone())));
        found.into_iter().find(|(_, j)| j.purpose == purpose.label())
    }

    /// True if a Job of this cycle was seen and is gone.
    pub fn job_vanished(&self, cycle_uid: &str) -> bool {
        self.had_job.contains(cycle_uid) && !self.jobs_of.contains_key(cycle_uid)
    }

    /// A Job that we delete ourselves may be made again.
    pub fn expect_job_again(&mut self, cycle_uid: &str) {
        self.had_job.remove(cycle_uid);
    }

    /// Changes what is remembered of a Job.
    pub fn update_job(&mut self, key: &Key, change: impl FnOnce(&mut JobEntry)) {
        if let Some(job) = self.jobs.get_mut(key) {
            change(job);
        }
    }

    /// Notes why a pod does not start.
    pub fn job_waits(&mut self, key: &Key, waiting: Option<Waiting>, started: bool, now: Timestamp) {
        self.update_job(key, |job| {
            job.view.waiting = waiting;
            job.view.started |= started;
            job.looked = Some(now);
        });
    }

    /// Notes how a Job ended.
    pub fn job_ended(&mut self, key: &Key, end: JobEnd) {
        self.update_job(key, |job| job.view.end = Some(end));
    }

    /// ConfigMaps with plans that a Job names.
    pub fn plans_in_use(&self) -> HashSet<Key> {
        self.jobs
            .iter()
            .map(|(key, job)| Key { namespace: key.namespace.clone(), name: job.plan.as_str().into() })
            .collect()
    }
}

/// Why a Job with our labels is not the one that was made for what they name; None = it is that one.
///
/// Whoever copies a Job copies labels and owner along. The name is what can't be had twice.
pub fn stray(job: &Job) -> Option<String> {
    let label = |name: &str| job.labels().get(name).cloned().unwrap_or_default();
    let (agent, uid) = (label(AGENT_LABEL), label(CYCLE_LABEL));
    let owner = job.owner_references().iter().find(|o| o.controller == Some(true));
    let named = |make: fn(&str, &str) -> String| owner.map(|o| make(&o.name, &o.uid));
    let expected = match (label(PURPOSE_LABEL).as_str(), owner) {
        ("cycle", _) => named(names::job),
        // A look belongs to the agent, and has the store's location in its name.
        ("report", Some(owner)) if owner.kind == "PersistentAgent" => return None,
        ("report", _) => named(names::report_job),
        ("delete", _) => Some(names::delete_job(&agent, &uid)),
        _ => return None,
    };
    let ours = expected.as_ref() == Some(&job.name_any());
    (!ours).then(|| match expected {
        Some(name) => format!("it has the labels of {name}, which was made for this; it is left alone"),
        None => "it has the labels of a cycle's Job and belongs to no cycle; it is left alone".to_owned(),
    })
}

fn job_entry(job: &Job) -> Option<JobEntry> {
    if stray(job).is_some() {
        return None;
    }
    let label = |name: &str| job.labels().get(name).cloned();
    let purpose = match label(PURPOSE_LABEL)?.as_str() {
        "cycle" => Purpose::Cycle,
        "report" => Purpose::Report,
        "delete" => Purpose::Delete,
        _ => return None,
    };
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let condition = |type_: &str| conditions.iter().find(|c| c.type_ == type_ && c.status == "True");
    let ended = condition("Complete").or_else(|| condition("Failed")).map(|c| {
        let at = c.last_transition_time.as_ref().map_or_else(Timestamp::now, |t| t.0);
        (at, c.type_ == "Complete", c.reason.clone())
    });
    let ending = condition("FailureTarget").or_else(|| condition("SuccessCriteriaMet"));
    let ending = ending.and_then(|c| c.last_transition_time.as_ref().map(|t| t.0));
    let count = |n: Option<i32>| u32::try_from(n.unwrap_or(0)).unwrap_or(0);
    let terminating = count(status.terminating);
    let attempts = count(status.failed) + count(status.succeeded) + count(status.active) + terminating;
    let created = job.creation_timestamp().map_or_else(Timestamp::now, |t| t.0);
    // A Job that is let go has its condition Suspended until its controller has seen to it, and a new start time
    // from then on.
    let suspended =
        job.spec.as_ref().and_then(|s| s.suspend) == Some(true) || condition("Suspended").is_some();
    let view = JobView {
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
        created,
        released: status.start_time.as_ref().map_or(created, |t| t.0.max(created)),
        suspended,
        deleting: job.metadata.deletion_timestamp.is_some(),
        started: count(status.ready) + count(status.failed) + count(status.succeeded) + terminating > 0,
        ending_since: ending.or_else(|| (terminating > 0).then(Timestamp::now)),
        waiting: None,
        joined: job.annotations().get(JOINED).and_then(|list| serde_json::from_str(list).ok()),
        end: None,
        report_job: None,
    };
    let agent = label(AGENT_LABEL).unwrap_or_default();
    Some(JobEntry {
        view,
        cycle_uid: label(CYCLE_LABEL).unwrap_or_default(),
        purpose: purpose.label(),
        plan: names::config_map(&agent, job.annotations().get(CONFIG_SHA256).map_or("", String::as_str)),
        agent,
        ended,
        attempts,
        looked: None,
        version: version(job.metadata.resource_version.as_ref()),
    })
}
