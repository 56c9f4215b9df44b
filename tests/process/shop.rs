//! A folder whose configuration names real servers of the production store.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rushgate::admission::identity::{IdentityKind, MintKey, MintSettings, Minter};
use rushgate::stock::calls::ShardId;
use rushgate::store::redis::{Guarded, RedisOptions, RedisShards};
use rushgate::store::sql::mysql::{MySqlInstallation, MySqlOptions};
use rushgate_servers::{Database, Direction, FaultyLink, MariaDb, Persistence, Redis};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use super::house::{House, Serving, Started};
use super::wire::{Client, user};

static MARIADB: OnceCell<MariaDb> = OnceCell::const_new();
static REDIS: OnceCell<Redis> = OnceCell::const_new();

pub(crate) struct Shop {
    pub(crate) house: House,
    pub(crate) runtime: Runtime,
    database: Database,
    redis: RedisOptions,
}

impl Shop {
    /// With a fresh database, and keys of its own in a Redis that other tests use too.
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (database, redis) = runtime.block_on(async {
            let redis = REDIS.get_or_try_init(|| Redis::start(Persistence::EverySecond)).await.unwrap();
            let options =
                RedisOptions { prefix: redis.fresh_prefix(), ..RedisOptions::single(redis.address()) };
            (database().await, options)
        });
        Self::open(runtime, database, redis)
    }

    /// With a fresh database and this Redis.
    pub(crate) fn on(redis: RedisOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let database = runtime.block_on(database());
        Self::open(runtime, database, redis)
    }

    /// With this Redis and a fresh database of this server.
    pub(crate) fn with(redis: RedisOptions, mariadb: &MariaDb) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let database = runtime.block_on(mariadb.create_database()).unwrap();
        Self::open(runtime, database, redis)
    }

    /// The name of a key.
    pub(crate) fn key(&self, shard: ShardId, rest: &str) -> String {
        format!("{}:{{{:02}}}:{rest}", self.redis.prefix, shard.number())
    }

    /// The shop's Redis, as a gateway opens it.
    pub(crate) fn open_redis(&self) -> RedisShards {
        self.runtime.block_on(RedisShards::open(self.redis.clone())).unwrap()
    }

    /// One command to the Redis that tests share.
    #[track_caller]
    pub(crate) fn redis(&self, command: &[&str]) -> String {
        let answer = self.runtime.block_on(async { REDIS.get().unwrap().cli(command).await });
        answer.unwrap().trim().to_owned()
    }

    fn open(runtime: Runtime, database: Database, redis: RedisOptions) -> Self {
        let house = House::new();
        let Database { host, port, user, password, name } = &database;
        let write = |file: &str, text: String| fs::write(house.dir.path().join(file), text).unwrap();
        write("password", format!("{password}\n"));
        write("secret", "a secret that all gateways of the shop share".to_owned());
        let mut config = format!(
            "[store]\nkind = \"redis\"\n[mysql]\nhost = \"{host}\"\nport = {port}\nuser = \"{user}\"\n\
             password_file = \"password\"\ndatabase = \"{name}\"\n[auth]\nsecret_file = \"secret\"\n\
             [redis]\nnodes = {:?}\nprefix = \"{}\"\n",
            redis.nodes, redis.prefix
        );
        if let Some(password) = &redis.password {
            write("redis-password", password.clone());
            config.push_str("password_file = \"redis-password\"\n");
        }
        write("rushgate.toml", config);
        Self { house, runtime, database, redis }
    }

    /// A client of a gateway that serves from here.
    #[track_caller]
    pub(crate) fn app(&self, serving: &Serving, id: u64) -> Client {
        Client::login(serving.addr, &self.app_token(id))
    }

    /// What such a client shows.
    #[track_caller]
    pub(crate) fn app_token(&self, id: u64) -> String {
        let key = MintKey::SecretFile(self.house.dir.path().join("secret"));
        let minter =
            Minter::new(&MintSettings { key, audience: "rushgate".to_owned(), issuer: None }).unwrap();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        minter.mint(IdentityKind::App(user(id)), now_s, Duration::from_secs(3600)).unwrap()
    }

    /// A sidecar writer, killed when dropped.
    pub(crate) fn writer(&self) -> Started {
        Started::new(&self.house, self.house.command(&["writer", "--set", "writer.admin_listen="]))
    }

    /// A link to the database with faults; serve with `mysql.port` = its port. Lives while `runtime` does.
    pub(crate) fn link_to_database(&self, runtime: &Runtime) -> FaultyLink {
        let upstream = SocketAddr::from(([127, 0, 0, 1], self.database.port));
        runtime.block_on(FaultyLink::start(upstream)).unwrap()
    }

    /// Activity 7 with so much of SKU 1.
    pub(crate) fn create(&self, stock: u64, more: &[&str]) -> String {
        let sku = format!("1:{stock}:999");
        let args = ["activity", "create", "--id", "7", "--name", "a sale", "--sku", &sku];
        self.house.done(&[&args[..], more].concat())
    }

    pub(crate) fn shown(&self) -> Value {
        serde_json::from_str(&self.house.done(&["activity", "show", "7", "--json"])).unwrap()
    }

    /// Looks into the database as a writer does.
    pub(crate) fn run<T>(&self, what: impl AsyncFnOnce(&MySqlInstallation) -> T) -> T {
        let Database { host, port, user, password, name } = &self.database;
        let options =
            MySqlOptions { password: Some(password.clone()), ..MySqlOptions::new(host, *port, user, name) };
        self.runtime.block_on(async {
            let installation = MySqlInstallation::open(options).await.unwrap();
            let done = what(&installation).await;
            installation.close().await;
            done
        })
    }

    /// A statement in the shop's database.
    pub(crate) fn sql(&self, statement: &str) {
        let name = &self.database.name;
        let statement = format!("USE {name}; {statement}");
        self.runtime.block_on(async { MARIADB.get().unwrap().sql(&statement).await }).unwrap();
    }

    /// What a statement counts.
    pub(crate) fn count(&self, statement: &str) -> u64 {
        let name = &self.database.name;
        let statement = format!("USE {name}; {statement}");
        let counted = self.runtime.block_on(async { MARIADB.get().unwrap().sql(&statement).await }).unwrap();
        counted.trim().parse().unwrap()
    }

    /// Brings every load that is due to Redis and records it, as a writer does; the shards have to be open.
    pub(crate) fn drive_loads(&self) {
        let options = self.redis.clone();
        self.run(async |sql| {
            let redis = RedisShards::open(options).await.unwrap();
            for load in sql.due_loads(1_000).await.unwrap() {
                let generation = redis.shard_state(load.shard).await.unwrap().generation;
                let loaded =
                    redis.load(load.shard, generation, &load.load_id, load.activity, &load.changes).await;
                let Guarded::Done(amounts) = loaded.unwrap() else { panic!("{load:?} is refused") };
                sql.load_done(&load, generation, &amounts).await.unwrap();
            }
        });
    }
}

async fn database() -> Database {
    let server = MARIADB.get_or_try_init(MariaDb::start).await.unwrap();
    server.create_database().await.unwrap()
}

/// A Redis of a test's own, and how it is reached.
pub(crate) async fn own_redis(settings: rushgate_servers::RedisSettings) -> (Redis, RedisOptions) {
    let redis = Redis::start_with(settings).await.unwrap();
    let password = redis.password().map(str::to_owned);
    let options = RedisOptions {
        password,
        connect_timeout: Duration::from_secs(5),
        ..RedisOptions::single(redis.address())
    };
    (redis, options)
}

/// A runtime whose tasks run whatever the test does.
pub(crate) fn background() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Nothing comes through, in either direction, and nobody is told.
pub(crate) fn silence(link: &FaultyLink) {
    link.swallow(Direction::ToServer, true);
    link.swallow(Direction::ToClient, true);
}

/// What was connected is closed at last, and new connections are as they should be.
pub(crate) fn heal(link: &FaultyLink) {
    link.swallow(Direction::ToServer, false);
    link.swallow(Direction::ToClient, false);
    link.cut();
}
