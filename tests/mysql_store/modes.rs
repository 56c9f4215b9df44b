//! Rules 19 and 20 over random sequences: purchases in both worlds, modes that change at any instant (Redis or the reserve,
//! orders settled or only recorded), a Redis that goes and comes, writers that crash between two steps, orders that are
//! recorded and settled later, closed, units handed over, takeovers that some gateways are late for, and ways back. Redis is
//! a model here, the database is real. After every step each unit is in exactly one place, and no user has two orders that
//! live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rushgate::protocol::{OrderNumber, OrderState, SkuId, UserId};
use rushgate::stock::calls::{Gen, Item, ItemAnswer, Mark, ShardId};
use rushgate::store::catalog::Catalogue;
use rushgate::store::orders_modes::{OrdersMode, OrdersModes};
use rushgate::store::sql::mysql::{
    MySqlStore, Preheat, Reservation, SettleOutcome, Settlement, ShardLoad, Takeover,
};

use crate::fixture::{ACTIVITY, PAY_WITHIN_MS, Scene, activity, reservation, sku};
use crate::installation::Process;
use crate::takeover;

type Promise = (UserId, Mark);

const TOTAL: u64 = 40;
const RESERVE: u32 = 15;
const USERS: u64 = 120;
const STEPS: u32 = 220;
/// Orders of one user, in each of the two worlds.
const ATTEMPTS_MAX: u8 = 3;

/// What Redis holds: free units, marks, what no writer has settled, loads that it has taken in.
#[derive(Default)]
struct Redis {
    is_up: bool,
    free: u64,
    /// Order, its attempt, and whether it holds a unit.
    marks: BTreeMap<UserId, (OrderNumber, u8, bool)>,
    feed: Vec<Reservation>,
    loads: BTreeSet<String>,
}

impl Redis {
    fn buy(&mut self, user: u64, order: u64, generation: Gen) {
        let attempt = match self.marks.get(&UserId(user)) {
            Some((_, _, true)) => return,
            Some((_, attempt, false)) => attempt + 1,
            None => 1,
        };
        if self.is_up && self.free > 0 && attempt <= ATTEMPTS_MAX {
            self.free -= 1;
            self.marks.insert(UserId(user), (OrderNumber(order), attempt, true));
            let mut reserved = Reservation { entry: (generation, order), ..reservation(user, order) };
            reserved.mark.attempt = attempt;
            self.feed.push(reserved);
        }
    }

    /// Once per load id.
    fn load(&mut self, load: &ShardLoad) {
        if self.loads.insert(format!("{}/{}", load.load_id, load.shard.number())) {
            self.free += load.changes.iter().map(|(_, units)| units.unsigned_abs()).sum::<u64>();
        }
    }

    /// A compare-and-set on the order number.
    fn release(&mut self, user: UserId, order: OrderNumber) {
        if let Some((of, _, holds)) = self.marks.get_mut(&user)
            && (*of, *holds) == (order, true)
        {
            *holds = false;
            self.free += 1;
        }
    }

    fn held(&self) -> u64 {
        self.marks.values().filter(|(_, _, holds)| *holds).count() as u64
    }
}

struct World {
    scene: Scene,
    store: Arc<MySqlStore>,
    process: Process<MySqlStore>,
    redis: Redis,
    /// What gateways sell from; the switch.
    sells_the_reserve: bool,
    /// What writers make of reservations; another switch.
    records: bool,
    orders: u64,
    /// The attempt that each user makes next at the reserve.
    attempts: BTreeMap<UserId, u8>,
    /// What shards and the database agree on.
    generation: Gen,
    is_taken: bool,
    /// What gateways knew that were late for a takeover.
    late: Vec<Promise>,
    random: fastrand::Rng,
}

impl World {
    async fn new(seed: u64) -> Self {
        let scene = Scene::new().await;
        let made = activity(ACTIVITY, &[(1, TOTAL as u32)]);
        scene.sql.create_holding(&made, PAY_WITHIN_MS, &[(SkuId(1), RESERVE)]).await.unwrap();
        let store = Arc::new(MySqlStore::new(scene.sql.clone()));
        store.drive_loads().await.unwrap();
        assert_eq!(scene.sql.preheat(ACTIVITY).await.unwrap(), Preheat::Loaded);
        let process = Process::start(Arc::clone(&store)).await;
        let redis = Redis { is_up: true, ..Redis::default() };
        let random = fastrand::Rng::with_seed(seed);
        let (generation, late) = (Gen(0), Vec::new());
        let (sells_the_reserve, is_taken) = (false, false);
        Self {
            scene,
            store,
            process,
            redis,
            sells_the_reserve,
            records: false,
            orders: 1 << 50,
            attempts: BTreeMap::new(),
            generation,
            is_taken,
            late,
            random,
        }
    }

    async fn step(&mut self) {
        match self.random.u32(0..100) {
            0..5 => self.redis.is_up = !self.redis.is_up,
            5..9 => self.sells_the_reserve = !self.sells_the_reserve,
            9..14 => self.records = !self.records,
            14..52 => self.buy().await,
            52..65 => self.settle().await,
            65..70 => self.backfill().await,
            70..80 => self.release().await,
            80..88 => self.load().await,
            88..92 => self.close().await,
            92..94 => self.take_over().await,
            94..96 => self.give_back().await,
            96..98 => self.offer_late().await,
            _ => {
                let units = self.random.u32(1..=4);
                let handed = self.store.hand_over(sku(1), units).await;
                assert_eq!(handed.is_err(), self.is_taken, "{handed:?}");
            }
        }
    }

    /// Of what nobody has settled some is handed in, some is known to a gateway that is late, some to nobody.
    async fn take_over(&mut self) {
        if self.is_taken {
            return;
        }
        let mut handed_in = vec![Vec::new(), Vec::new()];
        for one in &self.redis.feed {
            match self.random.usize(0..4) {
                which @ 0..2 => handed_in[which].push((one.user, one.mark)),
                2 => self.late.push((one.user, one.mark)),
                _ => {}
            }
        }
        let taken = takeover::take_over(&self.scene, &handed_in).await;
        assert!(matches!(taken, Takeover::Done { .. }), "{taken:?}");
        self.is_taken = true;
        self.rise().await;
    }

    async fn rise(&mut self) {
        self.generation = self.scene.sql.generation().await.unwrap();
        self.process.generation = self.generation;
    }

    /// The recovery that follows writes what the database has; old feeds stay.
    async fn give_back(&mut self) {
        if !self.is_taken {
            return;
        }
        let mut leadership = self.scene.sql.try_lead().await.unwrap().unwrap();
        let given = self.scene.sql.give_activity_back(&mut leadership, ACTIVITY).await.unwrap();
        assert!(matches!(given, Takeover::Done { .. }), "{given:?}");
        leadership.resign().await;
        self.is_taken = false;
        self.rise().await;
        let feed = std::mem::take(&mut self.redis.feed);
        self.redis = Redis { is_up: self.redis.is_up, feed, ..Redis::default() };
        let read = self.scene.sql.read_for_recovery(&ShardId::ALL).await.unwrap();
        for load in &read.loads {
            self.redis.load(&load.load);
        }
        // Of a user's orders the highest attempt is his mark.
        for order in read.orders.iter().filter(|order| order.mark.state != OrderState::Failed) {
            let holds = order.mark.state.is_live() && !order.released;
            let mark = (order.mark.order, order.mark.attempt, holds);
            let known = self.redis.marks.entry(order.user).or_insert(mark);
            if known.1 < mark.1 {
                *known = mark;
            }
        }
        self.redis.free -= self.redis.held();
    }

    async fn offer_late(&mut self) {
        if let Some((user, mark)) = self.late.pop() {
            self.scene.sql.fail(user, &mark, "late").await.unwrap();
        }
    }

    /// As one gateway does; others may be in the other mode.
    async fn buy(&mut self) {
        let user = self.random.u64(1..=USERS);
        let is_of_another_mind = self.random.u32(0..10) == 0;
        if self.sells_the_reserve == is_of_another_mind {
            self.buy_of_redis(user);
        } else {
            let next = self.attempts.entry(UserId(user)).or_insert(1);
            let item = Item { attempt: *next, ..self.process.item(UserId(user), sku(1), 1) };
            let call = self.process.reserve(ShardId::of(item.user), vec![item]);
            let first = self.process.done(&call).await;
            // Its reply is lost now and then.
            if self.random.bool() {
                assert_eq!(self.process.done(&call).await, first);
            }
            assert_ne!(first.answers, [ItemAnswer::NotLoaded]);
            // His order there is over. Its attempts are numbered apart from those in Redis.
            if first.answers == [ItemAnswer::NotAgain] && *next < ATTEMPTS_MAX {
                *next += 1;
            }
        }
    }

    /// No shard sells what was taken over.
    fn buy_of_redis(&mut self, user: u64) {
        self.orders += 1;
        if !self.is_taken {
            self.redis.buy(user, self.orders, self.generation);
        }
    }

    /// A writer settles some of the feed, and may die before it acknowledges them.
    async fn settle(&mut self) {
        let some = self.redis.feed.len().min(self.random.usize(1..=6));
        if !self.redis.is_up || some == 0 {
            return;
        }
        let batch = self.redis.feed[..some].to_vec();
        // Another writer may not have heard of the switch yet.
        let records = self.records != (self.random.u32(0..10) == 0);
        let modes = OrdersModes::of_all(if records { OrdersMode::Record } else { OrdersMode::Settle });
        let settled = self.scene.sql.settle_or_record(self.generation, &batch, &modes).await.unwrap();
        let SettleOutcome::Committed(settled) = settled else { panic!("{settled:?}") };
        let is_wrong =
            |one: &Settlement| matches!(one, Settlement::Failed { .. } | Settlement::Collision { .. });
        assert!(!settled.iter().any(is_wrong), "{settled:?}");
        if self.random.u32(0..4) > 0 {
            self.redis.feed.drain(..some);
        }
    }

    /// A writer that was let, or an operator whatever the mode, settles some of what was recorded.
    async fn backfill(&mut self) {
        if self.records && self.random.u32(0..4) > 0 {
            return;
        }
        let limit = self.random.u32(1..=9);
        let done = self.scene.sql.settle_recorded(ACTIVITY, limit).await.unwrap();
        assert_eq!((done.settled, done.failed), (done.taken, Vec::new()));
    }

    async fn release(&mut self) {
        for release in self.scene.sql.due_releases(0, 3).await.unwrap() {
            if !self.redis.is_up {
                return;
            }
            self.redis.release(release.user, release.mark.order);
            if self.random.u32(0..4) > 0 {
                self.scene.sql.releases_done(&[release.id]).await.unwrap();
            }
        }
    }

    async fn load(&mut self) {
        for load in self.scene.sql.due_loads(8).await.unwrap() {
            if !self.redis.is_up {
                return;
            }
            self.redis.load(&load);
            if self.random.u32(0..4) > 0 {
                let applied: Vec<_> =
                    load.changes.iter().map(|(sku, units)| (*sku, units.unsigned_abs() as u32)).collect();
                self.scene.sql.load_done(&load, self.generation, &applied).await.unwrap();
            }
        }
    }

    /// Somebody's order is not paid, whoever sold it.
    async fn close(&mut self) {
        let query = "SELECT number FROM orders WHERE state = 2 ORDER BY number";
        let open: Vec<u64> =
            sqlx::query_scalar(query).fetch_all(&mut self.scene.connect().await).await.unwrap();
        if let Some(order) = self.random.choice(open) {
            let closings = self.scene.sql.close_overdue(&[OrderNumber(order)]).await.unwrap();
            assert_eq!((closings.closed, closings.left_open), (1, Vec::new()));
        }
    }

    /// Free and held in Redis, on the way to it, free and sold in the reserve: every unit, once.
    async fn check(&self) {
        let figures = self.scene.sql.figures(ACTIVITY).await.unwrap().1.remove(&SkuId(1)).unwrap();
        // Loads from before a takeover stay in the total.
        if self.generation == Gen(0) {
            assert_eq!(figures.total, figures.free + figures.recorded + figures.sold, "{figures:?}");
        }
        let reserve = figures.reserve.unwrap();
        assert_eq!(reserve.total, reserve.free + reserve.sold, "{reserve:?}");
        if self.is_taken {
            assert_eq!(reserve.total, TOTAL, "all of it is sold from the database");
            return self.check_users().await;
        }
        let on_the_way: u64 = self
            .scene
            .sql
            .due_loads(1_000)
            .await
            .unwrap()
            .iter()
            .filter(|load| !self.redis.loads.contains(&format!("{}/{}", load.load_id, load.shard.number())))
            .flat_map(|load| &load.changes)
            .map(|(_, units)| units.unsigned_abs())
            .sum();
        let redis = self.redis.free + self.redis.held();
        assert_eq!(redis + on_the_way + reserve.free + reserve.sold, TOTAL, "{reserve:?}");
        self.check_users().await;
    }

    async fn check_users(&self) {
        let twice = "SELECT COUNT(*) FROM (SELECT user FROM orders WHERE state IN (1, 2, 3, 7) GROUP BY user \
                     HAVING COUNT(*) > 1) t";
        assert_eq!(self.scene.count(twice).await, 0);
        let lost = "SELECT COUNT(*) FROM orders o LEFT JOIN recorded r ON r.number = o.number \
                    WHERE (o.state = 7) <> (r.number IS NOT NULL)";
        assert_eq!(self.scene.count(lost).await, 0);
        let settled_later = "SELECT COUNT(*) - COUNT(DISTINCT number) FROM order_history WHERE cause = 6";
        assert_eq!(self.scene.count(settled_later).await, 0, "settled twice");
    }

    /// Everything that is due is done, and all that is free sold.
    async fn end(mut self) {
        (self.redis.is_up, self.records) = (true, false);
        while !self.late.is_empty() {
            self.offer_late().await;
        }
        self.give_back().await;
        self.store.hand_over(sku(1), RESERVE).await.unwrap();
        for user in USERS + 1.. {
            while !(self.redis.feed.is_empty()
                && self.scene.sql.due_releases(0, 1).await.unwrap().is_empty()
                && self.scene.sql.due_loads(1).await.unwrap().is_empty()
                && self.scene.sql.recorded_activities().await.unwrap().is_empty())
            {
                self.settle().await;
                self.backfill().await;
                self.release().await;
                self.load().await;
            }
            if self.redis.free == 0 {
                break;
            }
            self.buy_of_redis(user);
        }
        self.check().await;
        let live = self.scene.count("SELECT COUNT(*) FROM orders WHERE state IN (1, 2, 3, 7)").await;
        assert_eq!(u64::try_from(live), Ok(TOTAL), "neither too many nor too few");
    }
}

#[tokio::test]
async fn rules_19_and_20_no_sequence_of_modes_takeovers_crashes_and_purchases_sells_a_unit_twice_or_loses_one()
 {
    for seed in [1, 2] {
        let mut world = World::new(seed).await;
        for _ in 0..STEPS {
            world.step().await;
            world.check().await;
        }
        world.end().await;
    }
}
