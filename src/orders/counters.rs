//! What a writer counts, and how far behind each shard's feed is. Relaxed atomics: written by its tasks, read by
//! whoever is asked for metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::payments::Peak;
use crate::stock::calls::{SHARDS, ShardId};
use crate::store::redis::Backlog;

/// As long as the longest time between two questions about one order may be.
const UNKNOWN_WINDOW: Duration = Duration::from_secs(600);
const RESTOCK_WINDOW: Duration = Duration::from_secs(60);

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
    /// Orders inserted in state RECORDED, to be settled later.
    RowsRecorded,
    /// Recorded orders that were settled.
    RowsBackfilled,
    /// Recorded orders that could not be settled.
    BackfillsFailed,
    /// Times that what writers make of reservations became another: settled or recorded.
    OrdersModeChanges,
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
    /// Payment notices that paid their order.
    NoticesPaid,
    /// Payment notices whose order was not settled yet.
    NoticesParked,
    /// Payment notices whose money is to be given back.
    NoticesRefundDue,
    /// Of these, because the amount was another.
    NoticesWrongAmount,
    /// Of these, because there cannot be such an order.
    NoticesUnknownOrder,
    /// Payment notices that were told before.
    NoticesRepeated,
    /// Payment notices with the id of another payment.
    NoticesConflicting,
    /// Payment notices that were not signed with a key in force.
    NoticesForged,
    /// Payment notices that were signed too long ago, or in the future.
    NoticesStale,
    /// Signed payment notices that were not understood.
    NoticesMalformed,
    /// Payment notices that were not kept, or nobody knows.
    NoticesUnanswered,
    /// Parked payments that found their order, or did not in time.
    Unparked,
    /// Orders closed because they were not paid in time.
    TimedOut,
    /// Overdue orders that the payment centre says are paid.
    AskedPaid,
    /// Of these, that wait on because what was paid does not pay them here.
    AskedPaidUnmatched,
    /// Overdue orders that could not be closed, because the books of their SKU are wrong.
    ClosesRefused,
    /// Parked payments that could not be judged, each time they were looked at.
    PaymentsStuck,
    /// Answers and silences of the payment centre about orders of which nothing is known.
    AskedUnknown,
    /// Questions that the payment centre did not answer.
    AsksFailed,
    /// Orders closed because their users cancelled them.
    Cancelled,
    /// Looks whether all units are there.
    StockLooks,
    /// Of these, while nothing moved, so that it was an equality.
    StockLooksStill,
}

impl Count {
    /// Every one of them.
    pub const ALL: [Self; 43] = [
        Self::EntriesRead,
        Self::EntriesClaimed,
        Self::EntriesAcknowledged,
        Self::EntriesPutBack,
        Self::RowsSettled,
        Self::RowsRecorded,
        Self::RowsBackfilled,
        Self::BackfillsFailed,
        Self::OrdersModeChanges,
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
        Self::NoticesPaid,
        Self::NoticesParked,
        Self::NoticesRefundDue,
        Self::NoticesWrongAmount,
        Self::NoticesUnknownOrder,
        Self::NoticesRepeated,
        Self::NoticesConflicting,
        Self::NoticesForged,
        Self::NoticesStale,
        Self::NoticesMalformed,
        Self::NoticesUnanswered,
        Self::Unparked,
        Self::TimedOut,
        Self::AskedPaid,
        Self::AskedPaidUnmatched,
        Self::ClosesRefused,
        Self::PaymentsStuck,
        Self::AskedUnknown,
        Self::AsksFailed,
        Self::Cancelled,
        Self::StockLooks,
        Self::StockLooksStill,
    ];

    /// Whether it counts payments, or what comes of orders that are not paid.
    pub const fn is_of_payments(self) -> bool {
        self as usize >= Self::NoticesPaid as usize && self as usize <= Self::AsksFailed as usize
    }

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
    /// How long the order has been due that waits longest for the payment centre to be asked.
    overdue_ms: AtomicU64,
    unknown_ms: Peak,
    restock_ms: Peak,
    refunds_due: AtomicU64,
    /// Units that are certainly too many or too few.
    units_off: AtomicU64,
    shard_units_off: AtomicU64,
    /// Whether all orders are recorded, and activities whose own are.
    records_all: AtomicBool,
    recording_activities: AtomicU64,
    recorded: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            lags: std::array::from_fn(|_| Lag::default()),
            redis_answers: AtomicBool::new(true),
            sql_answers: AtomicBool::new(true),
            overdue_ms: AtomicU64::new(0),
            unknown_ms: Peak::over(UNKNOWN_WINDOW),
            restock_ms: Peak::over(RESTOCK_WINDOW),
            refunds_due: AtomicU64::new(0),
            units_off: AtomicU64::new(0),
            shard_units_off: AtomicU64::new(0),
            records_all: AtomicBool::new(false),
            recording_activities: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
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

    /// For how long an order has been due that waits for the payment centre to be asked about it; 0: none waits.
    pub fn overdue_ms(&self) -> u64 {
        self.overdue_ms.load(Ordering::Relaxed)
    }

    /// For how long an order has been overdue of which the payment centre knew nothing, in the last minutes.
    pub fn unknown_ms(&self) -> u64 {
        self.unknown_ms.read(Instant::now())
    }

    /// The longest time from an order's pay-by to when its units were for sale again, in the last minute or two.
    pub fn restock_ms(&self) -> u64 {
        self.restock_ms.read(Instant::now())
    }

    /// How many payments are to be given back, at the last look: whoever found that out, and whether he lived to tell.
    pub fn refunds_due(&self) -> u64 {
        self.refunds_due.load(Ordering::Relaxed)
    }

    pub(super) fn set_refunds_due(&self, count: u64) {
        self.refunds_due.store(count, Ordering::Relaxed);
    }

    /// Units that are certainly too many or too few, over all SKUs.
    pub fn units_off(&self) -> u64 {
        // Two looks at the same units.
        let [all, in_shards] =
            [&self.units_off, &self.shard_units_off].map(|off| off.load(Ordering::Relaxed));
        all.max(in_shards)
    }

    pub(super) fn set_units_off(&self, units: u64) {
        self.units_off.store(units, Ordering::Relaxed);
    }

    pub(super) fn set_shard_units_off(&self, units: u64) {
        self.shard_units_off.store(units, Ordering::Relaxed);
    }

    /// Whether orders are recorded, not settled: of all activities without a mode of their own, and of how many that have
    /// one.
    pub fn orders_modes(&self) -> (bool, u64) {
        (self.records_all.load(Ordering::Relaxed), self.recording_activities.load(Ordering::Relaxed))
    }

    pub(super) fn set_orders_modes(&self, records_all: bool, activities: u64) {
        self.records_all.store(records_all, Ordering::Relaxed);
        self.recording_activities.store(activities, Ordering::Relaxed);
    }

    /// Orders that are recorded and not settled, at the last look.
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    pub(super) fn set_recorded(&self, orders: u64) {
        self.recorded.store(orders, Ordering::Relaxed);
    }

    pub(super) fn set_overdue(&self, lag_ms: u64) {
        self.overdue_ms.store(lag_ms, Ordering::Relaxed);
    }

    pub(super) fn note_unknown(&self, overdue_ms: u64) {
        self.unknown_ms.note(overdue_ms, Instant::now());
    }

    pub(super) fn note_restock(&self, lag_ms: u64) {
        self.restock_ms.note(lag_ms, Instant::now());
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
