//! Descriptors: a process that may open few of them refuses in time, and one that runs out of them goes on.

use std::fs;

use rlimit::Resource;
use rushgate::protocol::{Opcode, Status};

use super::house::{House, SALE, SKU, refusal};
use super::wire::{Client, buy, eventually, hello};

#[test]
fn a_low_limit_makes_few_connections_and_the_rest_are_told() {
    let house = House::with_sale(160);
    let command = house.shell(
        "ulimit -n 270; exec \"$RUSHGATE\" serve --set gateway.listen=127.0.0.1:0 --set admin.listen=127.0.0.1:0",
    );
    let serving = house.start(command);
    // 256 are kept for everything that is not a client.
    let mut inside: Vec<Client> = (1..=14).map(|user| house.app(&serving, user)).collect();
    for _ in 0..100 {
        let mut refused = Client::connect(serving.addr);
        assert_eq!(refused.push(Opcode::Error).status, Status::TooManyConnections);
    }
    inside.iter_mut().for_each(Client::ping);
    assert_eq!(inside[0].ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(serving.metric("rushgate_connections_ended_total{why=\"refused\"}"), 100);
    inside.clear();
    eventually("there is room", || serving.metric("rushgate_connections") == 0);
    house.app(&serving, 99).ping();
}

#[test]
fn even_a_limit_below_the_reserve_serves() {
    let house = House::with_sale(160);
    let command = house.shell(
        "ulimit -n 64; exec \"$RUSHGATE\" serve --set gateway.listen=127.0.0.1:0 --set admin.listen=127.0.0.1:0",
    );
    let serving = house.start(command);
    let mut one = house.app(&serving, 1);
    assert_eq!(one.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let mut many: Vec<Client> = (0..100).map(|_| Client::connect(serving.addr)).collect();
    for refused in &mut many {
        assert_eq!(refused.push(Opcode::Error).status, Status::TooManyConnections);
    }
    one.ping();
}

#[test]
fn more_connections_than_the_limit_allows_are_not_promised() {
    let house = House::new();
    let script = "ulimit -n 300; exec \"$RUSHGATE\" serve --set gateway.listen=127.0.0.1:0 \
                  --set admin.listen= --set gateway.connections_max=1000";
    let output = house.shell(script).output().unwrap();
    let message = refusal(&[script], &output);
    for part in ["gateway.connections_max = 1000", "ulimit -n", "300"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_gateway_out_of_descriptors_survives_counts_it_and_serves_again() {
    let house = House::with_sale(160);
    let mut serving = house.serve(&[]);
    let mut inside = house.app(&serving, 1);
    // Every connection to the store that it will use is open.
    assert_eq!(inside.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let open = fs::read_dir(format!("/proc/{}/fd", serving.pid())).unwrap().count() as u64;
    let pid = i32::try_from(serving.pid()).unwrap();
    let mut hard = 0;
    rlimit::prlimit(pid, Resource::NOFILE, None, Some((&mut 0, &mut hard))).unwrap();
    rlimit::prlimit(pid, Resource::NOFILE, Some((open + 5, hard)), None).unwrap();
    // The kernel completes these connects; who accepts them is another question.
    let crowd: Vec<Client> = (0..40).map(|_| Client::connect(serving.addr)).collect();
    for _ in 0..20 {
        assert_eq!(inside.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    }
    eventually("it has run out", || {
        let in_use = fs::read_dir(format!("/proc/{}/fd", serving.pid())).unwrap().count() as u64;
        in_use >= open + 5
    });
    eventually("it says so", || serving.log().contains("cannot accept a connection"));
    assert!(serving.is_running());
    inside.ping();
    drop(crowd);
    let mut after = Client::connect(serving.addr);
    assert_eq!(after.ask(&hello()).status, Status::Ok);
    assert_eq!(after.auth(&house.token(2)).status, Status::Ok);
    assert_eq!(after.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert!(serving.metric("rushgate_connections_ended_total{why=\"accept_failed\"}") > 0);
    serving.signal("TERM");
    after.push(Opcode::Goaway);
    assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
}
