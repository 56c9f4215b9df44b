//! Every fault of a byte stream, at every stage of a connection: told at the first byte that shows it, counted once,
//! and nothing to those beside it.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use rushgate::protocol::frame::{FRAME_BYTES_MAX_AFTER_AUTH, FRAME_BYTES_MAX_BEFORE_AUTH};
use rushgate::protocol::{Head, Opcode, Request, Status};

use super::bystander::Bystander;
use super::house::{House, Plan, SALE, SKU};
use super::wire::{CLOCK_STEP, Client, buy, eventually, frame, hello, request};

/// What OpenSSL 3 sends first to a server that it takes for one of TLS.
const TLS_CLIENT_HELLO_HEX: &str = include_str!("tls_client_hello.hex");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Greeted,
    App,
    Service,
}

const STAGES: [Stage; 4] = [Stage::New, Stage::Greeted, Stage::App, Stage::Service];

impl Stage {
    fn client(self, house: &House) -> Client {
        match self {
            Self::New => Client::connect(house.addr()),
            Self::Greeted => {
                let mut client = Client::connect(house.addr());
                assert_eq!(client.ask(&hello()).status, Status::Ok);
                client
            }
            Self::App => house.app(5),
            Self::Service => house.service(),
        }
    }

    const fn frame_bytes_max(self) -> usize {
        match self {
            Self::New | Self::Greeted => FRAME_BYTES_MAX_BEFORE_AUTH,
            Self::App | Self::Service => FRAME_BYTES_MAX_AFTER_AUTH,
        }
    }
}

/// Puts the checksum right again, so that what lies behind it is met.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[..20]), &frame[24..]);
    frame[20..24].copy_from_slice(&crc.to_be_bytes());
    frame
}

fn tls_client_hello() -> Vec<u8> {
    let digits: Vec<u8> = TLS_CLIENT_HELLO_HEX.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap();
    digits.chunks(2).map(|pair| u8::try_from(digit(pair[0]) * 16 + digit(pair[1])).unwrap()).collect()
}

/// (what, bytes, status). The bytes end with the first that shows the fault, and nothing follows.
fn faults(stage: Stage) -> Vec<(String, Vec<u8>, Status)> {
    let mut faults = Vec::new();
    let cap = u32::try_from(stage.frame_bytes_max()).unwrap();
    for length in [0, 1, 19, cap - 3, cap, 0xFFFF, 0x7FFF_FFFF, u32::MAX] {
        faults.push((format!("length {length}"), length.to_be_bytes().to_vec(), Status::BadFrame));
    }
    for version in [0, 2, 0x80, 255] {
        let bytes = [&20_u32.to_be_bytes()[..], &[version]].concat();
        faults.push((format!("version {version}"), bytes, Status::BadVersion));
    }
    let good = frame(Head::request(Opcode::Ping, 9), &[(0x7000, b"ext")], &[0x11; 8]);
    // Every field that the checksum covers, and the checksum itself.
    for at in [5, 6, 8, 12, 14, 16, 20, 21, 22, 23, 24, 30, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        faults.push((format!("byte {at} changed"), bytes, Status::BadFrame));
    }
    let with = |at: usize, value: u16| {
        let mut bytes = good.clone();
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        sealed(bytes)
    };
    // The frame has 7 bytes of TLVs and 8 of body.
    for ext_len in [1, 2, 3, 4, 5, 6, 8, 15, 16, 17, u16::MAX] {
        faults.push((format!("ext_len {ext_len}"), with(14, ext_len), Status::BadFrame));
    }
    for tlv_len in [0, 1, 2, 4, 11, u16::MAX] {
        faults.push((format!("a TLV of {tlv_len} bytes in 3"), with(26, tlv_len), Status::BadFrame));
    }
    let spoken = |what: &str, bytes: &[u8]| (what.to_owned(), bytes.to_vec(), Status::BadFrame);
    faults.push(spoken("TLS", &tls_client_hello()));
    faults.push(spoken("HTTP", b"POST /buy HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 2\r\n\r\n{}"));
    faults.push(spoken("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    faults.push(spoken("PROXY", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"));
    faults.push(spoken("SSH", b"SSH-2.0-OpenSSH_9.2p1\r\n"));
    faults
}

#[test]
fn every_fault_of_a_stream_at_every_stage_is_told_at_once_counted_once_and_hurts_nobody() {
    let house = Plan::new(5).open();
    let bystander = Bystander::watch(house.app(77), SALE);
    for stage in STAGES {
        for (what, bytes, status) in faults(stage) {
            let before = (house.count("ending bad_frame"), house.count(status.name()));
            let mut client = stage.client(&house);
            client.write(&bytes);
            let last = client.push(Opcode::Error);
            assert_eq!(last.status, status, "{stage:?}, {what}: {last:?}");
            client.closed();
            let after = (house.count("ending bad_frame"), house.count(status.name()));
            assert_eq!(after, (before.0 + 1, before.1 + 1), "{stage:?}, {what}");
        }
    }
    bystander.unharmed();
    eventually("all are gone", || house.gateway.connections() == 0);
}

#[test]
fn frames_as_long_and_as_short_as_may_be_are_taken() {
    let house = Plan::new(5).open();
    for stage in STAGES {
        let mut client = stage.client(&house);
        let body = [0; 8];
        let room = stage.frame_bytes_max() - 24 - 8 - 4;
        client.write(&frame(Head::request(Opcode::Ping, 9), &[(0x7000, &vec![7; room])], &body));
        let expected = if stage == Stage::New { Status::Unexpected } else { Status::Ok };
        assert_eq!(client.answer_to(9).status, expected, "{stage:?}");
        // An empty body is a frame, if no good request.
        client.write(&frame(Head::request(Opcode::Ping, 10), &[], &[]));
        let expected = if stage == Stage::New { Status::Unexpected } else { Status::BadBody };
        assert_eq!(client.answer_to(10).status, expected, "{stage:?}");
    }
}

#[test]
fn a_truncated_frame_then_silence_is_closed_at_every_stage_wherever_it_was_cut() {
    let timeout = Duration::from_millis(500);
    let house = Plan::new(5).settings(|settings| settings.frame_timeout = timeout).open();
    let bystander = Bystander::watch(house.app(77), SALE);
    let whole = request(9, None, &buy(SALE, SKU, 1));
    let cuts = [1, 3, 4, 5, 20, 23, 24, 25, whole.len() - 1];
    let mut waiting = Vec::new();
    for stage in STAGES {
        for cut in cuts {
            let mut client = stage.client(&house);
            let began = Instant::now();
            client.write(&whole[..cut]);
            waiting.push((client, began, stage, cut));
        }
    }
    let count = waiting.len() as u64;
    for (mut client, began, stage, cut) in waiting {
        let last = client.push(Opcode::Error);
        assert_eq!(last.status, Status::TimedOut, "{stage:?} cut at {cut}: {last:?}");
        assert!(began.elapsed() + CLOCK_STEP >= timeout, "{stage:?} cut at {cut}: too early");
        client.closed();
    }
    assert_eq!((house.count("ending frame_timeout"), house.count("TIMED_OUT")), (count, count));
    assert_eq!(house.sold(), (0, 0));
    bystander.unharmed();
}

#[test]
fn one_byte_every_second_is_closed_at_the_frame_deadline_of_the_first() {
    let timeout = Duration::from_millis(2500);
    let house = Plan::new(5).settings(|settings| settings.frame_timeout = timeout).open();
    let bystander = Bystander::watch(house.app(77), SALE);
    let whole = frame(Head::request(Opcode::Ping, 9), &[], &[0; 8]);
    let mut drippers: Vec<(Client, Instant)> =
        STAGES.map(|stage| (stage.client(&house), Instant::now())).into();
    for (client, _) in &drippers {
        client.stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    }
    for (client, began) in &mut drippers {
        *began = Instant::now();
        client.write(&whole[..1]);
    }
    // The first of them keeps the pace: nothing came to it for a second, so each sends another byte.
    let mut sent = 1;
    loop {
        let (client, began) = &mut drippers[0];
        match client.stream.peek(&mut [0; 1]) {
            Ok(_) => break,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                assert!(began.elapsed() < Duration::from_secs(20), "never timed out");
            }
        }
        for (client, _) in &mut drippers {
            // One that is closed already may say so.
            let _ = client.stream.write_all(&whole[sent..=sent]);
        }
        sent += 1;
    }
    assert!((2..=8).contains(&sent), "{sent} bytes within 2.5 s");
    for (client, began) in &mut drippers {
        client.stream.set_read_timeout(Some(super::wire::PATIENCE)).unwrap();
        client.closed_with(Status::TimedOut);
        assert!(began.elapsed() + CLOCK_STEP >= timeout, "too early");
    }
    assert_eq!(house.count("ending frame_timeout"), 4);
    bystander.unharmed();
}

#[test]
fn a_flood_behind_a_fault_is_read_by_nobody_and_its_connection_ends() {
    let house = Plan::new(5).open();
    let bystander = Bystander::watch(house.app(77), SALE);
    let pings: Vec<u8> =
        (1..=1000).flat_map(|id| request(id, None, &Request::Ping { client_time: 0 })).collect();
    for stage in STAGES {
        let mut client = stage.client(&house);
        let answered = house.count("BAD_FRAME");
        client.write(&[0; 4]);
        let began = Instant::now();
        // Writes for as long as it may: 64 MB would be much more than any buffer on the way.
        let mut bytes = 0;
        while bytes < 64 << 20 && client.stream.write_all(&pings).is_ok() {
            bytes += pings.len();
        }
        assert!(bytes < 64 << 20, "{stage:?}: everything was taken");
        assert!(began.elapsed() < Duration::from_secs(10), "{stage:?}");
        assert_eq!(house.count("BAD_FRAME"), answered + 1);
        let mut said = Vec::new();
        // A reset in place of the ERROR is right for who goes on writing.
        let _ = client.stream.read_to_end(&mut said);
        assert!(said.len() <= 256, "{stage:?}: {} bytes of answers", said.len());
    }
    assert_eq!(house.count("ending bad_frame"), 4);
    bystander.unharmed();
}
