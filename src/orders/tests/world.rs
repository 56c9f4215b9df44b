//! One week: who does what next is drawn by chance, also who dies in between, and which answers are lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::sync::watch;

use super::books::{Books, Fault, Shelf};
use super::centre::Centre;
use super::checks::{self, Given, Promises};
use super::payments::SEQUENCE_BITS;
use super::shards::{ACTIVITY, LOAD, Reserved, Shards};
use crate::orders::batch::Assembly;
use crate::orders::chore::Chore;
use crate::orders::context::Stop;
use crate::orders::counters::Counters;
use crate::orders::finisher::learnt;
use crate::orders::payments::{Life, Notices, Overdues, Parked, PaymentSettings};
use crate::payment::{Answer, Cause, Keys, PaymentState, notice_body};
use crate::protocol::{OrderNumber, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, SHARDS, ShardId};
use crate::store::shared::rebuilt::{Found, Load, Rebuilt, rebuilt};
use crate::store::sql::mysql::{Release, SettleOutcome};

const STEPS: usize = 500;
/// The longest time between two steps: so the steps make a week.
const PAUSE_MS_MAX: u64 = 2 * 7 * 86_400_000 / STEPS as u64;
const WRITERS: usize = 3;
const END_ROUNDS_MAX: usize = 400;

macro_rules! counts {
    ($($name:ident),+) => {
        /// What was met.
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct Counts { $(pub(super) $name: u64),+ }

        impl Counts {
            pub(super) fn add(&mut self, other: &Self) { $(self.$name += other.$name;)+ }

            pub(super) fn check_all_met(&self) {
                for (name, count) in [$((stringify!($name), self.$name)),+] {
                    assert!(count > 0, "no week met {name}: {self:?}");
                }
            }
        }
    };
}

counts!(
    steps,
    sold,
    sold_of_reserve,
    settled,
    redelivered,
    superseded,
    paid,
    closed,
    cancelled,
    refunds_due,
    parked,
    repeated,
    forged,
    stale,
    released,
    late_copies,
    crashes,
    recoveries,
    promises_lost,
    restocked_units_sold
);

/// What a shard was told, and may be told again at any time.
#[derive(Clone, Debug)]
enum Late {
    Release(Gen, UserId, OrderNumber, OrderState),
    Settled(Gen, Vec<(UserId, Mark)>),
}

pub(super) struct World {
    rng: Rng,
    shelf: Arc<Shelf>,
    redis: Shards,
    centre: Centre,
    keys: Keys,
    life: Life<Shelf>,
    notices: Notices<Shelf>,
    sweepers: Vec<Overdues<Centre>>,
    parked: Vec<Parked>,
    given: Given,
    promises: Promises,
    /// Marks as gateways know them.
    acknowledged: BTreeMap<OrderNumber, Mark>,
    late: Vec<Late>,
    sequences: [u64; 3],
    sells_reserve: bool,
    users: u64,
    trace: bool,
    pub(super) counts: Counts,
    _stop: watch::Sender<Option<Instant>>,
}

fn sku(number: u16) -> SkuKey {
    SkuKey { activity: ACTIVITY, sku: SkuId(number) }
}

impl World {
    pub(super) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut stock = BTreeMap::new();
        for number in 1..=2 {
            let mut units = vec![0; SHARDS];
            for _ in 0..rng.usize(4..=14) {
                units[rng.usize(..SHARDS)] += 1;
            }
            stock.insert(sku(number), units);
        }
        let sum = |units: &Vec<i64>| u64::try_from(units.iter().sum::<i64>()).unwrap();
        let units = stock.iter().map(|(sku, units)| (*sku, sum(units))).collect();
        let given = Given { units, reserve: rng.u64(..=3) };
        let shelf = Arc::new(Shelf(Mutex::new(Books::new(&given.units, given.reserve))));
        let (stop, stopping) = watch::channel(None);
        let keys = Keys::random().unwrap();
        let settings = PaymentSettings {
            keys: Some(keys.clone()),
            park_for: Duration::from_secs(6 * 3600),
            ask_orders_max: rng.u32(1..=6),
            retry_max: Duration::from_secs(3600),
            ..PaymentSettings::default()
        };
        let life = Life {
            store: Arc::clone(&shelf),
            settings: Arc::new(settings),
            counters: Arc::new(Counters::default()),
            stop: Stop(stopping),
        };
        let centre = Centre::new(rng.u64(..));
        let told = Arc::default();
        let sweeper = |_| Overdues::asking(centre.clone(), Arc::clone(&told));
        Self {
            sweepers: (0..WRITERS).map(sweeper).collect(),
            parked: (0..WRITERS).map(|_| Parked::default()).collect(),
            notices: life.notices().unwrap(),
            redis: Shards::new(&stock),
            users: rng.u64(20..=60),
            rng,
            shelf,
            centre,
            keys,
            life,
            given,
            promises: Promises::default(),
            acknowledged: BTreeMap::new(),
            late: Vec::new(),
            sequences: [0; 3],
            sells_reserve: false,
            trace,
            counts: Counts::default(),
            _stop: stop,
        }
    }

    fn tell(&self, what: &str) {
        if self.trace {
            eprintln!("{:>10} {what}", self.shelf.books().now_ms);
        }
    }

    /// Runs to the end; panics at the first violation.
    pub(super) async fn run(&mut self) {
        for _ in 0..STEPS {
            self.pass_time();
            self.step().await;
            self.counts.steps += 1;
            self.check();
        }
        self.end().await;
    }

    fn check(&self) {
        let (books, till) = (self.shelf.books(), self.centre.till());
        checks::always(&books, &self.redis, &till, &self.promises, &self.given);
    }

    /// Mostly little: sales are short, weeks are long.
    fn pass_time(&mut self) {
        let most_ms = [50, 2_000, 60_000, PAUSE_MS_MAX][self.rng.usize(..4)];
        let pause_ms = self.rng.u64(..=most_ms);
        self.shelf.books().now_ms += pause_ms;
    }

    /// One transaction in fifteen fails, before it is committed or when nobody hears of it.
    fn maybe_break(&mut self) {
        let fault = match self.rng.u8(..30) {
            0 => Some(Fault::Before),
            1 => Some(Fault::After),
            _ => None,
        };
        self.counts.crashes += u64::from(fault.is_some());
        self.shelf.books().fault = fault;
    }

    async fn step(&mut self) {
        self.maybe_break();
        match self.rng.u8(..100) {
            0..30 => self.buy(),
            30..42 => self.settle(),
            42..52 => self.pay(),
            52..60 => self.notice().await,
            60..70 => self.sweep().await,
            70..73 => self.look_at_parked().await,
            73..76 => self.cancel(),
            76..78 => self.apply_cancels(),
            78..85 => self.release(),
            85..89 => self.tell_marks(),
            89..92 => self.come_late(),
            92..94 => self.bring_in(),
            94..97 => self.change_redis(),
            97..98 => self.sells_reserve = !self.sells_reserve,
            98..99 => self.refund(),
            _ => self.change_centre(),
        }
        // Whoever did not come by a transaction takes the fault with him.
        self.shelf.books().fault = None;
    }

    // ---------- buyers

    fn buy(&mut self) {
        let (user, gateway) = (UserId(self.rng.u64(1..=self.users)), self.rng.usize(..3));
        self.sequences[gateway] += 1;
        let process = gateway as u64 + 1;
        let item = Mark {
            order: OrderNumber((process << SEQUENCE_BITS) | self.sequences[gateway]),
            sku: sku(self.rng.u16(1..=2)),
            quantity: if self.rng.u8(..5) == 0 { 2 } else { 1 },
            attempt: 1,
            state: OrderState::Reserved,
            pay_by_ms: 0,
        };
        let Some(reserved) = self.redis.reserve(user, item, &mut self.rng) else {
            return self.buy_of_reserve(user, item);
        };
        self.tell(&format!("user {user} wants {item:?}: {reserved:?}"));
        match reserved {
            Reserved::Here(mark) => {
                self.counts.sold += 1;
                let came_back = self
                    .shelf
                    .books()
                    .ledger
                    .values()
                    .any(|(release, is_done)| *is_done && release.mark.sku == mark.sku);
                self.counts.restocked_units_sold += u64::from(came_back);
                // Some replies are lost: nobody was promised anything.
                if self.rng.u8(..10) > 0 {
                    self.acknowledge(user, mark);
                }
            }
            Reserved::Already(mark) => self.acknowledge(user, mark),
            Reserved::NotAgain | Reserved::Empty => {}
        }
    }

    fn acknowledge(&mut self, user: UserId, mark: Mark) {
        self.promises.told.insert(mark.order, user);
        self.acknowledged.entry(mark.order).or_insert(mark);
    }

    fn buy_of_reserve(&mut self, user: UserId, item: Mark) {
        if !self.sells_reserve || self.redis.is_up {
            return;
        }
        if self.shelf.transact(|books| books.sell_of_reserve(user, item)).is_ok_and(|is_sold| is_sold) {
            self.tell(&format!("user {user} buys {item:?} of the reserve"));
            self.counts.sold_of_reserve += 1;
            self.promises.told.insert(item.order, user);
        }
    }

    /// An order that somebody was told of, or knows of from SQL.
    fn some_order(&mut self) -> Option<(OrderNumber, UserId)> {
        let told: Vec<_> = self.promises.told.iter().map(|(order, user)| (*order, *user)).collect();
        self.rng.choice(told)
    }

    fn pay(&mut self) {
        let Some((order, user)) = self.some_order() else { return };
        let books = self.shelf.books();
        let mark = books.orders.get(&order).map(|row| row.mark);
        let mark = mark.or_else(|| self.redis.mark(user).filter(|mark| mark.order == order).copied());
        let (Some(mark), now_ms) = (mark, books.now_ms) else { return };
        drop(books);
        if self.centre.till().pay(order, Books::price(&mark), now_ms) {
            self.tell(&format!("user {user} pays {order}"));
        }
    }

    fn cancel(&mut self) {
        let Some((order, user)) = self.some_order() else { return };
        self.tell(&format!("user {user} cancels {order}"));
        let _ = self.shelf.transact(|books| books.cancels.entry(order).or_insert((user, false)).1);
    }

    // ---------- writers

    fn settle(&mut self) {
        if !self.redis.serves() {
            return;
        }
        let busy = |shard: &&ShardId| {
            let shard = &self.redis.all[shard.index()];
            shard.feed.len() + shard.pending.len() > 0
        };
        let busy: Vec<ShardId> = ShardId::ALL.iter().filter(busy).copied().collect();
        let Some(shard) = self.rng.choice(busy) else { return };
        let is_claim = self.redis.all[shard.index()].feed.is_empty() || self.rng.u8(..4) == 0;
        let delivered = self.redis.read(shard, is_claim, self.rng.usize(1..=8));
        self.counts.redelivered += if is_claim { delivered.entries.len() as u64 } else { 0 };
        // Rule 13: between the reading and the transaction a recovery may come.
        if self.rng.u8(..60) == 0 {
            self.redis.restart(&mut self.rng);
            self.recover();
        }
        let mut assembly = Assembly::new(self.rng.usize(1..=5));
        assembly.add(delivered, Instant::now());
        assembly.close();
        while let Some(batch) = assembly.next() {
            if self.dies() {
                return;
            }
            let settled = self.shelf.transact(|books| books.settle(batch.generation, &batch.reservations));
            let Ok(SettleOutcome::Committed(settlements)) = settled else { return };
            self.tell(&format!("{shard:?} settles {:?}: {settlements:?}", batch.reservations));
            self.counts.settled += settlements.len() as u64;
            if self.dies() {
                return;
            }
            let said = batch.reservations.iter().zip(&settlements);
            let marks: Vec<_> =
                said.filter_map(|(one, settlement)| Some((one.user, learnt(one, settlement)?))).collect();
            self.counts.superseded += (settlements.len() - marks.len()) as u64;
            if !self.redis.settled(batch.generation, &marks) || self.dies() {
                return;
            }
            self.late.push(Late::Settled(batch.generation, marks));
            self.redis.acknowledge(shard, &batch.entries[shard.index()]);
        }
    }

    fn dies(&mut self) -> bool {
        let dies = self.rng.u8(..12) == 0;
        self.counts.crashes += u64::from(dies);
        dies
    }

    async fn notice(&mut self) {
        let count = self.centre.till().to_tell.len();
        if count == 0 {
            return;
        }
        let at = self.rng.usize(..count);
        let payment = self.centre.till().to_tell[at].clone();
        let now_ms = self.shelf.books().now_ms;
        let body = notice_body(&payment);
        if self.rng.u8(..4) == 0 {
            let forged = Keys::random().unwrap().sign(now_ms, body.as_bytes());
            let answer = self.notices.take(Some(&now_ms.to_string()), Some(&forged), body.as_bytes()).await;
            assert_eq!(answer, Answer::Forged);
            self.counts.forged += 1;
        }
        let age_ms = if self.rng.u8(..6) == 0 { self.rng.u64(..1_000_000) } else { self.rng.u64(..300_000) };
        let signed_ms = if self.rng.bool() { now_ms - age_ms.min(now_ms) } else { now_ms + age_ms };
        let signature = self.keys.sign(signed_ms, body.as_bytes());
        let answer = self.notices.take(Some(&signed_ms.to_string()), Some(&signature), body.as_bytes()).await;
        self.tell(&format!("notice {payment:?}: {answer:?}"));
        match &answer {
            Answer::Stale { .. } => {
                assert!(age_ms > 300_000, "{answer:?}");
                self.counts.stale += 1;
            }
            Answer::Kept { repeated, state } => {
                self.counts.repeated += u64::from(*repeated);
                self.counts.parked += u64::from(*state == PaymentState::Parked);
            }
            Answer::Unanswered => {}
            other => panic!("{payment:?} is answered with {other:?}"),
        }
        // Final; some are told again all the same.
        if answer.status() < 500 && self.rng.u8(..5) > 0 {
            self.centre.till().to_tell.remove(at);
        }
    }

    async fn sweep(&mut self) {
        let nth = self.rng.usize(..WRITERS);
        // What fails comes again.
        let swept = self.sweepers[nth].step(&self.life).await;
        self.tell(&format!("writer {nth} sweeps: {swept:?}"));
    }

    async fn look_at_parked(&mut self) {
        let nth = self.rng.usize(..WRITERS);
        let _ = self.parked[nth].step(&self.life).await;
    }

    fn apply_cancels(&mut self) {
        let _ = self.shelf.transact(Books::apply_cancels);
    }

    /// The rows are read, then the generation, then the shard is told, then it is written down (rule 14).
    fn release(&mut self) {
        let due = self.shelf.books().due_releases();
        let generation = self.shelf.books().generation;
        let mut done = Vec::new();
        for Release { id, user, mark, .. } in due {
            let answered = self.redis.release(generation, user, mark.order, mark.state);
            self.late.push(Late::Release(generation, user, mark.order, mark.state));
            // Executed, and nobody hears of it.
            if answered && self.rng.u8(..6) > 0 {
                done.push(id);
            }
        }
        if !self.dies() && self.shelf.transact(|books| books.releases_done(&done)).is_ok() {
            self.counts.released += done.len() as u64;
        }
    }

    fn tell_marks(&mut self) {
        let due = self.shelf.books().due_marks();
        let generation = self.shelf.books().generation;
        let marks: Vec<_> = due.iter().map(|(_, user, mark)| (*user, *mark)).collect();
        let ids: Vec<_> = due.iter().map(|(id, ..)| *id).collect();
        if self.redis.settled(generation, &marks) && !self.dies() {
            self.late.push(Late::Settled(generation, marks));
            let _ = self.shelf.transact(|books| books.marks_told(&ids));
        }
    }

    /// A copy of a call that was stuck somewhere.
    fn come_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let late = self.late[self.rng.usize(..self.late.len())].clone();
        self.tell(&format!("late: {late:?}"));
        self.counts.late_copies += 1;
        match late {
            Late::Release(generation, user, order, state) => {
                self.redis.release(generation, user, order, state);
            }
            Late::Settled(generation, marks) => drop(self.redis.settled(generation, &marks)),
        }
    }

    fn bring_in(&mut self) {
        for shard in ShardId::all() {
            self.redis.bring_in(shard);
        }
    }

    // ---------- faults

    fn change_redis(&mut self) {
        match (self.redis.is_up, self.rng.u8(..3)) {
            (true, 0) => {
                self.tell("Redis restarts");
                self.redis.restart(&mut self.rng);
                self.recover();
            }
            (true, _) => {
                self.tell("Redis is away");
                self.redis.is_up = false;
            }
            (false, 0) => {
                self.tell("Redis is back, with other data");
                self.redis.restart(&mut self.rng);
                self.recover();
            }
            (false, _) => {
                self.tell("Redis is back");
                self.redis.is_up = true;
            }
        }
    }

    /// What is owed back is given back. An order whose payment came too early for too long is closed after that.
    fn refund(&mut self) {
        let (books, mut till) = (self.shelf.books(), self.centre.till());
        for kept in books.payments.values().filter(|kept| matches!(kept.state, PaymentState::RefundDue(_))) {
            till.give_back(kept.payment.id.as_str());
        }
    }

    fn change_centre(&mut self) {
        let mut till = self.centre.till();
        till.is_up = !till.is_up;
    }

    /// Rule 11, of all shards at once. What gateways hand in is what Redis had acknowledged; now and then the only one who
    /// knew of it is dead.
    fn recover(&mut self) {
        self.counts.recoveries += 1;
        let knows = self.rng.u8(..5) > 0;
        let mut books = self.shelf.books();
        books.generation = Gen(books.generation.0 + 1);
        let ledger = &books.ledger;
        let is_ledgered = |order: &OrderNumber, user: UserId| ledger.contains_key(&(*order, user));
        let of_redis = books.orders.iter().filter(|(_, row)| !row.is_of_reserve);
        let mut orders: Vec<_> =
            of_redis.map(|(order, row)| (row.user, row.mark, is_ledgered(order, row.user))).collect();
        let rowless = ledger.iter().filter(|((order, _), _)| !books.orders.contains_key(order));
        orders.extend(rowless.map(|((_, user), (release, _))| (*user, release.mark, true)));
        let told = &self.promises.told;
        let excused = &self.promises.excused;
        let open =
            told.iter().filter(|(order, _)| !excused.contains(*order) && !books.orders.contains_key(*order));
        let handed_in: Vec<_> = if knows {
            open.filter(|(order, user)| !is_ledgered(order, **user))
                .filter_map(|(order, user)| Some((*user, *self.acknowledged.get(order)?)))
                .collect()
        } else {
            Vec::new()
        };
        let amounts = |shard: ShardId| {
            let counters = &self.redis.all[shard.index()].counters;
            counters.iter().map(|(sku, counters)| (sku.sku, counters.loaded)).collect()
        };
        let load = |shard| Load { shard, activity: ACTIVITY, id: LOAD.to_owned(), amounts: amounts(shard) };
        let loads = ShardId::all().map(load).collect();
        let found = Found { surviving: self.redis.contents(), handed_in, orders, loads };
        let Rebuilt { contents, broken } = rebuilt(found);
        assert!(broken.is_empty() || !knows, "promises are broken though everybody handed in: {broken:?}");
        self.redis.rebuild(books.generation, contents);
        for (user, mark) in broken {
            self.promises.excused.insert(mark.order);
            if !books.orders.contains_key(&mark.order) {
                books.fail(user, mark, true);
            }
        }
        for (order, user) in &self.promises.told {
            let is_there = self.redis.mark(*user).is_some_and(|mark| mark.order == *order);
            if !knows
                && !is_there
                && !books.orders.contains_key(order)
                && self.promises.excused.insert(*order)
            {
                self.counts.promises_lost += 1;
            }
        }
    }

    // ---------- the end

    /// Everything works again; time passes until nothing is under way.
    async fn end(&mut self) {
        self.tell("the end: everything works");
        self.centre.till().has_faults = false;
        self.centre.till().is_up = true;
        if !self.redis.serves() {
            self.redis.is_up = true;
        }
        let mut left = Vec::new();
        for _ in 0..END_ROUNDS_MAX {
            self.shelf.books().now_ms += 3_600_000;
            self.bring_in();
            self.settle();
            self.notice().await;
            self.sweep().await;
            self.look_at_parked().await;
            self.apply_cancels();
            self.release();
            self.tell_marks();
            self.refund();
            self.check();
            left = checks::unfinished(&self.shelf.books(), &self.redis, &self.centre.till(), &self.promises);
            if left.is_empty() {
                break;
            }
        }
        assert!(left.is_empty(), "it does not end: {left:?}");
        let books = self.shelf.books();
        checks::at_the_end(&books, &self.redis, &self.centre.till());
        let in_state = |state| books.orders.values().filter(|row| row.mark.state == state).count() as u64;
        self.counts.paid += in_state(OrderState::Paid);
        self.counts.closed += in_state(OrderState::Closed);
        self.counts.refunds_due += in_state(OrderState::RefundDue);
        self.counts.cancelled +=
            books.history.iter().filter(|past| past.cause == Cause::Asked).count() as u64;
    }
}
