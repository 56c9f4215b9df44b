//! The shards in MariaDB beside what Redis sold, and shared by several gateways.

use std::sync::Arc;
use std::time::Duration;

use rushgate::payment::{PaymentState, RefundCause};
use rushgate::protocol::{OrderNumber, OrderState, SkuId, UserId};
use rushgate::stock::calls::{CallBody, Change, Gen, ItemAnswer, SHARDS, ShardId};
use rushgate::store::catalog::Catalogue;
use rushgate::store::sql::NewLoad;
use rushgate::store::sql::mysql::{
    CloseOutcome, MySqlInstallation, MySqlRefused, MySqlStore, SettleOutcome, Settlement,
};
use rushgate::store::{FeedRead, ReservationStore};

use crate::fixture::{ACTIVITY, Scene, options, reservation, sku};
use crate::installation::Process;
use crate::payments::{kept, payment};

/// Redis has a hundred units of SKU 1, the database 160.
async fn scene() -> (Scene, Arc<MySqlStore>) {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let store = Arc::new(MySqlStore::new(scene.sql.clone()));
    store.write_load(sku(1), NewLoad::Add(160)).await.unwrap();
    assert_eq!(store.drive_loads().await.unwrap(), 1);
    (scene, store)
}

async fn free(store: &MySqlStore, shard: ShardId) -> u32 {
    store.snapshot(shard).await.unwrap().counters[0].free
}

#[tokio::test]
async fn two_gateways_sell_from_the_same_shards_and_hear_of_each_other() {
    let (scene, here) = scene().await;
    let there = MySqlInstallation::open(options(&scene.database)).await.unwrap();
    let there = Arc::new(MySqlStore::new(there));
    let (mut one, mut two) =
        (Process::start(Arc::clone(&here)).await, Process::start(Arc::clone(&there)).await);
    assert_ne!(one.number, two.number);
    let (user, shard) = (UserId(1), ShardId::of(UserId(1)));
    let mut position = [(Gen(0), 0); SHARDS];
    for shard in ShardId::all() {
        position[shard.index()].1 = there.snapshot(shard).await.unwrap().seq;
    }
    let waiting = tokio::spawn({
        let there = Arc::clone(&there);
        async move { there.read_feeds(&position, Duration::from_secs(60)).await.unwrap() }
    });
    let item = one.item(user, sku(1), 2);
    let call = one.reserve(shard, vec![item]);
    assert_eq!(one.done(&call).await.answers, [ItemAnswer::Reserved]);
    let news = waiting.await.unwrap();
    let [(at, FeedRead::Events(events))] = news.as_slice() else { panic!("{news:?}") };
    let Change::Marked(marks) = &events[0].change else { panic!("{events:?}") };
    assert_eq!((*at, marks[0].0, marks[0].1.order), (shard, user, item.order));
    let ItemAnswer::Already(mark) = two.buy(user, sku(1), 1).await else { panic!("bought twice") };
    assert_eq!(mark.order, item.order);
    assert_eq!(free(&there, shard).await, 8);
}

#[tokio::test]
async fn a_user_has_one_live_order_whoever_sold_it() {
    let (scene, store) = scene().await;
    let mut process = Process::start(Arc::clone(&store)).await;
    // Redis first.
    scene.settle(&[reservation(1, 1)]).await;
    let ItemAnswer::Already(mark) = process.buy(UserId(1), sku(1), 1).await else { panic!("bought twice") };
    assert_eq!((mark.order, mark.state), (OrderNumber(1), OrderState::PendingPayment));
    // The database first.
    assert_eq!(process.buy(UserId(2), sku(1), 1).await, ItemAnswer::Reserved);
    let settlements = scene.settle(&[reservation(2, 2)]).await;
    let [Settlement::Superseded { already }] = settlements.as_slice() else { panic!("{settlements:?}") };
    assert_eq!(already.order.0 >> 36, u64::from(process.number.0));
    // Attempts are numbered apart: what is over there is not in the way here.
    scene.sql.close_order(OrderNumber(1), "unpaid").await.unwrap();
    assert_eq!(process.buy(UserId(1), sku(1), 1).await, ItemAnswer::Reserved);
    assert_eq!(scene.stock(1).await, (100, 0), "Redis's stock is its own");
    let stock_total = store.activities().await.unwrap()[0].skus[0].stock_total;
    assert_eq!(stock_total, 160);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_buys_in_both_worlds_at_once_ends_with_one_order() {
    let (scene, store) = scene().await;
    let mut process = Process::start(Arc::clone(&store)).await;
    let (mut here, mut there) = (0, 0);
    for user in 1..=40_u64 {
        let sql = scene.sql.clone();
        let settling =
            tokio::spawn(async move { sql.settle(Gen(0), &[reservation(user, user)]).await.unwrap() });
        let bought = process.buy(UserId(user), sku(1), 1).await;
        let SettleOutcome::Committed(settled) = settling.await.unwrap() else { panic!() };
        match (bought, &settled[0]) {
            (ItemAnswer::Reserved, Settlement::Superseded { .. }) => here += 1,
            (ItemAnswer::Already(_), Settlement::Settled(_)) => there += 1,
            both => panic!("user {user}: {both:?}"),
        }
    }
    assert_eq!(here + there, 40);
    assert_eq!(scene.count("SELECT COUNT(*) FROM orders WHERE live = 1").await, 40);
    assert_eq!(scene.stock(1).await, (100 - there, there));
}

#[tokio::test]
async fn an_order_number_that_is_taken_refuses_its_item_alone() {
    let (scene, store) = scene().await;
    scene.settle(&[reservation(1, 7)]).await;
    let mut process = Process::start(Arc::clone(&store)).await;
    let shard = ShardId::of(UserId(2));
    let neighbour = (3..1000).map(UserId).find(|user| ShardId::of(*user) == shard).unwrap();
    let mut taken = process.item(UserId(2), sku(1), 1);
    taken.order = OrderNumber(7);
    let items = vec![taken, process.item(neighbour, sku(1), 1)];
    let call = process.call(shard, CallBody::Reserve { bring_in: Vec::new(), items });
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::NotLoaded, ItemAnswer::Reserved]);
    assert_eq!(free(&store, shard).await, 9);
}

#[tokio::test]
async fn an_activity_that_ends_sells_nothing_and_takes_units_back() {
    let (scene, store) = scene().await;
    let mut process = Process::start(Arc::clone(&store)).await;
    let (user, shard) = (UserId(1), ShardId::of(UserId(1)));
    let item = process.item(user, sku(1), 3);
    let call = process.reserve(shard, vec![item]);
    process.done(&call).await;
    let moved = process.move_out(shard, sku(1), ShardId::ALL[(shard.index() + 2) % 16], 1).await;
    scene.sql.end_activity(ACTIVITY).await.unwrap();
    let other = (2..1000).map(UserId).find(|user| ShardId::of(*user) == shard).unwrap();
    assert_eq!(process.buy(other, sku(1), 1).await, ItemAnswer::NotLoaded);
    assert_eq!(
        process.move_out(shard, sku(1), ShardId::ALL[(shard.index() + 1) % 16], 1).await.seq,
        moved.seq
    );
    let refused = store.write_load(sku(1), NewLoad::Add(1)).await.unwrap_err();
    assert!(matches!(refused, MySqlRefused::Ended(ACTIVITY)), "{refused}");

    assert_eq!(store.close_order(item.order).await.unwrap(), CloseOutcome::Closed);
    let CloseOutcome::Stands(mark) = store.close_order(item.order).await.unwrap() else {
        panic!("closed twice")
    };
    assert_eq!(mark.state, OrderState::Closed);
    assert_eq!(free(&store, shard).await, 9);
    let mut after = [(Gen(0), u64::MAX); SHARDS];
    after[shard.index()].1 = moved.seq;
    let news = store.read_feeds(&after, Duration::ZERO).await.unwrap();
    let [(_, FeedRead::Events(events))] = news.as_slice() else { panic!("{news:?}") };
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].counters[0].out, moved.counters[0].out, "what was moved before stays told");
    assert_eq!(events[0].change, Change::Marked(vec![(user, mark)]), "who tails the feed learns of it");
    assert_eq!(events[0].counters[0].sku.sku, SkuId(1));
    assert_eq!(scene.sql.due_releases(0, 10).await.unwrap(), [], "no ledger: the units are here");
}

#[tokio::test]
async fn what_the_database_itself_sold_is_paid_or_closed_and_told_by_its_feed() {
    let (scene, store) = scene().await;
    let mut process = Process::start(Arc::clone(&store)).await;
    let (user, shard) = (UserId(1), ShardId::of(UserId(1)));
    let other = (2..1000).map(UserId).find(|user| ShardId::of(*user) == shard).unwrap();
    let items = vec![process.item(user, sku(1), 2), process.item(other, sku(1), 1)];
    let (paid, unpaid) = (items[0].order, items[1].order);
    let call = process.reserve(shard, items);
    let sold = process.done(&call).await;
    assert_eq!(scene.pay(&payment("p", paid.0, 200)).await, kept(PaymentState::Applied));
    scene.execute("UPDATE orders SET pay_by_ms = pay_by_ms - 1000000").await;
    assert_eq!(scene.close_overdue(&[paid, unpaid]).await, 1);
    assert_eq!(free(&store, shard).await, 8);
    let late = kept(PaymentState::RefundDue(RefundCause::OrderClosed));
    assert_eq!(scene.pay(&payment("late", unpaid.0, 100)).await, late);
    let mut after = [(Gen(0), u64::MAX); SHARDS];
    after[shard.index()].1 = sold.seq;
    let news = store.read_feeds(&after, Duration::ZERO).await.unwrap();
    let [(_, FeedRead::Events(events))] = news.as_slice() else { panic!("{news:?}") };
    let told = |event: &rushgate::stock::calls::Event| match &event.change {
        Change::Marked(marks) => (marks[0].0, marks[0].1.state),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        events.iter().map(told).collect::<Vec<_>>(),
        [(user, OrderState::Paid), (other, OrderState::Closed), (other, OrderState::RefundDue)]
    );
    // Nothing of it is Redis's.
    assert_eq!(scene.sql.due_releases(0, 10).await.unwrap(), []);
    assert_eq!(scene.sql.due_marks(0, 10).await.unwrap(), []);
    assert_eq!(scene.count("SELECT COUNT(*) FROM order_history").await, 3);
}
