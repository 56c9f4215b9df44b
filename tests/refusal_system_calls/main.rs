//! A wake costs the kernel one read, one write and at most one wait, and the worker asks it for nothing else.
//!
//! The real binary runs with one worker under strace, while a client asks for what is sold out. A PING before and
//! one after the part that is looked at mark it in the worker's trace.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "tests"
)]

#[path = "../process/house.rs"]
#[allow(dead_code, reason = "shared with tests/process, which uses all of it")]
mod house;
mod trace;
#[path = "../gateway/wire.rs"]
#[allow(dead_code, reason = "shared with tests/gateway, which uses all of it")]
mod wire;

use std::time::{Duration, Instant};

use house::{House, SALE, SKU};
use rushgate::protocol::{Request, Status};
use trace::{Call, Traced};
use wire::{Client, buy, eventually, request};

const CONNECTIONS: u64 = 8;
const ROUNDS: usize = 100;
/// The ids of the PINGs that mark the part; no other request has them.
const BEGIN: u32 = 0x51A7_0001;
const END: u32 = 0x51A7_0002;
/// How often a worker looks for what is overdue.
const SWEEP_INTERVAL: Duration = Duration::from_millis(25);

#[test]
fn a_wake_is_one_read_one_write_and_at_most_one_wait() {
    for depth in [1, 16] {
        let house = House::with_sale(1);
        let (calls, took) = calls_of_rounds(&house, depth);
        check(depth, &calls, took);
    }
}

/// What the worker asked of the kernel while every connection sent `depth` BUYs in each round; and how long that
/// took.
fn calls_of_rounds(house: &House, depth: u32) -> (Vec<Call>, Duration) {
    let settings = [
        "gateway.worker_threads=1",
        // Nothing left: that holds though a machine that runs many tests at once reads no feed for a while.
        "stock.view_lag_max=20s",
        "limits.per_ip.rate_per_s=1000000",
        "limits.per_ip.burst=1000000",
        "limits.per_user.rate_per_s=1000000",
        "limits.per_user.burst=1000000",
    ];
    let traced = Traced::serve(house, &settings);
    let mut clients: Vec<Client> = (1..=CONNECTIONS).map(|user| house.app(&traced.serving, user)).collect();
    assert_eq!(clients[0].ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    eventually("nothing is left", || clients[1].ask(&buy(SALE, SKU, 1)).status == Status::SoldOut);
    // Once round before anything is counted.
    round(&mut clients, depth);
    mark(&mut clients[0], BEGIN);
    let began = Instant::now();
    for _ in 0..ROUNDS {
        round(&mut clients, depth);
    }
    let took = began.elapsed();
    mark(&mut clients[0], END);
    (traced.calls_between(BEGIN, END), took)
}

fn mark(client: &mut Client, id: u32) {
    client.write(&request(id, None, &Request::Ping { client_time: 1 }));
    client.answer_to(id);
}

/// Every connection asks, then every connection is answered.
fn round(clients: &mut [Client], depth: u32) {
    let asked: Vec<Vec<u32>> = clients
        .iter_mut()
        .map(|client| {
            let ids: Vec<u32> = (0..depth).map(|_| client.next_id()).collect();
            let bytes: Vec<u8> = ids.iter().flat_map(|id| request(*id, None, &buy(SALE, SKU, 1))).collect();
            client.write(&bytes);
            ids
        })
        .collect();
    for (number, (client, ids)) in clients.iter_mut().zip(asked).enumerate() {
        let expected = if number == 0 { Status::Already } else { Status::SoldOut };
        for id in ids {
            assert_eq!(client.answer_to(id).status, expected);
        }
    }
}

fn check(depth: u32, calls: &[Call], took: Duration) {
    let count = |name: &str| calls.iter().filter(|call| call.name == name).count();
    let (waits, reads, writes, wakes_up) =
        (count("epoll_wait"), count("recvfrom"), count("sendto"), count("write"));
    println!("depth {depth}: epoll_wait {waits}, recvfrom {reads}, sendto {writes}, write {wakes_up}");
    let expected = ["epoll_wait", "recvfrom", "sendto", "write"];
    let others: Vec<&Call> = calls.iter().filter(|call| !expected.contains(&call.name.as_str())).collect();
    assert!(others.is_empty(), "depth {depth}: the worker also asked for {others:?}");
    let failed: Vec<&Call> = calls.iter().filter(|call| call.failed).collect();
    assert!(failed.is_empty(), "depth {depth}: nothing was there for {failed:?}");
    let wakes = ROUNDS * usize::try_from(CONNECTIONS).unwrap();
    // One write more: the reply to the PING that began it.
    assert_eq!((reads, writes), (wakes, wakes + 1), "depth {depth}: reads and writes of {wakes} wakes");
    // A wait may tell of several connections. The sweep's timer takes a wait of its own, wakes its own runtime when
    // it is set anew, and that is another one.
    let sweeps = usize::try_from(took.as_millis() / SWEEP_INTERVAL.as_millis()).unwrap() + 2;
    let waits_max = wakes + 1 + 3 * sweeps;
    assert!(waits <= waits_max, "depth {depth}: {waits} waits in {took:?}, {waits_max} would do");
    assert!(wakes_up <= sweeps, "depth {depth}: {wakes_up} times it woke somebody in {sweeps} sweeps");
}
