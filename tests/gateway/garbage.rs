//! Conversations with random damage, seeded: whatever comes, the connection ends in a way that is counted, and the
//! gateway goes on. (A task that panicked would end uncounted.)

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use rushgate::gateway::Ending;
use rushgate::protocol::frame::{FRAME_BYTES_MAX_AFTER_AUTH, REPLY_BYTES_MAX};
use rushgate::protocol::{ActivityId, Request, SkuId, Status, decode};

use super::house::{House, Plan, SALE, SKU};
use super::wire::{Client, buy, eventually, hello, request, result};

const CONVERSATIONS: u64 = 600;

fn conversation(house: &House, random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let token = if random.bool() {
        house.token(random.u64(1..50))
    } else {
        house.mint(rushgate::admission::identity::IdentityKind::Service, 3600)
    };
    let activity = ActivityId(SALE);
    let mut frames =
        vec![request(1, None, &hello()), request(2, None, &Request::Auth { token: token.as_bytes() })];
    for id in 3..random.u32(4..20) {
        let what = match random.u8(0..8) {
            0 | 1 => buy(SALE, SKU, random.u16(0..4)),
            2 => result(SALE),
            3 => Request::Activity { activity },
            4 => Request::Token { activity, sku: SkuId(SKU) },
            5 => Request::Answer { activity, answer: b"42" },
            6 => Request::Ping { client_time: random.u64(..) },
            _ => Request::Challenge { activity },
        };
        frames.push(request(id, random.bool().then(|| random.u64(1..50)), &what));
    }
    if random.u8(0..4) == 0 {
        frames.push(request(0, None, &Request::Goaway));
    }
    frames
}

/// Changes the frame so that its checksum is right again: what lies behind the checksum is to be met too.
fn damage_inside(frame: &mut [u8], random: &mut fastrand::Rng) {
    let at = random.usize(5..frame.len());
    frame[at] = random.u8(..);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[..20]), &frame[24..]);
    frame[20..24].copy_from_slice(&crc.to_be_bytes());
}

fn damage_outside(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let at = random.usize(0..bytes.len());
    match random.u8(0..4) {
        0 => bytes[at] ^= 1 << random.u8(0..8),
        1 => bytes.truncate(at),
        2 => bytes.insert(at, random.u8(..)),
        _ => {
            bytes.remove(at);
        }
    }
}

/// Every frame that comes back is one, to the last byte.
fn expect_frames(mut bytes: &[u8], seed: u64) {
    while !bytes.is_empty() {
        let frame = decode(bytes, REPLY_BYTES_MAX).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let (frame, taken) = frame.unwrap_or_else(|| panic!("seed {seed}: half a frame at the end"));
        assert!(Status::from_wire(frame.status).is_some(), "seed {seed}");
        bytes = &bytes[taken..];
    }
}

#[test]
fn damaged_conversations_end_counted_and_hurt_nobody() {
    let house = Plan::new(1000)
        .settings(|settings| {
            settings.frame_timeout = Duration::from_secs(5);
            settings.handshake_timeout = Duration::from_secs(5);
        })
        .open();
    let mut bystander = house.app(77);
    for seed in 0..CONVERSATIONS {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut frames = conversation(&house, &mut random);
        for frame in &mut frames {
            if random.u8(0..3) == 0 && frame.len() < FRAME_BYTES_MAX_AFTER_AUTH {
                damage_inside(frame, &mut random);
            }
        }
        let mut bytes = frames.concat();
        for _ in 0..random.u8(0..3) {
            damage_outside(&mut bytes, &mut random);
        }
        let mut client = Client::connect(house.addr());
        let cut = random.usize(0..=bytes.len());
        // The gateway may have closed at the first part.
        let _ = client.stream.write_all(&bytes[..cut]).and_then(|()| client.stream.write_all(&bytes[cut..]));
        let _ = client.stream.shutdown(Shutdown::Write);
        let mut said = Vec::new();
        client.stream.read_to_end(&mut said).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        expect_frames(&said, seed);
        if seed % 50 == 0 {
            bystander.ping();
        }
    }
    eventually("all have ended", || house.gateway.connections() == 1);
    let counters = house.gateway.counters();
    let endings: u64 = Ending::ALL.iter().map(|ending| counters.ending_count(*ending)).sum();
    assert_eq!((endings, house.count("accepted")), (CONVERSATIONS, CONVERSATIONS + 1));
    assert_eq!(bystander.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let (sold, orders) = house.sold();
    assert!(orders > 1 && orders <= 100 && sold >= orders, "{orders} orders of {sold} units");
}
