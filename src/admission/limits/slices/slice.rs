//! Tokens of one rate that are this gateway's to use until a time: one word.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bits for tokens; those above are the milliseconds of the gateway's clock at which they expire.
const TOKEN_BITS: u32 = 24;
/// More are never held.
pub(super) const TOKENS_MAX: u32 = (1 << TOKEN_BITS) - 1;

/// See the module.
#[derive(Debug, Default)]
pub struct Slice {
    held: AtomicU64,
    /// A request found none, since this was looked at last.
    is_short: AtomicBool,
}

impl Slice {
    /// Takes one token; without one, notes that one was wanted.
    pub fn take(&self, now_ns: u64) -> bool {
        if self.take_up_to(1, now_ns) == 1 {
            return true;
        }
        // Looked at first: thousands are refused for each time that somebody reads it.
        if !self.is_short.load(Ordering::Relaxed) {
            self.is_short.store(true, Ordering::Relaxed);
        }
        false
    }

    /// Tokens that are good now.
    pub(super) fn left(&self, now_ns: u64) -> u32 {
        good(self.held.load(Ordering::Relaxed), now_ns)
    }

    /// Takes tokens back that are good; how many there were.
    pub(super) fn take_up_to(&self, most: u32, now_ns: u64) -> u32 {
        let mut held = self.held.load(Ordering::Relaxed);
        loop {
            let taken = good(held, now_ns).min(most);
            if taken == 0 {
                return 0;
            }
            let next = held.saturating_sub(taken.into());
            match self.held.compare_exchange_weak(held, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return taken,
                Err(newer) => held = newer,
            }
        }
    }

    /// Puts tokens to those that are good, all to expire then; by the one task that borrows.
    pub(super) fn put(&self, now_ns: u64, tokens: u32, until_ns: u64) {
        let until = (until_ns / 1_000_000) << TOKEN_BITS;
        let put = |held| {
            let sum = good(held, now_ns).saturating_add(tokens).min(TOKENS_MAX);
            Some(until | u64::from(sum))
        };
        // It never says no.
        let _ = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, put);
    }

    /// Whether a request found none since this was asked last.
    pub(super) fn was_short(&self) -> bool {
        self.is_short.swap(false, Ordering::Relaxed)
    }
}

fn good(held: u64, now_ns: u64) -> u32 {
    if held >> TOKEN_BITS <= now_ns / 1_000_000 {
        return 0;
    }
    u32::try_from(held & u64::from(TOKENS_MAX)).unwrap_or(TOKENS_MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn tokens_are_taken_once_and_expire() {
        let slice = Slice::default();
        assert!(!slice.take(0) && slice.was_short() && !slice.was_short());
        slice.put(0, 3, 100 * MS);
        assert!(slice.take(0) && slice.take(99 * MS) && slice.left(99 * MS) == 1 && !slice.was_short());
        assert_eq!((slice.left(100 * MS), slice.take(100 * MS)), (0, false));
        assert!(slice.was_short());
        // What had expired does not come back with what is put later; what is good expires with it.
        slice.put(200 * MS, 5, 300 * MS);
        assert_eq!(slice.left(200 * MS), 5);
        slice.put(250 * MS, 2, 400 * MS);
        assert_eq!((slice.left(399 * MS), slice.take_up_to(4, 399 * MS), slice.left(399 * MS)), (7, 4, 3));
        assert_eq!((slice.take_up_to(9, 399 * MS), slice.take_up_to(9, 399 * MS)), (3, 0));
        slice.put(400 * MS, u32::MAX, u64::MAX);
        assert_eq!(slice.left(400 * MS), TOKENS_MAX);
    }

    #[test]
    fn many_threads_take_what_there_is_and_no_more() {
        let slice = Slice::default();
        slice.put(0, 1_000, 10 * MS);
        let taken: usize = std::thread::scope(|scope| {
            let takers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..1_000).filter(|_| slice.take(MS)).count())).collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        assert_eq!(taken, 1_000);
    }
}
