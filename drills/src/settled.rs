//! Waiting until nothing is under way any more: shards open, feeds drained, nothing owed by SQL, nothing in transit;
//! and where orders are paid, each paid or closed.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::Result;
use crate::redis_side::{self, ShardSide};
use crate::shop::Shop;
use crate::sql_side::{self, Owed};

const POLL: Duration = Duration::from_millis(40);
/// Mark state of a reservation that no writer has settled.
const RESERVED: u8 = 1;

/// Waits; what is still not done at the deadline, in words.
pub(crate) async fn settled(shop: &Shop, within: Duration) -> Result<Vec<String>> {
    let begun = Instant::now();
    // Twice in a row: what was read was not read at one instant.
    let mut quiet_before = false;
    loop {
        let unfinished = unfinished(shop).await;
        if begun.elapsed() > within {
            return unfinished;
        }
        let is_quiet = unfinished.is_ok_and(|unfinished| unfinished.is_empty());
        if is_quiet && quiet_before {
            return Ok(Vec::new());
        }
        quiet_before = is_quiet;
        sleep(POLL).await;
    }
}

async fn unfinished(shop: &Shop) -> Result<Vec<String>> {
    let owed = sql_side::owed(&shop.database).await?;
    let mut unfinished = Vec::new();
    if owed != Owed::default() {
        unfinished.push(format!("SQL still owes {owed:?}"));
    }
    if let Some(till) = &shop.till {
        unfinished.extend(till.unfinished(&shop.database).await?);
    }
    let shards = redis_side::read(shop).await?;
    for (nth, shard) in shards.iter().enumerate() {
        unfinished.extend(left_in(nth, shard));
    }
    for (from, shard) in shards.iter().enumerate() {
        for (sku, counters) in &shard.counters {
            for (to, units) in &counters.out {
                let target = shards.get(*to).and_then(|target| target.counters.get(sku));
                let arrived = target.and_then(|target| target.brought_in.get(&from)).copied().unwrap_or(0);
                if arrived != *units {
                    unfinished.push(format!(
                        "SKU {sku}: {units} went from shard {from} to {to}, {arrived} came in"
                    ));
                }
            }
        }
    }
    Ok(unfinished)
}

fn left_in(nth: usize, shard: &ShardSide) -> Vec<String> {
    let reserved = shard.marks.values().filter(|mark| mark.state == RESERVED).count();
    let checks = [
        (!shard.is_open, "is closed".to_owned()),
        (shard.pending > 0, format!("has {} entries that no writer acknowledged", shard.pending)),
        (!shard.is_delivered, "has entries that no writer has read".to_owned()),
        (reserved > 0, format!("has {reserved} reservations that are not settled")),
    ];
    checks.into_iter().filter_map(|(is_so, what)| is_so.then(|| format!("shard {nth} {what}"))).collect()
}
