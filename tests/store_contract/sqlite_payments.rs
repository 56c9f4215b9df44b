//! Rules 14 and 18 on the embedded store: a payment is applied once and never dropped, an unpaid order is closed once, and
//! its units go back with its state.

use std::sync::Arc;
use std::time::Duration;

use rushgate::payment::{Notice, Payment, PaymentId, PaymentState, RefundCause};
use rushgate::protocol::{OrderNumber, OrderState, SkuId, UserId};
use rushgate::stock::calls::{Change, Event, Gen, SHARDS, ShardId};
use rushgate::store::payments::{Overdue, ParkedPlace, PaymentStore};
use rushgate::store::sql::SqliteStore;
use rushgate::store::{FeedRead, ReservationStore};

use crate::installation::{ACTIVITY, Installation, Process, shard, sku, user_of};
use crate::sqlite::{SqliteInstallation, connect};

const WINDOW: Duration = Duration::from_secs(300);
/// Of one unit of any SKU here.
const PRICE: u64 = 100;
const AT_ONCE: Overdue =
    Overdue { limit: 100, first_delay: Duration::from_secs(60), longest_delay: Duration::from_secs(60) };

struct Scene {
    installation: SqliteInstallation,
    process: Process<SqliteStore>,
}

const fn kept(state: PaymentState) -> Notice {
    Notice::Kept { state, repeated: false }
}

const fn refund(cause: RefundCause) -> Notice {
    kept(PaymentState::RefundDue(cause))
}

fn payment(id: &str, order: OrderNumber, amount_minor: u64) -> Payment {
    Payment { id: PaymentId::new(id).unwrap(), order, amount_minor, paid_at_ms: 5 }
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis().try_into().unwrap()
}

impl Scene {
    async fn new() -> Self {
        let installation = SqliteInstallation::create().await;
        installation.create_activity(ACTIVITY, &[(SkuId(1), 32), (SkuId(2), 16)]).await;
        let process = Process::start(installation.store()).await;
        Self { installation, process }
    }

    fn store(&self) -> Arc<SqliteStore> {
        self.installation.store()
    }

    /// The nth user of a shard buys; his order.
    async fn buy(&mut self, of: u8, nth: usize) -> (UserId, OrderNumber) {
        let user = user_of(shard(of), nth);
        let item = self.process.item(user, sku(1), 1);
        let call = self.process.reserve(shard(of), vec![item]);
        self.process.done(&call).await;
        (user, item.order)
    }

    async fn pay(&self, payment: &Payment) -> Notice {
        self.store().take_payment(payment, now_ms(), WINDOW).await.unwrap()
    }

    /// As if this much of everybody's time to pay had passed.
    async fn wait(&self, ms: i64) {
        let mut connection = connect(&self.installation.folder()).await;
        sqlx::query("UPDATE orders SET pay_by_ms = pay_by_ms - ?")
            .bind(ms)
            .execute(&mut connection)
            .await
            .unwrap();
    }

    async fn overdue(&self) -> Vec<OrderNumber> {
        let taken = self.store().take_overdue(AT_ONCE).await.unwrap();
        taken.orders.into_iter().map(|one| one.order).collect()
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut connect(&self.installation.folder()).await).await.unwrap()
    }

    /// How the user's order stands, by the marks of its shard.
    async fn state(&self, user: UserId) -> OrderState {
        let snapshot = self.store().snapshot(ShardId::of(user)).await.unwrap();
        snapshot.marks.iter().find(|(owner, _)| *owner == user).unwrap().1.state
    }

    /// The last event of a shard.
    async fn last_event(&self, of: u8) -> Event {
        let generation = self.store().generation();
        let after = [(generation, 0); SHARDS];
        let reads = self.store().read_feeds(&after, Duration::ZERO).await.unwrap();
        let (_, read) = reads.into_iter().find(|(one, _)| *one == shard(of)).unwrap();
        let FeedRead::Events(mut events) = read else { panic!("{read:?}") };
        events.pop().unwrap()
    }
}

#[tokio::test]
async fn rule_14_a_payment_is_applied_once_and_gateways_are_told() {
    let mut scene = Scene::new().await;
    let ((payer, paid), (_, other)) = (scene.buy(3, 0).await, scene.buy(3, 1).await);
    let notice = payment("p-1", paid, PRICE);
    assert_eq!(scene.pay(&notice).await, kept(PaymentState::Applied));
    let event = scene.last_event(3).await;
    let Change::Marked(marks) = event.change else { panic!("{event:?}") };
    assert_eq!(
        marks.iter().map(|(user, mark)| (*user, mark.order, mark.state)).collect::<Vec<_>>(),
        [(payer, paid, OrderState::Paid)]
    );
    assert!(marks[0].1.pay_by_ms > now_ms(), "{marks:?}");
    for _ in 0..2 {
        let again = Notice::Kept { state: PaymentState::Applied, repeated: true };
        assert_eq!(scene.pay(&notice).await, again);
    }
    let history = "SELECT COUNT(*) FROM order_history WHERE from_state = 2 AND state = 3 AND cause = 4 \
                   AND reason = 'payment p-1' AND at_ms > 0";
    assert_eq!(scene.count(history).await, 1);
    for other in [payment("p-1", other, PRICE), payment("p-1", paid, PRICE + 1)] {
        assert_eq!(scene.pay(&other).await, Notice::Conflict);
    }
    let long_ago = scene.store().take_payment(&payment("p-2", paid, PRICE), now_ms() - 400_000, WINDOW).await;
    assert!(matches!(long_ago.unwrap(), Notice::Stale { .. }));
    // Money that is nobody's order's is kept to be given back.
    for (id, order, amount, cause) in [
        ("p-3", paid, PRICE, RefundCause::PaidTwice),
        ("p-4", other, PRICE + 1, RefundCause::WrongAmount),
        ("p-5", OrderNumber(u64::MAX), PRICE, RefundCause::NoSuchOrder),
        ("p-6", OrderNumber(7), u64::MAX, RefundCause::NoSuchOrder),
    ] {
        let notice = payment(id, order, amount);
        assert_eq!(scene.pay(&notice).await, refund(cause), "{id}");
        let again = Notice::Kept { state: PaymentState::RefundDue(cause), repeated: true };
        assert_eq!(scene.pay(&notice).await, again, "{id}");
    }
    let causes: Vec<_> =
        scene.store().refunds_due(10).await.unwrap().into_iter().map(|due| due.cause).collect();
    assert_eq!(causes.len(), 4, "{causes:?}");
    assert_eq!(scene.count("SELECT COUNT(*) FROM orders WHERE state = 3").await, 1);
}

#[tokio::test]
async fn rule_14_an_unpaid_order_is_closed_once_and_its_units_are_for_sale_with_its_state() {
    let mut scene = Scene::new().await;
    let ((payer, paid), (unpaid, order)) = (scene.buy(3, 0).await, scene.buy(3, 1).await);
    // What the event tells of the SKU must keep what was moved.
    let moved = scene.process.move_out(shard(3), sku(2), shard(4), 1).await;
    let moved_one = scene.process.move_out(shard(5), sku(1), shard(3), 1).await;
    let before = scene
        .process
        .bring_in(shard(3), vec![rushgate::stock::calls::BringIn { sku: sku(1), source: shard(5), out: 1 }]);
    let before = before.await;
    assert_eq!((moved.answers.len(), moved_one.answers.len()), (0, 0));
    assert_eq!(scene.overdue().await, [], "there is time yet");
    scene.pay(&payment("p-1", paid, PRICE)).await;
    scene.wait(20 * 60_000).await;
    assert_eq!(scene.overdue().await, [order]);
    assert_eq!(scene.overdue().await, [], "it has its next turn later");
    let closed = scene.store().close_overdue(&[paid, order, OrderNumber(99)]).await.unwrap();
    let (closed, lag_ms) = closed;
    assert_eq!((closed.closed, closed.left_open.len()), (1, 0), "the paid one stands");
    assert!(lag_ms.is_some_and(|lag_ms| lag_ms >= 300_000), "{lag_ms:?}");
    let event = scene.last_event(3).await;
    assert!(matches!(&event.change, Change::Marked(marks) if marks[0].1.state == OrderState::Closed));
    let (was, is) = (&before.counters[0], &event.counters[0]);
    assert_eq!((is.free, &is.out, &is.brought_in), (was.free + 1, &was.out, &was.brought_in));
    assert_eq!(scene.installation.figures(sku(1)).await.sold, 1);
    scene.installation.figures(sku(1)).await.assert_conserved();
    for again in [vec![order], vec![order, order]] {
        assert_eq!(scene.store().close_overdue(&again).await.unwrap().0.closed, 0);
    }
    scene.installation.figures(sku(1)).await.assert_conserved();
    assert_eq!(scene.count("SELECT SUM(quantity) FROM ledger").await, 1);
    assert_eq!(scene.count("SELECT COUNT(*) FROM order_history WHERE state = 4 AND cause = 2").await, 1);
    // Money that comes after all is never silent.
    assert_eq!(scene.pay(&payment("p-2", order, PRICE)).await, refund(RefundCause::OrderClosed));
    assert_eq!(
        (scene.state(payer).await, scene.state(unpaid).await),
        (OrderState::Paid, OrderState::RefundDue)
    );
    scene.installation.figures(sku(1)).await.assert_conserved();
}

#[tokio::test]
async fn rule_18_a_payment_waits_for_its_order_which_is_not_closed_meanwhile() {
    let mut scene = Scene::new().await;
    let user = user_of(shard(3), 0);
    let item = scene.process.item(user, sku(1), 1);
    let never = scene.process.order();
    for (id, order) in [("p-1", item.order), ("p-2", never)] {
        assert_eq!(scene.pay(&payment(id, order, PRICE)).await, kept(PaymentState::Parked));
    }
    let hour = Duration::from_secs(3600);
    let judge = async |scene: &Scene, park_for| {
        scene.store().judge_parked(park_for, &ParkedPlace::default(), 10).await.unwrap().unparked
    };
    assert_eq!(judge(&scene, hour).await, []);
    let call = scene.process.reserve(shard(3), vec![item]);
    scene.process.done(&call).await;
    scene.wait(20 * 60_000).await;
    assert_eq!(scene.store().close_overdue(&[item.order]).await.unwrap().0.closed, 0, "it is being paid");
    let found = judge(&scene, hour).await;
    assert_eq!(
        found.iter().map(|one| (one.payment.order, one.state)).collect::<Vec<_>>(),
        [(item.order, PaymentState::Applied)]
    );
    assert_eq!(scene.state(user).await, OrderState::Paid);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let given_up = judge(&scene, Duration::ZERO).await;
    assert_eq!(given_up[0].state, PaymentState::RefundDue(RefundCause::NeverSettled));
    assert_eq!(judge(&scene, Duration::ZERO).await, []);
}

#[tokio::test]
async fn a_start_anew_knows_what_was_paid_and_closed_and_gives_nothing_back_twice() {
    let mut scene = Scene::new().await;
    let ((payer, paid), (_, order), (late, left)) =
        (scene.buy(3, 0).await, scene.buy(3, 1).await, scene.buy(9, 0).await);
    scene.pay(&payment("p-1", paid, PRICE)).await;
    scene.wait(20 * 60_000).await;
    assert_eq!(scene.overdue().await.len(), 2);
    assert_eq!(scene.store().close_overdue(&[order]).await.unwrap().0.closed, 1);
    // It ends before the other is closed, of which the payment centre had said so.
    scene.installation.reopen().await;
    scene.process = Process::start(scene.installation.store()).await;
    assert_eq!(
        (scene.state(payer).await, scene.state(late).await),
        (OrderState::Paid, OrderState::PendingPayment)
    );
    assert_eq!(scene.store().close_overdue(&[order, left]).await.unwrap().0.closed, 1);
    assert_eq!(scene.last_event(9).await.generation, Gen(scene.store().generation().0));
    assert_eq!(scene.count("SELECT COUNT(*) FROM ledger").await, 2);
    scene.installation.figures(sku(1)).await.assert_conserved();
    // Nobody buys again whose order was closed; others do.
    assert_eq!(scene.installation.figures(sku(1)).await.free, 31);
}
