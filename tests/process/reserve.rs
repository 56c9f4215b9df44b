//! Database mode (rule 19): what was held back from Redis is sold while Redis is away, by the switch or by itself, and
//! nothing is sold twice when it comes back.

use rushgate::protocol::{OrderState, Status};
use rushgate_servers::{Persistence, Redis, RedisSettings};
use tokio::runtime::Runtime;

use super::house::{House, SALE, SKU, Serving};
use super::shop::{Shop, background, own_redis};
use super::wire::{buy, eventually, result};

const READY: &str = "HTTP/1.1 200 OK";
const QUICK: [&str; 2] = ["stock.unconfirmed_after=300ms", "stock.patience=300ms"];

fn shards_of_the_reserve(gateway: &Serving) -> u64 {
    gateway.metric("rushgate_stock_database_shards")
}

/// 53 units, five of them held back: each shard of Redis has three. One is user 1's.
struct Scene {
    runtime: Runtime,
    redis: Redis,
    shop: Shop,
    gateway: Serving,
}

impl Scene {
    fn new(more: &[&str]) -> Self {
        let runtime = background();
        let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
        let shop = Shop::on(options);
        let gateway = shop.house.serve(&[&QUICK, more].concat());
        shop.create(53, &["--fallback-reserve", "1:5", "--opens", "+2s"]);
        shop.drive_loads();
        let mut first = shop.app(&gateway, 1);
        eventually("it is sold", || first.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
        Self { runtime, redis, shop, gateway }
    }

    fn switch(&self, value: &str) {
        let printed =
            self.shop.house.done(&["switch", "set", "stock.mode", value, "--why", "a drill", "--who", "me"]);
        assert!(printed.contains(&format!("stock.mode = {value}")), "{printed}");
    }

    /// Buys for these users until nothing more is sold; who was.
    fn sell(&self, gateway: &Serving, users: std::ops::Range<u64>, refused: Status) -> Vec<u64> {
        let mut sold = Vec::new();
        for id in users {
            let told = self.shop.app(gateway, id).ask(&buy(SALE, SKU, 1)).status;
            assert!(told == Status::Queued || told == refused, "{id}: {told:?}");
            sold.extend((told == Status::Queued).then_some(id));
        }
        sold
    }
}

#[test]
fn rule_19_the_reserve_is_sold_by_the_switch_while_redis_is_away_and_no_unit_twice() {
    let scene = Scene::new(&[]);
    let Scene { runtime, redis, shop, gateway } = &scene;
    let other = shop.house.serve(&QUICK);
    runtime.block_on(redis.kill9()).unwrap();
    let mut doubtful = shop.app(gateway, 2);
    assert_eq!(doubtful.ask(&buy(SALE, SKU, 1)).status, Status::Unconfirmed);
    scene.switch("database");
    for gateway in [gateway, &other] {
        eventually("it is obeyed", || shards_of_the_reserve(gateway) == 16);
        eventually("balancers send clients", || gateway.get("/readyz").0 == READY);
        assert!(gateway.get("/readyz").1.contains("purchases are sold from the reserve in the database"));
    }
    // The second of them hears of what the first sells, and never of more than there is.
    let sold = scene.sell(gateway, 10..20, Status::Busy);
    assert_eq!(sold.len(), 5, "an empty reserve is BUSY, never SOLD_OUT: {sold:?}");
    assert_eq!(gateway.metric("rushgate_reserve_sold_total"), 5);
    assert!(scene.sell(&other, 20..30, Status::Busy).is_empty());
    for gateway in [gateway, &other] {
        let mut buyer = shop.app(gateway, sold[0]);
        eventually("his order is known", || buyer.ask(&result(SALE)).status == Status::Ok);
        assert_eq!(buyer.ask(&result(SALE)).order().state, OrderState::PendingPayment);
        assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    }
    // What Redis sold before is still known, and what was sent there is not sold here.
    assert_eq!(shop.app(gateway, 1).ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(doubtful.ask(&buy(SALE, SKU, 1)).status, Status::Unconfirmed);

    runtime.block_on(redis.restart()).unwrap();
    eventually("his order is there", || doubtful.ask(&result(SALE)).status == Status::Ok);
    assert_eq!(shards_of_the_reserve(gateway), 16, "the switch stands");
    let listed = shop.house.done(&["switch", "list"]);
    assert!(listed.contains("stock.mode") && listed.contains("a drill"), "{listed}");
    scene.switch("default");
    for gateway in [gateway, &other] {
        eventually("it is obeyed", || shards_of_the_reserve(gateway) == 0);
        eventually("it is ready", || gateway.get("/readyz").0 == READY);
        assert_eq!(gateway.metric("rushgate_stock_mode_changes_total"), 2);
    }
    // 48 units were Redis's; two of them are sold.
    let more = scene.sell(&other, 30..100, Status::SoldOut);
    assert_eq!(more.len(), 46, "{more:?}");
    let _writer = shop.writer();
    eventually("all are settled", || shop.shown()["skus"][0]["sold"] == 48);
    let reserve = &shop.shown()["skus"][0]["reserve"];
    assert_eq!((&reserve["total"], &reserve["free"], &reserve["sold"]), (&5.into(), &0.into(), &5.into()));
}

#[test]
fn rule_19_a_gateway_sells_the_reserve_by_itself_while_redis_is_away_and_what_is_left_goes_to_redis() {
    let scene = Scene::new(&["breaker.database_after=100ms"]);
    let Scene { runtime, redis, shop, gateway } = &scene;
    runtime.block_on(redis.kill9()).unwrap();
    let mut doubtful = shop.app(gateway, 2);
    assert_eq!(doubtful.ask(&buy(SALE, SKU, 1)).status, Status::Unconfirmed);
    eventually("it changes by itself", || shards_of_the_reserve(gateway) == 16);
    assert!(gateway.log().contains("purchases are sold from the reserve in the database: redis is away"));
    assert_eq!(scene.sell(gateway, 10..12, Status::Busy), [10, 11]);
    runtime.block_on(redis.restart()).unwrap();
    eventually("his order is there", || doubtful.ask(&result(SALE)).status == Status::Ok);
    eventually("it changes back", || shards_of_the_reserve(gateway) == 0);
    assert!(gateway.log().contains("purchases are sold from redis again"));
    eventually("it is ready", || gateway.get("/readyz").0 == READY);
    let more = scene.sell(gateway, 30..100, Status::SoldOut);
    assert_eq!(more.len(), 46, "48 were Redis's: {more:?}");
    let _writer = shop.writer();
    let handed_over = shop.house.done(&["activity", "stock", "from-reserve", "7", "1", "100"]);
    assert!(handed_over.contains("3 of 100 units") || handed_over.contains("pending"), "{handed_over}");
    let mut late = shop.app(gateway, 170);
    eventually("they are for sale", || late.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    assert_eq!(scene.sell(gateway, 171..180, Status::SoldOut).len(), 2);
    eventually("all are settled", || shop.shown()["skus"][0]["sold"] == 51);
    let reserve = &shop.shown()["skus"][0]["reserve"];
    assert_eq!((&reserve["total"], &reserve["free"], &reserve["sold"]), (&2.into(), &0.into(), &2.into()));
}

/// What a command says that does nothing.
#[track_caller]
fn refused(house: &House, args: &[&str]) -> String {
    let output = house.run(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_embedded_store_has_no_modes_and_no_reserve() {
    let house = House::new();
    let args =
        ["activity", "create", "--id", "7", "--name", "a", "--sku", "1:5:1", "--fallback-reserve", "1:2"];
    let error = refused(&house, &args);
    assert!(error.contains("the embedded store has no Redis"), "{error}");
    house.done(&args[..8]);
    let args = ["switch", "set", "stock.mode", "database", "--why", "a drill", "--who", "me"];
    let error = refused(&house, &args);
    assert!(error.contains("stock.mode is for the production store"), "{error}");
    for name in ["orders.mode", "orders.mode/7"] {
        let error = refused(&house, &["switch", "set", name, "record", "--why", "a drill", "--who", "me"]);
        assert!(error.contains(&format!("{name} is for the production store")), "{error}");
    }
    let nothing = house.command(&["backfill"]).output().unwrap();
    let error = String::from_utf8(nothing.stderr).unwrap();
    assert_eq!(nothing.status.code(), Some(2), "{error}");
    assert!(error.contains("nothing is ever recorded"), "{error}");
}

#[test]
fn a_reserve_is_part_of_the_stock_that_is_there() {
    let shop = Shop::new();
    let made = |reserve: &str| {
        let args = [
            "activity",
            "create",
            "--id",
            "7",
            "--name",
            "a",
            "--sku",
            "1:5:1",
            "--opens",
            "+1h",
            "--closes",
            "+2h",
            "--fallback-reserve",
            reserve,
        ];
        refused(&shop.house, &args)
    };
    assert!(made("1:6").contains("a fallback reserve of 6 is not between 1 and the 5 units of SKU 1"));
    assert!(made("1:0").contains("a fallback reserve of 0"));
    assert!(made("2:1").contains("names SKU 2, which the activity does not have"));
}
