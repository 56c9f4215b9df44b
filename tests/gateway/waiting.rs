//! Who waits: how many may, for how long, what ends it, and what operators see of a store that does not answer.

use rushgate::protocol::{Status, UserId};
use rushgate::stock::calls::ShardId;

use super::house::{House, Plan, SALE, SKU};
use super::wire::{Client, buy, eventually};

/// Users of one shard, so that the second waits for the call of the first.
fn neighbours(count: usize) -> Vec<u64> {
    let shard = ShardId::of(UserId(1));
    (1..).filter(|id| ShardId::of(UserId(*id)) == shard).take(count).collect()
}

/// The first one's call stands at the shut gate; the others wait behind it.
pub(crate) fn queue_up(house: &House, count: usize) -> Vec<(Client, u32)> {
    house.gate.shut();
    let mut waiting = Vec::new();
    for user in neighbours(count) {
        let mut client = house.app(user);
        let id = client.send(&buy(SALE, SKU, 1));
        waiting.push((client, id));
        eventually("the first call is at the store", || house.gate.arrived() > 0);
    }
    waiting
}

#[test]
fn who_waits_in_an_entry_that_is_closed_is_told_ended_and_who_is_at_the_store_is_not() {
    closing_ends_who_waits(|house| house.operate(house.admin.close(u64::from(SALE))).unwrap());
}

/// However the entry is closed.
#[track_caller]
pub(crate) fn closing_ends_who_waits(close: impl FnOnce(&House)) {
    let house = Plan::new(160)
        .settings(|settings| {
            settings.stock.patience_ms = 60_000;
            settings.stock.unconfirmed_after_ms = 60_000;
        })
        .open();
    let mut waiting = queue_up(&house, 3);
    eventually("all three wait", || house.gateway.unfinished() == 3);
    close(&house);
    for (client, id) in &mut waiting[1..] {
        assert_eq!(client.answer_to(*id).status, Status::Ended);
    }
    house.gate.open();
    let (first, id) = &mut waiting[0];
    assert_eq!(first.answer_to(*id).status, Status::Queued);
    assert_eq!(house.sold(), (1, 1));
}

#[test]
fn one_number_bounds_what_waits_for_a_shard() {
    let house = Plan::new(160)
        .settings(|settings| {
            settings.stock.queue_items_max = 4;
            settings.stock.patience_ms = 60_000;
            settings.stock.unconfirmed_after_ms = 60_000;
        })
        .open();
    // One in flight, four behind it.
    let mut waiting = queue_up(&house, 5);
    eventually("all five wait", || house.gateway.unfinished() == 5);
    let next = neighbours(6)[5];
    let mut late = house.app(next);
    eventually("the queue is full", || late.ask(&buy(SALE, SKU, 1)).status == Status::Busy);
    assert_eq!(house.gateway.unfinished(), 5);
    house.gate.open();
    for (client, id) in &mut waiting {
        assert_eq!(client.answer_to(*id).status, Status::Queued);
    }
    assert_eq!(late.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
}

#[test]
fn a_store_that_does_not_answer_is_seen_and_is_not_sent_ever_more() {
    let house = Plan::new(160)
        .settings(|settings| {
            settings.stock.call_timeout_ms = 5;
            settings.stock.unconfirmed_after_ms = 400;
        })
        .open();
    eventually("it is ready", || house.gateway.not_ready().is_empty());
    let mut waiting = queue_up(&house, 1);
    let (client, id) = &mut waiting[0];
    assert_eq!(client.answer_to(*id).status, Status::Unconfirmed);
    eventually("it is seen", || house.gateway.not_ready() == ["the store does not answer calls"]);
    // Eighty timeouts have passed since the first copy.
    assert!(house.gate.arrived() <= 3, "{} copies of one call", house.gate.arrived());
    house.gate.open();
    eventually("it is ready again", || house.gateway.not_ready().is_empty());
    assert_eq!(house.sold(), (1, 1));
}
