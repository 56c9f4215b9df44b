//! TLVs of every length that a frame has room for: the right status to the last byte, on each kind of connection.

use rushgate::protocol::frame::{FRAME_BYTES_MAX_AFTER_AUTH, FRAME_BYTES_MAX_BEFORE_AUTH, HEADER_BYTES};
use rushgate::protocol::{Head, Opcode, Status, tlv};

use super::bystander::Bystander;
use super::house::{House, Plan, SALE};
use super::wire::{Client, frame, hello};

const TLV_HEAD_BYTES: usize = 4;
/// Asked at a time; as many as fit well into the buffers of a socket.
const AT_ONCE: usize = 32;

const KINDS: [u16; 8] =
    [tlv::USER, tlv::CLIENT_ADDR, tlv::DEVICE, tlv::CLAIMS, 0x0000, 0x0010, 0x0011, 0xFFFF];

/// Whether a value of so many bytes of "x" is a value of this type.
fn fits(kind: u16, length: usize) -> bool {
    match kind {
        tlv::USER => length == 8,
        tlv::CLIENT_ADDR => length == 4 || length == 16,
        tlv::DEVICE => (1..=64).contains(&length),
        tlv::CLAIMS => (1..=256).contains(&length),
        _ => true,
    }
}

/// Sends a request with one TLV of each length from 0 to the greatest that `frame_bytes_max` has room for, behind
/// those of `always`; `expected` tells the status.
fn ask_with_every_length(
    client: &mut Client,
    (opcode, body): (Opcode, &[u8]),
    (kind, always): (u16, &[(u16, &[u8])]),
    frame_bytes_max: usize,
    expected: impl Fn(usize) -> Status,
) -> usize {
    let always_bytes: usize = always.iter().map(|(_, value)| TLV_HEAD_BYTES + value.len()).sum();
    let room = frame_bytes_max - HEADER_BYTES - body.len() - always_bytes - TLV_HEAD_BYTES;
    let lengths: Vec<usize> = (0..=room).collect();
    for some in lengths.chunks(AT_ONCE) {
        let mut asked = Vec::new();
        let mut bytes = Vec::new();
        for &length in some {
            let value = vec![b'x'; length];
            let tlvs = [always, &[(kind, &value)]].concat();
            let id = client.next_id();
            bytes.extend(frame(Head::request(opcode, id), &tlvs, body));
            asked.push((id, length));
        }
        client.write(&bytes);
        for (id, length) in asked {
            let answer = client.answer_to(id);
            let what = format!("{opcode:?} with TLV {kind:#06x} of {length} bytes");
            assert_eq!((answer.status, answer.opcode), (expected(length), opcode), "{what}");
        }
    }
    lengths.len()
}

fn status_of(kind: u16, good: Status) -> impl Fn(usize) -> Status {
    move |length| if fits(kind, length) { good } else { Status::BadBody }
}

fn house_and_bystander() -> (House, Bystander) {
    let house = Plan::new(5).open();
    let bystander = Bystander::watch(house.app(77), SALE);
    (house, bystander)
}

#[test]
fn on_an_app_connection() {
    let (house, bystander) = house_and_bystander();
    let mut client = house.app(1);
    let mut bad = 0;
    for kind in KINDS {
        let good = status_of(kind, Status::NoOrder);
        let ask = (Opcode::Result, &SALE.to_be_bytes()[..]);
        let asked = ask_with_every_length(&mut client, ask, (kind, &[]), FRAME_BYTES_MAX_AFTER_AUTH, good);
        assert!(asked > 4000, "{asked} lengths");
        bad += (0..asked).filter(|length| !fits(kind, *length)).count() as u64;
    }
    assert_eq!(house.count("BAD_BODY"), bad);
    client.ping();
    bystander.unharmed();
}

#[test]
fn on_a_service_connection() {
    let (house, bystander) = house_and_bystander();
    let mut back_end = house.service();
    let user = 9_u64.to_be_bytes();
    for kind in KINDS {
        let activity = SALE.to_be_bytes();
        let ask = (Opcode::Result, &activity[..]);
        let good = status_of(kind, Status::NoOrder);
        // USER alone is the user; of two the first one counts, and nobody looks at the second.
        let cap = FRAME_BYTES_MAX_AFTER_AUTH;
        ask_with_every_length(&mut back_end, ask, (kind, &[(tlv::USER, &user)]), cap, |length| {
            if kind == tlv::USER { Status::NoOrder } else { good(length) }
        });
        // Without a user: what is malformed comes before what is missing. "xxxxxxxx" is a possible user.
        ask_with_every_length(&mut back_end, ask, (kind, &[]), cap, |length| match good(length) {
            Status::NoOrder if kind != tlv::USER => Status::UserRequired,
            status => status,
        });
    }
    back_end.ping();
    bystander.unharmed();
}

#[test]
fn before_auth() {
    let (house, bystander) = house_and_bystander();
    let mut client = Client::connect(house.addr());
    assert_eq!(client.ask(&hello()).status, Status::Ok);
    for kind in KINDS {
        let good = status_of(kind, Status::Ok);
        let ask = (Opcode::Ping, &[0; 8][..]);
        let asked = ask_with_every_length(&mut client, ask, (kind, &[]), FRAME_BYTES_MAX_BEFORE_AUTH, good);
        assert!(asked > 980, "{asked} lengths");
    }
    assert_eq!(client.auth(&house.token(1)).status, Status::Ok);
    bystander.unharmed();
}

#[test]
fn as_many_as_fit() {
    let (house, bystander) = house_and_bystander();
    let mut back_end = house.service();
    let activity = SALE.to_be_bytes();
    let user = 9_u64.to_be_bytes();
    let room = FRAME_BYTES_MAX_AFTER_AUTH - HEADER_BYTES - activity.len() - TLV_HEAD_BYTES - user.len();
    for kind in [tlv::DEVICE, 0x7000] {
        // The user is the last of a thousand empty ones, or the first.
        let mut tlvs: Vec<(u16, &[u8])> = vec![(kind, &[]); room / TLV_HEAD_BYTES];
        tlvs.push((tlv::USER, &user));
        let expected = if kind == tlv::DEVICE { Status::BadBody } else { Status::NoOrder };
        for _ in 0..2 {
            let id = back_end.next_id();
            back_end.write(&frame(Head::request(Opcode::Result, id), &tlvs, &activity));
            assert_eq!(back_end.answer_to(id).status, expected, "{} TLVs {kind:#06x}", tlvs.len());
            tlvs.reverse();
        }
    }
    back_end.ping();
    bystander.unharmed();
}
