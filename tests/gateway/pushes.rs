//! `RESULT_PUSH`: who hears of an order, and what the push says.

use rushgate::protocol::{Opcode, OrderState, Status};

use super::house::{House, Plan, SALE, SKU};
use super::wire::{buy, eventually, result};

/// All pushes of an order are counted together, after they were handed to their connections: a client may be quicker.
#[track_caller]
fn counted(house: &House, pushes: u64) {
    eventually("the pushes are counted", || house.count("pushes") > 0);
    assert_eq!(house.count("pushes"), pushes);
}

#[test]
fn a_purchase_is_pushed_to_every_connection_of_its_user_and_to_nobody_else() {
    let house = Plan::new(100).open();
    let (mut buyer, mut watcher, mut stranger) = (house.app(1), house.app(1), house.app(2));
    let order = buyer.ask(&buy(SALE, SKU, 2)).order();
    for client in [&mut buyer, &mut watcher] {
        let push = client.push(Opcode::ResultPush);
        assert_eq!((push.status, push.id, push.user), (Status::Ok, 0, None));
        let pushed = push.order();
        assert_eq!((pushed.number, pushed.quantity, pushed.sku), (order.number, 2, order.sku));
        assert_eq!(pushed.state, OrderState::PendingPayment);
        assert!(pushed.pay_by_ms > 0);
    }
    stranger.ping();
    counted(&house, 2);
    // The next purchase of the stranger is the first push he gets.
    let own = stranger.ask(&buy(SALE, SKU, 1)).order();
    assert_eq!(stranger.push(Opcode::ResultPush).order().number, own.number);
}

#[test]
fn a_service_connection_hears_of_each_user_it_bought_for_by_name() {
    let house = Plan::new(200).open();
    let mut back_end = house.service();
    let mut other = house.service();
    let ids: Vec<(u64, u32)> =
        (1..=100).map(|user| (user, back_end.send_for(user, &buy(SALE, SKU, 1)))).collect();
    for (user, id) in ids {
        let order = back_end.answer_to(id).order();
        let push = back_end.wait_for(|answer| answer.id == 0 && answer.user == Some(user));
        assert_eq!((push.opcode, push.order().number), (Opcode::ResultPush, order.number));
        assert_eq!(push.order().state, OrderState::PendingPayment);
    }
    // Another back end named none of them.
    other.ping();
    other.finish_writing();
    other.closed();
}

#[test]
fn app_and_service_connections_of_one_user_both_hear() {
    let house = Plan::new(50).open();
    let (mut app, mut back_end) = (house.app(7), house.service());
    let order = back_end.ask_for(7, &buy(SALE, SKU, 1)).order();
    assert_eq!(app.push(Opcode::ResultPush).order().number, order.number);
    assert_eq!(back_end.push(Opcode::ResultPush).user, Some(7));
}

#[test]
fn a_connection_that_ended_is_not_pushed_to() {
    let house = Plan::new(50).open();
    let (mut buyer, watcher) = (house.app(1), house.app(1));
    drop(watcher);
    eventually("the watcher is gone", || house.gateway.connections() == 1);
    buyer.ask(&buy(SALE, SKU, 1));
    buyer.push(Opcode::ResultPush);
    counted(&house, 1);
    assert_eq!(buyer.ask(&result(SALE)).status, Status::Ok);
}
