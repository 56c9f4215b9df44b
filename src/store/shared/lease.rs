//! The right to acknowledge (rule 12): it lasts two seconds from when the last successful renewal was *sent*.
//!
//! Pure but for the monotonic clock. Written by the keeper, read at every answer of the store. A process that is cut
//! off from SQL cannot know whether a recovery has begun without it, so it says nothing that a recovery may contradict.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::stock::calls::Gen;

/// How long a renewal is good for. Less than what makes a process silent for a recovery's leader (three seconds by
/// the database's clock), so that a process stops acknowledging before it is no longer waited for.
pub(super) const LEASE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Lease {
    started: Instant,
    /// Milliseconds after `started` until which it holds; 0: not held.
    holds_until_ms: AtomicU64,
    /// The installation's generation as of the last renewal.
    generation: AtomicU64,
    lost: AtomicU64,
}

impl Lease {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            holds_until_ms: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// A renewal that was sent at `sent_at` came back with the installation's generation. The generation comes first:
    /// whoever sees the lease held sees it as well.
    pub(super) fn renewed(&self, sent_at: Instant, generation: Gen) {
        self.generation.fetch_max(generation.0, Ordering::AcqRel);
        let until = sent_at.saturating_duration_since(self.started).saturating_add(LEASE);
        let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        let before_ms = self.holds_until_ms.fetch_max(until_ms, Ordering::AcqRel);
        if before_ms > 0 && before_ms <= self.now_ms() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether it holds now.
    pub(super) fn is_held(&self) -> bool {
        self.now_ms() < self.holds_until_ms.load(Ordering::Acquire)
    }

    /// Nothing of an older one may be believed.
    pub(super) fn generation(&self) -> Gen {
        Gen(self.generation.load(Ordering::Acquire))
    }

    /// How often it had run out before it was renewed.
    pub(super) fn times_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn it_counts_from_when_the_renewal_was_sent_and_keeps_the_newest_generation() {
        let lease = Lease::new();
        assert!(!lease.is_held(), "nothing is acknowledged before the first renewal");
        let now = Instant::now();
        lease.renewed(now, Gen(3));
        assert!(lease.is_held());
        lease.renewed(now, Gen(2));
        assert_eq!(lease.generation(), Gen(3), "an answer that was overtaken changes nothing");
        let late = Lease { started: now.checked_sub(LEASE * 3).unwrap(), ..Lease::new() };
        late.renewed(now.checked_sub(LEASE).unwrap(), Gen(1));
        assert!(!late.is_held(), "an answer that took two seconds is worth nothing");
        assert_eq!(late.times_lost(), 0);
        late.renewed(Instant::now(), Gen(1));
        assert!(late.is_held());
        assert_eq!(late.times_lost(), 1);
    }
}
