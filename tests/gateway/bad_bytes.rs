//! Bytes that are no frames of ours, frames in odd pieces, and frames that never end.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use rushgate::protocol::{Head, Opcode, Request, Status};

use super::house::{Plan, SALE, SKU};
use super::wire::{CLOCK_STEP, Client, buy, frame, hello, request, result};

#[test]
fn other_protocols_spoken_to_the_port_are_told_bad_frame_and_closed() {
    let house = Plan::new(1).open();
    let tls: Vec<u8> = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3][..], &[0x5A; 600]].concat();
    let http = b"GET / HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n".to_vec();
    let proxy = b"PROXY TCP4 192.0.2.1 192.0.2.2 5000 7700\r\n".to_vec();
    let flood = vec![0xFF; 300_000];
    for bytes in [tls, http, proxy, flood] {
        let mut client = Client::connect(house.addr());
        // A peer that is closed at the first bytes may see that while it still writes.
        let _ = std::io::Write::write_all(&mut client.stream, &bytes);
        client.closed_with(Status::BadFrame);
    }
    assert_eq!((house.count("ending bad_frame"), house.count("BAD_FRAME")), (4, 4));
    house.app(1).ping();
}

#[test]
fn a_bad_frame_after_auth_closes_and_counts_once() {
    let house = Plan::new(9).open();
    let good = request(7, None, &buy(SALE, SKU, 1));
    let (mut crc, mut version, mut long, mut short) = (good.clone(), good.clone(), good.clone(), good);
    crc[30] ^= 1;
    version[4] = 2;
    long[..4].copy_from_slice(&4093_u32.to_be_bytes());
    short[..4].copy_from_slice(&19_u32.to_be_bytes());
    for (bytes, status) in [
        (crc, Status::BadFrame),
        (version, Status::BadVersion),
        (long, Status::BadFrame),
        (short, Status::BadFrame),
    ] {
        let mut client = house.app(5);
        // What stands before it is answered, what stands behind it is not looked at.
        client
            .write(&[request(6, None, &result(SALE)), bytes, request(8, None, &buy(SALE, SKU, 1))].concat());
        assert_eq!(client.answer_to(6).status, Status::NoOrder);
        client.closed_with(status);
    }
    assert_eq!(
        (house.count("ending bad_frame"), house.count("BAD_FRAME"), house.count("BAD_VERSION")),
        (4, 3, 1)
    );
    assert_eq!(house.sold(), (0, 0));
}

#[test]
fn a_truncated_frame_then_silence_is_timed_out_from_its_first_byte() {
    let house = Plan::new(1).settings(|settings| settings.frame_timeout = Duration::from_millis(300)).open();
    let mut client = house.app(1);
    let began = Instant::now();
    client.write(&request(9, None, &buy(SALE, SKU, 1))[..23]);
    client.closed_with(Status::TimedOut);
    assert!(began.elapsed() + CLOCK_STEP >= Duration::from_millis(300));
    assert_eq!((house.count("ending frame_timeout"), house.count("TIMED_OUT")), (1, 1));
}

#[test]
fn bytes_that_trickle_in_do_not_extend_the_frame_deadline() {
    let house = Plan::new(1).settings(|settings| settings.frame_timeout = Duration::from_millis(400)).open();
    let mut client = house.app(1);
    let long = frame(Head::request(Opcode::Ping, 9), &[(0x7000, &[0; 4000])], &[0; 8]);
    client.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let began = Instant::now();
    let mut bytes = long.iter();
    // One byte each time that nothing has come for 20 ms: 80 seconds for the frame.
    let mut closing = [0; 256];
    let count = loop {
        client.write(&[*bytes.next().unwrap()]);
        match std::io::Read::read(&mut client.stream, &mut closing) {
            Ok(count) => break count,
            Err(_) => assert!(began.elapsed() < Duration::from_secs(20), "never timed out"),
        }
    };
    assert!(began.elapsed() + CLOCK_STEP >= Duration::from_millis(400), "too early");
    assert_eq!(closing[12..14], Status::TimedOut.code().to_be_bytes(), "{:?}", &closing[..count]);
    assert_eq!(house.count("ending frame_timeout"), 1);
}

#[test]
fn a_conversation_one_byte_at_a_time_is_like_any_other() {
    let house = Plan::new(1).open();
    let token = house.token(3);
    let mut client = Client::connect(house.addr());
    let bytes = [
        request(1, None, &hello()),
        request(2, None, &Request::Auth { token: token.as_bytes() }),
        request(3, None, &buy(SALE, SKU, 1)),
    ]
    .concat();
    for byte in bytes {
        client.write(&[byte]);
    }
    let statuses = [1, 2, 3].map(|id| client.answer_to(id).status);
    assert_eq!(statuses, [Status::Ok, Status::Ok, Status::Queued]);
}

#[test]
fn hello_auth_and_buy_in_one_write_split_at_every_byte() {
    let house = Plan::new(1000).open();
    let token = house.token(1);
    let bytes = [
        request(1, None, &hello()),
        request(2, None, &Request::Auth { token: token.as_bytes() }),
        request(3, None, &buy(SALE, SKU, 1)),
    ]
    .concat();
    for cut in 0..=bytes.len() {
        let mut client = Client::connect(house.addr());
        client.write(&bytes[..cut]);
        client.write(&bytes[cut..]);
        let statuses = [1, 2, 3].map(|id| client.answer_to(id).status);
        let last = if cut == 0 { Status::Queued } else { Status::Already };
        assert_eq!(statuses, [Status::Ok, Status::Ok, last], "cut at {cut}");
    }
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn replies_to_hello_and_auth_come_first_when_all_is_in_one_write() {
    let house = Plan::new(10).open();
    let token = house.token(1);
    let mut client = Client::connect(house.addr());
    client.write(
        &[
            request(1, None, &hello()),
            request(2, None, &Request::Auth { token: token.as_bytes() }),
            request(3, None, &buy(SALE, SKU, 2)),
            request(4, None, &result(SALE)),
        ]
        .concat(),
    );
    assert_eq!([client.read().unwrap().id, client.read().unwrap().id], [1, 2]);
    assert_eq!(client.answer_to(3).order().quantity, 2);
    assert!(matches!(client.answer_to(4).status, Status::NoOrder | Status::Ok));
}

#[test]
fn a_half_close_still_gets_every_reply() {
    let house = Plan::new(10).open();
    let mut client = house.app(1);
    let ids = [
        client.send(&Request::Ping { client_time: 1 }),
        client.send(&buy(SALE, SKU, 1)),
        client.send(&buy(SALE + 1, SKU, 1)),
    ];
    client.stream.shutdown(Shutdown::Write).unwrap();
    let statuses = ids.map(|id| client.answer_to(id).status);
    assert_eq!(statuses, [Status::Ok, Status::Queued, Status::UnknownActivity]);
    // Pushes may still be there; then the end.
    while let Some(push) = client.read() {
        assert_eq!(push.opcode, Opcode::ResultPush);
    }
    assert_eq!(house.count("ending client"), 1);
}

#[test]
fn an_unfinished_frame_at_the_end_is_nothing() {
    let house = Plan::new(10).open();
    let mut client = house.app(1);
    client.write(&request(5, None, &buy(SALE, SKU, 1))[..31]);
    client.finish_writing();
    client.closed();
    assert_eq!(house.sold(), (0, 0));
}
