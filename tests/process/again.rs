//! Buying again after a closed order on the production form: on another gateway, past late releases and a recovery.

use rushgate::protocol::{ActivityId, Opcode, Order, OrderNumber, OrderState, Request, Status, UserId};
use rushgate::stock::calls::{Gen, ShardId};
use rushgate::store::redis::{Guarded, Release};

use super::house::{SALE, SKU};
use super::shop::Shop;
use super::wire::{Client, buy, eventually, result};

const BUYER: UserId = UserId(1);

/// Waits until the client has been pushed this order in this state.
fn pushed(client: &mut Client, number: OrderNumber, state: OrderState) -> Order {
    client
        .wait_for(|answer| {
            answer.id == 0
                && answer.opcode == Opcode::ResultPush
                && (answer.order().number, answer.order().state) == (number, state)
        })
        .order()
}

fn cancel(order: OrderNumber) -> Request<'static> {
    Request::Cancel { activity: ActivityId(SALE), order }
}

/// What the release of an order does that comes late.
fn released_late(shop: &Shop, order: OrderNumber) -> Guarded<Release> {
    let (redis, home, sale) = (shop.open_redis(), ShardId::of(BUYER), ActivityId(SALE));
    shop.runtime.block_on(async {
        let generation = redis.shard_state(home).await.unwrap().generation;
        redis.release(home, generation, sale, BUYER, order, OrderState::Closed).await.unwrap()
    })
}

/// The buyer's shard comes back from another life; the generation under which it is open again.
fn recovered(shop: &Shop) -> Gen {
    let (redis, home) = (shop.open_redis(), ShardId::of(BUYER));
    let state = || shop.runtime.block_on(redis.shard_state(home)).unwrap();
    let before = state().generation;
    shop.redis(&["HSET", &shop.key(home, "meta"), "epoch", "somebody else"]);
    eventually("it is recovered", || state().is_open && state().generation > before);
    state().generation
}

/// Everything is settled, and both sides agree.
fn is_balanced(shop: &Shop) -> bool {
    shop.house.run(&["reconcile", "--json"]).status.code() == Some(0)
}

#[test]
fn who_may_buy_again_does_so_on_another_gateway_and_what_was_of_the_first_order_touches_no_other() {
    let shop = Shop::new();
    let (one, two) = (shop.house.serve(&[]), shop.house.serve(&[]));
    let _writer = shop.writer();
    shop.create(2, &["--opens", "+3s", "--buy-again-max", "1"]);
    let (mut here, mut there) = (shop.app(&one, BUYER.0), shop.app(&two, BUYER.0));
    eventually("it opens", || here.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    let first = here.ask(&result(SALE)).order();
    assert_eq!(first.attempt, 1);
    pushed(&mut here, first.number, OrderState::PendingPayment);
    assert_eq!(there.ask(&cancel(first.number)).status, Status::Cancelling);
    pushed(&mut there, first.number, OrderState::Closed);

    let told = there.ask(&buy(SALE, SKU, 1));
    let second = told.order();
    assert_eq!((told.status, second.attempt), (Status::Queued, 2));
    pushed(&mut here, second.number, OrderState::PendingPayment);
    for client in [&mut here, &mut there] {
        assert_eq!(client.ask(&result(SALE)).order().number, second.number);
        assert_eq!(client.ask(&buy(SALE, SKU, 1)).order().number, second.number, "ALREADY");
        assert_eq!(client.ask(&cancel(first.number)).status, Status::NoOrder, "it is not the newest");
    }
    for _ in 0..2 {
        assert_eq!(released_late(&shop, first.number), Guarded::Done(Release::NotHis));
    }
    eventually("both sides agree", || is_balanced(&shop));

    recovered(&shop);
    assert_eq!(released_late(&shop, first.number), Guarded::Done(Release::NotHis));
    let found = || shop.shown()["skus"][0].clone();
    assert_eq!((found()["free"].as_u64(), found()["sold"].as_u64()), (Some(1), Some(1)));
    eventually("he is known again", || here.ask(&result(SALE)).status == Status::Ok);
    assert_eq!(here.ask(&result(SALE)).order().number, second.number);

    eventually("it is kept", || here.ask(&cancel(second.number)).status == Status::Cancelling);
    pushed(&mut there, second.number, OrderState::Closed);
    eventually("as often as it is allowed", || there.ask(&buy(SALE, SKU, 1)).status == Status::NotAgain);
    shop.house.done(&["activity", "set", "7", "--buy-again-max", "2"]);
    recovered(&shop);
    eventually("once more", || there.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    let third = there.ask(&result(SALE)).order();
    assert_eq!(third.attempt, 3);
    for order in [first, second] {
        assert_eq!(released_late(&shop, order.number), Guarded::Done(Release::NotHis));
    }
    eventually("both sides agree", || is_balanced(&shop));
    assert_eq!((found()["free"].as_u64(), found()["sold"].as_u64()), (Some(1), Some(1)));
}
