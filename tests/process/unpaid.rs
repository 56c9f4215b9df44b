//! The cap on open unpaid reservations where gateways share a store: what is bought on one counts on the other.

use rushgate::payment::{Notice, Payment, PaymentId};
use rushgate::protocol::{OrderState, Status};

use super::house::{SALE, SKU};
use super::shop::Shop;
use super::wire::{buy, eventually, result};

const OTHER: u32 = 8;

#[test]
fn a_users_unpaid_orders_are_counted_on_all_gateways_until_they_are_paid() {
    let shop = Shop::new();
    let capped = ["limits.open_unpaid_per_user_max=1"];
    let (one, two) = (shop.house.serve(&capped), shop.house.serve(&capped));
    let _writer = shop.writer();
    shop.create(5, &["--opens", "+3s"]);
    let sku = format!("{SKU}:5:999");
    shop.house.done(&["activity", "create", "--id", "8", "--name", "other", "--sku", &sku, "--opens", "+3s"]);
    let (mut here, mut there) = (shop.app(&one, 1), shop.app(&two, 1));
    eventually("it opens", || here.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    eventually("the other gateway counts it", || there.ask(&result(SALE)).status == Status::Ok);
    eventually("the other opens", || there.ask(&buy(OTHER, SKU, 1)).status == Status::TooManyUnpaid);
    let admin = two.admin.to_string();
    let told = shop.house.done(&["risk", "explain", "1", "--admin", &admin]);
    assert!(told.contains("TOO_MANY_UNPAID, by rung open_unpaid_user"), "{told}");

    eventually("it is settled", || here.ask(&result(SALE)).order().state == OrderState::PendingPayment);
    let order = here.ask(&result(SALE)).order().number;
    let payment = Payment { id: PaymentId::new("p-1").unwrap(), order, amount_minor: 999, paid_at_ms: 1 };
    let notice = shop.run(async |sql| sql.take_answered_payment(&payment).await.unwrap());
    assert!(matches!(notice, Notice::Kept { .. }), "{notice:?}");
    eventually("what is paid does not count", || there.ask(&buy(OTHER, SKU, 1)).status == Status::Queued);
    let turned_away = two.metric("rushgate_buys_total{rung=\"open_unpaid_user\"}");
    assert!(turned_away >= 1, "{turned_away}");
}
