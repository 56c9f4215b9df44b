//! SIGTERM: what was read is settled and acknowledged, and no more.

use rushgate::protocol::OrderState;

use super::child::WriterProcess;
use super::house::{World, eventually};

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
