//! The fault matrix: real cycles with random faults at every effect, against a model of what must hold.
//!
//! One run is one cycle of an agent and as many attempts as it takes, each with a fault of its own; every
//! [`RUNS_PER_AGENT`] runs a new agent begins. After each run the current snapshot is read by `zstd` and
//! `sqlite3`, and must show: every message of an acknowledged cycle once, nothing of a cycle that was
//! taken back, no mount, no damage. An agent with a model has a peer, and they write to each other: each word
//! arrives once, and is never lost. `CICADA_SEED` repeats a matrix, `CICADA_MATRIX_RUNS` sets its length.

mod fault;
mod pair;
mod s3;
mod stand_ins;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::matrix::pair::Pair;
use crate::matrix::s3::Bucket;

/// Enough for retention, collection and adopted outboxes to come into play, few enough to begin often.
const RUNS_PER_AGENT: u64 = 20;
/// Runs where nobody set a number: a minute's worth for the inner loop.
const DEFAULT_RUNS: u64 = 60;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

async fn matrix(name: &str, share: u64, bucket: Option<Arc<Bucket>>) {
    let seed = number("CICADA_SEED", u64::from(rand::random::<u32>()));
    let runs = (number("CICADA_MATRIX_RUNS", DEFAULT_RUNS) * share / 100).max(1);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut done = 0;
    while done < runs {
        let world_seed = seed + done;
        println!("{name}: agent of seed {world_seed}");
        let mut pair = Pair::new(world_seed, bucket.clone()).await;
        for _ in 0..RUNS_PER_AGENT.min(runs - done) {
            pair.run().await;
            done += 1;
        }
        pair.settle().await;
        for (what, n) in pair.counts() {
            *counts.entry(what).or_default() += n;
        }
    }
    println!("fault matrix, {name}: {runs} runs from CICADA_SEED={seed}: {counts:?}");
    // A matrix in which some of these never happen tests too little; in 200 runs each of them did.
    let kinds = [
        "fault Kill",
        "fault Terminate",
        "fault Pause",
        "killed",
        "recovered",
        "fenced",
        "peer messages",
        "peer woken",
    ];
    for what in kinds {
        assert!(runs < 200 || counts.contains_key(what), "no \"{what}\" in {runs} runs: {counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_loses_a_memory_in_a_directory() {
    matrix("directory", 70, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw"]
async fn no_fault_loses_a_memory_in_a_bucket() {
    matrix("bucket", 30, Some(Arc::new(Bucket::start().await))).await;
}
