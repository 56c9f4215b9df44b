//! The gateway's two clocks, read once per wake and handed down as an argument.
//!
//! Any thread. The monotonic one counts from the gateway's start. The sale clock is the wall clock that windows and
//! countdowns go by: the monotonic clock plus a base that [`Clock::follow_wall_clock`] sets anew many times a second,
//! so that a wake reads one clock, not two. It never moves back: while the wall clock is behind, it stands still.
//! Where many gateways share a store, its time is the sale clock instead (see `sale_clock`), and the wall clock is
//! not looked at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Monotonic nanoseconds since the gateway's start.
    pub(super) mono_ns: u64,
    /// Unix milliseconds of the sale clock.
    pub(super) sale_ms: u64,
}

impl Now {
    /// Monotonic milliseconds since the gateway's start.
    pub(super) const fn mono_ms(self) -> u64 {
        self.mono_ns / 1_000_000
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Clock {
    started: Instant,
    /// Unix nanoseconds at the gateway's start, by the wall clock of the last look, or by the store's.
    base_ns: AtomicU64,
    /// The store's time counts, not the wall clock.
    is_the_stores: AtomicBool,
    /// The latest sale time that was told to anybody.
    told_ms: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            base_ns: AtomicU64::new(wall_ns()),
            is_the_stores: AtomicBool::new(false),
            told_ms: AtomicU64::new(0),
        }
    }
}

impl Clock {
    /// Reads both.
    pub(super) fn now(&self) -> Now {
        let mono_ns = self.mono_ns();
        let sale_ms = mono_ns.saturating_add(self.base_ns.load(Ordering::Relaxed)) / 1_000_000;
        let told_ms = self.told_ms.load(Ordering::Relaxed);
        if sale_ms <= told_ms {
            return Now { mono_ns, sale_ms: told_ms };
        }
        // Once a millisecond and thread at most: the threads do not fight for it at every wake.
        let told_ms = self.told_ms.fetch_max(sale_ms, Ordering::Relaxed);
        Now { mono_ns, sale_ms: told_ms.max(sale_ms) }
    }

    /// Takes over what the wall clock says now. Until the next time the sale clock runs on by itself.
    pub(super) fn follow_wall_clock(&self) {
        if !self.is_the_stores.load(Ordering::Relaxed) {
            self.follow(wall_ns());
        }
    }

    /// From now on the sale clock is the monotonic one plus this: the store's time at the gateway's start.
    pub(super) fn follow_store(&self, base_ns: u64) {
        self.is_the_stores.store(true, Ordering::Relaxed);
        self.base_ns.store(base_ns, Ordering::Relaxed);
    }

    fn follow(&self, wall_ns: u64) {
        self.base_ns.store(wall_ns.saturating_sub(self.mono_ns()), Ordering::Relaxed);
    }

    /// Monotonic nanoseconds since the gateway's start.
    pub(super) fn mono_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

fn wall_ns() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn the_sale_clock_follows_the_wall_clock_forward_and_stands_still_while_it_is_behind() {
        let clock = Clock::default();
        let first = clock.now();
        assert!(first.sale_ms.abs_diff(wall_ns() / 1_000_000) < 1_000, "{first:?}");
        clock.follow(first.sale_ms.saturating_add(HOUR_MS).saturating_mul(1_000_000));
        let later = clock.now();
        assert!(later.sale_ms >= first.sale_ms.saturating_add(HOUR_MS), "{later:?}");
        clock.follow(first.sale_ms.saturating_mul(1_000_000));
        assert_eq!(clock.now().sale_ms, later.sale_ms, "an hour behind: it stands still");
        assert!(clock.now().mono_ns >= later.mono_ns, "the monotonic clock goes on");
        clock.follow(later.sale_ms.saturating_add(HOUR_MS).saturating_mul(1_000_000));
        assert!(clock.now().sale_ms >= later.sale_ms.saturating_add(HOUR_MS), "and goes on from there");
    }

    #[test]
    fn where_the_stores_time_counts_the_wall_clock_does_not() {
        let clock = Clock::default();
        let ahead_ns = wall_ns().saturating_add(HOUR_MS.saturating_mul(1_000_000));
        clock.follow_store(ahead_ns);
        let first = clock.now();
        assert!(first.sale_ms >= ahead_ns / 1_000_000, "{first:?}");
        clock.follow_wall_clock();
        assert!(clock.now().sale_ms.saturating_sub(first.sale_ms) < 1_000, "it runs on by itself");
    }
}
