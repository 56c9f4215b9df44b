//! The end of an activity, with a gateway and a writer as they run: whoever asks for his order is told it, before,
//! while and after it is archived.

use rushgate::protocol::{ActivityId, OrderState, Request, Status};

use super::house::{SALE, SKU, Serving};
use super::shop::Shop;
use super::wire::{buy, eventually, result};

/// Whoever asks again and again is not limited here.
const UNLIMITED: &str = "limits.result_per_user.rate_per_s=0";

fn archived(shop: &Shop) -> bool {
    shop.run(async |sql| sql.ended().await.unwrap()).iter().any(|one| one.archived_at_ms.is_some())
}

/// Nothing of the activity is in its memory any more.
fn ask_of(shop: &Shop, gateway: &Serving, number: u64) {
    let (mut buyer, mut other) = (shop.app(gateway, 1), shop.app(gateway, 2));
    let told = buyer.ask(&result(SALE));
    assert_eq!((told.status, told.order().number.0), (Status::Ok, number));
    assert_eq!(other.ask(&result(SALE)).status, Status::NoOrder);
    assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    assert_eq!(other.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    assert_eq!(other.ask(&Request::Activity { activity: ActivityId(SALE) }).status, Status::Ended);
    assert_eq!(gateway.metric("rushgate_archive_lookups_total"), 2);
}

#[test]
fn rule_21_an_order_is_told_before_while_and_after_its_activity_is_archived() {
    let shop = Shop::new();
    let gateway = shop.house.serve(&[UNLIMITED]);
    let _writer = shop.writer();
    shop.create(5, &["--opens", "+2s"]);
    let mut buyer = shop.app(&gateway, 1);
    eventually("it opens", || buyer.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    let order = buyer.ask(&result(SALE)).order();
    eventually("it is settled", || buyer.ask(&result(SALE)).order().state == OrderState::PendingPayment);
    shop.house.done(&["activity", "close", "7"]);
    shop.house.done(&["activity", "archive", "7"]);
    eventually("it is archived", || {
        let told = buyer.ask(&result(SALE));
        assert_eq!((told.status, told.order().number), (Status::Ok, order.number));
        archived(&shop)
    });
    eventually("it is looked up", || {
        assert_eq!(buyer.ask(&result(SALE)).order().number, order.number);
        gateway.metric("rushgate_archive_lookups_total") > 0
    });
    assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Ended);

    // One that has never seen the sale, and one that tells nothing of what is archived.
    ask_of(&shop, &shop.house.serve(&[]), order.number.0);
    let forgetful = shop.house.serve(&["gateway.result_keep=0s"]);
    assert_eq!(shop.app(&forgetful, 1).ask(&result(SALE)).status, Status::NoOrder);
    assert_eq!(forgetful.metric("rushgate_archive_lookups_total"), 0);
    let slow = shop.house.serve(&["gateway.archive_lookups_per_s=1", UNLIMITED]);
    let mut asking = shop.app(&slow, 1);
    eventually("too much is looked up", || asking.ask(&result(SALE)).status == Status::Busy);
    eventually("later it is told", || asking.ask(&result(SALE)).status == Status::Ok);
}
