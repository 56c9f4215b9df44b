//! Servers in trouble under a gateway that sells: what its clients hear, what its log says, and that it goes on without
//! a restart when the trouble is over. Nobody whose purchase was in doubt loses it.

use std::fs;

use rushgate::protocol::{OrderNumber, Reply, Status, UserId};
use rushgate::stock::calls::ShardId;
use rushgate_servers::{MariaDb, Persistence, Redis, RedisSettings};
use tokio::runtime::Runtime;

use super::house::{SALE, SKU, Serving, refusal};
use super::shop::{Shop, background, own_redis};
use super::wire::{Client, buy, eventually, result};

const READY: &str = "HTTP/1.1 200 OK";
/// A gateway that is told soon that it does not know.
const QUICK: [&str; 2] = ["stock.unconfirmed_after=500ms", "stock.patience=500ms"];

/// A gateway on a Redis of its own, selling.
struct Scene {
    gateway: Serving,
    shop: Shop,
    redis: Redis,
    runtime: Runtime,
}

/// Somebody who was told UNCONFIRMED.
struct Doubt {
    client: Client,
    order: OrderNumber,
}

fn selling(shop: &Shop) -> Serving {
    selling_with(shop, &[])
}

fn selling_with(shop: &Shop, more: &[&str]) -> Serving {
    let gateway = shop.house.serve(&[&QUICK, more].concat());
    shop.create(1600, &["--opens", "+2s"]);
    shop.drive_loads();
    let mut first = shop.app(&gateway, 1);
    eventually("it is open", || first.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    gateway
}

/// Buys what cannot be sold at the moment.
#[track_caller]
fn doubt(shop: &Shop, gateway: &Serving, user: u64) -> Doubt {
    let mut client = shop.app(gateway, user);
    let told = client.ask(&buy(SALE, SKU, 1));
    assert_eq!(told.status, Status::Unconfirmed, "{told:?}");
    let Reply::Pending { order_number } = told.reply else { panic!("{told:?}") };
    assert_eq!(client.ask(&result(SALE)).status, Status::Unconfirmed);
    Doubt { client, order: order_number }
}

impl Doubt {
    /// The trouble is over.
    #[track_caller]
    fn ends(mut self) {
        eventually("the doubt ends", || {
            let told = self.client.ask(&result(SALE));
            assert!(told.status != Status::Ok || told.order().number == self.order, "{told:?}");
            told.status == Status::Ok
        });
    }
}

/// The line of its log that tells of purchases without an answer.
#[track_caller]
fn told_of(gateway: &Serving, user: u64, doubt: &Doubt, says: &str) {
    let whose = format!("activity={SALE} sku={SKU} user={user} order={}", doubt.order);
    eventually("the log tells of it", || {
        gateway
            .log()
            .lines()
            .any(|line| line.contains("the store does not answer calls") && line.contains(says))
    });
    let log = gateway.log();
    assert!(log.lines().any(|line| line.contains(says) && line.contains(&whose)), "{says}, {whose}: {log}");
}

impl Scene {
    fn new(settings: RedisSettings) -> Self {
        let runtime = background();
        let (redis, options) = runtime.block_on(own_redis(settings));
        let shop = Shop::on(options);
        Self { gateway: selling(&shop), shop, redis, runtime }
    }

    #[track_caller]
    fn redis(&self, command: &[&str]) -> String {
        self.runtime.block_on(self.redis.cli(command)).unwrap()
    }

    /// While `trouble` lasts a purchase is in doubt and the log says why; when it is over everything goes on.
    #[track_caller]
    fn doubtful(self, says: &str, trouble: impl FnOnce(&Self), over: impl FnOnce(&Self)) {
        trouble(&self);
        let in_doubt = doubt(&self.shop, &self.gateway, 2);
        told_of(&self.gateway, 2, &in_doubt, says);
        eventually("it is seen", || self.gateway.get("/readyz").0 != READY);
        over(&self);
        in_doubt.ends();
        self.goes_on();
    }

    #[track_caller]
    fn goes_on(mut self) {
        eventually("it is ready", || self.gateway.get("/readyz").0 == READY);
        assert_eq!(self.shop.app(&self.gateway, 3).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
        assert!(self.gateway.is_running());
    }
}

fn off() -> RedisSettings {
    RedisSettings::new(Persistence::Off)
}

#[test]
fn a_redis_without_memory_leaves_purchases_in_doubt_until_it_has_some() {
    Scene::new(off()).doubtful(
        "has no memory left (maxmemory)",
        |scene| drop(scene.redis(&["CONFIG", "SET", "maxmemory", "1"])),
        |scene| drop(scene.redis(&["CONFIG", "SET", "maxmemory", "0"])),
    );
}

#[test]
fn a_redis_that_cannot_persist_leaves_purchases_in_doubt_until_it_can() {
    // A folder in the place of its file: the background save fails, and Redis refuses writes.
    let settings = RedisSettings { more: vec!["dbfilename blocked".to_owned()], ..off() };
    let failed = |scene: &Scene| scene.redis(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err");
    Scene::new(settings).doubtful(
        "cannot persist and refuses writes",
        |scene| {
            fs::create_dir(scene.redis.data_dir().join("blocked")).unwrap();
            scene.redis(&["CONFIG", "SET", "save", "3600 1000000"]);
            scene.redis(&["BGSAVE"]);
            eventually("saving fails", || failed(scene));
        },
        |scene| {
            fs::remove_dir(scene.redis.data_dir().join("blocked")).unwrap();
            scene.redis(&["BGSAVE"]);
            eventually("it is saved", || !failed(scene));
        },
    );
}

#[test]
fn a_redis_that_runs_somebodys_slow_script_leaves_purchases_in_doubt_until_it_is_killed() {
    let scene = Scene::new(off());
    scene.redis(&["CONFIG", "SET", "busy-reply-threshold", "50"]);
    let mut slow = scene.runtime.block_on(scene.redis.connect()).unwrap();
    let script = scene.runtime.spawn(async move { slow.call(&["EVAL", "while true do end", "0"]).await });
    scene.doubtful(
        "is busy with somebody's slow script",
        |scene| {
            let is_busy = || scene.runtime.block_on(scene.redis.cli(&["DBSIZE"])).is_err();
            eventually("it is busy", is_busy);
        },
        |scene| drop(scene.redis(&["SCRIPT", "KILL"])),
    );
    drop(script);
}

#[test]
fn a_redis_that_has_become_a_replica_leaves_purchases_in_doubt_and_refuses_a_gateway_that_starts() {
    Scene::new(off()).doubtful(
        "is a replica",
        // Of a master that is not there.
        |scene| drop(scene.redis(&["REPLICAOF", "127.0.0.1", "1"])),
        |scene| {
            let args = ["serve", "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen="];
            let error = refusal(&args, &scene.shop.house.run(&args));
            assert!(error.contains("name the master"), "{error}");
            scene.redis(&["REPLICAOF", "NO", "ONE"]);
        },
    );
}

#[test]
fn a_redis_that_was_killed_is_recovered_and_nothing_that_was_promised_is_lost() {
    let mut scene = Scene::new(RedisSettings::new(Persistence::EverySecond));
    let mut first = scene.shop.app(&scene.gateway, 1);
    let order = first.ask(&result(SALE)).order();
    scene.runtime.block_on(scene.redis.kill9()).unwrap();
    let in_doubt = doubt(&scene.shop, &scene.gateway, 2);
    told_of(&scene.gateway, 2, &in_doubt, "cannot be reached");
    eventually("it says so", || scene.gateway.get("/readyz").1.contains("a shard is being recovered"));
    scene.runtime.block_on(scene.redis.restart()).unwrap();
    eventually("it is ready", || scene.gateway.get("/readyz").0 == READY);
    in_doubt.ends();
    assert_eq!(first.ask(&result(SALE)).order().number, order.number);
    assert!(scene.gateway.metric("rushgate_recoveries_led_total") >= 1);
    // Its leader fenced the shards before it read them.
    let meta = |field| scene.redis(&["HGET", &scene.shop.key(ShardId::ALL[3], "meta"), field]);
    assert!(!meta("gen").is_empty());
    assert_eq!(meta("fence"), meta("gen"));
    assert!(scene.gateway.is_running());
    scene.goes_on();
}

#[test]
fn a_redis_that_loads_its_data_is_waited_for_by_those_who_sell_and_by_those_who_start() {
    // Some milliseconds a key, and answers in between.
    let slow = ["key-load-delay 40000", "loading-process-events-interval-bytes 1024"];
    let settings = RedisSettings {
        more: slow.map(str::to_owned).to_vec(),
        ..RedisSettings::new(Persistence::EverySecond)
    };
    let scene = Scene::new(settings);
    // Into one file, from which it answers while it loads.
    scene.redis(&["BGREWRITEAOF"]);
    eventually("it is rewritten", || {
        let info = scene.redis(&["INFO", "persistence"]);
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    scene.runtime.block_on(scene.redis.kill9()).unwrap();
    let in_doubt = std::thread::scope(|scope| {
        let restarting = scope.spawn(|| scene.runtime.block_on(scene.redis.restart()));
        let is_loading = || {
            let info = scene.runtime.block_on(scene.redis.cli(&["INFO", "persistence"]));
            info.is_ok_and(|info| info.contains("loading:1"))
        };
        eventually("it loads", is_loading);
        let in_doubt = doubt(&scene.shop, &scene.gateway, 2);
        // It waits, and says for what.
        let starting = scene.shop.house.serve(&QUICK);
        assert!(starting.log().contains("it is loading its data"), "{}", starting.log());
        restarting.join().unwrap().unwrap();
        in_doubt
    });
    in_doubt.ends();
    scene.goes_on();
}

#[test]
fn a_key_of_the_wrong_type_is_named_and_stops_its_shard_alone() {
    let shop = Shop::new();
    let gateway = selling(&shop);
    let buyers = shop.key(ShardId::of(UserId(2)), "7:buyers");
    let aside = shop.key(ShardId::of(UserId(2)), "aside");
    let had = shop.redis(&["EXISTS", &buyers]) == "1";
    if had {
        shop.redis(&["RENAME", &buyers, &aside]);
    }
    shop.redis(&["SET", &buyers, "somebody's"]);
    let in_doubt = doubt(&shop, &gateway, 2);
    told_of(&gateway, 2, &in_doubt, &format!("the key {buyers}"));
    let elsewhere = (3..1000).find(|id| ShardId::of(UserId(*id)) != ShardId::of(UserId(2))).unwrap();
    assert_eq!(shop.app(&gateway, elsewhere).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    shop.redis(&["DEL", &buyers]);
    if had {
        shop.redis(&["RENAME", &aside, &buyers]);
    }
    in_doubt.ends();
    eventually("it is ready", || gateway.get("/readyz").0 == READY);
}

#[test]
fn a_malformed_event_is_told_by_key_and_id_and_a_snapshot_leads_past_it() {
    let shop = Shop::new();
    let gateway = selling(&shop);
    let (user, other) = (2, shop.house.serve(&[]));
    let shard = ShardId::of(UserId(user));
    let (meta, feed) = (shop.key(shard, "meta"), shop.key(shard, "feed"));
    let seq = shop.redis(&["HINCRBY", &meta, "seq", "1"]);
    let id = format!("{}-{seq}", shop.redis(&["HGET", &meta, "gen"]));
    shop.redis(&["XADD", &feed, &id, "e", "rubbish"]);
    for gateway in [&gateway, &other] {
        eventually("the log tells of it", || {
            let log = gateway.log();
            log.lines().any(|line| line.contains("a feed entry cannot be read") && line.contains(&id))
        });
        assert!(gateway.log().contains(&feed));
    }
    // In the same shard, and heard of on the other gateway.
    let order = shop.app(&gateway, user).ask(&buy(SALE, SKU, 1)).order();
    let mut there = shop.app(&other, user);
    eventually("it is known there", || there.ask(&result(SALE)).status == Status::Ok);
    assert_eq!(there.ask(&result(SALE)).order().number, order.number);
    eventually("they are ready", || [&gateway, &other].iter().all(|one| one.get("/readyz").0 == READY));
}

#[test]
fn two_installations_on_one_redis_never_see_each_other() {
    let (one, two) = (Shop::new(), Shop::new());
    let (first, second) = (selling(&one), selling(&two));
    assert_eq!(one.app(&first, 2).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    // The same user, activity and SKU: he has bought nothing there, and buys.
    let mut there = two.app(&second, 2);
    assert_eq!(there.ask(&result(SALE)).status, Status::NoOrder);
    let buyers = |shop: &Shop| shop.redis(&["HLEN", &shop.key(ShardId::of(UserId(2)), "7:buyers")]);
    let there_before: u32 = buyers(&two).parse().unwrap();
    assert_eq!(there.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(buyers(&two).parse(), Ok(there_before + 1));
    // Whatever is deleted of one is still there for the other.
    for shard in ShardId::all() {
        one.redis(&["DEL", &one.key(shard, "7:stock")]);
    }
    assert_eq!(two.app(&second, 3).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(second.get("/readyz").0, READY);
}

#[test]
fn a_database_that_is_read_only_ends_the_lease_until_it_can_be_written() {
    let runtime = background();
    let (mariadb, (_redis, options)) =
        runtime.block_on(async { (MariaDb::start().await.unwrap(), own_redis(off()).await) });
    let shop = Shop::with(options, &mariadb);
    // What a breaker would refuse has to be in doubt here.
    let gateway = selling_with(&shop, &["breaker.failures=1000"]);
    runtime.block_on(mariadb.set_read_only(true)).unwrap();
    eventually("it says why", || gateway.get("/readyz").1.contains("cannot renew with the database"));
    assert!(gateway.log().contains("the database is read-only"), "{}", gateway.log());
    let in_doubt = doubt(&shop, &gateway, 2);
    runtime.block_on(mariadb.set_read_only(false)).unwrap();
    in_doubt.ends();
    eventually("it is ready", || gateway.get("/readyz").0 == READY);
    // Gone and back.
    runtime.block_on(mariadb.kill9()).unwrap();
    eventually("it says why", || gateway.get("/readyz").1.contains("cannot renew with the database"));
    let in_doubt = doubt(&shop, &gateway, 3);
    runtime.block_on(mariadb.restart()).unwrap();
    in_doubt.ends();
    eventually("it is ready", || gateway.get("/readyz").0 == READY);
}
