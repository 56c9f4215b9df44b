//! What a writer counts, and what a process counts that has its tasks of payments, as metrics.

use std::fmt::Write as _;

use super::metric_text::single;
use crate::orders::{Count, Counters};
use crate::stock::calls::ShardId;

/// Name and meaning of a counter.
const fn described(count: Count) -> (&'static str, &'static str) {
    match count {
        Count::EntriesRead => ("entries_read", "Feed entries taken"),
        Count::EntriesClaimed => ("entries_claimed", "Feed entries taken over, or read again"),
        Count::EntriesAcknowledged => ("entries_acknowledged", "Feed entries acknowledged"),
        Count::EntriesPutBack => ("entries_put_back", "Feed entries given up because of a recovery"),
        Count::RowsSettled => ("rows_settled", "Orders inserted"),
        Count::RowsRecorded => ("rows_recorded", "Orders inserted in state RECORDED, to be settled later"),
        Count::RowsBackfilled => ("rows_backfilled", "Recorded orders that were settled"),
        Count::BackfillsFailed => ("backfills_failed", "Recorded orders that could not be settled"),
        Count::OrdersModeChanges => {
            ("orders_mode_changes", "Times that orders.mode became another for this writer")
        }
        Count::RowsKnown => ("rows_known", "Reservations whose order was there already"),
        Count::Batches => ("batches", "Settling transactions committed"),
        Count::Superseded => ("superseded", "Orders failed because another one of the user stands"),
        Count::Collisions => ("collisions", "Order numbers that two users have"),
        Count::DeadLetters => ("dead_letters", "Entries and reservations that could not be settled"),
        Count::Releases => ("releases", "Orders that are over, told to their shard"),
        Count::MarksTold => ("marks_told", "Order states told to their shard by the outbox"),
        Count::Loads => ("loads", "Shares of loads done"),
        Count::Preheats => ("preheats", "Activities preheated"),
        Count::Archived => ("archived", "Activities archived"),
        Count::EntriesTrimmed => ("entries_trimmed", "Feed entries trimmed"),
        Count::RateLimitedUs => ("rate_limited_us", "Microseconds that batches waited for the rate limit"),
        Count::NoticesPaid => ("notices_paid", "Payment notices that paid their order"),
        Count::NoticesParked => ("notices_parked", "Payment notices whose order was not settled yet"),
        Count::NoticesRefundDue => ("notices_refund_due", "Payment notices whose money is to be given back"),
        Count::NoticesWrongAmount => ("notices_wrong_amount", "Of these, because the amount was another"),
        Count::NoticesUnknownOrder => {
            ("notices_unknown_order", "Of these, because there cannot be such an order")
        }
        Count::NoticesRepeated => ("notices_repeated", "Payment notices that were told before"),
        Count::NoticesConflicting => {
            ("notices_conflicting", "Payment notices with the id of another payment")
        }
        Count::NoticesForged => {
            ("notices_forged", "Payment notices that were not signed with a key in force")
        }
        Count::NoticesStale => {
            ("notices_stale", "Payment notices that were signed too long ago, or in the future")
        }
        Count::NoticesMalformed => ("notices_malformed", "Signed payment notices that were not understood"),
        Count::NoticesUnanswered => {
            ("notices_unanswered", "Payment notices that were not kept, or nobody knows")
        }
        Count::Unparked => ("unparked", "Parked payments that found their order, or did not in time"),
        Count::TimedOut => ("timed_out", "Orders closed because they were not paid in time"),
        Count::AskedPaid => ("asked_paid", "Overdue orders that the payment centre says are paid"),
        Count::AskedPaidUnmatched => {
            ("asked_paid_unmatched", "Of these, that wait on because what was paid does not pay them here")
        }
        Count::ClosesRefused => {
            ("closes_refused", "Overdue orders that could not be closed, the books of their SKU being wrong")
        }
        Count::PaymentsStuck => {
            ("payments_stuck", "Looks at parked payments that could not be judged; they are dead letters")
        }
        Count::AskedUnknown => (
            "asked_unknown",
            "Answers and silences of the payment centre about orders of which nothing is known",
        ),
        Count::Cancelled => ("cancelled", "Orders closed because their users cancelled them"),
        Count::AsksFailed => ("asks_failed", "Questions that the payment centre did not answer"),
        Count::StockLooks => ("stock_looks", "Looks whether all units are there"),
        Count::StockLooksStill => ("stock_looks_still", "Of these, while nothing moved: an equality"),
    }
}

pub(super) fn put_counts(text: &mut String, counters: &Counters) {
    for count in Count::ALL {
        let (name, help) = described(count);
        single(text, &format!("rushgate_writer_{name}_total"), "counter", help, counters.get(count));
    }
}

/// How the switch `orders.mode` is obeyed, and what there is to be settled because of it.
pub(super) fn put_recording(text: &mut String, counters: &Counters) {
    let (records_all, activities) = counters.orders_modes();
    for (name, help, value) in [
        (
            "rushgate_writer_records_orders",
            "1 while orders are recorded and not settled, but for activities with a mode of their own",
            records_all.into(),
        ),
        ("rushgate_writer_recording_activities", "Activities whose own orders.mode is to record", activities),
        (
            "rushgate_recorded_orders",
            "Orders that are recorded and not settled, by the database",
            counters.recorded(),
        ),
    ] {
        single(text, name, "gauge", help, value);
    }
}

pub(super) fn put_payment_lags(text: &mut String, counters: &Counters) {
    for (name, help, value) in [
        (
            "rushgate_overdue_wait_ms",
            "How long the order has been due that waits longest for the payment centre to be asked",
            counters.overdue_ms(),
        ),
        (
            "rushgate_overdue_unknown_ms",
            "How long an order has been overdue of which the payment centre knew nothing, greatest of the last minutes",
            counters.unknown_ms(),
        ),
        (
            "rushgate_restock_lag_ms",
            "From the pay-by of an order that timed out to when its units were for sale again, greatest of the last minute",
            counters.restock_ms(),
        ),
        (
            "rushgate_refunds_due",
            "Payments that are to be given back (payments.state = 3), by the database",
            counters.refunds_due(),
        ),
    ] {
        single(text, name, "gauge", help, value);
    }
}

pub(super) fn put_lags(text: &mut String, counters: &Counters) {
    let lags = || ShardId::all().map(|shard| (shard, counters.lag(shard)));
    per_shard(
        text,
        ("rushgate_feed_entries_pending", "Entries given to a writer, not acknowledged"),
        lags().map(|(shard, lag)| (shard, lag.entries_pending)),
        u64::saturating_add,
    );
    per_shard(
        text,
        ("rushgate_feed_entries_undelivered", "Entries given to no writer yet"),
        lags().map(|(shard, lag)| (shard, lag.entries_undelivered)),
        u64::saturating_add,
    );
    per_shard(
        text,
        ("rushgate_feed_oldest_age_ms", "Age of the oldest entry that is not acknowledged"),
        lags().map(|(shard, lag)| (shard, lag.oldest_age_ms)),
        u64::max,
    );
}

/// A gauge of each shard, and `…_all` over all of them.
fn per_shard(
    text: &mut String,
    (name, help): (&str, &str),
    values: impl Iterator<Item = (ShardId, u64)>,
    over_all: impl Fn(u64, u64) -> u64,
) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    let mut all = 0;
    for (shard, value) in values {
        all = over_all(all, value);
        let _ = writeln!(text, "{name}{{shard=\"{}\"}} {value}", shard.number());
    }
    single(text, &format!("{name}_all"), "gauge", &format!("{help}, over all shards"), all);
}

/// What a serving process counts of payments, under the names that a writer gives them.
pub(super) fn put_payments(text: &mut String, counters: &Counters) {
    for count in Count::ALL.into_iter().filter(|count| count.is_of_payments()) {
        let (name, help) = described(count);
        single(text, &format!("rushgate_writer_{name}_total"), "counter", help, counters.get(count));
    }
    put_payment_lags(text, counters);
}
