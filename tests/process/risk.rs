//! Risk lists of the production form: two gateways, one Redis; what becomes of them when it is gone; a million entries.

use std::fmt::Write as _;
use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rushgate::protocol::Status;
use rushgate::stock::calls::ShardId;
use rushgate::store::risk::{NewEntry, NewFlag, RiskStore};
use rushgate_servers::{Persistence, RedisSettings};

use super::house::{SALE, SKU, Serving};
use super::shop::{Shop, background, own_redis};
use super::wire::{Client, PATIENCE, buy, eventually};

const CHANGES: usize = 60;
/// No limit that a client that asks without a pause would meet.
const UNLIMITED: [&str; 2] = ["limits.per_user.rate_per_s=0", "limits.per_ip.rate_per_s=0"];
const MILLION: u64 = 1_000_000;

/// Without a unit: whoever passes the lists is told so.
fn sold_out(shop: &Shop) -> Serving {
    shop.create(16, &["--opens", "+2s"]);
    let gateway = shop.house.serve(&UNLIMITED);
    shop.drive_loads();
    let (mut buyer, mut id) = (shop.app(&gateway, 1_000), 1_000);
    eventually("it is sold", || {
        let status = told(&mut buyer);
        if matches!(status, Status::Queued | Status::Already) {
            id += 1;
            buyer = shop.app(&gateway, id);
        }
        status == Status::SoldOut
    });
    gateway
}

#[track_caller]
fn told(client: &mut Client) -> Status {
    client.ask(&buy(SALE, SKU, 1)).status
}

#[track_caller]
fn come_to(clients: &mut [Client], due: Status) {
    for client in clients {
        eventually("the list is obeyed", || told(client) == due);
    }
}

/// From before the list is changed until a gateway's client is answered by it.
fn change(shop: &Shop, store: &impl RiskStore, clients: &mut [Client; 2], blocked: bool) -> [Duration; 2] {
    let due = if blocked { Status::Blocked } else { Status::SoldOut };
    let text = |text: &str| text.to_owned();
    let (subject, effect, who, why) = (text("user:1"), text("block"), text("mia"), text("a test"));
    let entry = NewEntry { subject: subject.clone(), effect, until_ms: 0, who, why };
    let together = Barrier::new(3);
    std::thread::scope(|scope| {
        let watching = clients.each_mut().map(|client| {
            let together = &together;
            scope.spawn(move || {
                together.wait();
                let began = Instant::now();
                while told(client) != due {
                    assert!(began.elapsed() < PATIENCE, "never {due:?}");
                }
                Instant::now()
            })
        });
        together.wait();
        let began = Instant::now();
        shop.runtime.block_on(async {
            if blocked {
                store.risk_add(&[entry]).await.unwrap();
            } else {
                store.risk_remove(&[subject]).await.unwrap();
            }
        });
        watching.map(|one| one.join().unwrap().saturating_duration_since(began))
    })
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are for whoever runs it with --nocapture")]
fn every_change_is_in_force_on_two_gateways_within_a_second() {
    let shop = Shop::new();
    let gateways = [sold_out(&shop), shop.house.serve(&UNLIMITED)];
    let store = shop.open_redis();
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    come_to(&mut clients, Status::SoldOut);
    let mut times: Vec<Duration> =
        (0..CHANGES).flat_map(|nth| change(&shop, &store, &mut clients, nth % 2 == 0)).collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!("{CHANGES} changes, 2 gateways: p50 {:?}, p99 {:?}, max {:?}", at(50), at(99), at(100));
    assert!(at(90) < Duration::from_secs(1) && at(100) < Duration::from_secs(2), "{times:?}");
    for gateway in &gateways {
        assert_eq!(gateway.metric("rushgate_risk_changes_total"), CHANGES as u64);
        assert_eq!(gateway.metric("rushgate_risk_read_all_total"), 1, "the one at its start");
    }
}

/// BUYs that a list has turned away.
fn by_list(gateway: &Serving) -> u64 {
    gateway.metric("rushgate_buys_total{rung=\"risk\"}")
}

fn add(shop: &Shop, subject: &str) {
    shop.house.done(&["risk", "add", subject, "--who", "mia", "--why", "a test"]);
}

#[test]
fn who_is_blocked_stays_so_while_redis_is_away_and_after_it_is_back_and_after_a_restart() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    let gateways = [sold_out(&shop), shop.house.serve(&UNLIMITED)];
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    let mut others = gateways.each_ref().map(|gateway| shop.app(gateway, 2));
    add(&shop, "user:1");
    come_to(&mut clients, Status::Blocked);
    let version = gateways[0].metric("rushgate_risk_version");

    runtime.block_on(redis.kill9()).unwrap();
    eventually("it is noticed", || gateways.iter().all(|one| one.metric("rushgate_risk_age_ms") > 1_500));
    // Who may have won in the meantime is told nothing final; but the list it is that turns him away, and not others.
    let before = gateways.each_ref().map(by_list);
    assert_eq!(clients.each_mut().map(told), [Status::Busy; 2]);
    assert_eq!(gateways.each_ref().map(by_list), before.map(|count| count + 1));
    let _ = others.each_mut().map(told);
    assert_eq!(gateways.each_ref().map(by_list), before.map(|count| count + 1));
    assert_eq!(gateways[0].metric("rushgate_risk_version"), version);
    // Whoever wants to change something is told that it is not possible, at once.
    let refused = ["risk", "add", "user:2", "--who", "mia", "--why", "a test"];
    assert!(shop.house.refused(&refused).contains("does not answer"));

    runtime.block_on(redis.restart()).unwrap();
    eventually("it is read again", || gateways.iter().all(|one| one.metric("rushgate_risk_age_ms") < 1_500));
    come_to(&mut clients, Status::Blocked);
    let [one, other] = gateways;
    one.kill();
    let one = shop.house.serve(&UNLIMITED);
    come_to(&mut [shop.app(&one, 1)], Status::Blocked);
    shop.house.done(&["risk", "remove", "user:1"]);
    for gateway in [&one, &other] {
        come_to(&mut [shop.app(gateway, 1)], Status::SoldOut);
        assert_eq!(gateway.metric("rushgate_risk_restored_total"), 0);
    }
}

#[test]
fn a_redis_that_comes_back_empty_is_given_its_lists_back() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::Off)));
    let shop = Shop::on(options);
    let gateways = [sold_out(&shop), shop.house.serve(&UNLIMITED)];
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    for subject in ["user:1", "ip:10.0.0.0/8", "device:bad one"] {
        add(&shop, subject);
    }
    shop.house
        .done(&["risk", "add", "user:3", "--effect", "slow", "--for", "1h", "--who", "mia", "--why", "y"]);
    let text = |text: &str| text.to_owned();
    let (subject, effect, who, why) = (text("user:4"), text("slow"), text("gateway 9"), text("too often"));
    let until_ms = u64::MAX >> 20;
    let flag = NewFlag { entry: NewEntry { subject, effect, until_ms, who, why }, seen: None };
    let store = shop.open_redis();
    assert_eq!(shop.runtime.block_on(store.risk_flag(&[flag])).unwrap(), [true]);
    eventually("all are known", || gateways.iter().all(|one| one.metric("rushgate_risk_users") == 3));
    runtime.block_on(redis.kill9()).unwrap();
    runtime.block_on(redis.restart()).unwrap();
    let restored = || gateways.iter().map(|one| one.metric("rushgate_risk_restored_total")).sum::<u64>();
    eventually("they are put back", || {
        // Nothing final while the gateway does not know who has won.
        assert!(
            clients.each_mut().map(told).iter().all(|told| [Status::Blocked, Status::Busy].contains(told))
        );
        restored() == 5
    });
    let listed = shop.house.done(&["risk", "list"]);
    for says in ["user:1 ", "ip:10.0.0.0/8 ", "device:bad one ", "user:3 ", "put back"] {
        assert!(listed.contains(says), "{listed}");
    }
    // A flag stays one, whatever is lost of it; else no gateway would ever renew it or make it worse.
    let found = shop.runtime.block_on(store.risk_find(&["user:1", "user:3", "user:4"].map(text))).unwrap();
    let is_flag: Vec<_> = found.iter().map(|one| (one.subject.as_str(), one.is_flag())).collect();
    assert_eq!(is_flag, [("user:1", false), ("user:3", false), ("user:4", true)]);
    eventually("everybody has read them", || {
        let versions = gateways.each_ref().map(|one| one.metric("rushgate_risk_version"));
        versions[0] > 0 && versions[0] == versions[1]
    });
    let fresh = shop.house.serve(&UNLIMITED);
    come_to(&mut [shop.app(&fresh, 1)], Status::Blocked);
    shop.house.done(&["risk", "remove", "user:1"]);
    for gateway in gateways.iter().chain([&fresh]) {
        let mut client = shop.app(gateway, 1);
        eventually("he is free", || {
            let before = by_list(gateway);
            told(&mut client);
            by_list(gateway) == before
        });
    }
}

#[test]
fn a_redis_that_has_forgotten_the_last_changes_of_its_lists_is_told_them() {
    let shop = Shop::new();
    let gateways = [shop.house.serve(&UNLIMITED), shop.house.serve(&UNLIMITED)];
    let [hash, log] = ["risk", "risk:log"].map(|rest| shop.key(ShardId::ALL[0], rest));
    let field = |name: &str| shop.redis(&["HGET", &hash, name]);
    let list = |subject, effect| {
        shop.house.done(&["risk", "add", subject, "--effect", effect, "--who", "mia", "--why", "a test"]);
        field("version")
    };
    list("user:1", "slow");
    let kept = list("user:2", "slow");
    let old = ["user:1", "user:2"].map(field);
    let forgotten = [list("user:1", "block"), list("user:2", "block"), list("user:3", "block")];
    let in_force =
        |version: &str| gateways.iter().all(|one| one.metric("rushgate_risk_version").to_string() == version);
    eventually("all are known", || in_force(&forgotten[2]));
    // As a server that comes back with what its disk has; and an operator lists one of them once more, at once.
    let script = "redis.call('HSET', KEYS[1], 'version', ARGV[1], 'user:1', ARGV[2], 'user:2', \
                  (redis.call('TIME')[1] + 1) .. '000 0 slow {\"who\":\"mia\",\"why\":\"enough\"}') \
                  redis.call('HDEL', KEYS[1], 'user:3') \
                  redis.call('XDEL', KEYS[2], ARGV[3] .. '-0', ARGV[4] .. '-0', ARGV[5] .. '-0')";
    let [one, two, three] = &forgotten;
    shop.redis(&["EVAL", script, "2", &hash, &log, &kept, &old[0], one, two, three]);
    let restored = || gateways.iter().map(|one| one.metric("rushgate_risk_restored_total")).sum::<u64>();
    eventually("they are put back", || restored() >= 2);
    assert!(field("user:1").contains(" 0 block "), "{}", field("user:1"));
    assert!(field("user:3").contains(" 0 block "), "{}", field("user:3"));
    assert!(field("user:2").contains(" 0 slow "), "what came after the loss stays: {}", field("user:2"));
    eventually("everybody goes by them", || in_force(&field("version")));
    let listed = shop.house.done(&["risk", "list"]);
    assert_eq!((listed.matches(" block ").count(), listed.matches(" slow ").count()), (2, 1), "{listed}");
}

/// What the process holds, in bytes.
fn resident_bytes(gateway: &Serving) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are for whoever runs it with --nocapture")]
fn a_million_entries_are_imported_while_refusals_go_on() {
    let shop = Shop::new();
    let gateway = sold_out(&shop);
    let mut text = String::with_capacity(16 << 20);
    (0..MILLION).for_each(|nth| writeln!(text, "user:{}", 1_000_000_000 + nth).unwrap());
    fs::write(shop.house.dir.path().join("million"), text).unwrap();
    let before = resident_bytes(&gateway);
    let (stop, mut client) = (AtomicBool::new(false), shop.app(&gateway, 1));
    let began = Instant::now();
    let (answered, longest) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut answered, mut longest) = (0_u64, Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(told(&mut client), Status::SoldOut);
                longest = longest.max(asked.elapsed());
                answered += 1;
            }
            (answered, longest)
        });
        let import = ["risk", "import", "million", "--who", "mia", "--why", "a farm"];
        let said = shop.house.done(&import);
        assert!(said.starts_with("1000000 entries listed in "), "{said}");
        println!("{}, {} in force by then", said.trim(), gateway.metric("rushgate_risk_users"));
        eventually("all are in force", || gateway.metric("rushgate_risk_users") == MILLION);
        stop.store(true, Ordering::Relaxed);
        asking.join().unwrap()
    });
    let took = began.elapsed();
    let per_entry = resident_bytes(&gateway).saturating_sub(before) / MILLION;
    println!(
        "{MILLION} entries in {took:?}; meanwhile {answered} refusals, the longest {longest:?}; {per_entry} bytes each"
    );
    assert!(took < Duration::from_secs(180), "{took:?}");
    assert!(answered > 1_000 && longest < Duration::from_secs(2), "{answered} {longest:?}");
    // Twice a page's worth while it grows, and what the allocator has not given back.
    assert!(per_entry < 160, "{per_entry} bytes");
    for (id, due) in
        [(1_000_000_000, Status::Blocked), (1_000_999_999, Status::Blocked), (1_001_000_000, Status::SoldOut)]
    {
        assert_eq!(told(&mut shop.app(&gateway, id)), due, "{id}");
    }
    // One more is as quick as ever, and one that starts now reads them all first.
    add(&shop, "user:1");
    come_to(std::slice::from_mut(&mut client), Status::Blocked);
    let began = Instant::now();
    let second = shop.house.serve(&UNLIMITED);
    println!("a gateway reads them all within {:?}", began.elapsed());
    assert_eq!(told(&mut shop.app(&second, 1_000_500_000)), Status::Blocked);
    assert_eq!(second.metric("rushgate_risk_users"), MILLION + 1);
}
