//! The rules of the stock protocol that the contract does not show, each by its number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, UserId};
use rushgate::stock::calls::{CallBody, Change, Gen, ItemAnswer, Mark, Reply, SHARDS, ShardId};
use rushgate::store::redis::{ActivityPhase, Guarded, Release};
use rushgate::store::{FeedRead, ReservationStore, StoreError};

use crate::installation::{ACTIVITY, Installation, Process, shard, sku, user_of, users_of};
use crate::redis_installation::{RedisInstallation, RedisStore, recover, redis};

pub async fn on_sale(units: u32) -> (RedisInstallation, Process<RedisStore>) {
    let installation = RedisInstallation::create().await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), units)]).await;
    let process = Process::start(installation.store()).await;
    (installation, process)
}

/// A mark as the writer settles it.
fn settled(mark: Mark, state: OrderState) -> Mark {
    Mark { state, pay_by_ms: 1_900_000_000_000, ..mark }
}

#[tokio::test]
async fn rule_1_guard_refuses_everything_while_the_shard_trusts_another_process() {
    let (installation, mut process) = on_sale(160).await;
    let (home, shards) = (shard(3), installation.shards());
    let item = process.item(user_of(home, 0), sku(1), 1);
    let sold = process.reserve(home, vec![item]);
    let reply = process.reply(&sold).await;
    installation.lose_trust().await;
    let generation = process.generation;
    let other = process.item(user_of(home, 1), sku(1), 1);
    let refused = process.reserve(home, vec![other]);
    let moving = process.call(home, CallBody::MoveOut { sku: sku(1), target: shard(4), want: 1 });
    for call in [&sold, &refused, &moving] {
        assert_eq!(process.reply(call).await, Reply::Recovering);
    }
    assert!(matches!(shards.snapshot(home).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(shards.probe().await, Err(StoreError::Unavailable(_))));
    let marks = [(item.user, settled(mark_of(&item), OrderState::Paid))];
    assert_eq!(shards.settled(home, generation, &marks).await.unwrap(), Guarded::Recovering);
    let change = [(SkuId(1), 5)];
    assert_eq!(shards.load(home, generation, "x", ACTIVITY, &change).await.unwrap(), Guarded::Recovering);
    let release = shards.release(home, generation, ACTIVITY, item.user, item.order, OrderState::Closed);
    assert_eq!(release.await.unwrap(), Guarded::Recovering);
    assert_eq!(shards.end(home, generation, ACTIVITY).await.unwrap(), Guarded::Recovering);

    recover(&shards, Gen(generation.0 + 1)).await;
    assert_eq!(process.reply(&sold).await, reply, "a stored reply is given whatever its generation");
    for call in [&refused, &moving] {
        let current = Gen(generation.0 + 1);
        let answer = process.reply(call).await;
        assert!(answer == Reply::Gen(current) || answer == Reply::Stale, "{answer:?}");
    }
    let current = Guarded::Gen(Gen(generation.0 + 1));
    assert_eq!(shards.settled(home, generation, &marks).await.unwrap(), current);
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.free, figures.sold, figures.in_transit), (159, 1, 0));
}

pub fn mark_of(item: &rushgate::stock::calls::Item) -> Mark {
    Mark {
        order: item.order,
        sku: item.sku,
        quantity: item.quantity,
        attempt: item.attempt,
        state: OrderState::Reserved,
        pay_by_ms: 0,
    }
}

#[tokio::test]
async fn rule_3_a_wrong_typed_key_changes_nothing_and_is_named() {
    let (installation, mut process) = on_sale(160).await;
    let (home, redis) = (shard(5), redis().await);
    for (nth, name) in ["meta", "feed", "calls", "7:stock", "7:buyers"].into_iter().enumerate() {
        let before = installation.shards().snapshot(home).await.unwrap();
        let key = format!("{}:{{05}}:{name}", installation.options.prefix);
        let aside = format!("{key}:aside");
        redis.call(&["COPY", &key, &aside]).await.unwrap();
        redis.call(&["DEL", &key]).await.unwrap();
        redis.call(&["SET", &key, "somebody else's"]).await.unwrap();
        let item = process.item(user_of(home, nth), sku(1), 1);
        let call = process.reserve(home, vec![item]);
        let error = process.store.call(&call).await.unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt(said) if said.contains(&key)), "{error}");
        redis.call(&["DEL", &key]).await.unwrap();
        // No calls were stored yet the first time.
        if redis.cli(&["EXISTS", &aside]).await.unwrap() == "1" {
            redis.call(&["RENAME", &aside, &key]).await.unwrap();
        }
        let mut after = installation.shards().snapshot(home).await.unwrap();
        after.marks.sort_unstable_by_key(|(user, _)| *user);
        let mut marks = before.marks.clone();
        marks.sort_unstable_by_key(|(user, _)| *user);
        assert_eq!((after.seq, &after.counters, after.marks), (before.seq, &before.counters, marks));
        assert_eq!(
            process.done(&call).await.answers,
            [ItemAnswer::Reserved],
            "the same number, once it is mended"
        );
    }
    installation.figures(sku(1)).await.assert_conserved();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_6_a_snapshot_of_50000_marks_is_exact_while_selling() {
    const MARKS: usize = 50_000;
    let (installation, mut process) = on_sale(16 * 1_000_000).await;
    let (home, shards) = (shard(9), installation.shards());
    // Marks enough to need many pieces, put there as a recovery does it.
    installation.lose_trust().await;
    let mut content = shards.content(home).await.unwrap();
    let activity = &mut content.activities[0];
    let mut users = users_of(home);
    activity.marks = users
        .by_ref()
        .take(MARKS)
        .map(|user| {
            let mark = mark_of(&process.item(user, sku(1), 1));
            (user, settled(mark, OrderState::PendingPayment))
        })
        .collect();
    activity.counters[0].free -= MARKS as u32;
    let current = Gen(process.generation.0 + 1);
    shards.rebuild(home, &content.epoch, current, &content).await.unwrap();
    process.generation = current;

    let by_seq = Arc::new(Mutex::new(BTreeMap::from([(0, MARKS)])));
    let is_over = Arc::new(AtomicBool::new(false));
    let selling = tokio::spawn({
        let (by_seq, is_over) = (Arc::clone(&by_seq), Arc::clone(&is_over));
        async move {
            let mut marks = MARKS;
            while !is_over.load(Ordering::Acquire) {
                let items = users.by_ref().take(7).map(|user| process.item(user, sku(1), 1)).collect();
                let call = process.reserve(home, items);
                let done = process.done(&call).await;
                marks += 7;
                by_seq.lock().unwrap().insert(done.seq, marks);
            }
        }
    });
    let mut taken = Vec::new();
    for _ in 0..4 {
        let snapshot = shards.snapshot(home).await.unwrap();
        let sold: u32 = snapshot.marks.iter().map(|(_, mark)| u32::from(mark.quantity)).sum();
        assert_eq!(snapshot.counters[0].free + sold, 1_000_000, "counters and marks are of one moment");
        taken.push((snapshot.seq, snapshot.marks.len()));
    }
    is_over.store(true, Ordering::Release);
    selling.await.unwrap();
    let by_seq = by_seq.lock().unwrap();
    for (seq, marks) in &taken {
        assert_eq!(by_seq.get(seq), Some(marks));
    }
    assert!(taken[0].0 < taken[3].0, "it was selling meanwhile: {taken:?}");
}

#[tokio::test]
async fn rule_13_settled_goes_forward_only_and_only_for_the_same_order() {
    let (installation, mut process) = on_sale(160).await;
    let (home, shards, generation) = (shard(1), installation.shards(), process.generation);
    let item = process.item(user_of(home, 0), sku(1), 1);
    let call = process.reserve(home, vec![item]);
    let seq = process.done(&call).await.seq;
    let mark = mark_of(&item);
    let steps = [
        (OrderState::Paid, OrderState::Paid, 1),
        (OrderState::PendingPayment, OrderState::Paid, 1),
        (OrderState::Closed, OrderState::Paid, 1),
        (OrderState::RefundDue, OrderState::Paid, 1),
    ];
    for (told, stands, events) in steps {
        let mut other = settled(mark, told);
        other.order = OrderNumber(mark.order.0 + 100);
        let nobody = (user_of(home, 9), settled(mark, told));
        let told = [(item.user, other), (item.user, settled(mark, told)), nobody];
        // Once more, and it is no event.
        for _ in 0..2 {
            assert_eq!(shards.settled(home, generation, &told).await.unwrap(), Guarded::Done(()));
        }
        let snapshot = shards.snapshot(home).await.unwrap();
        assert_eq!(snapshot.marks, [(item.user, settled(mark, stands))]);
        assert_eq!(snapshot.seq, seq + events);
    }
    let again = process.buy(item.user, sku(1), 1).await;
    assert_eq!(again, ItemAnswer::Already(settled(mark, OrderState::Paid)));
}

#[tokio::test]
async fn rule_14_a_release_gives_units_back_once_and_only_for_its_order() {
    let (installation, mut process) = on_sale(160).await;
    let (home, shards, generation) = (shard(1), installation.shards(), process.generation);
    let item = process.item(user_of(home, 0), sku(1), 3);
    let call = process.reserve(home, vec![item]);
    process.done(&call).await;
    let pay_by = [(item.user, settled(mark_of(&item), OrderState::PendingPayment))];
    shards.settled(home, generation, &pay_by).await.unwrap();
    let release = |user, order| shards.release(home, generation, ACTIVITY, user, order, OrderState::Failed);
    let other = OrderNumber(item.order.0 + 1);
    assert_eq!(release(item.user, other).await.unwrap(), Guarded::Done(Release::NotHis));
    assert_eq!(release(user_of(home, 5), item.order).await.unwrap(), Guarded::Done(Release::NotHis));
    assert_eq!(installation.figures(sku(1)).await.free, 157);
    assert_eq!(release(item.user, item.order).await.unwrap(), Guarded::Done(Release::Released));
    for _ in 0..3 {
        assert_eq!(release(item.user, item.order).await.unwrap(), Guarded::Done(Release::WasReleased));
    }
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.free, figures.sold), (160, 0));
    let seq = shards.snapshot(home).await.unwrap().seq;
    let mut after = [(generation, u64::MAX - 1); SHARDS];
    after[1].1 = seq - 1;
    let news = shards.read_feeds(&after, Duration::ZERO).await.unwrap();
    let [(_, FeedRead::Events(events))] = news.as_slice() else { panic!("{news:?}") };
    let expected = vec![(item.user, settled(mark_of(&item), OrderState::Failed))];
    assert_eq!(events[0].change, Change::Marked(expected));
    assert_eq!(events[0].counters[0].free, 10);
    // Money that comes after it is told, and moves no unit.
    let late = [(item.user, settled(mark_of(&item), OrderState::RefundDue))];
    shards.settled(home, generation, &late).await.unwrap();
    assert_eq!(shards.snapshot(home).await.unwrap().marks[0].1.state, OrderState::RefundDue);
    assert_eq!(installation.figures(sku(1)).await.free, 160);
}

#[tokio::test]
async fn rule_16_a_take_keeps_its_amount_under_its_id() {
    let (installation, mut process) = on_sale(160).await;
    let (home, shards, generation) = (shard(2), installation.shards(), process.generation);
    let take = |id, want: i64| {
        let shards = shards.clone();
        async move { shards.load(home, generation, id, ACTIVITY, &[(SkuId(1), -want)]).await.unwrap() }
    };
    let took = |units| Guarded::Done(vec![(SkuId(1), units)]);
    assert_eq!(take("a", 4).await, took(4));
    assert_eq!(take("b", 100).await, took(6));
    assert_eq!(process.buy(user_of(home, 0), sku(1), 1).await, ItemAnswer::EmptyHere);
    for (id, units) in [("a", 4), ("b", 6)] {
        assert_eq!(take(id, 100).await, took(units), "repeated, whatever it asks for");
    }
    // What was never loaded gives nothing, not even when its stock has come in the meantime.
    let other = ActivityId(99);
    let nothing = || shards.load(home, generation, "t", other, &[(SkuId(5), -3)]);
    assert_eq!(nothing().await.unwrap(), Guarded::Done(vec![(SkuId(5), 0)]));
    shards.load(home, generation, "l", other, &[(SkuId(5), 3)]).await.unwrap();
    assert_eq!(nothing().await.unwrap(), Guarded::Done(vec![(SkuId(5), 0)]));
    let too_much = shards.load(home, generation, "m", other, &[(SkuId(5), i64::from(u32::MAX))]).await;
    assert!(matches!(too_much, Err(StoreError::Unavailable(said)) if said.contains("SKU 5")));
}

#[tokio::test]
async fn rule_21_an_ended_activity_sells_nothing_and_leaves_a_tombstone() {
    let (installation, mut process) = on_sale(160).await;
    let (home, shards, generation) = (shard(2), installation.shards(), process.generation);
    let item = process.item(user_of(home, 0), sku(1), 1);
    let call = process.reserve(home, vec![item]);
    process.done(&call).await;
    let phase = |phase| Guarded::Done(phase);
    assert_eq!(shards.archive(home, generation, ACTIVITY).await.unwrap(), phase(ActivityPhase::Live));
    assert_eq!(shards.end(home, generation, ACTIVITY).await.unwrap(), phase(ActivityPhase::Ending));
    assert_eq!(process.buy(user_of(home, 1), sku(1), 1).await, ItemAnswer::NotLoaded);
    let moved = process.move_out(home, sku(1), shard(3), 2).await;
    assert_eq!((moved.counters[0].free, moved.counters[0].out.len()), (9, 0));
    let release = shards.release(home, generation, ACTIVITY, item.user, item.order, OrderState::Closed);
    assert_eq!(release.await.unwrap(), Guarded::Done(Release::Released), "releases still run");

    for _ in 0..2 {
        let archived = shards.archive(home, generation, ACTIVITY).await.unwrap();
        assert_eq!(archived, phase(ActivityPhase::Archived));
    }
    assert_eq!(shards.end(home, generation, ACTIVITY).await.unwrap(), phase(ActivityPhase::Archived));
    let late = shards.load(home, generation, "late", ACTIVITY, &[(SkuId(1), 5)]).await.unwrap();
    assert_eq!(late, Guarded::Done(vec![(SkuId(1), 0)]), "a late copy of a load brings nothing back");
    let snapshot = shards.snapshot(home).await.unwrap();
    assert_eq!((snapshot.counters.len(), snapshot.marks.len()), (0, 0));
    let state = shards.shard_state(home).await.unwrap();
    assert_eq!(state.activities, [(ACTIVITY, ActivityPhase::Archived)]);
    let left =
        redis().await.cli(&["EXISTS", &format!("{}:{{02}}:7:stock", installation.options.prefix)]).await;
    assert_eq!(left.unwrap(), "0");
}

#[tokio::test]
async fn activities_of_one_batch_are_answered_in_the_items_order() {
    let (installation, mut process) = on_sale(160).await;
    let mut other = sku(4);
    other.activity = ActivityId(70_000);
    installation.create_activity(other.activity, &[(other.sku, 16)]).await;
    let home = shard(11);
    let (a, b) = (user_of(home, 0), user_of(home, 1));
    let items = vec![
        process.item(a, other, 1),
        process.item(a, sku(1), 2),
        process.item(b, other, 1),
        process.item(b, sku(1), 9),
        process.item(a, sku(1), 1),
        process.item(b, sku(1), 1),
    ];
    let call = process.reserve(home, items.clone());
    let done = process.done(&call).await;
    let expected = [
        ItemAnswer::Reserved,
        ItemAnswer::Reserved,
        ItemAnswer::EmptyHere,
        ItemAnswer::EmptyHere,
        ItemAnswer::Already(mark_of(&items[1])),
        ItemAnswer::Reserved,
    ];
    assert_eq!(done.answers, expected);
    let free: BTreeMap<_, _> = done.counters.iter().map(|counters| (counters.sku, counters.free)).collect();
    assert_eq!(free, BTreeMap::from([(sku(1), 7), (other, 0)]));
    let seq = installation.store().snapshot(home).await.unwrap().seq;
    assert_eq!(seq, done.seq, "one event for all of it");
    let users: Vec<UserId> =
        installation.marks(other.activity).await.into_iter().map(|(user, _)| user).collect();
    assert_eq!(users, [a]);
}

#[tokio::test]
async fn a_batch_of_2000_items_is_one_call() {
    let (installation, mut process) = on_sale(16 * 1500).await;
    let home = shard(0);
    let items = users_of(home).take(2000).map(|user| process.item(user, sku(1), 1)).collect();
    let call = process.reserve(home, items);
    let done = process.done(&call).await;
    let sold = done.answers.iter().filter(|answer| **answer == ItemAnswer::Reserved).count();
    assert_eq!((sold, done.counters[0].free), (1500, 0));
    assert_eq!(installation.figures(sku(1)).await.sold, 1500);
    let shard = ShardId::ALL[0];
    assert_eq!(installation.store().snapshot(shard).await.unwrap().marks.len(), 1500);
}
