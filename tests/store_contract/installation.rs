//! What the contract needs of an installation beside its store, and a gateway process as the store sees one.

use std::future::Future;
use std::sync::Arc;

use rushgate::protocol::{ActivityId, OrderNumber, SkuId, SkuKey, UserId};
use rushgate::stock::calls::{
    BringIn, Call, CallBody, Done, Gen, Item, ItemAnswer, ProcessNumber, Reply, SHARDS, ShardId,
};
use rushgate::store::ReservationStore;

/// A store with what surrounds it: operators, the order records, restarts.
pub trait Installation: Sized + Send + Sync + 'static {
    type Store: ReservationStore;

    /// Events per shard that the feed keeps at least; it has dropped the oldest when twice as many came.
    const FEED_EVENTS: u64;

    /// An empty installation with its store open.
    fn create() -> impl Future<Output = Self> + Send;

    fn store(&self) -> Arc<Self::Store>;

    /// Closes the store and opens it again: the generation rises.
    fn reopen(&mut self) -> impl Future<Output = ()> + Send;

    /// Creates an activity; its stock is loaded when this returns.
    fn create_activity(&self, id: ActivityId, skus: &[(SkuId, u32)]) -> impl Future<Output = ()> + Send;

    /// Adds stock; loaded when this returns.
    fn add_stock(&self, sku: SkuKey, units: u32) -> impl Future<Output = ()> + Send;

    /// Removes stock; the units really taken.
    fn remove_stock(&self, sku: SkuKey, units: u32) -> impl Future<Output = u32> + Send;

    /// Lets everybody who applies loads try once more.
    fn drive_loads_again(&self) -> impl Future<Output = ()> + Send;

    /// Closes an order unpaid: its mark is released, its units are free again.
    fn close_order(&self, order: OrderNumber) -> impl Future<Output = ()> + Send;

    /// What closed the order does so once more, late.
    fn close_again(&self, user: UserId, order: OrderNumber) -> impl Future<Output = ()> + Send;

    /// Every order record of an activity, in any order.
    fn orders(&self, activity: ActivityId) -> impl Future<Output = Vec<OrderRow>> + Send;

    /// The sums of one SKU, by its records.
    fn figures(&self, sku: SkuKey) -> impl Future<Output = Figures> + Send;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderRow {
    pub number: OrderNumber,
    pub user: UserId,
    pub sku: SkuId,
    pub quantity: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    pub total: u64,
    pub free: u64,
    pub in_transit: u64,
    pub sold: u64,
}

impl Figures {
    pub fn assert_conserved(&self) {
        assert_eq!(self.total, self.free + self.in_transit + self.sold, "{self:?}");
    }
}

pub const ACTIVITY: ActivityId = ActivityId(7);

pub fn sku(id: u16) -> SkuKey {
    SkuKey { activity: ACTIVITY, sku: SkuId(id) }
}

pub fn shard(number: u8) -> ShardId {
    ShardId::new(number).unwrap()
}

/// Users of one shard, ascending.
pub fn users_of(shard: ShardId) -> impl Iterator<Item = UserId> {
    (1..).map(UserId).filter(move |user| ShardId::of(*user) == shard)
}

pub fn user_of(shard: ShardId, nth: usize) -> UserId {
    users_of(shard).nth(nth).unwrap()
}

/// A gateway process: numbers its calls and its orders.
pub struct Process<S> {
    pub store: Arc<S>,
    pub number: ProcessNumber,
    pub generation: Gen,
    calls: [u64; SHARDS],
    orders: u64,
}

impl<S: ReservationStore> Process<S> {
    pub async fn start(store: Arc<S>) -> Self {
        let registration = store.register().await.unwrap();
        Self {
            store,
            number: registration.process,
            generation: registration.generation,
            calls: [0; SHARDS],
            orders: 0,
        }
    }

    pub fn order(&mut self) -> OrderNumber {
        self.orders += 1;
        OrderNumber((u64::from(self.number.0) << 36) | self.orders)
    }

    pub fn item(&mut self, user: UserId, sku: SkuKey, quantity: u16) -> Item {
        Item { user, sku, order: self.order(), quantity, attempt: 1, promised: false }
    }

    /// The next call to a shard.
    pub fn call(&mut self, shard: ShardId, body: CallBody) -> Call {
        self.calls[shard.index()] += 1;
        Call {
            process: self.number,
            generation: self.generation,
            shard,
            number: self.calls[shard.index()],
            body,
        }
    }

    pub fn reserve(&mut self, shard: ShardId, items: Vec<Item>) -> Call {
        self.call(shard, CallBody::Reserve { bring_in: Vec::new(), items })
    }

    pub async fn reply(&self, call: &Call) -> Reply {
        self.store.call(call).await.unwrap()
    }

    pub async fn done(&self, call: &Call) -> Done {
        match self.reply(call).await {
            Reply::Done(done) => done,
            other => panic!("{call:?} was answered {other:?}"),
        }
    }

    /// One user buys in his shard.
    pub async fn buy(&mut self, user: UserId, sku: SkuKey, quantity: u16) -> ItemAnswer {
        let item = self.item(user, sku, quantity);
        let call = self.reserve(ShardId::of(user), vec![item]);
        self.done(&call).await.answers[0]
    }

    pub async fn move_out(&mut self, from: ShardId, sku: SkuKey, target: ShardId, want: u32) -> Done {
        let call = self.call(from, CallBody::MoveOut { sku, target, want });
        self.done(&call).await
    }

    pub async fn bring_in(&mut self, into: ShardId, announced: Vec<BringIn>) -> Done {
        let call = self.call(into, CallBody::Reserve { bring_in: announced, items: Vec::new() });
        self.done(&call).await
    }
}

/// `out[from→to]` in a reply's counters.
pub fn out_of(done: &Done, to: ShardId) -> u64 {
    done.counters[0].out.iter().find(|(peer, _)| *peer == to).map_or(0, |(_, units)| *units)
}
