//! When each slowed subject may pass the next time: a table of fixed size.
//!
//! Runs on the gateway's worker threads; atomics alone, no lock, no allocation. A subject is a tag within a set of eight
//! slots, which is one cache line. One whose time has come needs no slot; where all eight are taken by others that wait,
//! one more does not pass: he is on the list of those that somebody suspects, and another eight of them were here
//! within one interval.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::utils::CachePadded;

/// Slots of a set.
const WAYS: usize = 8;
/// 65,536 slots: 512 KiB (1 MiB where lines are padded to pairs).
const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 13;
const SET_MASK: u64 = (1 << SET_BITS) - 1;
/// A slot: tag above, monotonic milliseconds below.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// See the module.
#[derive(Debug)]
pub(super) struct Slowed {
    sets: Box<[CachePadded<[AtomicU64; WAYS]>]>,
}

impl Default for Slowed {
    fn default() -> Self {
        let set = || CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { sets: (0..SETS).map(|_| set()).collect() }
    }
}

impl Slowed {
    /// May this subject pass at this time (monotonic milliseconds)? Then not again for `interval_ms`. Otherwise: in how
    /// many milliseconds it may.
    pub(super) fn pass(&self, subject: u64, now_ms: u64, interval_ms: u64) -> Result<(), u32> {
        let number = usize::try_from(subject & SET_MASK).unwrap_or_default();
        let Some(set) = self.sets.get(number) else { return Ok(()) };
        let tag = subject >> TIME_BITS;
        let next = tag << TIME_BITS | now_ms.saturating_add(interval_ms) & TIME_MASK;
        loop {
            let is_own = |word: u64| word >> TIME_BITS == tag && word != 0;
            let is_due = |word: u64| word & TIME_MASK <= now_ms;
            let seen = set.each_ref().map(|slot| slot.load(Ordering::Relaxed));
            let own = seen.iter().position(|word| is_own(*word));
            let place = own.or_else(|| seen.iter().position(|word| is_due(*word)));
            let found = place.and_then(|place| Some((set.get(place)?, *seen.get(place)?)));
            let wait_ms = |word: u64| (word & TIME_MASK).saturating_sub(now_ms);
            match found {
                Some((slot, word)) if is_due(word) => {
                    // Lost to another thread: look again, it may have been this subject.
                    if slot.compare_exchange(word, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                        return Ok(());
                    }
                }
                Some((_, word)) => return Err(u32::try_from(wait_ms(word)).unwrap_or(u32::MAX).max(1)),
                None => {
                    let soonest = seen.into_iter().map(wait_ms).min().unwrap_or_default();
                    return Err(u32::try_from(soonest).unwrap_or(u32::MAX).max(1));
                }
            }
        }
    }
}
