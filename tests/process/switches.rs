//! Switches of the production form: two gateways, one Redis, and what becomes of closed doors when it is gone.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use rushgate::protocol::Status;
use rushgate::stock::calls::ShardId;
use rushgate::store::switches::{NewSwitch, SetSwitch, SwitchStore};
use rushgate_servers::{Persistence, RedisSettings};
use serde_json::Value;

use super::house::{SALE, SKU, Serving, post};
use super::shop::{Shop, background, own_redis};
use super::wire::{Client, PATIENCE, buy, eventually};

const FLIPS: usize = 200;
/// No limit that a client that asks without a pause would meet.
const UNLIMITED: &str = "limits.per_user.rate_per_s=0";

/// An activity that opens in an hour: `NOT_STARTED` while its entry is open.
fn upcoming(shop: &Shop) {
    shop.create(16, &["--opens", "+1h", "--closes", "+2h"]);
}

fn set(shop: &Shop, name: &str, value: &str) -> String {
    shop.house.done(&["switch", "set", name, value, "--who", "mia", "--why", "a test"])
}

#[track_caller]
fn told(client: &mut Client) -> Status {
    client.ask(&buy(SALE, SKU, 1)).status
}

#[track_caller]
fn comes_to(client: &mut Client, due: Status) {
    eventually("the switch is obeyed", || told(client) == due);
}

#[track_caller]
fn all_come_to(clients: &mut [Client], due: Status) {
    for client in clients {
        comes_to(client, due);
    }
}

/// He is turned away, for good as soon as it is known that he holds no order.
#[track_caller]
fn stays_out(client: &mut Client) {
    eventually("it is known who has won", || match told(client) {
        Status::Ended => true,
        Status::Busy => false,
        other => panic!("{other:?}"),
    });
}

/// From before the switch is set until a gateway's client is answered by it.
fn flip(shop: &Shop, store: &impl SwitchStore, clients: &mut [Client; 2], closed: bool) -> [Duration; 2] {
    // BUSY is said by a closed door alone, while feeds are read too late to know who has won.
    let (value, due) = if closed {
        ("closed", &[Status::Ended, Status::Busy][..])
    } else {
        ("open", &[Status::NotStarted][..])
    };
    let text = |text: &str| text.to_owned();
    let new = NewSwitch { name: text("entry/7"), value: text(value), who: text("mia"), why: text("a flip") };
    let together = Barrier::new(3);
    std::thread::scope(|scope| {
        let watching = clients.each_mut().map(|client| {
            let together = &together;
            scope.spawn(move || {
                together.wait();
                let began = Instant::now();
                while !due.contains(&told(client)) {
                    assert!(began.elapsed() < PATIENCE, "never {due:?}");
                }
                Instant::now()
            })
        });
        together.wait();
        let began = Instant::now();
        shop.runtime.block_on(store.set_switch(&new)).unwrap();
        watching.map(|one| one.join().unwrap().saturating_duration_since(began))
    })
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are for whoever runs it with --nocapture")]
fn every_one_of_200_flips_is_obeyed_by_two_gateways() {
    let shop = Shop::new();
    let gateways = [shop.house.serve(&[UNLIMITED]), shop.house.serve(&[UNLIMITED])];
    upcoming(&shop);
    let store = shop.open_redis();
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    all_come_to(&mut clients, Status::NotStarted);
    let mut times: Vec<Duration> =
        (0..FLIPS).flat_map(|nth| flip(&shop, &store, &mut clients, nth % 2 == 0)).collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!("{FLIPS} flips, 2 gateways: p50 {:?}, p99 {:?}, max {:?}", at(50), at(99), at(100));
    assert!(at(100) < Duration::from_secs(2), "{:?}", at(100));
    for gateway in &gateways {
        assert_eq!(gateway.metric("rushgate_switch_changes_total"), FLIPS as u64);
    }
}

#[test]
fn doors_stay_closed_while_redis_is_away_and_after_it_is_back_and_after_a_restart() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    upcoming(&shop);
    let gateways = [shop.house.serve(&[]), shop.house.serve(&[])];
    set(&shop, "entry", "closed");
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    all_come_to(&mut clients, Status::Ended);
    let version = gateways[0].metric("rushgate_switches_version");

    runtime.block_on(redis.kill9()).unwrap();
    eventually("it is noticed", || gateways.iter().all(|one| one.metric("rushgate_switches_age_ms") > 1_500));
    // Nobody comes in; but a gateway that hears of no orders tells nobody that he has none.
    assert_eq!(clients.each_mut().map(told), [Status::Busy; 2]);
    assert_eq!(gateways[0].metric("rushgate_switches_version"), version);
    // Whoever wants to change something is told that it is not possible, at once.
    let refused = ["switch", "set", "entry", "open", "--who", "mia", "--why", "a test"];
    assert!(shop.house.refused(&refused).contains("does not answer"));
    let body = r#"{"name":"entry","value":"open","who":"mia","why":"a test"}"#;
    let (status, said) = post(gateways[0].admin, "/switches", "application/json", body);
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable", "{said}");
    assert!(said.contains("cannot be reached"), "{said}");

    runtime.block_on(redis.restart()).unwrap();
    eventually("it is read again", || {
        gateways.iter().all(|one| one.metric("rushgate_switches_age_ms") < 1_500)
    });
    clients.iter_mut().for_each(stays_out);
    let [one, other] = gateways;
    one.kill();
    let one = shop.house.serve(&[]);
    // Before anything else.
    stays_out(&mut shop.app(&one, 1));
    set(&shop, "entry", "open");
    for gateway in [&one, &other] {
        comes_to(&mut shop.app(gateway, 1), Status::NotStarted);
        assert_eq!(gateway.metric("rushgate_switches_restored_total"), 0);
    }
}

#[test]
fn a_redis_that_comes_back_empty_is_given_its_switches_back() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::Off)));
    let shop = Shop::on(options);
    upcoming(&shop);
    let gateway = shop.house.serve(&[UNLIMITED]);
    let mut client = shop.app(&gateway, 1);
    set(&shop, "entry/7", "closed");
    comes_to(&mut client, Status::Ended);
    let listed = shop.house.done(&["switch", "list", "--json"]);
    runtime.block_on(redis.kill9()).unwrap();
    runtime.block_on(redis.restart()).unwrap();
    eventually("they are put back", || {
        assert!(matches!(told(&mut client), Status::Ended | Status::Busy));
        gateway.metric("rushgate_switches_restored_total") == 1
    });
    assert_eq!(shop.house.done(&["switch", "list", "--json"]), listed);
    let fresh = shop.house.serve(&[]);
    stays_out(&mut shop.app(&fresh, 1));
    set(&shop, "entry/7", "open");
    comes_to(&mut client, Status::NotStarted);
}

#[test]
fn what_somebodys_hand_wrote_into_redis_is_told_once_and_opens_nothing() {
    let shop = Shop::new();
    upcoming(&shop);
    let gateway = shop.house.serve(&[]);
    set(&shop, "entry", "closed");
    let mut client = shop.app(&gateway, 1);
    comes_to(&mut client, Status::Ended);
    let hash = shop.key(ShardId::ALL[0], "switches");
    shop.redis(&[
        "HSET",
        &hash,
        "entry",
        "open",
        "stock",
        "1 2 {\"value\":\"database\",\"who\":\"x\",\"why\":\"y\"}",
    ]);
    eventually("it is noticed", || gateway.metric("rushgate_switches_ignored") == 2);
    // Something else is set, and all of it read again.
    set(&shop, "log_level", "info");
    eventually("it is obeyed", || gateway.log().contains("name=\"log_level\""));
    stays_out(&mut client);
    assert_eq!(gateway.metric("rushgate_switches_ignored_total"), 2);
    let log = gateway.log();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("a switch in the store is ignored")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(
        log.contains("what is kept of \"entry\" cannot be read")
            && log.contains("there is no switch \"stock\"")
    );
    let listed: Value = serde_json::from_str(&shop.house.done(&["switch", "list", "--json"])).unwrap();
    let ignored = |one: &Value| one.get("ignored").is_some();
    assert_eq!(listed.as_array().unwrap().iter().filter(|one| ignored(one)).count(), 2, "{listed}");
    set(&shop, "entry", "open");
    comes_to(&mut client, Status::NotStarted);
}

#[test]
fn a_door_closed_after_a_loss_stays_closed_though_gateways_know_of_an_open_one_by_a_clock_that_was_ahead() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::Off)));
    let shop = Shop::on(options);
    upcoming(&shop);
    let gateway = shop.house.serve(&[UNLIMITED]);
    let mut client = shop.app(&gateway, 1);
    // As it was set an hour from now, by this Redis's clock.
    let version = 3_600_000 + u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let text = |text: &str| text.to_owned();
    let (name, value, who, why) = (text("entry/7"), text("open"), text("mia"), text("ahead"));
    let ahead = SetSwitch { name, value, version, at_ms: version, who, why };
    let store = shop.open_redis();
    assert_eq!(shop.runtime.block_on(store.restore_switches(&[ahead])).unwrap(), 1);
    eventually("it is obeyed", || gateway.metric("rushgate_switches_version") == version);
    // Everything is lost, and the door closed before the gateway can say anything.
    gateway.signal("STOP");
    runtime.block_on(redis.kill9()).unwrap();
    runtime.block_on(redis.restart()).unwrap();
    let closed = set(&shop, "entry/7", "closed");
    gateway.signal("CONT");
    comes_to(&mut client, Status::Ended);
    assert_eq!(gateway.metric("rushgate_switches_restored_total"), 0, "{closed}");
    let listed: Value = serde_json::from_str(&shop.house.done(&["switch", "list", "--json"])).unwrap();
    assert_eq!(listed[0]["value"], "closed", "{listed}");
    set(&shop, "entry/7", "open");
    comes_to(&mut client, Status::NotStarted);
}

#[test]
fn what_a_writer_logs_follows_the_switch() {
    let shop = Shop::new();
    let ends = |switch: Option<&str>| {
        let mut writer = shop.writer();
        eventually("it works", || writer.said().contains("works"));
        if let Some(level) = switch {
            set(&shop, "log_level", level);
            let obeyed = format!("the switch log_level is obeyed level=\"{level}\"");
            eventually("it obeys", || writer.log().contains(&obeyed));
        }
        writer.signal("TERM");
        assert_eq!(writer.ended().code(), Some(0), "{}", writer.log());
        writer.log()
    };
    let usual = "finishing what was read";
    assert!(ends(None).contains(usual));
    let quiet = ends(Some("error"));
    assert!(!quiet.contains(usual), "{quiet}");
    // It stands when the next one starts.
    let next = ends(None);
    assert!(!next.contains(usual), "{next}");
    set(&shop, "log_level", "default");
    let again = ends(None);
    assert!(again.contains(usual), "{again}");
}

#[test]
fn two_installations_on_one_redis_have_doors_of_their_own() {
    let shops = [Shop::new(), Shop::new()];
    shops.iter().for_each(upcoming);
    let gateways = shops.each_ref().map(|shop| shop.house.serve(&[]));
    let [first, second]: [Client; 2] = std::array::from_fn(|nth| shops[nth].app(&gateways[nth], 1));
    let (mut first, mut second) = (first, second);
    set(&shops[0], "entry", "closed");
    comes_to(&mut first, Status::Ended);
    let is_open = |gateway: &Serving| gateway.metric("rushgate_switches_version") == 0;
    assert!(is_open(&gateways[1]));
    assert_eq!(told(&mut second), Status::NotStarted);
    set(&shops[1], "entry", "closed");
    comes_to(&mut second, Status::Ended);
    set(&shops[0], "entry", "open");
    comes_to(&mut first, Status::NotStarted);
    stays_out(&mut second);
}
