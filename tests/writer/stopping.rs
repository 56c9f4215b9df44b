//! SIGTERM: what was read is settled and acknowledged, and no more.

use rushgate::protocol::OrderState;

use super::child::WriterProcess;
use super::house::{World, eventually, shared_redis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_stopped_in_mid_backlog_leaves_nothing_half_done() {
    let mut world = World::with_stock(40_000).await;
    world.reserve(1..=20_000).await;
    let writer = WriterProcess::working(&world, "batch_rows_max = 100\nrows_per_s = 1000");
    eventually("it is in the middle", || async { writer.count("rows_settled") >= 500 }).await;
    writer.stopped();
    let (pending, undelivered) = world.backlog().await.unwrap();
    assert_eq!(pending, 0, "everything it had been given is acknowledged");
    assert!(undelivered > 0, "and it was in the middle");
    let (rows, marks) = (world.order_rows().await, world.marks().await);
    assert!(rows.iter().all(|(user, mark)| marks.get(user) == Some(mark)), "each of its orders is told");
    let told = marks.values().filter(|mark| mark.state == OrderState::PendingPayment).count();
    assert_eq!(told, rows.len());
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    world.audit(40_000, 20_000).await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_a_writer_at_once_and_another_takes_over() {
    let mariadb = rushgate_servers::MariaDb::start().await.unwrap();
    let mut world = World::on(shared_redis().await, &mariadb).await;
    world.sell(1000).await;
    let mut writer = WriterProcess::working(&world, "");
    mariadb.pause().await.unwrap();
    world.reserve(1..=200).await;
    eventually("it has read some", || async {
        world.backlog().await.is_some_and(|(pending, _)| pending > 0)
    })
    .await;
    writer.terminate();
    eventually("it has heard", || async { writer.log().contains("a second signal ends at once") }).await;
    let asked = std::time::Instant::now();
    writer.terminate();
    assert_eq!(writer.ended().code(), Some(1), "{}", writer.log());
    assert!(asked.elapsed() < std::time::Duration::from_secs(3));
    mariadb.resume().unwrap();
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    world.audit(1000, 200).await;
    writer.stopped();
}
