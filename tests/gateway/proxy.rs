//! The balancers' port: PROXY headers through real sockets, whom they are believed from, and what they decide.

use std::io::Write;
use std::time::{Duration, Instant};

use rushgate::admission::limits::{LimitsSettings, Rate};
use rushgate::protocol::{Request, Status};

use super::house::{House, Plan, SALE, SKU, rate};
use super::wire::{CLOCK_STEP, Client, buy, eventually, hello, request};

const SIGNATURE: &[u8] = b"\r\n\r\n\x00\r\nQUIT\n";
/// Two at once, then one each second.
const TIGHT: Rate = Rate { rate_per_s: 1, burst: 2 };

fn proxied(plan: Plan) -> Plan {
    plan.settings(|settings| {
        settings.proxy_listen = Some("127.0.0.1:0".parse().unwrap());
        settings.proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
    })
}

/// Every address has a tight limit, the balancer's own among them.
fn tight(limits: &mut LimitsSettings) {
    limits.per_ip = TIGHT;
    limits.per_ip_overrides = Vec::new();
}

fn header(command: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[0x20 | command, 0x11], &length, payload].concat()
}

/// A header for a client at 192.0.2.`host`.
fn from_host(host: u8) -> Vec<u8> {
    header(1, &[192, 0, 2, host, 127, 0, 0, 1, 0x30, 0x39, 0x1E, 0x14])
}

fn connect(house: &House) -> Client {
    Client::connect(house.gateway.proxy_addr().unwrap())
}

/// A user's connection behind a balancer that sends this header.
fn app_behind(house: &House, header: &[u8], id: u64) -> Client {
    let mut client = connect(house);
    client.write(header);
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    assert_eq!(client.auth(&house.token(id)).status, Status::Ok);
    client
}

/// Of so many BUYs by different users behind this header, how many the address's limit lets through.
fn passed(house: &House, header: &[u8], ids: std::ops::Range<u64>) -> usize {
    let status = |id| app_behind(house, header, id).ask(&buy(SALE + 1, SKU, 1)).status;
    ids.map(status).filter(|status| *status != Status::RateLimited).count()
}

#[test]
fn clients_behind_one_balancer_are_limited_apart_and_by_the_address_in_the_header() {
    let house = proxied(Plan::new(5)).limits(tight).open();
    assert_eq!(passed(&house, &from_host(7), 1..5), 2);
    assert_eq!(passed(&house, &from_host(8), 11..13), 2);
    let text = b"PROXY TCP4 192.0.2.9 127.0.0.1 12345 7700\r\n";
    assert_eq!(passed(&house, text, 21..23), 2, "version 1 too");
    let same_in_text = b"PROXY TCP4 192.0.2.7 127.0.0.1 12345 7700\r\n";
    assert_eq!(passed(&house, same_in_text, 31..33), 0, "the version makes no difference");
    let mapped = [&[0; 10][..], &[0xFF; 2], &[192, 0, 2, 7], &[0; 16], &[0x30, 0x39, 0x1E, 0x14]].concat();
    let mapped = [SIGNATURE, &[0x21, 0x21, 0, 36], &mapped].concat();
    assert_eq!(passed(&house, &mapped, 41..43), 0, "nor does IPv4 in IPv6 form");
    assert_eq!(house.count("rung rate_ip"), 6);
}

#[test]
fn a_sale_goes_through_the_balancers_port_as_through_the_other() {
    let house = proxied(Plan::new(5)).open();
    let mut behind = app_behind(&house, &from_host(7), 1);
    let bought = behind.ask(&buy(SALE, SKU, 1));
    assert_eq!(bought.status, Status::Queued);
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, 1)).order().number, bought.order().number);
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn a_local_header_stands_for_the_balancers_own_connection() {
    let house = proxied(Plan::new(5)).limits(tight).open();
    let local = header(0, &[192, 0, 2, 7, 127, 0, 0, 1, 0x30, 0x39, 0x1E, 0x14]);
    assert_eq!(passed(&house, &local, 1..4), 2);
    assert_eq!(passed(&house, b"PROXY UNKNOWN\r\n", 11..13), 0, "the same address: the balancer's");
    assert_eq!(passed(&house, &from_host(7), 21..23), 2, "what LOCAL said of it did not count");
    // As balancers check whether anybody is there.
    let mut check = connect(&house);
    check.write(&header(0, &[]));
    check.finish_writing();
    check.closed();
    assert_eq!(house.count("ending bad_proxy_header"), 0);
}

#[test]
fn who_is_not_trusted_is_closed_and_counted_and_its_header_means_nothing() {
    let house = proxied(Plan::new(5))
        .settings(|settings| {
            settings.proxy_from = vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
        })
        .open();
    let mut stranger = connect(&house);
    let _ = stranger.stream.write_all(&from_host(7));
    stranger.closed();
    assert_eq!(house.count("ending untrusted_proxy"), 1);
    assert_eq!(house.gateway.connections(), 0);
    house.app(1).ping();
}

#[test]
fn half_a_header_and_silence_meets_the_handshake_deadline_and_holds_up_nobody() {
    let short = Duration::from_millis(400);
    let house = proxied(Plan::new(5)).settings(|settings| settings.handshake_timeout = short).open();
    for part in [&from_host(7)[..20], b"PROXY TCP4 192.0.2", b""] {
        let began = Instant::now();
        let mut silent = connect(&house);
        silent.write(part);
        app_behind(&house, &from_host(8), 1).ping();
        silent.closed();
        assert!(began.elapsed() + CLOCK_STEP >= short, "{part:?}");
    }
    assert_eq!(house.count("ending handshake_timeout"), 3);
    // A header that is complete starts no new deadline: it counts from accept.
    let mut slow = connect(&house);
    let header = from_host(9);
    let began = Instant::now();
    for byte in &header {
        slow.write(&[*byte]);
    }
    slow.closed_with(Status::TimedOut);
    assert!(began.elapsed() < short * 2 + Duration::from_secs(2), "{:?}", began.elapsed());
    eventually("all are gone", || house.gateway.connections() == 0);
}

#[test]
fn a_header_of_64_kib_is_refused_by_its_length() {
    let house = proxied(Plan::new(5)).open();
    let mut client = connect(&house);
    let addresses = [192, 0, 2, 7, 127, 0, 0, 1, 0x30, 0x39, 0x1E, 0x14];
    let tlvs = [0x05, 0xFF, 0xF0].into_iter().chain(std::iter::repeat_n(0, 65_520));
    let long = header(1, &addresses.into_iter().chain(tlvs).collect::<Vec<_>>());
    // Its first bytes are enough.
    client.write(&long[..16]);
    client.closed();
    assert_eq!(house.count("ending bad_proxy_header"), 1);
    let mut client = connect(&house);
    let _ = client.stream.write_all(&long);
    client.closed();
    assert_eq!(house.count("ending bad_proxy_header"), 2);
    // What balancers really add is taken.
    let some = header(1, &[&addresses[..], &[0x05, 1, 0], &[7; 256]].concat());
    app_behind(&house, &some, 1).ping();
}

#[test]
fn what_is_no_header_is_closed_without_a_word_and_counted() {
    let house = proxied(Plan::new(5)).open();
    let first_frame = request(1, None, &hello());
    let too_new = [SIGNATURE, &[0x31, 0x11, 0, 0]].concat();
    for bytes in [&first_frame[..], b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 nonsense\r\n", &too_new] {
        let mut client = connect(&house);
        let _ = client.stream.write_all(bytes);
        client.closed();
    }
    assert_eq!(house.count("ending bad_proxy_header"), 4);
    assert_eq!(house.count("ending bad_frame"), 0);
}

#[test]
fn header_and_first_frames_may_come_in_any_pieces() {
    let house = proxied(Plan::new(5)).open();
    let token = house.token(1);
    let frames = [
        request(1, None, &hello()),
        request(2, None, &Request::Auth { token: token.as_bytes() }),
        request(3, None, &Request::Ping { client_time: 5 }),
    ];
    for header in [from_host(7), b"PROXY TCP4 192.0.2.7 127.0.0.1 12345 7700\r\n".to_vec()] {
        let all = [&header[..], &frames.concat()].concat();
        let first_frame_ends = header.len() + frames[0].len();
        for at in (0..=first_frame_ends).chain([all.len() - 1, all.len()]) {
            let mut client = connect(&house);
            client.write(&all[..at]);
            // Where the split is behind a whole frame, its answer shows that the first piece was read alone.
            if at == first_frame_ends {
                assert_eq!(client.answer_to(1).status, Status::Ok);
                client.write(&all[at..]);
            } else {
                client.write(&all[at..]);
                assert_eq!(client.answer_to(1).status, Status::Ok, "split at {at}");
            }
            assert_eq!(client.answer_to(2).status, Status::Ok, "split at {at}");
            assert_eq!(client.answer_to(3).status, Status::Ok, "split at {at}");
        }
        let mut client = connect(&house);
        for byte in &all {
            client.write(&[*byte]);
        }
        assert_eq!(client.answer_to(3).status, Status::Ok);
    }
    assert_eq!(house.count("ending bad_proxy_header") + house.count("ending bad_frame"), 0);
}

#[test]
fn on_the_clients_port_a_header_is_a_bad_frame() {
    let house = proxied(Plan::new(5)).limits(|limits| limits.per_ip = rate(1, 2)).open();
    for header in [from_host(7), b"PROXY TCP4 192.0.2.7 127.0.0.1 12345 7700\r\n".to_vec()] {
        let mut client = Client::connect(house.addr());
        client.write(&header);
        client.closed_with(Status::BadFrame);
    }
    assert_eq!(house.count("ending bad_frame"), 2);
    assert_eq!(house.count("ending bad_proxy_header"), 0);
}

#[test]
fn who_has_not_said_whom_it_connects_does_not_hold_up_the_end() {
    let house = proxied(Plan::new(5)).open();
    let mut waiting = connect(&house);
    waiting.write(&from_host(7)[..3]);
    eventually("it is accepted", || house.gateway.connections() == 1);
    assert!(house.operate(house.gateway.drain()));
    waiting.closed();
    assert_eq!(house.count("ending drained"), 1);
}

#[test]
fn the_cap_counts_connections_of_both_ports() {
    let house = proxied(Plan::new(5)).settings(|settings| settings.connections_max = 1).open();
    let mut first = app_behind(&house, &from_host(7), 1);
    Client::connect(house.addr()).closed_with(Status::TooManyConnections);
    connect(&house).closed_with(Status::TooManyConnections);
    first.ping();
    assert_eq!(house.count("ending refused"), 2);
}
