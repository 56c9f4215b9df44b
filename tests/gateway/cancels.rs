//! CANCEL: one's own unpaid order, answered by its state.

use rushgate::protocol::{ActivityId, Opcode, OrderNumber, OrderState, Reply, Request, Status};

use super::house::{Plan, SALE, SKU};
use super::wire::{buy, eventually, result};

fn cancel(activity: u32, order: OrderNumber) -> Request<'static> {
    Request::Cancel { activity: ActivityId(activity), order }
}

#[test]
fn an_unpaid_order_is_cancelled_by_its_user_alone_and_its_unit_is_for_sale_again() {
    let house = Plan::new(1).open();
    let (mut buyer, mut phone, mut other) = (house.app(1), house.app(1), house.app(2));
    let order = buyer.ask(&buy(SALE, SKU, 1)).order();
    eventually("nothing is left", || other.ask(&buy(SALE, SKU, 1)).status == Status::SoldOut);
    // Not his, not there, not here: all the same, and nothing happens.
    assert_eq!(other.ask(&cancel(SALE, order.number)).status, Status::NoOrder);
    for (activity, number) in [(SALE, order.number.0 + 1), (SALE, 0), (SALE + 1, order.number.0)] {
        assert_eq!(buyer.ask(&cancel(activity, OrderNumber(number))).status, Status::NoOrder);
    }
    assert_eq!(buyer.ask(&result(SALE)).order().state, OrderState::PendingPayment);
    for _ in 0..2 {
        let told = buyer.ask(&cancel(SALE, order.number));
        assert_eq!(
            (told.status, told.order().state, told.order().number),
            (Status::Ok, OrderState::Closed, order.number)
        );
    }
    // His other connection hears of it.
    let is_closed = |answer: &super::wire::Answer| {
        answer.opcode == Opcode::ResultPush && answer.order().state == OrderState::Closed
    };
    assert_eq!(phone.wait_for(|answer| answer.id == 0 && is_closed(answer)).order().number, order.number);
    eventually("SOLD_OUT ends", || other.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    assert_eq!(house.sold(), (1, 2));
    assert_eq!(buyer.ask(&result(SALE)).order().state, OrderState::Closed);
}

#[test]
fn a_back_end_cancels_for_its_users_and_hears_what_becomes_of_it() {
    let house = Plan::new(5).open();
    let mut back_end = house.service();
    let order = back_end.ask_for(7, &buy(SALE, SKU, 2)).order();
    assert_eq!(back_end.ask_for(8, &cancel(SALE, order.number)).status, Status::NoOrder);
    assert_eq!(back_end.ask(&cancel(SALE, order.number)).status, Status::UserRequired);
    assert_eq!(back_end.ask_for(7, &cancel(SALE, order.number)).order().state, OrderState::Closed);
    assert_eq!(house.sold().0, 0);
    eventually("the gateway has heard of it", || {
        back_end.ask_for(7, &buy(SALE, SKU, 1)).status == Status::NotAgain
    });
}

#[test]
fn a_cancel_that_nobody_knows_to_be_kept_is_unconfirmed_and_may_be_repeated() {
    let house = Plan::new(5).settings(|settings| settings.stock.unconfirmed_after_ms = 300).open();
    let mut buyer = house.app(1);
    let order = buyer.ask(&buy(SALE, SKU, 1)).order();
    house.gate.shut();
    let told = buyer.ask(&cancel(SALE, order.number));
    assert_eq!(
        (told.status, told.reply),
        (Status::Unconfirmed, Reply::Pending { order_number: order.number })
    );
    house.gate.open();
    assert_eq!(buyer.ask(&cancel(SALE, order.number)).order().state, OrderState::Closed);
}
