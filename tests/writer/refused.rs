//! What a shard does not take stays to be told: settlements keep their entries pending (rule 13), releases and states
//! stay owed in SQL (rule 14).

use std::time::Duration;

use rushgate::protocol::OrderState;
use rushgate::stock::calls::{SHARDS, ShardId};
use rushgate::store::sql::mysql::CloseOutcome;

use super::child::WriterProcess;
use super::house::{ACTIVITY, World, eventually, shared_mariadb, shared_redis};

const POLL: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_nothing_is_acknowledged_before_its_shard_has_been_told() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=100).await;
    // One shard cannot be told: its marks are something that no gateway wrote.
    let (shard, redis) = (ShardId::ALL[3], shared_redis().await);
    let marks = format!("{}:{{03}}:{ACTIVITY}:buyers", world.prefix);
    let aside = format!("{marks}:aside");
    redis.call(&["RENAME", &marks, &aside]).await.unwrap();
    redis.call(&["SET", &marks, "somebody else's"]).await.unwrap();
    let writer = WriterProcess::working(&world, "");
    eventually("it says so", || async { writer.log().contains(&marks) }).await;
    // Its sums may say so before its entries were given to anybody.
    eventually("its entries are read", || async {
        world.redis.backlog(shard).await.unwrap().entries_undelivered == 0
    })
    .await;
    assert!(
        world.redis.backlog(shard).await.unwrap().entries_pending > 0,
        "acknowledged, and nobody tells it"
    );
    redis.call(&["DEL", &marks]).await.unwrap();
    redis.call(&["RENAME", &aside, &marks]).await.unwrap();
    world.drained().await;
    world.audit(1000, 100).await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_14_what_a_shard_refuses_stays_owed_until_it_has_it() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=2).await;
    WriterProcess::working(&world, "").settled_by(&world).await;
    let rows = world.order_rows().await;
    let ((closed_by, closed), (paid_by, paid)) = (rows[0], rows[1]);
    // A recovery has begun in SQL; no shard knows of it yet, and none answers to its generation.
    let mut leadership = world.sql.try_lead().await.unwrap().unwrap();
    let generation = leadership.raise_generation(&[false; SHARDS]).await.unwrap();
    assert_eq!(world.sql.close_order(closed.order, "not paid").await.unwrap(), CloseOutcome::Closed);
    let pay = format!(
        "UPDATE {0}.orders SET state = 3 WHERE number = {1}; INSERT INTO {0}.outbox (number, state, done, \
         created_at_ms) VALUES ({1}, 3, 0, 1)",
        world.database.name, paid.order
    );
    shared_mariadb().await.sql(&pay).await.unwrap();
    // Whoever dies at the third try has tried again after two refusals.
    for point in ["writer.after_release:3", "writer.after_marks:3"] {
        let mut writer = WriterProcess::start(&world, "", Some(point));
        while writer.is_running() {
            assert_eq!(world.sql.due_releases(0, 10).await.unwrap().len(), 1);
            assert_eq!(world.sql.due_marks(0, 10).await.unwrap().len(), 1);
            tokio::time::sleep(POLL).await;
        }
        writer.crashed();
    }
    assert_eq!(world.free().await, 998);

    world.recovered(leadership, generation).await;
    let writer = WriterProcess::working(&world, "");
    eventually("the unit is back", || async { world.sql.due_releases(0, 10).await.unwrap().is_empty() })
        .await;
    eventually("the state is told", || async { world.sql.due_marks(0, 10).await.unwrap().is_empty() }).await;
    let marks = world.marks().await;
    assert_eq!((marks[&closed_by].state, marks[&paid_by].state), (OrderState::Closed, OrderState::Paid));
    assert_eq!(world.free().await, 999);
    writer.stopped();
}
