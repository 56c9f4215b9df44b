//! What clients are told of an order's life after the queue, on every gateway, while writers drive it.

use rushgate::payment::{Notice, Payment, PaymentId, PaymentState};
use rushgate::protocol::{ActivityId, Opcode, Order, OrderNumber, OrderState, Request, Status};

use super::house::{SALE, SKU};
use super::shop::Shop;
use super::wire::{Client, buy, eventually, result};

const PRICE: u64 = 999;

fn pay(shop: &Shop, id: &str, order: OrderNumber) -> PaymentState {
    let payment = Payment { id: PaymentId::new(id).unwrap(), order, amount_minor: PRICE, paid_at_ms: 1 };
    let notice = shop.run(async |sql| sql.take_answered_payment(&payment).await.unwrap());
    let Notice::Kept { state, repeated: false } = notice else { panic!("{notice:?}") };
    state
}

/// Waits until the client has been pushed his order in this state.
fn pushed(client: &mut Client, state: OrderState) -> Order {
    client
        .wait_for(|answer| {
            answer.id == 0 && answer.opcode == Opcode::ResultPush && answer.order().state == state
        })
        .order()
}

#[test]
fn every_gateway_tells_paid_closed_and_refund_due_with_the_pay_by() {
    let shop = Shop::new();
    let (one, two) = (shop.house.serve(&[]), shop.house.serve(&[]));
    let _writer = shop.writer();
    shop.create(5, &["--opens", "+2s"]);
    let (mut payer, mut other) = (shop.app(&one, 1), shop.app(&one, 2));
    let (mut payer_there, mut other_there) = (shop.app(&two, 1), shop.app(&two, 2));
    eventually("it opens", || payer.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    eventually("the other buys", || other.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    let (pending, unpaid) =
        (pushed(&mut payer, OrderState::PendingPayment), pushed(&mut other, OrderState::PendingPayment));
    assert!(pending.pay_by_ms > 0);
    assert_eq!(pay(&shop, "p-1", pending.number), PaymentState::Applied);
    for client in [&mut payer, &mut payer_there] {
        let paid = pushed(client, OrderState::Paid);
        assert_eq!((paid.number, paid.pay_by_ms), (pending.number, pending.pay_by_ms));
        assert_eq!(client.ask(&result(SALE)).order(), paid);
    }
    let closed = shop.run(async |sql| sql.close_overdue(&[pending.number, unpaid.number]).await.unwrap());
    assert_eq!((closed.closed, closed.left_open.len()), (1, 0), "the paid one stands");
    for client in [&mut other, &mut other_there] {
        assert_eq!(pushed(client, OrderState::Closed).number, unpaid.number);
    }
    // His money comes after all.
    assert!(matches!(pay(&shop, "p-2", unpaid.number), PaymentState::RefundDue(_)));
    for client in [&mut other, &mut other_there] {
        assert_eq!(pushed(client, OrderState::RefundDue).number, unpaid.number);
        assert_eq!(client.ask(&result(SALE)).order().state, OrderState::RefundDue);
    }
    // Its unit is for sale again.
    let left = |shop: &Shop| shop.shown()["skus"][0]["free"].as_u64();
    assert_eq!(left(&shop), Some(4));
    for id in 3..=6 {
        let mut next = shop.app(&two, id);
        eventually("all five are sold", || next.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    }
}

#[test]
fn a_cancel_is_kept_at_once_applied_by_a_writer_and_told_on_every_gateway() {
    let shop = Shop::new();
    let (one, two) = (shop.house.serve(&[]), shop.house.serve(&[]));
    let writer = shop.writer();
    shop.create(1, &["--opens", "+1s"]);
    let (mut buyer, mut there, mut other) = (shop.app(&one, 1), shop.app(&two, 1), shop.app(&two, 2));
    eventually("it opens", || buyer.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    let order = pushed(&mut buyer, OrderState::PendingPayment);
    let cancel = Request::Cancel { activity: ActivityId(SALE), order: order.number };
    assert_eq!(other.ask(&cancel).status, Status::NoOrder, "it is not his");
    // On the gateway that he has not bought on.
    let told = there.ask(&cancel);
    assert_eq!((told.status, told.order().number), (Status::Cancelling, order.number));
    for client in [&mut buyer, &mut there] {
        assert_eq!(pushed(client, OrderState::Closed).number, order.number);
        let again = client.ask(&cancel);
        assert_eq!((again.status, again.order().state), (Status::Ok, OrderState::Closed));
    }
    eventually("SOLD_OUT ends", || other.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    let order = pushed(&mut other, OrderState::PendingPayment);
    assert_eq!(pay(&shop, "p-9", order.number), PaymentState::Applied);
    pushed(&mut other, OrderState::Paid);
    let told = other.ask(&Request::Cancel { activity: ActivityId(SALE), order: order.number });
    assert_eq!((told.status, told.order().state), (Status::NotCancellable, OrderState::Paid));
    drop(writer);
}
