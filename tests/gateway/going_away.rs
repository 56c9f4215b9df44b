//! GOAWAY from either side: what was received is answered, nothing new is done.

use std::time::{Duration, Instant};

use rushgate::protocol::{Opcode, Reply, Request, Status};

use super::house::{House, Plan, SALE, SKU};
use super::wire::{Client, buy, eventually, hello, request, result};

/// A BUY that has reached the store, whose gate is shut.
fn with_a_buy_in_flight(house: &House, user: u64) -> (Client, u32) {
    house.gate.shut();
    let arrived = house.gate.arrived();
    let mut client = house.app(user);
    let id = client.send(&buy(SALE, SKU, 1));
    eventually("the call is at the store", || house.gate.arrived() > arrived);
    (client, id)
}

/// Says GOAWAY to every connection; the drain itself runs on.
fn start_draining(house: &House) -> impl FnOnce() -> bool {
    let draining = house.runtime.spawn({
        let gateway = std::sync::Arc::clone(&house.gateway);
        async move { gateway.drain().await }
    });
    let handle = house.runtime.handle().clone();
    move || handle.block_on(draining).unwrap()
}

#[test]
fn after_the_clients_goaway_what_is_in_flight_is_answered_and_the_connection_closes() {
    let house = Plan::new(160).open();
    let (mut client, id) = with_a_buy_in_flight(&house, 1);
    let goaway = request(0, None, &Request::Goaway);
    client.write(&[goaway, request(9, None, &buy(SALE, SKU, 1)), request(10, None, &result(SALE))].concat());
    house.gate.open();
    assert_eq!(client.answer_to(id).status, Status::Queued);
    while let Some(frame) = client.read() {
        assert_eq!(frame.opcode, Opcode::ResultPush, "a frame after GOAWAY was processed");
    }
    assert_eq!((house.count("ending client"), house.count("rung passed")), (1, 1));
}

#[test]
fn a_clients_goaway_with_nothing_in_flight_closes_at_once() {
    let house = Plan::new(1).open();
    let mut fresh = Client::connect(house.addr());
    fresh.send(&Request::Goaway);
    fresh.closed();
    let mut client = house.app(1);
    client.send(&Request::Goaway);
    client.closed();
}

#[test]
fn draining_says_goaway_answers_what_was_received_and_does_nothing_new() {
    let house = Plan::new(160).settings(|settings| settings.drain_timeout = Duration::from_secs(15)).open();
    let (mut client, id) = with_a_buy_in_flight(&house, 1);
    let mut connected = Client::connect(house.addr());
    let mut greeted = Client::connect(house.addr());
    greeted.ask(&hello());
    eventually("all are accepted", || house.gateway.connections() == 3);
    let drained = start_draining(&house);

    let goaway = client.push(Opcode::Goaway);
    assert_eq!((goaway.status, &goaway.reply), (Status::GoingAway, &Reply::Goaway { drain_ms: 15_000 }));
    assert!(goaway.hint_ms <= 1000);
    for new in
        [buy(SALE, SKU, 1), result(SALE), Request::Challenge { activity: rushgate::protocol::ActivityId(1) }]
    {
        let answer = client.ask(&new);
        assert_eq!((answer.status, answer.reply), (Status::GoingAway, Reply::Empty));
    }
    let token = house.token(1);
    assert_eq!(client.auth(&token).status, Status::GoingAway);
    assert_eq!(client.ask(&hello()).status, Status::GoingAway);
    client.ping();

    connected.push(Opcode::Goaway);
    assert_eq!(connected.ask(&Request::Ping { client_time: 0 }).status, Status::Unexpected);
    assert_eq!(connected.ask(&result(SALE)).status, Status::GoingAway, "not to blame for what came too late");
    assert_eq!(connected.auth(&token).status, Status::GoingAway);
    assert_eq!(connected.ask(&hello()).status, Status::GoingAway);
    greeted.push(Opcode::Goaway);
    assert_eq!(greeted.auth(&token).status, Status::GoingAway);
    greeted.ping();

    house.gate.open();
    assert_eq!(client.answer_to(id).status, Status::Queued);
    let began = Instant::now();
    for client in [&mut client, &mut connected, &mut greeted] {
        while let Some(frame) = client.read() {
            assert_eq!(frame.opcode, Opcode::ResultPush);
        }
    }
    assert!(drained());
    assert!(began.elapsed() < Duration::from_secs(5), "all was answered, and yet it waited for drain_ms");
    assert_eq!((house.count("ending drained"), house.sold()), (3, (1, 1)));
}

#[test]
fn on_a_runtime_that_goes_on_nobody_stays_connected_to_a_gateway_that_has_ended() {
    let plan = Plan::new(160).settings(|settings| {
        (settings.worker_threads, settings.shares_runtime) = (1, true);
        settings.drain_timeout = Duration::from_secs(3600);
    });
    let house = plan.open();
    let (mut client, _) = with_a_buy_in_flight(&house, 1);
    let mut idle = Client::connect(house.addr());
    idle.ask(&hello());
    house.gateway.stop();
    assert!(client.read().is_none() && idle.read().is_none());
    eventually("nobody is connected", || house.gateway.connections() == 0);
    eventually("the port is closed", || std::net::TcpStream::connect(house.addr()).is_err());
    house.gate.open();
}

#[test]
fn nobody_is_accepted_while_draining() {
    let house = Plan::new(1).open();
    let mut client = house.app(1);
    let drained = start_draining(&house);
    client.push(Opcode::Goaway);
    eventually("the port is closed", || std::net::TcpStream::connect(house.addr()).is_err());
    assert!(drained());
}

#[test]
fn a_client_that_floods_hears_goaway_all_the_same() {
    let house = Plan::new(1).settings(|settings| settings.drain_timeout = Duration::from_secs(1)).open();
    let mut client = house.app(1);
    let mut writing = client.stream.try_clone().unwrap();
    let flood = std::thread::spawn(move || {
        let pings: Vec<u8> =
            (1..=1000).flat_map(|id| request(id, None, &Request::Ping { client_time: 0 })).collect();
        while std::io::Write::write_all(&mut writing, &pings).is_ok() {}
    });
    client.read().unwrap();
    let began = Instant::now();
    let drained = start_draining(&house);
    while client.read().unwrap().opcode != Opcode::Goaway {
        assert!(began.elapsed() < Duration::from_secs(4), "no GOAWAY while it floods");
    }
    client.reset();
    flood.join().unwrap();
    assert!(drained());
}

#[test]
fn a_store_that_never_answers_does_not_hold_the_drain_for_ever() {
    let house = Plan::new(160)
        .settings(|settings| {
            settings.drain_timeout = Duration::from_millis(300);
            settings.stock.unconfirmed_after_ms = 1000;
        })
        .open();
    let (mut client, id) = with_a_buy_in_flight(&house, 1);
    let drained = start_draining(&house);
    client.push(Opcode::Goaway);
    // Closed at drain_ms; the BUY is UNCONFIRMED for the client.
    assert!(client.read().is_none());
    assert!(id > 0 && !drained(), "it says that not everything was answered");
    assert_eq!(house.count("ending drained"), 1);
    house.gate.open();
}
