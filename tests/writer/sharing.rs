//! Several writers share the work; what one leaves behind another takes over.

use super::child::WriterProcess;
use super::house::{World, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_share_a_backlog_and_settle_each_order_once() {
    let mut world = World::with_stock(40_000).await;
    world.reserve((1..=20_000).map(|user| user * 3)).await;
    let writers: Vec<_> = (0..2).map(|_| WriterProcess::start(&world, "", None)).collect();
    let writers: Vec<_> = writers.into_iter().map(WriterProcess::works).collect();
    world.drained().await;
    world.audit(40_000, 20_000).await;
    let settled: Vec<_> = writers.iter().map(|writer| writer.count("rows_settled")).collect();
    assert_eq!(settled.iter().sum::<u64>(), 20_000, "{settled:?}");
    assert!(settled.iter().all(|rows| *rows > 0), "{settled:?}");
    writers.into_iter().for_each(WriterProcess::stopped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_a_writer_that_was_killed_are_taken_over() {
    let mut world = World::with_stock(40_000).await;
    world.reserve(1..=5000).await;
    let killed = WriterProcess::working(&world, "batch_rows_max = 50\nrows_per_s = 500");
    let other = WriterProcess::working(&world, "batch_rows_max = 50\nrows_per_s = 500");
    eventually("both work", || async { killed.count("rows_settled") > 0 && other.count("rows_settled") > 0 })
        .await;
    killed.kill();
    let last = WriterProcess::working(&world, "");
    world.drained().await;
    world.audit(40_000, 5000).await;
    assert!(other.count("entries_claimed") + last.count("entries_claimed") > 0);
    other.stopped();
    last.stopped();
}
