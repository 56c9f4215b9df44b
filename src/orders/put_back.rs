//! Entries that a recovery took out of our hands: which feeds to take them from again, and from before which instant.
//!
//! What was read under an older generation may have been written off (rule 13), so it is dropped from memory and read
//! again: what is still in the feed stands, the rest never comes. Written by whoever drops, read by the reader. An
//! entry that anybody was given before a feed's generation changed is dropped by that writer, so any writer may claim it.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::stock::calls::{Gen, SHARDS, ShardId};

#[derive(Debug)]
pub(super) struct PutBack(Mutex<State>);

#[derive(Debug)]
struct State {
    newest: Gen,
    /// What was delivered before that is to be claimed.
    before: [Option<Instant>; SHARDS],
    /// Whether the shard has been seen open under the newest generation. Until then entries may still be delivered
    /// that nobody may settle.
    is_seen: [bool; SHARDS],
}

impl PutBack {
    /// Nothing is out there that was read under another generation than this.
    pub(super) fn new(generation: Gen) -> Self {
        Self(Mutex::new(State { newest: generation, before: [None; SHARDS], is_seen: [true; SHARDS] }))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The newest generation that anybody told.
    pub(super) fn newest(&self) -> Gen {
        self.with(|state| state.newest)
    }

    /// Somebody told a generation; whether it is news.
    pub(super) fn learn(&self, generation: Gen) -> bool {
        self.with(|state| {
            if generation <= state.newest {
                return false;
            }
            state.newest = generation;
            state.before = [Some(Instant::now()); SHARDS];
            state.is_seen = [false; SHARDS];
            true
        })
    }

    /// Entries of this shard were dropped just now.
    pub(super) fn dropped(&self, shard: ShardId) {
        self.with(|state| {
            if let Some(before) = state.before.get_mut(shard.index()) {
                *before = Some(Instant::now());
            }
        });
    }

    /// What is to be claimed: the shard, and from before when.
    pub(super) fn due(&self) -> Vec<(ShardId, Instant)> {
        self.with(|state| {
            ShardId::all().zip(state.before).filter_map(|(shard, before)| Some((shard, before?))).collect()
        })
    }

    /// A shard, under this generation, has given everything from before that instant. The first time under a new
    /// generation it is asked once more: what was delivered until now may have been dropped as well.
    pub(super) fn claimed(&self, shard: ShardId, generation: Gen, before: Instant) {
        self.with(|state| {
            let (slot, seen) = (state.before.get_mut(shard.index()), state.is_seen.get_mut(shard.index()));
            let (Some(slot), Some(seen)) = (slot, seen) else { return };
            if generation < state.newest {
                return;
            }
            if !std::mem::replace(seen, true) {
                *slot = Some(Instant::now());
            } else if *slot == Some(before) {
                *slot = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn a_new_generation_makes_all_shards_due_until_each_has_given_under_it() {
        let put_back = PutBack::new(Gen(3));
        assert!(put_back.due().is_empty());
        assert!(!put_back.learn(Gen(3)) && !put_back.learn(Gen(2)));
        assert!(put_back.learn(Gen(4)));
        let due = put_back.due();
        assert_eq!(due.len(), SHARDS);
        let (shard, before) = due[5];
        put_back.claimed(shard, Gen(3), before);
        assert_eq!(put_back.due().len(), SHARDS, "it still was under the old one");
        put_back.claimed(shard, Gen(4), before);
        assert_eq!(
            put_back.due().len(),
            SHARDS,
            "what was delivered until it was seen open may be dropped too"
        );
        let before = put_back.due()[5].1;
        put_back.claimed(shard, Gen(4), before);
        assert_eq!(put_back.due().len(), SHARDS - 1);
        put_back.dropped(shard);
        put_back.claimed(shard, Gen(4), before);
        assert_eq!(put_back.due().len(), SHARDS, "more was dropped meanwhile");
    }
}
