//! Where a BUY that passed every other rung goes, shard by shard: to the store, to the reserve that is sold instead, or
//! nowhere while nothing answers.
//!
//! One word, written by the store when something changes, read by every connection that has a BUY for the queue. A
//! reader that sees it a moment late sends one BUY into a queue where it is told BUSY a little later.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::stock::calls::{SHARDS, ShardId};

/// Where a BUY goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Into the queue of its shard.
    Store,
    /// Into the queue of its shard of the reserve, which is in the database.
    Database,
    /// Nowhere: it is told BUSY at once, and nothing is done.
    Shut,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Gate {
    /// Bit n: shard n is not sold from the store. Bit 16 + n: it is sold from the reserve.
    ways: AtomicU32,
    /// The reserve cannot be sold either.
    is_reserve_shut: AtomicBool,
    /// Some activity was taken over: it is sold from the reserve, whatever else is.
    has_taken: AtomicBool,
}

/// Of all shards.
pub type ShardMask = u16;

const fn bit(shard: ShardId) -> u32 {
    1 << shard.number()
}

impl Gate {
    /// Where BUYs of users of this shard go now.
    pub fn way(&self, shard: ShardId) -> Way {
        let ways = self.ways.load(Ordering::Relaxed);
        match (ways & bit(shard) != 0, (ways >> SHARDS) & bit(shard) != 0) {
            (false, _) => Way::Store,
            (true, true) => Way::Database,
            (true, false) => Way::Shut,
        }
    }

    /// From now on these shards are shut, those are sold from the reserve, and the others from the store.
    pub fn set(&self, shut: ShardMask, database: ShardMask) {
        let ways = u32::from(shut | database) | (u32::from(database) << SHARDS);
        self.ways.store(ways, Ordering::Relaxed);
    }

    /// Where BUYs go of an activity that was taken over: Redis is nothing to it.
    pub fn way_of_taken(&self) -> Way {
        if self.is_reserve_shut.load(Ordering::Relaxed) { Way::Shut } else { Way::Database }
    }

    /// Whether the database is known not to answer.
    pub fn shut_reserve(&self, is_shut: bool) {
        self.is_reserve_shut.store(is_shut, Ordering::Relaxed);
    }

    /// Whether any activity is taken over.
    pub fn set_taken(&self, has_taken: bool) {
        self.has_taken.store(has_taken, Ordering::Relaxed);
    }

    /// Whether anything is sold from the reserve.
    pub fn uses_database(&self) -> bool {
        self.has_taken.load(Ordering::Relaxed) || self.ways.load(Ordering::Relaxed) >> SHARDS != 0
    }

    /// Whether all are.
    pub fn is_all_database(&self) -> bool {
        self.ways.load(Ordering::Relaxed) >> SHARDS == u32::from(ShardMask::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_shut_by_itself() {
        let gate = Gate::default();
        assert!(ShardId::all().all(|shard| gate.way(shard) == Way::Store));
        gate.set(0b1000_0000_0000_0001, 0b110);
        let of = |way: Way| -> Vec<u8> {
            ShardId::all().filter(|shard| gate.way(*shard) == way).map(ShardId::number).collect()
        };
        assert_eq!((of(Way::Shut), of(Way::Database), of(Way::Store).len()), (vec![0, 15], vec![1, 2], 12));
        assert!(gate.uses_database() && !gate.is_all_database());
        gate.set(0, u16::MAX);
        assert!(of(Way::Database).len() == 16 && gate.is_all_database());
        gate.set(0, 0);
        assert!(ShardId::all().all(|shard| gate.way(shard) == Way::Store));
    }
}
