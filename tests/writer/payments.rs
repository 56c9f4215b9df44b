//! Paid, or not paid in time: writers against a payment centre that works, badly or not at all.

use std::path::PathBuf;
use std::time::Duration;

use rushgate::payment::http::{Target, post, post_signed};
use rushgate::payment::{Keys, Payment, PaymentId, notice_body};
use rushgate::protocol::{OrderNumber, OrderState, SkuId, SkuKey, UserId};
use rushgate::rehearsal::{PayCentre, PayFaults};
use rushgate::stock::calls::{Item, ShardId};
use rushgate::store::crash_point;
use rushgate_servers::ReservedPort;
use tokio::net::TcpListener;

use super::child::WriterProcess;
use super::house::{SKU, World, eventually, shared_mariadb};

/// What one unit costs.
pub(crate) const PRICE: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(10);
const KEY: &str = "a key that is long enough for this test";

/// One installation's side of the payments.
pub(crate) struct Payments {
    pub(crate) key_file: PathBuf,
    pub(crate) keys: Keys,
}

impl Payments {
    pub(crate) fn of(world: &World) -> Self {
        let key_file = world.dir.path().join("payment.key");
        std::fs::write(&key_file, KEY).unwrap();
        let keys = Keys::read(&key_file, None).unwrap();
        Self { key_file, keys }
    }

    /// For a writer's configuration.
    pub(crate) fn config(&self, centre: &str) -> String {
        format!(
            "[payment]\nkey_file = \"{}\"\ncentre_url = \"{centre}\"\nask_timeout = \"500ms\"\nretry_max = \"1s\"\n\
             alarm_after = \"1s\"\nask_orders_max = 20\n",
            self.key_file.display()
        )
    }

    pub(crate) async fn centre(&self, faults: PayFaults, writers: &[&WriterProcess]) -> PayCentre {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let writers = writers.iter().map(|writer| writer.url().parse().unwrap()).collect();
        PayCentre::start(listener, self.keys.clone(), writers, faults).unwrap()
    }

    /// Status and answer.
    pub(crate) async fn tell(&self, writer: &WriterProcess, at_ms: u64, body: String) -> (u16, String) {
        let target: Target = writer.url().parse().unwrap();
        let (status, answer) = post(&target, "/payments", &self.keys, at_ms, body, PATIENCE).await.unwrap();
        (status, String::from_utf8(answer.to_vec()).unwrap())
    }
}

pub(crate) fn notice(id: &str, order: OrderNumber, amount_minor: u64) -> String {
    let id = PaymentId::new(id).unwrap();
    notice_body(&Payment { id, order, amount_minor, paid_at_ms: 1 })
}

/// A buyer goes to the payment centre; what he is told.
async fn buyer_pays(centre: &PayCentre, keys: &Keys, order: OrderNumber) -> u16 {
    let target: Target = format!("http://{}", centre.address()).parse().unwrap();
    let body = format!("{{\"order\":\"{order}\",\"amount_minor\":{PRICE}}}");
    post(&target, "/pay", keys, 1, body, PATIENCE).await.unwrap().0
}

impl WriterProcess {
    fn url(&self) -> String {
        format!("http://{}", self.admin())
    }
}

impl World {
    /// The pay-by of every order is over.
    pub(crate) async fn time_out(&self) {
        let sql = format!("UPDATE {}.orders SET pay_by_ms = pay_by_ms - 1000000", self.database.name);
        shared_mariadb().await.sql(&sql).await.unwrap();
    }

    async fn time_out_of(&self, order: OrderNumber) {
        let sql = "UPDATE {}.orders SET pay_by_ms = pay_by_ms - 1000000 WHERE number = ";
        let sql = format!("{}{order}", sql.replace("{}", &self.database.name));
        shared_mariadb().await.sql(&sql).await.unwrap();
    }

    pub(crate) async fn now_ms(&self) -> u64 {
        self.redis.time().await.unwrap().as_millis() as u64
    }

    /// How many orders stand so.
    pub(crate) async fn in_state(&self, state: OrderState) -> usize {
        self.order_rows().await.iter().filter(|(_, mark)| mark.state == state).count()
    }

    /// Every order is over, and Redis has each as SQL has it; units are sold for those that are paid alone.
    pub(crate) async fn all_is_over(&self, stock: u64) {
        eventually("nothing is owed to Redis", || async {
            self.sql.due_releases(0, 1).await.unwrap().is_empty()
                && self.sql.due_marks(0, 1).await.unwrap().is_empty()
        })
        .await;
        let marks = self.marks().await;
        let rows = self.order_rows().await;
        for (user, row) in &rows {
            assert_eq!(marks[user].state, row.state, "order {} of user {user}", row.order);
            assert_ne!(row.state, OrderState::PendingPayment);
        }
        let paid = rows.iter().filter(|(_, mark)| mark.state == OrderState::Paid).count() as u64;
        let (_, figures) = self.sql.figures(super::house::ACTIVITY).await.unwrap();
        assert_eq!((figures[&SKU.sku].sold, figures[&SKU.sku].free), (paid, stock - paid), "stock in SQL");
        assert_eq!(self.free().await, stock - paid, "stock in Redis");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_14_what_is_paid_stays_and_what_is_not_paid_in_time_is_for_sale_again() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=60).await;
    let payments = Payments::of(&world);
    // The centre has to know its writers, and they it: its port is taken first.
    let port = ReservedPort::reserve().unwrap();
    let writer =
        WriterProcess::working(&world, &payments.config(&format!("http://127.0.0.1:{}", port.number())));
    world.drained().await;
    let listener = TcpListener::bind(("127.0.0.1", port.number())).await.unwrap();
    let writers = vec![writer.url().parse().unwrap()];
    let centre = PayCentre::start(listener, payments.keys.clone(), writers, PayFaults::default()).unwrap();
    let rows = world.order_rows().await;
    for (_, mark) in &rows[..20] {
        assert_eq!(buyer_pays(&centre, &payments.keys, mark.order).await, 200);
    }
    eventually("they are paid", || async { world.in_state(OrderState::Paid).await == 20 }).await;
    world.time_out().await;
    eventually("the others are closed", || async { world.in_state(OrderState::Closed).await == 40 }).await;
    world.all_is_over(1000).await;
    assert_eq!(buyer_pays(&centre, &payments.keys, rows[30].1.order).await, 409);
    assert_eq!((writer.count("timed_out"), writer.count("notices_paid")), (40, 20));
    eventually("its lag is told", || async { writer.metric("rushgate_restock_lag_ms") >= 100_000 }).await;
    eventually("none waits", || async { writer.metric("rushgate_overdue_wait_ms") == 0 }).await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_writers_and_a_bad_payment_centre_lose_neither_units_nor_money() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=200).await;
    let payments = Payments::of(&world);
    let port = ReservedPort::reserve().unwrap();
    let config = payments.config(&format!("http://127.0.0.1:{}", port.number()));
    let writers: Vec<_> = (0..3).map(|_| WriterProcess::working(&world, &config)).collect();
    world.drained().await;
    let faults = PayFaults {
        answer_delay_max: Duration::from_millis(100),
        notice_delay_max: Duration::from_millis(500),
        error_rate: 0.5,
        unknown_rate: 0.3,
        late_rate: 0.3,
        repeat_rate: 0.5,
        forge_rate: 0.5,
        ..PayFaults::default()
    };
    let listener = TcpListener::bind(("127.0.0.1", port.number())).await.unwrap();
    let urls = writers.iter().map(|writer| writer.url().parse().unwrap()).collect();
    let centre = PayCentre::start(listener, payments.keys.clone(), urls, faults).unwrap();
    world.time_out().await;
    // Some pay while they are being closed: who is told so has paid.
    let mut taken = 0_usize;
    for (nth, (_, mark)) in world.order_rows().await.iter().enumerate() {
        if nth % 2 == 0 && buyer_pays(&centre, &payments.keys, mark.order).await == 200 {
            taken += 1;
        }
    }
    eventually("none waits for its payment", || async {
        world.in_state(OrderState::PendingPayment).await == 0
    })
    .await;
    let late = || centre.stats()["paid_late"].as_u64().unwrap() as usize;
    // Whether it came before the close here or after it: of an amount that is no price, so that it never pays.
    eventually("late money is seen", || async { world.sql.refunds_due(1000).await.unwrap().len() == late() })
        .await;
    assert!(world.in_state(OrderState::RefundDue).await <= late());
    assert_eq!(world.in_state(OrderState::Paid).await, taken);
    world.all_is_over(1000).await;
    let stats = centre.stats();
    assert_eq!(stats["unexpected"], 0, "{stats}");
    assert!(late() > 5 && stats["forged_refused"].as_u64() > Some(0), "{stats}");
    // How many questions there are is the writers' affair: a dozen may all go well.
    assert!(stats["told_again"].as_u64() > Some(0), "{stats}");
    let sum = |name: &str| writers.iter().map(|writer| writer.count(name)).sum::<u64>();
    assert!(sum("notices_repeated") > 0 && sum("notices_forged") > 0 && sum("asked_unknown") > 0);
    assert_eq!(sum("timed_out") as usize, 200 - taken);
    for writer in writers {
        writer.stopped();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_centre_that_is_down_closes_nothing_and_somebody_is_called() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=30).await;
    let payments = Payments::of(&world);
    let port = ReservedPort::reserve().unwrap();
    let writer =
        WriterProcess::working(&world, &payments.config(&format!("http://127.0.0.1:{}", port.number())));
    world.drained().await;
    world.time_out().await;
    eventually("it was asked in vain", || async { writer.count("asks_failed") >= 3 }).await;
    eventually("somebody is called", || async { writer.log().contains("its units are held") }).await;
    // By the first of the tasks that ask; the others know.
    assert_eq!(writer.log().matches("the payment centre cannot be asked").count(), 1, "{}", writer.log());
    assert!(writer.metric("rushgate_overdue_unknown_ms") >= 100_000);
    assert_eq!((world.in_state(OrderState::PendingPayment).await, world.free().await), (30, 970));
    let listener = TcpListener::bind(("127.0.0.1", port.number())).await.unwrap();
    let centre = PayCentre::start(listener, payments.keys.clone(), Vec::new(), PayFaults::default()).unwrap();
    eventually("all are closed", || async { world.in_state(OrderState::Closed).await == 30 }).await;
    world.all_is_over(1000).await;
    assert_eq!(centre.stats()["orders_closed"], 30);
    eventually("the end of the silence is told", || async {
        writer.log().contains("the payment centre answers again")
    })
    .await;
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_paid_there_and_not_here_or_cannot_be_closed_is_told_once_and_holds_up_no_other() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=3).await;
    let (number, user, sku) = (world.next_order(), UserId(4), SkuKey { sku: SkuId(2), ..SKU });
    let bad = Item { user, sku, order: number, quantity: 1, attempt: 1, promised: false };
    world.reserve_items(ShardId::of(user), vec![bad]).await;
    let payments = Payments::of(&world);
    let port = ReservedPort::reserve().unwrap();
    let writer =
        WriterProcess::working(&world, &payments.config(&format!("http://127.0.0.1:{}", port.number())));
    world.drained().await;
    let listener = TcpListener::bind(("127.0.0.1", port.number())).await.unwrap();
    let centre = PayCentre::start(listener, payments.keys.clone(), Vec::new(), PayFaults::default()).unwrap();
    let rows = world.order_rows().await;
    let less = rows.iter().find(|(user, _)| *user == UserId(1)).unwrap().1.order;
    let target: Target = format!("http://{}", centre.address()).parse().unwrap();
    let body = format!("{{\"order\":\"{less}\",\"amount_minor\":{}}}", PRICE - 1);
    assert_eq!(post(&target, "/pay", &payments.keys, 1, body, PATIENCE).await.unwrap().0, 200);
    let table = format!("{}.sku_stock", world.database.name);
    let lost = format!("SET FOREIGN_KEY_CHECKS = 0; DELETE FROM {table} WHERE sku = 2");
    shared_mariadb().await.sql(&lost).await.unwrap();
    world.time_out().await;
    eventually("the others are closed", || async { world.in_state(OrderState::Closed).await == 2 }).await;
    eventually("both were met again", || async {
        writer.count("asked_paid_unmatched") >= 2 && writer.count("closes_refused") >= 2
    })
    .await;
    assert_eq!(world.in_state(OrderState::PendingPayment).await, 2);
    let log = writer.log();
    for (says, of) in [
        ("that payment does not pay it here", format!("user=1 order={less}")),
        ("cannot be closed; its units are held", format!("sku=2 user=4 order={number}")),
    ] {
        let lines: Vec<_> = log.lines().filter(|line| line.contains(says)).collect();
        assert!(lines.len() == 1 && lines[0].contains(&of), "{says} {of}: {lines:?}");
    }
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_notice_has_its_answer_and_its_count() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=2).await;
    let payments = Payments::of(&world);
    let writer = WriterProcess::working(&world, &payments.config(""));
    world.drained().await;
    let rows = world.order_rows().await;
    let (one, other) = (rows[0].1.order, rows[1].1.order);
    let now_ms = world.now_ms().await;
    let next = world.next_order();
    assert_eq!(
        world.sql.close_order(other, "cancelled").await.unwrap(),
        rushgate::store::sql::mysql::CloseOutcome::Closed
    );
    for (body, status, says, counted) in [
        (notice("p-1", one, PRICE - 1), 200, "wrong_amount", "notices_wrong_amount"),
        (notice("p-2", one, PRICE), 200, "\"result\":\"paid\"", "notices_paid"),
        (notice("p-2", one, PRICE), 200, "\"repeated\":true", "notices_repeated"),
        (notice("p-2", one, PRICE + 1), 409, "another", "notices_conflicting"),
        (notice("p-3", one, PRICE), 200, "paid_twice", "notices_refund_due"),
        (notice("p-4", other, PRICE), 200, "order_closed", "notices_refund_due"),
        (notice("p-5", next, PRICE), 202, "\"result\":\"parked\"", "notices_parked"),
        (notice("p-6", OrderNumber(7), PRICE), 200, "no_such_order", "notices_unknown_order"),
        (notice("p-7", next, PRICE), 202, "\"result\":\"parked\"", "notices_parked"),
        ("{\"payment\":1}".to_owned(), 400, "invalid type", "notices_malformed"),
    ] {
        let before = writer.count(counted);
        let (got, answer) = payments.tell(&writer, now_ms, body.clone()).await;
        let expected = answer.replace("another payment", "another").replace("another order", "another");
        assert!(got == status && expected.contains(says), "{body}: {got} {answer}");
        assert_eq!(writer.count(counted), before + 1, "{counted}");
    }
    // The parked one pays its order when it comes.
    world
        .reserve_items(
            ShardId::of(UserId(9)),
            vec![Item { user: UserId(9), sku: SKU, order: next, quantity: 1, attempt: 1, promised: false }],
        )
        .await;
    world.drained().await;
    world.all_is_over(1000).await;
    let (status, answer) = payments.tell(&writer, now_ms, notice("p-5", next, PRICE)).await;
    assert!(status == 200 && answer.contains("\"result\":\"paid\""), "{answer}");
    // Whoever finds money that is to be given back tells it, and it is counted by the database.
    eventually("the second one is told", || async {
        writer
            .log()
            .contains("money is to be given back: it came before its order was settled payment=\"p-7\"")
    })
    .await;
    eventually("all are counted", || async { writer.metric("rushgate_refunds_due") == 5 }).await;
    forged_stale_and_long(&world, &payments, &writer, one).await;
    writer.stopped();
}

async fn forged_stale_and_long(world: &World, payments: &Payments, writer: &WriterProcess, one: OrderNumber) {
    let (now_ms, target) = (world.now_ms().await, writer.url().parse::<Target>().unwrap());
    let body = notice("p-9", one, PRICE);
    let wrong = payments.keys.sign(now_ms, b"another body");
    for (at_ms, signature) in
        [(now_ms, wrong.as_str()), (now_ms + 1, &payments.keys.sign(now_ms, body.as_bytes())), (now_ms, "")]
    {
        let forged =
            post_signed(&target, "/payments", (at_ms, signature), body.clone(), PATIENCE).await.unwrap();
        assert_eq!(forged.0, 401);
    }
    assert_eq!(writer.count("notices_forged"), 3);
    for at_ms in [now_ms - 400_000, now_ms + 400_000] {
        let (status, answer) = payments.tell(writer, at_ms, body.clone()).await;
        assert!(status == 503 && answer.contains("now_ms"), "{answer}");
    }
    assert_eq!(writer.count("notices_stale"), 2);
    // Each is repeated until it goes well: the log is not.
    for _ in 0..10 {
        assert_eq!(payments.tell(writer, now_ms - 400_000, body.clone()).await.0, 503);
    }
    assert!(writer.log().matches("signed too long ago").count() <= 3, "{}", writer.log());
    let table = format!("{}.payments", world.database.name);
    let database = shared_mariadb().await;
    database.sql(&format!("RENAME TABLE {table} TO {table}_away")).await.unwrap();
    for nth in 0..20 {
        let body = notice(&format!("p-9-{nth}"), one, PRICE);
        assert_eq!(payments.tell(writer, now_ms, body).await.0, 503);
    }
    database.sql(&format!("RENAME TABLE {table}_away TO {table}")).await.unwrap();
    assert_eq!(payments.tell(writer, now_ms, notice("p-9", one, PRICE)).await.0, 200);
    eventually("its end is told", || async { writer.log().contains("payments are kept again") }).await;
    let lines = writer.log().lines().filter(|line| line.contains("not kept yet")).count();
    assert!(lines <= 3, "{}", writer.log());
    assert_eq!(payments.tell(writer, now_ms, "x".repeat(5000)).await.0, 413);
    assert_eq!(writer.http("/payments").0, 405);
    // Nobody to check signatures with, nobody to take notices.
    let without = WriterProcess::working(world, "");
    assert_eq!(payments.tell(&without, now_ms, body).await.0, 503);
    without.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_14_a_crash_at_a_payment_or_a_close_leaves_one_outcome() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=40).await;
    let payments = Payments::of(&world);
    WriterProcess::working(&world, "").settled_by(&world).await;
    let rows = world.order_rows().await;
    let now_ms = world.now_ms().await;
    let [before, after, when_parked, when_overdue @ .., paid_answer, cancel_closed, cancels] =
        crash_point::OF_PAYMENTS;
    for (nth, point) in [before, after].into_iter().enumerate() {
        let mut writer = WriterProcess::start(&world, &payments.config(""), Some(point)).works();
        let target: Target = writer.url().parse().unwrap();
        let body = notice(&format!("p-{nth}"), rows[nth].1.order, PRICE);
        assert!(post(&target, "/payments", &payments.keys, now_ms, body, PATIENCE).await.is_err());
        writer.crashed();
    }
    let mut parked = WriterProcess::start(&world, &payments.config(""), Some(when_parked));
    parked.crashed();
    let centre = payments.centre(PayFaults::default(), &[]).await;
    let config = payments.config(&format!("http://{}", centre.address()));
    // Paid there, and no notice comes of it: that is heard when the order is overdue.
    assert_eq!(buyer_pays(&centre, &payments.keys, rows[2].1.order).await, 200);
    world.time_out_of(rows[2].1.order).await;
    WriterProcess::start(&world, &config, Some(paid_answer)).crashed();
    world.sql.keep_cancel(rows[3].0, rows[3].1.order).await.unwrap();
    for point in [cancel_closed, cancels] {
        WriterProcess::start(&world, &payments.config(""), Some(point)).crashed();
    }
    world.time_out().await;
    for point in when_overdue {
        WriterProcess::start(&world, &config, Some(point)).crashed();
    }
    let writer = WriterProcess::working(&world, &config);
    eventually("none waits", || async { world.in_state(OrderState::PendingPayment).await == 0 }).await;
    // The notices that nobody answered are told again.
    for (nth, (_, mark)) in rows[..2].iter().enumerate() {
        let body = notice(&format!("p-{nth}"), mark.order, PRICE);
        let (status, answer) = payments.tell(&writer, now_ms, body).await;
        assert!(status == 200, "{answer}");
    }
    assert_eq!(
        world.in_state(OrderState::Paid).await,
        2,
        "the one that was committed, the one that was answered"
    );
    assert_eq!(world.in_state(OrderState::RefundDue).await, 1, "the other came after the close");
    world.all_is_over(1000).await;
    writer.stopped();
}
