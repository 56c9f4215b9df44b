//! What a reconciliation corrects in SQL: each looks again, and gives nothing back that has no final order.

use rushgate::protocol::{OrderNumber, OrderState};
use rushgate::stock::calls::{Gen, Mark};
use rushgate::store::sql::mysql::{CloseOutcome, PlacedOrder, StockMended};

use crate::fixture::{ACTIVITY, Scene, reservation, reservations, sku};

/// As its mark has an order that waits for its payment.
fn placed(user: u64, order: u64) -> PlacedOrder {
    let one = reservation(user, order);
    let mark = Mark { state: OrderState::PendingPayment, pay_by_ms: 4_000_000_000_000, ..one.mark };
    PlacedOrder { shard: one.shard, user: one.user, mark }
}

#[tokio::test]
async fn a_row_that_is_gone_is_written_anew_once_and_whoever_has_paid_stays_paid() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(3)).await;
    scene
        .execute(
            "DELETE FROM orders WHERE number IN (1002, 1003); \
             INSERT INTO payments VALUES ('p', 1003, 100, 1, 2, 0, 1, 1)",
        )
        .await;
    let (second, third) = (placed(2, 1002), placed(3, 1003));
    assert!(!scene.sql.restore_order(Gen(1), &second).await.unwrap(), "under another generation");
    assert!(scene.sql.restore_order(Gen(0), &second).await.unwrap());
    assert!(!scene.sql.restore_order(Gen(0), &second).await.unwrap(), "it is there");
    assert!(scene.sql.restore_order(Gen(0), &third).await.unwrap());
    let orders = scene.sql.books(ACTIVITY).await.unwrap().orders;
    assert!(orders.contains(&second), "{orders:?}");
    let paid = PlacedOrder { mark: Mark { state: OrderState::Paid, ..third.mark }, ..third };
    assert!(orders.contains(&paid), "{orders:?}");
    // Its shard has to learn that.
    let due = scene.sql.due_marks(0, 10).await.unwrap();
    assert_eq!(due.iter().map(|due| due.mark.order.0).collect::<Vec<_>>(), [1003]);
    // Nothing was deducted twice.
    assert_eq!(scene.stock(1).await, (97, 3));
    // The user has another order by now.
    assert!(!scene.sql.restore_order(Gen(0), &placed(1, 1009)).await.unwrap());
    assert_eq!(scene.sql.books(ACTIVITY).await.unwrap().orders.len(), 3);
}

#[tokio::test]
async fn rule_14_only_an_order_that_is_over_is_owed_again() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(2)).await;
    let (standing, closed) = (placed(1, 1001), placed(2, 1002));
    assert_eq!(scene.sql.close_order(OrderNumber(1002), "unpaid").await.unwrap(), CloseOutcome::Closed);
    scene.execute("DELETE FROM ledger").await;
    assert!(!scene.sql.owe_release(&standing).await.unwrap());
    assert!(!scene.sql.owe_release(&placed(9, 1009)).await.unwrap(), "nobody knows it");
    assert_eq!(scene.sql.due_releases(0, 10).await.unwrap(), []);
    for _ in 0..2 {
        assert!(scene.sql.owe_release(&closed).await.unwrap());
        let due = scene.sql.due_releases(0, 10).await.unwrap();
        let [release] = due.as_slice() else { panic!("{due:?}") };
        assert_eq!((release.user, release.mark.order), (closed.user, closed.mark.order));
        assert_eq!(release.mark.state, OrderState::Closed);
        scene.sql.releases_done(&[release.id]).await.unwrap();
    }
}

#[tokio::test]
async fn counts_are_brought_to_what_rows_add_up_to_by_the_difference() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(3)).await;
    scene.execute("UPDATE sku_stock SET available = available + 5, sold = sold - 1 WHERE sku = 1").await;
    let mended = scene.sql.mend_stock(sku(1)).await.unwrap();
    assert_eq!(mended, Some(StockMended { available: -5, sold: 1 }));
    assert_eq!(scene.sql.mend_stock(sku(1)).await.unwrap(), Some(StockMended::default()));
    assert_eq!(scene.stock(1).await, (97, 3));
    // More is sold than there ever was: nothing is said to be right.
    scene.execute("UPDATE orders SET quantity = 99 WHERE number = 1001").await;
    assert_eq!(scene.sql.mend_stock(sku(1)).await.unwrap(), None);
    assert_eq!(scene.count("SELECT CAST(available AS SIGNED) FROM sku_stock WHERE sku = 1").await, 97);
}
