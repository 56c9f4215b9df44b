//! The door between the funnel and the stock task: one bounded queue per shard.
//!
//! Connections put admitted BUYs in without waiting; the stock task takes them out. Full means BUSY: what was
//! accepted is never dropped for what comes later.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::queue::ArrayQueue;
use tokio::sync::Notify;

use super::peer::Peer;
use super::unpaid::Counted;
use crate::protocol::UserId;
use crate::stock::calls::ShardId;
use crate::stock::{PerShard, Purchase};

/// Who waits for the outcome of a BUY.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) peer: Arc<Peer>,
    pub(super) request_id: u32,
    pub(super) user: UserId,
    /// What it is counted under until its answer, while a cap on unpaid orders is in force.
    pub(super) counted: Option<Counted>,
    /// A service connection: it is told of the user's later pushes once he has an order.
    pub(super) names_user: bool,
}

/// A BUY that passed the funnel.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) ticket: Ticket,
    pub(super) purchase: Purchase,
    /// Monotonic milliseconds; patience and the wait for the store count from here.
    pub(super) arrived_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    queues: PerShard<ArrayQueue<Admitted>>,
    /// Items that wait behind the door, in the engine.
    behind: PerShard<AtomicUsize>,
    /// Taken out by the stock task, which has not told yet what waits in its engine.
    taken: AtomicUsize,
    items_max: usize,
    pub(super) wake: Notify,
}

impl Door {
    /// `queue_items_max` bounds what waits per shard, here and in the engine together.
    pub(super) fn new(queue_items_max: usize) -> Self {
        let items_max = queue_items_max.max(1);
        Self {
            queues: PerShard::new(|_| ArrayQueue::new(items_max)),
            behind: PerShard::new(|_| AtomicUsize::new(0)),
            taken: AtomicUsize::new(0),
            items_max,
            wake: Notify::new(),
        }
    }

    /// Gives the BUY back when its shard's queue is full. The stock task hears of it by a [`Knock`].
    pub(super) fn put(&self, admitted: Admitted) -> Result<(), Admitted> {
        let shard = ShardId::of(admitted.purchase.user);
        let queue = &self.queues[shard];
        if queue.len().saturating_add(self.behind[shard].load(Ordering::Relaxed)) >= self.items_max {
            return Err(admitted);
        }
        queue.push(admitted)
    }

    /// Everything that waits for a shard now. It is counted as taken before it leaves its queue, so that whoever
    /// counts what is unfinished never misses it. There is one taker.
    pub(super) fn take(&self, shard: ShardId) -> impl Iterator<Item = Admitted> {
        let queue = &self.queues[shard];
        let items = queue.len();
        if items > 0 {
            self.taken.fetch_add(items, Ordering::SeqCst);
        }
        (0..items).map_while(|_| queue.pop())
    }

    /// What was taken is counted elsewhere from now on; true if anything was.
    pub(super) fn told(&self) -> bool {
        self.taken.swap(0, Ordering::SeqCst) > 0
    }

    /// The stock task tells how many wait in its engine.
    pub(super) fn set_behind(&self, shard: ShardId, items: usize) {
        self.behind[shard].store(items, Ordering::Relaxed);
    }

    /// BUYs in the queues, and those on their way to the engine; some may be counted twice. To be read before what
    /// the stock task tells of its engine.
    pub(super) fn len(&self) -> usize {
        let queued = self.queues.iter().map(|(_, queue)| queue.len()).fold(0, usize::saturating_add);
        queued.saturating_add(self.taken.load(Ordering::SeqCst))
    }
}

/// A connection's knock at the door: one for all that one of its wakes puts in. Woken by the first, the stock task would
/// ask the store for that one alone.
#[derive(Debug)]
pub(super) struct Knock(Cell<bool>);

impl Knock {
    pub(super) const fn new() -> Self {
        Self(Cell::new(false))
    }

    /// Something was put in.
    pub(super) fn owe(&self) {
        self.0.set(true);
    }

    /// Wakes the stock tasks behind these doors if a knock is owed.
    pub(super) fn settle<'a>(&self, doors: impl Iterator<Item = &'a Door>) {
        if self.0.take() {
            doors.for_each(|door| door.wake.notify_one());
        }
    }
}
