//! What a writer process tells of itself on its admin port.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::probe::{put_keeper, single};
use crate::admin::http::Probe;
use crate::orders::{Count, Counters};
use crate::stock::calls::ShardId;
use crate::store::shared::KeeperState;

/// The process's probe: it is asked from the start on, before there is a writer.
#[derive(Debug, Default)]
pub(super) struct WriterProbe {
    working: OnceLock<Working>,
    stopping: AtomicBool,
}

#[derive(Debug)]
struct Working {
    counters: Arc<Counters>,
    keeper: watch::Receiver<KeeperState>,
}

impl WriterProbe {
    /// The writer is there.
    pub(super) fn works(&self, counters: Arc<Counters>, keeper: watch::Receiver<KeeperState>) {
        let _ = self.working.set(Working { counters, keeper });
    }

    /// It takes nothing any more.
    pub(super) fn stops(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl Probe for WriterProbe {
    fn not_ready(&self) -> Vec<&'static str> {
        let Some(Working { counters, keeper }) = self.working.get() else { return vec!["starting"] };
        let reasons = [
            (self.stopping.load(Ordering::Relaxed), "stopping"),
            (!counters.redis_answers(), "redis does not answer"),
            (!counters.sql_answers(), "the database does not answer"),
        ];
        let reasons = reasons.into_iter().filter_map(|(is_so, reason)| is_so.then_some(reason));
        let keeper = *keeper.borrow();
        reasons.chain(keeper.not_ready()).collect()
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        if let Some(Working { counters, keeper }) = self.working.get() {
            put_counts(&mut text, counters);
            put_keeper(&mut text, *keeper.borrow());
            put_lags(&mut text, counters);
        }
        let ready = u64::from(self.not_ready().is_empty());
        single(&mut text, "rushgate_writer_ready", "gauge", "1 while it works", ready);
        text
    }
}

/// Name and meaning of a counter.
const fn described(count: Count) -> (&'static str, &'static str) {
    match count {
        Count::EntriesRead => ("entries_read", "Feed entries taken"),
        Count::EntriesClaimed => ("entries_claimed", "Feed entries taken over, or read again"),
        Count::EntriesAcknowledged => ("entries_acknowledged", "Feed entries acknowledged"),
        Count::EntriesPutBack => ("entries_put_back", "Feed entries given up because of a recovery"),
        Count::RowsSettled => ("rows_settled", "Orders inserted"),
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
    }
}

fn put_counts(text: &mut String, counters: &Counters) {
    for count in Count::ALL {
        let (name, help) = described(count);
        single(text, &format!("rushgate_writer_{name}_total"), "counter", help, counters.get(count));
    }
}

fn put_lags(text: &mut String, counters: &Counters) {
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
