//! Orders that were not paid in time: each is given to one writer at a time, and closed only while it waits.

use std::collections::BTreeSet;
use std::time::Duration;

use rushgate::protocol::OrderNumber;
use rushgate::store::sql::mysql::{Closings, Overdue, ProcessKind};

use crate::fixture::{Scene, reservation, sku};
use crate::payments::payment;

const HOW: Overdue =
    Overdue { limit: 7, first_delay: Duration::from_secs(60), longest_delay: Duration::from_secs(150) };

impl Scene {
    /// So many orders, all of them past their pay-by.
    async fn with_overdue(count: u64) -> (Self, Vec<OrderNumber>) {
        let (scene, first) = Self::with_numbers().await;
        let reservations: Vec<_> = (1..=count).map(|nth| reservation(nth, first + nth)).collect();
        scene.settle(&reservations).await;
        scene.execute("UPDATE orders SET pay_by_ms = pay_by_ms - 900000 - 5000").await;
        (scene, reservations.iter().map(|one| one.mark.order).collect())
    }

    /// How many were closed; none was left that waits.
    pub async fn close_overdue(&self, orders: &[OrderNumber]) -> u64 {
        let Closings { closed, left_open } = self.sql.close_overdue(orders).await.unwrap();
        assert_eq!(left_open, []);
        closed
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn overdue_orders_are_shared_among_writers_without_a_leader() {
    let (scene, orders) = Scene::with_overdue(100).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let sql = scene.sql.clone();
        tasks.spawn(async move {
            let mut taken = Vec::new();
            let mut in_vain = 0;
            // One that meets nothing but locked rows is told of none; it looks again.
            while in_vain < 20 {
                let some = sql.take_overdue(HOW).await.unwrap().orders;
                in_vain = if some.is_empty() { in_vain + 1 } else { 0 };
                taken.extend(some);
                assert!(taken.len() <= 100, "orders are given twice");
            }
            taken
        });
    }
    let mut taken = Vec::new();
    while let Some(done) = tasks.join_next().await {
        taken.extend(done.unwrap());
    }
    assert!(taken.iter().all(|one| one.overdue_ms >= 5000 && one.waited_ms >= 5000), "{taken:?}");
    let distinct: BTreeSet<_> = taken.iter().map(|one| one.order).collect();
    assert_eq!((taken.len(), distinct), (100, orders.into_iter().collect()));
    assert_eq!(scene.sql.overdue_lag_ms().await.unwrap(), 0, "none waits for its turn");
}

#[tokio::test]
async fn an_order_of_which_nothing_is_known_comes_back_later_and_later() {
    let (scene, _) = Scene::with_overdue(1).await;
    assert!(scene.sql.overdue_lag_ms().await.unwrap() >= 5000);
    let mut delays = Vec::new();
    for _ in 0..4 {
        assert_eq!(scene.sql.take_overdue(HOW).await.unwrap().orders.len(), 1);
        assert_eq!(scene.sql.take_overdue(HOW).await.unwrap().orders.len(), 0);
        let left =
            "SELECT CAST(ask_at_ms AS SIGNED) - CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) FROM orders";
        delays.push(scene.count(left).await);
        // The time passes.
        scene.execute("UPDATE orders SET pay_by_ms = pay_by_ms - 200000").await;
    }
    for (delay, (from, to)) in delays.iter().zip([(55, 75), (115, 150), (145, 150), (145, 150)]) {
        assert!((from * 1000..=to * 1000).contains(delay), "{delays:?}");
    }
}

#[tokio::test]
async fn rule_14_closing_overdue_orders_is_one_transaction_and_leaves_alone_what_does_not_wait() {
    let (scene, orders) = Scene::with_overdue(6).await;
    scene.pay(&payment("p", orders[0].0, 100)).await;
    scene.sql.close_order(orders[1], "cancelled").await.unwrap();
    let mut asked = orders.clone();
    asked.push(OrderNumber(77));
    assert_eq!(scene.close_overdue(&asked[..4]).await, 2);
    assert_eq!(scene.states().await, [3, 4, 4, 4, 2, 2]);
    assert_eq!(scene.stock(1).await, (997, 3));
    assert_eq!(scene.close_overdue(&asked).await, 2);
    assert_eq!(scene.close_overdue(&asked).await, 0);
    assert_eq!((scene.states().await, scene.stock(1).await), (vec![3, 4, 4, 4, 4, 4], (999, 1)));
    let timed_out = "SELECT COUNT(*) FROM order_history WHERE from_state = 2 AND state = 4 AND cause = 2";
    assert_eq!(scene.count(timed_out).await, 4);
    let due = scene.sql.due_releases(0, 10).await.unwrap();
    assert_eq!(
        due.iter().map(|one| one.mark.order).collect::<BTreeSet<_>>(),
        orders[1..].iter().copied().collect()
    );
    let ids: Vec<_> = due.iter().map(|one| one.id).collect();
    assert_eq!(scene.sql.restock_lag_ms(&ids).await.unwrap(), 0, "nothing is back yet");
    scene.sql.releases_done(&ids).await.unwrap();
    let lag_ms = scene.sql.restock_lag_ms(&ids).await.unwrap();
    assert!((5000..60_000).contains(&lag_ms), "{lag_ms}");
}

#[tokio::test]
async fn rule_14_a_sku_whose_books_are_wrong_keeps_its_own_orders_open_and_nobody_elses() {
    let scene = Scene::with_stock(&[(1, 1000), (2, 1000), (3, 1000)]).await;
    let first = u64::from(scene.sql.register(ProcessKind::Gateway).await.unwrap().process.0) << 36;
    let one_of = |(nth, id)| {
        let mut one = reservation(nth, first + nth);
        one.mark.sku = sku(id);
        one
    };
    let reservations: Vec<_> = (1..).zip([1, 2, 3, 1, 2, 3]).map(one_of).collect();
    scene.settle(&reservations).await;
    let orders: Vec<_> = reservations.iter().map(|one| one.mark.order).collect();
    scene
        .execute(
            "SET FOREIGN_KEY_CHECKS = 0; DELETE FROM sku_stock WHERE sku = 2; \
             UPDATE sku_stock SET sold = 1 WHERE sku = 3",
        )
        .await;
    let Closings { closed, left_open } = scene.sql.close_overdue(&orders).await.unwrap();
    assert_eq!((closed, scene.states().await), (2, vec![4, 2, 2, 4, 2, 2]));
    let left: Vec<_> = left_open.iter().map(|one| (one.order, one.sku, one.reason.as_str())).collect();
    for (nth, says) in [(1, "7/2 has no stock row"), (2, "7/3 cannot take 2 units"), (4, "7/2"), (5, "7/3")] {
        let told = left.iter().find(|(order, ..)| *order == orders[nth]);
        assert!(
            told.is_some_and(|(_, of, why)| *of == sku(nth as u16 % 3 + 1) && why.contains(says)),
            "{left:?}"
        );
    }
    assert_eq!(left.len(), 4);
    let of_sku_1 = "SELECT CAST(available AS SIGNED) FROM sku_stock WHERE sku = 1";
    assert_eq!((scene.count(of_sku_1).await, scene.sql.due_releases(0, 10).await.unwrap().len()), (1000, 2));
    scene
        .execute(
            "INSERT INTO sku_stock VALUES (7, 2, 998, 2, 1); UPDATE sku_stock SET sold = 2 WHERE sku = 3",
        )
        .await;
    assert_eq!(scene.close_overdue(&orders).await, 4);
    assert_eq!(scene.sql.due_releases(0, 10).await.unwrap().len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rule_14_a_payment_and_a_close_that_meet_leave_no_unit_out_and_no_money_unseen() {
    let (scene, orders) = Scene::with_overdue(200).await;
    let now_ms = scene.now_ms().await;
    let mut tasks = tokio::task::JoinSet::new();
    for some in orders.chunks(20) {
        let (sql, some) = (scene.sql.clone(), some.to_vec());
        tasks.spawn(async move {
            sql.close_overdue(&some).await.unwrap();
        });
    }
    for order in orders.iter().rev().copied() {
        let sql = scene.sql.clone();
        tasks.spawn(async move {
            let paid = payment(&format!("p-{order}"), order.0, 100);
            sql.take_payment(&paid, now_ms, Duration::from_secs(300)).await.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let (paid, refund_due) = (
        scene.count("SELECT COUNT(*) FROM orders WHERE state = 3").await.cast_unsigned(),
        scene.count("SELECT COUNT(*) FROM orders WHERE state = 6").await.cast_unsigned(),
    );
    assert_eq!(paid + refund_due, 200);
    assert_eq!(scene.stock(1).await, (1000 - paid, paid));
    assert_eq!(scene.sql.due_releases(0, 1000).await.unwrap().len() as u64, refund_due);
    assert_eq!(scene.sql.refunds_due(1000).await.unwrap().len() as u64, refund_due);
}
