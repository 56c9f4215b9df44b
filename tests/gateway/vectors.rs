//! The golden vectors, sent by a client: what the gateway answers to each, and that it hurts nobody else.

use rushgate::protocol::{Opcode, Status, decode};
use serde::Deserialize;

use super::house::{House, Plan, SALE, SKU, sale};
use super::wire::{Client, buy, hello};

#[derive(Deserialize)]
struct Entry {
    name: String,
    from: String,
    stage: String,
    hex: String,
    expect: Option<Expect>,
}

#[derive(Deserialize)]
struct Expect {
    status: String,
    connection: String,
    request_id: Option<u32>,
}

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        let digits = self.hex.as_bytes().chunks(2);
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    /// The header's opcode, as far as the bytes are a header.
    fn opcode(&self) -> Option<Opcode> {
        self.bytes().get(5).copied().and_then(Opcode::from_wire)
    }
}

fn from_clients(json: &str) -> impl Iterator<Item = Entry> {
    let entries: Vec<Entry> = serde_json::from_str(json).unwrap();
    entries.into_iter().filter(|entry| entry.from == "client")
}

fn invalid() -> impl Iterator<Item = Entry> {
    from_clients(include_str!("../vectors/invalid.json"))
}

fn valid() -> impl Iterator<Item = Entry> {
    from_clients(include_str!("../vectors/valid.json"))
}

/// A connection at the entry's stage.
fn at_stage(house: &House, entry: &Entry, after_auth: impl FnOnce() -> Client) -> Client {
    if entry.stage == "after_auth" {
        return after_auth();
    }
    let mut client = Client::connect(house.addr());
    if matches!(entry.opcode(), Some(Opcode::Auth | Opcode::Ping)) && entry.bytes()[4] == 1 {
        client.ask(&hello());
    }
    client
}

fn expect_refusal(entry: &Entry, mut client: Client) {
    let name = &entry.name;
    let expect = entry.expect.as_ref().unwrap();
    client.write(&entry.bytes());
    let answer = client.read().unwrap_or_else(|| panic!("{name}: closed without a word"));
    assert_eq!(answer.status.name(), expect.status, "{name}");
    assert_eq!(answer.id, expect.request_id.unwrap_or(0), "{name}");
    if expect.connection == "closes" {
        assert_eq!(answer.opcode, Opcode::Error, "{name}");
        assert!(client.read().is_none(), "{name}: the connection lives");
        return;
    }
    // Alive, and where it was: a HELLO that was refused may be sent again.
    if entry.stage == "before_auth" && entry.opcode() == Some(Opcode::Hello) {
        assert_eq!(client.ask(&hello()).status, Status::Ok, "{name}");
    }
    client.ping();
}

#[test]
fn every_invalid_vector_earns_its_status_and_other_connections_are_unharmed() {
    let house = Plan::new(100).open();
    let mut bystander = house.app(77);
    for entry in invalid() {
        expect_refusal(&entry, at_stage(&house, &entry, || house.app(42)));
        bystander.ping();
    }
    assert_eq!(bystander.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(house.sold(), (1, 1), "an invalid frame bought something");
}

#[test]
fn every_invalid_vector_earns_its_status_on_a_service_connection_too() {
    let house = Plan::new(100).open();
    let mut bystander = house.service();
    for entry in invalid().filter(|entry| entry.stage == "after_auth" && entry.name != "buy_quantity_0") {
        expect_refusal(&entry, at_stage(&house, &entry, || house.service()));
        bystander.ping();
    }
    assert_eq!(bystander.ask_for(42, &buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(house.sold(), (1, 1), "an invalid frame bought something");
}

#[test]
fn a_fatal_vector_is_told_even_when_it_comes_byte_by_byte() {
    let house = Plan::new(1).open();
    for entry in invalid().filter(|entry| entry.expect.as_ref().unwrap().connection == "closes") {
        let mut client = at_stage(&house, &entry, || house.app(42));
        for byte in entry.bytes() {
            // Closed already: the rest need not come.
            if std::io::Write::write_all(&mut client.stream, &[byte]).is_err() {
                break;
            }
        }
        client.closed_with(
            *Status::ALL
                .iter()
                .find(|status| status.name() == entry.expect.as_ref().unwrap().status)
                .unwrap(),
        );
    }
}

/// What a client that may do everything is told.
fn expected(entry: &Entry, is_service: bool) -> Option<Vec<Status>> {
    let bytes = entry.bytes();
    let (frame, _) = decode(&bytes, bytes.len()).unwrap().unwrap();
    let names_user = frame.tlv(1).is_some();
    let statuses = match entry.opcode().unwrap() {
        Opcode::Goaway => return None,
        Opcode::Hello | Opcode::Ping => vec![Status::Ok],
        Opcode::Auth if entry.name == "auth" => vec![Status::Ok],
        Opcode::Auth => vec![Status::BadToken],
        _ if is_service && !names_user => vec![Status::UserRequired],
        Opcode::Challenge | Opcode::Answer | Opcode::Token => vec![Status::NotRequired],
        Opcode::Activity if frame.body.starts_with(&SALE.to_be_bytes()) => vec![Status::Ok],
        Opcode::Buy if frame.body.starts_with(&SALE.to_be_bytes()) => vec![Status::Queued, Status::Already],
        Opcode::Activity | Opcode::Buy => vec![Status::UnknownActivity],
        Opcode::Result => vec![Status::NoOrder, Status::Ok],
        Opcode::Cancel => vec![Status::NoOrder],
        opcode => panic!("{opcode:?} from a client"),
    };
    Some(statuses)
}

fn expect_answer(entry: &Entry, is_service: bool, mut client: Client) {
    let (name, bytes) = (&entry.name, entry.bytes());
    client.write(&bytes);
    let Some(statuses) = expected(entry, is_service) else {
        return client.closed();
    };
    let id = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
    let answer = client.answer_to(id);
    assert_eq!((answer.opcode, answer.id), (entry.opcode().unwrap(), id), "{name}");
    assert!(statuses.contains(&answer.status), "{name}: {answer:?}");
    if answer.status == Status::BadToken {
        return client.closed();
    }
    if answer.opcode == Opcode::Buy && answer.status.class() == Status::Ok.class() {
        assert_eq!(answer.order().quantity, 1, "{name}");
    }
    client.ping();
}

#[test]
fn every_valid_vector_is_answered() {
    let house = Plan::with(vec![sale(SALE, &[(SKU, 100)], 5)]).open();
    let mut count = 0;
    for entry in valid() {
        expect_answer(&entry, false, at_stage(&house, &entry, || house.app(42)));
        count += 1;
    }
    assert!(count > 50);
    // All of them were user 42, whatever their TLVs said.
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn every_valid_vector_is_answered_on_a_service_connection_too() {
    let house = Plan::with(vec![sale(SALE, &[(SKU, 100)], 5)]).open();
    for entry in valid().filter(|entry| entry.stage == "after_auth") {
        expect_answer(&entry, true, at_stage(&house, &entry, || house.service()));
    }
}
