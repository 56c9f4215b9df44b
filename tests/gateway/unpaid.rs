//! Caps on open unpaid reservations, of a user and of a device.

use rushgate::admission::limits::OpenUnpaidMax;
use rushgate::gateway::Rung;
use rushgate::protocol::{ActivityId, ClientVersion, OrderNumber, OrderState, Request, Status};

use super::house::{House, Plan, SKU, sale};
use super::switches::obeyed;
use super::wire::{Client, buy, eventually, result};

const SALES: std::ops::RangeInclusive<u32> = 1..=4;

fn house(per_user: u8, per_device: u8) -> House {
    Plan::with(SALES.map(|id| sale(id, &[(SKU, 50)], 1)).collect())
        .limits(|limits| limits.open_unpaid = OpenUnpaidMax { per_user, per_device })
        .open()
}

fn buys(client: &mut Client, activity: u32) -> Status {
    client.ask(&buy(activity, SKU, 1)).status
}

/// The order is closed, and the gateway has heard of it.
fn cancel(client: &mut Client, activity: u32) {
    let order: OrderNumber = client.ask(&result(activity)).order().number;
    let told = client.ask(&Request::Cancel { activity: ActivityId(activity), order });
    assert_eq!(told.order().state, OrderState::Closed);
    eventually("it is closed", || client.ask(&result(activity)).order().state == OrderState::Closed);
}

#[track_caller]
fn on_device(house: &House, device: &str, user: u64) -> Client {
    let mut client = Client::connect(house.addr());
    let hello = Request::Hello { version: ClientVersion { platform: 2, app: [1, 2, 3] }, device };
    assert_eq!(client.ask(&hello).status, Status::Ok);
    assert_eq!(client.auth(&house.token(user)).status, Status::Ok);
    client
}

/// BUYs that ended at some rung, or passed all.
fn counted(house: &House) -> u64 {
    Rung::ALL.iter().map(|rung| house.count(&format!("rung {}", rung.name()))).sum()
}

#[test]
fn a_user_has_no_more_unpaid_orders_at_a_time_than_the_cap_over_all_activities() {
    let house = house(2, 0);
    let (mut client, mut other) = (house.app(1), house.app(2));
    assert_eq!([1, 2].map(|id| buys(&mut client, id)), [Status::Queued; 2]);
    let refused = client.ask(&buy(3, SKU, 1));
    assert_eq!((refused.status, refused.hint_ms), (Status::TooManyUnpaid, 0));
    // Nothing turns away who holds an order, nor is he told that something is left where nothing is.
    assert_eq!(buys(&mut client, 1), Status::Already);
    assert_eq!(buys(&mut client, 9), Status::UnknownActivity);
    assert_eq!(buys(&mut other, 3), Status::Queued);
    cancel(&mut client, 1);
    assert_eq!(buys(&mut client, 3), Status::Queued);
    assert_eq!(buys(&mut client, 4), Status::TooManyUnpaid);
    assert_eq!(house.count("rung open_unpaid_user"), 2);
    assert_eq!((counted(&house), house.count("rung passed")), (8, 4), "each BUY is counted once");
}

#[test]
fn a_device_has_no_more_unpaid_orders_at_a_time_than_the_cap_over_all_its_users() {
    let house = house(0, 2);
    let mut farm: Vec<Client> = (1..=3).map(|user| on_device(&house, "farm", user)).collect();
    let (mut one, mut nameless) = (on_device(&house, "one", 4), house.app(5));
    assert_eq!([0, 1].map(|nth: usize| buys(&mut farm[nth], 1)), [Status::Queued; 2]);
    assert_eq!(buys(&mut farm[2], 1), Status::TooManyUnpaid);
    assert_eq!(buys(&mut farm[0], 2), Status::TooManyUnpaid, "whoever it is, in whatever activity");
    assert_eq!([buys(&mut one, 1), buys(&mut nameless, 1)], [Status::Queued; 2]);
    cancel(&mut farm[0], 1);
    assert_eq!(buys(&mut farm[2], 2), Status::Queued);
    assert_eq!(buys(&mut farm[0], 2), Status::TooManyUnpaid);
    assert_eq!((house.count("rung open_unpaid_device"), counted(&house)), (3, 8));
}

#[test]
fn what_is_under_way_counts_until_it_is_answered() {
    let house = house(1, 0);
    let mut client = house.app(1);
    house.gate.shut();
    let first = client.send(&buy(1, SKU, 1));
    let told = client.ask(&buy(2, SKU, 1));
    assert!(told.status == Status::Busy && told.hint_ms > 0, "{told:?}");
    house.gate.open();
    assert_eq!(client.wait_for(|answer| answer.id == first).status, Status::Queued);
    assert_eq!(buys(&mut client, 2), Status::TooManyUnpaid);
    // What comes to nothing is not counted for long.
    let mut other = house.app(2);
    assert_eq!(other.ask(&buy(1, SKU, 1)).status, Status::Queued);
    cancel(&mut other, 1);
    assert_eq!([1, 2].map(|id| buys(&mut other, id)), [Status::NotAgain, Status::Queued]);
}

#[test]
fn the_caps_are_off_by_default_and_changed_while_it_sells() {
    let house = house(0, 0);
    let mut client = on_device(&house, "phone", 1);
    assert_eq!([1, 2].map(|id| buys(&mut client, id)), [Status::Queued; 2]);
    // What was bought before counts as well.
    obeyed(&house, "limits.open_unpaid_per_user_max", "2");
    assert_eq!(buys(&mut client, 3), Status::TooManyUnpaid);
    for odd in ["0", "101", "x", ""] {
        obeyed(&house, "limits.open_unpaid_per_user_max", odd);
        assert_eq!(buys(&mut client, 3), Status::TooManyUnpaid, "{odd:?} is ignored");
    }
    obeyed(&house, "limits.open_unpaid_per_user_max", "3");
    assert_eq!([3, 4].map(|id| buys(&mut client, id)), [Status::Queued, Status::TooManyUnpaid]);
    obeyed(&house, "limits.open_unpaid_per_device_max", "1");
    obeyed(&house, "limits.open_unpaid_per_user_max", "off");
    assert_eq!(buys(&mut client, 4), Status::Queued, "of a device what was bought under the cap");
    let mut second = on_device(&house, "phone", 2);
    assert_eq!(buys(&mut second, 4), Status::TooManyUnpaid);
    obeyed(&house, "limits.open_unpaid_per_device_max", "default");
    assert_eq!(buys(&mut second, 4), Status::Queued);
}
