//! Buying again after a closed order, as often as the activity lets its users.

use rushgate::protocol::{ActivityId, OrderState, Request, Status};
use rushgate::store::catalog::ActivityChange;

use super::house::{House, Plan, SALE, SKU, sale};
use super::wire::{Client, buy, eventually, result};

fn house(buy_again_max: u64) -> House {
    Plan::with(vec![rushgate::admin::activities::NewActivity { buy_again_max, ..sale(SALE, &[(SKU, 1)], 1) }])
        .open()
}

/// Buys, as the attempt given, and lets the order go.
fn buys_and_cancels(client: &mut Client, attempt: u8) {
    let told = client.ask(&buy(SALE, SKU, 1));
    assert_eq!((told.status, told.order().attempt), (Status::Queued, attempt));
    let order = told.order().number;
    let again = client.ask(&buy(SALE, SKU, 1));
    assert_eq!((again.status, again.order().number), (Status::Already, order));
    let cancel = Request::Cancel { activity: ActivityId(SALE), order };
    assert_eq!(client.ask(&cancel).order().state, OrderState::Closed);
    eventually("the gateway has heard of it", || {
        let found = client.ask(&result(SALE)).order();
        (found.number, found.state) == (order, OrderState::Closed)
    });
}

#[test]
fn a_user_buys_again_as_often_as_the_activity_says_and_then_no_more() {
    let house = house(2);
    let mut client = house.app(1);
    for attempt in 1..=3 {
        buys_and_cancels(&mut client, attempt);
    }
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::NotAgain);
    assert_eq!(house.sold(), (0, 3));
    // Others are not concerned.
    buys_and_cancels(&mut house.app(2), 1);
    // It is changed while it sells.
    let change = ActivityChange { buy_again_max: Some(3), ..ActivityChange::default() };
    let changed = house.operate(house.admin.change(u64::from(SALE), &change)).unwrap();
    assert_eq!(changed.buy_again_max, 3);
    eventually("the gateway has heard of it", || client.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    assert_eq!(client.ask(&result(SALE)).order().attempt, 4);
}

#[test]
fn nobody_buys_again_where_nothing_is_said_of_it() {
    let house = house(0);
    let mut client = house.app(1);
    buys_and_cancels(&mut client, 1);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::NotAgain);
    assert_eq!(house.sold(), (0, 1));
}
