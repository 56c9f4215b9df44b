//! What one thread counts. Only requests planned after the warm-up are in it, but for the count of all that were written.

use hdrhistogram::Histogram;

use super::pace::Pace;
use crate::output::Failure;
use crate::tally::{ByStatus, Reasons, histogram};

/// Ages of requests that were never sent are recorded in at most so many steps.
const UNSENT_STEPS_MAX: u64 = 1_000_000;

/// See the fields.
#[derive(Debug)]
pub(super) struct Book {
    /// From the planned time to the answer.
    pub(super) latency_ns: Histogram<u64>,
    /// From writing to the answer; only kept in the open loop, in the closed loop it is the same.
    pub(super) service_ns: Histogram<u64>,
    pub(super) by_status: ByStatus,
    /// Requests written.
    pub(super) sent: u64,
    /// The same with those of the warm-up.
    pub(super) written: u64,
    /// Requests written that nobody answered: their connection ended, or the time.
    pub(super) errors: u64,
    /// Requests that came due and were not written: every place in flight was taken.
    pub(super) unsent: u64,
    /// Frames that the gateway sent unasked.
    pub(super) pushes: u64,
    /// Connections that ended, by why.
    pub(super) lost: Reasons,
    /// When the last answer came.
    pub(super) last_answer_ns: u64,
}

impl Book {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            latency_ns: histogram()?,
            service_ns: histogram()?,
            by_status: ByStatus::default(),
            sent: 0,
            written: 0,
            errors: 0,
            unsent: 0,
            pushes: 0,
            lost: Reasons::default(),
            last_answer_ns: 0,
        })
    }

    /// So many answers that came together, to requests that were planned and written together.
    pub(super) fn answered(
        &mut self,
        status: u16,
        planned_ns: u64,
        sent_ns: u64,
        now_ns: u64,
        count: usize,
        pace: &Pace,
    ) {
        if !pace.is_measured(planned_ns) {
            return;
        }
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.by_status.add(status, count);
        self.latency_ns.saturating_record_n(now_ns.saturating_sub(planned_ns), count);
        if pace.is_open_loop() {
            self.service_ns.saturating_record_n(now_ns.saturating_sub(sent_ns), count);
        }
        self.last_answer_ns = now_ns;
    }

    /// A request that nobody will answer; its age stands for its latency, which would have been longer.
    pub(super) fn unanswered(&mut self, planned_ns: u64, now_ns: u64, pace: &Pace) {
        if pace.is_measured(planned_ns) {
            self.errors = self.errors.saturating_add(1);
            self.latency_ns.saturating_record(now_ns.saturating_sub(planned_ns));
        }
    }

    /// What the open loop planned and could not send: leaving it out would make an overloaded gateway look quick.
    pub(super) fn never_sent(&mut self, pace: Pace, now_ns: u64) {
        if !pace.is_open_loop() {
            return;
        }
        let unsent = || Unsent { pace, now_ns }.filter(|planned_ns| pace.is_measured(*planned_ns));
        let count = unsent().fold(0_u64, |count, _| count.saturating_add(1));
        self.unsent = self.unsent.saturating_add(count);
        // Above the steps each that is recorded stands for its neighbours.
        let weight = count.div_ceil(UNSENT_STEPS_MAX).max(1);
        for planned_ns in unsent().step_by(usize::try_from(weight).unwrap_or(usize::MAX)) {
            self.latency_ns.saturating_record_n(now_ns.saturating_sub(planned_ns), weight);
        }
    }
}

/// The planned times of everything that is due.
#[derive(Debug)]
struct Unsent {
    pace: Pace,
    now_ns: u64,
}

impl Iterator for Unsent {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let planned_ns = self.pace.due(self.now_ns)?;
        self.pace.advance();
        Some(planned_ns)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_never_sent_counts_at_its_age_however_much_it_is() {
        for rate in [1_000, 3_000_000] {
            let pace = Pace::new(Some(rate), 0, 1, Duration::from_secs(1), Duration::from_secs(1));
            let mut book = Book::new().map_err(|_| "no histogram").unwrap();
            book.never_sent(pace, 2_000_000_000);
            assert_eq!((book.unsent, book.latency_ns.len()), (rate, rate), "the warm-up is not in it");
            let median_ns = book.latency_ns.value_at_quantile(0.5);
            assert!((495_000_000..=505_000_000).contains(&median_ns), "{median_ns} at {rate}/s");
        }
    }

    #[test]
    fn a_closed_loop_plans_nothing_that_it_does_not_send() {
        let pace = Pace::new(None, 0, 1, Duration::ZERO, Duration::from_secs(1));
        let mut book = Book::new().map_err(|_| "no histogram").unwrap();
        book.never_sent(pace, 500_000_000);
        assert_eq!(book.unsent, 0);
        book.unanswered(0, 5_000_000, &pace);
        book.answered(0x1001, 1_000, 1_000, 2_000, 3, &pace);
        assert_eq!((book.errors, book.by_status.total(), book.latency_ns.len()), (1, 3, 4));
    }
}
