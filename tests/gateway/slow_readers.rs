//! Clients that do not read: what waits for them is bounded, nobody else notices, and reading again mends it.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rushgate::protocol::{ActivityId, Opcode, Request, Status};

use super::bystander::Bystander;
use super::house::{House, Plan, SALE, SKU, sale};
use super::wire::{CLOCK_STEP, Client, PATIENCE, buy, eventually, hello, request};

/// Of an ACTIVITY reply with a thousand SKUs.
const REPLY_BYTES: u64 = 16_064;

/// The kernel holds little for it, so that what is not read stays with the gateway.
fn connect_narrow(addr: SocketAddr) -> Client {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&addr.into()).unwrap();
    Client::over(TcpStream::from(socket))
}

fn narrow(house: &House, token: &str) -> Client {
    let mut client = connect_narrow(house.addr());
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    assert_eq!(client.auth(token).status, Status::Ok);
    client
}

fn great_sale() -> Plan {
    let skus: Vec<(u16, u64)> = (1..=1000).map(|sku| (sku, 1)).collect();
    Plan::with(vec![sale(SALE, &skus, 1)]).settings(|settings| settings.outbound_bytes_max = 64 << 10)
}

fn activity_requests(count: u32) -> Vec<u8> {
    let ask = Request::Activity { activity: ActivityId(SALE) };
    (1000..1000 + count).flat_map(|id| request(id, None, &ask)).collect()
}

#[test]
fn a_client_that_never_reads_is_closed_and_what_waits_for_it_is_bounded() {
    let house = great_sale().settings(|settings| settings.write_timeout = Duration::from_millis(700)).open();
    let mut client = narrow(&house, &house.token(1));
    let mut bystander = house.app(2);
    client.stream.set_nonblocking(true).unwrap();
    let bytes = activity_requests(1000);
    let began = Instant::now();
    let (mut at, mut pings) = (0, 0);
    let others = house.count("OK");
    // Writes as much as it can, 1000 requests over and over, until the gateway has had enough.
    loop {
        bystander.ping();
        pings += 1;
        match client.stream.write(&bytes[at..]) {
            Ok(written) => at = (at + written) % bytes.len(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        if house.count("ending slow_reader") > 0 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "never closed");
    }
    assert!(began.elapsed() + CLOCK_STEP >= Duration::from_millis(700));
    eventually("it is gone", || house.gateway.connections() == 1);
    // What was produced fits the outbound bound, one reply, and the kernel's buffers on both ends.
    let produced = (house.count("OK") - others - pings) * REPLY_BYTES;
    assert!(produced < 8 << 20, "{produced} bytes of replies for a client that reads none");
    assert_eq!(house.count("ending slow_reader"), 1);
}

#[test]
fn a_bad_frame_behind_requests_that_had_to_wait_is_told_once_and_closes() {
    let house = great_sale().open();
    let mut client = house.app(1);
    let mut bad = request(2000, None, &buy(SALE, SKU, 1));
    *bad.last_mut().unwrap() ^= 1;
    // Their replies are over the outbound bound many times: the bad frame is read with them and waits behind them.
    client.write(&[activity_requests(40), bad].concat());
    for id in 1000..1040 {
        let answer = client.read().unwrap();
        assert_eq!((answer.id, answer.status), (id, Status::Ok));
    }
    client.closed_with(Status::BadFrame);
    assert_eq!((house.count("ending bad_frame"), house.count("BAD_FRAME")), (1, 1));
}

#[test]
fn a_slow_but_steady_reader_is_not_timed_out_for_what_the_gateway_has_not_read_yet() {
    const COUNT: u32 = 400;
    let house = great_sale()
        .settings(|settings| {
            settings.frame_timeout = Duration::from_millis(300);
            settings.keepalive = Duration::from_millis(300);
        })
        .open();
    let mut client = narrow(&house, &house.token(1));
    client.write(&activity_requests(COUNT));
    let began = Instant::now();
    let (mut next, mut pinged) = (1000, 0);
    while next < 1000 + COUNT {
        let Some(answer) = client.read() else {
            panic!("closed before reply {next}, after {:?}", began.elapsed());
        };
        assert_ne!(answer.status, Status::TimedOut, "before reply {next}, after {:?}", began.elapsed());
        next += u32::from(answer.opcode == Opcode::Activity);
        // Alive all the time, as the protocol asks.
        if began.elapsed().as_millis() / 100 > pinged {
            pinged += 1;
            client.send(&Request::Ping { client_time: 0 });
        }
        // The pace of a weak radio link: some 5 MB/s.
        std::thread::park_timeout(Duration::from_millis(3));
    }
    assert!(began.elapsed() > Duration::from_secs(1), "too fast to show anything");
    client.ping();
}

#[test]
fn pushes_to_a_connection_that_does_not_read_are_bounded() {
    const ACTIVITIES: u32 = 60;
    let skus: Vec<(u16, u64)> = (1..=1000).map(|sku| (sku, 1)).collect();
    let mut activities = vec![sale(SALE, &skus, 1)];
    activities.extend((1..=ACTIVITIES).map(|id| sale(id, &[(SKU, 400)], 1)));
    let house = Plan::with(activities)
        .settings(|settings| {
            settings.outbound_bytes_max = 64 << 10;
            settings.write_timeout = Duration::from_secs(600);
            // However busy the machine is, every purchase is QUEUED.
            settings.stock.patience_ms = 60_000;
            settings.stock.unconfirmed_after_ms = 60_000;
        })
        .open();
    let service = house.mint(rushgate::admission::identity::IdentityKind::Service, 3600);
    let mut mute = narrow(&house, &service);
    let mut other = Client::login(house.addr(), &service);
    let buy_for_all = |client: &mut Client, activity: u32| {
        let ids: Vec<u32> = (1..=300).map(|user| client.send_for(user, &buy(activity, SKU, 1))).collect();
        for id in ids {
            assert_eq!(client.answer_to(id).status, Status::Queued);
        }
    };
    // From now on it hears of these users, and does not read. Replies that do not fit come first.
    for user in 1..=300 {
        assert_eq!(mute.ask_for(user, &buy(1, SKU, 1)).status, Status::Queued);
    }
    let ask = Request::Activity { activity: ActivityId(SALE) };
    let full: Vec<u8> = (5000..5400).flat_map(|id| request(id, Some(1), &ask)).collect();
    mute.write(&full);
    // 300 pushes of 68 bytes each time. Ten times are enough where its thread takes up all of them; of those that it
    // leaves waiting some are dropped, and it takes more.
    for activity in 2..=ACTIVITIES {
        if house.count("ending slow_reader") > 0 {
            break;
        }
        buy_for_all(&mut other, activity);
    }
    eventually("the one that does not read is closed", || house.count("ending slow_reader") == 1);
    other.ping();
}

#[test]
fn a_flood_of_requests_whose_refusals_nobody_reads_ends_and_leaves_the_others_their_pace() {
    let house = Plan::new(5)
        .settings(|settings| {
            settings.outbound_bytes_max = 64 << 10;
            settings.write_timeout = Duration::from_millis(700);
        })
        .open();
    let bystander = Bystander::watch(house.app(77), SALE);
    let mut flooding: Vec<Client> = (1..=4).map(|user| narrow(&house, &house.token(user))).collect();
    let bytes: Vec<u8> = (1..=10_000).flat_map(|id| request(id, None, &buy(SALE + 1, SKU, 1))).collect();
    let threads: Vec<_> = flooding
        .iter()
        .map(|client| {
            let (mut writing, bytes) = (client.stream.try_clone().unwrap(), bytes.clone());
            // Ends with the connection.
            std::thread::spawn(move || while writing.write_all(&bytes).is_ok() {})
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    eventually("all are gone", || house.gateway.connections() == 1);
    assert_eq!(house.count("ending slow_reader"), 4);
    // Each has had what fits the outbound bound and the kernel's buffers, of 24 bytes.
    let produced = house.count("UNKNOWN_ACTIVITY") * 24 / 4;
    assert!(produced < 8 << 20, "{produced} bytes of refusals for a client that reads none");
    flooding.clear();
    bystander.unharmed();
}
