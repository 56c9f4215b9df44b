//! Takeover (rule 20), by the command, on real servers: Redis is gone for good, comes back with its old data, is empty;
//! the command is killed between any two steps, and given twice at once.

use std::process::Output;

use rushgate::protocol::{Opcode, OrderState, Status};
use rushgate_servers::{Persistence, Redis, RedisSettings};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::house::{SALE, SKU, Serving};
use super::shop::{Shop, background, own_redis};
use super::wire::{buy, eventually, result};

const QUICK: [&str; 2] = ["stock.unconfirmed_after=300ms", "stock.patience=300ms"];
const TAKE: [&str; 5] = ["takeover", "--activity", "7", "--yes", "--json"];

/// 53 units, five of them held back; twenty are reserved through the first gateway, ten of them settled.
struct Scene {
    runtime: Runtime,
    redis: Redis,
    shop: Shop,
    gateways: [Serving; 2],
}

impl Scene {
    fn new() -> Self {
        let runtime = background();
        let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::Always)));
        let shop = Shop::on(options);
        let gateways = [shop.house.serve(&QUICK), shop.house.serve(&QUICK)];
        shop.create(53, &["--fallback-reserve", "1:5", "--opens", "+2s"]);
        shop.drive_loads();
        let scene = Self { runtime, redis, shop, gateways };
        scene.promise(0, 1..11);
        let writer = scene.shop.writer();
        eventually("ten are settled", || scene.shop.shown()["skus"][0]["sold"] == 10);
        drop(writer);
        scene.promise(0, 11..21);
        for gateway in &scene.gateways {
            let mut last = scene.shop.app(gateway, 20);
            eventually("it is known everywhere", || last.ask(&result(SALE)).status == Status::Ok);
        }
        scene
    }

    /// Buys for these users until each has a unit.
    fn promise(&self, gateway: usize, users: std::ops::Range<u64>) {
        for id in users {
            let mut buyer = self.shop.app(&self.gateways[gateway], id);
            let is_his = [Status::Queued, Status::Already];
            eventually("he is sold to", || is_his.contains(&buyer.ask(&buy(SALE, SKU, 1)).status));
        }
    }

    /// Buys for these users; how many were sold to.
    fn sell(&self, gateway: usize, users: std::ops::Range<u64>) -> u64 {
        let told = users.map(|id| self.shop.app(&self.gateways[gateway], id).ask(&buy(SALE, SKU, 1)).status);
        told.filter(|status| *status == Status::Queued).count() as u64
    }

    fn take(&self) -> Value {
        serde_json::from_str(&self.shop.house.done(&TAKE)).unwrap()
    }

    fn crashed_at(&self, point: &str) -> Output {
        self.shop.house.command(&TAKE).env("RUSHGATE_CRASH_POINT", point).output().unwrap()
    }

    /// Everybody has what he was told: an order that waits for its payment.
    fn all_have_their_orders(&self, users: std::ops::Range<u64>) {
        for (id, gateway) in users.zip(self.gateways.iter().cycle()) {
            let mut buyer = self.shop.app(gateway, id);
            let state = || {
                let told = buyer.ask(&result(SALE));
                told.status == Status::Ok && told.order().state == OrderState::PendingPayment
            };
            eventually(&format!("user {id} has his order"), state);
            assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Already, "user {id}");
        }
    }

    /// Live orders, and users who have two.
    fn count(&self, query: &'static str) -> u64 {
        self.shop.count(query)
    }

    fn live(&self) -> u64 {
        let twice = "SELECT COUNT(*) FROM (SELECT user FROM orders WHERE live = 1 GROUP BY user HAVING COUNT(*) > 1) t";
        assert_eq!(self.count(twice), 0, "one order per user");
        self.count("SELECT COUNT(*) FROM orders WHERE live = 1")
    }

    /// Sells until every unit is an order's, through the second gateway.
    fn sell_out(&self, users: std::ops::Range<u64>) {
        for id in users {
            self.sell(1, id..id + 1);
            if self.live() == 53 {
                return;
            }
        }
    }
}

fn sku(report: &Value) -> &Value {
    &report["activities"][0]["skus"][0]
}

#[test]
fn rule_20_an_activity_is_sold_from_the_database_and_a_redis_that_comes_back_is_not_believed() {
    let scene = Scene::new();
    let Scene { runtime, redis, shop, gateways } = &scene;
    // It serves: nothing is gone.
    let refused = shop.house.run(&TAKE);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    runtime.block_on(redis.kill9()).unwrap();
    let mut doubtful = shop.app(&gateways[0], 30);
    assert_eq!(doubtful.ask(&buy(SALE, SKU, 1)).status, Status::Unconfirmed);
    let dry = shop.house.done(&["takeover", "--all", "--dry-run", "--json"]);
    let dry: Value = serde_json::from_str(&dry).unwrap();
    assert_eq!((&dry["redis_answers"], &dry["gateways_answered"]), (&false.into(), &2.into()), "{dry}");
    let shown = shop.house.done(&["takeover", "--activity", "7", "--dry-run"]);
    assert!(shown.contains("would be sold from the database"), "{shown}");
    let done = scene.take();
    assert_eq!(sku(&done), sku(&dry), "it comes to what was told");
    let of = |name: &str| sku(&done)[name].as_u64().unwrap();
    assert_eq!((of("total"), of("unpaid"), of("handed_in"), of("failed_orders")), (48, 10, 10, 0), "{done}");
    assert_eq!((of("reserve_free"), of("opened")), (5, 28));
    scene.all_have_their_orders(1..21);
    // He was sent to Redis, and nobody ever knew more of him.
    let is_his = [Status::Queued, Status::Already];
    eventually("he is sold to", || is_his.contains(&doubtful.ask(&buy(SALE, SKU, 1)).status));
    scene.promise(0, 31..36);
    scene.promise(1, 36..41);
    assert_eq!(scene.live(), 31);

    // It is back, with all that it had.
    runtime.block_on(redis.restart()).unwrap();
    let writer = shop.writer();
    let tombstone = || {
        let phase = ["HGET", "seckill:{03}:meta", "a:7"];
        runtime.block_on(redis.cli(&phase)).is_ok_and(|phase| phase.trim() == "archived")
    };
    eventually("its shards are rebuilt without the activity", tombstone);
    eventually("gateways serve", || gateways[1].get("/readyz").0 == "HTTP/1.1 200 OK");
    scene.all_have_their_orders(1..21);
    scene.sell_out(50..1_000);
    assert_eq!(scene.live(), 53, "to the last unit, and none twice");

    drop(writer);
    let back = shop.house.done(&["takeover", "--back", "--all", "--yes"]);
    assert!(back.contains("is sold by Redis again"), "{back}");
    let _writer = shop.writer();
    eventually("the stock is sold by Redis", || shop.shown()["skus"][0]["sold"] == 53);
    scene.all_have_their_orders(1..21);
    assert_eq!(shop.shown()["skus"][0]["total"], 53);
    eventually("nothing differs", || shop.house.run(&["reconcile"]).status.success());
    assert_eq!((scene.sell(1, 1_000..1_010), scene.live()), (0, 53));
}

#[test]
fn rule_20_a_takeover_that_is_killed_goes_on_when_it_is_given_again_and_two_at_once_take_it_once() {
    let scene = Scene::new();
    let Scene { runtime, redis, shop, gateways } = &scene;
    runtime.block_on(redis.kill9()).unwrap();
    for point in ["takeover.after_generation", "takeover.after_hand_ins", "takeover.after_close"] {
        let crashed = scene.crashed_at(point);
        assert!(crashed.status.code().is_none(), "{point}: {crashed:?}");
        assert_eq!(scene.count("SELECT COUNT(*) FROM activities WHERE taken_over = 1"), 0, "{point}");
    }
    // One gateway vanishes: the other knows what it has sold.
    gateways[0].signal("KILL");
    let crashed = scene.crashed_at("takeover.after_commit");
    assert!(crashed.status.code().is_none(), "{crashed:?}");
    let twice = [shop.house.command(&TAKE), shop.house.command(&TAKE)]
        .map(|mut command| command.stdout(std::process::Stdio::piped()).spawn().unwrap());
    for one in twice {
        let output = one.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["activities"][0]["taken"], true, "{report}");
        assert_eq!(sku(&report)["handed_in"], 10);
    }
    for id in 1..21 {
        let mut buyer = shop.app(&gateways[1], id);
        eventually("he has his order", || buyer.ask(&buy(SALE, SKU, 1)).status == Status::Already);
    }
    assert_eq!(scene.live(), 20);
    scene.sell_out(50..1_000);
    assert_eq!(scene.live(), 53);
}

#[test]
fn rule_20_a_gateway_that_is_late_offers_what_it_promised_and_its_users_are_told() {
    let scene = Scene::new();
    let Scene { runtime, redis, shop, gateways } = &scene;
    // The second stands still, and has heard of the next one at most; two are promised by the first alone.
    gateways[1].signal("STOP");
    scene.promise(0, 21..24);
    let mut listener = shop.app(&gateways[0], 23);
    assert_eq!(listener.ask(&result(SALE)).status, Status::Ok);
    runtime.block_on(redis.kill9()).unwrap();
    gateways[0].signal("STOP");
    gateways[1].signal("CONT");
    let done = scene.take();
    let of = |name: &str| sku(&done)[name].as_u64().unwrap();
    assert!((10..=11).contains(&of("handed_in")), "{done}");
    assert_eq!(of("handed_in") + of("opened"), 38, "{done}");
    let (mut id, mut sold) = (50, 0);
    while sold < of("opened") + 5 - 1 {
        sold += scene.sell(1, id..id + 1);
        id += 1;
    }
    // One unit is left for all of them.
    gateways[0].signal("CONT");
    let failed = 13 - of("handed_in") - 1;
    eventually("it is counted", || gateways[0].metric("rushgate_promises_failed_total") == failed);
    let told = listener.push(Opcode::ResultPush).order().state;
    assert!(matches!(told, OrderState::Failed | OrderState::PendingPayment), "{told:?}");
    let mut buyers: Vec<_> = (21..24).map(|id| shop.app(&gateways[0], id)).collect();
    eventually("all are told what became of their orders", || {
        let told: Vec<_> = buyers.iter_mut().map(|buyer| buyer.ask(&result(SALE))).collect();
        let count =
            |state| told.iter().filter(|one| one.status == Status::Ok && one.order().state == state).count();
        let kept = 3 - failed;
        (count(OrderState::Failed) as u64, count(OrderState::PendingPayment) as u64) == (failed, kept)
    });
    assert_eq!(scene.live(), 53);
}
