//! Who was counted on which device of late: a fixed table of words, without locks.
//!
//! A word is a part of the pair's hash and when it was counted, in seconds. A pair may have any of the words of one set;
//! where all of them are taken, it takes the one that was counted longest ago. Who lost his word is counted more often than
//! he needs, which changes nothing. The hash is seeded, so that nobody outside can choose names that seem to be counted
//! already, or that meet in one set.
//!
//! Asked on worker threads, at each request of a back end: it neither locks nor allocates nor waits.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use crate::protocol::UserId;

/// Sets of words; together 2,097,152 words in 16 MiB, so that of a million users who all come again hardly any two are in
/// each other's way.
const SETS: usize = 1 << 18;
/// Words that a pair may have: as many as the processor reads at once.
const WAYS: usize = 8;
/// Of a word, for the time.
const TIME_BITS: u32 = 24;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// A line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

/// See the module.
#[derive(Debug)]
pub struct Recent {
    sets: Box<[Set]>,
    hasher: SeedableRandomState,
    again_after_s: u64,
}

impl Recent {
    /// Remembers nobody yet.
    pub fn new(again_after: std::time::Duration) -> Self {
        let seed = RandomState::new().hash_one(SETS);
        Self {
            sets: (0..SETS).map(|_| Set::default()).collect(),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_random()),
            again_after_s: again_after.as_secs().min(TIME_MASK >> 1),
        }
    }

    /// Whether this pair has to be counted at this time (monotonic milliseconds).
    pub fn is_due(&self, now_ms: u64, device: &str, user: UserId) -> bool {
        let (set, mark) = self.place(device, user);
        let now_s = seconds(now_ms);
        !set.iter().any(|word| {
            let kept = word.load(Ordering::Relaxed);
            kept >> TIME_BITS == mark && age_s(now_s, kept) < self.again_after_s
        })
    }

    /// It was counted, or is going to be.
    pub fn counted(&self, now_ms: u64, device: &str, user: UserId) {
        let (set, mark) = self.place(device, user);
        let now_s = seconds(now_ms);
        // Its own word, else one that nobody has, else that of whoever is due first.
        let worth = |word: &&AtomicU64| match word.load(Ordering::Relaxed) {
            kept if kept >> TIME_BITS == mark => u64::MAX,
            0 => TIME_MASK.saturating_add(1),
            kept => age_s(now_s, kept),
        };
        if let Some(word) = set.iter().max_by_key(worth) {
            word.store(mark << TIME_BITS | now_s, Ordering::Relaxed);
        }
    }

    fn place(&self, device: &str, user: UserId) -> (&[AtomicU64], u64) {
        let hash = self.hasher.hash_one((device, user));
        // Of the hash's other end than the mark, and more of it than a mark leaves.
        let set = usize::try_from(hash).unwrap_or_default() & (SETS - 1);
        // No pair has the mark of a word that was never written.
        (self.sets.get(set).map_or(&[], |Set(words)| words), (hash >> TIME_BITS).max(1))
    }
}

fn age_s(now_s: u64, kept: u64) -> u64 {
    now_s.wrapping_sub(kept) & TIME_MASK
}

/// They wrap around after half a year, and an age is told up to then.
const fn seconds(now_ms: u64) -> u64 {
    (now_ms / 1000) & TIME_MASK
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pair_is_due_until_it_is_counted_and_again_after_its_time() {
        let recent = Recent::new(Duration::from_secs(60));
        let user = |id| UserId::new(id).unwrap();
        assert!(recent.is_due(0, "a", user(1)) && recent.is_due(0, "a", user(1)));
        recent.counted(1_000, "a", user(1));
        assert!(!recent.is_due(1_000, "a", user(1)) && !recent.is_due(60_999, "a", user(1)));
        assert!(recent.is_due(61_000, "a", user(1)));
        assert!(recent.is_due(2_000, "a", user(2)) && recent.is_due(2_000, "b", user(1)));
    }

    #[test]
    fn a_million_users_who_all_come_again_are_counted_once() {
        let recent = Recent::new(Duration::from_secs(60));
        let pairs = (1..=1_000_000).map(|id| UserId::new(id).unwrap());
        let due = |now_ms| pairs.clone().filter(|user| recent.is_due(now_ms, "farm", *user)).count();
        pairs.clone().for_each(|user| recent.counted(1_000, "farm", user));
        // Those whose set is full.
        let lost = due(2_000);
        assert!(lost < 20_000, "{lost} of a million lost their word");
        assert_eq!(due(61_000), 1_000_000);
    }

    #[test]
    fn who_was_counted_longest_ago_makes_room() {
        let recent = Recent::new(Duration::from_secs(6_000));
        let user = |id| UserId::new(id).unwrap();
        recent.counted(1_000, "mine", user(1));
        // Again and again, while millions come by once.
        for round in 0..12_u64 {
            let now_ms = 1_000 + round * 1_000;
            recent.counted(now_ms, "mine", user(1));
            (0..200_000).for_each(|nth| recent.counted(now_ms, "theirs", user(2 + round * 200_000 + nth)));
            assert!(!recent.is_due(now_ms, "mine", user(1)), "round {round}");
        }
    }

    #[test]
    fn a_time_of_zero_counts_every_time() {
        let recent = Recent::new(Duration::ZERO);
        recent.counted(5, "a", UserId::new(1).unwrap());
        assert!(recent.is_due(5, "a", UserId::new(1).unwrap()));
    }
}
