//! The units of one shard while it is rebuilt: loaded, held, moved. Signed, because what is known at first may not
//! add up; what is written in the end does. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::{ActivityId, SkuKey};
use crate::stock::calls::{ShardId, SkuCounters};

/// Cumulative units per (SKU, from, to), the greatest that any side tells.
#[derive(Debug, Default)]
pub(super) struct Pairs(BTreeMap<(SkuKey, ShardId, ShardId), u64>);

impl Pairs {
    /// Takes in both directions of one shard's counters.
    pub(super) fn know(&mut self, shard: ShardId, counters: &SkuCounters) {
        for (target, units) in &counters.out {
            self.raise(counters.sku, shard, *target, *units);
        }
        for (source, units) in &counters.brought_in {
            self.raise(counters.sku, *source, shard, *units);
        }
    }

    fn raise(&mut self, sku: SkuKey, from: ShardId, to: ShardId, units: u64) {
        let known = self.0.entry((sku, from, to)).or_default();
        *known = (*known).max(units);
    }
}

#[derive(Debug, Default)]
struct Units {
    loaded: i64,
    held: i64,
    out: BTreeMap<ShardId, u64>,
    brought_in: BTreeMap<ShardId, u64>,
}

impl Units {
    /// The formula: free = loaded + in − out − live marks.
    fn free(&self) -> i64 {
        let sum = |units: &BTreeMap<ShardId, u64>| {
            let sum = units.values().copied().fold(0, u64::saturating_add);
            i64::try_from(sum).unwrap_or(i64::MAX)
        };
        self.loaded
            .saturating_add(sum(&self.brought_in))
            .saturating_sub(sum(&self.out))
            .saturating_sub(self.held)
    }
}

/// By SKU.
#[derive(Debug, Default)]
pub(super) struct ShardUnits {
    skus: BTreeMap<SkuKey, Units>,
    /// Those that were ever loaded here: others have no stock, which is not zero stock.
    loaded: BTreeSet<SkuKey>,
}

impl ShardUnits {
    /// What survived of the moves; free is recomputed.
    pub(super) fn know_pairs(&mut self, counters: &SkuCounters) {
        self.loaded.insert(counters.sku);
        let units = self.skus.entry(counters.sku).or_default();
        units.out = counters.out.iter().copied().collect();
        units.brought_in = counters.brought_in.iter().copied().collect();
    }

    pub(super) fn tell_pairs(&self, shard: ShardId, pairs: &mut Pairs) {
        for (sku, units) in &self.skus {
            units.out.iter().for_each(|(target, count)| pairs.raise(*sku, shard, *target, *count));
            units.brought_in.iter().for_each(|(source, count)| pairs.raise(*sku, *source, shard, *count));
        }
    }

    /// Takes over what the pairs say of this shard.
    pub(super) fn level(&mut self, shard: ShardId, pairs: &Pairs) {
        for ((sku, from, to), count) in &pairs.0 {
            if *from == shard {
                self.skus.entry(*sku).or_default().out.insert(*to, *count);
            } else if *to == shard {
                self.skus.entry(*sku).or_default().brought_in.insert(*from, *count);
            }
        }
    }

    pub(super) fn load(&mut self, sku: SkuKey, amount: i64) {
        self.loaded.insert(sku);
        let units = self.skus.entry(sku).or_default();
        units.loaded = units.loaded.saturating_add(amount);
    }

    pub(super) fn hold(&mut self, sku: SkuKey, quantity: u16) {
        let units = self.skus.entry(sku).or_default();
        units.held = units.held.saturating_add(i64::from(quantity));
    }

    pub(super) fn release(&mut self, sku: SkuKey, quantity: u16) {
        let units = self.skus.entry(sku).or_default();
        units.held = units.held.saturating_sub(i64::from(quantity));
    }

    pub(super) fn move_out(&mut self, sku: SkuKey, target: ShardId, count: u64) {
        let moved = self.skus.entry(sku).or_default().out.entry(target).or_default();
        *moved = moved.saturating_add(count);
    }

    pub(super) fn bring_in(&mut self, sku: SkuKey, source: ShardId, count: u64) {
        let moved = self.skus.entry(sku).or_default().brought_in.entry(source).or_default();
        *moved = moved.saturating_add(count);
    }

    /// Below zero where more is held than there is.
    pub(super) fn free(&self, sku: SkuKey) -> i64 {
        self.skus.get(&sku).map_or(0, Units::free)
    }

    pub(super) fn lacking(&self) -> impl Iterator<Item = SkuKey> {
        self.skus.iter().filter(|(_, units)| units.free() < 0).map(|(sku, _)| *sku)
    }

    pub(super) fn forget(&mut self, is_over: impl Fn(ActivityId) -> bool) {
        self.skus.retain(|sku, _| !is_over(sku.activity));
        self.loaded.retain(|sku| !is_over(sku.activity));
    }

    /// As they are written; nothing is below zero.
    pub(super) fn counters(&self) -> impl Iterator<Item = SkuCounters> {
        self.skus.iter().filter(|(sku, _)| self.loaded.contains(sku)).map(|(sku, units)| SkuCounters {
            sku: *sku,
            free: u32::try_from(units.free().max(0)).unwrap_or(u32::MAX),
            out: units
                .out
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(peer, count)| (*peer, *count))
                .collect(),
            brought_in: units
                .brought_in
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(peer, count)| (*peer, *count))
                .collect(),
        })
    }
}
