//! Who was counted on which device of late: a fixed table of words, without locks.
//!
//! A word is a part of the pair's hash and when it was counted, in seconds. Two pairs that share a word take it from each
//! other: then they are counted more often than they need, which changes nothing. The hash is seeded, so that nobody
//! outside can choose names that seem to be counted already.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use crate::protocol::UserId;

/// Pairs that are remembered: 512 KiB.
const WORDS: usize = 65_536;
/// Of a word, for the time.
const TIME_BITS: u32 = 24;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// See the module.
#[derive(Debug)]
pub struct Recent {
    words: Box<[AtomicU64]>,
    hasher: SeedableRandomState,
    again_after_s: u64,
}

impl Recent {
    /// Remembers nobody yet.
    pub fn new(again_after: std::time::Duration) -> Self {
        let seed = RandomState::new().hash_one(WORDS);
        Self {
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_random()),
            again_after_s: again_after.as_secs().min(TIME_MASK >> 1),
        }
    }

    /// Whether this pair has to be counted at this time (monotonic milliseconds).
    pub fn is_due(&self, now_ms: u64, device: &str, user: UserId) -> bool {
        let (word, mark) = self.place(device, user);
        let Some(word) = word else { return true };
        let kept = word.load(Ordering::Relaxed);
        let age_s = seconds(now_ms).wrapping_sub(kept) & TIME_MASK;
        kept >> TIME_BITS != mark || age_s >= self.again_after_s
    }

    /// It was counted, or is going to be.
    pub fn counted(&self, now_ms: u64, device: &str, user: UserId) {
        let (word, mark) = self.place(device, user);
        if let Some(word) = word {
            word.store(mark << TIME_BITS | seconds(now_ms), Ordering::Relaxed);
        }
    }

    fn place(&self, device: &str, user: UserId) -> (Option<&AtomicU64>, u64) {
        let hash = self.hasher.hash_one((device, user));
        let [low, high, ..] = hash.to_le_bytes();
        // No pair has the mark of a word that was never written.
        (self.words.get(usize::from(u16::from_le_bytes([low, high]))), (hash >> TIME_BITS).max(1))
    }
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
    fn pairs_that_take_each_others_place_are_counted_again() {
        let recent = Recent::new(Duration::from_secs(60));
        let pairs = (1..=300_000).map(|id| UserId::new(id).unwrap());
        pairs.clone().for_each(|user| recent.counted(0, "farm", user));
        let due = pairs.filter(|user| recent.is_due(0, "farm", *user)).count();
        assert!((234_000..300_000).contains(&due), "{due}");
    }

    #[test]
    fn a_time_of_zero_counts_every_time() {
        let recent = Recent::new(Duration::ZERO);
        recent.counted(5, "a", UserId::new(1).unwrap());
        assert!(recent.is_due(5, "a", UserId::new(1).unwrap()));
    }
}
