//! How failures that come again and again are told: the first at once, then a count every few seconds, then the
//! end.
//!
//! While a disk is full every transaction fails, a hundred in a second; a log of each would fill the next disk.
//! Used by whoever tries again: a store's writer, a gateway's tasks. Pure: time is an argument, and what to say is returned, not said.

use std::time::{Duration, Instant};

/// At most one line about failures in this time.
const PAUSE: Duration = Duration::from_secs(5);

/// What is to be said of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// Nothing: it is counted.
    Nothing,
    /// The failure itself.
    First,
    /// That there were so many since the last line.
    Summary(u64),
}

/// Counts the failures of one thing that is tried again.
#[derive(Debug, Default)]
pub struct Failures {
    /// Since it last went well.
    running: u64,
    /// Since the last line.
    unsaid: u64,
    said_at: Option<Instant>,
    /// Whether any of those running was told, so that their end is told too.
    told: bool,
}

impl Failures {
    /// It failed.
    pub fn failed(&mut self, now: Instant) -> Say {
        self.running = self.running.saturating_add(1);
        self.unsaid = self.unsaid.saturating_add(1);
        // Also across a success, so that a store that fails now and then does not fill the log either.
        if self.said_at.is_some_and(|said_at| now.saturating_duration_since(said_at) < PAUSE) {
            return Say::Nothing;
        }
        self.said_at = Some(now);
        self.told = true;
        match std::mem::take(&mut self.unsaid) {
            1 => Say::First,
            count => Say::Summary(count),
        }
    }

    /// It went well. After failures that were told: how many there were in a row.
    pub fn succeeded(&mut self) -> Option<u64> {
        let failures = std::mem::take(&mut self.running);
        std::mem::take(&mut self.told).then_some(failures)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;

    #[test]
    fn the_first_is_told_then_a_count_every_five_seconds_then_the_end() {
        let start = Instant::now();
        let mut failures = Failures::default();
        assert_eq!(failures.succeeded(), None);
        // A full disk for 12 s, 100 failures in each.
        let said: Vec<_> = (0..1200)
            .map(|nth| (nth, failures.failed(start + Duration::from_millis(nth * 10))))
            .filter(|(_, say)| *say != Say::Nothing)
            .collect();
        assert_eq!(said, [(0, Say::First), (500, Say::Summary(500)), (1000, Say::Summary(500))]);
        assert_eq!(failures.succeeded(), Some(1200));
        assert_eq!(failures.succeeded(), None);
    }

    #[test]
    fn a_store_that_fails_every_other_time_is_no_louder() {
        let start = Instant::now();
        let mut failures = Failures::default();
        let (mut failed, mut recovered) = (Vec::new(), 0);
        for nth in 0..1000 {
            let say = failures.failed(start + Duration::from_millis(nth * 10));
            failed.extend(Some(say).filter(|say| *say != Say::Nothing));
            recovered += usize::from(failures.succeeded().is_some());
        }
        assert_eq!(failed, [Say::First, Say::Summary(500)]);
        assert_eq!(recovered, 2);
    }

    #[test]
    fn a_later_failure_is_a_first_one_again() {
        let start = Instant::now();
        let mut failures = Failures::default();
        assert_eq!(failures.failed(start), Say::First);
        assert_eq!(failures.succeeded(), Some(1));
        assert_eq!(failures.failed(start + PAUSE), Say::First);
        assert_eq!(failures.succeeded(), Some(1));
    }
}
