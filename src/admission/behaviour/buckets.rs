//! The users' buckets: a fixed table of words, in lines of eight, without locks.
//!
//! A user's hash chooses his line and his mark in it; a word is the mark and the instant at which his bucket is empty. A
//! user who finds no word of his takes the one in his line that is empty soonest: with a million users at a time it is the
//! quiet ones who are forgotten, and they had little to be counted. Nobody is counted for another but by a whole
//! coincidence of hashes: one user in some millions. The hash is seeded, so that nobody outside can choose users who meet.
//!
//! Runs on the gateway's worker threads. A word is changed by compare-and-swap; Relaxed, for it guards no other memory.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use crate::protocol::UserId;

/// A tick is 62.5 µs.
pub(super) const TICKS_PER_S: u64 = 16_000;
const NS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_S;

/// Of a word, for an instant: they wrap around after two years.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

const LINE_WORDS: usize = 8;
const LINES: usize = 131_072;

/// As long as a line of the cache, and on one.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; LINE_WORDS]);

/// See the module.
#[derive(Debug)]
pub(super) struct Buckets {
    lines: Box<[Line]>,
    hasher: SeedableRandomState,
    /// No bucket is fuller: what seems to be is one that was empty long ago.
    level_max: u64,
}

impl Buckets {
    /// `level_max`: ticks after which the fullest bucket is empty.
    pub(super) fn new(level_max: u64) -> Self {
        let seed = RandomState::new().hash_one(LINES);
        let line = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            lines: std::iter::repeat_with(line).take(LINES).collect(),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_random()),
            level_max: level_max.min(TIME_MASK >> 1),
        }
    }

    /// Changes a user's level, which is the ticks after which his bucket is empty. `change` may be asked more than once,
    /// and the last answer counts.
    #[inline]
    pub(super) fn update(&self, now_ns: u64, user: UserId, mut change: impl FnMut(u64) -> u64) {
        let now = now_ns / NS_PER_TICK;
        let (Some(line), mark) = self.place(user) else { return };
        loop {
            let (word, seen, level) = self.find(line, mark, now);
            let Some(word) = word else { return };
            let level = change(level).min(self.level_max);
            let next = mark << TIME_BITS | now.wrapping_add(level) & TIME_MASK;
            if word.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Looks at a user's line, and changes nothing.
    pub(super) fn warm(&self, user: UserId) {
        if let (Some(Line([first, ..])), _) = self.place(user) {
            std::hint::black_box(first.load(Ordering::Relaxed));
        }
    }

    /// His line, and his mark in it.
    #[inline]
    fn place(&self, user: UserId) -> (Option<&Line>, u64) {
        let hash = self.hasher.hash_one(user.0);
        let line = usize::try_from(hash & TIME_MASK).unwrap_or(0) % LINES;
        // Never 0, which is the mark of a word that nobody has.
        (self.lines.get(line), (hash >> TIME_BITS).max(1))
    }

    /// The user's word, or the one that he takes; what stands in it, and his level.
    #[inline]
    fn find<'a>(&self, line: &'a Line, mark: u64, now: u64) -> (Option<&'a AtomicU64>, u64, u64) {
        for word in &line.0 {
            let seen = word.load(Ordering::Relaxed);
            if seen >> TIME_BITS == mark {
                return (Some(word), seen, self.level(seen, now));
            }
        }
        self.emptiest(line, now)
    }

    /// The word that somebody takes who has none.
    #[cold]
    fn emptiest<'a>(&self, line: &'a Line, now: u64) -> (Option<&'a AtomicU64>, u64, u64) {
        let mut emptiest = (None, 0, u64::MAX);
        for word in &line.0 {
            let seen = word.load(Ordering::Relaxed);
            let level = self.level(seen, now);
            if level < emptiest.2 {
                emptiest = (Some(word), seen, level);
            }
        }
        let (word, seen, _) = emptiest;
        (word, seen, 0)
    }

    #[inline]
    const fn level(&self, word: u64, now: u64) -> u64 {
        let ahead = (word & TIME_MASK).wrapping_sub(now) & TIME_MASK;
        if ahead > self.level_max { 0 } else { ahead }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]
    use super::*;

    fn user(id: u64) -> UserId {
        UserId::new(id).unwrap()
    }

    fn level(buckets: &Buckets, now: u64, id: u64) -> u64 {
        let mut found = 0;
        buckets.update(now * NS_PER_TICK, user(id), |level| {
            found = level;
            level
        });
        found
    }

    #[test]
    fn a_level_leaks_as_time_passes_also_where_time_wraps_around() {
        let buckets = Buckets::new(1_000);
        for began in [0, 5_000, TIME_MASK - 50, TIME_MASK, TIME_MASK + 7] {
            buckets.update(began * NS_PER_TICK, user(1), |_| 100);
            assert_eq!(level(&buckets, began + 30, 1), 70, "{began}");
            assert_eq!(level(&buckets, began + 100, 1), 0);
        }
        buckets.update(0, user(2), |_| 5_000);
        assert_eq!(level(&buckets, 0, 2), 1_000, "no fuller than may be");
        assert_eq!(level(&buckets, TIME_MASK / 2, 2), 0, "years later");
    }

    #[test]
    fn a_million_users_are_counted_apart_and_the_busy_ones_are_kept() {
        let buckets = Buckets::new(1_000_000);
        for id in 1..=1_000 {
            buckets.update(0, user(id), |_| 900_000 + id);
        }
        // Far more than there is room for.
        for id in 2_000..2_000_000 {
            buckets.update(0, user(id), |level| level + 10);
        }
        let kept = (1..=1_000).filter(|id| level(&buckets, 0, *id) == 900_000 + id).count();
        assert!(kept >= 999, "{kept} of 1,000 busy ones are known");
        let strangers = (3_000_000..3_100_000).filter(|id| level(&buckets, 0, *id) > 0).count();
        assert!(strangers <= 2, "{strangers} of 100,000 are taken for somebody else");
    }

    #[test]
    fn a_line_is_one_of_the_caches_and_the_table_is_as_large_as_it_says() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
        assert_eq!(LINES * size_of::<Line>(), 8 << 20);
    }
}
