//! A host that vanishes, as in a power cut: nothing more comes from it, not even the end of its connections. And a
//! database that does not answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use rushgate::protocol::{ActivityId, OrderNumber, UserId};
use rushgate::stock::calls::{Call, CallBody, Gen, ProcessNumber, SHARDS, ShardId};
use rushgate::store::catalog::Catalogue;
use rushgate::store::sql::mysql::{MySqlInstallation, MySqlOptions, MySqlStore, Settlement};
use rushgate::store::{ReservationStore, StoreError};
use rushgate_servers::{Direction, FaultyLink};

use crate::fixture::{ACTIVITY, Scene, options, reservation, sku};
use crate::proxy::{Cut, Proxy};

/// Between two looks.
const POLL: Duration = Duration::from_millis(50);

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < deadline, "in vain for 60 s: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// A process on a host that can vanish.
struct Far {
    link: FaultyLink,
    sql: MySqlInstallation,
}

impl Far {
    async fn new(scene: &Scene) -> Self {
        let link =
            FaultyLink::start(SocketAddr::from((Ipv4Addr::LOCALHOST, scene.database.port))).await.unwrap();
        let options = MySqlOptions {
            host: "127.0.0.1".to_owned(),
            port: link.port(),
            call_timeout: Duration::from_secs(2),
            session_idle_max: Duration::from_secs(2),
            ..options(&scene.database)
        };
        Self { sql: MySqlInstallation::open(options).await.unwrap(), link }
    }

    fn vanish(&self) {
        self.link.swallow(Direction::ToServer, true);
        self.link.swallow(Direction::ToClient, true);
    }
}

#[tokio::test]
async fn rule_11_a_leader_whose_host_vanishes_does_not_lead_for_ever() {
    let scene = Scene::new().await;
    let far = Far::new(&scene).await;
    let mut leader = far.sql.try_lead().await.unwrap().unwrap();
    assert!(leader.is_held().await.unwrap());
    assert!(scene.sql.try_lead().await.unwrap().is_none());
    far.vanish();
    let mut next = None;
    until("another one leads", async || {
        next = scene.sql.try_lead().await.unwrap();
        next.is_some()
    })
    .await;
    assert!(!leader.is_held().await.unwrap_or(false), "the old one knows");
    leader.raise_generation(&[true; SHARDS]).await.unwrap_err();
    assert_eq!(next.unwrap().raise_generation(&[true; SHARDS]).await.unwrap(), Gen(1));
}

#[tokio::test]
async fn rule_11_a_leader_that_is_busy_elsewhere_goes_on_leading() {
    let scene = Scene::new().await;
    let mut leader = scene.sql.try_lead().await.unwrap().unwrap();
    let began = Instant::now();
    // Longer than the server keeps a leader of whom it hears nothing.
    while began.elapsed() < Duration::from_secs(12) {
        assert!(scene.sql.try_lead().await.unwrap().is_none());
        tokio::time::sleep(POLL).await;
    }
    assert!(leader.is_held().await.unwrap());
    assert_eq!(leader.raise_generation(&[true; SHARDS]).await.unwrap(), Gen(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_a_writer_whose_host_vanishes_within_its_transaction_holds_nothing_up_for_ever() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let far = Far::new(&scene).await;
    let mut beside = scene.connect().await;
    sqlx::raw_sql("BEGIN; UPDATE sku_stock SET version = version + 1").execute(&mut beside).await.unwrap();
    let batch = [reservation(1, 1001)];
    let sql = far.sql.clone();
    let settling = tokio::spawn(async move { sql.settle(Gen(0), &batch).await });
    let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() \
                   AND INFO LIKE 'INSERT INTO sku_stock%'";
    until("the settlement waits for the stock row", async || scene.count(waiting).await > 0).await;
    far.vanish();
    // The server does what it was told, and would wait for more with all its locks.
    sqlx::raw_sql("COMMIT").execute(&mut beside).await.unwrap();
    let error = settling.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let mut leader = scene.sql.try_lead().await.unwrap().unwrap();
    let settled = scene.settle(&batch).await;
    assert!(matches!(settled[0], Settlement::Settled(_)), "{settled:?}");
    assert_eq!(scene.stock(1).await, (99, 1));
    assert_eq!(leader.raise_generation(&[true; SHARDS]).await.unwrap(), Gen(1));
}

#[tokio::test]
async fn connections_that_nobody_uses_are_closed_and_nobody_sees_an_error() {
    let scene = Scene::new().await;
    let short = MySqlOptions { session_idle_max: Duration::from_secs(1), ..options(&scene.database) };
    let sql = MySqlInstallation::open(short).await.unwrap();
    scene.sql.close().await;
    for _ in 0..3 {
        let all = tokio::join!(sql.version(), sql.generation(), sql.live_gateways(), sql.activities());
        assert!(matches!(all, (Ok(_), Ok(_), Ok(_), Ok(_))), "{all:?}");
        let query = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = '{}'",
            scene.database.name
        );
        let server = crate::fixture::server().await;
        until("all are closed", async || server.sql(&query).await.unwrap().trim() == "0").await;
    }
}

/// Ends, and says that it does not know.
async fn unanswered<T: std::fmt::Debug>(what: &str, asking: impl Future<Output = Result<T, StoreError>>) {
    let answer = tokio::time::timeout(Duration::from_secs(20), asking).await;
    let answer = answer.unwrap_or_else(|_| panic!("{what} is waited for for ever"));
    let error = answer.expect_err(what).to_string();
    assert!(error.contains("did not answer within 1s"), "{what}: {error}");
}

/// What is read or written below waits for the one who said this.
const LOCK_TABLES: &str = "LOCK TABLES installation WRITE, catalog WRITE, processes WRITE, activities WRITE, \
    loads WRITE, load_shards WRITE, orders WRITE, ledger WRITE, outbox WRITE, dead_letters WRITE, recoveries WRITE, \
    hand_ins WRITE, hand_in_marks WRITE, sql_shards WRITE, sql_loads WRITE";

#[tokio::test]
async fn what_the_database_does_not_answer_is_waited_for_a_bounded_time() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let impatient = MySqlOptions {
        connections_max: 40,
        call_timeout: Duration::from_secs(1),
        ..options(&scene.database)
    };
    let sql = MySqlInstallation::open(impatient).await.unwrap();
    let mut beside = scene.connect().await;
    sqlx::raw_sql(LOCK_TABLES).execute(&mut beside).await.unwrap();
    let (process, batch) = (ProcessNumber(1), [reservation(1, 1001)]);
    let (silent, mark) = ([process], batch[0].mark);
    let of_redis = async {
        tokio::join!(
            unanswered("version", sql.version()),
            unanswered("activities", sql.activities()),
            unanswered("activity_states", sql.activity_states()),
            unanswered("ended", sql.ended()),
            unanswered("generation", sql.generation()),
            unanswered("renew", sql.renew(process)),
            unanswered("live_gateways", sql.live_gateways()),
            unanswered("silent_processes", sql.silent_processes(1, None, 9)),
            unanswered("forget_processes", sql.forget_processes(&silent)),
            unanswered("forget_recoveries", sql.forget_recoveries()),
            unanswered("hand_in", sql.hand_in(process, Gen(1), &[])),
            unanswered("hand_ins", sql.hand_ins(Gen(1))),
            unanswered("handed_in", sql.handed_in(Gen(1), process)),
            unanswered("read_for_recovery", sql.read_for_recovery(&ShardId::ALL)),
        )
    };
    let of_orders = async {
        tokio::join!(
            unanswered("settle", sql.settle(Gen(0), &batch)),
            unanswered("fail", sql.fail(UserId(1), &mark, "refused")),
            unanswered("close_order", sql.close_order(OrderNumber(1001), "unpaid")),
            unanswered("orders", sql.orders(ACTIVITY, UserId(0), 9)),
            unanswered("order_of", sql.order_of(UserId(1), ACTIVITY)),
            unanswered("due_loads", sql.due_loads(9)),
            unanswered("settled_load", sql.settled_load("7/1/add/1", None)),
            unanswered("due_preheats", sql.due_preheats(9)),
            unanswered("due_releases", sql.due_releases(0, 9)),
            unanswered("due_marks", sql.due_marks(0, 9)),
            unanswered("dead_letters", sql.dead_letters(0, 9)),
            unanswered("archive", sql.archive_activity(ActivityId(7))),
        )
    };
    let store = MySqlStore::new(sql.clone());
    let call = Call {
        process,
        generation: Gen(0),
        shard: ShardId::ALL[0],
        number: 1,
        body: CallBody::MoveOut { sku: sku(1), target: ShardId::ALL[1], want: 1 },
    };
    let positions = [(Gen(0), 0); SHARDS];
    let of_sql_shards = async {
        tokio::join!(
            unanswered("call", store.call(&call)),
            unanswered("snapshot", store.snapshot(ShardId::ALL[0])),
            unanswered("read_feeds", store.read_feeds(&positions, Duration::from_secs(3600))),
            unanswered("applied_load", store.applied_load(1, None)),
            unanswered("drive_loads", store.drive_loads()),
        )
    };
    tokio::join!(of_redis, of_orders, of_sql_shards);
}

#[tokio::test]
async fn a_lock_that_is_never_answered_is_waited_for_a_bounded_time() {
    let scene = Scene::new().await;
    let proxy = Proxy::start(scene.database.port).await;
    let through =
        MySqlOptions { port: proxy.port, call_timeout: Duration::from_secs(1), ..options(&scene.database) };
    let sql = MySqlInstallation::open(through).await.unwrap();
    proxy.cut_at(Cut::Silence, "rg.leader.");
    unanswered("the lead", sql.try_lead()).await;
    assert!(proxy.has_cut());
}
