//! The life of orders in the embedded form: the serving process takes payment notices and closes what is not paid.

use rushgate::payment::Keys;
use rushgate::payment::http::Target;
use rushgate::protocol::{Opcode, Order, OrderState, Status};
use rushgate::rehearsal::{PayCentre, PayFaults};
use tokio::net::TcpListener;

use super::house::{House, SALE, SKU, Serving, get};
use super::wire::{Client, buy, eventually, result};

const PRICE: u64 = 999;

/// Waits until the client has been pushed his order in this state.
fn pushed(client: &mut Client, state: OrderState) -> Order {
    client
        .wait_for(|answer| {
            answer.id == 0 && answer.opcode == Opcode::ResultPush && answer.order().state == state
        })
        .order()
}

fn serve(house: &House, centre: &str) -> Serving {
    let centre = format!("payment.centre_url={centre}");
    house.serve(&[
        "payment.key_file=payment.key",
        &centre,
        "payment.ask_timeout=500ms",
        "payment.retry_max=1s",
    ])
}

#[test]
fn what_is_not_paid_in_time_is_closed_and_sold_again_also_across_a_kill() {
    let house = House::new();
    let key = house.dir.path().join("payment.key");
    std::fs::write(&key, "k".repeat(64)).unwrap();
    let sku = format!("{SKU}:2:{PRICE}");
    let create = ["activity", "create", "--id", "7", "--name", "a sale", "--sku", &sku, "--pay-within", "1s"];
    house.done(&create);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let centre_url = format!("http://{}", listener.local_addr().unwrap());
    let first = serve(&house, &centre_url);
    let writer: Target = format!("http://{}", first.admin).parse().unwrap();
    let keys = Keys::read(&key, None).unwrap();
    let centre = PayCentre::start(listener, keys, vec![writer], PayFaults::default()).unwrap();

    let (mut payer, mut idler, mut third) =
        (house.app(&first, 1), house.app(&first, 2), house.app(&first, 3));
    let paid = payer.ask(&buy(SALE, SKU, 1)).order();
    assert!(centre.pay(paid.number, PRICE));
    let unpaid = idler.ask(&buy(SALE, SKU, 1)).order();
    // Nothing is left, or one unit again already.
    let refused = third.ask(&buy(SALE, SKU, 1)).status;
    assert!([Status::SoldOut, Status::Queued].contains(&refused), "{refused:?}");
    let told = pushed(&mut payer, OrderState::Paid);
    assert!(told.number == paid.number && told.pay_by_ms > 0, "{told:?}");
    assert_eq!(pushed(&mut idler, OrderState::Closed).number, unpaid.number);
    assert_eq!(idler.ask(&result(SALE)).order().state, OrderState::Closed);
    eventually("SOLD_OUT ends", || {
        let status = third.ask(&buy(SALE, SKU, 1)).status;
        [Status::Queued, Status::Already].contains(&status)
    });
    let again = idler.ask(&buy(SALE, SKU, 1)).status;
    assert!([Status::SoldOut, Status::NotAgain].contains(&again), "{again:?}");
    assert!(!centre.pay(unpaid.number, PRICE), "nobody pays what is closed there");
    assert_eq!(first.metric("rushgate_writer_notices_paid_total"), 1);
    assert!((1..=2).contains(&first.metric("rushgate_writer_timed_out_total")));
    assert!(first.metric("rushgate_restock_lag_ms") < 60_000);
    first.kill();

    let second = serve(&house, &centre_url);
    let (mut payer, mut idler) = (house.app(&second, 1), house.app(&second, 2));
    assert_eq!(payer.ask(&result(SALE)).order().state, OrderState::Paid);
    assert_eq!(idler.ask(&result(SALE)).order().state, OrderState::Closed);
    eventually("the order that waited is closed", || house.figures() == (2, 1, 1, 3));
    let mut fourth = house.app(&second, 4);
    eventually("its unit is sold again", || fourth.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    // The one that was closed before the kill gave its unit back then, and only then.
    let (total, left, sold, orders) = house.figures();
    assert_eq!((total, left + sold, orders), (2, 2, 4));
}

#[test]
fn without_a_key_no_notices_are_taken_and_nothing_is_closed() {
    let house = House::with_sale(1);
    let serving = house.serve(&[]);
    let (status, body) = super::house::post(serving.admin, "/payments", "application/json", "{}");
    assert!(status.contains("503") && body.contains("payment.key_file"), "{status} {body}");
    assert!(!get(serving.admin, "/metrics").1.contains("rushgate_writer_timed_out_total"));
    let refused = house.refused(&["serve", "--set", "payment.key_file=nowhere"]);
    assert!(refused.contains("payment.key_file"), "{refused}");
}
