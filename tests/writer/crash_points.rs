//! A writer dies at each of its crash points; the next one finishes: exactly one order for each reservation, stock
//! right on both sides, nothing left pending.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rushgate::protocol::{ActivityId, OrderState};
use rushgate::stock::calls::ShardId;
use rushgate::store::crash_point;
use rushgate::store::redis::ActivityPhase;
use rushgate::store::sql::mysql::{ActivityState, ArchiveStep, CloseOutcome};

use super::child::WriterProcess;
use super::house::{ACTIVITY, World, eventually, shared_mariadb, shared_redis};

fn crash(world: &World, point: &str) {
    WriterProcess::start(world, "", Some(point)).crashed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_redelivery_after_a_crash_settles_once() {
    for point in [
        "writer.entries_read",
        "writer.before_commit",
        "writer.after_commit",
        "writer.after_settled",
        "writer.after_settled:9",
        "writer.after_acknowledge",
        "writer.after_acknowledge:9",
    ] {
        let mut world = World::with_stock(1000).await;
        world.reserve(1..=300).await;
        crash(&world, point);
        let writer = WriterProcess::working(&world, "");
        world.drained().await;
        world.audit(1000, 300).await;
        writer.stopped();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_a_crash_while_claiming_and_one_at_a_dead_letter_lose_nothing() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=200).await;
    world.append_rubbish(shared_redis().await, ShardId::ALL[0]).await;
    crash(&world, "writer.before_dead_letter");
    crash(&world, "writer.after_dead_letter");
    crash(&world, "writer.entries_claimed");
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    world.audit(1000, 200).await;
    assert_eq!(world.sql.dead_letters(0, 10).await.unwrap().len(), 1);
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_16_a_crash_in_a_preheat_or_a_load_loads_once() {
    let world = World::new().await;
    world.create(ACTIVITY, 1000, Duration::from_secs(300)).await;
    for point in [
        "writer.before_preheat",
        "writer.after_preheat",
        "writer.before_load",
        "writer.after_load",
        "writer.after_load:5",
        "writer.after_load_done",
    ] {
        crash(&world, point);
    }
    let writer = WriterProcess::working(&world, "");
    eventually("all is loaded", || async { world.sql.due_loads(10).await.unwrap().is_empty() }).await;
    assert_eq!(world.free().await, 1000);
    assert_eq!(writer.count("preheats"), 0, "it was loaded by one before");
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_14_a_crash_in_a_release_or_in_the_outbox_gives_back_and_tells_once() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=40).await;
    WriterProcess::working(&world, "").settled_by(&world).await;
    let rows = world.order_rows().await;
    for (_, mark) in &rows[..20] {
        assert_eq!(world.sql.close_order(mark.order, "not paid").await.unwrap(), CloseOutcome::Closed);
    }
    for point in [
        "writer.before_release",
        "writer.after_release",
        "writer.after_release:7",
        "writer.after_releases_done",
    ] {
        crash(&world, point);
        assert!(world.free().await <= 980);
        if point == "writer.after_release:7" {
            assert!(world.free().await >= 967);
        }
    }
    assert_eq!(world.free().await, 980);
    let numbers: Vec<_> = rows[20..].iter().map(|(_, mark)| mark.order.to_string()).collect();
    let paid = format!(
        "UPDATE {0}.orders SET state = 3 WHERE number IN ({1}); INSERT INTO {0}.outbox (number, state, done, \
         created_at_ms) SELECT number, state, 0, 1 FROM {0}.orders WHERE number IN ({1})",
        world.database.name,
        numbers.join(",")
    );
    shared_mariadb().await.sql(&paid).await.unwrap();
    for point in ["writer.before_marks", "writer.after_marks", "writer.after_marks_told"] {
        crash(&world, point);
    }
    let writer = WriterProcess::working(&world, "");
    eventually("nothing is owed", || async { world.sql.due_marks(0, 10).await.unwrap().is_empty() }).await;
    let marks = world.marks().await;
    for (nth, (user, _)) in rows.iter().enumerate() {
        let expected = if nth < 20 { OrderState::Closed } else { OrderState::Paid };
        assert_eq!(marks[user].state, expected, "user {user}");
    }
    assert_eq!(world.free().await, 980);
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_21_a_crash_at_the_end_of_an_activity_ends_it_once() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=50).await;
    WriterProcess::working(&world, "").settled_by(&world).await;
    assert_eq!(world.sql.end_activity(ACTIVITY).await.unwrap(), ArchiveStep::Done);
    for point in [
        "writer.before_end",
        "writer.after_end",
        "writer.after_end:9",
        "writer.after_archived",
        "writer.after_tombstones",
        "writer.after_tombstones:9",
    ] {
        crash(&world, point);
    }
    let writer = WriterProcess::working(&world, "");
    for shard in ShardId::ALL {
        eventually("each shard has a tombstone alone", || async {
            let state = world.redis.shard_state(shard).await.unwrap();
            state.activities == [(ActivityId(7), ActivityPhase::Archived)]
        })
        .await;
    }
    assert_eq!(world.sql.activity_states().await.unwrap(), [(ACTIVITY, ActivityState::Archived)]);
    assert!(world.marks().await.is_empty());
    assert_eq!(world.order_rows().await.len(), 50, "the orders stay");
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_after_trimming_or_forgetting_changes_nothing() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=100).await;
    crash(&world, "writer.after_trim");
    // A process that has been silent for hours.
    let silent = format!(
        "INSERT INTO {}.processes (number, kind, started_at_ms, heartbeat_ms) VALUES (1000, 1, 1, 1)",
        world.database.name
    );
    shared_mariadb().await.sql(&silent).await.unwrap();
    crash(&world, "writer.after_forget");
    crash(&world, "writer.after_forget_processes");
    crash(&world, "writer.after_forget_recoveries");
    let writer = WriterProcess::working(&world, "");
    world.drained().await;
    world.audit(1000, 100).await;
    writer.stopped();
}

/// The names in a call of `crash_point::pass` in the sources of a folder.
fn passed(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            passed(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let calls = text.split("crash_point::pass(\"").skip(1);
            names.extend(calls.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
}

#[test]
fn every_crash_point_is_listed_and_passed() {
    let mut names = BTreeSet::new();
    passed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    assert_eq!(names, crash_point::ALL.iter().map(ToString::to_string).collect());
}

#[test]
fn the_binary_lists_them_and_refuses_one_that_is_unknown() {
    let run = |args: &[&str], point: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rushgate"));
        command.args(args).env_clear().env("RUSHGATE_CRASH_POINT", point).output().unwrap()
    };
    let listed = run(&["writer", "--crash-points"], "");
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().collect::<Vec<_>>(), crash_point::ALL);
    let refused = run(&["writer", "--set", "store.kind=redis"], "writer.nowhere");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("writer.nowhere"));
}
