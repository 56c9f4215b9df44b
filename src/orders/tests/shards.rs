//! Redis of the model: 16 shards of one activity, as rules 1 to 4 and 14 have them; each may come back older.

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Change, Event, Gen, Mark, SHARDS, ShardId, SkuCounters};
use crate::store::redis::{
    ActivityContent, ActivityPhase, AppliedLoad, Delivered, Entry, EntryId, ShardContent,
};

pub(super) const ACTIVITY: ActivityId = ActivityId(7);
pub(super) const LOAD: &str = "1";
const PAST_STATES: usize = 8;

/// One SKU in one shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) loaded: i64,
    pub(super) free: i64,
    pub(super) out: BTreeMap<ShardId, u64>,
    pub(super) brought_in: BTreeMap<ShardId, u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shard {
    pub(super) counters: BTreeMap<SkuKey, Counters>,
    pub(super) marks: BTreeMap<UserId, Mark>,
    /// Not given to a writer yet.
    pub(super) feed: VecDeque<Entry>,
    /// Given to one, and not acknowledged.
    pub(super) pending: BTreeMap<u64, Entry>,
    seq: u64,
}

/// What a reservation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserved {
    Here(Mark),
    Already(Mark),
    NotAgain,
    Empty,
}

#[derive(Debug)]
pub(super) struct Shards {
    pub(super) generation: Gen,
    /// Whether it answers at all, and whether the shards may be trusted.
    pub(super) is_up: bool,
    pub(super) is_open: bool,
    pub(super) all: Vec<Shard>,
    past: Vec<VecDeque<Shard>>,
}

impl Counters {
    fn public(&self, sku: SkuKey) -> SkuCounters {
        let list =
            |pairs: &BTreeMap<ShardId, u64>| pairs.iter().map(|(shard, units)| (*shard, *units)).collect();
        let free = u32::try_from(self.free).unwrap();
        SkuCounters { sku, free, out: list(&self.out), brought_in: list(&self.brought_in) }
    }
}

impl Shard {
    fn append(&mut self, generation: Gen, marks: Vec<(UserId, Mark)>) {
        self.seq += 1;
        let event = Event { generation, seq: self.seq, change: Change::Marked(marks), counters: Vec::new() };
        let id = EntryId { generation, seq: self.seq };
        self.feed.push_back(Entry { id, at_ms: 1, what: Ok(event) });
    }

    fn content(&self) -> ShardContent {
        let amounts = self.counters.iter().map(|(sku, counters)| (sku.sku, counters.loaded)).collect();
        let activity = ActivityContent {
            id: ACTIVITY,
            phase: ActivityPhase::Live,
            counters: self.counters.iter().map(|(sku, counters)| counters.public(*sku)).collect(),
            loads: vec![AppliedLoad { id: LOAD.to_owned(), amounts }],
            marks: self.marks.iter().map(|(user, mark)| (*user, *mark)).collect(),
        };
        ShardContent { epoch: "1".to_owned(), activities: vec![activity] }
    }
}

impl Shards {
    pub(super) fn new(stock: &BTreeMap<SkuKey, Vec<i64>>) -> Self {
        let mut all = vec![Shard::default(); SHARDS];
        for (sku, units) in stock {
            for (shard, units) in all.iter_mut().zip(units) {
                shard.counters.insert(*sku, Counters { loaded: *units, free: *units, ..Counters::default() });
            }
        }
        let past = all.iter().map(|shard| VecDeque::from([shard.clone()])).collect();
        Self { generation: Gen(1), is_up: true, is_open: true, all, past }
    }

    pub(super) fn serves(&self) -> bool {
        self.is_up && self.is_open
    }

    pub(super) fn mark(&self, user: UserId) -> Option<&Mark> {
        self.all[ShardId::of(user).index()].marks.get(&user)
    }

    fn remember(&mut self, shard: ShardId) {
        let past = &mut self.past[shard.index()];
        past.push_back(self.all[shard.index()].clone());
        if past.len() > PAST_STATES {
            past.pop_front();
        }
    }

    /// As gateways do: from the home shard, after pulling what it lacks from another one. `None`: it does not serve.
    pub(super) fn reserve(&mut self, user: UserId, item: Mark, rng: &mut Rng) -> Option<Reserved> {
        if !self.serves() {
            return None;
        }
        let home = ShardId::of(user);
        if let Some(mark) = self.mark(user) {
            return Some(if mark.state.is_live() { Reserved::Already(*mark) } else { Reserved::NotAgain });
        }
        let lacks = i64::from(item.quantity) - self.all[home.index()].counters[&item.sku].free;
        if lacks > 0 {
            self.pull(home, item.sku, lacks, rng);
        }
        let shard = &mut self.all[home.index()];
        let counters = shard.counters.get_mut(&item.sku).unwrap();
        if counters.free < i64::from(item.quantity) {
            return Some(Reserved::Empty);
        }
        counters.free -= i64::from(item.quantity);
        let mark = Mark { state: OrderState::Reserved, ..item };
        shard.marks.insert(user, mark);
        shard.append(self.generation, vec![(user, mark)]);
        self.remember(home);
        Some(Reserved::Here(mark))
    }

    /// Moves units out of one shard, and mostly brings them in at once.
    fn pull(&mut self, home: ShardId, sku: SkuKey, want: i64, rng: &mut Rng) {
        let start = rng.usize(..SHARDS);
        let others = (0..SHARDS).map(|nth| ShardId::ALL[(start + nth) % SHARDS]);
        let source = others
            .filter(|other| *other != home)
            .find(|other| self.all[other.index()].counters[&sku].free >= want);
        let Some(source) = source else { return };
        let counters = self.all[source.index()].counters.get_mut(&sku).unwrap();
        counters.free -= want;
        *counters.out.entry(home).or_default() += u64::try_from(want).unwrap();
        self.remember(source);
        if rng.u8(..10) > 0 {
            self.bring_in(home);
        }
    }

    /// Whatever is on its way to a shard arrives.
    pub(super) fn bring_in(&mut self, home: ShardId) {
        if !self.serves() {
            return;
        }
        let mut announced = Vec::new();
        for source in ShardId::all().filter(|source| *source != home) {
            for (sku, counters) in &self.all[source.index()].counters {
                announced.extend(counters.out.get(&home).map(|out| (source, *sku, *out)));
            }
        }
        for (source, sku, out) in announced {
            let counters = self.all[home.index()].counters.get_mut(&sku).unwrap();
            let known = counters.brought_in.entry(source).or_default();
            if out > *known {
                counters.free += i64::try_from(out - *known).unwrap();
                *known = out;
            }
        }
        self.remember(home);
    }

    /// The next entries that no writer has, or those that some writer left.
    pub(super) fn read(&mut self, shard: ShardId, is_claim: bool, count: usize) -> Delivered {
        let (generation, here) = (self.generation, &mut self.all[shard.index()]);
        let entries: Vec<Entry> = if is_claim {
            here.pending.values().take(count).cloned().collect()
        } else {
            let count = count.min(here.feed.len());
            here.feed.drain(..count).collect()
        };
        here.pending.extend(entries.iter().map(|entry| (entry.id.seq, entry.clone())));
        Delivered { shard, generation, entries }
    }

    pub(super) fn acknowledge(&mut self, shard: ShardId, ids: &[EntryId]) {
        for id in ids.iter().filter(|id| id.generation == self.generation) {
            self.all[shard.index()].pending.remove(&id.seq);
        }
    }

    /// Marks go forward; whether the shard did it.
    pub(super) fn settled(&mut self, generation: Gen, marks: &[(UserId, Mark)]) -> bool {
        if !self.serves() || generation != self.generation {
            return false;
        }
        for (user, mark) in marks {
            let home = ShardId::of(*user);
            if let Some(known) = self.all[home.index()].marks.get_mut(user)
                && known.order == mark.order
                && mark.state.rank() > known.state.rank()
            {
                *known = *mark;
                self.remember(home);
            }
        }
        true
    }

    /// Units back, once, by compare-and-set on the order number; whether the shard has answered.
    pub(super) fn release(
        &mut self,
        generation: Gen,
        user: UserId,
        order: OrderNumber,
        state: OrderState,
    ) -> bool {
        if !self.serves() || generation != self.generation {
            return false;
        }
        let home = ShardId::of(user);
        let shard = &mut self.all[home.index()];
        let Some(mark) =
            shard.marks.get_mut(&user).filter(|mark| mark.order == order && mark.state.is_live())
        else {
            return true;
        };
        mark.state = state;
        let mark = *mark;
        shard.counters.get_mut(&mark.sku).unwrap().free += i64::from(mark.quantity);
        shard.append(self.generation, vec![(user, mark)]);
        self.remember(home);
        true
    }

    /// Its process ends; some shards come back with the state before their last writes, none may be trusted.
    pub(super) fn restart(&mut self, rng: &mut Rng) {
        for (shard, past) in self.all.iter_mut().zip(&mut self.past) {
            if rng.bool() {
                let back = rng.usize(..past.len());
                *shard = past[past.len() - 1 - back].clone();
            }
            past.clear();
            past.push_back(shard.clone());
        }
        (self.is_up, self.is_open) = (true, false);
    }

    pub(super) fn contents(&self) -> Vec<(ShardId, ShardContent)> {
        ShardId::all().zip(&self.all).map(|(id, shard)| (id, shard.content())).collect()
    }

    /// What a recovery has made of them, under a new generation; every reservation is an event again.
    pub(super) fn rebuild(&mut self, generation: Gen, contents: Vec<(ShardId, ShardContent)>) {
        self.generation = generation;
        self.is_open = true;
        for (id, content) in contents {
            let mut shard = Shard::default();
            for activity in content.activities.into_iter().filter(|activity| activity.id == ACTIVITY) {
                for counters in activity.counters {
                    let loads = activity.loads.iter().flat_map(|load| &load.amounts);
                    let of_sku = |(sku, _): &&(SkuId, i64)| *sku == counters.sku.sku;
                    let loaded = loads.filter(of_sku).map(|(_, units)| units).sum();
                    shard.counters.insert(
                        counters.sku,
                        Counters {
                            loaded,
                            free: counters.free.into(),
                            out: counters.out.into_iter().collect(),
                            brought_in: counters.brought_in.into_iter().collect(),
                        },
                    );
                }
                shard.marks.extend(activity.marks);
            }
            let open = shard.marks.iter().filter(|(_, mark)| mark.state == OrderState::Reserved);
            let open: Vec<_> = open.map(|(user, mark)| (*user, *mark)).collect();
            if !open.is_empty() {
                shard.append(generation, open);
            }
            self.past[id.index()] = VecDeque::from([shard.clone()]);
            self.all[id.index()] = shard;
        }
    }
}
