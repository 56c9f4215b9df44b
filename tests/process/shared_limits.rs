//! Limits that two gateways share through Redis: together they let through the configured rate, whoever is asked; while
//! Redis is away each its half; and nothing bursts when it is back. What passes is counted by its answers.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rushgate::protocol::{Request, Status};
use rushgate::stock::calls::ShardId;
use rushgate_servers::{Persistence, RedisSettings};
use socket2::{Domain, Socket, Type};

use super::house::{House, SALE, SKU, Serving};
use super::shop::{Shop, background, own_redis};
use super::wire::{Client, buy, eventually, hello, request};

/// In force on both gateways, and no other.
const ONE_LIMIT: [&str; 3] =
    ["limits.per_user.rate_per_s=0", "limits.per_ip.rate_per_s=0", "limits.global.rate_per_s=0"];
const RATE: u64 = 400;
const BURST: u64 = 100;

/// BUYs sent together, and how often: eight times the rate on each gateway.
const TOGETHER: usize = 16;
const PAUSE: Duration = Duration::from_millis(5);
/// How often a rate is looked at until it is as it should be.
const LOOKS: usize = 6;

fn serve(shop: &Shop, limit: &str) -> Serving {
    let (rate, burst) = (format!("{limit}.rate_per_s={RATE}"), format!("{limit}.burst={BURST}"));
    shop.house.serve(&[&ONE_LIMIT[..], &[&rate, &burst]].concat())
}

fn two(shop: &Shop, limit: &str) -> [Serving; 2] {
    let gateways = [serve(shop, limit), serve(shop, limit)];
    eventually("each has heard of the other", || {
        gateways.iter().all(|gateway| gateway.metric("rushgate_gateways") == 2)
    });
    gateways
}

/// An activity that opens in an hour: `NOT_STARTED`, without a look at the stock, is what passes.
fn upcoming(shop: &Shop, gateways: &[Serving], clients: &mut [Client]) {
    shop.create(16, &["--opens", "+1h", "--closes", "+2h"]);
    eventually("every gateway knows the sale", || {
        clients.iter_mut().all(|client| client.ask(&buy(SALE, SKU, 1)).status != Status::UnknownActivity)
    });
    assert_eq!(gateways.len(), clients.len());
}

/// A client of a gateway at an address of its own.
fn client_at(shop: &Shop, gateway: &Serving, id: u64, from: [u8; 4]) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(IpAddr::from(from), 0).into()).unwrap();
    socket.connect(&gateway.addr.into()).unwrap();
    let mut client = Client::over(TcpStream::from(socket));
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    assert_eq!(client.auth(&shop.app_token(id)).status, Status::Ok);
    client
}

/// Each of them asks far more often than the rate for so long; how many of them passed.
fn hammer(clients: &mut [Client], time: Duration) -> Vec<u64> {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let hammering: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(move || passed_until(client, until))).collect();
        hammering.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn passed_until(client: &mut Client, until: Instant) -> u64 {
    let mut passed = 0;
    while Instant::now() < until {
        let ids: Vec<u32> = (0..TOGETHER).map(|_| client.next_id()).collect();
        let what: Request<'_> = buy(SALE, SKU, 1);
        let bytes: Vec<u8> = ids.iter().flat_map(|id| request(*id, None, &what)).collect();
        client.write(&bytes);
        for id in ids {
            passed += u64::from(client.answer_to(id).status != Status::RateLimited);
        }
        std::thread::park_timeout(PAUSE);
    }
    passed
}

/// What a rate comes to from then until now.
fn given_out(rate: u64, since: Instant) -> u64 {
    rate * u64::try_from(since.elapsed().as_millis()).unwrap() / 1_000
}

/// They come to this rate within so many percent, and never to more than one bucket would give out. A machine that has
/// other things to do may ask too seldom, so that it is looked at again.
#[track_caller]
fn come_to(clients: &mut [Client], time: Duration, rate: u64, percent: u64) -> Vec<u64> {
    let mut all = Vec::new();
    for _ in 0..LOOKS {
        let began = Instant::now();
        let passed = hammer(clients, time);
        let (sum, due) = (passed.iter().sum::<u64>(), given_out(rate, began));
        // What had been lent and not used yet may come on top.
        assert!(sum <= due + BURST + RATE / 2, "{passed:?}, not {due}, at {rate} a second");
        if sum.abs_diff(due) * 100 <= due * percent {
            return passed;
        }
        all.push((passed, due));
    }
    panic!("never {rate} a second within {percent} %: {all:?}");
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are for whoever runs it with --nocapture")]
fn the_global_rate_is_one_for_all_gateways_with_redis_without_it_and_after_it() {
    let runtime = background();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::EverySecond)));
    let shop = Shop::on(options);
    let gateways = two(&shop, "limits.global");
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    upcoming(&shop, &gateways, &mut clients);

    hammer(&mut clients, seconds(1));
    let both = come_to(&mut clients, seconds(10), RATE, 5);
    let alone = come_to(&mut clients[..1], seconds(5), RATE, 5);
    println!("two gateways in 10 s: {both:?}; one alone in 5 s: {alone:?}");
    assert!(gateways[0].metric("rushgate_slices_borrowed_total") > RATE);
    assert!(gateways[1].metric("rushgate_slices_lent_total") > RATE);

    // Stopped, not gone: nothing is answered, as on a network that is cut.
    runtime.block_on(redis.pause()).unwrap();
    eventually("it is noticed", || gateways.iter().all(|one| one.metric("rushgate_slices_available") == 0));
    // Bursts have filled up meanwhile.
    hammer(&mut clients, seconds(1) / 2);
    let away = come_to(&mut clients[..1], seconds(3), RATE / 2, 5);
    hammer(&mut clients, seconds(1) / 2);
    let both_away = come_to(&mut clients, seconds(3), RATE, 5);
    let half = 3 * RATE / 2;
    assert!(both_away.iter().all(|one| one.abs_diff(half) <= half / 5), "{both_away:?}");
    redis.resume().unwrap();
    let (resumed, mut back) = (Instant::now(), 0);
    for _ in 0..8 {
        back += hammer(&mut clients, seconds(1) / 4).iter().sum::<u64>();
        let most = given_out(RATE, resumed) + BURST;
        assert!(back <= most, "{back} passed, not {most}, in {:?}", resumed.elapsed());
    }
    let again = come_to(&mut clients[..1], seconds(4), RATE, 5);
    println!(
        "without Redis, one in 3 s: {away:?}, both in 3 s: {both_away:?}; with it again, one in 4 s: {again:?}"
    );

    // At rest, and when hammered, Redis hears of each gateway a few times a second.
    let key = shop.key(ShardId::ALL[0], "gateways:calls");
    let calls = || {
        let numbers = runtime.block_on(redis.cli(&["HVALS", &key])).unwrap();
        numbers.split_whitespace().map(|number| number.parse::<u32>().unwrap()).sum::<u32>()
    };
    let before = calls();
    let began = Instant::now();
    hammer(&mut clients, seconds(2));
    let per_s = f64::from(calls() - before) / began.elapsed().as_secs_f64();
    println!("calls a second of two gateways: {per_s:.1}");
    assert!(per_s < 30.0, "{per_s}");
    for gateway in &gateways {
        let log = gateway.log();
        assert!(log.contains("each gateway keeps to its share"), "{log}");
        assert_eq!(gateway.metric("rushgate_gateways"), 2, "they were counted on while Redis was away");
    }
    // Who leaves is not counted any more; the rate is the other's.
    let [one, mut other] = gateways;
    other.signal("TERM");
    assert!(other.ended().success());
    eventually("it is alone", || one.metric("rushgate_gateways") == 1);
    come_to(&mut clients[..1], seconds(2), RATE, 8);
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are for whoever runs it with --nocapture")]
fn the_rate_of_an_address_is_one_for_all_gateways() {
    let shop = Shop::new();
    let gateways = two(&shop, "limits.per_ip");
    let mut clients = [
        client_at(&shop, &gateways[0], 1, [127, 0, 0, 2]),
        client_at(&shop, &gateways[1], 2, [127, 0, 0, 2]),
    ];
    upcoming(&shop, &gateways, &mut clients);
    hammer(&mut clients, seconds(1));
    let both = come_to(&mut clients, seconds(5), RATE, 5);
    let alone = come_to(&mut clients[1..], seconds(3), RATE, 8);
    println!("one address on two gateways in 5 s: {both:?}; on one of them in 3 s: {alone:?}");
    // Another address has a rate of its own.
    let mut other = [client_at(&shop, &gateways[0], 3, [127, 0, 0, 3])];
    assert!(hammer(&mut other, seconds(1))[0] >= RATE / 2);
}

#[test]
fn the_rate_of_an_activity_is_one_for_all_gateways() {
    let shop = Shop::new();
    let gateways = two(&shop, "limits.per_activity");
    shop.create(1, &["--opens", "+2s"]);
    shop.drive_loads();
    let mut buyer = shop.app(&gateways[0], 9);
    eventually("the only unit is sold", || {
        matches!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Queued | Status::Already)
    });
    let mut clients = gateways.each_ref().map(|gateway| shop.app(gateway, 1));
    for client in &mut clients {
        eventually("it knows that nothing is left", || {
            client.ask(&buy(SALE, SKU, 1)).status == Status::SoldOut
        });
    }
    hammer(&mut clients, seconds(1));
    come_to(&mut clients, seconds(5), RATE, 5);
    come_to(&mut clients[..1], seconds(3), RATE, 8);
    // The holder is told of his order, however many others come.
    assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Already);
}

#[test]
fn the_gateway_of_the_embedded_store_has_the_whole_rates() {
    let house = House::with_sale(1);
    let gateway = house.serve(&[
        "limits.per_user.rate_per_s=1",
        "limits.global.rate_per_s=1",
        "limits.global.burst=50",
    ]);
    assert_eq!((gateway.metric("rushgate_gateways"), gateway.metric("rushgate_slices_available")), (1, 0));
    let passed =
        (1..=60).filter(|id| house.app(&gateway, *id).ask(&buy(SALE, SKU, 1)).status != Status::RateLimited);
    assert!(passed.count() >= 50);
    assert!(!gateway.log().contains("the limits are shared"));
}
