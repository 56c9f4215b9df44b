//! Switches of rates, by command and over HTTP, on the embedded store and on two gateways with one Redis.

use rushgate::protocol::Status;
use rushgate_servers::{Persistence, RedisSettings};
use serde_json::{Value, json};

use super::house::{House, SALE, SKU, post};
use super::shop::{Shop, background, own_redis};
use super::wire::{Client, buy, eventually};

/// How many of so many pass all limits; more than one unit is more than one may have.
fn passed(client: &mut Client, tries: usize) -> usize {
    (0..tries).filter(|_| client.ask(&buy(SALE, SKU, 9)).status != Status::RateLimited).count()
}

#[test]
fn a_rate_is_set_by_command_and_over_http_and_shows_in_list_and_metrics() {
    let house = House::with_sale(5);
    let serving = house.serve(&["limits.per_user.rate_per_s=0"]);
    let mut client = house.app(&serving, 1);
    assert_eq!(passed(&mut client, 50), 50);
    let said = house.done(&[
        "switch",
        "set",
        "limits.per_user",
        "1:5",
        "--who",
        "mia",
        "--why",
        "a script went wild",
    ]);
    assert!(said.starts_with("limits.per_user = 1:5 (version "), "{said}");
    eventually("it is obeyed", || client.ask(&buy(SALE, SKU, 9)).status == Status::RateLimited);
    let refused = serving.metric("rushgate_buys_total{rung=\"rate_user\"}");
    let some = passed(&mut client, 20);
    assert!(some <= 5, "{some}");
    assert_eq!(
        serving.metric("rushgate_buys_total{rung=\"rate_user\"}"),
        refused + u64::try_from(20 - some).unwrap()
    );
    let table = house.done(&["switch", "list"]);
    for part in ["limits.per_user", "1:5", "a script went wild", "limits.activity/ACTIVITY", "off or default"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    let body = json!({"name": "limits.per_user", "value": "off", "who": "mia", "why": "it has stopped"});
    let (status, done) = post(serving.admin, "/switches", "application/json", &body.to_string());
    assert_eq!(status, "HTTP/1.1 200 OK", "{done}");
    let done: Value = serde_json::from_str(&done).unwrap();
    let version = done["version"].as_u64().unwrap();
    eventually("it is obeyed", || serving.metric("rushgate_switches_version") == version);
    assert_eq!(passed(&mut client, 50), 50);
}

#[test]
fn what_is_no_rate_is_refused_with_the_reason_and_changes_nothing() {
    let house = House::with_sale(5);
    let serving = house.serve(&[]);
    for (name, value, says) in [
        ("limits.global", "5", "limits.global cannot be set to \"5\"; it is RATE:BURST"),
        ("limits.global", "fast", "such as 2000:4000), off or default"),
        (
            "limits.global",
            "0:5",
            "a rate of 0 would let nobody pass; close the entry, or write off for no limit",
        ),
        ("limits.global", "5:0", "the burst is a whole number from 1 to 100000000, not \"0\""),
        ("limits.global", "10000001:5", "the rate is a whole number from 1 to 10000000, not \"10000001\""),
        ("limits.global", "4294967296:5", "not \"4294967296\""),
        ("limits.global", "-5:5", "not \"-5\""),
        ("limits.global", "05:5", "not \"05\""),
        ("limits.global", "5:5:5", "not \"5:5\""),
        ("limits.global", "5:5 ", "not \"5 \""),
        ("limits.global", "Off", "it is RATE:BURST"),
        ("limits.global/7", "5:5", "it is one for all gateways; write limits.global"),
        ("limits.activity", "5:5", "it is of one activity; write limits.activity/ACTIVITY"),
        ("limits.activity/0", "5:5", "from 1 to 4294967295"),
        ("limits.per_ips", "5:5", "there is no switch \"limits.per_ips\"; there are entry or entry/ACTIVITY"),
    ] {
        // An argument that begins with a dash is none.
        let output = house.run(&["switch", "set", "--who", "mia", "--why", "y", "--", name, value]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name} {value}: {error}");
        assert!(error.contains(says) && error.contains("nothing was changed"), "{name} {value}: {error}");
        let body = json!({"name": name, "value": value, "who": "mia", "why": "y"});
        let (status, told) = post(serving.admin, "/switches", "application/json", &body.to_string());
        assert_eq!(status, "HTTP/1.1 400 Bad Request", "{told}");
        let told: Value = serde_json::from_str(&told).unwrap();
        assert!(told["error"].as_str().unwrap().contains(says), "{name} {value}: {told}");
    }
    assert_eq!(serving.metric("rushgate_switches_version"), 0);
}

#[test]
fn two_gateways_obey_a_rate_also_while_redis_is_away_and_after_a_restart() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    shop.create(16, &["--opens", "+1h", "--closes", "+2h"]);
    let gateways = [shop.house.serve(&[]), shop.house.serve(&[])];
    // As slow as a rate can be: who has had one has the next in a second.
    shop.house.done(&["switch", "set", "limits.per_user", "1:1", "--who", "mia", "--why", "a test"]);
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    for client in &mut clients {
        eventually("it is obeyed", || passed(client, 10) <= 2);
    }
    runtime.block_on(redis.kill9()).unwrap();
    eventually("it is noticed", || gateways.iter().all(|one| one.metric("rushgate_switches_age_ms") > 1_500));
    for client in &mut clients {
        assert!(passed(client, 10) <= 2);
    }
    runtime.block_on(redis.restart()).unwrap();
    eventually("it is read again", || {
        gateways.iter().all(|one| one.metric("rushgate_switches_age_ms") < 1_500)
    });
    let [one, other] = gateways;
    one.kill();
    let one = shop.house.serve(&[]);
    assert!(passed(&mut shop.app(&one, 1), 10) <= 2, "from the first client on");
    shop.house.done(&["switch", "set", "limits.per_user", "default", "--who", "mia", "--why", "a test"]);
    let mut fresh = 1;
    for gateway in [&one, &other] {
        eventually("it is obeyed", || {
            fresh += 1;
            passed(&mut shop.app(gateway, fresh), 30) == 30
        });
    }
}
