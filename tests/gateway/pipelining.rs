//! Many requests at once on one connection.

use rushgate::protocol::{ActivityId, Reply, Request, Status};

use super::bystander::Bystander;
use super::house::{Plan, SALE, SKU, sale};
use super::wire::{buy, eventually, request, result};

#[test]
fn sixty_four_requests_in_one_write_are_all_answered() {
    let house = Plan::new(500).open();
    let mut client = house.app(1);
    let asks: Vec<Request<'_>> = (0..64)
        .map(|turn| match turn % 4 {
            0 => buy(SALE, SKU, 1),
            1 => result(SALE),
            2 => Request::Ping { client_time: turn },
            _ => Request::Activity { activity: ActivityId(SALE) },
        })
        .collect();
    let bytes: Vec<u8> = (100..).zip(&asks).flat_map(|(id, ask)| request(id, None, ask)).collect();
    client.write(&bytes);
    let mut queued = 0;
    for (id, ask) in (100..).zip(&asks) {
        let answer = client.answer_to(id);
        assert_eq!(answer.opcode, ask.opcode());
        queued += u32::from(answer.status == Status::Queued);
        assert!(answer.status.class() == Status::Ok.class(), "{answer:?}");
    }
    assert_eq!((queued, house.sold()), (1, (1, 1)));
}

#[test]
fn buys_beyond_the_cap_are_told_so_and_the_others_go_on() {
    let house = Plan::new(160)
        .settings(|settings| {
            settings.in_flight_max = 4;
            settings.service_in_flight_max = 6;
            settings.stock.unconfirmed_after_ms = 60_000;
            settings.stock.patience_ms = 60_000;
        })
        .open();
    house.gate.shut();
    let mut app = house.app(1);
    let ids: Vec<u32> = (0..7).map(|_| app.send(&buy(SALE, SKU, 1))).collect();
    for id in &ids[4..] {
        let answer = app.answer_to(*id);
        assert_eq!((answer.status, &answer.reply), (Status::TooManyInFlight, &Reply::Empty));
    }
    // Others are not counted.
    app.ping();
    assert_eq!(app.ask(&result(SALE)).status, Status::NoOrder);
    let mut back_end = house.service();
    let users: Vec<(u64, u32)> =
        (11..=18).map(|user| (user, back_end.send_for(user, &buy(SALE, SKU, 1)))).collect();
    for (_, id) in &users[6..] {
        assert_eq!(back_end.answer_to(*id).status, Status::TooManyInFlight);
    }
    assert_eq!(house.count("rung connection"), 5);
    house.gate.open();
    let mut statuses: Vec<Status> = ids[..4].iter().map(|id| app.answer_to(*id).status).collect();
    statuses.sort_by_key(|status| status.code());
    assert_eq!(statuses, [Status::Queued, Status::Already, Status::Already, Status::Already]);
    for (user, id) in &users[..6] {
        assert_eq!(back_end.answer_to(*id).status, Status::Queued, "user {user}");
    }
    // There is room again.
    assert_eq!(back_end.ask_for(17, &buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(house.sold(), (8, 8));
}

#[test]
fn a_request_id_in_flight_twice_gets_both_replies() {
    let house = Plan::new(160).open();
    house.gate.shut();
    let mut client = house.app(1);
    client.write(&[request(500, None, &buy(SALE, SKU, 1)), request(500, None, &result(SALE))].concat());
    assert_eq!(client.answer_to(500).status, Status::NoOrder);
    house.gate.open();
    assert_eq!(client.answer_to(500).status, Status::Queued);
    client.write(&request(500, None, &result(SALE)));
    assert_eq!(client.answer_to(500).status, Status::Ok);
}

#[test]
fn greatest_replies_by_the_hundred_come_whole_and_in_order() {
    let skus: Vec<(u16, u64)> = (1..=1000).map(|sku| (sku, 1)).collect();
    let house = Plan::with(vec![sale(SALE, &skus, 1)])
        .settings(|settings| settings.outbound_bytes_max = 32 << 10)
        .open();
    let mut client = house.app(1);
    let ask = Request::Activity { activity: ActivityId(SALE) };
    let bytes: Vec<u8> = (1000..1400).flat_map(|id| request(id, None, &ask)).collect();
    client.write(&bytes);
    for id in 1000..1400 {
        let answer = client.read().unwrap();
        assert_eq!((answer.id, answer.status), (id, Status::Ok));
        let Reply::Activity { skus, .. } = answer.reply else { panic!("no ACTIVITY reply") };
        assert_eq!(skus.len(), 1000);
    }
    client.ping();
    eventually("nothing is left", || house.gateway.unfinished() == 0);
}

#[test]
fn a_back_end_that_reads_is_not_taken_for_a_slow_one_however_many_answers_come_at_once() {
    const USERS: u64 = 6000;
    let house = Plan::new(USERS)
        .settings(|settings| {
            settings.service_in_flight_max = 10_000;
            settings.outbound_bytes_max = 16 << 10;
            settings.stock.patience_ms = 60_000;
            settings.stock.unconfirmed_after_ms = 60_000;
        })
        .open();
    let mut back_end = house.service();
    house.gate.shut();
    let bytes: Vec<u8> = (1..=USERS)
        .flat_map(|user| request(u32::try_from(user).unwrap() + 100, Some(user), &buy(SALE, SKU, 1)))
        .collect();
    back_end.write(&bytes);
    eventually("all wait", || house.count("rung passed") == USERS);
    house.gate.open();
    let mut queued = 0;
    while queued < USERS {
        let answer = back_end.read().unwrap_or_else(|| panic!("closed after {queued} answers"));
        if answer.id > 100 {
            assert_eq!(answer.status, Status::Queued);
            queued += 1;
        }
    }
    back_end.ping();
    assert_eq!(house.sold(), (USERS, USERS));
}

#[test]
fn one_request_id_for_everything_in_flight_gets_every_reply_and_costs_no_place() {
    const ID: u32 = 500;
    let house = Plan::new(160)
        .settings(|settings| {
            settings.service_in_flight_max = 3;
            settings.stock.unconfirmed_after_ms = 60_000;
            settings.stock.patience_ms = 60_000;
        })
        .open();
    let bystander = Bystander::watch(house.app(77), SALE);
    let mut back_end = house.service();
    for round in 0..20 {
        house.gate.shut();
        let users: Vec<u64> = (1..=3).map(|user| round * 10 + user).collect();
        let buys = users.iter().map(|user| request(ID, Some(*user), &buy(SALE, SKU, 1)));
        let asks = users.iter().map(|user| request(ID, Some(*user), &result(SALE)));
        let ping = std::iter::once(request(ID, None, &Request::Ping { client_time: round }));
        back_end.write(&buys.chain(asks).chain(ping).collect::<Vec<_>>().concat());
        // What needs no store comes at once and in order; what was bought, later.
        for _ in &users {
            assert_eq!(back_end.answer_to(ID).status, Status::NoOrder);
        }
        assert!(
            matches!(back_end.answer_to(ID).reply, Reply::Pong { client_time, .. } if client_time == round)
        );
        back_end.write(&request(ID, Some(round * 10 + 4), &buy(SALE, SKU, 1)));
        assert_eq!(back_end.answer_to(ID).status, Status::TooManyInFlight);
        house.gate.open();
        let mut orders: Vec<u64> = users.iter().map(|_| back_end.answer_to(ID).order().number.0).collect();
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 3, "one order each");
    }
    assert_eq!((house.count("QUEUED"), house.count("TOO_MANY_IN_FLIGHT")), (60, 20));
    assert_eq!(house.sold(), (60, 60));
    bystander.unharmed();
}

#[test]
fn twenty_thousand_buys_beyond_the_cap_wait_nowhere() {
    const COUNT: u32 = 20_000;
    const CAP: u32 = 4;
    let house = Plan::new(160)
        .settings(|settings| {
            settings.in_flight_max = u16::try_from(CAP).unwrap();
            settings.stock.unconfirmed_after_ms = 60_000;
            settings.stock.patience_ms = 60_000;
        })
        .open();
    let bystander = Bystander::watch(house.app(77), SALE);
    house.gate.shut();
    let mut client = house.app(1);
    let mut writing = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let bytes: Vec<u8> =
            (100..100 + COUNT).flat_map(|id| request(id, None, &buy(SALE, SKU, 1))).collect();
        std::io::Write::write_all(&mut writing, &bytes).unwrap();
    });
    for id in 100 + CAP..100 + COUNT {
        let answer = client.read().unwrap();
        assert_eq!((answer.id, answer.status), (id, Status::TooManyInFlight));
        assert!((100..=200).contains(&answer.hint_ms), "{answer:?}");
    }
    writer.join().unwrap();
    eventually("only those wait that may", || house.gateway.unfinished() == 4);
    assert_eq!(house.count("rung connection"), u64::from(COUNT - CAP));
    house.gate.open();
    let statuses: Vec<Status> = (100..100 + CAP).map(|id| client.answer_to(id).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == Status::Queued).count(), 1, "{statuses:?}");
    assert_eq!(house.sold(), (1, 1));
    bystander.unharmed();
}
