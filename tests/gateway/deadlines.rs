//! Deadlines of a connection: handshake, idle; and that a busy client cannot outrun them.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use rushgate::protocol::{Request, Status};

use super::house::Plan;
use super::wire::{CLOCK_STEP, Client, PATIENCE, hello, request};

const SHORT: Duration = Duration::from_millis(400);

#[test]
fn hello_alone_does_not_stop_the_handshake_clock() {
    let house = Plan::new(1).settings(|settings| settings.handshake_timeout = SHORT).open();
    let began = Instant::now();
    let mut client = Client::connect(house.addr());
    client.ask(&hello());
    client.ping();
    client.closed_with(Status::TimedOut);
    assert!(began.elapsed() + CLOCK_STEP >= SHORT);
    assert_eq!(house.count("ending handshake_timeout"), 1);
}

#[test]
fn a_client_that_floods_instead_of_authenticating_meets_the_handshake_deadline() {
    let house = Plan::new(1).settings(|settings| settings.handshake_timeout = SHORT).open();
    let client = Client::connect(house.addr());
    let mut writing = client.stream.try_clone().unwrap();
    let flood = thread::spawn(move || {
        let pings: Vec<u8> =
            (1..=1000).flat_map(|id| request(id, None, &Request::Ping { client_time: 0 })).collect();
        let began = Instant::now();
        // Ends with the connection.
        while writing.write_all(&pings).is_ok() {
            assert!(began.elapsed() < PATIENCE, "the flood is never ended");
        }
    });
    let mut reading = client.stream;
    let mut bytes = vec![0; 65_536];
    let began = Instant::now();
    loop {
        match reading.read(&mut bytes) {
            Ok(0) => break,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            other => drop(other.unwrap()),
        }
    }
    assert!(began.elapsed() < Duration::from_secs(8), "the deadline was outrun");
    drop(reading);
    flood.join().unwrap();
    assert_eq!(house.count("ending handshake_timeout"), 1);
}

#[test]
fn silence_of_one_and_a_half_keepalives_ends_the_connection() {
    let house = Plan::new(1).settings(|settings| settings.keepalive = SHORT).open();
    let mut client = house.app(1);
    client.ping();
    let began = Instant::now();
    client.closed_with(Status::TimedOut);
    // The deadline counts from when the gateway read the PING, a little before its reply was here.
    assert!(began.elapsed() + CLOCK_STEP >= SHORT, "{:?}", began.elapsed());
    // Long before the handshake would have been late: AUTH starts the deadline anew.
    assert!(began.elapsed() < SHORT * 10, "{:?}", began.elapsed());
    assert_eq!((house.count("ending idle"), house.count("TIMED_OUT")), (1, 1));
}

#[test]
fn ping_keeps_a_connection_alive() {
    let house = Plan::new(1).settings(|settings| settings.keepalive = SHORT).open();
    let mut client = house.app(1);
    let began = Instant::now();
    while began.elapsed() < SHORT * 5 {
        client.ping();
        // Nothing comes for a while.
        client.stream.set_read_timeout(Some(SHORT / 8)).unwrap();
        let nothing = client.stream.read(&mut [0; 1]);
        assert!(matches!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    client.ping();
}

#[test]
fn a_frame_that_is_refused_counts_as_a_sign_of_life() {
    let house = Plan::new(1).settings(|settings| settings.keepalive = SHORT).open();
    let mut client = house.app(1);
    let began = Instant::now();
    while began.elapsed() < SHORT * 3 {
        assert_eq!(client.ask(&hello()).status, Status::Unexpected);
    }
    client.ping();
}
