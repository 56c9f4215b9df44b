//! What SQL owes to Redis is driven until it is done: loads, preheats, the ledger.

use std::time::Duration;

use rushgate::protocol::{ActivityId, OrderState, UserId};
use rushgate::stock::calls::{Item, Mark, ShardId};
use rushgate::store::sql::NewLoad;
use rushgate::store::sql::mysql::{ActivityState, CloseOutcome, FailOutcome};

use super::child::WriterProcess;
use super::house::{ACTIVITY, SKU, World, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_16_activities_are_preheated_in_time_and_loads_are_driven() {
    let world = World::new().await;
    world.create(ACTIVITY, 1600, Duration::from_secs(30)).await;
    world.create(ActivityId(8), 1600, Duration::from_secs(3600)).await;
    let writer = WriterProcess::working(&world, "preheat_ahead = \"1m\"");
    eventually("the stock is in Redis", || async { world.free().await == 1600 }).await;
    eventually("SQL knows", || async { world.sql.due_loads(10).await.unwrap().is_empty() }).await;
    let states = world.sql.activity_states().await.unwrap();
    assert_eq!(states, [(ACTIVITY, ActivityState::Loaded), (ActivityId(8), ActivityState::Created)]);
    // Later additions, and a take of more than is free.
    let added = world.sql.write_load(SKU, NewLoad::Add(37)).await.unwrap();
    assert_eq!(world.sql.settled_load(&added, Some(Duration::from_secs(30))).await.unwrap(), Some(37));
    assert_eq!(world.free().await, 1637);
    let taken = world.sql.write_load(SKU, NewLoad::Remove(2000)).await.unwrap();
    assert_eq!(world.sql.settled_load(&taken, Some(Duration::from_secs(30))).await.unwrap(), Some(1637));
    assert_eq!(world.free().await, 0);
    assert_eq!(writer.count("preheats"), 1);
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_14_the_ledger_gives_a_unit_back_exactly_once() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=30).await;
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    let rows = world.order_rows().await;
    let (user, closed) = rows[0];
    assert_eq!(world.sql.close_order(closed.order, "not paid in time").await.unwrap(), CloseOutcome::Closed);
    eventually("its unit is back", || async { world.free().await == 971 }).await;
    assert!(matches!(world.sql.close_order(closed.order, "again").await.unwrap(), CloseOutcome::Stands(_)));
    assert_eq!(world.marks().await[&user].state, OrderState::Closed);
    // A promise that fails before any writer has settled it: by then its row is there, and final.
    writer.stopped();
    world.reserve(31..=31).await;
    let user = UserId(31);
    let mark = world.marks().await[&user];
    assert_eq!(world.sql.fail(user, &mark, "given up").await.unwrap(), FailOutcome::Failed);
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    eventually("its unit is back", || async { world.sql.due_releases(0, 10).await.unwrap().is_empty() })
        .await;
    assert_eq!(world.marks().await[&user].state, OrderState::Failed);
    assert_eq!(world.free().await, 971);
    let (_, figures) = world.sql.figures(ACTIVITY).await.unwrap();
    assert_eq!((figures[&SKU.sku].sold, figures[&SKU.sku].free), (29, 971));
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_14_a_unit_that_is_reserved_again_under_a_number_that_failed_comes_back() {
    let mut world = World::with_stock(1000).await;
    let writer = WriterProcess::working(&world, "");
    let (user, order) = (UserId(5), world.next_order());
    // Given up in a recovery: no shard knows of it, and its row is final.
    let mark = Mark { order, sku: SKU, quantity: 1, attempt: 1, state: OrderState::Reserved, pay_by_ms: 0 };
    assert_eq!(world.sql.fail(user, &mark, "given up").await.unwrap(), FailOutcome::Failed);
    let is_done = async || world.sql.due_releases(0, 10).await.unwrap().is_empty();
    eventually("there was nothing to give back", is_done).await;
    // Its gateway offers it once more, and there is a unit for it by now.
    let item = Item { user, sku: SKU, order, quantity: 1, attempt: 1, promised: false };
    world.reserve_items(ShardId::of(user), vec![item]).await;
    eventually("the unit is back", || async { world.free().await == 1000 }).await;
    assert_eq!(world.marks().await[&user].state, OrderState::Failed);
    world.drained().await;
    writer.stopped();
}
