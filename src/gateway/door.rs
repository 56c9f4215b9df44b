//! The door between the funnel and the stock task: one bounded queue per shard.
//!
//! Connections put admitted BUYs in without waiting; the stock task takes them out. Full means BUSY: what was
//! accepted is never dropped for what comes later.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use tokio::sync::Notify;

use super::peer::Peer;
use crate::protocol::UserId;
use crate::stock::calls::ShardId;
use crate::stock::{PerShard, Purchase};

/// Who waits for the outcome of a BUY.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) peer: Arc<Peer>,
    pub(super) request_id: u32,
    pub(super) user: UserId,
    /// A service connection: it is told of the user's later pushes once he has an order.
    pub(super) names_user: bool,
}

/// A BUY that passed the funnel.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) ticket: Ticket,
    pub(super) purchase: Purchase,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    queues: PerShard<ArrayQueue<Admitted>>,
    pub(super) wake: Notify,
}

impl Door {
    pub(super) fn new(queue_items_max: usize) -> Self {
        Self { queues: PerShard::new(|_| ArrayQueue::new(queue_items_max.max(1))), wake: Notify::new() }
    }

    /// Gives the BUY back when its shard's queue is full.
    pub(super) fn put(&self, admitted: Admitted) -> Result<(), Admitted> {
        self.queues[ShardId::of(admitted.purchase.user)].push(admitted)?;
        self.wake.notify_one();
        Ok(())
    }

    pub(super) fn take(&self, shard: ShardId) -> Option<Admitted> {
        self.queues[shard].pop()
    }

    /// BUYs in the queues.
    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(|(_, queue)| queue.len()).fold(0, usize::saturating_add)
    }
}
