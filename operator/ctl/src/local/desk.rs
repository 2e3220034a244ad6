//! What a running `cicadactl local` and other commands tell each other, by files below the folder's state:
//! requests for cycles and how they stand, annotations, and the lock that keeps a second process out.
//!
//! It stands for what the API server is in a cluster. Files are replaced by rename, so that nobody reads half.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cicada_crds::AgentCycle;
use cicada_crds::status::{MemoryStatus, PersistentAgentStatus, UsageStatus};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exit::{Busy, UsageError};
use crate::target::local_state;

/// How locations below the folder's state begin in what it keeps: a folder that was moved is the same one.
const BELOW: &str = "file://./";

/// Results of cycles that are kept for those who wait; more are only told to nobody.
const RESULTS_KEPT: usize = 200;

/// The place of one folder.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    state: PathBuf,
}

/// What in a cluster an agent's status keeps from one cycle to the next: how far its memory was, so that an older
/// one put back is noticed, and how many cycles of the day are used up. (Tokens, cost and messages of the day are
/// the store's to remember.)
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Of the memory; with its store, since another store may be at another point.
    #[serde(default)]
    pub(super) memory: Option<MemoryStatus>,
    /// Of the day.
    #[serde(default)]
    pub(super) usage: Option<UsageStatus>,
}

impl Seen {
    /// What is to be remembered of a status.
    pub(super) fn of(status: &PersistentAgentStatus) -> Self {
        let memory = status.memory.as_ref().map(|m| MemoryStatus {
            store: m.store.clone(),
            snapshot: m.snapshot.clone(),
            epoch: m.epoch,
            ..MemoryStatus::default()
        });
        let usage = status.usage.as_ref().map(|u| UsageStatus {
            day: u.day.clone(),
            cycles_today: u.cycles_today,
            ..UsageStatus::default()
        });
        Self { memory, usage }
    }
}

/// Keeps a second process out of the folder as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "the lock goes with the file")] File);

impl Desk {
    /// Of the folder `dir`, which must be there.
    pub(crate) fn new(dir: &Path) -> anyhow::Result<Self> {
        Ok(Self { state: local_state(dir)? })
    }

    /// Where the folder's own state lies.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Takes the folder for this process.
    pub(crate) fn lock(&self) -> anyhow::Result<Lock> {
        match self.try_lock()? {
            Some(lock) => Ok(lock),
            None => bail!(Busy(format!(
                "another cicadactl local works on {}: end it first, or ask it by cicadactl run --local",
                self.folder().display()
            ))),
        }
    }

    /// Takes the folder, if no other process has it.
    pub(crate) fn try_lock(&self) -> anyhow::Result<Option<Lock>> {
        std::fs::create_dir_all(&self.state)
            .with_context(|| format!("can't make {}", self.state.display()))?;
        let path = self.state.join("lock");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("can't open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("can't lock {}", path.display()))
            }
        }
    }

    /// True if a process works on the folder.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.is_dir() && self.try_lock().is_ok_and(|lock| lock.is_none())
    }

    fn folder(&self) -> &Path {
        self.state.parent().unwrap_or(&self.state)
    }

    /// Asks for a cycle.
    pub(crate) fn ask(&self, namespace: &str, cycle: &AgentCycle) -> anyhow::Result<()> {
        self.write(&self.request(namespace, name_of(cycle)), cycle)
    }

    /// Requests for an agent that have not ended.
    pub(crate) fn asked(&self, namespace: &str, agent: &str) -> Vec<AgentCycle> {
        let folder = self.state.join("requests").join(namespace);
        let mut found: Vec<AgentCycle> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| read::<AgentCycle>(&entry.path()))
            .filter(|cycle| cycle.spec.agent_ref.name == agent)
            .collect();
        found.sort_by(|a, b| name_of(a).cmp(name_of(b)));
        found
    }

    /// Tells how a request stands; one that has ended is a request no more.
    pub(crate) fn tell(&self, namespace: &str, cycle: &AgentCycle) -> anyhow::Result<()> {
        let results = self.state.join("results").join(namespace);
        self.write(&results.join(format!("{}.json", name_of(cycle))), cycle)?;
        let phase = cycle.status.as_ref().and_then(|s| s.phase).unwrap_or_default();
        if phase.is_terminal() {
            let _ = std::fs::remove_file(self.request(namespace, name_of(cycle)));
            forget(&results);
        }
        Ok(())
    }

    /// How a request stands.
    pub(crate) fn told(&self, namespace: &str, name: &str) -> Option<AgentCycle> {
        read(&self.state.join("results").join(namespace).join(format!("{name}.json")))
    }

    /// Takes a request back that nobody has taken up.
    pub(crate) fn withdraw(&self, namespace: &str, name: &str) {
        let _ = std::fs::remove_file(self.request(namespace, name));
    }

    fn request(&self, namespace: &str, name: &str) -> PathBuf {
        self.state.join("requests").join(namespace).join(format!("{name}.json"))
    }

    /// Annotations that commands gave to an agent, or, without one, to its namespace.
    pub(crate) fn annotations(&self, namespace: &str, agent: Option<&str>) -> BTreeMap<String, String> {
        read(&self.annotations_file(namespace, agent)).unwrap_or_default()
    }

    /// Sets an annotation, or removes it; gives what it was before.
    pub(crate) fn annotate(
        &self,
        namespace: &str,
        agent: Option<&str>,
        key: &str,
        value: Option<&str>,
    ) -> anyhow::Result<Option<String>> {
        let mut all = self.annotations(namespace, agent);
        let before = match value {
            Some(value) => all.insert(key.to_owned(), value.to_owned()),
            None => all.remove(key),
        };
        self.write(&self.annotations_file(namespace, agent), &all)?;
        Ok(before)
    }

    fn annotations_file(&self, namespace: &str, agent: Option<&str>) -> PathBuf {
        let folder = self.state.join("annotations");
        match agent {
            Some(agent) => folder.join(namespace).join(format!("{agent}.json")),
            None => folder.join(format!("{namespace}.json")),
        }
    }

    /// What was last seen of an agent by a process that has ended; nothing, if none has.
    pub(super) fn seen(&self, namespace: &str, agent: &str) -> Seen {
        let mut seen: Seen = read(&self.seen_file(namespace, agent)).unwrap_or_default();
        self.place(&mut seen, (BELOW, &self.below()));
        seen
    }

    /// Remembers it.
    pub(super) fn remember(&self, namespace: &str, agent: &str, seen: &Seen) -> anyhow::Result<()> {
        let mut seen = seen.clone();
        self.place(&mut seen, (&self.below(), BELOW));
        self.write(&self.seen_file(namespace, agent), &seen)
    }

    /// Writes the location of a store that goes with the folder anew.
    fn place(&self, seen: &mut Seen, (from, to): (&str, &str)) {
        let store = seen.memory.as_mut().and_then(|memory| memory.store.as_mut());
        if let Some(store) = store
            && let Some(rest) = store.strip_prefix(from)
        {
            *store = format!("{to}{rest}");
        }
    }

    /// How locations below the folder's state begin while it lies where it does now.
    fn below(&self) -> String {
        format!("file://{}/", self.state.display())
    }

    fn seen_file(&self, namespace: &str, agent: &str) -> PathBuf {
        self.state.join("seen").join(namespace).join(format!("{agent}.json"))
    }

    fn write<T: Serialize>(&self, path: &Path, value: &T) -> anyhow::Result<()> {
        let failed = || format!("can't write {}", path.display());
        let folder = path.parent().unwrap_or(&self.state);
        std::fs::create_dir_all(folder).with_context(failed)?;
        let file = tempfile::NamedTempFile::new_in(&self.state).with_context(failed)?;
        serde_json::to_writer_pretty(file.as_file(), value).with_context(failed)?;
        file.persist(path).map_err(|e| e.error).with_context(failed)?;
        Ok(())
    }
}

/// Absent, or written by another release: both mean that nothing is known.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn name_of(cycle: &AgentCycle) -> &str {
    cycle.metadata.name.as_deref().unwrap_or_default()
}

/// Removes the oldest results above the bound. Nobody who still waits is that old.
fn forget(folder: &Path) {
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path())))
        .collect();
    all.sort();
    let surplus = all.len().saturating_sub(RESULTS_KEPT);
    for (_, path) in all.into_iter().take(surplus) {
        let _ = std::fs::remove_file(path);
    }
}

/// The folder's desk, for commands that need a cluster or a folder.
pub(crate) fn required(dir: Option<&Path>, what: &str) -> anyhow::Result<Desk> {
    match dir {
        Some(dir) => Desk::new(dir),
        None => bail!(UsageError(format!(
            "{what} is for the cluster, or for the folder of cicadactl local: leave out --store (and unset CICADA_STORE), or give --local DIR"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use cicada_crds::cycle::{AgentCycleStatus, AgentRef, Phase};

    use super::*;

    fn cycle(name: &str, agent: &str) -> AgentCycle {
        let agent_ref = AgentRef { name: agent.into() };
        AgentCycle::new(name, cicada_crds::AgentCycleSpec { agent_ref, ..Default::default() })
    }

    #[test]
    fn a_second_process_is_kept_out_until_the_first_ends() {
        let dir = tempfile::tempdir().unwrap();
        let desk = Desk::new(dir.path()).unwrap();
        let lock = desk.lock().unwrap();
        assert!(desk.try_lock().unwrap().is_none());
        assert!(desk.lock().unwrap_err().to_string().starts_with("another cicadactl local works on "));
        drop(lock);
        desk.lock().unwrap();
    }

    #[test]
    fn a_request_stands_until_its_end_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let desk = Desk::new(dir.path()).unwrap();
        desk.lock().unwrap();
        desk.ask("shop", &cycle("clerk-run-1", "clerk")).unwrap();
        assert_eq!(desk.asked("shop", "clerk").len(), 1);
        assert_eq!(desk.asked("shop", "other").len() + desk.asked("lab", "clerk").len(), 0);
        let mut asked = desk.asked("shop", "clerk").remove(0);
        for (phase, left) in [(Phase::Running, 1), (Phase::Failed, 0)] {
            asked.status = Some(AgentCycleStatus { phase: Some(phase), ..Default::default() });
            desk.tell("shop", &asked).unwrap();
            assert_eq!(desk.asked("shop", "clerk").len(), left, "{phase:?}");
            assert_eq!(desk.told("shop", "clerk-run-1").unwrap().status.unwrap().phase, Some(phase));
        }
    }

    #[test]
    fn what_was_seen_moves_with_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let (old, new) = (place.path().join("old"), place.path().join("new"));
        std::fs::create_dir(&old).unwrap();
        let seen_at = |desk: &Desk, store: &str| Seen {
            memory: Some(MemoryStatus {
                store: Some(store.replace("STATE", &desk.state.display().to_string())),
                ..Default::default()
            }),
            usage: None,
        };
        let desk = Desk::new(&old).unwrap();
        desk.lock().unwrap();
        for (agent, store) in
            [("own", "file://STATE/store"), ("bucket", "s3://b/p"), ("elsewhere", "file:///else")]
        {
            desk.remember("lab", agent, &seen_at(&desk, store)).unwrap();
            assert_eq!(desk.seen("lab", agent), seen_at(&desk, store));
        }
        std::fs::rename(&old, &new).unwrap();
        let desk = Desk::new(&new).unwrap();
        for (agent, store) in
            [("own", "file://STATE/store"), ("bucket", "s3://b/p"), ("elsewhere", "file:///else")]
        {
            assert_eq!(desk.seen("lab", agent), seen_at(&desk, store), "{agent}");
        }
    }

    #[test]
    fn annotations_of_agents_and_namespaces_are_apart() {
        let dir = tempfile::tempdir().unwrap();
        let desk = Desk::new(dir.path()).unwrap();
        desk.lock().unwrap();
        assert_eq!(desk.annotate("shop", Some("clerk"), "k", Some("1")).unwrap(), None);
        desk.annotate("shop", None, "k", Some("2")).unwrap();
        assert_eq!(desk.annotations("shop", Some("clerk"))["k"], "1");
        assert_eq!(desk.annotate("shop", Some("clerk"), "k", None).unwrap().as_deref(), Some("1"));
        assert_eq!(desk.annotations("shop", None)["k"], "2");
    }
}
