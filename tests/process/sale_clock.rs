//! The sale clock: gateways open and close by the time of one Redis, whatever their own clocks say.
//!
//! A process's wall clock is set by libfaketime; its monotonic clock is the machine's.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rushgate::protocol::{ActivityId, Reply, Request, Status};
use rushgate::store::redis::RedisOptions;
use rushgate_servers::{Persistence, RedisSettings};

use super::house::{SALE, SKU, Serving};
use super::shop::{Shop, own_redis};
use super::wire::{Client, PATIENCE, buy, eventually, hello};

/// What the gateways may be apart. Their clocks are a minute apart, far more than the sale is away.
const APART_MAX: Duration = Duration::from_millis(30);

/// The variables under which a process's wall clock is off.
fn fake_time(offset: &str) -> [(String, String); 3] {
    let folders = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let library = folders
        .flat_map(|folder| [folder.join("faketime"), folder])
        .map(|folder| folder.join("libfaketimeMT.so.1"))
        .find(|library| library.exists())
        .expect("libfaketime: apt-get install faketime");
    let preload = ("LD_PRELOAD", library.to_str().unwrap());
    [preload, ("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("FAKETIME", offset)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn unix_s(time: &str) -> i64 {
    let output = Command::new("date").args(["-u", "-d", time, "+%s"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// By how much a process's wall clock is ahead, by the first line of its log.
fn ahead_s(serving: &Serving, started_at: SystemTime) -> i64 {
    let log = serving.log();
    let first = log.split_whitespace().next().unwrap();
    unix_s(first) - i64::try_from(started_at.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// The server's time as it was half-way between question and answer, less this machine's.
fn offset_ms(ask: &mut impl FnMut() -> u64) -> i64 {
    let mut quickest = (Duration::MAX, 0);
    for _ in 0..20 {
        let (asked, wall) = (Instant::now(), SystemTime::now());
        let told_ms = ask();
        let round_trip = asked.elapsed();
        let half_way = wall + round_trip / 2;
        let wall_ms = half_way.duration_since(UNIX_EPOCH).unwrap().as_millis();
        let offset = i64::try_from(told_ms).unwrap() - i64::try_from(wall_ms).unwrap();
        quickest = quickest.min((round_trip, offset));
    }
    quickest.1
}

fn hello_time(serving: &Serving) -> u64 {
    match Client::connect(serving.addr).ask(&hello()).reply {
        Reply::Hello { server_time_ms, .. } => server_time_ms,
        other => panic!("{other:?}"),
    }
}

fn activity_time(client: &mut Client) -> u64 {
    match client.ask(&Request::Activity { activity: ActivityId(SALE) }).reply {
        Reply::Activity { info, .. } => info.server_time_ms,
        other => panic!("{other:?}"),
    }
}

fn pong_time(client: &mut Client) -> u64 {
    match client.ask(&Request::Ping { client_time: 0 }).reply {
        Reply::Pong { server_time_ms, .. } => server_time_ms,
        other => panic!("{other:?}"),
    }
}

/// Buys until it is open. It opened after the first instant, when a BUY was sent that came too early, and before the
/// second, when another answer came.
fn opening(mut client: Client) -> (Instant, Instant) {
    let (began, mut sent) = (Instant::now(), Instant::now());
    loop {
        let now = Instant::now();
        match client.ask(&buy(SALE, SKU, 1)).status {
            Status::NotStarted => sent = now,
            Status::Queued => return (sent, Instant::now()),
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < PATIENCE, "it never opened");
    }
}

#[test]
fn two_gateways_whose_clocks_are_a_minute_apart_open_at_the_same_instant() {
    let shop = Shop::new();
    let serve = |fake: &[(String, String)]| {
        let mut command = shop.house.command(&["serve"]);
        for set in ["gateway.listen=127.0.0.1:0", "admin.listen=127.0.0.1:0", "limits.per_ip.rate_per_s=0"] {
            command.args(["--set", set]);
        }
        command.args(["--set", "limits.per_user.rate_per_s=0"]);
        command.envs(fake.iter().cloned());
        shop.house.start(command)
    };
    let began = SystemTime::now();
    let (right, ahead) = (serve(&[]), serve(&fake_time("+60s")));
    assert!((0..3).contains(&ahead_s(&right, began)), "{}", right.log());
    assert!((60..63).contains(&ahead_s(&ahead, began)), "its clock is a minute ahead: {}", ahead.log());

    shop.create(100, &["--opens", "+5s"]);
    shop.drive_loads();
    let opened: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let threads = [(&right, 1), (&ahead, 2)].map(|(gateway, id)| {
            let mut client = shop.app(gateway, id);
            eventually("the activity is known", || match client.ask(&buy(SALE, SKU, 1)).status {
                Status::NotStarted => true,
                Status::UnknownActivity => false,
                other => panic!("{other:?}, by the clock of {}", gateway.addr),
            });
            scope.spawn(move || opening(client))
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let [(after_one, by_one), (after_two, by_two)] = opened[..] else { panic!("{opened:?}") };
    let late = |after: Instant, by: Instant| after.saturating_duration_since(by);
    assert!(late(after_one, by_two) < APART_MAX, "the one with the right clock opened later: {opened:?}");
    assert!(late(after_two, by_one) < APART_MAX, "the one that is ahead opened later: {opened:?}");

    let offsets = [&right, &ahead].map(|gateway| offset_ms(&mut || hello_time(gateway)));
    let apart = u128::from(offsets[0].abs_diff(offsets[1]));
    assert!(apart < APART_MAX.as_millis(), "HELLO: {offsets:?}");
    let offsets = [(&right, 1), (&ahead, 2)].map(|(gateway, id)| {
        let mut client = shop.app(gateway, id);
        offset_ms(&mut || activity_time(&mut client))
    });
    let apart = u128::from(offsets[0].abs_diff(offsets[1]));
    assert!(apart < APART_MAX.as_millis(), "ACTIVITY: {offsets:?}");
}

/// A link to Redis that tells another time: the seconds in the answers to TIME are shifted, all else passes. (Redis's
/// allocator and libfaketime do not go together.)
struct Shifting {
    address: SocketAddr,
    shift_s: Arc<AtomicI64>,
}

impl Shifting {
    fn start(redis: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shift_s = Arc::new(AtomicI64::new(0));
        let shift = Arc::clone(&shift_s);
        // The threads end with the connections, or with the test's process.
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(redis) else { continue };
                let (to_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || pass(client, to_server, |_| ()));
                let shift = Arc::clone(&shift);
                thread::spawn(move || pass(server, to_client, |bytes| shift_time(bytes, &shift)));
            }
        });
        Self { address, shift_s }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        change(&mut bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// An answer to TIME begins with ten digits in an array of two.
fn shift_time(bytes: &mut [u8], shift_s: &AtomicI64) {
    const HEAD: &[u8] = b"*2\r\n$10\r\n";
    let found = bytes
        .windows(HEAD.len() + 10)
        .position(|window| window.starts_with(HEAD) && window[HEAD.len()..].iter().all(u8::is_ascii_digit));
    let Some(at) = found else { return };
    let digits = &mut bytes[at + HEAD.len()..][..10];
    let seconds: i64 = std::str::from_utf8(digits).unwrap().parse().unwrap();
    let shifted = seconds + shift_s.load(Ordering::SeqCst);
    digits.copy_from_slice(format!("{shifted:010}").as_bytes());
}

#[test]
fn the_sale_clock_never_moves_back_when_that_of_redis_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::Off)));
    let link = Shifting::start(redis.address().parse().unwrap());
    let options = RedisOptions { nodes: vec![link.address.to_string()], ..options };
    let wall_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let shop = Shop::on(options);
    let gateway = shop.house.serve(&[]);
    let mut client = Client::connect(gateway.addr);
    client.ask(&hello());
    let before_ms = pong_time(&mut client);
    assert!(u128::from(before_ms).abs_diff(wall_ms()) < 2_000);

    link.shift_s.store(-10, Ordering::SeqCst);
    let mut told_ms = before_ms;
    let mut watch = |client: &mut Client| {
        let now_ms = pong_time(client);
        assert!(now_ms >= told_ms, "from {told_ms} to {now_ms}");
        (std::mem::replace(&mut told_ms, now_ms), now_ms)
    };
    // For as long as answers are remembered it runs on; then the new ones count, and it stands.
    let mut stands_since = Instant::now();
    eventually("it stands still", || {
        let (was_ms, now_ms) = watch(&mut client);
        if was_ms != now_ms {
            stands_since = Instant::now();
        }
        stands_since.elapsed() > Duration::from_millis(500)
    });
    link.shift_s.store(1, Ordering::SeqCst);
    let stood_ms = pong_time(&mut client);
    eventually("it goes on", || watch(&mut client).1 > stood_ms + 500);
}
