//! The production form for tests of the binary: two gateways that share a Redis and a MariaDB, behind HAProxy, and a
//! writer. Gateways and writer run in this process, the servers are real.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rushgate::admin::activities::{Activities, NewActivity, NewSku};
use rushgate::admission::Cidr;
use rushgate::admission::identity::{IdentitySettings, Verifier, VerifyKey};
use rushgate::admission::limits::{Limits, LimitsSettings, Rate};
use rushgate::gateway::{Gateway, Settings};
use rushgate::orders::reconcile::{ActivityReport, Reconciliation, Stage, Watch};
use rushgate::orders::{Settings as WriterSettings, Stopped, Writer};
use rushgate::protocol::ActivityId;
use rushgate::store::catalog::Eligibility;
use rushgate::store::redis::{RedisOptions, RedisShards};
use rushgate::store::shared::{Keeper, KeeperState, SharedStore};
use rushgate::store::sql::mysql::{MySqlInstallation, MySqlOptions};
use rushgate_servers::{Database, HaProxy, MariaDb, Persistence, Redis};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, watch};

use super::counted::serve_counts;

static MARIADB: OnceCell<MariaDb> = OnceCell::const_new();
static REDIS: OnceCell<Redis> = OnceCell::const_new();

/// As deployed, but for the health checks: these gateways have no admin port.
const HAPROXY: &str = r#"
defaults
  mode tcp
  timeout connect 2s
  timeout client 150s
  timeout server 150s
frontend clients
  bind "127.0.0.1:${FRONT}"
  default_backend gateways
backend gateways
  balance leastconn
  default-server send-proxy-v2
  server gateway1 "${GATEWAY1}"
  server gateway2 "${GATEWAY2}"
"#;

pub(crate) struct Shop {
    pub(crate) folder: TempDir,
    gateways: Vec<Arc<Gateway>>,
    haproxy: HaProxy,
    writer: Option<(Writer, watch::Receiver<KeeperState>)>,
    redis: RedisOptions,
    mysql: MySqlOptions,
    // Dropped last: everything above runs in it.
    runtime: Runtime,
}

impl Shop {
    /// Activity 1 with so many units of SKU 1, in Redis; it opens within seconds.
    pub(crate) fn open(units: u64) -> Self {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (redis, database) = runtime.block_on(async {
            let redis = REDIS.get_or_try_init(|| Redis::start(Persistence::EverySecond)).await.unwrap();
            let mariadb = MARIADB.get_or_try_init(MariaDb::start).await.unwrap();
            let options =
                RedisOptions { prefix: redis.fresh_prefix(), ..RedisOptions::single(redis.address()) };
            (options, mariadb.create_database().await.unwrap())
        });
        write_config(&folder, &redis, &database);
        let mysql = MySqlOptions {
            password: Some(database.password.clone()),
            ..MySqlOptions::new(&database.host, database.port, &database.user, &database.name)
        };
        let writer = runtime.block_on(start_writer(&redis, &mysql));
        let secret = folder.path().join("secret");
        let (gateways, haproxy) = runtime.block_on(async {
            let mut gateways = Vec::new();
            for _ in 0..2 {
                gateways.push(Arc::new(Box::pin(start_gateway(&redis, &mysql, secret.clone())).await));
            }
            let proxied: Vec<String> =
                gateways.iter().map(|gateway| gateway.proxy_addr().unwrap().to_string()).collect();
            let addrs = [("GATEWAY1", proxied[0].as_str()), ("GATEWAY2", proxied[1].as_str())];
            (gateways, HaProxy::start(HAPROXY, &["FRONT"], &addrs).await.unwrap())
        });
        let shop = Self { folder, gateways, haproxy, writer: Some(writer), redis, mysql, runtime };
        shop.create(units);
        shop
    }

    fn create(&self, units: u64) {
        let activities = Activities::on_server(self.mysql.clone(), Duration::from_secs(600));
        self.runtime.block_on(async {
            activities.create(&activity(units)).await.unwrap();
            eventually("the stock is in Redis", async || {
                activities.show(1).await.unwrap().skus.iter().all(|sku| sku.pending_loads.is_empty())
            })
            .await;
        });
    }

    pub(crate) fn stop_writer(&mut self) {
        let (writer, keeper) = self.writer.take().unwrap();
        assert_eq!(self.runtime.block_on(writer.stop()), Stopped::Done);
        drop(keeper);
    }

    pub(crate) fn start_writer(&mut self) {
        self.writer = Some(self.runtime.block_on(start_writer(&self.redis, &self.mysql)));
    }

    /// A statement in the shop's database.
    pub(crate) fn sql(&self, statement: &str) {
        let statement = format!("USE {}; {statement}", self.mysql.database);
        self.runtime.block_on(async { MARIADB.get().unwrap().sql(&statement).await }).unwrap();
    }

    /// A command about one of the shop's keys.
    pub(crate) fn redis(&self, key: &str, before: &[&str], after: &[&str]) -> String {
        let key = format!("{}:{key}", self.redis.prefix);
        let command = [before, &[key.as_str()], after].concat();
        self.runtime.block_on(async { REDIS.get().unwrap().call(&command).await }).unwrap().to_string()
    }

    /// HAProxy.
    pub(crate) fn front(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.haproxy.port("FRONT").unwrap()))
    }

    /// Open on both gateways.
    pub(crate) fn connections(&self) -> usize {
        self.gateways.iter().map(|gateway| gateway.connections()).sum()
    }

    /// Both gateways, directly, as an argument.
    pub(crate) fn gateways(&self) -> String {
        let addrs: Vec<String> =
            self.gateways.iter().map(|gateway| gateway.local_addr().to_string()).collect();
        addrs.join(",")
    }

    /// An admin port for each, as an argument.
    pub(crate) fn admins(&self) -> String {
        let serve = |gateway| self.runtime.block_on(serve_counts(gateway)).to_string();
        self.gateways.iter().map(serve).collect::<Vec<_>>().join(",")
    }

    /// What reconciliations find, that correct what they find, one after the other until it is over.
    pub(crate) fn reconciled_until(&self, is_over: impl Fn() -> bool) -> Vec<ActivityReport> {
        self.runtime.block_on(async {
            let redis = RedisShards::open(self.redis.clone()).await.unwrap();
            let sql = MySqlInstallation::open(self.mysql.clone()).await.unwrap();
            let reconciliation = Reconciliation::new(redis, sql);
            let mut reports = Vec::new();
            while !is_over() {
                reports.push(reconciliation.activity(ActivityId(1), true, &Unwatched).await.unwrap());
            }
            reports
        })
    }

    /// A sale through HAProxy, as a person runs it in the folder of the configuration.
    pub(crate) fn sale(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate-loadgen"));
        command.args(["sale", "--addr", &self.front().to_string(), "--config", "rushgate.toml"]).args(args);
        command.current_dir(self.folder.path()).output().unwrap()
    }
}

struct Unwatched;

impl Watch for Unwatched {
    fn at(&self, _: Stage, _: u64, _: u64) {}
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.gateways.iter().for_each(|gateway| gateway.stop());
    }
}

fn write_config(folder: &TempDir, redis: &RedisOptions, database: &Database) {
    let Database { host, port, user, password, name } = database;
    let write = |file: &str, text: String| fs::write(folder.path().join(file), text).unwrap();
    write("password", format!("{password}\n"));
    write("secret", "a secret that all gateways of the shop share".to_owned());
    let config = format!(
        "[store]\nkind = \"redis\"\n[mysql]\nhost = \"{host}\"\nport = {port}\nuser = \"{user}\"\n\
         password_file = \"password\"\ndatabase = \"{name}\"\n[auth]\nsecret_file = \"secret\"\n\
         [redis]\nnodes = {:?}\nprefix = \"{}\"\n",
        redis.nodes, redis.prefix
    );
    write("rushgate.toml", config);
}

async fn start_writer(redis: &RedisOptions, mysql: &MySqlOptions) -> (Writer, watch::Receiver<KeeperState>) {
    let redis = RedisShards::open(redis.clone()).await.unwrap();
    let sql = MySqlInstallation::open(mysql.clone()).await.unwrap();
    let (registration, keeper) = Keeper::register_writer(redis.clone(), sql.clone()).await.unwrap();
    let state = keeper.state();
    tokio::spawn(keeper.run());
    (Writer::start(redis, sql, registration, WriterSettings::default()), state)
}

async fn start_gateway(redis: &RedisOptions, mysql: &MySqlOptions, secret: PathBuf) -> Gateway {
    let redis = RedisShards::open(redis.clone()).await.unwrap();
    let sql = MySqlInstallation::open(mysql.clone()).await.unwrap();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings {
        listen,
        proxy_listen: Some(listen),
        proxy_from: Cidr::new(IpAddr::from([127, 0, 0, 0]), 8).into_iter().collect(),
        worker_threads: 1,
        ..Settings::default()
    };
    let limits = Limits::new(&LimitsSettings {
        per_user: Rate { rate_per_s: 20, burst: 40 },
        result_per_user: Rate { rate_per_s: 10, burst: 20 },
        keys_max: 100_000,
        ..LimitsSettings::default()
    });
    let verifier = Verifier::new(&IdentitySettings::new(VerifyKey::SecretFile(secret), "rushgate"));
    let store = Arc::new(SharedStore::new(redis, sql));
    Box::pin(Gateway::start(settings, limits, verifier.unwrap(), store)).await.unwrap()
}

fn activity(units: u64) -> NewActivity {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_ms = u64::try_from(now.as_millis()).unwrap();
    NewActivity {
        id: 1,
        name: "test".to_owned(),
        entry_open: true,
        opens_at_ms: now_ms.saturating_add(3_000),
        closes_at_ms: now_ms.saturating_add(3_600_000),
        per_user_limit: 1,
        buy_again_max: 0,
        pay_within_ms: NewActivity::PAY_WITHIN_MS,
        eligibility: Eligibility::default(),
        skus: vec![NewSku { id: 1, name: "unit".to_owned(), price_minor: 100, stock: units }],
    }
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now().checked_add(Duration::from_secs(60)).unwrap();
    while !is_so().await {
        assert!(Instant::now() < deadline, "in vain for 60 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
