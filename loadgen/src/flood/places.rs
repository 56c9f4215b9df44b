//! The places for requests in flight on one connection: which are free, and when the others were asked.
//!
//! Places are handled in runs, neighbours together: a gateway answers in the order it was asked more often than not, so
//! that whatever was read or is to be written is one run or two. A place's number plus one is its request id.

use std::collections::VecDeque;
use std::ops::Range;

use super::book::Book;
use super::pace::Pace;

/// Planned times of free places; no clock gets there.
const FREE: u64 = u64::MAX;

/// Places that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Run {
    pub(super) const fn end(self) -> usize {
        self.first.saturating_add(self.count)
    }

    pub(super) const fn range(self) -> Range<usize> {
        self.first..self.end()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Places {
    /// When each place's request was planned, or [`FREE`].
    planned_ns: Box<[u64]>,
    /// When each was written. Empty in the closed loop, where that is when it was planned.
    sent_ns: Box<[u64]>,
    /// Longest free first.
    free: VecDeque<Run>,
    free_count: usize,
}

impl Places {
    pub(super) fn new(depth: u16, is_open_loop: bool) -> Self {
        let all = Run { first: 0, count: usize::from(depth) };
        let times = |count: usize| vec![FREE; count].into_boxed_slice();
        Self {
            planned_ns: times(all.count),
            sent_ns: times(if is_open_loop { all.count } else { 0 }),
            free: VecDeque::from([all]),
            free_count: all.count,
        }
    }

    pub(super) const fn has_free(&self) -> bool {
        self.free_count > 0
    }

    pub(super) fn in_flight(&self) -> usize {
        self.planned_ns.len().saturating_sub(self.free_count)
    }

    /// Takes free places for requests that are planned and sent together: at most `most`, in one run.
    pub(super) fn take(&mut self, most: usize, planned_ns: u64, sent_ns: u64) -> Option<Run> {
        let longest_free = self.free.front_mut().filter(|_| most > 0)?;
        let run = Run { first: longest_free.first, count: longest_free.count.min(most) };
        if run.count == longest_free.count {
            self.free.pop_front();
        } else {
            *longest_free = Run { first: run.end(), count: longest_free.count.saturating_sub(run.count) };
        }
        self.free_count = self.free_count.saturating_sub(run.count);
        if let Some(times) = self.planned_ns.get_mut(run.range()) {
            times.fill(planned_ns);
        }
        if let Some(times) = self.sent_ns.get_mut(run.range()) {
            times.fill(sent_ns);
        }
        Some(run)
    }

    /// Books the answers to a run of requests and frees their places. `Err`: the place, and what comes after it in the
    /// run, had no request in flight.
    pub(super) fn answered(
        &mut self,
        run: Run,
        status: u16,
        now_ns: u64,
        pace: &Pace,
        book: &mut Book,
    ) -> Result<(), usize> {
        let planned = self.planned_ns.get_mut(run.range()).ok_or(run.first)?;
        let count = planned.iter().position(|planned_ns| *planned_ns == FREE).unwrap_or(run.count);
        let answered = Run { first: run.first, count };
        let (planned, _) = planned.split_at_mut(count);
        match self.sent_ns.get(answered.range()) {
            Some(sent) if pace.is_open_loop() => {
                for (planned_ns, sent_ns) in planned.iter().zip(sent) {
                    book.answered(status, *planned_ns, *sent_ns, now_ns, 1, pace);
                }
            }
            _ => {
                for together in planned.chunk_by(PartialEq::eq) {
                    let Some(planned_ns) = together.first() else { continue };
                    book.answered(status, *planned_ns, *planned_ns, now_ns, together.len(), pace);
                }
            }
        }
        planned.fill(FREE);
        self.free(answered);
        if count == run.count { Ok(()) } else { Err(answered.end()) }
    }

    fn free(&mut self, run: Run) {
        self.free_count = self.free_count.saturating_add(run.count);
        match self.free.back_mut() {
            Some(last) if last.end() == run.first => last.count = last.count.saturating_add(run.count),
            _ if run.count == 0 => {}
            _ => self.free.push_back(run),
        }
    }

    /// Nobody will answer what is in flight here, and nothing more is sent.
    pub(super) fn give_up(&mut self, now_ns: u64, pace: &Pace, book: &mut Book) {
        for planned_ns in self.planned_ns.iter_mut().filter(|planned_ns| **planned_ns != FREE) {
            book.unanswered(*planned_ns, now_ns, pace);
            *planned_ns = FREE;
        }
        self.free.clear();
        self.free_count = self.planned_ns.len();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::time::Duration;

    fn book() -> Book {
        Book::new().map_err(|_| "no histogram").unwrap()
    }

    const fn run(first: usize, count: usize) -> Run {
        Run { first, count }
    }

    #[test]
    fn what_is_answered_in_order_stays_one_run_and_what_is_not_is_found_again() {
        let pace = Pace::new(None, 0, 1, Duration::ZERO, Duration::from_secs(1));
        let (mut places, mut book) = (Places::new(8, false), book());
        assert_eq!(places.take(5, 10, 10), Some(run(0, 5)));
        assert_eq!(places.take(9, 20, 20), Some(run(5, 3)));
        assert_eq!((places.take(1, 30, 30), places.has_free(), places.in_flight()), (None, false, 8));
        for answered in [run(0, 2), run(2, 5), run(7, 1)] {
            places.answered(answered, 0, 50, &pace, &mut book).unwrap();
        }
        assert_eq!((places.take(8, 60, 60), places.in_flight()), (Some(run(0, 8)), 8));
        places.answered(run(3, 1), 0, 70, &pace, &mut book).unwrap();
        places.answered(run(1, 1), 0, 70, &pace, &mut book).unwrap();
        assert_eq!([places.take(8, 80, 80), places.take(8, 80, 80)], [Some(run(3, 1)), Some(run(1, 1))]);
        assert_eq!((book.by_status.total(), book.latency_ns.len(), book.latency_ns.max()), (10, 10, 40));
    }

    #[test]
    fn an_answer_to_nothing_is_told_and_those_before_it_count() {
        let pace = Pace::new(None, 0, 1, Duration::ZERO, Duration::from_secs(1));
        let (mut places, mut book) = (Places::new(4, false), book());
        places.take(2, 10, 10).unwrap();
        assert_eq!(places.answered(run(0, 3), 0, 50, &pace, &mut book), Err(2));
        assert_eq!(places.answered(run(0, 1), 0, 50, &pace, &mut book), Err(0), "answered before");
        assert_eq!(places.answered(run(4, 1), 0, 50, &pace, &mut book), Err(4), "no such place");
        assert_eq!(book.by_status.total(), 2);
    }

    #[test]
    fn the_open_loop_keeps_both_times_of_each() {
        let pace = Pace::new(Some(1_000), 0, 1, Duration::ZERO, Duration::from_secs(1));
        let (mut places, mut book) = (Places::new(4, true), book());
        for planned_ns in [100, 200, 300] {
            places.take(1, planned_ns, 400).unwrap();
        }
        places.answered(run(0, 2), 0, 1_000, &pace, &mut book).unwrap();
        assert_eq!((book.latency_ns.min(), book.latency_ns.max(), book.service_ns.max()), (800, 900, 600));
        places.give_up(2_000, &pace, &mut book);
        assert_eq!((book.errors, book.latency_ns.max(), places.in_flight()), (1, 1_700, 0));
    }
}
