//! What a writer counts, and how far behind each shard's feed is. Relaxed atomics: written by its tasks, read by
//! whoever is asked for metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::stock::calls::{SHARDS, ShardId};
use crate::store::redis::Backlog;

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Feed entries taken.
    EntriesRead,
    /// Of these, taken over from a writer that left them, or read again.
    EntriesClaimed,
    /// Feed entries acknowledged.
    EntriesAcknowledged,
    /// Feed entries given up because a recovery came in between, to be read again.
    EntriesPutBack,
    /// Orders inserted.
    RowsSettled,
    /// Reservations whose order was there already.
    RowsKnown,
    /// Transactions committed.
    Batches,
    /// Reservations that failed because another order of the user stands.
    Superseded,
    /// Order numbers that two users have.
    Collisions,
    /// Entries and reservations that could not be settled.
    DeadLetters,
    /// Units' marks given back by the ledger.
    Releases,
    /// States told to Redis by the outbox.
    MarksTold,
    /// Shares of loads done.
    Loads,
    /// Activities preheated.
    Preheats,
    /// Activities archived.
    Archived,
    /// Feed entries trimmed.
    EntriesTrimmed,
    /// Microseconds that batches waited for the rate limit.
    RateLimitedUs,
}

impl Count {
    /// Every one of them.
    pub const ALL: [Self; 17] = [
        Self::EntriesRead,
        Self::EntriesClaimed,
        Self::EntriesAcknowledged,
        Self::EntriesPutBack,
        Self::RowsSettled,
        Self::RowsKnown,
        Self::Batches,
        Self::Superseded,
        Self::Collisions,
        Self::DeadLetters,
        Self::Releases,
        Self::MarksTold,
        Self::Loads,
        Self::Preheats,
        Self::Archived,
        Self::EntriesTrimmed,
        Self::RateLimitedUs,
    ];

    const fn index(self) -> usize {
        self as usize
    }
}

/// How far behind one shard's feed is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardLag {
    /// Delivered to some writer, not acknowledged.
    pub entries_pending: u64,
    /// Delivered to nobody yet.
    pub entries_undelivered: u64,
    /// Age of the oldest of them by Redis's clock; 0 when there is none.
    pub oldest_age_ms: u64,
}

#[derive(Debug, Default)]
struct Lag {
    pending: AtomicU64,
    undelivered: AtomicU64,
    age_ms: AtomicU64,
}

/// All counters of one writer.
#[derive(Debug)]
pub struct Counters {
    counts: [AtomicU64; Count::ALL.len()],
    lags: [Lag; SHARDS],
    redis_answers: AtomicBool,
    sql_answers: AtomicBool,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            lags: std::array::from_fn(|_| Lag::default()),
            redis_answers: AtomicBool::new(true),
            sql_answers: AtomicBool::new(true),
        }
    }
}

impl Counters {
    /// How much was counted since the start.
    pub fn get(&self, count: Count) -> u64 {
        self.counts.get(count.index()).map_or(0, |slot| slot.load(Ordering::Relaxed))
    }

    /// How far behind a shard's feed was at the last look.
    pub fn lag(&self, shard: ShardId) -> ShardLag {
        self.lags.get(shard.index()).map_or_else(ShardLag::default, |lag| ShardLag {
            entries_pending: lag.pending.load(Ordering::Relaxed),
            entries_undelivered: lag.undelivered.load(Ordering::Relaxed),
            oldest_age_ms: lag.age_ms.load(Ordering::Relaxed),
        })
    }

    /// Whether Redis answered at the last look.
    pub fn redis_answers(&self) -> bool {
        self.redis_answers.load(Ordering::Relaxed)
    }

    /// Whether the database answered at the last look.
    pub fn sql_answers(&self) -> bool {
        self.sql_answers.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: Count, more: u64) {
        if let Some(slot) = self.counts.get(count.index()) {
            slot.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(super) fn add_len(&self, count: Count, more: usize) {
        self.add(count, u64::try_from(more).unwrap_or(u64::MAX));
    }

    pub(super) fn set_lag(&self, shard: ShardId, backlog: Backlog, now_ms: u64) {
        if let Some(lag) = self.lags.get(shard.index()) {
            lag.pending.store(backlog.entries_pending, Ordering::Relaxed);
            lag.undelivered.store(backlog.entries_undelivered, Ordering::Relaxed);
            let age_ms = backlog.oldest_at_ms.map_or(0, |at_ms| now_ms.saturating_sub(at_ms));
            lag.age_ms.store(age_ms, Ordering::Relaxed);
        }
    }

    pub(super) fn set_redis_answers(&self, answers: bool) {
        self.redis_answers.store(answers, Ordering::Relaxed);
    }

    pub(super) fn set_sql_answers(&self, answers: bool) {
        self.sql_answers.store(answers, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_a_place_of_its_own() {
        let counters = Counters::default();
        for (nth, count) in (1..).zip(Count::ALL) {
            counters.add(count, nth);
        }
        for (nth, count) in (1..).zip(Count::ALL) {
            assert_eq!(counters.get(count), nth, "{count:?}");
        }
    }
}
