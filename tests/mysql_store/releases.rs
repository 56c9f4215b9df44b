//! Rule 14: what is owed to Redis stays due until it is done.

use rushgate::protocol::{OrderNumber, OrderState, UserId};
use rushgate::stock::calls::{Gen, ShardId};
use rushgate::store::sql::mysql::{CloseOutcome, FailOutcome, Release, Settlement};

use crate::fixture::{Scene, reservation, reservations};

#[tokio::test]
async fn closing_is_one_transaction_with_its_ledger_row() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(3)).await;
    for outcome in [CloseOutcome::Closed] {
        assert_eq!(scene.sql.close_order(OrderNumber(1002), "unpaid").await.unwrap(), outcome);
    }
    let CloseOutcome::Stands(mark) = scene.sql.close_order(OrderNumber(1002), "unpaid").await.unwrap() else {
        panic!("closed twice")
    };
    assert_eq!(mark.state, OrderState::Closed);
    assert_eq!(scene.sql.close_order(OrderNumber(9), "unpaid").await.unwrap(), CloseOutcome::NoOrder);
    assert_eq!(scene.stock(1).await, (98, 2));
    let due = scene.sql.due_releases(0, 10).await.unwrap();
    let [release] = due.as_slice() else { panic!("{due:?}") };
    assert_eq!((release.user, release.shard), (UserId(2), ShardId::of(UserId(2))));
    assert_eq!((release.mark.order, release.mark.state), (OrderNumber(1002), OrderState::Closed));
    assert_eq!(scene.sql.due_releases(release.id, 10).await.unwrap(), []);
    scene.sql.releases_done(&[release.id]).await.unwrap();
    assert_eq!(scene.sql.due_releases(0, 10).await.unwrap(), []);
    assert_eq!(scene.count("SELECT COUNT(*) FROM ledger WHERE done_at_ms > 0").await, 1, "the row stays");
}

#[tokio::test]
async fn failing_a_promise_is_idempotent_and_never_over_a_settled_order() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(1)).await;
    let settled = reservation(1, 1001);
    let FailOutcome::Stands(mark) = scene.sql.fail(settled.user, &settled.mark, "refused").await.unwrap()
    else {
        panic!("a settled order failed")
    };
    assert_eq!(mark.state, OrderState::PendingPayment);
    let lost = reservation(2, 1002);
    assert_eq!(scene.sql.fail(lost.user, &lost.mark, "refused").await.unwrap(), FailOutcome::Failed);
    assert_eq!(scene.sql.fail(lost.user, &lost.mark, "refused").await.unwrap(), FailOutcome::WasFailed);
    // Whatever it may still hold anywhere goes back.
    let due = scene.sql.due_releases(0, 10).await.unwrap();
    assert_eq!(due.iter().map(|one| one.mark.order.0).collect::<Vec<_>>(), [1002]);
    assert_eq!(scene.count("SELECT COUNT(*) FROM order_history WHERE reason = 'refused'").await, 1);
    assert_eq!(scene.stock(1).await, (99, 1));
}

#[tokio::test]
async fn rule_14_a_number_that_failed_and_is_reserved_again_is_owed_again() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    // Given up in a recovery, its release done.
    let given_up = reservation(1, 1001);
    assert_eq!(scene.sql.fail(given_up.user, &given_up.mark, "lost").await.unwrap(), FailOutcome::Failed);
    let first = scene.sql.due_releases(0, 10).await.unwrap()[0];
    scene.sql.releases_done(&[first.id]).await.unwrap();
    // Then a gateway offers it once more, and its shard has a unit for it.
    let settlements = scene.settle(&[given_up, reservation(2, 1002)]).await;
    assert!(matches!(settlements[0], Settlement::WasSettled(mark) if mark.state == OrderState::Failed));
    assert!(matches!(settlements[1], Settlement::Settled(_)));
    let due = scene.sql.due_releases(0, 10).await.unwrap();
    let [again] = due.as_slice() else { panic!("{due:?}") };
    assert_eq!(Release { id: 0, ..*again }, Release { id: 0, ..first });
    // A writer that asked its shard before it was reserved once more says only now that it is done.
    scene.settle(&[given_up]).await;
    scene.sql.releases_done(&[first.id, again.id]).await.unwrap();
    let due = scene.sql.due_releases(0, 10).await.unwrap();
    assert_eq!(due.len(), 1, "{due:?}");
    scene.sql.releases_done(&[due[0].id]).await.unwrap();
    assert_eq!(scene.sql.due_releases(0, 10).await.unwrap(), []);
    assert_eq!((scene.stock(1).await, scene.count("SELECT COUNT(*) FROM ledger").await), ((99, 1), 1));
}

#[tokio::test]
async fn rule_14_a_number_of_another_user_that_is_reserved_again_is_owed_again() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let batch = [reservation(1, 1001), reservation(2, 1001)];
    for _ in 0..2 {
        let settlements = scene.settle(&batch).await;
        assert_eq!(settlements[1], Settlement::Collision { owner: UserId(1) });
        let due = scene.sql.due_releases(0, 10).await.unwrap();
        assert_eq!(due.iter().map(|one| one.user.0).collect::<Vec<_>>(), [2]);
        scene.sql.releases_done(&[due[0].id]).await.unwrap();
    }
}

#[tokio::test]
async fn a_state_that_redis_has_to_learn_stays_due_until_told() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(2)).await;
    scene
        .execute(
            "UPDATE orders SET state = 3 WHERE number = 1002; \
             INSERT INTO outbox (number, state, done, created_at_ms) VALUES (1002, 3, 0, 1)",
        )
        .await;
    let due = scene.sql.due_marks(0, 10).await.unwrap();
    let [update] = due.as_slice() else { panic!("{due:?}") };
    assert_eq!(
        (update.user, update.shard, update.mark.state),
        (UserId(2), ShardId::of(UserId(2)), OrderState::Paid)
    );
    scene.sql.marks_told(&[update.id]).await.unwrap();
    assert_eq!(scene.sql.due_marks(0, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_malformed_entry_is_kept_once() {
    let scene = Scene::new().await;
    let shard = ShardId::ALL[3];
    for _ in 0..2 {
        scene.sql.keep_malformed(shard, (Gen(2), 9), &"x".repeat(5000)).await.unwrap();
    }
    let letters = scene.sql.dead_letters(0, 10).await.unwrap();
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!((letter.shard, letter.entry, letter.reason.len()), (shard, (Gen(2), 9), 1000));
}

#[tokio::test]
async fn the_newest_release_that_is_due_is_known() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    assert_eq!(scene.sql.newest_due_release().await.unwrap(), 0);
    scene.settle(&reservations(3)).await;
    for order in [1001, 1002, 1003] {
        scene.sql.close_order(OrderNumber(order), "unpaid").await.unwrap();
    }
    let due = scene.sql.due_releases(0, 10).await.unwrap();
    assert_eq!(scene.sql.newest_due_release().await.unwrap(), due[2].id);
    scene.sql.releases_done(&[due[2].id]).await.unwrap();
    assert_eq!(scene.sql.newest_due_release().await.unwrap(), due[1].id);
}
