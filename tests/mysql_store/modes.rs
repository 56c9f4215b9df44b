//! Rule 19 over random sequences: purchases in both worlds, modes that change at any instant, a Redis that goes and comes,
//! writers that crash between two steps, orders that are closed, units handed over. Redis is a model here, the database is
//! real. After every step each unit is in exactly one place, and no user has two orders that live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rushgate::protocol::{OrderNumber, SkuId, UserId};
use rushgate::stock::calls::{Gen, Item, ItemAnswer};
use rushgate::store::catalog::Catalogue;
use rushgate::store::sql::mysql::{MySqlStore, Preheat, Reservation, Settlement, ShardLoad};

use crate::fixture::{ACTIVITY, PAY_WITHIN_MS, Scene, activity, reservation, sku};
use crate::installation::Process;

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
    fn buy(&mut self, user: u64, order: u64) {
        let attempt = match self.marks.get(&UserId(user)) {
            Some((_, _, true)) => return,
            Some((_, attempt, false)) => attempt + 1,
            None => 1,
        };
        if self.is_up && self.free > 0 && attempt <= ATTEMPTS_MAX {
            self.free -= 1;
            self.marks.insert(UserId(user), (OrderNumber(order), attempt, true));
            let mut reserved = reservation(user, order);
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
    orders: u64,
    /// The attempt that each user makes next at the reserve.
    attempts: BTreeMap<UserId, u8>,
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
        Self {
            scene,
            store,
            process,
            redis,
            sells_the_reserve: false,
            orders: 1 << 50,
            attempts: BTreeMap::new(),
            random,
        }
    }

    async fn step(&mut self) {
        match self.random.u32(0..100) {
            0..5 => self.redis.is_up = !self.redis.is_up,
            5..10 => self.sells_the_reserve = !self.sells_the_reserve,
            10..55 => self.buy().await,
            55..70 => self.settle().await,
            70..80 => self.release().await,
            80..88 => self.load().await,
            88..97 => self.close().await,
            _ => {
                let units = self.random.u32(1..=4);
                self.store.hand_over(sku(1), units).await.unwrap();
            }
        }
    }

    /// As one gateway does; others may be in the other mode.
    async fn buy(&mut self) {
        let user = self.random.u64(1..=USERS);
        let is_of_another_mind = self.random.u32(0..10) == 0;
        if self.sells_the_reserve == is_of_another_mind {
            self.orders += 1;
            self.redis.buy(user, self.orders);
        } else {
            let next = self.attempts.entry(UserId(user)).or_insert(1);
            let item = Item { attempt: *next, ..self.process.item(UserId(user), sku(1), 1) };
            let call = self.process.reserve(rushgate::stock::calls::ShardId::of(item.user), vec![item]);
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

    /// A writer settles some of the feed, and may die before it acknowledges them.
    async fn settle(&mut self) {
        let some = self.redis.feed.len().min(self.random.usize(1..=6));
        if !self.redis.is_up || some == 0 {
            return;
        }
        let batch = self.redis.feed[..some].to_vec();
        let settled = self.scene.settle(&batch).await;
        let is_wrong =
            |one: &Settlement| matches!(one, Settlement::Failed { .. } | Settlement::Collision { .. });
        assert!(!settled.iter().any(is_wrong), "{settled:?}");
        if self.random.u32(0..4) > 0 {
            self.redis.feed.drain(..some);
        }
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
                self.scene.sql.load_done(&load, Gen(0), &applied).await.unwrap();
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
        let reserve = self.scene.sql.figures(ACTIVITY).await.unwrap().1[&SkuId(1)].reserve.unwrap();
        assert_eq!(reserve.total, reserve.free + reserve.sold, "{reserve:?}");
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
        let twice = "SELECT COUNT(*) FROM (SELECT user FROM orders WHERE state IN (1, 2, 3, 7) GROUP BY user \
                     HAVING COUNT(*) > 1) t";
        assert_eq!(self.scene.count(twice).await, 0);
    }

    /// Everything that is due is done, and all that is free sold.
    async fn end(mut self) {
        self.redis.is_up = true;
        self.store.hand_over(sku(1), RESERVE).await.unwrap();
        for user in USERS + 1.. {
            while !(self.redis.feed.is_empty()
                && self.scene.sql.due_releases(0, 1).await.unwrap().is_empty()
                && self.scene.sql.due_loads(1).await.unwrap().is_empty())
            {
                self.settle().await;
                self.release().await;
                self.load().await;
            }
            if self.redis.free == 0 {
                break;
            }
            self.orders += 1;
            self.redis.buy(user, self.orders);
        }
        self.check().await;
        let live = self.scene.count("SELECT COUNT(*) FROM orders WHERE state IN (1, 2, 3, 7)").await;
        assert_eq!(u64::try_from(live), Ok(TOTAL), "neither too many nor too few");
    }
}

#[tokio::test]
async fn rule_19_no_sequence_of_modes_crashes_and_purchases_sells_a_unit_twice_or_loses_one() {
    for seed in [1, 2] {
        let mut world = World::new(seed).await;
        for _ in 0..STEPS {
            world.step().await;
            world.check().await;
        }
        world.end().await;
    }
}
