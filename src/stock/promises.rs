//! What the engine remembers of recoveries: whose marks are of which generation, and which promises were lost.
//!
//! Owned by the engine; what is done with it stands in `recovery`. Pure data, no I/O.

use std::collections::BTreeMap;

use super::calls::{Gen, Mark};
use super::per_shard::PerShard;
use crate::protocol::{OrderNumber, UserId};

/// An order that a recovery has lost and of which its user may have been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// Offered again; the store has not answered yet.
    Open,
    /// Refused. Never offered again, for its FAILED order may be written.
    Broken,
}

/// The engine's memory of recoveries.
#[derive(Debug)]
pub(super) struct Recoveries {
    /// No snapshot has come since the generation rose: the shard's marks are of an older one.
    pub(super) anew: PerShard<bool>,
    /// The last recovery, or snapshot, that the shard's marks went into or came from.
    pub(super) marks_of: PerShard<Gen>,
    /// The last hand-in, and the shards it was for; not known to be in time yet.
    pub(super) handed_in: (Gen, PerShard<bool>),
    /// Marks in the read model that are not the store's: never handed in.
    pub(super) promises: BTreeMap<OrderNumber, Promise>,
    /// To be failed, not taken yet.
    pub(super) broken: Vec<(UserId, Mark)>,
    pub(super) offered: u64,
}

impl Recoveries {
    pub(super) fn new() -> Self {
        Self {
            anew: PerShard::new(|_| false),
            marks_of: PerShard::new(|_| Gen(0)),
            handed_in: (Gen(0), PerShard::new(|_| false)),
            promises: BTreeMap::new(),
            broken: Vec::new(),
            offered: 0,
        }
    }

    /// Whether the order is offered again and not answered yet.
    pub(super) fn is_open(&self, order: OrderNumber) -> bool {
        self.promises.get(&order) == Some(&Promise::Open)
    }

    /// Whether the order was lost and refused: no shard holds it, nor will.
    pub(super) fn is_broken(&self, order: OrderNumber) -> bool {
        self.promises.get(&order) == Some(&Promise::Broken)
    }

    /// The store holds the order.
    pub(super) fn confirm(&mut self, order: OrderNumber) {
        if self.is_open(order) {
            self.promises.remove(&order);
        }
    }
}
