//! Two agents of one store that write to each other, each through faults of its own: what one was told to be
//! delivered, the other reads, once; it counts how far it has come, and nobody says more than they may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cicada_contract::plan::HOPS_MAX;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::s3::Bucket;
use super::stand_ins::parts;
use super::world::talk::{Heard, Said};
use super::world::{DISTURBED, PEER_MESSAGES, World};

/// One agent; and the one that it writes to, if it does.
pub(super) struct Pair {
    rng: StdRng,
    worlds: Vec<World>,
}

impl Pair {
    pub(super) async fn new(seed: u64, bucket: Option<Arc<Bucket>>) -> Self {
        let first = World::new(seed, bucket).await;
        // Runs of one agent take half the time of those of two; those without a model say nothing.
        let second = if first.writes() { Some(first.beside(seed + (1 << 40)).await) } else { None };
        Self { rng: StdRng::seed_from_u64(seed), worlds: std::iter::once(first).chain(second).collect() }
    }

    /// One cycle of one of them, and what must hold of both.
    pub(super) async fn run(&mut self) {
        if self.worlds.len() == 1 {
            return self.worlds[0].run().await;
        }
        let turn = self.rng.random_range(0..2);
        let before = self.sent(turn).await;
        (self.worlds[turn].wakes, self.worlds[turn].passed_by) = (BTreeSet::new(), false);
        if self.rng.random_bool(0.2) {
            self.worlds[turn].deliver_to_peer(DISTURBED).await;
        } else {
            self.worlds[turn].run().await;
        }
        self.check().await;
        self.check_wakes(turn, &before).await;
    }

    /// Texts of the messages that have arrived, as the sender knows.
    async fn sent(&self, of: usize) -> BTreeSet<String> {
        let said = self.worlds[of].said().await;
        said.into_iter().filter(|(_, said)| said.is_sent).map(|(body, _)| body).collect()
    }

    async fn check(&mut self) {
        for (sender, receiver) in [(0, 1), (1, 0)] {
            let said = self.worlds[sender].said().await;
            let heard = self.worlds[receiver].heard().await;
            let answered = self.worlds[sender].heard().await;
            check_words(&said, &heard, &answered);
        }
    }

    /// A message that has arrived wakes its receiver by the report of the cycle that brought it, up to the bound of
    /// hops. Where another cycle passed by a pod that stood still, that pod's report may say nothing.
    async fn check_wakes(&mut self, turn: usize, before: &BTreeSet<String>) {
        let world = &self.worlds[turn];
        if world.passed_by {
            return;
        }
        let said = world.said().await;
        let wakes = |(body, said): &(&String, &Said)| {
            said.is_sent && !before.contains(*body) && said.hops <= u64::from(HOPS_MAX)
        };
        let due: Vec<_> = said.iter().filter(wakes).collect();
        assert_eq!(!due.is_empty(), !world.wakes.is_empty(), "{due:?} {:?}\n{}", world.wakes, world.logs());
        *self.worlds[turn].counts.entry("peer woken".into()).or_default() += u32::from(!due.is_empty());
    }

    /// Without faults everything arrives that waited, is read, and is in ledger and memory once.
    pub(super) async fn settle(&mut self) {
        if self.worlds.len() == 2 {
            for turn in 0..2 {
                // The first tries again; the second takes the receipts in.
                self.worlds[turn].deliver_to_peer(0).await;
                self.worlds[turn].deliver_to_peer(0).await;
                let said = self.worlds[turn].said().await;
                let waiting: Vec<_> = said.iter().filter(|(_, said)| !said.is_settled).collect();
                assert!(waiting.is_empty(), "{waiting:?} never arrived\n{}", self.worlds[turn].logs());
                *self.worlds[turn].counts.entry("peer messages".into()).or_default() +=
                    u32::try_from(said.len()).unwrap();
                self.worlds[1 - turn].must_note(said.into_keys());
            }
        }
        for world in &mut self.worlds {
            world.settle().await;
        }
        if self.worlds.len() == 2 {
            self.check().await;
        }
    }

    pub(super) fn counts(self) -> impl Iterator<Item = (String, u32)> {
        self.worlds.into_iter().flat_map(|world| world.counts)
    }
}

/// `said` by the sender to the receiver, who `heard`; `answered` are the receiver's words to the sender.
fn check_words(said: &BTreeMap<String, Said>, heard: &Heard, answered: &Heard) {
    for body in heard.taken_in.keys().chain(&heard.waiting) {
        assert!(said.contains_key(body), "{body:?} arrived and is in no snapshot of its sender: {said:?}");
    }
    let hops: BTreeMap<u64, u64> =
        answered.taken_in.iter().map(|(body, hops)| (parts(body).0, *hops)).collect();
    let mut days: BTreeMap<&str, u32> = BTreeMap::new();
    for (body, said) in said {
        assert!(!said.is_sent || heard.has(body), "{body:?} was delivered and is lost: {heard:?}");
        let so_far = parts(body).1.iter().map(|number| hops[number]).max().unwrap_or(0);
        assert_eq!(said.hops, so_far + 1, "{body:?} {hops:?}");
        *days.entry(&said.day).or_default() += 1;
    }
    for (body, hops) in &heard.taken_in {
        assert_eq!(said[body].hops, *hops, "{body:?}");
    }
    assert!(days.values().all(|count| *count <= PEER_MESSAGES), "{days:?}");
}
