//! Connections in numbers: those that never speak, and those too many.

use std::time::{Duration, Instant};

use rushgate::protocol::{Opcode, Status};

use super::house::{Plan, SALE, SKU};
use super::wire::{CLOCK_STEP, Client, buy, eventually, hello};

#[test]
fn a_thousand_connects_without_a_word_are_closed_at_the_handshake_deadline() {
    rlimit::increase_nofile_limit(8192).unwrap();
    let house = Plan::new(5).settings(|settings| settings.handshake_timeout = Duration::from_secs(2)).open();
    let began = Instant::now();
    let mut mute: Vec<Client> = (0..1000).map(|_| Client::connect(house.addr())).collect();
    // Meanwhile those who speak are served.
    let mut client = house.app(1);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    for client in &mut mute {
        client.closed_with(Status::TimedOut);
    }
    assert!(began.elapsed() + CLOCK_STEP >= Duration::from_secs(2));
    drop(mute);
    eventually("all are gone", || house.gateway.connections() == 1);
    assert_eq!(house.count("ending handshake_timeout"), 1000);
    client.ping();
}

#[test]
fn one_connection_too_many_is_told_so_and_there_is_room_again_when_one_leaves() {
    let house = Plan::new(5).settings(|settings| settings.connections_max = 3).open();
    let mut inside: Vec<Client> = (1..=3).map(|user| house.app(user)).collect();
    for turn in 1..=5 {
        let mut refused = Client::connect(house.addr());
        let last = refused.push(Opcode::Error);
        assert_eq!(last.status, Status::TooManyConnections);
        assert!((500..=1500).contains(&last.hint_ms), "{last:?}");
        refused.closed();
        assert_eq!((house.count("ending refused"), house.count("TOO_MANY_CONNECTIONS")), (turn, turn));
    }
    inside.iter_mut().for_each(Client::ping);
    inside.pop();
    eventually("there is room", || house.gateway.connections() == 2);
    let mut client = house.app(9);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(house.count("ending refused"), 5);
}

#[test]
fn a_client_that_speaks_at_once_learns_why_it_is_refused() {
    let house = Plan::new(5).settings(|settings| settings.connections_max = 1).open();
    let mut inside = house.app(1);
    for _ in 0..50 {
        let mut refused = Client::connect(house.addr());
        // May fail when the gateway was faster.
        let _ = std::io::Write::write_all(&mut refused.stream, &super::wire::request(1, None, &hello()));
        refused.closed_with(Status::TooManyConnections);
    }
    inside.ping();
    eventually("the refused are gone", || house.gateway.connections() == 1);
}
