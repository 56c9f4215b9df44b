//! The figures of an activity: where its units are, per SKU and shard. Pure data.

use std::collections::BTreeMap;

use crate::protocol::SkuId;
use crate::stock::calls::{SHARDS, ShardId};
use crate::store::sql::mysql::ReserveBooks;

/// Where one SKU's units are in one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardFigures {
    /// Units loaded, units taken subtracted.
    pub loaded: i64,
    /// Free units.
    pub free: i64,
    /// Units that left it, less units that came.
    pub moved_out: i64,
    /// Units of marks that SQL has no order of yet.
    pub reserved: i64,
    /// Units of marks whose order is recorded and not settled.
    pub recorded: i64,
    /// Units of marks whose order stands.
    pub sold: i64,
    /// Units of marks whose order is over, which the ledger gives back.
    pub going_back: i64,
    /// Free units beyond what all that leaves, once the marks and loads found missing are there; below zero: too few.
    pub off: i64,
}

impl ShardFigures {
    fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.loaded, other.loaded),
            (&mut self.free, other.free),
            (&mut self.moved_out, other.moved_out),
            (&mut self.reserved, other.reserved),
            (&mut self.recorded, other.recorded),
            (&mut self.sold, other.sold),
            (&mut self.going_back, other.going_back),
            (&mut self.off, other.off),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }

    /// Free units beyond what loads, moves and marks leave.
    pub(super) const fn excess(&self) -> i64 {
        let ordered = self.recorded.saturating_add(self.sold);
        let held = self.reserved.saturating_add(ordered).saturating_add(self.going_back);
        self.free.saturating_sub(self.loaded).saturating_add(self.moved_out).saturating_add(held)
    }
}

/// Where one SKU's units are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkuFigures {
    /// By shard.
    pub shards: [ShardFigures; SHARDS],
    /// Units that no settled order holds, as SQL counts them: those of recorded orders among them.
    pub sql_available: i64,
    /// Units that settled orders hold, as SQL counts them.
    pub sql_sold: i64,
    /// Units loaded by SQL's loads.
    pub sql_loaded: i64,
    /// What is held back from Redis, where anything is.
    pub reserve: Option<ReserveBooks>,
}

impl SkuFigures {
    /// Over all shards.
    pub fn total(&self) -> ShardFigures {
        let mut total = ShardFigures::default();
        self.shards.iter().for_each(|shard| total.add(shard));
        total
    }

    pub(super) fn shard(&mut self, shard: ShardId) -> Option<&mut ShardFigures> {
        self.shards.get_mut(shard.index())
    }
}

/// By SKU.
pub(super) type Figures = BTreeMap<SkuId, SkuFigures>;

/// What differs and is on its way: no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// Marks whose record writers have not settled yet.
    pub backlog: u64,
    /// Marks of orders that are over, which the ledger is about to give back.
    pub ledger: u64,
    /// Marks that are about to be told how far their orders have come.
    pub states: u64,
    /// Shares of loads whose shard's answer is not recorded yet.
    pub loads: u64,
    /// Units that left a shard and are not brought in yet.
    pub moving: u64,
}
