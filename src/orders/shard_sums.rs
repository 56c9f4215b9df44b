//! The live check of each shard's own sum: free = loaded + in − out − live marks, whatever sells meanwhile.
//!
//! A chore of every writer, beside `conservation`: every function of a shard keeps the sum, and it is read at one
//! (generation, seq), so it is an equality under any traffic, for too few units as for too many, where the other look has only
//! a bound. It reads marks, so it goes through activities and shards a little at a time: at most one fiftieth of the time,
//! a second for all of a small sale, a minute for a million orders. What is off is looked at again every second.
//!
//! It corrects nothing: the log says what to type.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::chore::{Chore, Next};
use super::context::Context;
use crate::protocol::{ActivityId, SkuId};
use crate::stock::calls::ShardId;
use crate::store::StoreError;
use crate::store::redis::ShardBooks;
use crate::store::sql::mysql::ActivityState;

/// Reading in one step, but for the shard that it comes upon.
const STEP_BUDGET: Duration = Duration::from_millis(20);
/// So many times as long as it read it rests, but for so long at most.
const REST: u32 = 49;
const REST_MAX: Duration = Duration::from_secs(30);
/// Shards that are looked at every time because they are off.
const SUSPECTS_MAX: usize = 64;
/// Between two lines of the log about the same thing.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// SKUs that a line names.
const NAMED_MAX: usize = 5;

/// One shard's part of an activity.
type Place = (ActivityId, ShardId);
/// By SKU: how many units too many there are, or too few; none that is right.
type Off = BTreeMap<SkuId, i64>;

/// Looks, and tells.
#[derive(Debug, Default)]
pub(super) struct ShardSums {
    /// What is left of this pass.
    queue: VecDeque<Place>,
    off: BTreeMap<Place, Off>,
    rest: Duration,
    /// What was told last, and when.
    told: Option<(Vec<Place>, Instant)>,
}

impl Chore for ShardSums {
    const WHAT: &'static str = "adding up each shard's units";
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        context.stop.pause(std::mem::take(&mut self.rest)).await;
        let began = Instant::now();
        let suspects: Vec<Place> = self.off.keys().copied().collect();
        for place in suspects {
            self.learn(place, look(context, place).await?);
        }
        if self.queue.is_empty() {
            self.queue = places(context).await?;
        }
        while let Some(place) = self.queue.pop_front() {
            let found = look(context, place).await?;
            // Once more: nothing is to be told by mistake.
            if !found.is_empty() && found == look(context, place).await? {
                self.learn(place, found);
            }
            if began.elapsed() >= STEP_BUDGET || context.stop.is_asked() {
                break;
            }
        }
        self.rest = began.elapsed().saturating_mul(REST).min(REST_MAX);
        let units = self.off.values().flat_map(BTreeMap::values);
        let off = units.fold(0_u64, |sum, off| sum.saturating_add(off.unsigned_abs()));
        context.counters.set_shard_units_off(off);
        self.tell(Instant::now());
        Ok(Next::Later)
    }
}

impl ShardSums {
    fn learn(&mut self, place: Place, found: Off) {
        if found.is_empty() {
            self.off.remove(&place);
        } else if self.off.len() < SUSPECTS_MAX || self.off.contains_key(&place) {
            self.off.insert(place, found);
        }
    }

    fn tell(&mut self, now: Instant) {
        let places: Vec<Place> = self.off.keys().copied().collect();
        let is_known = self
            .told
            .as_ref()
            .is_some_and(|(told, at)| *told == places && now.saturating_duration_since(*at) < TELL_EVERY);
        if places.is_empty() {
            if self.told.take().is_some() {
                tracing::info!("the units of every shard add up again");
            }
        } else if !is_known {
            let named = self.off.iter().flat_map(|((activity, shard), off)| {
                off.iter().map(move |(sku, units)| {
                    format!("{activity}/{sku} in shard {}: {units:+}", shard.number())
                })
            });
            tracing::error!(
                shards = places.len(),
                off = named.take(NAMED_MAX).collect::<Vec<_>>().join(", "),
                "a shard's units do not add up (+: free twice, the SKU may oversell; -: lost to the sale); \
                 type: rushgate reconcile"
            );
            self.told = Some((places, now));
        }
    }
}

/// Every shard of every activity that Redis holds.
async fn places(context: &Context) -> Result<VecDeque<Place>, StoreError> {
    let states = context.sql.activity_states().await?;
    let is_held = |state| matches!(state, ActivityState::Loaded | ActivityState::Ending);
    // Of one that was taken over nothing counts that Redis may still hold.
    let taken = context.sql.taken_over().await?;
    let held = states.into_iter().filter(|(id, state)| is_held(*state) && !taken.contains(id));
    Ok(held.map(|(id, _)| id).flat_map(|id| ShardId::all().map(move |shard| (id, shard))).collect())
}

async fn look(context: &Context, (activity, shard): Place) -> Result<Off, StoreError> {
    let books = context.redis.books(shard, activity).await?;
    Ok(books.as_ref().map(off).unwrap_or_default())
}

/// What the sum of each SKU is off by.
fn off(books: &ShardBooks) -> Off {
    let mut off = Off::new();
    let mut add = |sku: SkuId, units: i64| {
        let sum = off.entry(sku).or_default();
        *sum = sum.saturating_add(units);
    };
    let sum = |units: &BTreeMap<ShardId, u64>| {
        let sum = units.values().fold(0_u64, |sum, some| sum.saturating_add(*some));
        i64::try_from(sum).unwrap_or(i64::MAX)
    };
    for (sku, known) in &books.skus {
        add(*sku, known.free.saturating_add(sum(&known.out)).saturating_sub(sum(&known.brought_in)));
    }
    for (sku, amount) in books.loads.iter().flat_map(|load| &load.amounts) {
        add(*sku, amount.saturating_neg());
    }
    for mark in books.marks.values().filter(|mark| mark.state.is_live()) {
        add(mark.sku.sku, mark.quantity.into());
    }
    off.retain(|_, units| *units != 0);
    off
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use std::collections::HashMap;

    use super::*;
    use crate::protocol::{OrderNumber, OrderState, SkuKey, UserId};
    use crate::stock::calls::{Gen, Mark};
    use crate::store::redis::{AppliedLoad, SkuBooks};

    fn mark(quantity: u16, state: OrderState) -> Mark {
        let sku = SkuKey { activity: ActivityId(1), sku: SkuId(1) };
        Mark { order: OrderNumber(1), sku, quantity, attempt: 1, state, pay_by_ms: 0 }
    }

    fn books(free: i64) -> ShardBooks {
        let (one, other) = (ShardId::ALL[1], ShardId::ALL[2]);
        let sku =
            SkuBooks { free, out: BTreeMap::from([(one, 3)]), brought_in: BTreeMap::from([(other, 5)]) };
        ShardBooks {
            shard: ShardId::ALL[0],
            generation: Gen(1),
            mended: 0,
            skus: BTreeMap::from([(SkuId(1), sku)]),
            loads: vec![AppliedLoad { id: "a".to_owned(), amounts: vec![(SkuId(1), 100)] }],
            marks: HashMap::from([
                (UserId(1), mark(2, OrderState::Reserved)),
                (UserId(2), mark(1, OrderState::Paid)),
                (UserId(3), mark(7, OrderState::Closed)),
            ]),
        }
    }

    #[test]
    fn loads_moves_and_live_marks_leave_what_is_free() {
        // 100 + 5 - 3 - 3 units of live marks.
        assert_eq!(off(&books(99)), Off::new());
        assert_eq!(off(&books(98)), Off::from([(SkuId(1), -1)]));
        assert_eq!(off(&books(101)), Off::from([(SkuId(1), 2)]));
    }

    #[test]
    fn what_is_right_again_is_off_no_more() {
        let (mut sums, place) = (ShardSums::default(), (ActivityId(1), ShardId::ALL[0]));
        sums.learn(place, Off::from([(SkuId(1), -1)]));
        assert_eq!(sums.off.len(), 1);
        sums.learn(place, Off::new());
        assert_eq!(sums.off.len(), 0);
    }
}
