//! BUY and RESULT through sockets: exactly what is there is sold, once to each, and whoever has won is told so.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use rushgate::protocol::{ActivityId, SkuId};
use rushgate::protocol::{ActivityState, OrderState, Reply, Request, Status, StockBand, activity_flags};

use super::house::{House, Plan, SALE, SKU, sale};
use super::wire::{buy, eventually, hello, result};

fn activity(house: &House, user: u64, id: u32) -> super::wire::Answer {
    house.app(user).ask(&Request::Activity { activity: ActivityId(id) })
}

#[test]
fn a_purchase_from_activity_to_result() {
    let house = Plan::with(vec![sale(SALE, &[(SKU, 10), (9, 5)], 3)]).open();
    let mut client = house.app(42);
    let Reply::Activity { info, skus } = client.ask(&Request::Activity { activity: ActivityId(SALE) }).reply
    else {
        panic!("no ACTIVITY reply")
    };
    assert_eq!((info.activity, info.state, info.per_user_limit), (ActivityId(SALE), ActivityState::Open, 3));
    assert_eq!(info.flags, activity_flags::ELIGIBLE);
    let listed: Vec<_> = skus.iter().map(|sku| (sku.sku.0, sku.band, sku.price_minor)).collect();
    assert_eq!(listed, [(SKU, StockBand::High, 999), (9, StockBand::High, 999)]);

    assert_eq!(client.ask(&result(SALE)).status, Status::NoOrder);
    let bought = client.ask(&buy(SALE, SKU, 2));
    assert_eq!((bought.status, bought.hint_ms), (Status::Queued, 0));
    let order = bought.order();
    assert_eq!((order.sku.activity.0, order.sku.sku.0, order.quantity, order.attempt), (SALE, SKU, 2, 1));
    assert!(order.number.0 > 0 && order.number.0 < 1 << 63);

    // The same order for ever, whatever is asked for, on whatever connection.
    let again = client.ask(&buy(SALE, 9, 1));
    assert_eq!(
        (again.status, again.order().number, again.order().sku.sku),
        (Status::Already, order.number, SkuId(SKU))
    );
    let told = house.app(42).ask(&result(SALE));
    assert_eq!((told.status, told.order().number, told.order().quantity), (Status::Ok, order.number, 2));
    eventually("the order stands", || {
        let order = client.ask(&result(SALE)).order();
        order.state == OrderState::PendingPayment && order.pay_by_ms > 0
    });
    let Reply::Activity { info, .. } = activity(&house, 42, SALE).reply else { panic!("no ACTIVITY reply") };
    assert_eq!(info.flags, activity_flags::ELIGIBLE | activity_flags::HOLDS_ORDER);
    assert_eq!(house.sold(), (2, 1));
}

#[test]
fn n_of_n_sell_through_sockets_with_four_times_as_many_users() {
    const STOCK: u64 = 40;
    let house = Plan::new(STOCK).open();
    let users = STOCK * 4;
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|part| {
            let mut clients: Vec<_> =
                (1..=users).filter(|user| user % 8 == part).map(|user| house.app(user)).collect();
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || {
                barrier.wait();
                let ids: Vec<u32> =
                    clients.iter_mut().map(|client| client.send(&buy(SALE, SKU, 1))).collect();
                let outcomes: Vec<Status> =
                    clients.iter_mut().zip(ids).map(|(client, id)| client.answer_to(id).status).collect();
                // Afterwards each is told the same again.
                for (client, outcome) in clients.iter_mut().zip(&outcomes) {
                    let (bought, told) =
                        (client.ask(&buy(SALE, SKU, 1)).status, client.ask(&result(SALE)).status);
                    match outcome {
                        Status::Queued => assert_eq!((bought, told), (Status::Already, Status::Ok)),
                        _ => assert_eq!((bought, told), (Status::SoldOut, Status::NoOrder)),
                    }
                }
                outcomes
            })
        })
        .collect();
    let outcomes: Vec<Status> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let count = |status| outcomes.iter().filter(|outcome| **outcome == status).count() as u64;
    assert_eq!((count(Status::Queued), count(Status::SoldOut)), (STOCK, users - STOCK));
    assert_eq!(house.sold(), (STOCK, STOCK));
}

#[test]
fn two_buys_of_one_user_at_once_on_two_connections_are_one_order() {
    let house = Plan::new(50).open();
    for id in 1..=20 {
        let (mut one, mut other) = (house.app(id), house.app(id));
        let sent = [one.send(&buy(SALE, SKU, 1)), other.send(&buy(SALE, SKU, 1))];
        let answers = [one.answer_to(sent[0]), other.answer_to(sent[1])];
        let mut statuses = answers.clone().map(|answer| answer.status);
        statuses.sort_by_key(|status| status.code());
        assert_eq!(statuses, [Status::Queued, Status::Already]);
        assert_eq!(answers[0].order().number, answers[1].order().number);
    }
    assert_eq!(house.sold(), (20, 20));
}

#[test]
fn quantities_are_all_or_nothing_and_bounded_per_user() {
    let house = Plan::with(vec![sale(SALE, &[(SKU, 7)], 5)]).open();
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, 6)).status, Status::OverLimit);
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, u16::MAX)).status, Status::OverLimit);
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, 0)).status, Status::BadQuantity);
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, 5)).status, Status::Queued);
    // One order for each user, however few units it has.
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, 1)).order().quantity, 5);
    let mut client = house.app(2);
    let mut answer = client.ask(&buy(SALE, SKU, 3));
    eventually("what is left is known exactly", || {
        answer = client.ask(&buy(SALE, SKU, 3));
        answer.status == Status::Insufficient
    });
    assert_eq!(answer.reply, Reply::Left { left: 2 });
    assert_eq!(client.ask(&buy(SALE, SKU, 2)).status, Status::Queued);
    assert_eq!(house.app(3).ask(&buy(SALE, SKU, 1)).status, Status::SoldOut);
    assert_eq!(house.sold(), (7, 2));
}

#[test]
fn what_does_not_exist_is_told_by_name() {
    let house = Plan::new(5).open();
    let mut client = house.app(1);
    for (id, sku, status) in [
        (SALE + 1, SKU, Status::UnknownActivity),
        (0, SKU, Status::UnknownActivity),
        (u32::MAX, SKU, Status::UnknownActivity),
        (SALE, SKU + 1, Status::UnknownSku),
        (SALE, 0, Status::UnknownSku),
    ] {
        let answer = client.ask(&buy(id, sku, 1));
        assert_eq!((answer.status, &answer.reply), (status, &Reply::Empty), "{id}/{sku}");
        assert_eq!(client.ask(&result(id)).status, Status::NoOrder);
    }
    assert_eq!(
        client.ask(&Request::Activity { activity: ActivityId(SALE + 1) }).status,
        Status::UnknownActivity
    );
    let token = Request::Token { activity: ActivityId(SALE), sku: SkuId(SKU) };
    assert_eq!(client.ask(&token).status, Status::NotRequired);
}

#[test]
fn a_client_that_closes_with_work_in_the_queue_has_its_order() {
    let house = Plan::new(160).open();
    house.gate.shut();
    let mut client = house.app(1);
    client.send(&buy(SALE, SKU, 2));
    eventually("the call is at the store", || house.gate.arrived() > 0);
    client.reset();
    eventually("the connection is gone", || house.gateway.connections() == 0);
    assert_eq!(house.sold(), (0, 0));
    house.gate.open();
    eventually("the order stands", || house.sold() == (2, 1));
    let mut client = house.app(1);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).order().quantity, 2);
}

#[test]
fn a_store_that_does_not_answer_makes_unconfirmed_and_result_tells_the_end() {
    let house = Plan::new(160).settings(|settings| settings.stock.unconfirmed_after_ms = 150).open();
    house.gate.shut();
    let mut client = house.app(1);
    let doubtful = client.ask(&buy(SALE, SKU, 1));
    assert_eq!(doubtful.status, Status::Unconfirmed);
    let Reply::Pending { order_number } = doubtful.reply else { panic!("{doubtful:?}") };
    let told = client.ask(&result(SALE));
    assert_eq!((told.status, told.reply), (Status::Unconfirmed, Reply::Pending { order_number }));
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).reply, Reply::Pending { order_number }, "a repeat is harmless");
    house.gate.open();
    eventually("the outcome is known", || client.ask(&result(SALE)).status == Status::Ok);
    assert_eq!(client.ask(&result(SALE)).order().number, order_number);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn a_full_queue_and_spent_patience_are_busy_with_a_hint_and_nothing_is_done() {
    let house = Plan::new(160)
        .settings(|settings| {
            settings.stock.queue_items_max = 2;
            settings.stock.unconfirmed_after_ms = 60_000;
            settings.stock.call_timeout_ms = 60_000;
        })
        .open();
    house.gate.shut();
    // One user's BUYs are all of one shard: one call is out, two wait in the engine, two at the door.
    let mut client = house.app(1);
    let first = client.send(&buy(SALE, SKU, 1));
    eventually("the call is at the store", || house.gate.arrived() > 0);
    let ids: Vec<u32> = (0..10).map(|_| client.send(&buy(SALE, SKU, 1))).collect();
    let busy = client.wait_for(|answer| answer.status == Status::Busy);
    assert!((100..=200).contains(&busy.hint_ms), "{busy:?}");
    assert!(house.count("rung queue") > 0);
    // Those that wait give up when their patience is over; the default is two seconds.
    let mut others: Vec<_> = ids.into_iter().filter(|id| *id != busy.id).collect();
    while let Some(id) = others.pop() {
        assert_eq!(client.answer_to(id).status, Status::Busy);
    }
    house.gate.open();
    assert_eq!(client.answer_to(first).status, Status::Queued);
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn patience_of_the_request_is_heeded() {
    let house = Plan::new(160)
        .settings(|settings| {
            settings.stock.patience_ms = 600_000;
            settings.stock.unconfirmed_after_ms = 600_000;
            settings.stock.call_timeout_ms = 600_000;
        })
        .open();
    house.gate.shut();
    let mut client = house.app(1);
    let first = client.send(&buy(SALE, SKU, 1));
    eventually("the call is at the store", || house.gate.arrived() > 0);
    let mut hurried = super::wire::request(99, None, &buy(SALE, SKU, 1));
    hurried = {
        let body = hurried.split_off(24);
        let head = rushgate::protocol::Head {
            hint_ms: 50,
            ..rushgate::protocol::Head::request(rushgate::protocol::Opcode::Buy, 99)
        };
        super::wire::frame(head, &[], &body)
    };
    client.write(&hurried);
    assert_eq!(client.answer_to(99).status, Status::Busy);
    house.gate.open();
    assert_eq!(client.answer_to(first).status, Status::Queued);
}

#[test]
fn sold_out_is_answered_from_memory_while_the_store_stands_still() {
    let house = Plan::new(1).open();
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let mut loser = house.app(2);
    assert_eq!(loser.ask(&buy(SALE, SKU, 1)).status, Status::SoldOut);
    house.gate.shut();
    let calls = house.gate.arrived();
    for _ in 0..100 {
        assert_eq!(loser.ask(&buy(SALE, SKU, 1)).status, Status::SoldOut);
    }
    assert_eq!(house.gate.arrived(), calls);
    let Reply::Activity { skus, .. } = activity(&house, 2, SALE).reply else { panic!("no ACTIVITY reply") };
    assert_eq!(skus[0].band, StockBand::SoldOut);
}

#[test]
fn a_store_that_stalls_is_not_hidden_by_the_answers_that_need_none() {
    let house = Plan::new(5).settings(|settings| settings.keepalive = Duration::from_secs(10)).open();
    house.gate.shut();
    let mut client = house.app(1);
    client.send(&buy(SALE, SKU, 1));
    client.ping();
    let mut other = super::wire::Client::connect(house.addr());
    assert_eq!(other.ask(&hello()).status, Status::Ok);
    assert_eq!(house.app(2).ask(&buy(SALE, SKU + 1, 1)).status, Status::UnknownSku);
    house.gate.open();
}
