//! A fault of the program itself: a chore that panics is begun anew, a stage of the line ends the process, and neither is
//! silent.

use super::child::WriterProcess;
use super::house::{World, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chore_that_panics_is_told_counted_and_begun_anew() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=100).await;
    let writer = WriterProcess::start(&world, "", Some("panic:writer.after_trim")).works();
    eventually("it has panicked", || async { writer.metric("rushgate_panics_total") >= 1 }).await;
    eventually("it is told", || async { writer.log().contains("goes well again") }).await;
    let log = writer.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(lines.iter().any(|line| line.contains("task=\"trimming the feeds\"")), "{log}");
    assert!(lines.iter().any(|line| line.contains("at the crash point writer.after_trim")), "{log}");
    assert!(lines.iter().all(|line| line.contains("writer=")), "{log}");
    world.drained().await;
    world.audit(1000, 100).await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stage_of_the_line_that_panics_ends_the_process_and_another_one_finishes() {
    let mut world = World::with_stock(1000).await;
    for (point, users) in [("writer.entries_read", 1..=50), ("writer.before_commit", 51..=100)] {
        world.reserve(users).await;
        let mut writer = WriterProcess::start(&world, "", Some(&format!("panic:{point}")));
        assert_eq!(writer.ended().code(), Some(1), "{}", writer.log());
        assert!(writer.log().contains("a fault of this program"), "{}", writer.log());
    }
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    world.audit(1000, 100).await;
    writer.stopped();
}
