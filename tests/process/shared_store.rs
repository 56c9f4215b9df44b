//! Gateways on the production store: one Redis and one database for all of them.

use std::fs;

use rushgate::protocol::Status;
use rushgate_servers::{Persistence, RedisSettings, ReservedPort};

use super::house::{SALE, SKU, Started, refusal};
use super::shop::{Shop, own_redis};
use super::wire::{buy, eventually, result};

#[test]
fn two_gateways_sell_one_stock_to_the_last_unit_and_know_each_others_buyers() {
    let shop = Shop::new();
    let (one, two) = (shop.house.serve(&[]), shop.house.serve(&[]));
    shop.create(4, &["--opens", "+2s"]);
    shop.drive_loads();
    let (mut first, mut second) = (shop.app(&one, 1), shop.app(&two, 2));
    eventually("it opens", || first.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    eventually("on the other, too", || second.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    // The same user, on the other gateway.
    let order = first.ask(&buy(SALE, SKU, 1)).order();
    let mut first_there = shop.app(&two, 1);
    let again = first_there.ask(&buy(SALE, SKU, 1));
    assert_eq!((again.status, again.order().number), (Status::Already, order.number));
    assert_eq!(first_there.ask(&result(SALE)).order().number, order.number);
    // To the last unit, wherever it is.
    for (gateway, id) in [(&one, 3), (&two, 4)] {
        assert_eq!(shop.app(gateway, id).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    }
    for (gateway, id) in [(&one, 5), (&two, 6)] {
        let mut late = shop.app(gateway, id);
        eventually("it is sold out", || late.ask(&buy(SALE, SKU, 1)).status == Status::SoldOut);
    }
    for mut gateway in [one, two] {
        assert_eq!(gateway.get("/readyz").0, "HTTP/1.1 200 OK");
        gateway.signal("TERM");
        assert_eq!(gateway.ended().code(), Some(0), "{}", gateway.log());
    }
}

/// A gateway that cannot serve yet.
fn starting(shop: &Shop, set: &[&str]) -> Started {
    let mut command = shop.house.command(&["serve", "--set", "gateway.listen=127.0.0.1:0"]);
    for setting in set {
        command.args(["--set", setting]);
    }
    Started::new(&shop.house, command)
}

#[test]
fn a_redis_that_is_down_at_the_start_is_told_and_waited_for() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    runtime.block_on(redis.kill9()).unwrap();
    let admin = ReservedPort::reserve().unwrap().number();
    let starting = starting(&shop, &[&format!("admin.listen=127.0.0.1:{admin}")]);
    eventually("it says so", || starting.log().contains("cannot start yet: Redis at "));
    let ready = |path: &str| super::house::get(([127, 0, 0, 1], admin).into(), path);
    assert_eq!(ready("/readyz").0, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(ready("/livez").0, "HTTP/1.1 200 OK");
    runtime.block_on(redis.restart()).unwrap();
    eventually("it serves", || ready("/readyz").0 == "HTTP/1.1 200 OK");
}

#[test]
fn a_database_that_is_down_at_the_start_is_waited_for_until_a_signal_ends_it() {
    let shop = Shop::new();
    let mut starting = starting(&shop, &["admin.listen=", "mysql.port=1"]);
    eventually("it says so", || starting.log().contains("cannot start yet: the database "));
    starting.signal("TERM");
    assert_eq!(starting.ended().code(), Some(0), "{}", starting.log());
}

#[test]
fn what_somebody_has_to_mend_ends_the_start() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let settings =
        RedisSettings { password: Some("correct".to_owned()), ..RedisSettings::new(Persistence::Off) };
    let (_redis, options) = runtime.block_on(own_redis(settings));
    let shop = Shop::on(options);
    let serve = |set: &str| {
        let args = ["serve", "--set", "gateway.listen=127.0.0.1:0", "--set", "admin.listen=", "--set", set];
        refusal(&args, &shop.house.run(&args))
    };
    fs::write(shop.house.dir.path().join("other"), "hunter2").unwrap();
    for (set, says) in [
        ("redis.password_file=other", "refuses this user"),
        ("redis.password_file=", "refuses this user"),
        ("redis.password_file=missing", "redis.password_file = \"missing\": cannot be read"),
        ("mysql.password_file=other", "refuses the user"),
        ("mysql.database=nothing", "nothing"),
        ("redis.cluster=true", "Redis at "),
    ] {
        let error = serve(set);
        assert!(error.contains(says), "{set}: {error}");
        assert!(!error.contains("hunter2") && !error.contains("correct"), "a password is printed: {error}");
    }
}
