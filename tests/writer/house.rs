//! One installation: a prefix in Redis, a database in MariaDB, open shards, and a gateway that reserves.

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rushgate::protocol::{ActivityId, OrderNumber, SkuId, SkuKey, UserId};
use rushgate::stock::calls::{
    Call, CallBody, Done, Gen, Item, ItemAnswer, ProcessNumber, Reply, SHARDS, ShardId,
};
use rushgate::store::catalog::{Activity, Eligibility, Sku};
use rushgate::store::redis::{Adopted, RedisOptions, RedisShards};
use rushgate::store::shared::{Keeper, KeeperState};
use rushgate::store::sql::mysql::{Leadership, MySqlInstallation, MySqlOptions, Preheat, ProcessKind};
use rushgate_servers::{Database, MariaDb, Persistence, Redis, RedisCluster};
use tempfile::TempDir;
use tokio::sync::{OnceCell, watch};

pub(crate) const ACTIVITY: ActivityId = ActivityId(7);
pub(crate) const SKU: SkuKey = SkuKey { activity: ACTIVITY, sku: SkuId(1) };

static REDIS: OnceCell<Redis> = OnceCell::const_new();
static MARIADB: OnceCell<MariaDb> = OnceCell::const_new();

pub(crate) struct World {
    pub(crate) redis: RedisShards,
    pub(crate) sql: MySqlInstallation,
    pub(crate) database: Database,
    pub(crate) prefix: String,
    pub(crate) dir: TempDir,
    /// Its part of the configuration: where Redis is.
    redis_config: String,
    gateway: ProcessNumber,
    generation: Gen,
    calls: [u64; SHARDS],
    orders: u64,
    /// Keeps the keeper running, which opens the shards.
    _keeper: watch::Receiver<KeeperState>,
}

/// Polls until it is so.
#[track_caller]
pub(crate) fn eventually<'a, F: Future<Output = bool> + 'a>(
    what: &'a str,
    mut is_so: impl FnMut() -> F + 'a,
) -> impl Future<Output = ()> + 'a {
    let at = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !is_so().await {
            assert!(Instant::now() < deadline, "{at}: in vain for 90 s: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) async fn shared_redis() -> &'static Redis {
    REDIS.get_or_try_init(|| Redis::start(Persistence::Off)).await.unwrap()
}

pub(crate) async fn shared_mariadb() -> &'static MariaDb {
    MARIADB.get_or_try_init(MariaDb::start).await.unwrap()
}

impl World {
    /// The recovery that was begun in SQL ends: its generation reaches the shards, none of which is closed.
    pub(crate) async fn recovered(&self, mut leadership: Leadership, generation: Gen) {
        for shard in ShardId::ALL {
            let state = self.redis.shard_state(shard).await.unwrap();
            let adopted = self.redis.adopt(shard, &state.own_epoch, generation).await.unwrap();
            assert!(matches!(adopted, Adopted::Adopted(_)), "{adopted:?}");
        }
        leadership.recovery_done(generation).await.unwrap();
        leadership.resign().await;
    }

    pub(crate) async fn new() -> Self {
        Self::on(shared_redis().await, shared_mariadb().await).await
    }

    pub(crate) async fn on(redis: &Redis, mariadb: &MariaDb) -> Self {
        let prefix = redis.fresh_prefix();
        let config = format!("nodes = [\"{}\"]\nprefix = \"{prefix}\"", redis.address());
        Self::with(RedisOptions { prefix, ..RedisOptions::single(redis.address()) }, config, mariadb).await
    }

    pub(crate) async fn on_cluster(cluster: &RedisCluster, mariadb: &MariaDb) -> Self {
        let nodes: Vec<_> = cluster.addresses().iter().map(|node| format!("\"{node}\"")).collect();
        let config = format!("nodes = [{}]\ncluster = true\nwait_replicas = 0", nodes.join(", "));
        let options = RedisOptions { wait_replicas: 0, ..RedisOptions::cluster(cluster.addresses()) };
        Self::with(options, config, mariadb).await
    }

    async fn with(options: RedisOptions, redis_config: String, mariadb: &MariaDb) -> Self {
        let prefix = options.prefix.clone();
        let database = mariadb.create_database().await.unwrap();
        let shards = RedisShards::open(options).await.unwrap();
        let sql = MySqlInstallation::open(MySqlOptions {
            password: Some(database.password.clone()),
            ..MySqlOptions::new(&database.host, database.port, &database.user, &database.name)
        })
        .await
        .unwrap();
        let (_, keeper) = Keeper::register_writer(shards.clone(), sql.clone()).await.unwrap();
        let state = keeper.state();
        tokio::spawn(keeper.run());
        let gateway = sql.register(ProcessKind::Gateway).await.unwrap().process;
        let world = Self {
            redis: shards,
            sql,
            database,
            prefix,
            dir: TempDir::new().unwrap(),
            redis_config,
            gateway,
            generation: Gen(0),
            calls: [0; SHARDS],
            orders: 0,
            _keeper: state,
        };
        world.opened().await;
        world
    }

    /// Waits until every shard is open.
    pub(crate) async fn opened(&self) {
        for shard in ShardId::ALL {
            eventually("the shards open", || async {
                self.redis.shard_state(shard).await.is_ok_and(|state| state.is_open)
            })
            .await;
        }
    }

    /// With one activity whose stock is in Redis.
    pub(crate) async fn with_stock(units: u32) -> Self {
        let world = Self::new().await;
        world.sell(units).await;
        world
    }

    pub(crate) async fn create(&self, id: ActivityId, units: u32, opens_in: Duration) {
        let now_ms = self.redis.time().await.unwrap().as_millis() as u64;
        let sku = |id| Sku { id: SkuId(id), name: format!("SKU {id}"), price_minor: 100, stock_total: units };
        let activity = Activity {
            id,
            name: "a sale".to_owned(),
            entry_open: true,
            opens_at_ms: now_ms + opens_in.as_millis() as u64,
            closes_at_ms: now_ms + 86_400_000,
            per_user_limit: 5,
            buy_again_max: 0,
            eligibility: Eligibility::default(),
            skus: vec![sku(1), sku(2)],
        };
        self.sql.create(&activity, 900_000).await.unwrap();
    }

    /// An activity whose stock is in Redis, without a writer's help.
    pub(crate) async fn sell(&self, units: u32) {
        self.sell_in(ACTIVITY, units).await;
    }

    pub(crate) async fn sell_in(&self, activity: ActivityId, units: u32) {
        self.create(activity, units, Duration::from_secs(3600)).await;
        assert_eq!(self.sql.preheat(activity).await.unwrap(), Preheat::Loaded);
        let generation = self.sql.generation().await.unwrap();
        for load in self.sql.due_loads(1000).await.unwrap() {
            let done =
                self.redis.load(load.shard, generation, &load.load_id, load.activity, &load.changes).await;
            let rushgate::store::redis::Guarded::Done(applied) = done.unwrap() else { panic!("not loaded") };
            self.sql.load_done(&load, generation, &applied).await.unwrap();
        }
    }

    pub(crate) fn next_order(&mut self) -> OrderNumber {
        self.orders += 1;
        OrderNumber((u64::from(self.gateway.0) << 36) | self.orders)
    }

    /// Reserves one unit for each of these users, as a gateway does; all of them get it. Nothing is moved between shards,
    /// so the stock has to be well above what is sold.
    pub(crate) async fn reserve(&mut self, users: impl IntoIterator<Item = u64>) {
        let mut by_shard: [Vec<Item>; SHARDS] = Default::default();
        for user in users.into_iter().map(UserId) {
            let order = self.next_order();
            by_shard[ShardId::of(user).index()].push(Item {
                user,
                sku: SKU,
                order,
                quantity: 1,
                attempt: 1,
                promised: false,
            });
        }
        for (shard, items) in ShardId::all().zip(by_shard) {
            for items in items.chunks(64) {
                self.reserve_items(shard, items.to_vec()).await;
            }
        }
    }

    pub(crate) async fn reserve_items(&mut self, shard: ShardId, items: Vec<Item>) {
        let wanted = items.len();
        let done = self.call(shard, CallBody::Reserve { bring_in: Vec::new(), items }).await;
        assert_eq!(done.answers, vec![ItemAnswer::Reserved; wanted], "shard {}", shard.number());
    }

    /// Executes a call as a gateway does, however often it has to be repeated.
    pub(crate) async fn call(&mut self, shard: ShardId, body: CallBody) -> Done {
        loop {
            self.calls[shard.index()] += 1;
            let (process, number) = (self.gateway, self.calls[shard.index()]);
            let call = Call { process, generation: self.generation, shard, number, body: body.clone() };
            let reply = loop {
                match self.redis.call(&call).await {
                    Ok(reply) => break reply,
                    Err(error) => eprintln!("{error}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            match reply {
                Reply::Done(done) => return done,
                Reply::Gen(generation) => self.generation = generation,
                Reply::Recovering => tokio::time::sleep(Duration::from_millis(20)).await,
                Reply::Stale => panic!("a number was used twice"),
            }
        }
    }

    /// Appends an entry that no version of this program wrote.
    pub(crate) async fn append_rubbish(&self, redis: &Redis, shard: ShardId) -> String {
        let key = |rest: &str| format!("{}:{{{:02}}}:{rest}", self.prefix, shard.number());
        let seq = redis.cli(&["HINCRBY", &key("meta"), "seq", "1"]).await.unwrap();
        let generation = redis.cli(&["HGET", &key("meta"), "gen"]).await.unwrap();
        let id = format!("{}-{}", generation.trim(), seq.trim());
        redis.cli(&["XADD", &key("feed"), &id, "e", "rubbish"]).await.unwrap();
        id
    }

    /// Entries that no writer has finished with: given to one, given to none.
    pub(crate) async fn backlog(&self) -> Option<(u64, u64)> {
        let (mut pending, mut undelivered) = (0, 0);
        for shard in ShardId::ALL {
            let backlog = self.redis.backlog(shard).await.ok()?;
            pending += backlog.entries_pending;
            undelivered += backlog.entries_undelivered;
        }
        Some((pending, undelivered))
    }

    pub(crate) async fn drained(&self) {
        eventually("everything is acknowledged", || async { self.backlog().await == Some((0, 0)) }).await;
    }

    /// A configuration file for writers of this installation.
    pub(crate) fn config(&self, writer: &str) -> PathBuf {
        let password = self.dir.path().join("password");
        std::fs::write(&password, &self.database.password).unwrap();
        let Database { host, port, user, name, .. } = &self.database;
        let text = format!(
            "[store]\nkind = \"redis\"\n[redis]\n{}\n[mysql]\nhost = \"{host}\"\n\
             port = {port}\nuser = \"{user}\"\npassword_file = \"{}\"\ndatabase = \"{name}\"\n[writer]\n\
             admin_listen = \"127.0.0.1:0\"\nclaim_idle = \"1s\"\n{writer}\n",
            self.redis_config,
            password.display(),
        );
        let file = self.dir.path().join(format!("writer-{}.toml", fastrand::u64(..)));
        std::fs::write(&file, text).unwrap();
        file
    }
}
