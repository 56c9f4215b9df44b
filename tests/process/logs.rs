//! What the log says, and how little of it there is however much goes wrong.

use std::fs;

use rushgate::protocol::Status;

use super::house::{House, SALE, SKU, Serving};
use super::wire::{Client, buy, eventually, hello, request, result};

/// Requests written at once, then read.
const AT_ONCE: u32 = 500;
/// Requests of every kind, together.
const REQUESTS: u64 = 200_000;

/// Has a client send what `make` makes, as many as it takes, and reads every answer; how many were of this status.
fn flood(client: &mut Client, count: u64, status: Status, make: impl Fn(u32) -> Vec<u8>) -> u64 {
    let (mut sent, mut fitting) = (0, 0);
    while sent < count {
        let ids: Vec<u32> = (0..AT_ONCE).map(|_| client.next_id()).collect();
        client.write(&ids.iter().map(|id| make(*id)).collect::<Vec<_>>().concat());
        for id in ids {
            fitting += u64::from(client.answer_to(id).status == status);
        }
        sent += u64::from(AT_ONCE);
    }
    fitting
}

/// Logs in with no token at all.
fn refused(serving: &Serving) {
    let mut client = Client::connect(serving.addr);
    client.ask(&hello());
    assert_eq!(client.auth("no token at all").status, Status::BadToken);
}

/// Those whose connection ends with what they did.
fn broken_connections(serving: &Serving) {
    for nth in 0..300 {
        match nth % 3 {
            0 => Client::connect(serving.addr).write(b"GET / HTTP/1.1\r\n\r\n        "),
            1 => refused(serving),
            _ => Client::connect(serving.addr).reset(),
        }
    }
}

#[test]
fn ten_million_requests_at_info_would_write_less_than_ten_mebibytes() {
    let house = House::with_sale(1);
    let log = house.dir.path().join("gateway.log");
    let file = format!("log.file={}", log.display());
    let unlimited =
        ["limits.per_user.rate_per_s=0", "limits.result_per_user.rate_per_s=0", "limits.per_ip.rate_per_s=0"];
    let serving = house.serve(&[&[file.as_str()], &unlimited[..]].concat());
    house.app(&serving, 1).ask(&buy(SALE, SKU, 1));
    house.done(&["risk", "add", "user:9", "--why", "a drill"]);
    let before = fs::metadata(&log).unwrap().len();
    let mut app = house.app(&serving, 2);
    eventually("it is sold out", || app.ask(&buy(SALE, SKU, 1)).status == Status::SoldOut);
    let mut blocked = house.app(&serving, 9);
    eventually("he is blocked", || blocked.ask(&buy(SALE, SKU, 1)).status == Status::Blocked);
    let share = REQUESTS / 6;
    let counts = [
        flood(&mut app, share, Status::SoldOut, |id| request(id, None, &buy(SALE, SKU, 1))),
        flood(&mut app, share, Status::UnknownActivity, |id| request(id, None, &buy(999, SKU, 1))),
        flood(&mut app, share, Status::NoOrder, |id| request(id, None, &result(SALE))),
        flood(&mut app, share, Status::BadQuantity, |id| request(id, None, &buy(SALE, SKU, 0))),
        flood(&mut blocked, share, Status::Blocked, |id| request(id, None, &buy(SALE, SKU, 1))),
        flood(&mut house.app(&serving, 1), share, Status::Already, |id| {
            request(id, None, &buy(SALE, SKU, 1))
        }),
    ];
    // A gateway that this machine holds up says BUSY now and then.
    assert!(counts.iter().all(|count| *count >= share / 2), "{counts:?}");
    broken_connections(&serving);
    serving.signal("TERM");
    let mut serving = serving;
    assert!(serving.ended().success());
    let text = fs::read_to_string(&log).unwrap();
    let bytes = text.len() as u64 - before;
    // As if every byte had been a request's: fifty times as many requests, ten mebibytes.
    let most = (10 << 20) / (10_000_000 / REQUESTS);
    assert!(bytes < most, "{bytes} bytes for {REQUESTS} requests:\n{text}");
    assert!(text.lines().any(|line| line.contains("drained") && line.contains("gateway=1")), "{text}");
    assert_eq!(serving.log(), "", "nothing is said twice");
}

#[test]
fn a_log_file_that_cannot_be_written_is_told_once_and_nothing_else_happens() {
    let house = House::with_sale(5);
    fs::write(house.dir.path().join("a-file"), "in the way").unwrap();
    let mut serving = house.serve(&["log.file=a-file/gateway.log"]);
    let mut app = house.app(&serving, 1);
    assert_eq!(app.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    eventually("it is told", || serving.log().contains("a-file/gateway.log"));
    serving.signal("TERM");
    assert!(serving.ended().success());
    let told = serving.log();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("cannot be written") && told.contains("log.file"), "{told}");
}

#[test]
fn a_log_file_is_rotated_while_the_gateway_runs_and_what_is_kept_is_bounded() {
    let house = House::with_sale(5);
    let settings = [
        "log.file=logs.txt",
        "log.file_bytes_max=64KiB",
        "log.total_bytes_max=192KiB",
        "limits.per_user.rate_per_s=0",
    ];
    let serving = house.serve(&settings);
    house.done(&["switch", "set", "log_level", "trace", "--why", "a drill"]);
    let sizes = || -> Vec<u64> {
        let files = fs::read_dir(house.dir.path()).unwrap().map(Result::unwrap);
        let ours = files.filter(|file| file.file_name().to_string_lossy().starts_with("logs.txt"));
        ours.filter_map(|file| file.metadata().ok())
            .map(|known| known.len())
            .filter(|bytes| *bytes > 0)
            .collect()
    };
    eventually("two files were put away", || {
        (0..200).for_each(|_| refused(&serving));
        sizes().len() >= 3
    });
    (0..600).for_each(|_| refused(&serving));
    eventually("the oldest are gone", || sizes().iter().sum::<u64>() <= (192 << 10));
    assert_eq!(serving.metric("rushgate_log_lines_left_out_total"), 0, "debug is not limited by kind");
    assert_eq!(serving.metric("rushgate_panics_total"), 0);
}
