//! Rule 11: the leader, what gateways hand in, what SQL knows; rule 21: the end of an activity.

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, UserId};
use rushgate::stock::calls::{Gen, Mark, SHARDS, ShardId};
use rushgate::store::HandIn;
use rushgate::store::catalog::Ended;
use rushgate::store::sql::NewLoad;
use rushgate::store::sql::mysql::{
    ActivityState, ArchiveStep, MySqlInstallation, ProcessKind, RecoveryRecord, StillDue,
};
use rushgate_servers::MariaDb;

use crate::fixture::{ACTIVITY, PAY_WITHIN_MS, Scene, activity, options, reservation, reservations, sku};

const NONE: [bool; SHARDS] = [false; SHARDS];

#[tokio::test]
async fn one_process_leads_and_leadership_ends_with_its_connection() {
    let (scene, other) = (Scene::new().await, Scene::new().await);
    let mut leader = scene.sql.try_lead().await.unwrap().unwrap();
    assert!(scene.sql.try_lead().await.unwrap().is_none());
    let neighbour =
        other.sql.try_lead().await.unwrap().expect("another installation has a leader of its own");
    neighbour.resign().await;
    assert!(leader.is_held().await.unwrap());
    leader.resign().await;
    let mut leader = lead(&scene.sql).await;

    let id = scene.count("SELECT CAST(IS_USED_LOCK(CONCAT('rg.leader.', SHA1(DATABASE()))) AS SIGNED)").await;
    crate::fixture::server().await.sql(&format!("KILL CONNECTION {id}")).await.unwrap();
    let mut next = lead(&scene.sql).await;
    leader.raise_generation(&NONE).await.unwrap_err();
    assert!(!leader.is_held().await.unwrap_or(false));
    assert_eq!(next.raise_generation(&NONE).await.unwrap(), Gen(1), "the old leader raised nothing");
}

/// A lock is free a moment after its connection has ended.
async fn lead(sql: &MySqlInstallation) -> rushgate::store::sql::mysql::Leadership {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        if let Some(leader) = sql.try_lead().await.unwrap() {
            return leader;
        }
        assert!(std::time::Instant::now() < deadline, "nobody leads, and nobody can");
    }
}

#[tokio::test]
async fn leadership_ends_with_the_server() {
    let server = MariaDb::start().await.unwrap();
    let database = server.create_database().await.unwrap();
    let sql = MySqlInstallation::open(options(&database)).await.unwrap();
    let mut leader = lead(&sql).await;
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let mut next = lead(&sql).await;
    leader.raise_generation(&NONE).await.unwrap_err();
    assert!(next.is_held().await.unwrap());
}

#[tokio::test]
async fn promises_fail_only_while_the_recovery_that_gave_them_up_is_the_newest() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let mut leader = lead(&scene.sql).await;
    let lost: Vec<_> = (1..=3).map(|n| reservation(n, 1000 + n)).map(|one| (one.user, one.mark)).collect();
    let old = leader.raise_generation(&NONE).await.unwrap();
    let newest = leader.raise_generation(&NONE).await.unwrap();
    assert_eq!(leader.fail(old, &lost, "lost").await.unwrap(), RecoveryRecord::Gen(newest));
    assert_eq!(scene.count("SELECT COUNT(*) FROM orders").await, 0);
    for _ in 0..2 {
        assert_eq!(leader.fail(newest, &lost, "lost").await.unwrap(), RecoveryRecord::Recorded);
        assert_eq!(scene.count("SELECT COUNT(*) FROM orders WHERE state = 5").await, 3);
        assert_eq!(scene.count("SELECT COUNT(*) FROM ledger WHERE done = 0").await, 3);
    }
}

#[tokio::test]
async fn a_running_recovery_is_told_with_every_renewal() {
    let scene = Scene::new().await;
    let gateway = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
    let mut leader = lead(&scene.sql).await;
    let mut closed = NONE;
    (closed[3], closed[15]) = (true, true);
    assert_eq!(leader.raise_generation(&NONE).await.unwrap(), Gen(1));
    assert_eq!(leader.raise_generation(&closed).await.unwrap(), Gen(2));
    let renewal = scene.sql.renew(gateway).await.unwrap().unwrap();
    let notice = renewal.recovery.unwrap();
    assert_eq!((renewal.generation, notice.generation, notice.closed), (Gen(2), Gen(2), closed));
    assert_eq!(notice.rebuilt, [Gen(0); SHARDS]);

    let shards = [ShardId::ALL[3], ShardId::ALL[15]];
    assert_eq!(leader.close_hand_ins(Gen(1), &shards).await.unwrap(), RecoveryRecord::Gen(Gen(2)));
    assert_eq!(leader.recovery_done(Gen(1)).await.unwrap(), RecoveryRecord::Gen(Gen(2)));
    for _ in 0..2 {
        assert_eq!(leader.close_hand_ins(Gen(2), &shards).await.unwrap(), RecoveryRecord::Recorded);
    }
    for _ in 0..2 {
        assert_eq!(leader.recovery_done(Gen(2)).await.unwrap(), RecoveryRecord::Recorded);
    }
    let renewal = scene.sql.renew(gateway).await.unwrap().unwrap();
    assert_eq!((renewal.generation, renewal.recovery), (Gen(2), None));
    leader.raise_generation(&closed).await.unwrap();
    let notice = scene.sql.renew(gateway).await.unwrap().unwrap().recovery.unwrap();
    let mut rebuilt = [Gen(0); SHARDS];
    (rebuilt[3], rebuilt[15]) = (Gen(2), Gen(2));
    assert_eq!(notice.rebuilt, rebuilt);
    let registered = scene.sql.register(ProcessKind::Gateway).await.unwrap();
    assert_eq!(registered.generation, Gen(3));
}

#[tokio::test]
async fn a_hand_in_is_taken_whole_once_and_under_its_generation_alone() {
    let scene = Scene::new().await;
    let mut leader = lead(&scene.sql).await;
    let one = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
    let two = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
    let generation = leader.raise_generation(&[true; SHARDS]).await.unwrap();
    let marks: Vec<(UserId, Mark)> = reservations(5000).iter().map(|one| (one.user, one.mark)).collect();
    assert_eq!(scene.sql.hand_in(one, Gen(0), &marks).await.unwrap(), HandIn::TooLate);
    assert_eq!(scene.sql.hand_ins(generation).await.unwrap(), []);
    assert_eq!(scene.sql.hand_in(one, generation, &marks).await.unwrap(), HandIn::InTime);
    assert_eq!(scene.sql.hand_in(one, generation, &marks[..1]).await.unwrap(), HandIn::InTime);
    assert_eq!(scene.sql.hand_in(two, generation, &[]).await.unwrap(), HandIn::InTime);
    assert_eq!(scene.sql.hand_ins(generation).await.unwrap(), [one, two]);
    assert_eq!(scene.sql.handed_in(generation, one).await.unwrap(), marks);
    assert_eq!(scene.sql.handed_in(generation, two).await.unwrap(), []);
    assert_eq!(leader.close_hand_ins(generation, &ShardId::ALL).await.unwrap(), RecoveryRecord::Recorded);
    let late = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
    assert_eq!(
        scene.sql.hand_in(late, generation, &marks).await.unwrap(),
        HandIn::TooLate,
        "it is being read"
    );
    assert_eq!(scene.sql.renew(late).await.unwrap().unwrap().recovery, None, "nobody is asked any more");
    leader.raise_generation(&[true; SHARDS]).await.unwrap();
    for (process, answer) in [(one, HandIn::InTime), (two, HandIn::InTime), (late, HandIn::TooLate)] {
        let again = scene.sql.hand_in(process, generation, &marks).await.unwrap();
        assert_eq!(again, answer, "what was told once is told ever after");
    }
}

#[tokio::test]
async fn what_sql_knows_of_a_shard_is_read_with_what_was_released() {
    let scene = Scene::with_stock(&[(1, 1600)]).await;
    let batch = reservations(50);
    scene.settle(&batch).await;
    // A closed order whose release is done, one whose is not, one that failed beside the one that stands, a collision
    // that has a row in the ledger alone, an order of the database's own shards.
    for order in [1001, 1002] {
        scene.sql.close_order(OrderNumber(order), "unpaid").await.unwrap();
    }
    let due = scene.sql.due_releases(0, 1).await.unwrap();
    scene.sql.releases_done(&[due[0].id]).await.unwrap();
    scene.settle(&[reservation(3, 2003), reservation(60, 1004)]).await;
    scene.execute("UPDATE orders SET source = 2 WHERE number = 1005").await;

    let shard_of = |user: u64| ShardId::of(UserId(user));
    for shard in ShardId::all() {
        let read = scene.sql.read_for_recovery(&[shard]).await.unwrap();
        assert_eq!(read.activities, [(ACTIVITY, ActivityState::Loaded)]);
        let expected = batch.iter().filter(|one| one.shard == shard && one.user != UserId(5)).count()
            + usize::from(shard == shard_of(3))
            + usize::from(shard == shard_of(60));
        assert_eq!(read.orders.len(), expected);
        assert_eq!(read.loads.len(), 1);
        assert_eq!(read.loads[0].load.changes, [(SkuId(1), 100)]);
    }
    let read = scene.sql.read_for_recovery(&ShardId::ALL).await.unwrap();
    let mut released: Vec<_> = read
        .orders
        .iter()
        .filter(|one| one.released)
        .map(|one| (one.user.0, one.mark.order.0, one.mark.state, one.shard))
        .collect();
    released.sort_unstable_by_key(|one| (one.0, one.1));
    let (closed, failed) = (OrderState::Closed, OrderState::Failed);
    assert_eq!(
        released,
        [
            (1, 1001, closed, shard_of(1)),
            (2, 1002, closed, shard_of(2)),
            (3, 2003, failed, shard_of(3)),
            (60, 1004, failed, shard_of(60)),
        ]
    );
    assert_eq!(scene.sql.read_for_recovery(&[]).await.unwrap().orders, []);
}

#[tokio::test]
async fn a_take_that_is_not_recorded_is_told_apart() {
    let scene = Scene::with_stock(&[(1, 1600)]).await;
    // Waits for its preheat: no shard was ever told of it.
    scene.sql.create(&activity(ActivityId(8), &[(1, 16)]), PAY_WITHIN_MS).await.unwrap();
    let early = rushgate::protocol::SkuKey { activity: ActivityId(8), sku: SkuId(1) };
    scene.sql.write_load(early, NewLoad::Add(16)).await.unwrap();
    scene.sql.write_load(sku(1), NewLoad::Add(160)).await.unwrap();
    scene.sql.write_load(sku(1), NewLoad::Remove(32)).await.unwrap();
    let due = scene.sql.due_loads(100).await.unwrap();
    let (shard, other) = (ShardId::ALL[0], ShardId::ALL[1]);
    let take = due.iter().find(|load| load.shard == shard && load.changes[0].1 < 0).unwrap();
    scene.sql.load_done(take, Gen(0), &[(SkuId(1), 1)]).await.unwrap();
    for (at, taken, recorded) in [(shard, -1, true), (other, -2, false)] {
        let read = scene.sql.read_for_recovery(&[at]).await.unwrap();
        let mut told: Vec<_> =
            read.loads.iter().map(|one| (one.load.changes[0].1, one.is_recorded)).collect();
        told.sort_unstable();
        assert_eq!(told, [(taken, recorded), (10, false), (100, true)]);
    }
}

#[tokio::test]
async fn an_activity_is_archived_when_nothing_is_due() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(3)).await;
    scene.sql.write_load(sku(1), NewLoad::Remove(16)).await.unwrap();
    assert_eq!(scene.sql.archive_activity(ACTIVITY).await.unwrap(), ArchiveStep::TooEarly);
    assert_eq!(scene.sql.end_activity(ACTIVITY).await.unwrap(), ArchiveStep::Done);
    assert_eq!(scene.sql.end_activity(ACTIVITY).await.unwrap(), ArchiveStep::WasDone);
    let ended = Ended { id: ACTIVITY, archived_at_ms: None };
    assert_eq!(scene.sql.ended().await.unwrap(), [ended], "gateways sell nothing of it any more");
    let refused = scene.sql.write_load(sku(1), NewLoad::Add(1)).await.unwrap_err();
    assert_eq!(refused.to_string(), "activity 7 has ended; its stock does not change any more");
    scene.sql.close_order(OrderNumber(1001), "cancelled").await.unwrap();
    let due = StillDue { loads: 1, releases: 1, ..StillDue::default() };
    assert_eq!(scene.sql.archive_activity(ACTIVITY).await.unwrap(), ArchiveStep::Waits(due));
    scene.drive_loads().await;
    let releases = scene.sql.due_releases(0, 10).await.unwrap();
    scene.sql.releases_done(&[releases[0].id]).await.unwrap();
    assert_eq!(scene.sql.archive_activity(ACTIVITY).await.unwrap(), ArchiveStep::Done);
    assert_eq!(scene.sql.archive_activity(ACTIVITY).await.unwrap(), ArchiveStep::WasDone);
    assert_eq!(scene.sql.activities().await.unwrap(), []);
    assert_eq!(scene.sql.activity_states().await.unwrap(), [(ACTIVITY, ActivityState::Archived)]);
    let read = scene.sql.read_for_recovery(&ShardId::ALL).await.unwrap();
    assert_eq!(read.activities, [(ACTIVITY, ActivityState::Archived)], "its tombstone alone");
    assert_eq!((read.orders, read.loads), (Vec::new(), Vec::new()));
    let archived = scene.sql.ended().await.unwrap()[0].archived_at_ms.unwrap();
    let now =
        u64::try_from(scene.count("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)").await).unwrap();
    assert!(archived <= now && now < archived + 60_000, "by the database's clock: {archived}, {now}");
    let kept = scene.sql.order_of(UserId(2), ACTIVITY).await.unwrap().unwrap();
    assert_eq!(kept.state, OrderState::PendingPayment, "RESULT is answered from SQL");
}
