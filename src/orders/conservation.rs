//! The live check of conservation: every few seconds, whether every SKU's units are all there.
//!
//! A chore of every writer; it reads counters alone, whatever was sold. SQL's `available` units are those that no order
//! holds. In Redis they are free, moving, in the backlog (reserved, not settled yet), or about to be given back by the
//! ledger. While the shards stand still and nothing is in the backlog that is an equality, up to what is being given
//! back. While they move, the shards are read between two looks at SQL, and can only have fewer free units than SQL had
//! available ones: more means that units are sold twice.
//!
//! One look that finds something may have met a release under way, so it is told only when several in a row find it. It
//! corrects nothing: the log says what to type.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::chore::{Chore, Next};
use super::context::Context;
use super::counters::Count;
use crate::protocol::SkuKey;
use crate::stock::calls::{Gen, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::redis::Backlog;
use crate::store::sql::mysql::StockDue;

/// Looks in a row that have to find an SKU off.
const LOOKS_MIN: u32 = 3;
/// Between two lines of the log about the same thing.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// SKUs that a line names.
const NAMED_MAX: usize = 5;

/// How the shards stood.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    positions: Vec<(Gen, u64)>,
    /// Free and moving units.
    units: BTreeMap<SkuKey, i64>,
}

/// What the SKUs have been found to be.
#[derive(Debug, Default)]
struct Streaks {
    /// By how much, too many above zero, and how many times in a row.
    off: BTreeMap<SkuKey, (i64, u32)>,
}

impl Streaks {
    /// Takes in what a look found of all SKUs that it could judge.
    fn learn(&mut self, found: &BTreeMap<SkuKey, i64>) {
        for (sku, off) in found {
            let streak = self.off.entry(*sku).or_default();
            let goes_on = streak.0.signum() == off.signum();
            *streak = (*off, if goes_on { streak.1.saturating_add(1) } else { 1 });
        }
        self.off.retain(|_, (off, _)| *off != 0);
    }

    /// Those that are certainly off.
    fn certain(&self) -> Vec<(SkuKey, i64)> {
        let certain = self.off.iter().filter(|(_, (_, looks))| *looks >= LOOKS_MIN);
        certain.map(|(sku, (off, _))| (*sku, *off)).collect()
    }
}

/// How many units too many there are, or too few, of each SKU that can be judged. `due` was read before `units`, `later`
/// after them.
fn judge(
    due: &BTreeMap<SkuKey, StockDue>,
    later: &BTreeMap<SkuKey, StockDue>,
    units: &BTreeMap<SkuKey, i64>,
    is_still: bool,
) -> BTreeMap<SkuKey, i64> {
    let mut found = BTreeMap::new();
    for (sku, due) in due.iter().filter(|(_, due)| !due.is_loading) {
        let free = units.get(sku).copied().unwrap_or_default();
        let Some(later) = later.get(sku).filter(|later| !later.is_loading) else { continue };
        let more = free.saturating_sub(due.available.max(later.available));
        let fewer = due.available.saturating_sub(due.owed).saturating_sub(free);
        if more > 0 {
            found.insert(*sku, more);
        } else if is_still {
            found.insert(*sku, fewer.max(0).saturating_neg());
        }
    }
    found
}

/// Looks, and tells.
#[derive(Debug, Default)]
pub(super) struct Conservation {
    streaks: Streaks,
    /// What was told last, and when.
    told: Option<(Vec<SkuKey>, Instant)>,
}

impl Chore for Conservation {
    const WHAT: &'static str = "looking whether all units are there";
    const INTERVAL: Duration = Duration::from_secs(3);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let before = look(context).await?;
        let is_drained = is_drained(context).await?;
        let (generation, due) = context.sql.stock_due().await?;
        let after = look(context).await?;
        let (_, later) = context.sql.stock_due().await?;
        // A recovery is under way: nothing is certain.
        if after.positions.iter().any(|(known, _)| *known != generation) {
            return Ok(Next::Later);
        }
        let is_still = is_drained && before == after;
        self.streaks.learn(&judge(&due, &later, &after.units, is_still));
        self.streaks.off.retain(|sku, _| due.contains_key(sku));
        let counters = &context.counters;
        counters.add(Count::StockLooks, 1);
        counters.add(Count::StockLooksStill, u64::from(is_still));
        let certain = self.streaks.certain();
        let off = certain.iter().fold(0_u64, |sum, (_, off)| sum.saturating_add(off.unsigned_abs()));
        counters.set_units_off(off);
        self.tell(&certain, Instant::now());
        Ok(Next::Later)
    }
}

impl Conservation {
    fn tell(&mut self, certain: &[(SkuKey, i64)], now: Instant) {
        let skus: Vec<_> = certain.iter().map(|(sku, _)| *sku).collect();
        let is_known = self
            .told
            .as_ref()
            .is_some_and(|(told, at)| *told == skus && now.saturating_duration_since(*at) < TELL_EVERY);
        if skus.is_empty() {
            if self.told.take().is_some() {
                tracing::info!("all units are there again");
            }
        } else if !is_known {
            let named: Vec<_> =
                certain.iter().take(NAMED_MAX).map(|(sku, off)| format!("{sku}: {off:+}")).collect();
            tracing::error!(
                skus = skus.len(),
                off = named.join(", "),
                "units do not add up (+: free twice, the SKU may oversell; -: lost to the sale); \
                 type: rushgate reconcile"
            );
            self.told = Some((skus, now));
        }
    }
}

/// Free and moving units by SKU. What left one shard and came to another counts once, whenever each of them is read.
async fn look(context: &Context) -> Result<Seen, StoreError> {
    let mut seen = Seen::default();
    for shard in ShardId::ALL {
        let (position, counters) = context.redis.counters(shard).await?;
        seen.positions.push(position);
        for one in counters {
            let sum = |units: &[(ShardId, u64)]| {
                units.iter().fold(0_u64, |sum, (_, some)| sum.saturating_add(*some))
            };
            let signed = |units| i64::try_from(units).unwrap_or(i64::MAX);
            let moving = signed(sum(&one.out)).saturating_sub(signed(sum(&one.brought_in)));
            let units = seen.units.entry(one.sku).or_default();
            *units = units.saturating_add(i64::from(one.free)).saturating_add(moving);
        }
    }
    debug_assert_eq!(seen.positions.len(), SHARDS, "one of each shard");
    Ok(seen)
}

async fn is_drained(context: &Context) -> Result<bool, StoreError> {
    for shard in ShardId::ALL {
        let Backlog { entries_pending, entries_undelivered, .. } = context.redis.backlog(shard).await?;
        if (entries_pending, entries_undelivered) != (0, 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;
    use crate::protocol::{ActivityId, SkuId};

    const SKU: SkuKey = SkuKey { activity: ActivityId(1), sku: SkuId(1) };

    fn found(available: i64, owed: i64, free: i64, is_still: bool) -> Option<i64> {
        let due = BTreeMap::from([(SKU, StockDue { available, owed, is_loading: false })]);
        judge(&due, &due, &BTreeMap::from([(SKU, free)]), is_still).get(&SKU).copied()
    }

    #[test]
    fn while_nothing_moves_it_is_an_equality_up_to_what_is_being_given_back() {
        assert_eq!(found(10, 0, 10, true), Some(0));
        assert_eq!(found(10, 0, 9, true), Some(-1));
        assert_eq!(found(10, 0, 11, true), Some(1));
        // Two are owed: given back, half, or not yet.
        assert_eq!([8, 9, 10].map(|free| found(10, 2, free, true)), [Some(0); 3]);
        assert_eq!([7, 11].map(|free| found(10, 2, free, true)), [Some(-1), Some(1)]);
    }

    #[test]
    fn while_it_sells_only_too_many_units_are_certain() {
        assert_eq!(found(10, 0, 4, false), None);
        assert_eq!(found(10, 0, 12, false), Some(2));
        let due = BTreeMap::from([(SKU, StockDue { available: 10, owed: 0, is_loading: true })]);
        assert_eq!(judge(&due, &due, &BTreeMap::new(), true), BTreeMap::new());
    }

    #[test]
    fn what_several_looks_in_a_row_find_is_certain_and_a_right_one_ends_it() {
        let mut streaks = Streaks::default();
        let off = |off| BTreeMap::from([(SKU, off)]);
        streaks.learn(&off(1));
        streaks.learn(&off(-1));
        streaks.learn(&off(-2));
        assert_eq!(streaks.certain(), []);
        // Not judged: neither here nor there.
        streaks.learn(&BTreeMap::new());
        streaks.learn(&off(-1));
        assert_eq!(streaks.certain(), [(SKU, -1)]);
        streaks.learn(&off(0));
        assert_eq!(streaks.certain(), []);
        streaks.learn(&off(-1));
        assert_eq!(streaks.certain(), []);
    }
}
