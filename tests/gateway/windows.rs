//! When an activity sells: its window by the sale clock, and the operator's entry switch.

use rushgate::protocol::{ActivityId, ActivityState, Reply, Request, Status};

use super::house::{House, Plan, SALE, SKU, now_ms, sale};
use super::wire::{Client, buy, eventually, result};

fn state(client: &mut Client) -> ActivityState {
    match client.ask(&Request::Activity { activity: ActivityId(SALE) }).reply {
        Reply::Activity { info, .. } => info.state,
        other => panic!("{other:?}"),
    }
}

fn open_from(opens_at_ms: u64, closes_at_ms: u64) -> House {
    let mut activity = sale(SALE, &[(SKU, 5)], 1);
    (activity.opens_at_ms, activity.closes_at_ms) = (opens_at_ms, closes_at_ms);
    Plan::with(vec![activity]).open()
}

#[test]
fn before_the_window_the_time_that_is_left_is_told_and_no_unit_is_touched() {
    let opens_at_ms = now_ms() + 3_600_000;
    let house = open_from(opens_at_ms, opens_at_ms + 1000);
    let mut client = house.app(1);
    assert_eq!(state(&mut client), ActivityState::Upcoming);
    let (before_ms, answer, after_ms) = (now_ms(), client.ask(&buy(SALE, SKU, 1)), now_ms());
    assert_eq!(answer.status, Status::NotStarted);
    let Reply::OpensAt { opens_at_ms: told_ms, server_time_ms } = answer.reply else { panic!("{answer:?}") };
    assert_eq!(told_ms, opens_at_ms);
    // The sale clock looks at the wall clock many times a second, not at each request.
    assert!((before_ms - 2..=after_ms + 2).contains(&server_time_ms));
    assert_eq!(u64::from(answer.hint_ms), opens_at_ms - server_time_ms);
    assert_eq!((house.gate.arrived(), house.sold()), (0, (0, 0)));
}

#[test]
fn a_hint_beyond_its_32_bits_is_capped() {
    let opens_at_ms = now_ms() + 60 * 24 * 3_600_000;
    let house = open_from(opens_at_ms, opens_at_ms + 1000);
    assert_eq!(house.app(1).ask(&buy(SALE, SKU, 1)).hint_ms, u32::MAX);
}

#[test]
fn the_window_opens_and_closes_by_the_sale_clock() {
    let opens_at_ms = now_ms() + 1000;
    let closes_at_ms = opens_at_ms + 1500;
    let house = open_from(opens_at_ms, closes_at_ms);
    let mut winner = house.app(1);
    let mut early = 0;
    loop {
        let answer = winner.ask(&buy(SALE, SKU, 1));
        let answered_ms = now_ms();
        if answer.status == Status::Queued {
            assert!(answered_ms >= opens_at_ms);
            break;
        }
        assert_eq!(answer.status, Status::NotStarted);
        let Reply::OpensAt { server_time_ms, .. } = answer.reply else { panic!("{answer:?}") };
        assert!(server_time_ms < opens_at_ms);
        early += 1;
    }
    assert!(early > 0);
    let mut loser = house.app(2);
    eventually("the window closes", || state(&mut loser) == ActivityState::Ended);
    assert!(now_ms() >= closes_at_ms);
    assert_eq!(loser.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    assert_eq!(loser.ask(&result(SALE)).status, Status::NoOrder);
    // Never turned away who has won.
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert_eq!(winner.ask(&result(SALE)).status, Status::Ok);
    assert_eq!(house.count("rung activity"), early + 1);
}

#[test]
fn the_entry_switch_ends_the_sale_for_all_but_winners_and_opens_it_again() {
    let house = Plan::new(5).open();
    let (mut winner, mut loser) = (house.app(1), house.app(2));
    let order = winner.ask(&buy(SALE, SKU, 1)).order().number;
    house.operate(house.admin.close(u64::from(SALE))).unwrap();
    eventually("the entry is closed", || state(&mut loser) == ActivityState::Ended);
    for _ in 0..3 {
        assert_eq!(loser.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
        assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
        assert_eq!(winner.ask(&result(SALE)).order().number, order);
    }
    assert_eq!((house.count("rung switches"), house.count("rung duplicate")), (3, 3));
    house.operate(house.admin.open(u64::from(SALE))).unwrap();
    eventually("the entry is open", || loser.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    assert_eq!(house.sold(), (2, 2));
}

#[test]
fn stock_added_during_the_sale_sells_and_a_winner_is_never_told_sold_out() {
    let house = Plan::new(1).open();
    let (mut winner, mut loser) = (house.app(1), house.app(2));
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    assert_eq!(loser.ask(&buy(SALE, SKU, 1)).status, Status::SoldOut);
    assert_eq!(winner.ask(&buy(SALE, SKU, 1)).status, Status::Already);
    house.operate(house.admin.stock_add(u64::from(SALE), u64::from(SKU), 1)).unwrap();
    eventually("the unit is on sale", || loser.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
    assert_eq!(house.app(3).ask(&buy(SALE, SKU, 1)).status, Status::SoldOut);
    assert_eq!(house.sold(), (2, 2));
}

#[test]
fn an_activity_made_while_the_gateway_serves_is_on_sale_at_once() {
    let house = Plan::with(Vec::new()).open();
    let mut client = house.app(1);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::UnknownActivity);
    house.operate(house.admin.create(&sale(SALE, &[(SKU, 1)], 1))).unwrap();
    eventually("the activity is known", || client.ask(&buy(SALE, SKU, 1)).status == Status::Queued);
}
