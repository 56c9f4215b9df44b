//! When the next request is due, and which requests count.
//!
//! Plain arithmetic on nanoseconds since the start; one per thread. In the open loop request i of all threads is
//! planned at start + i / rate, whatever happened to those before it.

use std::time::Duration;

const NS_PER_S: u64 = 1_000_000_000;

/// One thread's timetable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// All threads together; `None` in the closed loop.
    rate_per_s: Option<u64>,
    /// The number of this thread's next request among those of all threads.
    next: u64,
    /// From one of this thread's requests to its next.
    stride: u64,
    /// Requests planned from here on are measured.
    pub(super) measure_from_ns: u64,
    /// Nothing is planned from here on.
    pub(super) stop_ns: u64,
    is_warm: bool,
}

impl Pace {
    pub(super) fn new(
        rate_per_s: Option<u64>,
        thread: u64,
        threads: u64,
        warmup: Duration,
        measured: Duration,
    ) -> Self {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let measure_from_ns = ns(warmup);
        let stop_ns = measure_from_ns.saturating_add(ns(measured));
        Self { rate_per_s, next: thread, stride: threads, measure_from_ns, stop_ns, is_warm: false }
    }

    pub(super) const fn is_open_loop(&self) -> bool {
        self.rate_per_s.is_some()
    }

    /// The planned time of the next request, if it may be sent at `now_ns`; in the closed loop that is now.
    pub(super) fn due(&self, now_ns: u64) -> Option<u64> {
        let planned_ns = self.rate_per_s.map_or(now_ns, |rate| planned_ns(self.next, rate));
        (planned_ns <= now_ns && planned_ns < self.stop_ns).then_some(planned_ns)
    }

    /// When the next request is planned; `None` in the closed loop.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.rate_per_s.map(|rate| planned_ns(self.next, rate))
    }

    /// The next request was sent, or given up.
    pub(super) const fn advance(&mut self) {
        self.next = self.next.saturating_add(self.stride);
    }

    /// Once the warm-up is over, forgets what it left unsent: a backlog from before would be served in the place of
    /// what is measured.
    pub(super) fn leave_warmup(&mut self, now_ns: u64) {
        if self.is_warm || now_ns < self.measure_from_ns {
            return;
        }
        self.is_warm = true;
        let Some(rate) = self.rate_per_s else { return };
        let before = u128::from(self.measure_from_ns).saturating_mul(u128::from(rate));
        let first = u64::try_from(before.div_ceil(u128::from(NS_PER_S))).unwrap_or(u64::MAX);
        let strides = first.saturating_sub(self.next).div_ceil(self.stride.max(1));
        self.next = self.next.saturating_add(strides.saturating_mul(self.stride));
    }

    /// Whether a request planned then is measured.
    pub(super) const fn is_measured(&self, planned_ns: u64) -> bool {
        planned_ns >= self.measure_from_ns
    }
}

/// Exact for every rate and length that the command takes: 5,000,000 a second for an hour.
fn planned_ns(number: u64, rate_per_s: u64) -> u64 {
    number.saturating_mul(NS_PER_S).checked_div(rate_per_s).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]
    use super::*;

    #[test]
    fn an_open_loop_plans_exactly_the_rate_over_all_threads() {
        let mut planned = Vec::new();
        for thread in 0..3 {
            let mut pace = Pace::new(Some(1_000), thread, 3, Duration::ZERO, Duration::from_secs(2));
            assert!(pace.is_open_loop());
            while let Some(at) = pace.due(u64::MAX) {
                planned.push(at);
                pace.advance();
            }
        }
        planned.sort_unstable();
        let expected: Vec<u64> = (0..2_000).map(|number| number * 1_000_000).collect();
        assert_eq!(planned, expected);
    }

    #[test]
    fn nothing_is_due_before_its_time_and_a_late_one_keeps_its_time() {
        let mut pace = Pace::new(Some(10), 0, 1, Duration::from_secs(1), Duration::from_secs(1));
        pace.advance();
        assert_eq!(pace.due(99_999_999), None);
        assert_eq!(pace.due(500_000_000), Some(100_000_000));
        assert!(!pace.is_measured(100_000_000) && pace.is_measured(NS_PER_S));
    }

    #[test]
    fn what_the_warm_up_left_unsent_is_forgotten_and_nothing_else() {
        let mut planned = 0;
        for thread in 0..3 {
            let mut pace = Pace::new(Some(700), thread, 3, Duration::from_secs(1), Duration::from_secs(1));
            pace.leave_warmup(NS_PER_S - 1);
            assert_eq!(pace.next_ns(), Some(planned_ns(thread, 700)), "not yet");
            pace.leave_warmup(NS_PER_S + 5);
            while let Some(at) = pace.due(u64::MAX) {
                assert!(pace.is_measured(at));
                pace.leave_warmup(at);
                pace.advance();
                planned += 1;
            }
        }
        assert_eq!(planned, 700);
    }

    #[test]
    fn a_closed_loop_sends_at_once_until_it_ends() {
        let pace = Pace::new(None, 0, 1, Duration::ZERO, Duration::from_secs(1));
        assert_eq!((pace.due(7), pace.next_ns()), (Some(7), None));
        assert_eq!(pace.due(NS_PER_S), None);
    }
}
