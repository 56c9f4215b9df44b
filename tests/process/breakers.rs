//! Circuit breakers: while Redis or the database is known not to answer, new purchases are refused at once, those that
//! were sent are not forgotten, and everything goes on by itself.

use rushgate::protocol::Status;
use rushgate_servers::{Persistence, RedisSettings};

use super::house::{SALE, SKU, Serving};
use super::shop::{Shop, background, heal, own_redis, silence};
use super::wire::{buy, eventually, result};

const READY: &str = "HTTP/1.1 200 OK";
const QUICK: [&str; 2] = ["stock.unconfirmed_after=300ms", "stock.patience=300ms"];

/// Sells to user 1.
fn open(shop: &Shop, gateway: &Serving) {
    shop.create(160, &["--opens", "+2s"]);
    shop.drive_loads();
    let mut first = shop.app(gateway, 1);
    eventually("it is sold", || first.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
}

fn state(gateway: &Serving, breaker: &str) -> u64 {
    gateway.metric(&format!("rushgate_breaker_state{{breaker=\"{breaker}\"}}"))
}

fn refused_by_breakers(gateway: &Serving) -> u64 {
    gateway.metric("rushgate_buys_total{rung=\"breaker\"}")
}

#[track_caller]
fn is_over(shop: &Shop, gateway: &Serving, breaker: &str) {
    eventually("it is ready", || gateway.get("/readyz").0 == READY);
    assert_eq!(state(gateway, breaker), 0);
    assert_eq!(gateway.metric(&format!("rushgate_breaker_opened_total{{breaker=\"{breaker}\"}}")), 1);
    assert_eq!(shop.app(gateway, 900).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let lines = |says: &str| gateway.log().lines().filter(|line| line.contains(says)).count();
    assert_eq!((lines("a circuit breaker has opened"), lines("a circuit breaker has closed")), (1, 1));
}

#[test]
fn while_redis_is_away_purchases_are_busy_at_once_and_whoever_was_sent_is_not_forgotten() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    let gateway = shop.house.serve(&QUICK);
    open(&shop, &gateway);
    assert_eq!((state(&gateway, "redis"), state(&gateway, "database")), (0, 0));
    runtime.block_on(redis.kill9()).unwrap();
    let mut doubtful = shop.app(&gateway, 2);
    assert_eq!(doubtful.ask(&buy(SALE, SKU, 1)).status, Status::Unconfirmed, "he was sent");
    eventually("it opens", || state(&gateway, "redis") == 2);
    assert!(gateway.get("/readyz").1.contains("the circuit breaker of redis is open"));
    let before = refused_by_breakers(&gateway);
    for id in 100..150 {
        let told = shop.app(&gateway, id).ask(&buy(SALE, SKU, 1));
        assert_eq!(told.status, Status::Busy, "{told:?}");
        assert!((1_000..=2_000).contains(&told.hint_ms), "{told:?}");
    }
    assert_eq!(refused_by_breakers(&gateway) - before, 50, "none of them waited for anything");
    // Winners are still told so, and who is in doubt is.
    assert_eq!(shop.app(&gateway, 1).ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(doubtful.ask(&buy(SALE, SKU, 1)).status, Status::Unconfirmed);
    runtime.block_on(redis.restart()).unwrap();
    eventually("his order is there", || doubtful.ask(&result(SALE)).status == Status::Ok);
    is_over(&shop, &gateway, "redis");
}

#[test]
fn while_the_database_takes_no_heartbeat_purchases_are_busy_instead_of_in_doubt() {
    let (shop, runtime) = (Shop::new(), background());
    let link = shop.link_to_database(&runtime);
    let port = format!("mysql.port={}", link.port());
    let gateway = shop.house.serve(&[&port, "breaker.failures=1", QUICK[0], QUICK[1]]);
    open(&shop, &gateway);
    silence(&link);
    eventually("it opens", || state(&gateway, "database") == 2);
    assert!(gateway.get("/readyz").1.contains("the circuit breaker of the database is open"));
    for id in 100..120 {
        assert_eq!(shop.app(&gateway, id).ask(&buy(SALE, SKU, 1)).status, Status::Busy);
    }
    assert_eq!(refused_by_breakers(&gateway), 20);
    assert_eq!(state(&gateway, "redis"), 0, "it answers");
    heal(&link);
    is_over(&shop, &gateway, "database");
    // Nothing was done for those who were refused.
    let mut refused = shop.app(&gateway, 100);
    assert_eq!(refused.ask(&result(SALE)).status, Status::NoOrder);
    assert_eq!(refused.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}
