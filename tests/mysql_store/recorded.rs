//! Orders that are only recorded (the switch `orders.mode`), and their settlement later: rules 13, 14 and 18 hold for the
//! two steps together as for the one.

use std::time::Duration;

use rushgate::payment::{Notice, Payment, PaymentId, PaymentState, RefundCause};
use rushgate::protocol::{ActivityId, OrderNumber, OrderState, UserId};
use rushgate::stock::calls::{Mark, ShardId};
use rushgate::store::orders_modes::{OrdersMode, OrdersModes};
use rushgate::store::sql::mysql::{
    ActivityState, ArchiveStep, Backfilled, FailOutcome, Overdue, ProcessKind, Settlement, StillDue,
    StockDue, StockMended,
};

use crate::fixture::{ACTIVITY, PAY_WITHIN_MS, Scene, activity, reservation, reservations, sku};

fn record() -> OrdersModes {
    OrdersModes::of_all(OrdersMode::Record)
}

fn recorded(settlement: &Settlement) -> Mark {
    match settlement {
        Settlement::Recorded(mark) => *mark,
        other => panic!("{other:?}"),
    }
}

/// Free, recorded and sold units of an SKU, as SQL counts them.
async fn stock(scene: &Scene, id: u16) -> (u64, u64, u64) {
    let (free, sold) = scene.stock(id).await;
    let recorded = scene.sql.figures(ACTIVITY).await.unwrap().1[&sku(id).sku].recorded;
    (free, recorded, sold)
}

async fn states(scene: &Scene) -> Vec<u8> {
    let states = "SELECT state FROM orders ORDER BY number";
    sqlx::query_scalar(states).fetch_all(&mut scene.connect().await).await.unwrap()
}

#[tokio::test]
async fn rule_13_a_recorded_order_is_a_row_under_the_same_keys_and_deducts_when_it_is_settled() {
    let scene = Scene::with_stock(&[(1, 100), (2, 100)]).await;
    let mut batch = reservations(30);
    (batch[7].mark.sku, batch[7].mark.quantity) = (sku(2), 3);
    let changes = "SELECT CAST(SUM(version) AS SIGNED) FROM sku_stock";
    let changed_before = scene.count(changes).await;
    let told = scene.settle_or_record(&batch, &record()).await;
    for (one, told) in batch.iter().zip(&told) {
        assert_eq!(recorded(told), Mark { state: OrderState::Recorded, ..one.mark });
    }
    assert_eq!((stock(&scene, 1).await, stock(&scene, 2).await), ((71, 29, 0), (97, 3, 0)));
    assert_eq!(scene.count("SELECT COUNT(*) FROM ledger").await, 0);
    assert_eq!(scene.count(changes).await, changed_before, "no stock row is touched");
    // Redelivered, under whatever mode: once.
    for modes in [record(), OrdersModes::default()] {
        let again = scene.settle_or_record(&batch, &modes).await;
        assert!(again.iter().zip(&told).all(|(now, then)| *now == Settlement::WasSettled(recorded(then))));
    }
    // Another order of a user who has one, and a number that two users have.
    let second = scene.settle_or_record(&[reservation(1, 5001), reservation(77, 1002)], &record()).await;
    assert_eq!(second[0], Settlement::Superseded { already: recorded(&told[0]) });
    assert_eq!(second[1], Settlement::Collision { owner: UserId(2) });
    assert_eq!(scene.sql.due_releases(0, 9).await.unwrap().len(), 2);
    let before = scene.count("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)").await.cast_unsigned();
    let done = scene.sql.settle_recorded(ACTIVITY, 20).await.unwrap();
    assert_eq!(done, Backfilled { taken: 20, settled: 20, failed: Vec::new() });
    assert_eq!(scene.sql.settle_recorded(ACTIVITY, 20).await.unwrap().settled, 10);
    assert_eq!(scene.sql.settle_recorded(ACTIVITY, 20).await.unwrap(), Backfilled::default());
    assert_eq!((stock(&scene, 1).await, stock(&scene, 2).await), ((71, 0, 29), (97, 0, 3)));
    // The time to pay begins with the settlement, and Redis is told of it.
    let due = scene.sql.due_marks(0, 100).await.unwrap();
    assert_eq!(due.len(), 30);
    assert!(
        due.iter().all(|one| one.mark.state == OrderState::PendingPayment
            && one.mark.pay_by_ms >= before + PAY_WITHIN_MS)
    );
    let history = "SELECT COUNT(*) FROM order_history WHERE from_state = 7 AND state = 2 AND cause = 6";
    assert_eq!(scene.count(history).await, 30);
    assert!(matches!(scene.settle(&batch).await[0], Settlement::WasSettled(mark)
        if mark.state == OrderState::PendingPayment));
}

#[tokio::test]
async fn rule_13_several_at_once_settle_each_recorded_order_once() {
    let scene = Scene::with_stock(&[(1, 5000), (2, 5000)]).await;
    let mut batch = reservations(3000);
    batch.iter_mut().filter(|one| one.user.0 % 2 == 0).for_each(|one| one.mark.sku = sku(2));
    scene.settle_or_record(&batch, &record()).await;
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let sql = scene.sql.clone();
        writers.spawn(async move {
            let mut settled = 0;
            while !sql.recorded_activities().await.unwrap().is_empty() {
                settled += sql.settle_recorded(ACTIVITY, 100).await.unwrap().settled;
            }
            settled
        });
    }
    // Beside it orders are settled as they come.
    let fresh: Vec<_> = (4001..=4500).map(|user| reservation(user, 10_000 + user)).collect();
    for part in fresh.chunks(50) {
        scene.settle(part).await;
    }
    let settled = writers.join_all().await;
    assert_eq!(settled.iter().sum::<u64>(), 3000, "{settled:?}");
    assert!(settled.iter().filter(|rows| **rows > 0).count() > 1, "{settled:?}");
    assert_eq!((stock(&scene, 1).await, stock(&scene, 2).await), ((3000, 0, 2000), (3500, 0, 1500)));
    assert_eq!(scene.count("SELECT COUNT(*) FROM orders WHERE state = 2 AND pay_by_ms > 0").await, 3500);
    assert_eq!(scene.count("SELECT COUNT(*) FROM outbox WHERE state = 2").await, 3000);
}

#[tokio::test]
async fn one_activity_is_recorded_while_another_is_settled_in_the_same_batch() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let other = ActivityId(8);
    scene.sql.create(&activity(other, &[(1, 100)]), PAY_WITHIN_MS).await.unwrap();
    scene.sql.preheat(other).await.unwrap();
    let mut batch = reservations(4);
    batch[1].mark.sku.activity = other;
    batch[3].mark.sku.activity = other;
    let one = OrdersModes::read([("orders.mode/8", "record")], &OrdersModes::default());
    let told = scene.settle_or_record(&batch, &one).await;
    let is_recorded = |told: &Settlement| matches!(told, Settlement::Recorded(_));
    assert_eq!(told.iter().map(is_recorded).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!(scene.sql.recorded_activities().await.unwrap(), [other]);
    assert_eq!(scene.sql.recorded_orders(Some(ACTIVITY)).await.unwrap(), 0);
    assert_eq!(scene.sql.settle_recorded(ACTIVITY, 9).await.unwrap(), Backfilled::default());
    assert_eq!(scene.sql.settle_recorded(other, 9).await.unwrap().settled, 2);
}

#[tokio::test]
async fn rule_18_payments_and_cancels_of_recorded_orders_wait_for_their_settlement() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    // A payment is taken only of a number that some process can have given.
    let first = u64::from(scene.sql.register(ProcessKind::Gateway).await.unwrap().process.0) << 36;
    let batch: Vec<_> = (1..=3).map(|user| reservation(user, first + user)).collect();
    scene.settle_or_record(&batch, &record()).await;
    let paid = |order: u64| Payment {
        id: PaymentId::new(&format!("p-{order}")).unwrap(),
        order: OrderNumber(first + order),
        amount_minor: 100,
        paid_at_ms: 1,
    };
    for order in [1, 2] {
        let notice = scene.sql.take_answered_payment(&paid(order)).await.unwrap();
        assert_eq!(notice, Notice::Kept { state: PaymentState::Parked, repeated: false });
    }
    scene.sql.keep_cancel(UserId(2), OrderNumber(first + 2)).await.unwrap();
    scene.sql.keep_cancel(UserId(3), OrderNumber(first + 3)).await.unwrap();
    assert_eq!(scene.sql.apply_cancels(OrderNumber(0), 10).await.unwrap().closed, 0);
    // Nothing times out that is not settled.
    let how =
        Overdue { limit: 10, first_delay: Duration::from_secs(1), longest_delay: Duration::from_secs(1) };
    assert_eq!(scene.sql.take_overdue(how).await.unwrap().orders, []);
    assert_eq!(states(&scene).await, [7, 7, 7]);
    scene.sql.settle_recorded(ACTIVITY, 10).await.unwrap();
    assert_eq!(states(&scene).await, [3, 3, 2], "who paid first has paid");
    assert_eq!(scene.sql.apply_cancels(OrderNumber(0), 10).await.unwrap().closed, 1);
    assert_eq!(states(&scene).await, [3, 3, 4]);
    assert_eq!(scene.count("SELECT COUNT(*) FROM payments WHERE state = 2").await, 2);
    assert_eq!(stock(&scene, 1).await, (98, 0, 2));
}

#[tokio::test]
async fn rule_14_a_recorded_order_without_its_units_fails_with_its_ledger_row_and_holds_up_no_other() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let first = u64::from(scene.sql.register(ProcessKind::Gateway).await.unwrap().process.0) << 36;
    let batch: Vec<_> = (1..=5).map(|user| reservation(user, first + user)).collect();
    scene.settle_or_record(&batch, &record()).await;
    let early = Payment {
        id: PaymentId::new("p").unwrap(),
        order: OrderNumber(first + 5),
        amount_minor: 100,
        paid_at_ms: 1,
    };
    scene.sql.take_answered_payment(&early).await.unwrap();
    scene.execute("UPDATE sku_stock SET available = 3").await;
    let done = scene.sql.settle_recorded(ACTIVITY, 10).await.unwrap();
    assert_eq!((done.taken, done.settled, done.failed.len()), (5, 3, 2));
    assert!(done.failed[0].reason.contains("SKU 7/1 has only 0 units"), "{:?}", done.failed);
    assert_eq!(states(&scene).await, [2, 2, 2, 5, 5]);
    let releases = scene.sql.due_releases(0, 9).await.unwrap();
    assert_eq!(
        releases.iter().map(|one| (one.mark.order.0, one.mark.state)).collect::<Vec<_>>(),
        [(first + 4, OrderState::Failed), (first + 5, OrderState::Failed)]
    );
    assert_eq!(scene.sql.dead_letters(0, 9).await.unwrap().len(), 2);
    let refunds = scene.sql.refunds_due(9).await.unwrap();
    assert_eq!(refunds.iter().map(|one| one.cause).collect::<Vec<_>>(), [RefundCause::OrderFailed]);
    assert_eq!(scene.count("SELECT COUNT(*) FROM recorded").await, 0);
}

#[tokio::test]
async fn recorded_orders_are_counted_apart_and_keep_their_activity_from_being_archived() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(5)).await;
    let batch: Vec<_> = (11..=17).map(|user| reservation(user, 2000 + user)).collect();
    scene.settle_or_record(&batch, &record()).await;
    let due = scene.sql.stock_due().await.unwrap().1[&sku(1)];
    assert_eq!(due, StockDue { available: 88, ..StockDue::default() });
    // Nothing to correct.
    assert_eq!(scene.sql.mend_stock(sku(1)).await.unwrap(), Some(StockMended::default()));
    // What somebody's hand has taken away is found again.
    scene.execute("DELETE FROM recorded ORDER BY number LIMIT 4").await;
    assert_eq!(scene.sql.find_recorded(Some(ActivityId(8))).await.unwrap(), 0);
    assert_eq!(scene.sql.find_recorded(Some(ACTIVITY)).await.unwrap(), 4);
    assert_eq!(scene.sql.find_recorded(None).await.unwrap(), 0);
    scene.sql.end_activity(ACTIVITY).await.unwrap();
    let waits = ArchiveStep::Waits(StillDue { recorded: 7, ..StillDue::default() });
    assert_eq!(scene.sql.archive_activity(ACTIVITY).await.unwrap(), waits);
    scene.sql.settle_recorded(ACTIVITY, 100).await.unwrap();
    for one in scene.sql.due_marks(0, 100).await.unwrap() {
        scene.sql.marks_told(&[one.id]).await.unwrap();
    }
    assert_eq!(scene.sql.archive_activity(ACTIVITY).await.unwrap(), ArchiveStep::Done);
    assert_eq!(scene.sql.activity_states().await.unwrap(), [(ACTIVITY, ActivityState::Archived)]);
}

#[tokio::test]
async fn a_recovery_takes_recorded_orders_for_what_they_are() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let told = scene.settle_or_record(&reservations(3), &record()).await;
    let read = scene.sql.read_for_recovery(&ShardId::ALL).await.unwrap();
    let mut marks: Vec<_> = read.orders.iter().map(|one| one.mark).collect();
    marks.sort_unstable_by_key(|mark| mark.order);
    assert_eq!(marks, told.iter().map(recorded).collect::<Vec<_>>());
    assert!(read.orders.iter().all(|one| !one.released));
    // Given up by nobody: it stands.
    let stands = scene.sql.fail(UserId(1), &reservation(1, 1001).mark, "lost").await.unwrap();
    assert_eq!(stands, FailOutcome::Stands(recorded(&told[0])));
}
