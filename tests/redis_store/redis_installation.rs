//! The Redis store as an installation: one server for all tests, a key prefix for each; loads, releases and
//! recoveries are done as writers and leaders do them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use rushgate::stock::calls::{Call, Gen, Mark, ProcessNumber, Reply, ShardId, Snapshot};
use rushgate::store::redis::{Guarded, Rebuilt, RedisOptions, RedisShards, Release};
use rushgate::store::{FeedPositions, FeedRead, Registration, ReservationStore, StoreError};
use rushgate_servers::{Persistence, Redis};
use tokio::sync::OnceCell;

use crate::installation::{Figures, Installation, OrderRow};

static REDIS: OnceCell<Redis> = OnceCell::const_new();

/// The server that tests share.
pub async fn redis() -> &'static Redis {
    REDIS.get_or_init(|| async { Redis::start(Persistence::Off).await.unwrap() }).await
}

/// A master with a replica that every acknowledged write waits for.
pub async fn replicated() -> (Redis, Redis, RedisOptions) {
    let master = Redis::start(Persistence::Off).await.unwrap();
    let replica = Redis::replicate_of(&master).await.unwrap();
    // A replica confirms for the first time up to a second after it began to follow.
    let options = RedisOptions {
        wait_replicas: 1,
        wait_timeout: Duration::from_secs(5),
        ..RedisOptions::single(master.address())
    };
    (master, replica, options)
}

/// A store of marks, stock and feeds, with process numbers from a counter.
pub struct RedisStore {
    pub shards: RedisShards,
    pub processes: Arc<AtomicU32>,
}

impl ReservationStore for RedisStore {
    async fn register(&self) -> Result<Registration, StoreError> {
        let process = ProcessNumber(self.processes.fetch_add(1, Ordering::Relaxed) + 1);
        let generation = self.shards.shard_state(ShardId::ALL[0]).await?.generation;
        Ok(Registration { process, generation })
    }

    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        self.shards.call(call).await
    }

    fn together(&self, calls: Vec<Call>) -> Vec<Vec<Call>> {
        self.shards.together(calls)
    }

    async fn call_together(&self, calls: &[Call]) -> Vec<Result<Reply, StoreError>> {
        self.shards.call_together(calls).await
    }

    async fn snapshot(&self, shard: ShardId) -> Result<Snapshot, StoreError> {
        self.shards.snapshot(shard).await
    }

    async fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        self.shards.read_feeds(after, wait).await
    }
}

/// A load as its driver remembers it.
#[derive(Clone)]
struct Load {
    id: String,
    shard: ShardId,
    sku: SkuKey,
    change: i64,
    applied: u32,
}

pub struct RedisInstallation {
    pub options: RedisOptions,
    store: Arc<RedisStore>,
    loads: Mutex<Vec<Load>>,
}

impl RedisInstallation {
    pub async fn with(options: RedisOptions) -> Self {
        let shards = RedisShards::open(options.clone()).await.unwrap();
        recover(&shards, Gen(1)).await;
        let store = Arc::new(RedisStore { shards, processes: Arc::default() });
        Self { options, store, loads: Mutex::default() }
    }

    pub fn shards(&self) -> RedisShards {
        self.store.shards.clone()
    }

    pub async fn generation(&self) -> Gen {
        self.store.shards.shard_state(ShardId::ALL[0]).await.unwrap().generation
    }

    /// Closes every shard as if another process had taken them over.
    pub async fn lose_trust(&self) {
        for shard in ShardId::all() {
            let meta = format!("{}:{{{:02}}}:meta", self.options.prefix, shard.number());
            redis().await.call(&["HSET", meta.as_str(), "epoch", "gone"]).await.unwrap();
        }
    }

    async fn load(&self, shard: ShardId, sku: SkuKey, change: i64) -> u32 {
        let id = format!("{sku}/{}", self.loads.lock().unwrap().len());
        let generation = self.generation().await;
        let shards = &self.store.shards;
        let applied = shards.load(shard, generation, &id, sku.activity, &[(sku.sku, change)]).await.unwrap();
        let Guarded::Done(applied) = applied else { panic!("{applied:?}") };
        assert_eq!(applied.len(), 1);
        let applied = applied[0].1;
        self.loads.lock().unwrap().push(Load { id, shard, sku, change, applied });
        applied
    }

    async fn add(&self, sku: SkuKey, units: u32) {
        let odd_from = self.loads.lock().unwrap().len() % 16;
        for shard in ShardId::all() {
            let is_odd = (shard.index() + odd_from) % 16 < (units % 16) as usize;
            let units = units / 16 + u32::from(is_odd);
            assert_eq!(self.load(shard, sku, units.into()).await, units);
        }
    }

    /// Every mark of an activity.
    pub async fn marks(&self, activity: ActivityId) -> Vec<(UserId, Mark)> {
        let mut marks = Vec::new();
        for shard in ShardId::all() {
            let snapshot = self.store.snapshot(shard).await.unwrap();
            marks.extend(snapshot.marks.into_iter().filter(|(_, mark)| mark.sku.activity == activity));
        }
        marks
    }
}

/// Recovers every closed shard with the content that it has.
pub async fn recover(shards: &RedisShards, generation: Gen) {
    for shard in ShardId::all() {
        let content = shards.content(shard).await.unwrap();
        let rebuilt = shards.rebuild(shard, &content.epoch, generation, &content).await.unwrap();
        assert_eq!(rebuilt, Rebuilt::Opened);
    }
}

impl Installation for RedisInstallation {
    type Store = RedisStore;

    const FEED_EVENTS: u64 = 1024;

    async fn create() -> Self {
        let redis = redis().await;
        Self::with(RedisOptions { prefix: redis.fresh_prefix(), ..RedisOptions::single(redis.address()) })
            .await
    }

    fn store(&self) -> Arc<RedisStore> {
        Arc::clone(&self.store)
    }

    async fn reopen(&mut self) {
        let generation = self.generation().await;
        self.lose_trust().await;
        let shards = RedisShards::open(self.options.clone()).await.unwrap();
        recover(&shards, Gen(generation.0 + 1)).await;
        self.store = Arc::new(RedisStore { shards, processes: Arc::clone(&self.store.processes) });
    }

    async fn create_activity(&self, id: ActivityId, skus: &[(SkuId, u32)]) {
        for (sku, units) in skus {
            self.add(SkuKey { activity: id, sku: *sku }, *units).await;
        }
    }

    async fn add_stock(&self, sku: SkuKey, units: u32) {
        self.add(sku, units).await;
    }

    async fn remove_stock(&self, sku: SkuKey, units: u32) -> u32 {
        let mut left = units;
        for shard in ShardId::all() {
            if left > 0 {
                left -= self.load(shard, sku, -i64::from(left)).await;
            }
        }
        units - left
    }

    async fn drive_loads_again(&self) {
        let loads = self.loads.lock().unwrap().clone();
        let generation = self.generation().await;
        for load in loads {
            let change = [(load.sku.sku, load.change)];
            let shards = &self.store.shards;
            let again =
                shards.load(load.shard, generation, &load.id, load.sku.activity, &change).await.unwrap();
            assert_eq!(again, Guarded::Done(vec![(load.sku.sku, load.applied)]), "{}", load.id);
        }
    }

    async fn close_order(&self, order: OrderNumber) {
        let marks = self.marks(crate::installation::ACTIVITY).await;
        let (user, mark) = marks.into_iter().find(|(_, mark)| mark.order == order).unwrap();
        let (shard, generation) = (ShardId::of(user), self.generation().await);
        let shards = &self.store.shards;
        for expected in [Release::Released, Release::WasReleased] {
            let released =
                shards.release(shard, generation, mark.sku.activity, user, order, OrderState::Closed).await;
            assert_eq!(released.unwrap(), Guarded::Done(expected));
        }
    }

    async fn close_again(&self, user: UserId, order: OrderNumber) {
        let (shards, generation) = (&self.store.shards, self.generation().await);
        let activity = crate::installation::ACTIVITY;
        let release =
            shards.release(ShardId::of(user), generation, activity, user, order, OrderState::Closed);
        assert_ne!(release.await.unwrap(), Guarded::Done(Release::Released));
    }

    async fn orders(&self, activity: ActivityId) -> Vec<OrderRow> {
        let marks = self.marks(activity).await;
        let live = marks.into_iter().filter(|(_, mark)| mark.state.is_live());
        let row = |(user, mark): (UserId, Mark)| OrderRow {
            number: mark.order,
            user,
            sku: mark.sku.sku,
            quantity: mark.quantity,
        };
        live.map(row).collect()
    }

    async fn figures(&self, sku: SkuKey) -> Figures {
        let total: i64 = {
            let loads = self.loads.lock().unwrap();
            let of_sku = loads.iter().filter(|load| load.sku == sku);
            of_sku.map(|load| i64::from(load.applied) * load.change.signum()).sum()
        };
        let (mut free, mut out, mut brought_in, mut sold) = (0, 0, 0, 0);
        let mut pairs: BTreeMap<(ShardId, ShardId), (u64, u64)> = BTreeMap::new();
        for shard in ShardId::all() {
            let snapshot = self.store.snapshot(shard).await.unwrap();
            for counters in snapshot.counters.iter().filter(|counters| counters.sku == sku) {
                free += u64::from(counters.free);
                for (target, units) in &counters.out {
                    out += units;
                    pairs.entry((shard, *target)).or_default().0 += units;
                }
                for (source, units) in &counters.brought_in {
                    brought_in += units;
                    pairs.entry((*source, shard)).or_default().1 += units;
                }
            }
            let live = snapshot.marks.iter().filter(|(_, mark)| mark.sku == sku && mark.state.is_live());
            sold += live.map(|(_, mark)| u64::from(mark.quantity)).sum::<u64>();
        }
        assert!(pairs.values().all(|(out, brought_in)| out >= brought_in), "{pairs:?}");
        Figures { total: total.try_into().unwrap(), free, in_transit: out - brought_in, sold }
    }
}
