//! Every event is counted once: exactly these counters rise, and by exactly so much.

use std::collections::BTreeMap;
use std::time::Duration;

use rushgate::protocol::{ActivityId, Head, Opcode, Request, Status};

use super::house::{House, Plan, SALE, SKU, TIGHT_USER, rate, risen, sale};
use super::wire::{Client, buy, eventually, frame, hello, result};

#[track_caller]
fn rises<T>(house: &House, expected: &[(&str, u64)], event: impl FnOnce() -> T) -> T {
    let before = house.counts();
    let outcome = event();
    let expected: BTreeMap<String, u64> =
        expected.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
    let mut risen_by = BTreeMap::new();
    let mut steps = 0;
    // What the gateway counts after its reply was sent is late by a moment.
    while risen_by != expected && steps < 1000 {
        risen_by = risen(&before, &house.counts());
        steps += 1;
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert_eq!(risen_by, expected);
    outcome
}

fn house() -> House {
    let mut closed = sale(2000, &[(SKU, 5)], 1);
    closed.entry_open = false;
    let mut over = sale(3000, &[(SKU, 5)], 1);
    over.closes_at_ms = over.opens_at_ms + 1;
    Plan::with(vec![sale(SALE, &[(SKU, 1)], 1), closed, over])
        .limits(|limits| limits.per_user = rate(1, TIGHT_USER))
        .settings(|settings| settings.frame_timeout = Duration::from_millis(200))
        .open()
}

#[test]
fn connections_and_their_handshake() {
    let house = house();
    let mut client = rises(&house, &[("accepted", 1), ("OK", 1)], || {
        let mut client = Client::connect(house.addr());
        client.ask(&hello());
        client
    });
    rises(&house, &[("UNEXPECTED", 1)], || client.ask(&hello()));
    rises(&house, &[("NOT_AUTHENTICATED", 1), ("rung frame", 1)], || client.ask(&buy(SALE, SKU, 1)));
    rises(&house, &[("OK", 1)], || client.auth(&house.token(1)));
    rises(&house, &[("OK", 1)], || client.ping());
    rises(&house, &[("BAD_TOKEN", 1), ("ending bad_token", 1)], || {
        client.auth("nonsense");
        client.closed();
    });
    rises(&house, &[("accepted", 1), ("ending client", 1)], || drop(Client::connect(house.addr())));
    let gone = house.app(1);
    rises(&house, &[("ending broken", 1)], || gone.reset());
    let mut polite = house.app(1);
    rises(&house, &[("ending client", 1)], || {
        polite.send(&Request::Goaway);
        polite.closed();
    });
    let mut broken = house.app(1);
    rises(&house, &[("ending bad_frame", 1), ("BAD_FRAME", 1)], || {
        broken.write(&[0; 30]);
        broken.closed_with(Status::BadFrame);
    });
    let mut slow = house.app(1);
    rises(&house, &[("ending frame_timeout", 1), ("TIMED_OUT", 1)], || {
        slow.write(&[0]);
        slow.closed_with(Status::TimedOut);
    });
}

#[test]
fn every_buy_at_its_one_rung() {
    let house = house();
    let (mut winner, mut loser) = (house.app(1), house.app(2));
    rises(&house, &[("rung passed", 1), ("QUEUED", 1), ("pushes", 1)], || winner.ask(&buy(SALE, SKU, 1)));
    rises(&house, &[("rung duplicate", 1), ("ALREADY", 1)], || winner.ask(&buy(SALE, SKU, 1)));
    rises(&house, &[("rung stock", 1), ("SOLD_OUT", 1)], || loser.ask(&buy(SALE, SKU, 1)));
    rises(&house, &[("rung switches", 1), ("ENDED", 1)], || loser.ask(&buy(2000, SKU, 1)));
    rises(&house, &[("rung activity", 1), ("ENDED", 1)], || loser.ask(&buy(3000, SKU, 1)));
    rises(&house, &[("rung activity", 1), ("UNKNOWN_ACTIVITY", 1)], || loser.ask(&buy(9, SKU, 1)));
    rises(&house, &[("rung activity", 1), ("UNKNOWN_SKU", 1)], || loser.ask(&buy(SALE, 9, 1)));
    rises(&house, &[("rung activity", 1), ("OVER_LIMIT", 1)], || loser.ask(&buy(SALE, SKU, 2)));
    rises(&house, &[("rung frame", 1), ("BAD_QUANTITY", 1)], || loser.ask(&buy(SALE, SKU, 0)));
    let mut frame_of = |head: Head, body: &[u8]| {
        loser.write(&frame(head, &[], body));
        loser.read().unwrap()
    };
    let head = Head::request(Opcode::Buy, 900);
    rises(&house, &[("rung frame", 1), ("BAD_BODY", 1)], || frame_of(head, &[0; 7]));
    rises(&house, &[("rung frame", 1), ("BAD_FLAGS", 1)], || {
        frame_of(Head { flags: 0x100, ..head }, &[0; 8])
    });
    rises(&house, &[("rung frame", 1), ("BAD_REQUEST_ID", 1)], || {
        frame_of(Head { request_id: 0, ..head }, &[0; 8])
    });
    rises(&house, &[("UNKNOWN_OPCODE", 1)], || frame_of(Head { opcode: 0x24, ..head }, &[0; 8]));
    let mut eager = house.app(3);
    (0..TIGHT_USER).for_each(|_| drop(eager.ask(&buy(9, SKU, 1))));
    rises(&house, &[("rung rate_user", 1), ("RATE_LIMITED", 1)], || eager.ask(&buy(9, SKU, 1)));
}

#[test]
fn questions_are_counted_by_status_alone() {
    let house = house();
    let mut client = house.app(1);
    rises(&house, &[("NO_ORDER", 1)], || client.ask(&result(SALE)));
    rises(&house, &[("OK", 1)], || client.ask(&Request::Activity { activity: ActivityId(SALE) }));
    rises(&house, &[("UNKNOWN_ACTIVITY", 1)], || client.ask(&Request::Activity { activity: ActivityId(9) }));
    rises(&house, &[("NOT_REQUIRED", 1)], || client.ask(&Request::Challenge { activity: ActivityId(SALE) }));
    eventually("one connection", || house.gateway.connections() == 1);
}
