//! Where a BUY that passed every other rung goes, shard by shard: to the store, or nowhere while it is known not to answer.
//!
//! One word, written by the store when something changes, read by every connection that has a BUY for the queue. A
//! reader that sees it a moment late sends one BUY into a queue where it is told BUSY a little later.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::stock::calls::ShardId;

/// Where a BUY goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Into the queue of its shard.
    Store,
    /// Nowhere: it is told BUSY at once, and nothing is done.
    Shut,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Gate {
    /// Bit n: shard n is shut.
    shut: AtomicU32,
}

/// Of all shards.
pub type ShardMask = u16;

const fn bit(shard: ShardId) -> u32 {
    1 << shard.number()
}

impl Gate {
    /// Where BUYs of users of this shard go now.
    pub fn way(&self, shard: ShardId) -> Way {
        if self.shut.load(Ordering::Relaxed) & bit(shard) == 0 { Way::Store } else { Way::Shut }
    }

    /// From now on these shards are shut, and no others.
    pub fn set(&self, shut: ShardMask) {
        self.shut.store(shut.into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_shut_by_itself() {
        let gate = Gate::default();
        assert!(ShardId::all().all(|shard| gate.way(shard) == Way::Store));
        gate.set(0b1000_0000_0000_0001);
        let shut: Vec<u8> =
            ShardId::all().filter(|shard| gate.way(*shard) == Way::Shut).map(ShardId::number).collect();
        assert_eq!(shut, [0, 15]);
        gate.set(0);
        assert!(ShardId::all().all(|shard| gate.way(shard) == Way::Store));
    }
}
