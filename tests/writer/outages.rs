//! A server dies, or is not there yet, while orders are settled: nothing is lost and nobody has to restart a writer.

use rushgate_servers::{MariaDb, Persistence, Redis};

use super::child::WriterProcess;
use super::house::{World, eventually, shared_mariadb, shared_redis};

const SLOW: &str = "batch_rows_max = 50\nrows_per_s = 1000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_killed_and_restarted_while_settling() {
    let mariadb = MariaDb::start().await.unwrap();
    let mut world = World::on(shared_redis().await, &mariadb).await;
    world.sell(10_000).await;
    world.reserve(1..=5000).await;
    let writer = WriterProcess::working(&world, SLOW);
    eventually("it is in the middle", || async { writer.count("rows_settled") >= 300 }).await;
    mariadb.kill9().await.unwrap();
    eventually("it says so", || async { writer.http("/readyz").0 == 503 }).await;
    assert!(writer.http("/readyz").1.contains("database"));
    mariadb.restart().await.unwrap();
    world.drained().await;
    world.audit(10_000, 5000).await;
    eventually("it says so", || async { writer.http("/readyz").0 == 200 }).await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_and_restarted_while_settling() {
    let redis = Redis::start(Persistence::Always).await.unwrap();
    let mut world = World::on(&redis, shared_mariadb().await).await;
    world.sell(10_000).await;
    world.reserve(1..=4000).await;
    let writer = WriterProcess::working(&world, SLOW);
    for round in 1..=2 {
        eventually("it is in the middle", || async { writer.count("rows_settled") >= round * 500 }).await;
        redis.kill9().await.unwrap();
        redis.restart().await.unwrap();
        world.opened().await;
    }
    world.reserve(4001..=5000).await;
    world.drained().await;
    world.audit(10_000, 5000).await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_at_the_start_is_waited_for() {
    let redis = Redis::start(Persistence::Always).await.unwrap();
    let mut world = World::on(&redis, shared_mariadb().await).await;
    world.sell(1000).await;
    world.reserve(1..=50).await;
    redis.stop_gracefully().await.unwrap();
    let writer = WriterProcess::start(&world, "", None);
    eventually("it says what it waits for", || async { writer.log().contains("Redis") }).await;
    assert!(writer.log().contains("tried again"), "{}", writer.log());
    redis.restart().await.unwrap();
    let writer = writer.works();
    world.drained().await;
    world.audit(1000, 50).await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_while_the_database_is_away_ends_and_leaves_the_entries_to_others() {
    let mariadb = MariaDb::start().await.unwrap();
    let mut world = World::on(shared_redis().await, &mariadb).await;
    world.sell(1000).await;
    let mut writer = WriterProcess::working(&world, "");
    mariadb.kill9().await.unwrap();
    world.reserve(1..=200).await;
    eventually("it has read them", || async {
        world.backlog().await.is_some_and(|(pending, _)| pending > 0)
    })
    .await;
    writer.terminate();
    assert_eq!(writer.ended().code(), Some(1), "{}", writer.log());
    // One that has not begun ends at once, and in order.
    let waiting = WriterProcess::start(&world, "", None);
    eventually("it says what it waits for", || async { waiting.log().contains("database") }).await;
    waiting.stopped();
    mariadb.restart().await.unwrap();
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    world.audit(1000, 200).await;
    writer.stopped();
}
