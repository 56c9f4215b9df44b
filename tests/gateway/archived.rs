//! What is told of an activity that has ended for good: nothing is sold, and its orders are looked up.

use std::time::Duration;

use rushgate::admission::limits::Rate;
use rushgate::protocol::{ActivityId, ActivityState, OrderNumber, OrderState, Reply, Request, Status};
use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::house::{House, Plan, SALE, SKU};
use super::wire::{Client, buy, eventually, result};

const ENDING: u8 = 3;
const ARCHIVED: u8 = 4;

/// As whoever archives does, in the database.
fn set_state(house: &House, state: u8) {
    let path = house.dir.path().join("data").join("rushgate.db");
    house.operate(async {
        let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(20));
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        for statement in [
            format!("UPDATE activities SET state = {state} WHERE id = {SALE}"),
            "UPDATE installation SET catalog_version = catalog_version + 1".to_owned(),
        ] {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
        }
    });
}

/// With an order of user 1, archived, and the gateway knows it.
fn archived(plan: Plan) -> (House, OrderNumber) {
    let house = plan.open();
    let order = house.app(1).ask(&buy(SALE, SKU, 1)).order();
    set_state(&house, ARCHIVED);
    let mut other = house.app(2);
    eventually("the gateway knows", || other.ask(&activity()).status == Status::Ended);
    assert_eq!(other.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    (house, order.number)
}

fn activity() -> Request<'static> {
    Request::Activity { activity: ActivityId(SALE) }
}

#[test]
fn an_activity_that_is_ending_sells_nothing_and_its_orders_are_told_from_memory() {
    let house = Plan::new(50).open();
    let (mut buyer, mut other) = (house.app(1), house.app(2));
    let order = buyer.ask(&buy(SALE, SKU, 1)).order();
    set_state(&house, ENDING);
    eventually("the gateway knows", || {
        let Reply::Activity { info, .. } = other.ask(&activity()).reply else { panic!("no activity") };
        info.state == ActivityState::Ended
    });
    assert_eq!(other.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(buyer.ask(&result(SALE)).order().number, order.number);
    assert_eq!(other.ask(&result(SALE)).status, Status::NoOrder);
    assert_eq!(house.count("looked_up"), 0);
}

#[test]
fn who_waits_when_an_activity_ends_for_good_is_told_ended() {
    let house = Plan::new(160)
        .settings(|settings| {
            settings.stock.patience_ms = 60_000;
            settings.stock.unconfirmed_after_ms = 60_000;
        })
        .open();
    let mut waiting = super::waiting::queue_up(&house, 3);
    eventually("all three wait", || house.gateway.unfinished() == 3);
    set_state(&house, ENDING);
    for (client, id) in &mut waiting[1..] {
        assert_eq!(client.answer_to(*id).status, Status::Ended);
    }
    house.gate.open();
    // At the store already: whatever it says counts.
    let (first, id) = &mut waiting[0];
    assert_eq!(first.answer_to(*id).status, Status::Queued);
}

#[test]
fn results_of_an_archived_activity_are_told_from_the_database() {
    let (house, order) = archived(Plan::new(50));
    let (mut buyer, mut other, mut back_end) = (house.app(1), house.app(2), house.service());
    let told = buyer.ask(&result(SALE));
    assert_eq!((told.status, told.order().number), (Status::Ok, order));
    assert_eq!(told.order().state, OrderState::PendingPayment);
    assert_eq!(other.ask(&result(SALE)).status, Status::NoOrder);
    assert_eq!(back_end.ask_for(1, &result(SALE)).order().number, order);
    assert_eq!(back_end.ask_for(2, &result(SALE)).status, Status::NoOrder);
    eventually("they are counted", || house.count("looked_up") == 4);
    assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Ended, "also who holds an order there");
    assert_eq!(buyer.ask(&activity()).status, Status::Ended);
    assert_eq!(buyer.ask(&result(SALE + 1)).status, Status::NoOrder);
    assert_eq!(house.count("looked_up"), 4);
}

#[test]
fn a_client_that_says_goodbye_is_still_told_what_is_looked_up() {
    let (house, order) = archived(Plan::new(50));
    let mut buyer = house.app(1);
    let before = house.gate.arrived();
    house.gate.shut();
    let id = buyer.send(&result(SALE));
    buyer.finish_writing();
    eventually("it is looked up", || house.gate.arrived() > before);
    house.gate.open();
    assert_eq!(buyer.answer_to(id).order().number, order);
    buyer.closed();
}

#[test]
fn a_lookup_that_breaks_off_is_unconfirmed_and_leaves_nothing_in_flight() {
    let (house, order) = archived(Plan::new(50));
    let mut buyer = house.app(1);
    house.gate.break_lookups(true);
    assert_eq!(buyer.ask(&result(SALE)).status, Status::Unconfirmed);
    house.gate.break_lookups(false);
    assert_eq!(buyer.ask(&result(SALE)).order().number, order);
    buyer.send(&Request::Goaway);
    buyer.closed();
}

#[test]
fn after_its_time_an_archived_order_is_no_order() {
    let (house, _) = archived(Plan::new(50).settings(|settings| settings.lookups.keep = Duration::ZERO));
    // The embedded store takes the end of the window for the moment of archiving: it is an hour ahead.
    let mut buyer = house.app(1);
    assert_eq!(buyer.ask(&result(SALE)).status, Status::Ok);
    let over = "UPDATE activities SET opens_at_ms = 1, closes_at_ms = 2";
    let path = house.dir.path().join("data").join("rushgate.db");
    house.operate(async {
        let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(20));
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query(over).execute(&mut connection).await.unwrap();
    });
    set_state(&house, ARCHIVED);
    eventually("it is over", || buyer.ask(&result(SALE)).status == Status::NoOrder);
    assert_eq!(buyer.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
}

#[test]
fn lookups_are_bounded_in_flight_and_more_are_busy() {
    let (house, order) = archived(Plan::new(50).settings(|settings| settings.lookups.in_flight_max = 2));
    let before = house.gate.arrived();
    house.gate.shut();
    let mut asking: Vec<(Client, u32)> = Vec::new();
    for user in [1, 2] {
        let mut client = house.app(user);
        let id = client.send(&result(SALE));
        asking.push((client, id));
        eventually("it is looked up", || house.gate.arrived() == before + asking.len());
    }
    let mut late = house.app(3);
    let told = late.ask(&result(SALE));
    assert_eq!(told.status, Status::Busy);
    assert!(told.hint_ms >= 100, "{told:?}");
    // A refusal from memory waits for nobody.
    assert_eq!(late.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    house.gate.open();
    let (first, id) = &mut asking[0];
    assert_eq!(first.answer_to(*id).order().number, order);
    let (second, id) = &mut asking[1];
    assert_eq!(second.answer_to(*id).status, Status::NoOrder);
    eventually("there is room again", || late.ask(&result(SALE)).status == Status::NoOrder);
}

#[test]
fn lookups_are_bounded_per_second_and_more_are_busy() {
    let slow = Rate { rate_per_s: 1, burst: 2 };
    let (house, _) = archived(Plan::new(50).settings(|settings| settings.lookups.rate = slow));
    let mut clients = [1, 2, 3, 4].map(|user| house.app(user));
    let told = clients.each_mut().map(|client| client.ask(&result(SALE)));
    assert_eq!(told.each_ref().map(|told| told.status)[..2], [Status::Ok, Status::NoOrder]);
    let refused: Vec<_> = told.iter().filter(|told| told.status == Status::Busy).collect();
    assert!(!refused.is_empty() && refused.iter().all(|told| told.hint_ms > 0), "{told:?}");
}

#[test]
fn a_connection_has_no_more_lookups_unanswered_than_buys() {
    let (house, _) = archived(Plan::new(50).settings(|settings| settings.in_flight_max = 1));
    house.gate.shut();
    let mut buyer = house.app(1);
    let first = buyer.send(&result(SALE));
    let second = buyer.send(&result(SALE));
    assert_eq!(buyer.answer_to(second).status, Status::TooManyInFlight);
    house.gate.open();
    assert_eq!(buyer.answer_to(first).status, Status::Ok);
}

#[test]
fn a_database_that_does_not_tell_in_time_is_unconfirmed() {
    let (house, order) =
        archived(Plan::new(50).settings(|settings| settings.stock.unconfirmed_after_ms = 300));
    house.gate.shut();
    let mut buyer = house.app(1);
    let told = buyer.ask(&result(SALE));
    assert_eq!(told.status, Status::Unconfirmed);
    assert!(matches!(told.reply, Reply::Pending { order_number: OrderNumber(0) }), "{told:?}");
    house.gate.open();
    assert_eq!(buyer.ask(&result(SALE)).order().number, order);
}
