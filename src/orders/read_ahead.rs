//! How many entries to ask each feed for, so that what is held stays a few batches, whether an entry has one row or
//! hundreds. Pure.

use crate::stock::calls::SHARDS;

/// Entries of one feed in one read.
const COUNT_MAX: usize = 256;
/// Batches that one read is to bring.
const BATCHES: usize = 2;

#[derive(Debug)]
pub(super) struct ReadAhead {
    rows_wanted: usize,
    /// While nothing with rows was seen.
    first_count: usize,
    /// Of the recent past: halved now and then.
    entries: usize,
    rows: usize,
}

impl ReadAhead {
    /// A writer that is held back by a rate reads no more than a second's worth: the rest is for others to take.
    pub(super) fn new(batch_rows_max: usize, rows_per_s: u32) -> Self {
        let rows_wanted = batch_rows_max.saturating_mul(BATCHES).max(1);
        let limit = usize::try_from(rows_per_s).unwrap_or(usize::MAX);
        let (rows_wanted, first_count) =
            if limit == 0 { (rows_wanted, 8) } else { (rows_wanted.min(limit), 1) };
        Self { rows_wanted, first_count, entries: 0, rows: 0 }
    }

    /// What a read brought.
    pub(super) fn saw(&mut self, entries: usize, rows: usize) {
        self.entries = self.entries.saturating_add(entries);
        self.rows = self.rows.saturating_add(rows);
        while self.entries > 4096 {
            self.entries /= 2;
            self.rows /= 2;
        }
    }

    /// Entries to ask each feed for.
    pub(super) fn count(&self) -> usize {
        if self.rows == 0 {
            return self.first_count;
        }
        let rows_per_feed = self.rows_wanted.div_ceil(SHARDS);
        rows_per_feed.saturating_mul(self.entries).div_ceil(self.rows).clamp(1, COUNT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_for_a_few_batches_whatever_an_entry_holds() {
        let mut ahead = ReadAhead::new(512, 0);
        assert_eq!(ahead.count(), 8);
        ahead.saw(1000, 1000);
        assert_eq!(ahead.count(), 64, "64 entries of 16 feeds are two batches");
        for _ in 0..200 {
            ahead.saw(100, 25_600);
        }
        assert_eq!(ahead.count(), 1);
        for _ in 0..2000 {
            ahead.saw(100, 1);
        }
        assert_eq!(ahead.count(), COUNT_MAX);
    }

    #[test]
    fn a_writer_with_a_rate_takes_no_more_than_a_second_of_it() {
        let mut ahead = ReadAhead::new(500, 160);
        ahead.saw(1000, 1000);
        assert_eq!(ahead.count(), 10);
    }
}
