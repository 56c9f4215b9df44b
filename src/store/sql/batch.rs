//! What a group of calls does to the rows it touches: the stock protocol's rules, as a pure computation.
//!
//! The writer task reads the rows a transaction needs into a [`Batch`], executes the calls on it one after the
//! other and writes back what changed. Once that is committed, the next transaction may go on from the rows
//! ([`Batch::go_on`]) as long as nobody else has changed the database; a transaction that fails takes them with it, so
//! there is nothing to roll back.
//! No I/O, no clock. A caller's mistake (wrong shard, a number used twice) refuses that item alone and is
//! logged; it never fails the calls beside it.

use std::collections::{BTreeMap, HashMap as StdHashMap};

use foldhash::fast::RandomState;

use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuKey, UserId};
use crate::stock::calls::{
    BringIn, Call, CallBody, Change, Done, Event, Gen, Item, ItemAnswer, Mark, ProcessNumber, Reply, SHARDS,
    ShardId, SkuCounters,
};

type HashMap<K, V> = StdHashMap<K, V, RandomState>;

/// One of the 16 rows of an SKU.
#[derive(Clone, Copy, Debug)]
pub(super) struct StockRow {
    pub(super) free: u32,
    pub(super) pay_within_ms: u64,
    pub(super) changed: bool,
}

/// What went between one shard and one peer, cumulative.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TransferRow {
    pub(super) moved_out: u64,
    pub(super) brought_in: u64,
    pub(super) changed: bool,
}

/// The last call of a process to a shard.
#[derive(Clone, Debug)]
pub(super) struct LastCall {
    pub(super) number: u64,
    pub(super) reply: Reply,
    pub(super) changed: bool,
}

/// The rows of one transaction: as read, then as changed.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) generation: Gen,
    pub(super) now_ms: u64,
    pub(super) seq: [u64; SHARDS],
    pub(super) stock: HashMap<(ShardId, SkuKey), StockRow>,
    pub(super) transfers: HashMap<(ShardId, SkuKey), BTreeMap<ShardId, TransferRow>>,
    /// Each user's latest mark per activity, as far as it was read or made here.
    pub(super) marks: HashMap<(ActivityId, UserId), Mark>,
    pub(super) last_calls: HashMap<(ProcessNumber, ShardId), LastCall>,
    /// Who has an order number, as far as known here.
    pub(super) owners: HashMap<OrderNumber, (ActivityId, UserId)>,
    /// Callers give no number twice: `owners` is not kept, and the orders' keys refuse the transaction where it is not
    /// so.
    pub(super) trusts_numbers: bool,
    /// Orders to insert.
    pub(super) orders: Vec<(UserId, Mark)>,
    /// Events to publish after the commit.
    pub(super) events: Vec<(ShardId, Event)>,
}

impl Batch {
    pub(super) fn new(generation: Gen, now_ms: u64, seq: [u64; SHARDS]) -> Self {
        Self {
            generation,
            now_ms,
            seq,
            stock: HashMap::default(),
            transfers: HashMap::default(),
            marks: HashMap::default(),
            last_calls: HashMap::default(),
            owners: HashMap::default(),
            trusts_numbers: false,
            orders: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The rows as they stand after the commit, for the next transaction. Marks and numbers are looked up anew; only
    /// their room is kept.
    pub(super) fn go_on(mut self, now_ms: u64) -> Self {
        self.now_ms = now_ms;
        self.stock.values_mut().for_each(|row| row.changed = false);
        self.transfers.values_mut().flat_map(BTreeMap::values_mut).for_each(|row| row.changed = false);
        self.last_calls.values_mut().for_each(|call| call.changed = false);
        self.marks.clear();
        self.owners.clear();
        self.trusts_numbers = false;
        self.orders.clear();
        self.events.clear();
        self
    }

    /// How many rows the next transaction would go on from.
    pub(super) fn rows(&self) -> usize {
        let sum = self.stock.len().saturating_add(self.transfers.len());
        sum.saturating_add(self.last_calls.len())
    }

    /// Makes room for so many new orders.
    pub(super) fn expect_orders(&mut self, orders: usize) {
        self.marks.reserve(orders);
        self.orders.reserve(orders);
    }

    /// Whether every item of these calls would be granted if none of their users had a mark. Then marks need not be
    /// read: where one stands after all, the orders' keys refuse the transaction.
    pub(super) fn suffices_for<'c>(&self, calls: impl Iterator<Item = &'c Call>) -> bool {
        let mut claims: HashMap<(ShardId, SkuKey), u64> = HashMap::default();
        let mut claim = |shard: ShardId, sku: SkuKey, units: u32| {
            let sum = claims.entry((shard, sku)).or_default();
            *sum = sum.saturating_add(u64::from(units));
        };
        for call in calls {
            match &call.body {
                CallBody::Reserve { items, .. } => {
                    if items.iter().any(|item| item.attempt != 1) {
                        return false;
                    }
                    for item in items {
                        claim(call.shard, item.sku, u32::from(item.quantity));
                    }
                }
                CallBody::MoveOut { sku, want, .. } => claim(call.shard, *sku, *want),
            }
        }
        let free = |key: &(ShardId, SkuKey)| self.stock.get(key).map_or(0, |row| u64::from(row.free));
        claims.iter().all(|(key, units)| *units <= free(key))
    }

    /// Executes one call, or gives the reply stored under its number.
    pub(super) fn execute(&mut self, call: &Call) -> Reply {
        let key = (call.process, call.shard);
        let last = self.last_calls.get(&key);
        if let Some(last) = last.filter(|last| last.number == call.number) {
            return last.reply.clone();
        }
        if call.number <= last.map_or(0, |last| last.number) {
            return Reply::Stale;
        }
        // The number comes before the guard: a refusal uses it up and is repeated like any other reply.
        let reply = if call.generation == self.generation {
            Reply::Done(self.run(call.shard, &call.body))
        } else {
            Reply::Gen(self.generation)
        };
        self.last_calls.insert(key, LastCall { number: call.number, reply: reply.clone(), changed: true });
        reply
    }

    fn run(&mut self, shard: ShardId, body: &CallBody) -> Done {
        let mut named = Vec::new();
        let answers = match body {
            CallBody::Reserve { bring_in, items } => {
                for sku in bring_in.iter().map(|b| b.sku).chain(items.iter().map(|item| item.sku)) {
                    note(&mut named, sku);
                }
                self.reserve(shard, bring_in, items)
            }
            CallBody::MoveOut { sku, target, want } => {
                note(&mut named, *sku);
                if self.move_out(shard, *sku, *target, *want) {
                    self.append(shard, Change::Moved, &[*sku]);
                }
                Vec::new()
            }
        };
        Done {
            generation: self.generation,
            seq: self.seq_of(shard),
            counters: self.counters_of(shard, &named),
            answers,
        }
    }

    fn reserve(&mut self, shard: ShardId, bring_in: &[BringIn], items: &[Item]) -> Vec<ItemAnswer> {
        let mut touched = Vec::new();
        for announced in bring_in {
            if self.bring_in(shard, announced) {
                note(&mut touched, announced.sku);
            }
        }
        let mut marked = Vec::with_capacity(items.len());
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            let answer = self.reserve_item(shard, item, &mut marked);
            if answer.1 {
                note(&mut touched, item.sku);
            }
            answers.push(answer.0);
        }
        if !marked.is_empty() {
            self.append(shard, Change::Marked(marked), &touched);
        } else if !touched.is_empty() {
            self.append(shard, Change::Moved, &touched);
        }
        answers
    }

    /// Raises `in` to what the source really moved out; whether anything came in.
    fn bring_in(&mut self, shard: ShardId, announced: &BringIn) -> bool {
        let moved_out = self
            .transfers
            .get(&(announced.source, announced.sku))
            .and_then(|peers| peers.get(&shard))
            .map_or(0, |row| row.moved_out);
        if announced.out > moved_out || announced.source == shard {
            tracing::error!(
                sku = %announced.sku, source = announced.source.number(), target = shard.number(),
                announced = announced.out, moved_out,
                "a caller announced more units than were moved out; the excess is ignored"
            );
        }
        let upto = announced.out.min(moved_out);
        let Some(stock) = self.stock.get_mut(&(shard, announced.sku)) else {
            return false;
        };
        let row =
            self.transfers.entry((shard, announced.sku)).or_default().entry(announced.source).or_default();
        let arrived = upto.saturating_sub(row.brought_in);
        let sum = u32::try_from(arrived).ok().and_then(|arrived| stock.free.checked_add(arrived));
        let Some(sum) = sum.filter(|_| arrived > 0) else {
            return false;
        };
        row.brought_in = upto;
        row.changed = true;
        stock.free = sum;
        stock.changed = true;
        true
    }

    /// The answer, and whether units were taken.
    fn reserve_item(
        &mut self,
        shard: ShardId,
        item: &Item,
        marked: &mut Vec<(UserId, Mark)>,
    ) -> (ItemAnswer, bool) {
        if let Some(fault) = self.fault_of(shard, item) {
            tracing::error!(
                user = %item.user, order = %item.order, sku = %item.sku, shard = shard.number(), fault,
                "an item that no correct caller sends was refused"
            );
            return (ItemAnswer::NotLoaded, false);
        }
        let owner = (item.sku.activity, item.user);
        let known = self.marks.get(&owner);
        match known {
            Some(mark) if mark.state.is_live() && mark.order == item.order => {
                return (ItemAnswer::Reserved, false);
            }
            Some(mark) if mark.state.is_live() => return (ItemAnswer::Already(*mark), false),
            Some(_) | None => {}
        }
        // Whoever calls knows whether the activity sells again; here the attempts are counted.
        if known.map_or(0, |mark| mark.attempt).checked_add(1) != Some(item.attempt) {
            return (ItemAnswer::NotAgain, false);
        }
        let Some(stock) = self.stock.get_mut(&(shard, item.sku)) else {
            return (ItemAnswer::NotLoaded, false);
        };
        let Some(rest) = stock.free.checked_sub(u32::from(item.quantity)) else {
            return (ItemAnswer::EmptyHere, false);
        };
        stock.free = rest;
        stock.changed = true;
        let mark = Mark {
            order: item.order,
            sku: item.sku,
            quantity: item.quantity,
            attempt: item.attempt,
            state: OrderState::PendingPayment,
            pay_by_ms: self.now_ms.saturating_add(stock.pay_within_ms),
        };
        self.marks.insert(owner, mark);
        if !self.trusts_numbers {
            self.owners.insert(item.order, owner);
        }
        self.orders.push((item.user, mark));
        marked.push((item.user, mark));
        (ItemAnswer::Reserved, true)
    }

    fn fault_of(&self, shard: ShardId, item: &Item) -> Option<&'static str> {
        if UserId::new(item.user.0).is_none() {
            return Some("user id out of range");
        }
        if ShardId::of(item.user) != shard {
            return Some("the user belongs to another shard");
        }
        if item.quantity == 0 {
            return Some("quantity 0");
        }
        if item.order.0 == 0 || i64::try_from(item.order.0).is_err() {
            return Some("order number out of range");
        }
        let owner = self.owners.get(&item.order);
        if owner.is_some_and(|owner| *owner != (item.sku.activity, item.user)) {
            return Some("the order number is another order's");
        }
        None
    }

    fn move_out(&mut self, shard: ShardId, sku: SkuKey, target: ShardId, want: u32) -> bool {
        if target == shard {
            tracing::error!(%sku, shard = shard.number(), "a caller moves units from a shard to itself");
            return false;
        }
        let Some(stock) = self.stock.get_mut(&(shard, sku)) else {
            return false;
        };
        let units = want.min(stock.free);
        if units == 0 {
            return false;
        }
        let row = self.transfers.entry((shard, sku)).or_default().entry(target).or_default();
        let Some(moved_out) = row.moved_out.checked_add(u64::from(units)) else {
            return false;
        };
        row.moved_out = moved_out;
        row.changed = true;
        stock.free = stock.free.saturating_sub(units);
        stock.changed = true;
        true
    }

    /// Appends one event to a shard; the only place where seq rises.
    pub(super) fn append(&mut self, shard: ShardId, change: Change, touched: &[SkuKey]) {
        let counters = self.counters_of(shard, touched);
        let Some(seq) = self.seq.get_mut(shard.index()) else {
            return;
        };
        *seq = seq.saturating_add(1);
        let event = Event { generation: self.generation, seq: *seq, change, counters };
        self.events.push((shard, event));
    }

    fn seq_of(&self, shard: ShardId) -> u64 {
        self.seq.get(shard.index()).copied().unwrap_or_default()
    }

    fn counters_of(&self, shard: ShardId, skus: &[SkuKey]) -> Vec<SkuCounters> {
        skus.iter()
            .filter_map(|sku| {
                let stock = self.stock.get(&(shard, *sku))?;
                Some(counters(*sku, stock.free, self.transfers.get(&(shard, *sku))))
            })
            .collect()
    }
}

/// The counters of one SKU in one shard, from its rows.
pub(super) fn counters(
    sku: SkuKey,
    free: u32,
    transfers: Option<&BTreeMap<ShardId, TransferRow>>,
) -> SkuCounters {
    let rows = || transfers.into_iter().flatten();
    SkuCounters {
        sku,
        free,
        out: rows().filter(|(_, row)| row.moved_out > 0).map(|(peer, row)| (*peer, row.moved_out)).collect(),
        brought_in: rows()
            .filter(|(_, row)| row.brought_in > 0)
            .map(|(peer, row)| (*peer, row.brought_in))
            .collect(),
    }
}

/// A call names few SKUs; a list keeps their order and needs no hashing.
fn note(list: &mut Vec<SkuKey>, sku: SkuKey) {
    if !list.contains(&sku) {
        list.push(sku);
    }
}
