//! Random cycles against a model of what must hold, from a seed.
//!
//! Each cycle appends its own name to the text that is the memory. So the current text tells everything: a
//! lost update is a name that was acknowledged and is not there, a repeated execution is a name that is
//! there twice, a broken fence is a name after its cycle was fenced. Processes die, answers get lost, writes
//! land late, garbage is collected in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{
    cycles::{agent, request},
    deltas,
    servers::VersityGw,
};
use crate::{
    AcquireRequest, Acquired, Acquisition, AgentStore, Archive, ArchiveRef, DirectoryStore, ObjectStore,
    PublishError, PublishRequest, SnapshotKind, SnapshotRetention, Start, Writer,
    faulty::{Answer, Fault, FaultyStore},
    pack,
};

/// One process: its own view of the store, and what it holds.
struct Process {
    store: Arc<FaultyStore>,
    cycle: String,
    held: Option<(Acquired, String)>,
}

/// The memory as a file of pages: some that never change, and the text.
fn file_of(text: &str) -> Vec<u8> {
    let numbers = text.bytes().map(|byte| 1000 + u64::from(byte));
    deltas::file_of(&(0..100).chain(numbers).collect::<Vec<_>>())
}

fn text_of(file: &[u8]) -> String {
    let numbers = deltas::pages_of(file).into_iter().skip(100);
    numbers.map(|number| char::from(u8::try_from(number - 1000).unwrap())).collect()
}

struct World {
    rng: StdRng,
    store: Arc<dyn ObjectStore>,
    direct: AgentStore,
    scratch: tempfile::TempDir,
    processes: Vec<Process>,
    /// Stores of processes that are gone; their late writes may still land.
    ghosts: Vec<Arc<FaultyStore>>,
    cycles: u32,
    acknowledged: Vec<String>,
    fenced: BTreeSet<String>,
    /// Cycles of which an attempt ended without a clear answer: its write may be there, or be on its way.
    unclear: BTreeSet<String>,
    epoch: u64,
    now: Timestamp,
    counts: BTreeMap<&'static str, u32>,
}

impl World {
    fn new(seed: u64, store: Arc<dyn ObjectStore>) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            direct: agent(store.clone()),
            store,
            scratch: tempfile::tempdir().unwrap(),
            processes: vec![],
            ghosts: vec![],
            cycles: 0,
            acknowledged: vec![],
            fenced: BTreeSet::new(),
            unclear: BTreeSet::new(),
            epoch: 0,
            now: super::cycles::now(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Faults among the next calls of a process.
    fn disturb(&mut self, store: &FaultyStore) {
        let answers = [Answer::Timeout, Answer::Unavailable, Answer::Conflict];
        for ahead in 1..=12 {
            if self.rng.random_bool(0.15) {
                let answer = *answers.choose(&mut self.rng).unwrap();
                let fault = match self.rng.random_range(0..10) {
                    0..3 => Fault::Before(answer),
                    3..6 => Fault::After(answer),
                    6..8 => Fault::Late(answer),
                    8 => Fault::DieBefore,
                    _ => Fault::DieAfter,
                };
                store.fail(store.calls() + ahead, fault);
            }
        }
    }

    /// A new process for a new cycle, or another attempt of one that is known.
    async fn start(&mut self) {
        let retry = self.cycles > 0 && self.rng.random_bool(0.4);
        let cycle = if retry {
            format!("c{}", self.rng.random_range(1..=self.cycles))
        } else {
            self.cycles += 1;
            format!("c{}", self.cycles)
        };
        let store = Arc::new(FaultyStore::new(self.store.clone()));
        let process_agent = agent(store.clone());
        self.disturb(&store);
        let request = AcquireRequest { now: self.now, ..request(&cycle) };
        let acquired = process_agent.acquire(request).await;
        store.heal();
        let mut process = Process { store, cycle, held: None };
        match acquired {
            Ok(Acquisition::Held(mut acquired)) => match &acquired.start {
                Start::Recovered(snapshot) => {
                    self.count("recovered");
                    let text = self.text(snapshot.memory.as_ref()).await.unwrap();
                    assert!(
                        text.split_whitespace().any(|name| name == process.cycle),
                        "{} in {text}",
                        process.cycle
                    );
                    assert!(
                        !self.fenced_for_good(&process.cycle),
                        "{} was fenced and is final",
                        process.cycle
                    );
                    let _ = acquired.writer.release(self.now).await;
                    self.ghosts.push(process.store);
                    return;
                }
                Start::Empty => process.held = Some((*acquired, String::new())),
                Start::Current(base) | Start::Resume(base) => {
                    let base = base.memory.clone();
                    match self.text(base.as_ref()).await {
                        Some(text) => process.held = Some((*acquired, text)),
                        // Collected since: only possible behind a newer epoch, which fences this process.
                        None => {
                            let epoch = self.direct.read_head().await.unwrap().unwrap().head.epoch;
                            assert!(epoch > acquired.writer.epoch(), "the base of {} is gone", process.cycle);
                        }
                    }
                }
            },
            Ok(Acquisition::AlreadyHandled(_)) => unreachable!("no keys were given"),
            Err(_) => self.count("acquire failed"),
        }
        self.processes.push(process);
    }

    /// The cycle's token may not be in the memory: it was fenced, and no attempt of it can have landed.
    fn fenced_for_good(&self, cycle: &str) -> bool {
        self.fenced.contains(cycle)
            && !self.unclear.contains(cycle)
            && !self.acknowledged.iter().any(|name| name == cycle)
    }

    async fn text(&self, archive: Option<&ArchiveRef>) -> Option<String> {
        let Some(archive) = archive else { return Some(String::new()) };
        let file = deltas::read(&self.direct, archive, self.scratch.path()).await?;
        Some(text_of(&file))
    }

    /// A process that holds the memory publishes: a checkpoint, or its end.
    async fn publish(&mut self) {
        let holding: Vec<_> =
            (0..self.processes.len()).filter(|n| self.processes[*n].held.is_some()).collect();
        let Some(&at) = holding.choose(&mut self.rng) else { return };
        let mut process = self.processes.swap_remove(at);
        let Some((mut acquired, text)) = process.held.take() else { return };
        self.disturb(&process.store);
        let retention = SnapshotRetention { count: 3, max_age: 0 };
        if self.rng.random_bool(0.3) {
            let request =
                PublishRequest { retention, ..PublishRequest::new(SnapshotKind::Checkpoint, self.now) };
            let done = acquired.writer.publish(request).await;
            process.store.heal();
            self.count("checkpoint");
            if done.is_ok() {
                process.held = Some((acquired, text));
                self.processes.push(process);
            } else {
                self.ghosts.push(process.store);
            }
            return;
        }
        let (old, new) = (file_of(&text), file_of(&format!("{text}{} ", process.cycle)));
        let base = acquired.writer.head().delta_base(0, self.now).filter(|_| self.rng.random_bool(0.8));
        let packed = deltas::packed(&new, base.map(|base| (base, old.as_slice())), self.scratch.path()).await;
        if packed.parent.is_some() {
            self.count("deltas");
        }
        let request = PublishRequest {
            memory: Archive::New(packed),
            retention,
            done: true,
            ..PublishRequest::new(SnapshotKind::Final, self.now)
        };
        let outcome = acquired.writer.publish(request).await;
        process.store.heal();
        match outcome {
            Ok(_) => {
                self.count("published");
                self.acknowledged.push(process.cycle.clone());
            }
            Err(PublishError::Fenced { .. } | PublishError::Superseded { .. }) => {
                self.count("fenced");
                self.fenced.insert(process.cycle.clone());
            }
            Err(
                error @ (PublishError::HeadRemoved
                | PublishError::HeadPutBack { .. }
                | PublishError::HeadUnreadable(_)),
            ) => {
                panic!("{error}")
            }
            Err(_) => {
                self.count("publish failed");
                self.unclear.insert(process.cycle.clone());
            }
        }
        if self.rng.random_bool(0.5) {
            self.collect_by(&mut acquired.writer).await;
        }
        self.ghosts.push(process.store);
    }

    async fn collect_by(&mut self, writer: &mut Writer) {
        if let Ok(done) = writer.collect(&[], self.now).await {
            *self.counts.entry("collected").or_default() += u32::try_from(done.removed.len()).unwrap();
        }
    }

    async fn land(&mut self) {
        let stores: Vec<_> =
            self.ghosts.iter().chain(self.processes.iter().map(|process| &process.store)).cloned().collect();
        if let Some(store) = stores.choose(&mut self.rng) {
            let landed = store.land().await.into_iter().filter(Result::is_ok).count();
            *self.counts.entry("landed late").or_default() += u32::try_from(landed).unwrap();
        }
    }

    async fn step(&mut self) {
        self.now += SignedDuration::from_mins(self.rng.random_range(5..50));
        match self.rng.random_range(0..10) {
            0..4 => self.start().await,
            4..8 => self.publish().await,
            8 => self.land().await,
            _ => {
                if self.direct.read_head().await.unwrap().is_some() {
                    let done = self.direct.collect(&[], self.now).await.unwrap();
                    *self.counts.entry("collected").or_default() +=
                        u32::try_from(done.removed.len()).unwrap();
                }
            }
        }
        self.check().await;
    }

    async fn check(&mut self) {
        let Some(at) = self.direct.read_head().await.unwrap() else {
            assert!(self.acknowledged.is_empty());
            return;
        };
        let head = at.head;
        assert!(head.epoch >= self.epoch, "the epoch went down");
        self.epoch = head.epoch;
        for snapshot in &head.snapshots {
            let text = self.text(snapshot.memory.as_ref()).await;
            assert!(text.is_some(), "an archive of listed snapshot {} is gone", snapshot.id);
        }
        let Some(current) = head.current() else { return };
        let text = self.text(current.memory.as_ref()).await.unwrap();
        let names: Vec<_> = text.split_whitespace().collect();
        for (n, name) in names.iter().enumerate() {
            assert!(!names[..n].contains(name), "{name} was executed twice: {text}");
        }
        let mut rest = names.iter();
        for acknowledged in &self.acknowledged {
            assert!(rest.any(|name| name == acknowledged), "{acknowledged} was lost or moved: {text}");
        }
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// `CICADA_SEED` repeats a run, `CICADA_RUNS` sets their number.
async fn runs(
    default: u64,
    steps: u32,
    mut store: impl AsyncFnMut(u64) -> (Arc<dyn ObjectStore>, Option<tempfile::TempDir>),
) {
    let first = number("CICADA_SEED", rand::random::<u32>().into());
    let runs = number("CICADA_RUNS", default);
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in first..first + runs {
        println!("seed {seed}");
        let (store, _dir) = store(seed).await;
        let mut world = World::new(seed, store);
        for _ in 0..steps {
            world.step().await;
        }
        for (what, n) in world.counts {
            *counts.entry(what).or_default() += n;
        }
    }
    println!("{runs} runs from CICADA_SEED={first}: {counts:?}");
    // A handful of runs may miss one of these; sixty never did.
    for what in ["published", "deltas", "fenced", "recovered", "collected"].into_iter().filter(|_| runs >= 40)
    {
        assert!(counts.contains_key(what), "nothing was {what} in {runs} runs: the model tests too little");
    }
}

#[tokio::test]
async fn no_memory_is_lost_in_random_cycles_on_a_directory() {
    runs(60, 40, async |_| {
        let dir = tempfile::tempdir().unwrap();
        (Arc::new(DirectoryStore::new(dir.path().join("store"))) as Arc<dyn ObjectStore>, Some(dir))
    })
    .await;
}

#[tokio::test]
#[ignore = "needs versitygw"]
async fn no_memory_is_lost_in_random_cycles_on_a_real_s3_server() {
    let server = VersityGw::start();
    runs(4, 40, async |seed| {
        (Arc::new(server.store(&format!("run-{seed}")).await) as Arc<dyn ObjectStore>, None)
    })
    .await;
}

/// Many processes at once, no faults: every acknowledged publish is in the end in the memory.
async fn crowd(store: Arc<dyn ObjectStore>) {
    let tasks = (0..6).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let agent = agent(store);
            let dir = tempfile::tempdir().unwrap();
            let mut acknowledged = vec![];
            for round in 0..8 {
                let cycle = format!("w{writer}-{round}");
                let Ok(Acquisition::Held(mut acquired)) = agent.acquire(request(&cycle)).await else {
                    continue;
                };
                let base = match &acquired.start {
                    Start::Current(base) => base.memory.clone(),
                    Start::Empty => None,
                    other => panic!("{other:?}"),
                };
                let file = dir.path().join("m");
                let text = match base {
                    None => String::new(),
                    Some(archive) => {
                        agent.store().download(&agent.key(&archive.key), &file, u64::MAX).await.unwrap();
                        String::from_utf8(zstd::decode_all(std::fs::File::open(&file).unwrap()).unwrap())
                            .unwrap()
                    }
                };
                std::fs::write(&file, format!("{text}{cycle} ")).unwrap();
                let packed = pack(&file, &dir.path().join("m.zst")).await.unwrap();
                let request = PublishRequest {
                    memory: Archive::New(packed),
                    ..super::cycles::last(SnapshotKind::Final)
                };
                match acquired.writer.publish(request).await {
                    Ok(_) => acknowledged.push(cycle),
                    Err(error) => assert!(error.is_fenced(), "{error}"),
                }
            }
            acknowledged
        })
    });
    let mut acknowledged = vec![];
    for task in tasks.collect::<Vec<_>>() {
        acknowledged.extend(task.await.unwrap());
    }
    let direct = agent(store);
    let head = direct.read_head().await.unwrap().unwrap().head;
    let file = tempfile::NamedTempFile::new().unwrap();
    let archive = head.current().unwrap().memory.clone().unwrap();
    direct.store().download(&direct.key(&archive.key), file.path(), u64::MAX).await.unwrap();
    let text =
        String::from_utf8(zstd::decode_all(std::fs::File::open(file.path()).unwrap()).unwrap()).unwrap();
    let mut names: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    names.sort();
    acknowledged.sort();
    assert_eq!(names, acknowledged);
    assert!(!names.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_writers_loses_nothing_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    crowd(Arc::new(DirectoryStore::new(dir.path()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn a_crowd_of_writers_loses_nothing_on_a_real_s3_server() {
    let server = VersityGw::start();
    crowd(Arc::new(server.store("p").await)).await;
}
