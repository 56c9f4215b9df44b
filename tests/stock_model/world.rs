//! One run: gateways, store, network, clients and disasters on one synthetic clock.
//!
//! A queue of happenings ordered by time, ties by chance. Whatever crosses the network may be lost, repeated or
//! kept back; after the sale's end it is sound, and everybody who holds nothing asks until he is told something
//! final.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;
use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuKey, UserId};
use rushgate::stock::calls::{
    Call, Gen, Mark, ProcessNumber, RecoveryCall, Reply, SHARDS, ShardId, Snapshot,
};
use rushgate::stock::{Left, Outcome, Purchase, Standing};

use super::gateway::{Gateway, Ticket};
use super::ledger::Ledger;
use super::plan::Plan;
use super::recovery::Sql;
use super::store::{FeedPart, Store};

/// A gateway in one of its lives; what is meant for an earlier life is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) gateway: usize,
    pub(crate) process: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Tick(Life),
    CallArrives(Life, Call),
    ReplyArrives(Life, ShardId, u64, Reply),
    FailureSeen(Life, ShardId, u64),
    FeedsAsked(Life, [(Gen, u64); SHARDS], u64),
    FeedsArrive(Life, Vec<(ShardId, FeedPart)>, u64),
    SnapshotAsked(Life, ShardId),
    SnapshotArrives(Life, Snapshot),
    ClientActs(usize),
    Crash(usize),
    Close,
    Reopen,
    Supply(ShardId, u64, SkuKey, i64),
    Trim(ShardId, usize),
    Settle(usize, OrderState),
    SaleEnds,
    Restart,
    ZombieDies(ShardId, u64),
    Silence(usize),
    Wake(Life),
    Lead,
    RecoveryAsked(Life, RecoveryCall),
    HandInArrives(Life, Gen, Vec<(UserId, Mark)>),
    HandInAnswered(Life, Gen, bool),
    FailArrives(Life, UserId, Mark),
    FailAnswered(Life, UserId, Mark),
}

#[derive(Clone, Debug)]
struct Client {
    user: UserId,
    activity: ActivityId,
    quantity: u16,
    waits: usize,
    won: bool,
    /// Told that an order of his may exist: by whom, which.
    doubts: Vec<(Life, OrderNumber)>,
    /// Refused after the sale's end: what he had asked for.
    refused: Option<SkuKey>,
}

/// See the module.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) now_ms: u64,
    serial: u64,
    queue: BTreeMap<(u64, u32, u64), Happening>,
    pub(crate) store: Store,
    pub(crate) sql: Sql,
    pub(crate) ledger: Ledger,
    pub(crate) gateways: Vec<Gateway>,
    /// FAILED orders whose users were told.
    pub(crate) told_failed: BTreeSet<OrderNumber>,
    clients: Vec<Client>,
    processes: u32,
    tickets: u64,
    pub(crate) draining: bool,
    trace: bool,
    /// Deliveries and executions still under way.
    under_way: usize,
    pub(crate) counts: Counts,
}

/// What happened in a run, for the summary: a model that never meets a case proves nothing about it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) steps: u64,
    pub(crate) pushes: u64,
    pub(crate) units_asked: u64,
    pub(crate) calls: u64,
    pub(crate) moves: u64,
    pub(crate) reserved: u64,
    pub(crate) again: u64,
    pub(crate) sold_out: u64,
    pub(crate) sold_out_by_board: u64,
    pub(crate) insufficient: u64,
    pub(crate) already: u64,
    pub(crate) busy: u64,
    pub(crate) too_often: u64,
    pub(crate) ended: u64,
    pub(crate) unconfirmed: u64,
    pub(crate) not_again: u64,
    pub(crate) sold_to_the_last: u64,
    pub(crate) recoveries: u64,
    pub(crate) lost: u64,
    pub(crate) offered: u64,
    pub(crate) failed: u64,
    pub(crate) model_ms: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.pushes += other.pushes;
        self.units_asked += other.units_asked;
        self.calls += other.calls;
        self.moves += other.moves;
        self.reserved += other.reserved;
        self.again += other.again;
        self.sold_out += other.sold_out;
        self.sold_out_by_board += other.sold_out_by_board;
        self.insufficient += other.insufficient;
        self.already += other.already;
        self.busy += other.busy;
        self.too_often += other.too_often;
        self.ended += other.ended;
        self.unconfirmed += other.unconfirmed;
        self.not_again += other.not_again;
        self.sold_to_the_last += other.sold_to_the_last;
        self.recoveries += other.recoveries;
        self.lost += other.lost;
        self.offered += other.offered;
        self.failed += other.failed;
        self.model_ms += other.model_ms;
    }
}

macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.trace {
            eprintln!("{:>6} {}", $world.now_ms, format_args!($($text)*));
        }
    };
}

impl World {
    pub(crate) fn new(seed: u64, plan: Plan, trace: bool) -> Self {
        let client = |&(user, activity, quantity): &(UserId, ActivityId, u16)| Client {
            user,
            activity,
            quantity,
            waits: 0,
            won: false,
            doubts: Vec::new(),
            refused: None,
        };
        let clients = plan.clients.iter().map(client).collect();
        let mut world = Self {
            rng: Rng::with_seed(seed),
            now_ms: 1,
            serial: 0,
            queue: BTreeMap::new(),
            store: Store::new(plan.attempts_max),
            sql: Sql::new(Gen(1)),
            told_failed: BTreeSet::new(),
            ledger: Ledger::new(plan.again_max),
            gateways: Vec::new(),
            clients,
            processes: 0,
            tickets: 0,
            draining: false,
            trace,
            under_way: 0,
            counts: Counts::default(),
            plan,
        };
        world.preheat();
        if world.plan.rollbacks > 0 {
            let first = |shard: &super::store::Shard| VecDeque::from([shard.clone()]);
            world.store.past = Some(world.store.shards.iter().map(first).collect());
        }
        for gateway in 0..world.plan.gateways {
            let new = world.start_gateway(gateway);
            world.gateways.push(new);
        }
        world.schedule_sale();
        world.schedule_disasters();
        world.schedule_recoveries();
        world
    }

    pub(crate) fn trace_text(&self, text: &str) {
        trace!(self, "{text}");
    }

    pub(crate) fn at(&mut self, at_ms: u64, happening: Happening) {
        self.serial += 1;
        if on_the_way(&happening) {
            self.under_way += 1;
        }
        let chance = self.rng.u32(..);
        self.queue.insert((at_ms.max(self.now_ms), chance, self.serial), happening);
    }

    fn start_gateway(&mut self, gateway: usize) -> Gateway {
        self.processes += 1;
        let life = Life { gateway, process: self.processes };
        let generation = if self.plan.rollbacks > 0 { self.sql.generation } else { self.store.generation() };
        let first_ms = self.now_ms + self.rng.u64(0..5);
        self.at(first_ms, Happening::Tick(life));
        let process = ProcessNumber(life.process);
        Gateway::new(self.plan.settings, life, process, generation, self.plan.again_max, self.rng.u64(..))
    }

    fn preheat(&mut self) {
        let skus = self.plan.skus.clone();
        let late = self.plan.late_preheat;
        for (number, sku) in skus.into_iter().enumerate() {
            for shard in ShardId::ALL {
                let units = i64::from(self.plan.stock[number][shard.index()]);
                let id = (number * SHARDS + shard.index()) as u64;
                if late {
                    let at_ms = self.rng.u64(1..60);
                    self.at(at_ms, Happening::Supply(shard, id, sku, units));
                } else {
                    self.store.load(shard, id, sku, units);
                }
            }
            self.ledger.note(self.now_ms, &self.store, sku);
        }
        self.ledger.enter(self.now_ms, &mut self.store);
    }

    fn schedule_sale(&mut self) {
        let sale_ms = self.plan.sale_ms;
        for client in 0..self.clients.len() {
            let at_ms = self.rng.u64(0..=sale_ms);
            self.at(at_ms, Happening::ClientActs(client));
        }
        // Nothing is supplied any more, and no gateway's view is older than the last supply.
        let end_ms = sale_ms + 150 + self.plan.settings.view_lag_ms_max;
        self.at(end_ms, Happening::SaleEnds);
    }

    fn schedule_disasters(&mut self) {
        let until_ms = self.plan.sale_ms + 80;
        let plan = self.plan.clone();
        for _ in 0..plan.crashes {
            let (at_ms, gateway) = (self.rng.u64(5..until_ms), self.rng.usize(0..plan.gateways));
            self.at(at_ms, Happening::Crash(gateway));
        }
        for _ in 0..plan.restarts {
            let at_ms = self.rng.u64(5..until_ms);
            self.at(at_ms, Happening::Close);
        }
        let mut id = 1 << 32;
        let mut supply = |world: &mut Self, count: u32, sign: i64| {
            for _ in 0..count {
                id += 1;
                let (at_ms, units) = (world.rng.u64(1..until_ms), sign * world.rng.i64(1..=3));
                let shard = ShardId::ALL[world.rng.usize(0..SHARDS)];
                let sku = plan.skus[world.rng.usize(0..plan.skus.len())];
                for _ in 0..world.rng.usize(1..=2) {
                    world.at(at_ms, Happening::Supply(shard, id, sku, units));
                }
            }
        };
        supply(self, plan.additions, 1);
        supply(self, plan.takings, -1);
        for _ in 0..plan.trims {
            let (at_ms, keep) = (self.rng.u64(1..until_ms), self.rng.usize(1..=2));
            let shard = ShardId::ALL[self.rng.usize(0..SHARDS)];
            self.at(at_ms, Happening::Trim(shard, keep));
        }
        for turn in 0..plan.settles + plan.releases {
            let at_ms = self.rng.u64(1..until_ms);
            let state = match turn {
                turn if turn >= plan.settles => OrderState::Closed,
                turn if turn % 2 == 0 => OrderState::PendingPayment,
                _ => OrderState::Paid,
            };
            let client = self.rng.usize(0..self.clients.len());
            self.at(at_ms, Happening::Settle(client, state));
        }
    }

    /// Runs to the end; panics at the first violation.
    pub(crate) fn run(&mut self) {
        let end_ms = self.plan.sale_ms + self.plan.late_ms_max + 20_000;
        while let Some(((at_ms, _, _), happening)) = self.queue.pop_first() {
            self.now_ms = self.now_ms.max(at_ms);
            self.counts.steps += 1;
            if on_the_way(&happening) {
                self.under_way -= 1;
            }
            assert!(self.now_ms < end_ms, "it does not end: {}", self.unfinished_business());
            let is_tick = matches!(happening, Happening::Tick(_));
            self.happen(happening);
            if self.draining && is_tick && self.is_at_rest() {
                break;
            }
        }
        self.check_end();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick(life) => self.tick(life),
            Happening::CallArrives(life, call) => self.on_call(life, &call),
            Happening::ReplyArrives(life, shard, number, reply) => {
                let now_ms = self.now_ms;
                if self.is_deaf(life, Self::generation_of(&reply)) {
                    return self.at(now_ms, Happening::FailureSeen(life, shard, number));
                }
                if let Some(gateway) = self.alive(life) {
                    gateway.engine.on_reply(now_ms, shard, number, reply.clone());
                    trace!(self, "g{} hears from {shard:?} #{number}: {reply:?}", life.process);
                    self.pump_soon(life);
                }
            }
            Happening::FailureSeen(life, shard, number) => {
                let now_ms = self.now_ms;
                if let Some(gateway) = self.alive(life) {
                    gateway.engine.on_no_reply(now_ms, shard, number);
                    self.pump_soon(life);
                }
            }
            Happening::FeedsAsked(life, positions, at_ms) => self.on_feeds_asked(life, &positions, at_ms),
            Happening::FeedsArrive(life, parts, at_ms) => self.on_feeds(life, &parts, at_ms),
            Happening::SnapshotAsked(life, shard) => {
                let by_zombie = self.by_zombie(shard);
                if let Some(snapshot) = self.store.snapshot(shard, by_zombie) {
                    self.send(&Happening::SnapshotArrives(life, snapshot), true);
                }
            }
            Happening::SnapshotArrives(life, snapshot) => {
                let now_ms = self.now_ms;
                if self.is_old_snapshot(life, &snapshot) {
                    return;
                }
                if let Some(gateway) = self.alive(life) {
                    gateway.engine.on_snapshot(now_ms, &snapshot);
                    trace!(self, "g{} gets {snapshot:?}", life.process);
                    self.pump_soon(life);
                }
            }
            Happening::ClientActs(client) => self.client_acts(client),
            Happening::Crash(gateway) => self.crash(gateway),
            Happening::Close => self.close(),
            Happening::Reopen => self.reopen(),
            Happening::Supply(shard, id, sku, units) => {
                trace!(self, "{units} units of {sku} come to {shard:?}");
                self.store.load(shard, id, sku, units);
                self.ledger.enter(self.now_ms, &mut self.store);
            }
            Happening::Trim(shard, keep) => self.store.trim(shard, keep),
            Happening::Settle(client, state) => {
                let Client { user, activity, .. } = self.clients[client];
                trace!(self, "user {user} in {activity} becomes {state:?}, if he holds an order");
                self.settle(activity, user, state);
                self.ledger.enter(self.now_ms, &mut self.store);
                self.comes_again(client, state);
            }
            Happening::SaleEnds if !self.is_recovered() => {
                self.at(self.now_ms + 50, Happening::SaleEnds);
            }
            Happening::SaleEnds => {
                trace!(self, "the sale ends");
                self.draining = true;
                for client in 0..self.clients.len() {
                    let at_ms = self.now_ms + self.rng.u64(0..30);
                    self.at(at_ms, Happening::ClientActs(client));
                }
            }
            of_a_recovery => self.happen_in_recovery(of_a_recovery),
        }
    }

    /// Where he may buy again: on any gateway, whether or not it has heard; now and then on several at once.
    fn comes_again(&mut self, client: usize, state: OrderState) {
        if self.plan.again_max > 0 && state == OrderState::Closed {
            for _ in 0..self.rng.u32(1..=2) {
                let at_ms = self.now_ms + self.rng.u64(0..40);
                self.at(at_ms, Happening::ClientActs(client));
            }
        }
    }

    // ---------- the network

    /// Puts a message on the wire: it may be lost, repeated or kept back for long.
    fn send(&mut self, message: &Happening, slow: bool) {
        let plan = &self.plan;
        let (rng, calm) = (&mut self.rng, self.draining);
        let mut chance = |of_1000: u32| !calm && rng.u32(0..1000) < of_1000;
        let mut copies = 1;
        copies += u32::from(chance(plan.repeated));
        copies -= u32::from(chance(plan.lost));
        for _ in 0..copies {
            let late = !self.draining && self.rng.u32(0..1000) < self.plan.late;
            let mut delay_ms = self.rng.u64(0..=self.plan.delay_ms_max);
            if late {
                delay_ms += self.rng.u64(0..=self.plan.late_ms_max);
            } else if slow && !self.draining {
                delay_ms += self.rng.u64(0..=self.plan.slow_ms_max);
            }
            self.at(self.now_ms + delay_ms, message.clone());
        }
    }

    fn on_call(&mut self, life: Life, call: &Call) {
        let old = if self.by_zombie(call.shard) { self.store.call_zombie(call) } else { None };
        let reply = old.unwrap_or_else(|| self.store.call(call));
        trace!(self, "store executes {call:?} -> {reply:?}");
        self.ledger.enter(self.now_ms, &mut self.store);
        self.send(&Happening::ReplyArrives(life, call.shard, call.number, reply), false);
    }

    fn on_feeds_asked(&mut self, life: Life, positions: &[(Gen, u64); SHARDS], at_ms: u64) {
        let limit = if self.draining { 1000 } else { self.plan.feed_events_max };
        let mut parts = Vec::new();
        for shard in ShardId::ALL {
            let (by_zombie, position) = (self.by_zombie(shard), positions[shard.index()]);
            let part = self.store.read_feed(shard, position, limit, self.plan.plain_reads, by_zombie);
            parts.extend(part.map(|part| (shard, part)));
        }
        if !parts.is_empty() {
            self.send(&Happening::FeedsArrive(life, parts, at_ms), true);
        }
    }

    fn on_feeds(&mut self, life: Life, parts: &[(ShardId, FeedPart)], at_ms: u64) {
        let now_ms = self.now_ms;
        let current_after_events = self.plan.current_after_events;
        let parts = self.heard_parts(life, parts);
        let Some(gateway) = self.alive(life) else { return };
        if gateway.reading_since_ms == Some(at_ms) {
            gateway.reading_since_ms = None;
        }
        for (shard, part) in &parts {
            match part {
                FeedPart::Gap => gateway.engine.on_gap(*shard),
                FeedPart::Events(events, to_the_end) => {
                    if !events.is_empty() {
                        gateway.engine.on_events(now_ms, *shard, events);
                    }
                    if *to_the_end && (events.is_empty() || current_after_events) {
                        gateway.engine.on_current(*shard, at_ms);
                    }
                }
            }
        }
        let told = |part: &FeedPart| !matches!(part, FeedPart::Events(events, _) if events.is_empty());
        if self.trace {
            let parts: Vec<_> = parts.iter().filter(|(_, part)| told(part)).collect();
            trace!(self, "g{} reads feeds as of {at_ms}: {parts:?}", life.process);
        }
        self.pump_soon(life);
    }

    // ---------- gateways

    pub(crate) fn alive(&mut self, life: Life) -> Option<&mut Gateway> {
        Some(&mut self.gateways[life.gateway]).filter(|gateway| gateway.life == life)
    }

    /// The stock task acts after what came in, now or at its next turn.
    fn pump_soon(&mut self, life: Life) {
        if self.rng.u32(0..4) > 0 {
            self.pump(life);
        }
    }

    pub(crate) fn pump(&mut self, life: Life) {
        let now_ms = self.now_ms;
        let Some(gateway) = self.alive(life) else { return };
        let calls = gateway.engine.poll_calls(now_ms);
        for call in &calls {
            gateway.check_call(call);
        }
        self.counts.calls += calls.len() as u64;
        self.deliver_outcomes(life);
        for call in calls {
            trace!(self, "g{} calls {call:?}", life.process);
            let (shard, number) = (call.shard, call.number);
            self.send(&Happening::CallArrives(life, call), false);
            if !self.draining && self.plan.lost > 0 && self.rng.u32(0..20) == 0 {
                self.send(&Happening::FailureSeen(life, shard, number), false);
            }
        }
    }

    fn tick(&mut self, life: Life) {
        let now_ms = self.now_ms;
        let ask_again_ms = 60 + self.plan.slow_ms_max;
        let closes = !self.draining && self.rng.u32(0..1000) < self.plan.closings;
        let closed = closes.then(|| self.rng.choice(&self.plan.skus).map(|sku| sku.activity)).flatten();
        let Some(gateway) = self.alive(life) else { return };
        // Open again at the next tick.
        gateway.engine.set_over(move |activity| Some(activity) == closed);
        gateway.engine.tick(now_ms);
        let busy = gateway.engine.unfinished() > 0;
        let wanted = gateway.snapshots_to_ask(now_ms, ask_again_ms);
        let read = gateway.feeds_to_read(now_ms, ask_again_ms);
        gateway.check_deadlines(now_ms);
        self.pump(life);
        for shard in wanted {
            self.send(&Happening::SnapshotAsked(life, shard), false);
        }
        if let Some(positions) = read {
            self.send(&Happening::FeedsAsked(life, positions, now_ms), false);
        }
        self.write(life);
        self.check_boards(life);
        let next_ms = now_ms + if busy { 5 } else { 5 + self.rng.u64(0..15) };
        self.at(next_ms, Happening::Tick(life));
    }

    fn check_boards(&mut self, life: Life) {
        let (now_ms, skus) = (self.now_ms, self.plan.skus.clone());
        let from_ms = self.fresh_from_ms();
        let Some(gateway) = self.alive(life) else { return };
        let said: Vec<(SkuKey, Left)> = skus.iter().map(|sku| (*sku, gateway.left(*sku, now_ms))).collect();
        for (sku, left) in said {
            self.ledger.check_board(from_ms, sku, left, &format!("board of g{}", life.process));
        }
    }

    fn fresh_from_ms(&self) -> u64 {
        self.now_ms.saturating_sub(self.plan.settings.view_lag_ms_max)
    }

    fn crash(&mut self, gateway: usize) {
        trace!(self, "g{} crashes", self.gateways[gateway].life.process);
        let new = self.start_gateway(gateway);
        let old = std::mem::replace(&mut self.gateways[gateway], new);
        for ticket in old.open.into_values() {
            self.clients[ticket.client].waits -= 1;
            self.act_again(ticket.client);
        }
    }

    fn close(&mut self) {
        trace!(self, "the store closes");
        self.store.close();
        let open_ms = self.now_ms + self.rng.u64(0..40);
        self.at(open_ms, Happening::Reopen);
    }

    fn reopen(&mut self) {
        let (restart_seq, forget_calls) = (self.rng.bool(), self.rng.bool());
        let undo_moves = self.plan.undo_moves;
        self.store.reopen(restart_seq, forget_calls, undo_moves);
        trace!(self, "the store opens under {:?}", self.store.generation());
        for sku in self.plan.skus.clone() {
            self.ledger.note(self.now_ms, &self.store, sku);
        }
    }

    // ---------- clients

    fn act_again(&mut self, client: usize) {
        let pause_ms = self.rng.u64(1..60);
        self.at(self.now_ms + pause_ms, Happening::ClientActs(client));
    }

    fn client_acts(&mut self, number: usize) {
        let client = self.clients[number].clone();
        if client.waits > 0 && !self.draining && !self.rng.bool() {
            return;
        }
        self.ask_results(number);
        if !self.clients[number].doubts.is_empty() {
            return self.act_again(number);
        }
        if self.draining && (self.clients[number].won || client.waits > 0 || client.refused.is_some()) {
            return;
        }
        self.buy(number);
        if !self.draining && self.rng.u32(0..1000) < self.plan.double_buys {
            let at_ms = self.now_ms + self.rng.u64(0..20);
            self.at(at_ms, Happening::ClientActs(number));
        }
    }

    /// RESULT, at the gateway that said UNCONFIRMED: an order, still unknown, or a `NO_ORDER` that must stay true.
    fn ask_results(&mut self, number: usize) {
        let now_ms = self.now_ms;
        let Client { user, activity, .. } = self.clients[number];
        for (life, order) in std::mem::take(&mut self.clients[number].doubts) {
            let Some(gateway) = self.alive(life) else { continue };
            match gateway.buyers.standing(activity, user) {
                Some(Standing::Order(mark)) => {
                    self.ledger.check_mark(&self.store, user, &mark, "RESULT");
                    // Of another one that is over: what was in doubt has come to nothing, or is over itself.
                    if self.plan.again_max > 0 && mark.order != order && !mark.state.is_live() {
                        self.ledger.refuse(order, format!("RESULT of {mark:?} at {now_ms}"));
                    }
                    self.clients[number].won |= mark.state.is_live();
                }
                None if gateway.board.is_fresh(now_ms) => {
                    trace!(self, "g{} tells user {user} NO_ORDER of {order}", life.process);
                    self.ledger.refuse(order, format!("NO_ORDER at {now_ms}"));
                }
                Some(Standing::Unconfirmed(_)) | None => {
                    self.clients[number].doubts.push((life, order));
                }
            }
        }
    }

    /// BUY as the funnel does it: the duplicate rung, what the board says, the queue.
    fn buy(&mut self, number: usize) {
        let now_ms = self.now_ms;
        let Client { user, activity, quantity, .. } = self.clients[number];
        let of_activity: Vec<SkuKey> =
            self.plan.skus.iter().copied().filter(|sku| sku.activity == activity).collect();
        let sku = of_activity[number % of_activity.len()];
        let sku = if self.draining || self.rng.bool() {
            sku
        } else {
            of_activity[self.rng.usize(0..of_activity.len())]
        };
        let life = self.gateways[self.rng.usize(0..self.gateways.len())].life;
        let gateway = &mut self.gateways[life.gateway];
        let who = format!("funnel of g{}", life.process);
        let standing = gateway.buyers.standing(activity, user);
        // Whether he may buy again is the engine's to say.
        let is_over = matches!(standing, Some(Standing::Order(mark)) if !mark.state.is_live());
        if let Some(standing) = standing.filter(|_| !is_over || self.plan.again_max == 0) {
            let outcome = match standing {
                Standing::Order(mark) if mark.state.is_live() => Outcome::Already(mark),
                Standing::Order(_) => Outcome::NotAgain,
                Standing::Unconfirmed(order) => Outcome::Unconfirmed(order),
            };
            return self.told(life, number, sku, None, outcome, &who);
        }
        match gateway.left(sku, now_ms) {
            Left::Exactly(0) => {
                self.counts.sold_out_by_board += 1;
                return self.told(life, number, sku, None, Outcome::SoldOut, &who);
            }
            Left::Exactly(left) if left < u32::from(quantity) => {
                return self.told(life, number, sku, None, Outcome::Insufficient(left), &who);
            }
            _ => {}
        }
        let small = self.rng.u32(0..1000) < self.plan.small_patience;
        let patience_ms = if small { self.rng.u32(1..100) } else { 0 };
        self.tickets += 1;
        let ticket = Ticket { client: number, sku, order: gateway.next_order(), told_by_ms: 0 };
        let purchase = Purchase { user, sku, quantity, patience_ms };
        if gateway.push(now_ms, self.tickets, ticket, purchase) {
            trace!(self, "g{} takes {purchase:?} as {:?}", life.process, ticket.order);
            self.counts.pushes += 1;
            self.counts.units_asked += u64::from(quantity);
            self.clients[number].waits += 1;
            self.pump_soon(life);
        } else {
            self.act_again(number);
        }
    }

    fn deliver_outcomes(&mut self, life: Life) {
        let Some(gateway) = self.alive(life) else { return };
        let outcomes = gateway.engine.take_outcomes();
        for (_, mark) in gateway.engine.take_news() {
            if mark.state == OrderState::Failed {
                self.told_failed.insert(mark.order);
            }
        }
        self.write(life);
        for (number, outcome) in outcomes {
            let gateway = &mut self.gateways[life.gateway];
            let ticket = gateway.open.remove(&number);
            let Some(ticket) = ticket else { panic!("ticket {number} is told twice: {outcome:?}") };
            self.clients[ticket.client].waits -= 1;
            let who = format!("g{}", life.process);
            self.told(life, ticket.client, ticket.sku, Some(ticket.order), outcome, &who);
        }
    }

    /// A client is told an outcome: is it true, and what does he do?
    fn told(
        &mut self,
        life: Life,
        number: usize,
        sku: SkuKey,
        own: Option<OrderNumber>,
        outcome: Outcome,
        who: &str,
    ) {
        let Client { user, quantity, .. } = self.clients[number];
        let from_ms = self.fresh_from_ms().saturating_sub(1);
        trace!(self, "{who} tells user {user} who wanted {quantity} of {sku} as {own:?}: {outcome:?}");
        let refused = match outcome {
            Outcome::Queued(mark) => {
                assert_eq!(Some(mark.order), own, "{who}: QUEUED names another order");
                self.ledger.check_mark(&self.store, user, &mark, who);
                self.ledger.promised.entry(mark.order).or_insert(life.process);
                self.clients[number].won = true;
                None
            }
            Outcome::Already(mark) => {
                assert_ne!(Some(mark.order), own, "{who}: ALREADY names the order just made");
                self.ledger.check_mark(&self.store, user, &mark, who);
                self.counts.already += 1;
                self.clients[number].won = true;
                own
            }
            Outcome::NotAgain => {
                self.counts.not_again += 1;
                self.clients[number].won = true;
                own
            }
            Outcome::SoldOut => {
                self.counts.sold_out += 1;
                self.ledger.check_sold_out(from_ms, sku, user, who);
                own
            }
            Outcome::Insufficient(left) => {
                self.counts.insufficient += 1;
                assert!((1..u32::from(quantity)).contains(&left), "{who}: {left} are fewer than {quantity}");
                self.ledger.check_left(from_ms, sku, left, who);
                own
            }
            Outcome::Busy => {
                self.counts.busy += 1;
                own
            }
            Outcome::TooOften { .. } => {
                assert!(self.plan.attempts_max > 0, "{who}: nobody comes too often here");
                self.counts.too_often += 1;
                own
            }
            Outcome::Ended => {
                self.counts.ended += 1;
                own
            }
            Outcome::Unconfirmed(order) => {
                self.counts.unconfirmed += 1;
                self.clients[number].doubts.push((life, order));
                None
            }
        };
        if let Some(order) = refused {
            self.ledger.refuse(order, format!("{outcome:?} by {who} at {}", self.now_ms));
        }
        self.go_on(number, sku, outcome);
    }

    fn go_on(&mut self, number: usize, sku: SkuKey, outcome: Outcome) {
        match outcome {
            Outcome::Queued(_) | Outcome::Already(_) | Outcome::NotAgain => {
                if !self.draining && self.rng.u32(0..1000) < self.plan.double_buys / 4 {
                    self.act_again(number);
                }
            }
            Outcome::SoldOut | Outcome::Insufficient(_) if self.draining => {
                self.clients[number].refused = Some(sku);
            }
            Outcome::SoldOut | Outcome::Insufficient(_) => {
                if self.rng.u32(0..4) == 0 {
                    self.act_again(number);
                }
            }
            Outcome::Busy | Outcome::TooOften { .. } | Outcome::Ended | Outcome::Unconfirmed(_) => {
                self.act_again(number);
            }
        }
    }

    // ---------- the end

    fn is_at_rest(&mut self) -> bool {
        let now_ms = self.now_ms;
        let told = |client: &Client| {
            client.waits == 0 && client.doubts.is_empty() && (client.won || client.refused.is_some())
        };
        let still = |gateway: &Gateway| {
            let known = |sku: &SkuKey| gateway.left(*sku, now_ms) != Left::Unknown;
            gateway.engine.unfinished() == 0 && self.plan.skus.iter().all(known)
        };
        let recovered = self.is_recovered();
        let moving = self.plan.skus.iter().any(|sku| self.store.moving(*sku) > 0);
        !moving
            && recovered
            && self.under_way == 0
            && self.clients.iter().all(told)
            && self.gateways.iter().all(still)
            && self.gateways.iter().all(|gateway| self.knows_all(gateway))
    }

    /// Users of whom it knows a FAILED order, while the store knows nothing of them.
    fn failed_here(&self, gateway: &Gateway) -> usize {
        let is_failed = |(order, user): &(&OrderNumber, &UserId)| {
            let activities: BTreeSet<ActivityId> = self.plan.skus.iter().map(|sku| sku.activity).collect();
            activities.into_iter().any(|activity| {
                let held = self.store.shards[ShardId::of(**user).index()].marks.get(&(activity, **user));
                let known = gateway.buyers.standing(activity, **user);
                held.is_none() && matches!(known, Some(Standing::Order(known)) if known.order == **order)
            })
        };
        self.ledger.failed.iter().filter(is_failed).count()
    }

    fn knows_all(&self, gateway: &Gateway) -> bool {
        let marks = self.store.shards.iter().flat_map(|shard| shard.marks.iter());
        marks.into_iter().all(|(&(activity, user), mark)| {
            let Some(Standing::Order(known)) = gateway.buyers.standing(activity, user) else { return false };
            // A promise that was broken is known here alone, until its user buys again.
            let is_broken = known.attempt > mark.attempt && self.ledger.failed.contains_key(&known.order);
            known == *mark || is_broken
        })
    }

    fn unfinished_business(&self) -> String {
        let mut text = format!("{} messages under way; ", self.under_way);
        for sku in &self.plan.skus {
            text += &format!("{sku}: {} left, {} moving; ", self.ledger.units(*sku), self.store.moving(*sku));
        }
        for client in &self.clients {
            if client.waits > 0 || !client.doubts.is_empty() || !(client.won || client.refused.is_some()) {
                text += &format!("{client:?}; ");
            }
        }
        for gateway in &self.gateways {
            let left: Vec<_> = self.plan.skus.iter().map(|sku| gateway.left(*sku, self.now_ms)).collect();
            let (unfinished, all) = (gateway.engine.unfinished(), self.knows_all(gateway));
            text +=
                &format!("{:?}: {unfinished} unfinished, says {left:?}, knows all: {all}; ", gateway.life);
        }
        text
    }

    fn check_end(&mut self) {
        let marks: usize = self.store.shards.iter().map(|shard| shard.marks.len()).sum();
        self.check_recoveries();
        for sku in self.plan.skus.clone() {
            self.ledger.note(self.now_ms, &self.store, sku);
        }
        for gateway in &self.gateways {
            assert!(self.knows_all(gateway), "{:?} does not know every mark", gateway.life);
            let failed = self.failed_here(gateway);
            assert_eq!(
                gateway.buyers.len(),
                marks + failed,
                "{:?} knows of orders that are none",
                gateway.life
            );
            assert!(!gateway.engine.is_fenced());
            for sku in &self.plan.skus {
                let left = gateway.left(*sku, self.now_ms);
                assert_eq!(left, Left::Exactly(self.ledger.units(*sku)), "{sku} on {:?}", gateway.life);
            }
        }
        for client in &self.clients {
            let Some(sku) = client.refused else { continue };
            let left = self.ledger.units(sku);
            assert!(
                left < u32::from(client.quantity),
                "{left} units of {sku} are left, and this client was refused: {client:?}"
            );
        }
        let units: u32 = self.plan.skus.iter().map(|sku| self.ledger.units(*sku)).sum();
        self.counts.sold_to_the_last += u64::from(units == 0);
        // A unit asked for is pulled once, now and then again for somebody who was quicker; never back and forth.
        let bound = 4 + self.counts.units_asked;
        assert!(self.ledger.moves <= bound, "{} moves for {:?}", self.ledger.moves, self.counts);
        self.counts.moves = self.ledger.moves;
        self.counts.reserved = self.ledger.reserved;
        self.counts.again = self.ledger.again;
        self.counts.model_ms = self.now_ms;
    }
}

fn on_the_way(happening: &Happening) -> bool {
    matches!(
        happening,
        Happening::CallArrives(..)
            | Happening::ReplyArrives(..)
            | Happening::SnapshotAsked(..)
            | Happening::SnapshotArrives(..)
            | Happening::ClientActs(_)
            | Happening::Crash(_)
            | Happening::Close
            | Happening::Reopen
            | Happening::Supply(..)
            | Happening::Settle(..)
            | Happening::Restart
            | Happening::Silence(_)
            | Happening::Wake(_)
            | Happening::HandInArrives(..)
            | Happening::HandInAnswered(..)
            | Happening::FailArrives(..)
            | Happening::FailAnswered(..)
    )
}
