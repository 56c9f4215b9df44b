//! Cancels: kept before or after the settlement, applied once it is there, never over a payment that came first.

use rushgate::payment::{PaymentState, RefundCause};
use rushgate::protocol::{OrderNumber, UserId};

use crate::fixture::{Scene, reservation};
use crate::payments::{kept, payment};

const PRICE: u64 = 100;

impl Scene {
    async fn cancel(&self, user: u64, order: u64) {
        self.sql.keep_cancel(UserId(user), OrderNumber(order)).await.unwrap();
    }

    /// Applies what can be applied; how many orders were closed.
    async fn apply(&self) -> u64 {
        self.sql.apply_cancels(OrderNumber(0), 100).await.unwrap().closed
    }
}

#[tokio::test]
async fn rule_14_a_cancel_is_kept_until_its_order_is_settled_and_closes_it_once() {
    let (scene, first) = Scene::with_numbers().await;
    for _ in 0..2 {
        scene.cancel(1, first + 1).await;
    }
    assert_eq!(scene.apply().await, 0, "it is not settled");
    scene.settle(&[reservation(1, first + 1), reservation(2, first + 2), reservation(3, first + 3)]).await;
    // Another's order is left alone, and so is one that was paid first.
    scene.cancel(9, first + 2).await;
    assert_eq!(scene.pay(&payment("p-3", first + 3, PRICE)).await, kept(PaymentState::Applied));
    scene.cancel(3, first + 3).await;
    assert_eq!(scene.apply().await, 1);
    assert_eq!(scene.states().await, [4, 2, 3]);
    assert_eq!(scene.sql.due_releases(0, 10).await.unwrap().len(), 1);
    let history = "SELECT COUNT(*) FROM order_history WHERE state = 4 AND cause = 3 AND reason = 'cancelled by the user'";
    assert_eq!(scene.count(history).await, 1);
    scene.cancel(1, first + 1).await;
    assert_eq!(scene.apply().await, 0);
    assert_eq!(scene.count("SELECT COUNT(*) FROM cancels WHERE done = 0").await, 0);
    assert_eq!(scene.count("SELECT CAST(SUM(sold) AS SIGNED) FROM sku_stock").await, 2);
    // Money that comes after it is never silent.
    let late = kept(PaymentState::RefundDue(RefundCause::OrderClosed));
    assert_eq!(scene.pay(&payment("p-1", first + 1, PRICE)).await, late);
    assert_eq!(scene.states().await, [6, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rule_14_of_a_cancel_and_a_payment_that_meet_one_comes_first() {
    let (scene, first) = Scene::with_numbers().await;
    let orders: Vec<_> = (1..=40).map(|nth| reservation(nth, first + nth)).collect();
    scene.settle(&orders).await;
    for nth in 1..=40 {
        scene.cancel(nth, first + nth).await;
    }
    let paying = async {
        for nth in 1..=40 {
            scene.pay(&payment(&format!("p-{nth}"), first + nth, PRICE)).await;
        }
    };
    let (closed, ()) = tokio::join!(scene.apply(), paying);
    let paid = scene.count("SELECT COUNT(*) FROM orders WHERE state = 3").await.cast_unsigned();
    let refunds = scene.count("SELECT COUNT(*) FROM orders WHERE state = 6").await.cast_unsigned();
    assert_eq!(
        (paid + closed, refunds),
        (40, closed),
        "each is paid, or closed with its money to be given back"
    );
    assert_eq!(scene.sql.refunds_due(100).await.unwrap().len() as u64, closed);
}
