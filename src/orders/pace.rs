//! The steady rate: however long the backlog, SQL sees so many orders per second (GCRA, by the crate `governor`).
//!
//! Used by the settler before each transaction, and after each by who settles what was recorded; a writer's two share one.
//! A batch is let go when all its rows are due; it never waits for a clock but the monotonic one.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

/// How many batches a writer that had nothing to do may settle at once.
const BURST_BATCHES: usize = 1;

pub(super) struct Pace<C: Clock + Clone = DefaultClock> {
    limiter: Option<RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>>,
    clock: C,
    burst: NonZeroU32,
}

impl<C: Clock + Clone> std::fmt::Debug for Pace<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("burst", &self.burst).finish_non_exhaustive()
    }
}

impl Pace {
    pub(super) fn new(rows_per_s: u32, batch_rows_max: usize) -> Self {
        Self::with_clock(rows_per_s, batch_rows_max, DefaultClock::default())
    }

    /// Waits until so many rows are due; for how long that was.
    pub(super) async fn wait(&self, rows: usize) -> Duration {
        let mut left = u32::try_from(rows).unwrap_or(u32::MAX);
        let (began, mut waited) = (Instant::now(), Duration::ZERO);
        while let Some((rest, wait)) = self.take(left) {
            left = rest;
            tokio::time::sleep(wait).await;
            waited = began.elapsed();
        }
        waited
    }
}

impl<C: Clock + Clone> Pace<C> {
    fn with_clock(rows_per_s: u32, batch_rows_max: usize, clock: C) -> Self {
        let burst = u32::try_from(batch_rows_max.saturating_mul(BURST_BATCHES)).unwrap_or(u32::MAX);
        let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        let limiter = NonZeroU32::new(rows_per_s).map(|rate| {
            RateLimiter::direct_with_clock(Quota::per_second(rate).allow_burst(burst), clock.clone())
        });
        Self { limiter, clock, burst }
    }

    /// Takes up to `rows` of what is due: how many are left to be taken, and after which time.
    pub(super) fn take(&self, rows: u32) -> Option<(u32, Duration)> {
        let limiter = self.limiter.as_ref()?;
        let mut left = rows;
        while let Some(part) = NonZeroU32::new(left.min(self.burst.get())) {
            match limiter.check_n(part) {
                Ok(Ok(())) => left = left.saturating_sub(part.get()),
                Ok(Err(not_yet)) => return Some((left, not_yet.wait_time_from(self.clock.now()))),
                // Never: no part is greater than the burst.
                Err(_) => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use governor::clock::FakeRelativeClock;

    use super::*;

    /// Seconds that batches of `rows` take, after the burst.
    fn seconds(pace: &Pace<FakeRelativeClock>, clock: &FakeRelativeClock, batches: u32, rows: u32) -> f64 {
        let mut waited = Duration::ZERO;
        for _ in 0..batches {
            let mut left = rows;
            while let Some((rest, wait)) = pace.take(left) {
                clock.advance(wait);
                waited += wait;
                left = rest;
            }
        }
        waited.as_secs_f64()
    }

    #[test]
    fn the_rate_is_the_same_whatever_the_backlog_and_the_batch() {
        for rows in [1, 50, 500, 1700] {
            let clock = FakeRelativeClock::default();
            let pace = Pace::with_clock(1000, 500, clock.clone());
            let batches = 20_000 / rows;
            let rate = f64::from(batches * rows - 500) / seconds(&pace, &clock, batches, rows);
            assert!((980.0..=1020.0).contains(&rate), "{rows} rows a batch: {rate}");
        }
    }

    #[test]
    fn no_rate_is_no_wait() {
        assert_eq!(Pace::new(0, 500).take(u32::MAX), None);
    }
}
