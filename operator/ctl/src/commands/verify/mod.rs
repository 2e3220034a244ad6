//! `verify`: is a memory sound? What was checked is printed, so that "sound" has a meaning.

mod advice;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use cicada_memory::{Check, FaultKind, WorkerError};
use cicada_store::{AgentStore, ArchiveRef, Head, InboxError, Snapshot, StoreError};
use serde_json::json;

use self::advice::{Fault, Known, advice};
use super::restored::{FetchError, Part, Restored, bare_head, choose};
use crate::args::VerifyArgs;
use crate::exit;
use crate::output::{Grid, note, problem};

/// Exit code of a memory that can't be read at all.
const UNREADABLE: u8 = 2;
/// Blobs that a ledger may name.
const BLOBS_MAX: usize = 1_000_000;

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Sound,
    /// It could not be checked.
    Unreadable,
    Damaged,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Unreadable => "unreadable",
            Self::Damaged => "damaged",
        }
    }
}

/// What was checked so far.
struct Checks<'a> {
    store: &'a AgentStore,
    head: &'a Head,
    grid: Grid,
    worst: Verdict,
    faults: BTreeSet<Fault>,
    /// Archives that passed as a whole.
    passed: BTreeSet<String>,
}

/// Runs the command.
pub(super) async fn run(args: VerifyArgs) -> anyhow::Result<ExitCode> {
    match try_run(&args).await {
        Ok(Verdict::Sound) => Ok(ExitCode::SUCCESS),
        Ok(Verdict::Damaged) => Ok(ExitCode::from(exit::FAILED)),
        Ok(Verdict::Unreadable) => Ok(ExitCode::from(UNREADABLE)),
        Err(error) => {
            problem(&format!("unreadable: {}", cicada_cycle_job::failure::chain(error.as_ref())));
            Ok(ExitCode::from(UNREADABLE))
        }
    }
}

async fn try_run(args: &VerifyArgs) -> anyhow::Result<Verdict> {
    let store = args.target.open().await?;
    // Listed before HEAD is read: no cycle that runs beside can make HEAD look old.
    let ids = store.snapshot_ids().await?;
    let head = bare_head(&store).await?;
    let grid = Grid::new(&["object", "checked", "result", "detail"]);
    let mut checks = Checks {
        store: &store,
        head: &head,
        grid,
        worst: Verdict::Sound,
        faults: BTreeSet::new(),
        passed: BTreeSet::new(),
    };
    checks.head(&ids);
    let whole: Vec<&Snapshot> = match (&args.snapshot, args.all) {
        (Some(id), _) => vec![choose(&head, Some(id))?],
        (None, true) => head.snapshots.iter().rev().collect(),
        (None, false) => head.current().into_iter().collect(),
    };
    let whole_keys: BTreeSet<&str> = whole.iter().flat_map(|s| keys(s)).collect();
    checks.listed(&whole_keys).await?;
    let mut seen = BTreeSet::new();
    for snapshot in whole {
        for (part, archive) in archives(snapshot) {
            // Snapshots share what did not change between them.
            if seen.insert(archive.key.as_str()) {
                checks.archive(snapshot, part, archive, args.all).await?;
            }
        }
    }
    checks.inbox().await?;
    checks.outbox().await?;
    checks.grid.print(args.output.format)?;
    note(match checks.worst {
        Verdict::Sound if args.all => "sound",
        Verdict::Sound => "sound, as far as it was checked; --all checks every snapshot as a whole",
        Verdict::Unreadable => "not everything could be read",
        Verdict::Damaged => "damaged",
    });
    let (namespace, name) = args.target.names()?;
    let known = Known {
        agent: &format!("{namespace}/{name}"),
        current: head.current.as_deref(),
        snapshots: head.snapshots.iter().map(|s| s.id.as_str()).collect(),
        sound: checks.sound(),
    };
    advice(&known, &checks.faults).iter().for_each(|line| note(line));
    Ok(checks.worst)
}

fn archives(snapshot: &Snapshot) -> impl Iterator<Item = (Part, &ArchiveRef)> {
    [Part::Memory, Part::Ledger].into_iter().filter_map(|part| Some((part, part.of(snapshot)?)))
}

/// Keys of all archives that a snapshot needs.
fn keys(snapshot: &Snapshot) -> BTreeSet<&str> {
    archives(snapshot)
        .flat_map(|(_, archive)| archive.links().unwrap_or_else(|_| vec![archive]))
        .map(|link| link.key.as_str())
        .collect()
}

impl<'a> Checks<'a> {
    fn add(&mut self, object: &str, checked: &str, verdict: Verdict, detail: &str) {
        self.worst = self.worst.max(verdict);
        self.grid.push([json!(object), json!(checked), json!(verdict.word()), json!(detail)]);
    }

    /// An archive that is damaged, and with it each snapshot that needs it.
    fn damaged(&mut self, key: &str) {
        let users = self.head.snapshots.iter().filter(|s| keys(s).contains(key));
        self.faults.extend(users.map(|s| Fault::Snapshot(s.id.clone())));
    }

    /// Snapshots of which everything passed as a whole.
    fn sound(&self) -> BTreeSet<&'a str> {
        let passed = |s: &&Snapshot| archives(s).all(|(_, archive)| self.passed.contains(&archive.key));
        self.head.snapshots.iter().filter(passed).map(|s| s.id.as_str()).collect()
    }

    /// HEAD was read already: it is of a version that is known.
    fn head(&mut self, ids: &[String]) {
        let head = self.head;
        let mut wrong = vec![];
        if let Err(cicada_store::HeadError::Inconsistent { what }) = head.check_current() {
            wrong.push(what);
        }
        let orders: Vec<_> = head.snapshots.iter().map(|s| cicada_store::head::order(&s.id)).collect();
        if orders.iter().any(Option::is_none) || !orders.is_sorted() {
            wrong.push("its snapshots are not in order".into());
        }
        let newer = head.newer(ids.iter().map(String::as_str));
        if let Some(newer) = newer {
            wrong.push(format!(
                "snapshot {newer} is of a later epoch than its {}: an older HEAD was put back",
                head.epoch
            ));
        }
        let own = self.store.key("");
        if own != format!("{}/{}/", head.owner.namespace, head.owner.name) {
            wrong.push(format!("it belongs to {}", head.owner.path()));
            self.faults.insert(Fault::Foreign(head.owner.path()));
        } else if let Some(newer) = newer {
            self.faults.insert(Fault::OldHead(newer.to_owned()));
        } else if !wrong.is_empty() {
            self.faults.insert(Fault::Head);
        }
        let verdict = if wrong.is_empty() { Verdict::Sound } else { Verdict::Damaged };
        self.add("HEAD.json", "version, owner, epochs, order, current", verdict, &wrong.join("; "));
    }

    /// Existence and size of every archive that HEAD names and that is not checked as a whole.
    async fn listed(&mut self, whole: &BTreeSet<&str>) -> anyhow::Result<()> {
        let folder = self.store.key("snapshots/");
        let listing = self.store.store().list(&folder).await?;
        let sizes: BTreeMap<&str, u64> = listing.iter().map(|o| (o.key.as_str(), o.size)).collect();
        let mut seen = BTreeSet::new();
        for archive in self.head.archives() {
            if whole.contains(archive.key.as_str()) || !seen.insert(archive.key.as_str()) {
                continue;
            }
            let found = sizes.get(self.store.key(&archive.key).as_str());
            let (verdict, detail) = match found {
                None => (Verdict::Damaged, "it is not in the store".to_owned()),
                Some(size) if *size != archive.archive_size => {
                    (Verdict::Damaged, format!("{size} bytes, HEAD says {}", archive.archive_size))
                }
                Some(_) => (Verdict::Sound, String::new()),
            };
            if verdict == Verdict::Damaged {
                self.damaged(&archive.key);
            }
            self.add(&archive.key, "exists, size", verdict, &detail);
        }
        Ok(())
    }

    /// One archive as a whole.
    async fn archive(
        &mut self,
        snapshot: &Snapshot,
        part: Part,
        archive: &ArchiveRef,
        blobs: bool,
    ) -> anyhow::Result<()> {
        let restored = Restored::new()?;
        if let Err(error) = restored.unpack(self.store, archive, part).await {
            let (done, verdict) = match &error {
                FetchError::Unpack { .. } => ("SHA-256, unpacks", error.is_damage()),
                _ => ("SHA-256", error.is_damage()),
            };
            let verdict = if verdict { Verdict::Damaged } else { Verdict::Unreadable };
            if verdict == Verdict::Damaged {
                self.damaged(&archive.key);
            }
            let text = cicada_cycle_job::failure::chain(&error);
            self.add(&archive.key, done, verdict, &text);
            return Ok(());
        }
        let opened = tokio::task::block_in_place(|| match part {
            Part::Memory => restored.memory().and_then(|mut m| Ok(m.check(Check::Integrity)?)),
            Part::Ledger => restored.ledger().and_then(|mut l| Ok(l.check(Check::Integrity)?)),
        });
        let (verdict, detail) = match opened {
            Ok(()) => (Verdict::Sound, String::new()),
            Err(error) => (of_database(part, &error), cicada_cycle_job::failure::chain(error.as_ref())),
        };
        match verdict {
            Verdict::Sound => _ = self.passed.insert(archive.key.clone()),
            Verdict::Damaged => self.damaged(&archive.key),
            Verdict::Unreadable => _ = self.faults.insert(Fault::Unread),
        }
        self.add(&archive.key, "SHA-256, unpacks, schema, integrity", verdict, &detail);
        if part == Part::Ledger && verdict == Verdict::Sound {
            self.blobs(&restored, snapshot, blobs).await?;
        }
        Ok(())
    }

    /// Large tool results and files that a ledger names.
    async fn blobs(&mut self, restored: &Restored, snapshot: &Snapshot, whole: bool) -> anyhow::Result<()> {
        let sql = "SELECT blob_key FROM tool_results WHERE blob_key IS NOT NULL \
                   UNION SELECT blob_key FROM files WHERE blob_key IS NOT NULL";
        let rows = tokio::task::block_in_place(|| anyhow::Ok(restored.ledger()?.query(sql, BLOBS_MAX)?))?;
        let keys: Vec<&str> = rows.rows.iter().filter_map(|r| r.first()?.as_str()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let listing = self.store.store().list(&self.store.key("blobs/")).await?;
        let there: BTreeSet<&str> = listing.iter().map(|o| o.key.as_str()).collect();
        let mut wrong = vec![];
        for key in &keys {
            if !there.contains(self.store.key(key).as_str()) {
                wrong.push(format!("{key} is not in the store"));
            } else if whole {
                match self.store.get_blob(key).await {
                    Ok(_) => {}
                    Err(error @ StoreError::Corrupt { .. }) => wrong.push(error.to_string()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let checked = if whole { "each exists, SHA-256" } else { "each exists" };
        let verdict = if wrong.is_empty() { Verdict::Sound } else { Verdict::Damaged };
        if verdict == Verdict::Damaged {
            self.faults.insert(Fault::Blob);
        }
        let object = format!("{} blobs of ledger {}", keys.len(), snapshot.id);
        wrong.truncate(5);
        self.add(&object, checked, verdict, &wrong.join("; "));
        Ok(())
    }

    /// What no cycle could read goes to quarantine by itself; here it is told.
    async fn inbox(&mut self) -> anyhow::Result<()> {
        let entries = self.store.list_inbox().await?;
        let mut wrong = vec![];
        for entry in &entries {
            match self.store.get_inbox(entry).await {
                Ok(_) => {}
                Err(error @ InboxError::Poison { .. }) => wrong.push(error.to_string()),
                // A cycle took it in meanwhile.
                Err(InboxError::Store(StoreError::NotFound { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let verdict = if wrong.is_empty() { Verdict::Sound } else { Verdict::Damaged };
        if verdict == Verdict::Damaged {
            self.faults.insert(Fault::Inbox);
        }
        wrong.truncate(5);
        self.add(
            &format!("{} inbox objects", entries.len()),
            "each is a message",
            verdict,
            &wrong.join("; "),
        );
        Ok(())
    }

    async fn outbox(&mut self) -> anyhow::Result<()> {
        let (count, verdict, detail) = match self.store.list_outbox().await {
            Ok(deliveries) => (deliveries.len(), Verdict::Sound, String::new()),
            Err(error @ StoreError::Corrupt { .. }) => {
                let text = error.to_string();
                if let StoreError::Corrupt { key, .. } = error {
                    self.faults.insert(Fault::Outbox(key));
                }
                (0, Verdict::Damaged, text)
            }
            Err(error) => return Err(error.into()),
        };
        self.add(&format!("{count} outbox messages"), "claims and receipts can be read", verdict, &detail);
        Ok(())
    }
}

/// Whether a database that does not open or pass is at fault itself.
fn of_database(part: Part, error: &anyhow::Error) -> Verdict {
    match error.downcast_ref::<WorkerError>().and_then(WorkerError::fault) {
        Some(FaultKind::Corrupt) => Verdict::Damaged,
        // A ledger of a later release says so as "schema"; a memory's schema is the same in all releases.
        Some(FaultKind::Schema) if part == Part::Memory => Verdict::Damaged,
        _ => Verdict::Unreadable,
    }
}
