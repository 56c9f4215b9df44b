//! Recovery in the model: shards that come back older, old masters that live on, gateways that are cut off, and a
//! leader that follows rule 11 and may die at any step of it.

use std::collections::{BTreeMap, BTreeSet};

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuKey, UserId};
use rushgate::stock::Standing;
use rushgate::stock::calls::{Gen, Mark, RecoveryCall, Reply, SHARDS, ShardId, Snapshot};

use super::store::{FeedPart, Shard, SkuStock};
use super::world::{Happening, Life, World};

/// What SQL holds.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) generation: Gen,
    /// Settled orders as they stand.
    pub(crate) orders: BTreeMap<OrderNumber, (UserId, Mark)>,
    failed: BTreeSet<OrderNumber>,
    rebuilt: [Gen; SHARDS],
    /// Hand-ins that a leader could still read.
    in_time: BTreeSet<(Gen, u32)>,
    pub(crate) recovery: Option<Recovery>,
}

impl Sql {
    pub(crate) const fn new(generation: Gen) -> Self {
        Self {
            generation,
            orders: BTreeMap::new(),
            failed: BTreeSet::new(),
            rebuilt: [Gen(0); SHARDS],
            in_time: BTreeSet::new(),
            recovery: None,
        }
    }
}

type Counters = BTreeMap<SkuKey, SkuStock>;

/// One leader's attempt.
#[derive(Debug)]
pub(crate) struct Recovery {
    call: RecoveryCall,
    /// As seen when it began: only these processes are written to.
    runs: Vec<u64>,
    /// Counters of open shards, as of their adoption.
    adopted: BTreeMap<usize, Counters>,
    hands: BTreeMap<u32, Vec<(UserId, Mark)>>,
    /// `None` while marks may be handed in.
    content: Option<BTreeMap<usize, Shard>>,
}

impl Recovery {
    fn is_closed(&self, shard: usize) -> bool {
        self.call.closed[shard]
    }
}

/// How far along an order is.
fn rank(state: OrderState) -> u8 {
    match state {
        OrderState::Reserved => 0,
        OrderState::Recorded => 1,
        OrderState::PendingPayment => 2,
        OrderState::Paid => 3,
        OrderState::Closed | OrderState::Failed | OrderState::RefundDue => 4,
    }
}

fn merge(marks: &mut BTreeMap<(ActivityId, UserId), Mark>, user: UserId, mark: Mark, who: &str) {
    let known = marks.entry((mark.sku.activity, user)).or_insert(mark);
    if known.attempt != mark.attempt {
        if known.attempt < mark.attempt {
            *known = mark;
        }
        return;
    }
    assert_eq!(
        known.order, mark.order,
        "{who} knows another order of user {user}: {mark:?} against {known:?}"
    );
    if rank(mark.state) > rank(known.state) {
        *known = mark;
    }
}

/// The unit formula of a shard.
fn free_of(shard: &Shard, sku: SkuKey) -> i64 {
    let stock = &shard.stock[&sku];
    let live = shard.marks.values().filter(|mark| mark.sku == sku && mark.state.is_live());
    let sum = |amounts: &[u64; SHARDS]| i64::try_from(amounts.iter().sum::<u64>()).unwrap();
    stock.loaded + sum(&stock.brought_in)
        - sum(&stock.out)
        - live.map(|mark| i64::from(mark.quantity)).sum::<i64>()
}

impl World {
    pub(crate) fn schedule_recoveries(&mut self) {
        let until_ms = self.plan.sale_ms + 60;
        for _ in 0..self.plan.rollbacks {
            let at_ms = self.rng.u64(5..until_ms);
            self.at(at_ms, Happening::Restart);
        }
        for _ in 0..self.plan.silences {
            let (at_ms, gateway) = (self.rng.u64(5..until_ms), self.rng.usize(0..self.plan.gateways));
            self.at(at_ms, Happening::Silence(gateway));
        }
        if self.plan.rollbacks > 0 {
            self.at(1, Happening::Lead);
        }
    }

    pub(crate) fn happen_in_recovery(&mut self, happening: Happening) {
        match happening {
            Happening::Restart => self.restart(),
            Happening::ZombieDies(shard, run) => self.zombie_dies(shard, run),
            Happening::Silence(gateway) => self.silence(gateway),
            Happening::Wake(life) => self.wake(life),
            Happening::Lead => self.lead(),
            Happening::RecoveryAsked(life, call) => self.recovery_asked(life, call),
            Happening::HandInArrives(life, generation, marks) => {
                self.hand_in_arrives(life, generation, marks);
            }
            Happening::HandInAnswered(life, generation, in_time) => {
                self.hand_in_answered(life, generation, in_time);
            }
            Happening::FailArrives(life, user, mark) => self.fail_arrives(life, user, mark),
            Happening::FailAnswered(life, user, mark) => self.fail_answered(life, user, mark),
            other => panic!("{other:?} is no part of a recovery"),
        }
    }

    /// Nothing of a recovery is unfinished.
    pub(crate) fn is_recovered(&self) -> bool {
        self.store.shards.iter().all(|shard| shard.open)
            && self.store.zombies.iter().all(Option::is_none)
            && self.sql.recovery.is_none()
            && self.gateways.iter().all(|gateway| !gateway.is_silent && gateway.owes_nothing())
    }

    pub(crate) fn restart(&mut self) {
        let count = *self.rng.choice(&[1, 1, 2, 4, SHARDS]).unwrap_or(&1);
        for _ in 0..count {
            let id = ShardId::ALL[self.rng.usize(0..SHARDS)];
            let back = *self.rng.choice(&[0, 1, 1, 2, 3, 5, 9]).unwrap_or(&0);
            let lives_on = self.rng.u32(0..1000) < self.plan.zombies;
            self.store.restart(id, back, lives_on);
            self.trace_text(&format!("{id:?} restarts, {back} back, old master: {lives_on}"));
            let dies_ms = self.now_ms + self.rng.u64(20..400);
            self.at(dies_ms, Happening::ZombieDies(id, self.store.shards[id.index()].run));
        }
    }

    pub(crate) fn zombie_dies(&mut self, id: ShardId, run: u64) {
        if self.store.shards[id.index()].run == run {
            self.store.zombies[id.index()] = None;
        }
    }

    /// Whether a message to a shard reaches its old master.
    pub(crate) fn by_zombie(&mut self, id: ShardId) -> bool {
        self.store.zombies[id.index()].is_some() && self.rng.bool()
    }

    pub(crate) fn silence(&mut self, number: usize) {
        let ms = self.rng.u64(20..400);
        let gateway = &mut self.gateways[number];
        if gateway.is_silent {
            return;
        }
        (gateway.is_silent, gateway.was_silent) = (true, true);
        let life = gateway.life;
        self.trace_text(&format!("g{} is cut off for {ms} ms", life.process));
        self.at(self.now_ms + ms, Happening::Wake(life));
        // What cuts a gateway off is often what ends a master.
        if self.rng.bool() {
            let at_ms = self.now_ms + self.rng.u64(0..10);
            self.at(at_ms, Happening::Restart);
        }
    }

    pub(crate) fn wake(&mut self, life: Life) {
        let generation = self.sql.generation;
        if let Some(gateway) = self.alive(life) {
            gateway.is_silent = false;
            gateway.known = generation;
        }
        self.trace_text(&format!("g{} is back", life.process));
    }

    /// Rule 12: who is cut off, or has not learnt of a newer generation, hears nothing of the store.
    pub(crate) fn is_deaf(&mut self, life: Life, generation: Option<Gen>) -> bool {
        let too_old = |known| generation.is_some_and(|generation| generation < known);
        self.alive(life).is_some_and(|gateway| gateway.is_silent || too_old(gateway.known))
    }

    pub(crate) fn generation_of(reply: &Reply) -> Option<Gen> {
        match reply {
            Reply::Done(done) => Some(done.generation),
            Reply::Gen(_) | Reply::Stale | Reply::Recovering => None,
        }
    }

    pub(crate) fn is_old_snapshot(&mut self, life: Life, snapshot: &Snapshot) -> bool {
        self.is_deaf(life, Some(snapshot.generation))
    }

    pub(crate) fn heard_parts(
        &mut self,
        life: Life,
        parts: &[(ShardId, FeedPart)],
    ) -> Vec<(ShardId, FeedPart)> {
        let old = |part: &FeedPart| match part {
            FeedPart::Events(events, _) => events.first().map(|event| event.generation),
            FeedPart::Gap => None,
        };
        parts.iter().filter(|(_, part)| !self.is_deaf(life, old(part))).cloned().collect()
    }

    // ---------- the leader

    pub(crate) fn lead(&mut self) {
        let next_ms = self.now_ms + self.rng.u64(1..=15);
        self.at(next_ms, Happening::Lead);
        if !self.draining && self.rng.u32(0..1000) < self.plan.leader_deaths {
            if self.sql.recovery.take().is_some() {
                self.trace_text("the leader dies");
            }
            return;
        }
        let Some(recovery) = self.sql.recovery.take() else { return self.begin_recovery() };
        if recovery.content.is_some() {
            self.rebuild(recovery);
        } else if recovery.adopted.len() + recovery.runs.len() < SHARDS {
            self.adopt(recovery);
        } else {
            self.collect(recovery);
        }
    }

    /// (1) Raise the generation, and see which shards are closed.
    fn begin_recovery(&mut self) {
        let closed: Vec<bool> = self.store.shards.iter().map(|shard| !shard.open).collect();
        if !closed.contains(&true) {
            return;
        }
        self.sql.generation = Gen(self.sql.generation.0 + 1);
        let call = RecoveryCall {
            generation: self.sql.generation,
            closed: std::array::from_fn(|shard| closed[shard]),
            rebuilt: self.sql.rebuilt,
        };
        self.trace_text(&format!("recovery begins: {call:?}"));
        self.counts.recoveries += 1;
        let runs = self.store.shards.iter().filter(|shard| !shard.open).map(|shard| shard.run).collect();
        self.sql.recovery =
            Some(Recovery { call, runs, adopted: BTreeMap::new(), hands: BTreeMap::new(), content: None });
    }

    /// (2) The open shards take the new generation, or join.
    fn adopt(&mut self, mut recovery: Recovery) {
        for _ in 0..self.rng.usize(1..=8) {
            let next = (0..SHARDS)
                .find(|shard| !recovery.is_closed(*shard) && !recovery.adopted.contains_key(shard));
            let Some(next) = next else { break };
            let shard = &mut self.store.shards[next];
            if !shard.open {
                return;
            }
            shard.generation = recovery.call.generation;
            recovery.adopted.insert(next, shard.stock.clone());
            self.store.remember(ShardId::ALL[next]);
        }
        self.sql.recovery = Some(recovery);
    }

    /// (3) Every live gateway hands in.
    fn collect(&mut self, mut recovery: Recovery) {
        let live: Vec<Life> =
            self.gateways.iter().filter(|gateway| !gateway.is_silent).map(|gateway| gateway.life).collect();
        let waits: Vec<Life> =
            live.into_iter().filter(|life| !recovery.hands.contains_key(&life.process)).collect();
        for life in &waits {
            let at_ms = self.now_ms + self.rng.u64(0..20);
            self.at(at_ms, Happening::RecoveryAsked(*life, recovery.call));
        }
        if waits.is_empty() {
            for shard in (0..SHARDS).filter(|shard| recovery.is_closed(*shard)) {
                self.sql.rebuilt[shard] = recovery.call.generation;
            }
            recovery.content = Some(self.contents(&recovery));
        }
        self.sql.recovery = Some(recovery);
    }

    /// (5), (6) What the closed shards are to hold.
    fn contents(&self, recovery: &Recovery) -> BTreeMap<usize, Shard> {
        let mut contents: BTreeMap<usize, Shard> = BTreeMap::new();
        for number in (0..SHARDS).filter(|shard| recovery.is_closed(*shard)) {
            let mut shard = self.store.shards[number].clone();
            let here = |user: &UserId| ShardId::of(*user).index() == number;
            for (process, marks) in &recovery.hands {
                for (user, mark) in marks.iter().filter(|(user, _)| here(user)) {
                    merge(&mut shard.marks, *user, *mark, &format!("g{process}"));
                }
            }
            for (user, mark) in self.sql.orders.values().filter(|(user, _)| here(user)) {
                merge(&mut shard.marks, *user, *mark, "SQL");
            }
            contents.insert(number, shard);
        }
        let known: Vec<Counters> = (0..SHARDS)
            .map(|shard| {
                contents
                    .get(&shard)
                    .map_or_else(|| recovery.adopted[&shard].clone(), |shard| shard.stock.clone())
            })
            .collect();
        for (number, shard) in &mut contents {
            for (sku, stock) in &mut shard.stock {
                for (other, counters) in known.iter().enumerate().filter(|(other, _)| other != number) {
                    let there = &counters[sku];
                    stock.brought_in[other] = stock.brought_in[other].max(there.out[*number]);
                    stock.out[other] = stock.out[other].max(there.brought_in[*number]);
                }
            }
        }
        for sku in &self.plan.skus {
            Self::cover(&mut contents, *sku);
        }
        for shard in contents.values_mut() {
            let generation = recovery.call.generation;
            (shard.generation, shard.open) = (generation, true);
            shard.feed.clear();
            for sku in &self.plan.skus {
                let free = u32::try_from(free_of(shard, *sku));
                let free = free.unwrap_or_else(|_| {
                    panic!("{:?} is rebuilt with {} free", shard.id, free_of(shard, *sku))
                });
                shard.stock.get_mut(sku).unwrap().free = free;
            }
        }
        contents
    }

    fn cover(contents: &mut BTreeMap<usize, Shard>, sku: SkuKey) {
        let numbers: Vec<usize> = contents.keys().copied().collect();
        for &short in &numbers {
            for &rich in &numbers {
                let units = (-free_of(&contents[&short], sku)).min(free_of(&contents[&rich], sku));
                if short != rich && units > 0 {
                    contents.get_mut(&short).unwrap().stock.get_mut(&sku).unwrap().brought_in[rich] +=
                        units.unsigned_abs();
                    contents.get_mut(&rich).unwrap().stock.get_mut(&sku).unwrap().out[short] +=
                        units.unsigned_abs();
                }
            }
        }
    }

    /// (7) One script a shard.
    fn rebuild(&mut self, mut recovery: Recovery) {
        let contents = recovery.content.take().unwrap_or_default();
        let mut left = contents.clone();
        for _ in 0..self.rng.usize(1..=4) {
            let Some((number, mut content)) = left.pop_first() else { break };
            let shard = &self.store.shards[number];
            let nth = (0..number).filter(|shard| recovery.is_closed(*shard)).count();
            if shard.open || shard.run != recovery.runs[nth] || shard.generation > recovery.call.generation {
                self.trace_text(&format!("{:?} refuses to be rebuilt", shard.id));
                return;
            }
            if self.rng.bool() {
                content.seq = 0;
            }
            self.store.shards[number] = content;
            self.store.remember(ShardId::ALL[number]);
            if left.len() + 1 == contents.len() {
                self.decided(&contents);
            }
        }
        self.trace_text(&format!("{} shards are still to be rebuilt", left.len()));
        if !left.is_empty() {
            recovery.content = Some(left);
            self.sql.recovery = Some(recovery);
        }
    }

    /// From the first rebuild on the closed shards count as what they will be.
    fn decided(&mut self, contents: &BTreeMap<usize, Shard>) {
        for (number, content) in contents {
            self.store.image[*number] = Some(content.clone());
            if let Some(zombie) = &mut self.store.zombies[*number] {
                zombie.counts = false;
            }
        }
        let skus = self.plan.skus.clone();
        for (user, mark) in self.ledger.reconcile(self.now_ms, &self.store, &skus) {
            self.trace_text(&format!("lost: {mark:?} of user {user}"));
            self.counts.lost += 1;
            let owner = (mark.order.0 >> 36) as u32;
            for gateway in self.gateways.iter().filter(|gateway| !gateway.was_silent) {
                let known = gateway.buyers.standing(mark.sku.activity, user);
                let knows = matches!(known, Some(Standing::Order(known)) if known.order == mark.order);
                assert!(!knows, "a recovery lost {mark:?} of user {user}, known to {:?}", gateway.life);
            }
            let sound = |process| {
                self.gateways.iter().any(|gateway| gateway.life.process == process && !gateway.was_silent)
            };
            if !sound(owner) {
                self.ledger.may_be_lost.insert(mark.order);
            }
        }
    }

    // ---------- gateways and SQL

    pub(crate) fn recovery_asked(&mut self, life: Life, call: RecoveryCall) {
        let Some(gateway) = self.alive(life) else { return };
        if !gateway.is_silent && call.generation > gateway.asked {
            gateway.next_call = Some(call);
            self.hand_in(life);
        }
    }

    fn hand_in(&mut self, life: Life) {
        let Some(gateway) = self.alive(life) else { return };
        if gateway.handing_in.is_some() {
            return;
        }
        let Some(call) = gateway.next_call.take() else { return };
        gateway.asked = call.generation;
        let marks = gateway.engine.hand_in(&call);
        gateway.handing_in = Some((call.generation, marks, 0));
        self.write(life);
    }

    /// What the gateway wants written to SQL, once more if there was no answer.
    pub(crate) fn write(&mut self, life: Life) {
        let now_ms = self.now_ms;
        let Some(gateway) = self.alive(life) else { return };
        let mut messages = Vec::new();
        let offered = gateway.engine.take_offered();
        for (user, mark) in gateway.engine.take_broken() {
            gateway.failing.insert(mark.order, (user, mark, 0));
        }
        let is_silent = gateway.is_silent;
        self.counts.offered += offered;
        if is_silent {
            return;
        }
        let Some(gateway) = self.alive(life) else { return };
        if let Some((generation, marks, sent_ms)) = &mut gateway.handing_in
            && *sent_ms + 40 <= now_ms
        {
            *sent_ms = now_ms;
            messages.push(Happening::HandInArrives(life, *generation, marks.clone()));
        }
        for (user, mark, sent_ms) in
            gateway.failing.values_mut().filter(|(_, _, sent_ms)| sent_ms + 40 <= now_ms)
        {
            *sent_ms = now_ms;
            messages.push(Happening::FailArrives(life, *user, *mark));
        }
        for message in messages {
            self.post(message);
        }
    }

    fn post(&mut self, message: Happening) {
        if self.draining || self.rng.u32(0..6) > 0 {
            let at_ms = self.now_ms + self.rng.u64(0..30);
            self.at(at_ms, message);
        }
    }

    pub(crate) fn hand_in_arrives(&mut self, life: Life, generation: Gen, marks: Vec<(UserId, Mark)>) {
        let taken = self
            .sql
            .recovery
            .as_mut()
            .filter(|recovery| recovery.call.generation == generation && recovery.content.is_none());
        if let Some(recovery) = taken {
            recovery.hands.insert(life.process, marks);
            self.sql.in_time.insert((generation, life.process));
        }
        let in_time = self.sql.in_time.contains(&(generation, life.process));
        self.post(Happening::HandInAnswered(life, generation, in_time));
    }

    pub(crate) fn hand_in_answered(&mut self, life: Life, generation: Gen, in_time: bool) {
        let Some(gateway) = self.alive(life) else { return };
        if gateway.is_silent || gateway.handing_in.as_ref().is_none_or(|(handed, _, _)| *handed != generation)
        {
            return;
        }
        gateway.handing_in = None;
        if in_time {
            gateway.engine.on_handed_in(generation);
        }
        self.hand_in(life);
    }

    pub(crate) fn fail_arrives(&mut self, life: Life, user: UserId, mark: Mark) {
        let end = match self.sql.orders.get(&mark.order) {
            Some((_, settled)) => *settled,
            None => Mark { state: OrderState::Failed, ..mark },
        };
        if end.state == OrderState::Failed && self.sql.failed.insert(mark.order) {
            self.trace_text(&format!("FAILED: {mark:?} of user {user}"));
            self.ledger.fail(mark.order, user);
            self.counts.failed += 1;
        }
        self.post(Happening::FailAnswered(life, user, end));
    }

    pub(crate) fn fail_answered(&mut self, life: Life, user: UserId, end: Mark) {
        let Some(gateway) = self.alive(life) else { return };
        if !gateway.is_silent && gateway.failing.remove(&end.order).is_some() {
            gateway.engine.on_failed(user, end);
            self.pump(life);
        }
    }

    /// A settlement is a transaction under the generation; what SQL knows outlives the shard.
    pub(crate) fn settle(&mut self, activity: ActivityId, user: UserId, state: OrderState) {
        if self.plan.rollbacks == 0 {
            return self.store.settle(activity, user, state);
        }
        let shard = &self.store.shards[ShardId::of(user).index()];
        if !shard.open || shard.generation != self.sql.generation {
            return;
        }
        self.store.settle(activity, user, state);
        let shard = &self.store.shards[ShardId::of(user).index()];
        if let Some(mark) =
            shard.marks.get(&(activity, user)).filter(|mark| mark.state != OrderState::Reserved)
        {
            self.sql.orders.insert(mark.order, (user, *mark));
        }
    }

    pub(crate) fn check_recoveries(&self) {
        let crashed = |process| self.gateways.iter().all(|gateway| gateway.life.process != process);
        self.ledger.check_promises(crashed);
        for (order, user) in &self.ledger.failed {
            let owner = (order.0 >> 36) as u32;
            assert!(
                crashed(owner) || self.told_failed.contains(order),
                "user {user} heard nothing of {order}"
            );
        }
    }
}
