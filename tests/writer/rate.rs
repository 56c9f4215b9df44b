//! The steady rate: a backlog does not flood the database.

use std::time::Instant;

use super::child::WriterProcess;
use super::house::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_settled_at_the_steady_rate() {
    let mut world = World::with_stock(5000).await;
    world.reserve(1..=2500).await;
    let began = Instant::now();
    let writer = WriterProcess::working(&world, "batch_rows_max = 100\nrows_per_s = 500");
    world.drained().await;
    // 2400 rows after the first batch, at 500 a second.
    let took = began.elapsed().as_secs_f64();
    assert!(took >= 4.7, "{took} s");
    assert!(writer.count("rate_limited_us") > 2_000_000);
    world.audit(5000, 2500).await;
    writer.stopped();
}
