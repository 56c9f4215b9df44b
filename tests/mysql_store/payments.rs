//! Rules 14 and 18: a payment is applied once, waits for its order, and is never dropped.

use std::time::Duration;

use rushgate::payment::{Notice, Payment, PaymentId, PaymentState, RefundCause};
use rushgate::protocol::{OrderNumber, OrderState};
use rushgate::stock::calls::Gen;
use rushgate::store::payments::ParkedPlace;
use rushgate::store::sql::mysql::{CloseOutcome, Judged, ProcessKind, Reservation, Settlement};
use sqlx::Connection;

use crate::fixture::{Scene, reservation, server, sku};

const WINDOW: Duration = Duration::from_secs(300);
/// Of one unit of any SKU here.
const PRICE: u64 = 100;

pub const fn kept(state: PaymentState) -> Notice {
    Notice::Kept { state, repeated: false }
}

const fn refund(cause: RefundCause) -> Notice {
    kept(PaymentState::RefundDue(cause))
}

pub fn payment(id: &str, order: u64, amount_minor: u64) -> Payment {
    Payment { id: PaymentId::new(id).unwrap(), order: OrderNumber(order), amount_minor, paid_at_ms: 5 }
}

impl Scene {
    /// With a process, and its order numbers.
    pub async fn with_numbers() -> (Self, u64) {
        let scene = Self::with_stock(&[(1, 1000)]).await;
        let process = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
        (scene, u64::from(process.0) << 36)
    }

    pub async fn now_ms(&self) -> u64 {
        self.count("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)").await.cast_unsigned()
    }

    pub async fn pay(&self, payment: &Payment) -> Notice {
        self.sql.take_payment(payment, self.now_ms().await, WINDOW).await.unwrap()
    }

    /// The states of all orders, by number.
    pub async fn states(&self) -> Vec<u8> {
        sqlx::query_scalar("SELECT state FROM orders ORDER BY number")
            .fetch_all(&mut self.connect().await)
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn rule_14_a_payment_is_applied_once_and_redis_is_told() {
    let (scene, first) = Scene::with_numbers().await;
    scene.settle(&[reservation(1, first + 1), reservation(2, first + 2)]).await;
    let paid = payment("p-1", first + 1, PRICE);
    assert_eq!(scene.pay(&paid).await, kept(PaymentState::Applied));
    for _ in 0..2 {
        let again = Notice::Kept { state: PaymentState::Applied, repeated: true };
        assert_eq!(scene.pay(&paid).await, again);
    }
    assert_eq!(scene.states().await, [3, 2]);
    let due = scene.sql.due_marks(0, 10).await.unwrap();
    let [update] = due.as_slice() else { panic!("{due:?}") };
    assert_eq!((update.mark.order.0, update.mark.state), (first + 1, OrderState::Paid));
    let history = "SELECT COUNT(*) FROM order_history WHERE from_state = 2 AND state = 3 AND cause = 4 \
                   AND reason = 'payment p-1' AND at_ms > 0";
    assert_eq!(scene.count(history).await, 1);
    // The same id for anything else is none of ours.
    for other in [payment("p-1", first + 2, PRICE), payment("p-1", first + 1, PRICE + 1)] {
        assert_eq!(scene.pay(&other).await, Notice::Conflict);
    }
    assert_eq!(scene.states().await, [3, 2]);
    assert!(matches!(
        scene.sql.close_order(OrderNumber(first + 1), "unpaid").await.unwrap(),
        CloseOutcome::Stands(_)
    ));
}

#[tokio::test]
async fn rule_18_a_payment_waits_for_its_order_and_is_applied_by_the_transaction_that_inserts_it() {
    let (scene, first) = Scene::with_numbers().await;
    for nth in 1..=3 {
        let early = payment(&format!("p-{nth}"), first + nth, PRICE);
        assert_eq!(scene.pay(&early).await, kept(PaymentState::Parked));
    }
    let settled = scene.settle(&[reservation(1, first + 1), reservation(9, first + 9)]).await;
    let state = |settlement: &Settlement| match settlement {
        Settlement::Settled(mark) | Settlement::WasSettled(mark) => mark.state,
        other => panic!("{other:?}"),
    };
    let states: Vec<_> = settled.iter().map(state).collect();
    assert_eq!(states, [OrderState::Paid, OrderState::PendingPayment]);
    // The careful way: one that is there already, one whose user has an order, one that is new.
    let batch = [reservation(1, first + 1), reservation(9, first + 2), reservation(3, first + 3)];
    let settled = scene.settle(&batch).await;
    assert_eq!((state(&settled[0]), state(&settled[2])), (OrderState::Paid, OrderState::Paid));
    assert!(matches!(settled[1], Settlement::Superseded { .. }), "{settled:?}");
    assert_eq!(scene.states().await, [3, 5, 3, 2]);
    let refunds = scene.sql.refunds_due(10).await.unwrap();
    let [failed] = refunds.as_slice() else { panic!("{refunds:?}") };
    assert_eq!((failed.payment.order.0, failed.cause), (first + 2, RefundCause::OrderFailed));
    assert_eq!(scene.count("SELECT COUNT(*) FROM payments WHERE state = 1").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rule_18_payments_and_settlements_that_meet_leave_nothing_parked() {
    let (scene, first) = Scene::with_numbers().await;
    let mut tasks = tokio::task::JoinSet::new();
    let now_ms = scene.now_ms().await;
    for batch in 0..20_u64 {
        let orders: Vec<Reservation> =
            (1..=10).map(|nth| reservation(batch * 10 + nth, first + batch * 10 + nth)).collect();
        let sql = scene.sql.clone();
        tasks.spawn(async move {
            let settled = sql.settle(Gen(0), &orders).await.unwrap();
            drop(settled);
        });
        for nth in 1..=10 {
            let (sql, number) = (scene.sql.clone(), first + batch * 10 + nth);
            tasks.spawn(async move {
                let paid = payment(&format!("p-{number}"), number, PRICE);
                sql.take_payment(&paid, now_ms, WINDOW).await.unwrap();
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(scene.count("SELECT COUNT(*) FROM payments WHERE state <> 2").await, 0);
    assert_eq!(scene.count("SELECT COUNT(*) FROM orders WHERE state = 3").await, 200);
    assert_eq!(scene.stock(1).await, (800, 200));
}

/// Waits until somebody waits for a lock, or the task has ended.
async fn waits_or_ends<T>(task: &tokio::task::JoinHandle<T>) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let waiting = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'";
        let waiting = server().await.sql(waiting).await.unwrap();
        if task.is_finished() || waiting.trim().lines().last() != Some("0") {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "it neither waits nor ends");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn rule_18_a_settlement_waits_for_a_payment_that_is_being_kept() {
    let (scene, first) = Scene::with_numbers().await;
    let mut connection = scene.connect().await;
    let mut keeping = connection.begin().await.unwrap();
    sqlx::query("INSERT INTO payments VALUES ('p', ?, 100, 1, 1, 0, 1, 1)")
        .bind(first + 1)
        .execute(&mut *keeping)
        .await
        .unwrap();
    let sql = scene.sql.clone();
    let settling =
        tokio::spawn(async move { sql.settle(Gen(0), &[reservation(1, first + 1)]).await.unwrap() });
    waits_or_ends(&settling).await;
    keeping.commit().await.unwrap();
    settling.await.unwrap();
    assert_eq!(scene.states().await, [3]);
}

#[tokio::test]
async fn rule_18_a_payment_waits_for_a_settlement_that_is_under_way() {
    let (scene, first) = Scene::with_numbers().await;
    let mut connection = scene.connect().await;
    let mut settling = connection.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO orders (number, activity, user, attempt, sku, quantity, state, source, shard, pay_by_ms, \
         created_at_ms) VALUES (?, 7, 1, 1, 1, 1, 2, 1, 0, 1, 1)",
    )
    .bind(first + 1)
    .execute(&mut *settling)
    .await
    .unwrap();
    let (sql, now_ms) = (scene.sql.clone(), scene.now_ms().await);
    let paying = tokio::spawn(async move {
        sql.take_payment(&payment("p", first + 1, PRICE), now_ms, WINDOW).await.unwrap()
    });
    waits_or_ends(&paying).await;
    settling.commit().await.unwrap();
    assert_eq!(paying.await.unwrap(), kept(PaymentState::Applied));
}

#[tokio::test]
async fn rule_14_a_payment_after_the_close_is_refund_due_and_told_after_the_release() {
    let (scene, first) = Scene::with_numbers().await;
    let order = OrderNumber(first + 1);
    scene.settle(&[reservation(1, order.0)]).await;
    assert_eq!(scene.sql.close_order(order, "cancelled").await.unwrap(), CloseOutcome::Closed);
    let late = payment("late", order.0, PRICE);
    assert_eq!(scene.pay(&late).await, refund(RefundCause::OrderClosed));
    let state = PaymentState::RefundDue(RefundCause::OrderClosed);
    assert_eq!(scene.pay(&late).await, Notice::Kept { state, repeated: true });
    assert_eq!(scene.pay(&payment("later", order.0, PRICE)).await, refund(RefundCause::OrderClosed));
    assert_eq!((scene.states().await, scene.stock(1).await), (vec![6], (1000, 0)));
    // A live mark would not take REFUND_DUE.
    assert_eq!(scene.sql.due_marks(0, 10).await.unwrap(), []);
    let release = scene.sql.due_releases(0, 10).await.unwrap()[0];
    assert_eq!(release.mark.state, OrderState::Closed);
    scene.sql.releases_done(&[release.id]).await.unwrap();
    let due = scene.sql.due_marks(0, 10).await.unwrap();
    assert_eq!(due.iter().map(|one| one.mark.state).collect::<Vec<_>>(), [OrderState::RefundDue]);
    let refunds = scene.sql.refunds_due(10).await.unwrap();
    assert_eq!(refunds.iter().map(|one| one.payment.id.as_str()).collect::<Vec<_>>(), ["late", "later"]);
    assert_eq!(scene.count("SELECT COUNT(*) FROM order_history WHERE from_state = 4 AND cause = 5").await, 1);
}

#[tokio::test]
async fn rule_14_refund_due_is_told_again_when_the_mark_that_had_it_was_lost() {
    let (scene, first) = Scene::with_numbers().await;
    let one = reservation(1, first + 1);
    scene.settle(&[one]).await;
    scene.sql.close_order(one.mark.order, "cancelled").await.unwrap();
    assert_eq!(scene.pay(&payment("late", first + 1, PRICE)).await, refund(RefundCause::OrderClosed));
    let states = async || {
        let due = scene.sql.due_marks(0, 10).await.unwrap();
        due.iter().map(|one| one.mark.state).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(states().await, [], "the release comes first");
        let released = scene.sql.due_releases(0, 10).await.unwrap();
        assert_eq!(released.len(), 1);
        scene.sql.releases_done(&[released[0].id]).await.unwrap();
        assert_eq!(states().await, [OrderState::RefundDue]);
        let told = scene.sql.due_marks(0, 10).await.unwrap();
        scene.sql.marks_told(&[told[0].id]).await.unwrap();
        assert_eq!(states().await, []);
        // A recovery knew nothing of it; its gateway has offered it again.
        scene.settle(&[one]).await;
    }
}

#[tokio::test]
async fn money_that_pays_nothing_is_kept_and_given_back() {
    let (scene, first) = Scene::with_numbers().await;
    scene.settle(&[reservation(1, first + 1)]).await;
    for (id, amount) in [("less", PRICE - 1), ("more", PRICE + 1), ("none", 0), ("all", u64::MAX)] {
        let wrong = payment(id, first + 1, amount);
        assert_eq!(scene.pay(&wrong).await, refund(RefundCause::WrongAmount), "{id}");
    }
    assert_eq!(scene.states().await, [2], "it still waits for its payment");
    assert_eq!(scene.pay(&payment("right", first + 1, PRICE)).await, kept(PaymentState::Applied));
    assert_eq!(scene.pay(&payment("twice", first + 1, PRICE)).await, refund(RefundCause::PaidTwice));
    let lost = reservation(2, first + 2);
    scene.sql.fail(lost.user, &lost.mark, "given up").await.unwrap();
    assert_eq!(scene.pay(&payment("failed", first + 2, PRICE)).await, refund(RefundCause::OrderFailed));
    // Of no process, and of none that was ever started.
    for (id, order) in [("small", 7), ("far", first + (1 << 36)), ("greatest", u64::MAX)] {
        assert_eq!(scene.pay(&payment(id, order, PRICE)).await, refund(RefundCause::NoSuchOrder), "{id}");
    }
    assert_eq!(scene.sql.refunds_due(100).await.unwrap().len(), 9);
    assert_eq!(scene.sql.refunds_due(2).await.unwrap().len(), 2);
    assert_eq!(scene.sql.refunds_due_count().await.unwrap(), 9);
    assert_eq!(scene.states().await, [3, 5]);
}

#[tokio::test]
async fn a_notice_is_good_around_its_signing_by_the_databases_clock_alone() {
    let (scene, first) = Scene::with_numbers().await;
    scene.settle(&[reservation(1, first + 1)]).await;
    let now_ms = scene.now_ms().await;
    let paid = payment("p", first + 1, PRICE);
    for signed_at_ms in [0, now_ms - 310_000, now_ms + 310_000, u64::MAX] {
        let notice = scene.sql.take_payment(&paid, signed_at_ms, WINDOW).await.unwrap();
        assert!(matches!(notice, Notice::Stale { .. }), "{notice:?}");
    }
    assert_eq!(scene.count("SELECT COUNT(*) FROM payments").await, 0);
    for (signed_at_ms, repeated) in [(now_ms - 290_000, false), (now_ms + 290_000, true)] {
        let notice = scene.sql.take_payment(&paid, signed_at_ms, WINDOW).await.unwrap();
        assert_eq!(notice, Notice::Kept { state: PaymentState::Applied, repeated });
    }
}

#[tokio::test]
async fn rule_18_a_payment_whose_order_never_comes_is_given_back() {
    let (scene, first) = Scene::with_numbers().await;
    for nth in 1..=5 {
        scene.pay(&payment(&format!("p-{nth}"), first + nth, PRICE)).await;
    }
    let day = Duration::from_secs(86_400);
    assert_eq!(scene.sql.judge_parked(day, &ParkedPlace::default(), 10).await.unwrap(), Judged::default());
    // An order that some other way than a settlement has brought here, and two payments that waited too long.
    scene.settle(&[reservation(1, first + 1)]).await;
    scene
        .execute(
            "UPDATE payments SET state = 1 WHERE id = 'p-1'; UPDATE orders SET state = 2; \
             UPDATE payments SET received_at_ms = received_at_ms - 90000000 WHERE id IN ('p-2', 'p-4')",
        )
        .await;
    let Judged { unparked, next, .. } =
        scene.sql.judge_parked(day, &ParkedPlace::default(), 2).await.unwrap();
    let states: Vec<_> = unparked.iter().map(|one| (one.payment.id.as_str(), one.state)).collect();
    let never = PaymentState::RefundDue(RefundCause::NeverSettled);
    assert_eq!(states, [("p-1", PaymentState::Applied), ("p-2", never)]);
    assert_eq!(next, Some(ParkedPlace { order: first + 2, payment: "p-2".to_owned() }));
    let Judged { unparked, next, .. } = scene.sql.judge_parked(day, &next.unwrap(), 2).await.unwrap();
    assert_eq!(
        unparked.iter().map(|one| (one.payment.id.as_str(), one.state)).collect::<Vec<_>>(),
        [("p-4", never)]
    );
    assert_eq!(next, None);
    assert_eq!(scene.states().await, [3]);
    // Settled after all: the money is on its way back, and the order waits.
    scene.settle(&[reservation(2, first + 2)]).await;
    assert_eq!(scene.states().await, [3, 2]);
}

#[tokio::test]
async fn rule_18_a_payment_whose_order_has_a_row_waits_for_it_however_long() {
    let (scene, first) = Scene::with_numbers().await;
    scene.pay(&payment("p", first + 1, PRICE)).await;
    let recorded = "INSERT INTO orders (number, activity, user, attempt, sku, quantity, state, source, shard, \
                    pay_by_ms, created_at_ms) VALUES (?, 7, 1, 1, 1, 1, 7, 1, 0, 1, 1)";
    sqlx::query(recorded).bind(first + 1).execute(&mut scene.connect().await).await.unwrap();
    scene.execute("UPDATE payments SET received_at_ms = 1").await;
    let day = Duration::from_secs(86_400);
    assert_eq!(scene.sql.judge_parked(day, &ParkedPlace::default(), 10).await.unwrap(), Judged::default());
    scene.execute("UPDATE orders SET state = 2").await;
    let Judged { unparked, .. } = scene.sql.judge_parked(day, &ParkedPlace::default(), 10).await.unwrap();
    assert_eq!(unparked.iter().map(|one| one.state).collect::<Vec<_>>(), [PaymentState::Applied]);
}

#[tokio::test]
async fn a_payment_of_a_failed_order_needs_no_price() {
    let (scene, first) = Scene::with_numbers().await;
    for nth in 1..=2 {
        let early = payment(&format!("p-{nth}"), first + nth, PRICE);
        assert_eq!(scene.pay(&early).await, kept(PaymentState::Parked));
    }
    let mut lost = reservation(1, first + 1);
    lost.mark.sku = sku(99);
    scene.settle(&[lost, reservation(2, first + 2)]).await;
    assert_eq!(scene.states().await, [5, 3]);
    let refunds = scene.sql.refunds_due(10).await.unwrap();
    let [failed] = refunds.as_slice() else { panic!("{refunds:?}") };
    assert_eq!((failed.payment.order.0, failed.cause), (first + 1, RefundCause::OrderFailed));
    let later = payment("later", first + 1, PRICE);
    assert_eq!(scene.pay(&later).await, refund(RefundCause::OrderFailed));
}

#[tokio::test]
async fn a_parked_payment_that_cannot_be_judged_holds_up_no_other() {
    let (scene, first) = Scene::with_numbers().await;
    for nth in 1..=2 {
        scene.pay(&payment(&format!("p-{nth}"), first + nth, PRICE)).await;
    }
    scene.settle(&[reservation(1, first + 1), reservation(2, first + 2)]).await;
    scene
        .execute(
            "UPDATE payments SET state = 1; UPDATE orders SET state = 2; \
             UPDATE orders SET sku = 99 ORDER BY number LIMIT 1",
        )
        .await;
    let day = Duration::from_secs(86_400);
    let Judged { unparked, stuck, next } =
        scene.sql.judge_parked(day, &ParkedPlace::default(), 2).await.unwrap();
    let states: Vec<_> = unparked.iter().map(|one| (one.payment.id.as_str(), one.state)).collect();
    let [bad] = stuck.as_slice() else { panic!("{stuck:?}") };
    assert_eq!((bad.payment.as_str(), bad.order.0), ("p-1", first + 1));
    assert!(bad.reason.contains("of user 1 is of SKU 7/99, which has no price"), "{}", bad.reason);
    assert_eq!(
        (states.as_slice(), next),
        (
            [("p-2", PaymentState::Applied)].as_slice(),
            Some(ParkedPlace { order: first + 2, payment: "p-2".to_owned() })
        )
    );
    // Neither a settlement that comes upon it nor a further notice.
    scene.settle(&[reservation(1, first + 1), reservation(3, first + 3)]).await;
    assert_eq!(scene.pay(&payment("more", first + 1, PRICE)).await, kept(PaymentState::Parked));
    assert_eq!(scene.states().await, [2, 3, 2]);
    assert_eq!(scene.count("SELECT COUNT(*) FROM payments WHERE state = 1").await, 2);
    let letters = scene.sql.dead_letters(0, 10).await.unwrap();
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!((letter.order.0, letter.user.0, letter.entry), (first + 1, 1, (Gen(0), 0)));
    assert!(letter.reason.starts_with("payment more cannot be judged: order"), "{}", letter.reason);
    scene.execute("UPDATE orders SET sku = 1 WHERE sku = 99").await;
    let Judged { unparked, stuck, .. } =
        scene.sql.judge_parked(day, &ParkedPlace::default(), 9).await.unwrap();
    assert_eq!((unparked.len(), stuck.len(), scene.states().await), (2, 0, vec![3, 3, 2]));
}

#[tokio::test]
async fn many_payments_of_one_order_that_cannot_be_judged_hide_no_other() {
    let (scene, first) = Scene::with_numbers().await;
    for nth in 1..=5 {
        scene.pay(&payment(&format!("p-{nth}"), first + 1, PRICE)).await;
    }
    scene.settle(&[reservation(1, first + 1)]).await;
    // Nobody can judge them.
    scene
        .execute(
            "UPDATE payments SET state = 1, refund_cause = 0; UPDATE orders SET state = 2; \
             UPDATE orders SET sku = 99",
        )
        .await;
    let day = Duration::from_secs(86_400);
    let (mut place, mut seen) = (ParkedPlace::default(), Vec::new());
    loop {
        let Judged { stuck, next, .. } = scene.sql.judge_parked(day, &place, 2).await.unwrap();
        seen.extend(stuck.into_iter().map(|one| one.payment));
        let Some(next) = next else { break };
        place = next;
    }
    assert_eq!(seen, ["p-1", "p-2", "p-3", "p-4", "p-5"]);
}
