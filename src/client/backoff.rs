//! Full jitter: how long to wait before the next attempt.

use std::time::Duration;

/// Exponential back-off with full jitter: the n-th wait is random between 0 and `min(cap, base · 2ⁿ)`, and never
/// less than what the gateway asked for. Many clients that failed together spread out instead of coming back together.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    base_ms: u64,
    cap_ms: u64,
    attempt: u32,
}

impl Backoff {
    /// For repeating a request: 100 ms, at most 10 s.
    pub const fn of_requests() -> Self {
        Self { base_ms: 100, cap_ms: 10_000, attempt: 0 }
    }

    /// For connecting again: 200 ms, at most 30 s.
    pub const fn of_connections() -> Self {
        Self { base_ms: 200, cap_ms: 30_000, attempt: 0 }
    }

    /// The next wait; `hint_ms` is a floor.
    pub fn next_wait(&mut self, hint_ms: u32) -> Duration {
        let ceiling = self.ceiling_ms();
        self.attempt = self.attempt.saturating_add(1);
        Duration::from_millis(fastrand::u64(0..=ceiling).max(u64::from(hint_ms)))
    }

    /// A wait that is spread *above* `floor_ms`: for clients that were all told the same floor.
    pub fn next_wait_above(&mut self, floor_ms: u32) -> Duration {
        let spread = self.next_wait(0);
        spread.saturating_add(Duration::from_millis(u64::from(floor_ms)))
    }

    /// Starts over after a success.
    pub const fn reset(&mut self) {
        self.attempt = 0;
    }

    fn ceiling_ms(&self) -> u64 {
        let factor = 1_u64.checked_shl(self.attempt).unwrap_or(u64::MAX);
        self.base_ms.saturating_mul(factor).min(self.cap_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_below_the_growing_ceiling_and_never_below_the_hint() {
        for _ in 0..200 {
            let mut backoff = Backoff::of_requests();
            for n in 0..80_u32 {
                let ceiling = 100_u128.saturating_mul(1_u128.checked_shl(n).unwrap_or(1 << 70)).min(10_000);
                assert!(backoff.next_wait(0).as_millis() <= ceiling, "attempt {n}");
            }
            assert!(backoff.next_wait(20_000).as_millis() == 20_000);
            backoff.reset();
            assert!(backoff.next_wait(0).as_millis() <= 100);
            assert!(backoff.next_wait_above(5_000).as_millis() >= 5_000);
        }
    }
}
