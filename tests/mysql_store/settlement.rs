//! Rule 13: reservations become orders exactly once, and no row fails its neighbours.

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use rushgate::stock::calls::{Gen, Mark, ShardId};
use rushgate::store::sql::mysql::{CloseOutcome, Release, Reservation, SettleOutcome, Settlement};

use crate::fixture::{ACTIVITY, PAY_WITHIN_MS, Scene, reservation, reservations, sku};

fn settled(settlement: &Settlement) -> Mark {
    match settlement {
        Settlement::Settled(mark) => *mark,
        other => panic!("{other:?}"),
    }
}

/// Without the ids, which are others when a release is owed again.
fn owed(releases: &[Release]) -> Vec<Release> {
    releases.iter().map(|release| Release { id: 0, ..*release }).collect()
}

fn was_settled(settlement: &Settlement) -> Mark {
    match settlement {
        Settlement::WasSettled(mark) => *mark,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn pay_by_counts_from_settlement_by_the_databases_clock() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let now = "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)";
    let before = scene.count(now).await.cast_unsigned();
    let mark = settled(&scene.settle(&[reservation(1, 1001)]).await[0]);
    let after = scene.count(now).await.cast_unsigned();
    assert!((before + PAY_WITHIN_MS..=after + PAY_WITHIN_MS).contains(&mark.pay_by_ms), "{mark:?}");
    let expected =
        Mark { state: OrderState::PendingPayment, pay_by_ms: mark.pay_by_ms, ..reservation(1, 1001).mark };
    assert_eq!(mark, expected);
    assert_eq!(scene.sql.order_of(UserId(1), ACTIVITY).await.unwrap(), Some(mark));
    assert_eq!(scene.sql.orders(ACTIVITY, UserId(0), 10).await.unwrap(), [(UserId(1), mark)]);
}

#[tokio::test]
async fn redelivery_after_commit_deducts_nothing_again() {
    let scene = Scene::with_stock(&[(1, 5000), (2, 100)]).await;
    let mut batch = reservations(3000);
    batch[7].mark.sku = sku(2);
    batch[7].mark.quantity = 3;
    let first: Vec<_> = scene.settle(&batch).await.iter().map(settled).collect();
    assert_eq!((scene.stock(1).await, scene.stock(2).await), ((2001, 2999), (97, 3)));
    let again: Vec<_> = scene.settle(&batch).await.iter().map(was_settled).collect();
    assert_eq!(again, first);
    // A part of it, with something new beside it.
    let mixed: Vec<_> = batch[2990..].iter().copied().chain([reservation(5001, 6001)]).collect();
    let mixed = scene.settle(&mixed).await;
    assert!(mixed[..10].iter().zip(&first[2990..]).all(|(now, then)| was_settled(now) == *then));
    settled(&mixed[10]);
    assert_eq!((scene.stock(1).await, scene.stock(2).await), ((2000, 3000), (97, 3)));
    assert_eq!(scene.count("SELECT COUNT(*) FROM orders").await, 3001);
}

#[tokio::test]
async fn an_order_that_went_further_is_told_as_it_is() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(2)).await;
    scene.execute("UPDATE orders SET state = 3 WHERE number = 1001").await;
    let again = scene.settle(&reservations(2)).await;
    assert_eq!(was_settled(&again[0]).state, OrderState::Paid);
    assert_eq!(was_settled(&again[1]).state, OrderState::PendingPayment);
}

#[tokio::test]
async fn a_batch_read_under_an_older_generation_commits_nothing() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(1)).await;
    scene.execute("UPDATE installation SET gen = 3").await;
    for wrong in [Gen(0), Gen(2), Gen(4)] {
        // New rows, such as lead to the careful way, and one that is settled in no other.
        let bad = with(|one| one.mark.quantity = 0, 1003);
        for batch in [vec![reservation(2, 1002)], reservations(2), vec![bad]] {
            assert_eq!(scene.sql.settle(wrong, &batch).await.unwrap(), SettleOutcome::Gen(Gen(3)));
        }
    }
    assert_eq!(scene.stock(1).await, (99, 1));
    let SettleOutcome::Committed(now) = scene.sql.settle(Gen(3), &reservations(2)).await.unwrap() else {
        panic!()
    };
    was_settled(&now[0]);
    settled(&now[1]);
}

#[tokio::test]
async fn a_recovery_waits_for_settlements_and_settlements_for_a_recovery() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let mut beside = scene.connect().await;
    // As a recovery does when it raises the generation.
    sqlx::raw_sql("BEGIN; UPDATE installation SET gen = 1").execute(&mut beside).await.unwrap();
    let sql = scene.sql.clone();
    let settling = tokio::spawn(async move { sql.settle(Gen(0), &reservations(1)).await.unwrap() });
    // It waits for the row lock.
    let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE '%SHARE MODE'";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while scene.count(waiting).await < 1 {
        assert!(std::time::Instant::now() < deadline, "nobody waits for the generation");
    }
    assert!(!settling.is_finished());
    sqlx::raw_sql("COMMIT").execute(&mut beside).await.unwrap();
    assert_eq!(settling.await.unwrap(), SettleOutcome::Gen(Gen(1)));
}

#[tokio::test]
async fn second_order_of_a_user_goes_back_through_the_ledger() {
    let scene = Scene::with_stock(&[(1, 100), (2, 100)]).await;
    let first = settled(&scene.settle(&[reservation(1, 1001)]).await[0]);
    // Another number for the same attempt; another attempt while the first stands; both in one batch with others.
    let second = reservation(1, 2001);
    let mut third = reservation(1, 2002);
    third.mark.attempt = 2;
    third.mark.sku = sku(2);
    let batch = [reservation(2, 1002), second, third, reservation(3, 1003)];
    let settlements = scene.settle(&batch).await;
    settled(&settlements[0]);
    settled(&settlements[3]);
    for lost in &settlements[1..3] {
        assert_eq!(*lost, Settlement::Superseded { already: first });
    }
    let releases = scene.sql.due_releases(0, 10).await.unwrap();
    let told: Vec<_> =
        releases.iter().map(|one| (one.user, one.shard, one.mark.order, one.mark.state)).collect();
    let user = UserId(1);
    assert_eq!(
        told,
        [
            (user, ShardId::of(user), OrderNumber(2001), OrderState::Failed),
            (user, ShardId::of(user), OrderNumber(2002), OrderState::Failed),
        ]
    );
    assert_eq!(
        (scene.stock(1).await, scene.stock(2).await),
        ((97, 3), (100, 0)),
        "what was lost deducts nothing"
    );
    assert_eq!(scene.sql.order_of(user, ACTIVITY).await.unwrap(), Some(first));
    // Told again, nothing more comes of it.
    for again in &scene.settle(&batch).await[1..3] {
        assert_eq!(was_settled(again).state, OrderState::Failed);
    }
    assert_eq!(owed(&scene.sql.due_releases(0, 10).await.unwrap()), owed(&releases));
    assert_eq!(scene.count("SELECT COUNT(*) FROM dead_letters").await, 0, "it is no fault");
}

#[tokio::test]
async fn two_orders_of_a_user_in_one_batch_are_one_order() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let batch = [reservation(1, 1002), reservation(1, 1001), reservation(1, 1002)];
    let settlements = scene.settle(&batch).await;
    let first = settled(&settlements[0]);
    assert_eq!(settlements[1], Settlement::Superseded { already: first });
    assert_eq!(settlements[2], Settlement::WasSettled(first));
    assert_eq!(scene.stock(1).await, (99, 1));
}

#[tokio::test]
async fn a_closed_order_makes_room_for_the_next_attempt_and_for_no_other() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let first = settled(&scene.settle(&[reservation(1, 1001)]).await[0]);
    assert_eq!(scene.sql.close_order(first.order, "unpaid").await.unwrap(), CloseOutcome::Closed);
    assert_eq!(scene.stock(1).await, (100, 0));
    let same_attempt = scene.settle(&[reservation(1, 2001)]).await;
    assert!(matches!(same_attempt[0], Settlement::Superseded { already } if already.order == first.order));
    let mut next = reservation(1, 2002);
    next.mark.attempt = 2;
    let next = settled(&scene.settle(&[next]).await[0]);
    assert_eq!(scene.sql.order_of(UserId(1), ACTIVITY).await.unwrap(), Some(next));
    assert_eq!(scene.stock(1).await, (99, 1));
}

#[tokio::test]
async fn a_live_order_stands_in_the_way_of_the_next_attempt() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let first = settled(&scene.settle(&[reservation(1, 1001)]).await[0]);
    // Alone in its batch, so that a unique key is all that speaks against it.
    let mut next = reservation(1, 2001);
    next.mark.attempt = 2;
    assert_eq!(scene.settle(&[next]).await, [Settlement::Superseded { already: first }]);
    assert_eq!(scene.stock(1).await, (99, 1));
}

#[tokio::test]
async fn a_failed_order_leaves_its_attempt_free() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.sql.fail(UserId(1), &reservation(1, 1001).mark, "lost").await.unwrap();
    settled(&scene.settle(&[reservation(1, 2001)]).await[0]);
    assert_eq!(was_settled(&scene.settle(&[reservation(1, 1001)]).await[0]).state, OrderState::Failed);
    assert_eq!(scene.stock(1).await, (99, 1));
}

#[tokio::test]
async fn one_number_of_two_users_is_a_collision() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let first = settled(&scene.settle(&[reservation(1, 1001)]).await[0]);
    let batch = [reservation(2, 1001), reservation(3, 1003), reservation(3, 1003), reservation(4, 1003)];
    let settlements = scene.settle(&batch).await;
    assert_eq!(settlements[0], Settlement::Collision { owner: UserId(1) });
    let third = settled(&settlements[1]);
    assert_eq!(settlements[2], Settlement::WasSettled(third));
    assert_eq!(settlements[3], Settlement::Collision { owner: UserId(3) });
    let releases = scene.sql.due_releases(0, 10).await.unwrap();
    let released: Vec<_> = releases.iter().map(|one| (one.user.0, one.mark.order.0)).collect();
    assert_eq!(released, [(2, 1001), (4, 1003)]);
    assert_eq!(scene.sql.order_of(UserId(1), ACTIVITY).await.unwrap(), Some(first));
    let letters = scene.sql.dead_letters(0, 10).await.unwrap();
    assert_eq!(
        letters.iter().map(|one| one.reason.as_str()).collect::<Vec<_>>(),
        ["the number is an order of user 1", "the number is an order of user 3",]
    );
    scene.settle(&batch).await;
    assert_eq!(owed(&scene.sql.due_releases(0, 10).await.unwrap()), owed(&releases));
    assert_eq!(scene.sql.dead_letters(0, 10).await.unwrap(), letters);
    assert_eq!(scene.stock(1).await, (98, 2));
}

fn with(change: impl FnOnce(&mut Reservation), order: u64) -> Reservation {
    let mut one = reservation(order, order);
    change(&mut one);
    one
}

#[tokio::test]
async fn a_bad_row_never_fails_its_neighbours() {
    let scene = Scene::with_stock(&[(1, 100), (2, 1)]).await;
    let nowhere = SkuKey { activity: ActivityId(8), sku: SkuId(1) };
    let bad = [
        with(|one| one.mark.sku = nowhere, 2001),
        with(|one| one.mark.sku = sku(3), 2002),
        with(|one| one.mark.quantity = 0, 2003),
        with(|one| one.mark.attempt = 0, 2004),
        with(|one| one.mark.state = OrderState::Paid, 2005),
        with(|one| one.shard = ShardId::all().find(|shard| *shard != one.shard).unwrap(), 2006),
        with(|one| one.mark.order = OrderNumber(u64::MAX), 2007),
        with(|one| one.user = UserId(0), 2008),
        with(|one| (one.mark.sku, one.mark.quantity) = (sku(2), 2), 2009),
    ];
    let mut batch = reservations(20);
    for (nth, one) in bad.iter().enumerate() {
        batch.insert(nth * 2, *one);
    }
    let settlements = scene.settle(&batch).await;
    let failed = settlements.iter().filter(|one| matches!(one, Settlement::Failed { .. })).count();
    assert_eq!((settlements.len(), failed), (29, 9), "{settlements:?}");
    assert_eq!((scene.stock(1).await, scene.stock(2).await), ((80, 20), (1, 0)));
    assert_eq!(scene.sql.due_releases(0, 100).await.unwrap().len(), 9);
    let letters = scene.sql.dead_letters(0, 100).await.unwrap();
    assert_eq!(letters.len(), 9);
    assert!(
        letters.iter().any(|one| one.reason == "SKU 7/2 has only 1 units that are not sold"),
        "{letters:?}"
    );
    // The whole batch again: everything is known.
    let again = scene.settle(&batch).await;
    assert!(again.iter().all(|one| matches!(one, Settlement::WasSettled(_))), "{again:?}");
    assert_eq!(scene.sql.due_releases(0, 100).await.unwrap().len(), 9);
    assert_eq!(scene.sql.dead_letters(0, 100).await.unwrap(), letters);
}

#[tokio::test]
async fn a_row_that_the_database_refuses_fails_alone() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.execute("ALTER TABLE orders ADD CONSTRAINT no_thirteen CHECK (user NOT IN (13, 14))").await;
    let settlements = scene.settle(&reservations(20)).await;
    for (settlement, user) in settlements.iter().zip(1..) {
        match settlement {
            Settlement::Failed { reason } if user == 13 || user == 14 => {
                assert!(reason.contains("no_thirteen"), "{reason}");
            }
            other => drop(settled(other)),
        }
    }
    assert_eq!(scene.stock(1).await, (82, 18));
    assert_eq!(scene.sql.due_releases(0, 100).await.unwrap().len(), 2);
    let again = scene.settle(&reservations(20)).await;
    assert_eq!(was_settled(&again[12]).state, OrderState::Failed);
    assert_eq!(scene.sql.dead_letters(0, 100).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_settle_the_same_entries_concurrently() {
    let scene = Scene::with_stock(&[(1, 2000), (2, 2000)]).await;
    let mut batch = reservations(1000);
    for one in batch.iter_mut().step_by(3) {
        one.mark.sku = sku(2);
    }
    // The same entries, cut and ordered differently by each.
    let writers: Vec<_> = (0..4_usize)
        .map(|writer| {
            let (sql, mut batch) = (scene.sql.clone(), batch.clone());
            if writer % 2 == 1 {
                batch.reverse();
            }
            tokio::spawn(async move {
                let mut new = 0;
                for part in batch.chunks(70 + 30 * writer) {
                    let SettleOutcome::Committed(settlements) = sql.settle(Gen(0), part).await.unwrap()
                    else {
                        panic!("the generation stands")
                    };
                    for settlement in settlements {
                        match settlement {
                            Settlement::Settled(_) => new += 1,
                            other => drop(was_settled(&other)),
                        }
                    }
                }
                new
            })
        })
        .collect();
    let mut new = 0;
    for writer in writers {
        new += writer.await.unwrap();
    }
    assert_eq!(new, 1000, "each was new to exactly one writer");
    assert_eq!((scene.stock(1).await, scene.stock(2).await), ((1334, 666), (1666, 334)));
    assert_eq!(scene.count("SELECT COUNT(*) FROM orders").await, 1000);
}

#[tokio::test]
async fn no_more_is_settled_than_was_loaded() {
    let scene = Scene::with_stock(&[(1, 10)]).await;
    let settlements = scene.settle(&reservations(12)).await;
    let settled = settlements.iter().filter(|one| matches!(one, Settlement::Settled(_))).count();
    let failed = settlements.iter().filter(|one| matches!(one, Settlement::Failed { .. })).count();
    assert_eq!((settled, failed), (10, 2));
    assert_eq!(scene.stock(1).await, (0, 10));
}
