//! The store of the model: rules 1 to 4 of the stock protocol, one struct per shard, no shortcuts.
//!
//! Every change leaves an [`Effect`], from which the checks keep their own books.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuKey, UserId};
use rushgate::stock::calls::{
    BringIn, Call, CallBody, Change, Done, Event, Gen, Item, ItemAnswer, Mark, Reply, SHARDS, ShardId,
    SkuCounters, Snapshot,
};

/// What a call, a load or a release did.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Reserved {
        user: UserId,
        mark: Mark,
    },
    Released {
        mark: Mark,
    },
    /// Stock came from or went outside: a load, a take, a release.
    Supplied {
        sku: SkuKey,
    },
    MovedOut {
        sku: SkuKey,
        units: u64,
    },
    BroughtIn {
        sku: SkuKey,
    },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SkuStock {
    pub(crate) loaded: i64,
    pub(crate) free: u32,
    pub(crate) out: [u64; SHARDS],
    pub(crate) brought_in: [u64; SHARDS],
}

#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    pub(crate) open: bool,
    /// The process that holds it: another after every restart.
    pub(crate) run: u64,
    pub(crate) generation: Gen,
    pub(crate) seq: u64,
    pub(crate) stock: BTreeMap<SkuKey, SkuStock>,
    pub(crate) marks: BTreeMap<(ActivityId, UserId), Mark>,
    pub(crate) feed: VecDeque<Event>,
    calls: BTreeMap<u32, (u64, Reply)>,
    loads: BTreeSet<u64>,
    /// Orders of a user that may ask in a window; 0 = all.
    attempts_max: usize,
    /// Those that have asked in this one.
    attempts: BTreeMap<UserId, BTreeSet<OrderNumber>>,
    /// Calls with items so far: so many are a window.
    asked: u64,
}

/// Calls that make a window of attempts.
const WINDOW_CALLS: u64 = 6;

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) shards: Vec<Shard>,
    pub(crate) effects: Vec<Effect>,
    /// By shard, what it would come back with: its last states. Kept only where shards restart.
    pub(crate) past: Option<Vec<VecDeque<Shard>>>,
    /// By shard: what counts while it is closed. First what it was when it restarted, then what it will be.
    pub(crate) image: Vec<Option<Shard>>,
    /// By shard: an old master that lives on.
    pub(crate) zombies: Vec<Option<Zombie>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Zombie {
    pub(crate) shard: Shard,
    /// Nothing has been decided about the shard yet: what it does counts.
    pub(crate) counts: bool,
}

const PAST_STATES: usize = 12;

/// What one shard's feed has to say after a position.
#[derive(Clone, Debug)]
pub(crate) enum FeedPart {
    /// Events, and whether they reach the feed's end.
    Events(Vec<Event>, bool),
    Gap,
}

impl SkuStock {
    fn counters(&self, sku: SkuKey) -> SkuCounters {
        let list = |amounts: &[u64; SHARDS]| {
            ShardId::all().zip(amounts.iter().copied()).filter(|(_, units)| *units > 0).collect()
        };
        SkuCounters { sku, free: self.free, out: list(&self.out), brought_in: list(&self.brought_in) }
    }
}

impl Shard {
    fn counters(&self, skus: &BTreeSet<SkuKey>) -> Vec<SkuCounters> {
        skus.iter().filter_map(|sku| self.stock.get(sku).map(|stock| stock.counters(*sku))).collect()
    }

    fn append(&mut self, change: Change, skus: &BTreeSet<SkuKey>) {
        self.seq += 1;
        let event =
            Event { generation: self.generation, seq: self.seq, change, counters: self.counters(skus) };
        self.feed.push_back(event);
    }

    /// Rule: free = loaded + in − out − live marks.
    pub(crate) fn check_formula(&self) {
        for (sku, stock) in &self.stock {
            let live: i64 = self
                .marks
                .values()
                .filter(|mark| mark.sku == *sku && mark.state.is_live())
                .map(|mark| i64::from(mark.quantity))
                .sum();
            let sum = |amounts: &[u64; SHARDS]| i64::try_from(amounts.iter().sum::<u64>()).unwrap();
            let free = stock.loaded + sum(&stock.brought_in) - sum(&stock.out) - live;
            assert_eq!(i64::from(stock.free), free, "the formula of {sku} in shard {:?}", self.id);
        }
    }

    fn bring_in(&mut self, moves: &[BringIn], effects: &mut Vec<Effect>) -> BTreeSet<SkuKey> {
        let mut touched = BTreeSet::new();
        for announced in moves {
            let Some(stock) = self.stock.get_mut(&announced.sku) else { continue };
            let known = &mut stock.brought_in[announced.source.index()];
            if announced.out > *known {
                stock.free += u32::try_from(announced.out - *known).unwrap();
                *known = announced.out;
                touched.insert(announced.sku);
                effects.push(Effect::BroughtIn { sku: announced.sku });
            }
        }
        touched
    }

    fn reserve_one(&mut self, item: &Item, effects: &mut Vec<Effect>) -> (ItemAnswer, Option<Mark>) {
        assert_eq!(ShardId::of(item.user), self.id, "an item in the wrong shard: {item:?}");
        let key = (item.sku.activity, item.user);
        let known = self.marks.get(&key);
        if let Some(mark) = known.filter(|mark| mark.state.is_live()) {
            let own = mark.order == item.order;
            return (if own { ItemAnswer::Reserved } else { ItemAnswer::Already(*mark) }, None);
        }
        if item.attempt != known.map_or(0, |mark| mark.attempt) + 1 {
            return (ItemAnswer::NotAgain, None);
        }
        if !item.promised && !self.may_ask(item) {
            return (ItemAnswer::TooOften { retry_after_ms: 7 }, None);
        }
        let Some(stock) = self.stock.get_mut(&item.sku) else { return (ItemAnswer::NotLoaded, None) };
        let wanted = u32::from(item.quantity);
        if stock.free < wanted {
            return (ItemAnswer::EmptyHere, None);
        }
        stock.free -= wanted;
        let mark = Mark {
            order: item.order,
            sku: item.sku,
            quantity: item.quantity,
            attempt: item.attempt,
            state: OrderState::Reserved,
            pay_by_ms: 0,
        };
        self.marks.insert(key, mark);
        effects.push(Effect::Reserved { user: item.user, mark });
        (ItemAnswer::Reserved, Some(mark))
    }

    /// Whether the user may ask in this window; an order that has, may again.
    fn may_ask(&mut self, item: &Item) -> bool {
        let orders = self.attempts.entry(item.user).or_default();
        if self.attempts_max == 0 || orders.contains(&item.order) {
            return true;
        }
        orders.len() < self.attempts_max && orders.insert(item.order)
    }

    fn reserve(&mut self, moves: &[BringIn], items: &[Item], effects: &mut Vec<Effect>) -> Vec<ItemAnswer> {
        self.asked += u64::from(!items.is_empty());
        if self.asked.is_multiple_of(WINDOW_CALLS) {
            self.attempts.clear();
        }
        let mut touched = self.bring_in(moves, effects);
        let mut answers = Vec::new();
        let mut marks = Vec::new();
        for item in items {
            let (answer, mark) = self.reserve_one(item, effects);
            answers.push(answer);
            if let Some(mark) = mark {
                touched.insert(item.sku);
                marks.push((item.user, mark));
            }
        }
        if !touched.is_empty() {
            let change = if marks.is_empty() { Change::Moved } else { Change::Marked(marks) };
            self.append(change, &touched);
        }
        answers
    }

    fn move_out(&mut self, sku: SkuKey, target: ShardId, want: u32, effects: &mut Vec<Effect>) {
        assert_ne!(target, self.id, "a move to itself");
        let Some(stock) = self.stock.get_mut(&sku) else { return };
        let units = want.min(stock.free);
        if units > 0 {
            stock.free -= units;
            stock.out[target.index()] += u64::from(units);
            effects.push(Effect::MovedOut { sku, units: u64::from(units) });
            self.append(Change::Moved, &BTreeSet::from([sku]));
        }
    }

    fn execute(&mut self, call: &Call, effects: &mut Vec<Effect>) -> Reply {
        if !self.open {
            return Reply::Recovering;
        }
        if let Some((number, reply)) = self.calls.get(&call.process.0) {
            if *number == call.number {
                return reply.clone();
            }
            if *number > call.number {
                return Reply::Stale;
            }
        }
        if call.generation != self.generation {
            return Reply::Gen(self.generation);
        }
        let mut named = BTreeSet::new();
        let answers = match &call.body {
            CallBody::Reserve { bring_in, items } => {
                named.extend(bring_in.iter().map(|announced| announced.sku));
                named.extend(items.iter().map(|item| item.sku));
                self.reserve(bring_in, items, effects)
            }
            CallBody::MoveOut { sku, target, want } => {
                named.insert(*sku);
                self.move_out(*sku, *target, *want, effects);
                Vec::new()
            }
        };
        let reply = Reply::Done(Done {
            generation: self.generation,
            seq: self.seq,
            counters: self.counters(&named),
            answers,
        });
        self.calls.insert(call.process.0, (call.number, reply.clone()));
        reply
    }
}

impl Store {
    pub(crate) fn new(attempts_max: u32) -> Self {
        let shard = |id| Shard {
            id,
            open: true,
            run: 0,
            generation: Gen(1),
            seq: 0,
            stock: BTreeMap::new(),
            marks: BTreeMap::new(),
            feed: VecDeque::new(),
            calls: BTreeMap::new(),
            loads: BTreeSet::new(),
            attempts_max: attempts_max as usize,
            attempts: BTreeMap::new(),
            asked: 0,
        };
        Self {
            shards: ShardId::all().map(shard).collect(),
            effects: Vec::new(),
            past: None,
            image: vec![None; SHARDS],
            zombies: vec![None; SHARDS],
        }
    }

    pub(crate) fn generation(&self) -> Gen {
        self.shards[0].generation
    }

    pub(crate) fn call(&mut self, call: &Call) -> Reply {
        let shard = &mut self.shards[call.shard.index()];
        let reply = shard.execute(call, &mut self.effects);
        shard.check_formula();
        self.remember(call.shard);
        reply
    }

    /// The shards as they count: a closed one as its users knew it.
    pub(crate) fn visible(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().map(|shard| match &self.image[shard.id.index()] {
            Some(image) if !shard.open => image,
            _ => shard,
        })
    }

    pub(crate) fn remember(&mut self, shard: ShardId) {
        let Some(past) = self.past.as_mut() else { return };
        let (past, now) = (&mut past[shard.index()], &self.shards[shard.index()]);
        if now.open && past.back().is_none_or(|last| last.seq != now.seq || last.generation != now.generation)
        {
            past.push_back(now.clone());
            if past.len() > PAST_STATES {
                past.pop_front();
            }
        }
    }

    /// The shard's process ends, and another comes up with the state before its last `back` changes. The old one may
    /// live on for those who still reach it.
    pub(crate) fn restart(&mut self, id: ShardId, back: usize, lives_on: bool) {
        let past = &mut self.past.as_mut().unwrap()[id.index()];
        let now = &mut self.shards[id.index()];
        if now.open {
            self.image[id.index()] = Some(now.clone());
            self.zombies[id.index()] = lives_on.then(|| Zombie { shard: now.clone(), counts: true });
        }
        let run = now.run + 1;
        if let Some(state) = past.iter().rev().nth(back.min(past.len().saturating_sub(1))) {
            *now = state.clone();
        }
        now.run = run;
        now.open = false;
        past.clear();
        past.push_back(now.clone());
    }

    /// A call that reaches the old master.
    pub(crate) fn call_zombie(&mut self, call: &Call) -> Option<Reply> {
        let zombie = self.zombies[call.shard.index()].as_mut()?;
        let mut effects = Vec::new();
        let reply = zombie.shard.execute(call, &mut effects);
        if zombie.counts {
            self.effects.append(&mut effects);
            self.image[call.shard.index()] = Some(zombie.shard.clone());
        }
        Some(reply)
    }

    /// Units of an SKU by shard, as they count.
    pub(crate) fn stock_of(&self, shard: usize, sku: SkuKey) -> Option<&SkuStock> {
        self.visible().nth(shard).and_then(|shard| shard.stock.get(&sku))
    }

    /// Loads (or takes, when negative: only what is free) units, once per load id.
    pub(crate) fn load(&mut self, shard: ShardId, id: u64, sku: SkuKey, units: i64) {
        let shard = &mut self.shards[shard.index()];
        if !shard.loads.insert(id) {
            return;
        }
        let stock = shard.stock.entry(sku).or_default();
        let units = units.max(-i64::from(stock.free));
        stock.loaded += units;
        stock.free = u32::try_from(i64::from(stock.free) + units).unwrap();
        shard.append(Change::Loaded, &BTreeSet::from([sku]));
        shard.check_formula();
        self.effects.push(Effect::Supplied { sku });
    }

    /// Moves a user's mark on; units of one that is live no longer go back to the shard.
    pub(crate) fn settle(&mut self, activity: ActivityId, user: UserId, state: OrderState) {
        let shard = &mut self.shards[ShardId::of(user).index()];
        let Some(mark) = shard.marks.get_mut(&(activity, user)) else { return };
        if !mark.state.is_live() || (mark.state, state) == (OrderState::Paid, OrderState::PendingPayment) {
            return;
        }
        mark.state = state;
        let mark = *mark;
        let mut touched = BTreeSet::new();
        if !state.is_live() {
            shard.stock.get_mut(&mark.sku).unwrap().free += u32::from(mark.quantity);
            touched.insert(mark.sku);
            self.effects.push(Effect::Released { mark });
            self.effects.push(Effect::Supplied { sku: mark.sku });
        }
        shard.append(Change::Marked(vec![(user, mark)]), &touched);
        shard.check_formula();
        self.remember(ShardId::of(user));
    }

    pub(crate) fn snapshot(&self, shard: ShardId, by_zombie: bool) -> Option<Snapshot> {
        let shard = self.reached(shard, by_zombie);
        shard.open.then(|| Snapshot {
            shard: shard.id,
            generation: shard.generation,
            seq: shard.seq,
            counters: shard.stock.iter().map(|(sku, stock)| stock.counters(*sku)).collect(),
            marks: shard.marks.iter().map(|(&(_, user), mark)| (user, *mark)).collect(),
        })
    }

    fn reached(&self, shard: ShardId, by_zombie: bool) -> &Shard {
        match &self.zombies[shard.index()] {
            Some(zombie) if by_zombie => &zombie.shard,
            _ => &self.shards[shard.index()],
        }
    }

    /// Events after a position. A store may notice that the feed was trimmed beyond it, or (`plain`) just give what
    /// is there: then the jump in seq tells.
    pub(crate) fn read_feed(
        &self,
        shard: ShardId,
        after: (Gen, u64),
        limit: usize,
        plain: bool,
        by_zombie: bool,
    ) -> Option<FeedPart> {
        let shard = self.reached(shard, by_zombie);
        if !shard.open {
            return None;
        }
        let kept_from = shard.feed.front().map_or(shard.seq + 1, |event| event.seq);
        if after.0 != shard.generation || !plain && after.1 + 1 < kept_from {
            return Some(FeedPart::Gap);
        }
        let newer = shard.feed.iter().filter(|event| event.seq > after.1);
        let events: Vec<Event> = newer.take(limit).cloned().collect();
        let to_the_end = events.last().is_none_or(|event| event.seq == shard.seq);
        Some(FeedPart::Events(events, to_the_end))
    }

    /// Drops all but the newest `keep` events of a shard's feed.
    pub(crate) fn trim(&mut self, shard: ShardId, keep: usize) {
        let feed = &mut self.shards[shard.index()].feed;
        while feed.len() > keep.max(1) {
            feed.pop_front();
        }
    }

    pub(crate) fn close(&mut self) {
        for shard in &mut self.shards {
            shard.open = false;
        }
    }

    /// Opens under a new generation. Marks and counters are as they were; the numbering of events may start
    /// anew, stored replies may be gone, and moves that were complete may have been undone on both sides, as a
    /// recovery does.
    pub(crate) fn reopen(&mut self, restart_seq: bool, forget_calls: bool, undo_moves: bool) {
        if undo_moves {
            self.undo_complete_moves();
        }
        let generation = Gen(self.generation().0 + 1);
        for shard in &mut self.shards {
            shard.open = true;
            shard.generation = generation;
            shard.feed.clear();
            if restart_seq {
                shard.seq = 0;
            }
            if forget_calls {
                shard.calls.clear();
            }
            shard.check_formula();
        }
    }

    fn undo_complete_moves(&mut self) {
        let skus: BTreeSet<SkuKey> =
            self.shards.iter().flat_map(|shard| shard.stock.keys().copied()).collect();
        for sku in skus {
            for source in 0..SHARDS {
                for target in 0..SHARDS {
                    self.undo_move(sku, source, target);
                }
            }
        }
    }

    fn undo_move(&mut self, sku: SkuKey, source: usize, target: usize) {
        let Some(out) = self.shards[source].stock.get(&sku).map(|stock| stock.out[target]) else { return };
        let Some(there) = self.shards[target].stock.get_mut(&sku) else { return };
        let complete = out == there.brought_in[source];
        if out == 0 || !complete || u64::from(there.free) < out {
            return;
        }
        there.free -= u32::try_from(out).unwrap();
        there.brought_in[source] = 0;
        let here = self.shards[source].stock.get_mut(&sku).unwrap();
        here.free += u32::try_from(out).unwrap();
        here.out[target] = 0;
    }

    /// Units of an SKU on their way between shards.
    pub(crate) fn moving(&self, sku: SkuKey) -> u64 {
        let mut moving = 0;
        for source in self.visible() {
            let Some(stock) = source.stock.get(&sku) else { continue };
            for (target, out) in stock.out.iter().enumerate().filter(|(_, out)| **out > 0) {
                let there = self.stock_of(target, sku);
                let brought_in = there.map_or(0, |there| there.brought_in[source.id.index()]);
                assert!(brought_in <= *out, "{sku}: more came in than went out, {:?} to {target}", source.id);
                moving += out - brought_in;
            }
        }
        moving
    }
}
