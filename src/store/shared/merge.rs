//! What a recovery makes of everything that is known of the closed shards (rule 11, steps 5 and 6).
//!
//! Pure computation, run by the leader between reading and writing: no I/O, no clock. What survived in Redis, what
//! live gateways handed in and what SQL holds become the content that each closed shard is written with. Nothing
//! that was promised and is known to anybody is left out; a promise for which no unit can be found any more is
//! named in [`Merged::broken`], never silently dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::units::{Pairs, ShardUnits};
use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Mark, ShardId, SkuCounters};
use crate::store::redis::{ActivityContent, ActivityPhase, AppliedLoad, ShardContent};

/// An order as SQL has it, or the promise of one that SQL has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SqlOrder {
    pub(super) user: UserId,
    pub(super) mark: Mark,
    /// Whether its units go back to Redis, done or not: it counts as released.
    pub(super) is_in_ledger: bool,
}

/// One shard's share of an addition or a removal of stock, as SQL has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SqlLoad {
    pub(super) shard: ShardId,
    pub(super) activity: ActivityId,
    /// The id under which Redis knows it.
    pub(super) id: String,
    /// Units per SKU; below zero for a take.
    pub(super) amounts: Vec<(SkuId, i64)>,
    /// A take whose amount SQL does not know yet counts as the shard says.
    pub(super) is_undone_take: bool,
}

/// What the leader has read.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// What is left in the closed shards.
    pub(super) surviving: Vec<(ShardId, ShardContent)>,
    /// Counters of the open shards, as of when they took over the new generation.
    pub(super) open: Vec<(ShardId, Vec<SkuCounters>)>,
    /// Marks that live gateways know, of the closed shards.
    pub(super) handed_in: Vec<(UserId, Mark)>,
    pub(super) orders: Vec<SqlOrder>,
    pub(super) loads: Vec<SqlLoad>,
    /// Activities that are no longer live in SQL.
    pub(super) phases: BTreeMap<ActivityId, ActivityPhase>,
}

/// What the closed shards are written with.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) contents: Vec<(ShardId, ShardContent)>,
    /// Promises that no unit was left for; they are in no content.
    pub(super) broken: Vec<(UserId, Mark)>,
    /// Units that settled orders hold beyond what was ever loaded, by SKU: a sign of damage outside these rules.
    pub(super) missing_units: BTreeMap<SkuKey, u64>,
}

/// Orders that SQL has finished, or whose number is in the ledger: they hold no unit, whatever Redis or a gateway says
/// of them. With the user, because two may collide under a number.
type Over = HashMap<(UserId, OrderNumber), OrderState>;

#[derive(Default)]
struct Shard {
    epoch: String,
    marks: HashMap<(ActivityId, UserId), Mark>,
    loads: BTreeMap<(ActivityId, String), BTreeMap<SkuId, i64>>,
    phases: BTreeMap<ActivityId, ActivityPhase>,
    units: ShardUnits,
}

impl Shard {
    fn surviving(content: ShardContent, over: &Over) -> Self {
        let mut shard = Self { epoch: content.epoch, ..Self::default() };
        for activity in content.activities {
            shard.phases.insert(activity.id, activity.phase);
            for load in activity.loads {
                shard.loads.insert((activity.id, load.id), load.amounts.into_iter().collect());
            }
            for counters in activity.counters {
                shard.units.know_pairs(&counters);
            }
            for (user, mark) in activity.marks {
                shard.merge(user, mark, over);
            }
        }
        shard
    }

    /// The higher attempt wins, then the one that did not fail, then the state further along; between two reservations
    /// under different numbers, which no store ever held at once, the earlier number.
    fn merge(&mut self, user: UserId, mut mark: Mark, over: &Over) {
        if let Some(state) = over.get(&(user, mark.order)).filter(|_| mark.state.is_live()) {
            mark.state = *state;
        }
        let newer = |known: &Mark| {
            // Of one order the failure is what came last; of two, the other one stands.
            let is_one = mark.order == known.order;
            let far =
                |mark: &Mark| (mark.attempt, is_one || mark.state != OrderState::Failed, mark.state.rank());
            far(&mark) > far(known) || far(&mark) == far(known) && mark.order < known.order
        };
        self.marks
            .entry((mark.sku.activity, user))
            .and_modify(|known| {
                if newer(known) {
                    *known = mark;
                }
            })
            .or_insert(mark);
    }

    fn count(&mut self) {
        for ((activity, _), amounts) in &self.loads {
            for (sku, amount) in amounts {
                self.units.load(SkuKey { activity: *activity, sku: *sku }, *amount);
            }
        }
        for mark in self.marks.values().filter(|mark| mark.state.is_live()) {
            self.units.hold(mark.sku, mark.quantity);
        }
    }
}

/// Computes the contents.
pub(super) fn merge(known: Known) -> Merged {
    let over = over(&known.orders);
    let surviving = known.surviving.into_iter();
    let mut shards: BTreeMap<ShardId, Shard> =
        surviving.map(|(shard, content)| (shard, Shard::surviving(content, &over))).collect();
    // A FAILED row makes no mark: nothing stands in the way of the user's next order.
    let orders = known.orders.iter().filter(|order| order.mark.state != OrderState::Failed);
    let orders = orders.map(|order| (order.user, order.mark));
    for (user, mark) in known.handed_in.into_iter().chain(orders) {
        if let Some(shard) = shards.get_mut(&ShardId::of(user)) {
            shard.merge(user, mark, &over);
        }
    }
    for load in known.loads {
        let Some(shard) = shards.get_mut(&load.shard) else { continue };
        if !load.is_undone_take {
            shard.loads.insert((load.activity, load.id), load.amounts.into_iter().collect());
        }
    }
    for shard in shards.values_mut() {
        bring_to_phase(shard, &known.phases);
        shard.count();
    }
    let mut pairs = Pairs::default();
    for (shard, counters) in &known.open {
        for counters in counters {
            pairs.know(*shard, counters);
        }
    }
    level_pairs(&mut shards, &mut pairs);
    cover(&mut shards);
    let mut merged = Merged::default();
    for shard in shards.values_mut() {
        give_up(shard, &mut merged);
    }
    cover(&mut shards);
    merged.contents = shards.into_iter().map(|(shard, content)| (shard, content_of(content))).collect();
    merged
}

fn over(orders: &[SqlOrder]) -> Over {
    let state_of = |order: &SqlOrder| match order.mark.state {
        state if !state.is_live() => Some(state),
        _ if order.is_in_ledger => Some(OrderState::Closed),
        _ => None,
    };
    orders.iter().filter_map(|order| Some(((order.user, order.mark.order), state_of(order)?))).collect()
}

/// SQL decides whether an activity is over; an archived one leaves nothing but its tombstone.
fn bring_to_phase(shard: &mut Shard, phases: &BTreeMap<ActivityId, ActivityPhase>) {
    let named = shard.loads.keys().map(|(activity, _)| *activity).collect::<BTreeSet<_>>();
    let mut known: BTreeSet<ActivityId> = shard.phases.keys().copied().collect();
    known.extend(named);
    known.extend(shard.marks.keys().map(|(activity, _)| *activity));
    known.extend(phases.iter().filter(|(_, phase)| **phase == ActivityPhase::Archived).map(|(id, _)| *id));
    shard.phases = known
        .into_iter()
        .map(|activity| (activity, phases.get(&activity).copied().unwrap_or(ActivityPhase::Live)))
        .collect();
    let archived = |activity: ActivityId| phases.get(&activity) == Some(&ActivityPhase::Archived);
    shard.marks.retain(|(activity, _), _| !archived(*activity));
    shard.loads.retain(|(activity, _), _| !archived(*activity));
    shard.units.forget(archived);
}

/// Of every pair, both sides become the greater one: what one side forgot the other remembers.
fn level_pairs(shards: &mut BTreeMap<ShardId, Shard>, pairs: &mut Pairs) {
    for (id, shard) in shards.iter() {
        shard.units.tell_pairs(*id, pairs);
    }
    for (id, shard) in shards.iter_mut() {
        shard.units.level(*id, pairs);
    }
}

/// A shard that lacks units gets them, as a move, from recovered shards that have some free.
fn cover(shards: &mut BTreeMap<ShardId, Shard>) {
    let lacking: Vec<(ShardId, SkuKey)> =
        shards.iter().flat_map(|(id, shard)| shard.units.lacking().map(|sku| (*id, sku))).collect();
    for (target, sku) in lacking {
        for source in shards.keys().copied().filter(|source| *source != target).collect::<Vec<_>>() {
            let lacks = shards.get(&target).map_or(0, |shard| shard.units.free(sku).saturating_neg().max(0));
            let spare = shards.get(&source).map_or(0, |shard| shard.units.free(sku).max(0));
            let units = u64::try_from(lacks.min(spare)).unwrap_or(0);
            if units == 0 {
                continue;
            }
            if let Some(shard) = shards.get_mut(&source) {
                shard.units.move_out(sku, target, units);
            }
            if let Some(shard) = shards.get_mut(&target) {
                shard.units.bring_in(sku, source, units);
            }
        }
    }
}

/// Where nobody has a unit to spare, reservations that SQL does not know are given up, the latest number first.
fn give_up(shard: &mut Shard, merged: &mut Merged) {
    for sku in shard.units.lacking().collect::<Vec<_>>() {
        let mut open: Vec<(UserId, Mark)> = shard
            .marks
            .iter()
            .filter(|(_, mark)| mark.sku == sku && mark.state == OrderState::Reserved)
            .map(|((_, user), mark)| (*user, *mark))
            .collect();
        open.sort_unstable_by_key(|(_, mark)| mark.order);
        while shard.units.free(sku) < 0 {
            let Some((user, mark)) = open.pop() else { break };
            shard.marks.remove(&(sku.activity, user));
            shard.units.release(sku, mark.quantity);
            merged.broken.push((user, mark));
        }
        let missing = u64::try_from(shard.units.free(sku).saturating_neg()).unwrap_or(0);
        if missing > 0 {
            let total = merged.missing_units.entry(sku).or_default();
            *total = total.saturating_add(missing);
        }
    }
}

fn content_of(shard: Shard) -> ShardContent {
    let mut activities: BTreeMap<ActivityId, ActivityContent> = shard
        .phases
        .iter()
        .map(|(id, phase)| {
            let empty = ActivityContent {
                id: *id,
                phase: *phase,
                counters: Vec::new(),
                loads: Vec::new(),
                marks: Vec::new(),
            };
            (*id, empty)
        })
        .collect();
    for counters in shard.units.counters() {
        if let Some(activity) = activities.get_mut(&counters.sku.activity) {
            activity.counters.push(counters);
        }
    }
    for ((activity, id), amounts) in shard.loads {
        if let Some(activity) = activities.get_mut(&activity) {
            activity.loads.push(AppliedLoad { id, amounts: amounts.into_iter().collect() });
        }
    }
    for ((activity, user), mark) in shard.marks {
        if let Some(activity) = activities.get_mut(&activity) {
            activity.marks.push((user, mark));
        }
    }
    for activity in activities.values_mut() {
        activity.marks.sort_unstable_by_key(|(user, _)| *user);
    }
    ShardContent { epoch: shard.epoch, activities: activities.into_values().collect() }
}

#[cfg(test)]
pub(crate) mod rebuilt;
#[cfg(test)]
mod tests;
