//! What is particular to the embedded store: its folder, its file, and failing transactions.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use rushgate::protocol::{OrderNumber, SkuId};
use rushgate::stock::calls::{CallBody, ItemAnswer, Reply, SHARDS, ShardId};
use rushgate::store::catalog::Catalogue;
use rushgate::store::sql::{OpenError, OpenOptions, SqliteStore};
use rushgate::store::{FeedRead, ReservationStore, StoreError};
use sqlx::Connection;

use crate::installation::{ACTIVITY, Installation, Process, shard, sku, user_of, users_of};
use crate::sqlite::{SqliteInstallation, connect, figures, new_activity, options, orders};

async fn with_stock(units: u32) -> (SqliteInstallation, Process<SqliteStore>) {
    let installation = SqliteInstallation::create().await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), units)]).await;
    let process = Process::start(installation.store()).await;
    (installation, process)
}

#[tokio::test]
async fn a_folder_is_served_by_one_process() {
    let installation = SqliteInstallation::create().await;
    let folder = installation.folder();
    let error = SqliteStore::open(&options(&folder)).await.unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(folder.to_str().unwrap()) && text.contains("stop that one"), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    installation.store().close().await;
    let store = SqliteStore::open(&options(&folder)).await.unwrap();
    assert_eq!(store.generation().0, 2, "the refused opening raised nothing");
}

#[tokio::test]
async fn a_closed_store_is_unavailable() {
    let (installation, mut process) = with_stock(16).await;
    installation.store().close().await;
    installation.store().close().await;
    let call = process.call(shard(0), CallBody::MoveOut { sku: sku(1), target: shard(1), want: 1 });
    assert!(matches!(process.store.call(&call).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(process.store.snapshot(shard(0)).await, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let installation = SqliteInstallation::create().await;
    installation.store().close().await;
    let folder = installation.folder();
    let mut connection = connect(&folder).await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'from the future', 1, x'00', 0)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    let error = SqliteStore::open(&options(&folder)).await.unwrap_err();
    assert!(matches!(error, OpenError::Newer { .. }), "{error}");
    assert!(error.to_string().contains("newer rushgate"), "{error}");
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = SqliteStore::open(&options(&path)).await.unwrap_err();
        assert!(matches!(error, OpenError::Folder { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rushgate.db"), "not a database at all, ".repeat(100)).unwrap();
    let error = SqliteStore::open(&options(folder.path())).await.unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn the_database_is_as_durable_as_it_says() {
    let installation = SqliteInstallation::create().await;
    let mut connection = connect(&installation.folder()).await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await.unwrap();
    assert_eq!(mode, "wal");
    let strict: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM pragma_table_list WHERE strict = 0 AND type = 'table' \
             AND name NOT LIKE '\\_sqlx%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(strict, 0, "every table is STRICT");
}

#[tokio::test]
async fn a_dropped_future_is_executed_all_the_same() {
    let (installation, mut process) = with_stock(160).await;
    let item = process.item(user_of(shard(7), 0), sku(1), 1);
    let call = process.reserve(shard(7), vec![item]);
    {
        let mut future = pin!(process.store.call(&call));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // Jobs are done in their order, so this one comes after it.
    installation.store().register().await.unwrap();
    assert_eq!(installation.orders(ACTIVITY).await.len(), 1);
}

#[tokio::test]
async fn a_transaction_that_fails_changes_nothing_and_can_be_repeated() {
    let (installation, mut process) = with_stock(160).await;
    let store = installation.store();
    let home = shard(3);
    let before = store.snapshot(home).await.unwrap();
    let items = (0..5).map(|nth| process.item(user_of(home, nth), sku(1), 1)).collect();
    let call = process.reserve(home, items);

    // The last statement of the transaction fails, as on a full disk.
    let mut connection = connect(&installation.folder()).await;
    sqlx::query("CREATE TRIGGER full BEFORE INSERT ON calls BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        .execute(&mut connection)
        .await
        .unwrap();
    for _ in 0..3 {
        let error = store.call(&call).await.unwrap_err();
        assert!(matches!(&error, StoreError::Unavailable(reason) if reason.contains("disk full")), "{error}");
    }
    assert_eq!(store.snapshot(home).await.unwrap(), before);
    let mut position = [(process.generation, u64::MAX - 1); SHARDS];
    position[home.index()].1 = before.seq;
    assert_eq!(store.read_feeds(&position, Duration::ZERO).await.unwrap(), []);
    assert!(installation.orders(ACTIVITY).await.is_empty());

    sqlx::query("DROP TRIGGER full").execute(&mut connection).await.unwrap();
    let done = process.done(&call).await;
    assert_eq!((done.answers, done.seq), (vec![ItemAnswer::Reserved; 5], before.seq + 1));
    assert_eq!(store.read_feeds(&position, Duration::ZERO).await.unwrap().len(), 1);
    installation.figures(sku(1)).await.assert_conserved();
}

/// The lines of a log, kept.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn many_failures_are_a_few_lines_of_the_log() {
    let log = Log::default();
    let kept = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || kept.clone()).finish();
    // For this thread, on which the writer task runs too.
    let _guard = tracing::subscriber::set_default(subscriber);
    let (installation, mut process) = with_stock(160).await;
    let mut connection = connect(&installation.folder()).await;
    sqlx::query("CREATE TRIGGER full BEFORE INSERT ON calls BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        .execute(&mut connection)
        .await
        .unwrap();
    let item = process.item(user_of(shard(3), 0), sku(1), 1);
    let call = process.reserve(shard(3), vec![item]);
    for _ in 0..20 {
        process.store.call(&call).await.unwrap_err();
    }
    sqlx::query("DROP TRIGGER full").execute(&mut connection).await.unwrap();
    for _ in 0..2 {
        process.done(&call).await;
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("disk full"), 1, "{text}");
    assert_eq!(count("the store recovered after 20 failures"), 1, "{text}");
}

/// What the disk holds after a commit that reached it and was reported as failed.
async fn raise_seq(installation: &SqliteInstallation, home: ShardId) {
    let mut connection = connect(&installation.folder()).await;
    sqlx::query("UPDATE shards SET seq = seq + 1 WHERE shard = ?")
        .bind(home.number())
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_commit_that_only_seemed_to_fail_is_a_gap_in_the_feed() {
    let (installation, mut process) = with_stock(160).await;
    let (store, home) = (installation.store(), shard(3));
    let item = process.item(user_of(home, 0), sku(1), 1);
    let call = process.reserve(home, vec![item]);
    let seq = process.done(&call).await.seq;
    let after = |seq| {
        let mut position = [(process.generation, u64::MAX - 1); SHARDS];
        position[home.index()].1 = seq;
        position
    };

    // Its caller repeats the call, whose reply is stored.
    raise_seq(&installation, home).await;
    process.done(&call).await;
    assert_eq!(store.read_feeds(&after(seq), Duration::ZERO).await.unwrap(), [(home, FeedRead::Gap)]);
    assert_eq!(store.snapshot(home).await.unwrap().seq, seq + 1);
    assert_eq!(store.read_feeds(&after(seq + 1), Duration::ZERO).await.unwrap(), []);

    // A load that was applied is not pending when the loads are driven again.
    raise_seq(&installation, home).await;
    assert_eq!(store.drive_loads().await.unwrap(), 0);
    assert_eq!(store.read_feeds(&after(seq + 1), Duration::ZERO).await.unwrap(), [(home, FeedRead::Gap)]);
}

#[tokio::test]
async fn what_a_transaction_left_is_read_again_once_anything_else_has_changed_it() {
    let (installation, mut process) = with_stock(160).await;
    let home = shard(3);
    let mut nth = 0..;
    let mut sell = async |left: u32| {
        let user = user_of(home, nth.next().unwrap());
        let item = process.item(user, sku(1), 1);
        let call = process.reserve(home, vec![item]);
        let done = process.done(&call).await;
        assert_eq!((done.answers, done.counters[0].free), (vec![ItemAnswer::Reserved], left));
    };
    sell(9).await;
    sell(8).await;
    // By a load, on the store's own connection.
    installation.add_stock(sku(1), 32).await;
    sell(9).await;
    // By somebody else's.
    let mut connection = connect(&installation.folder()).await;
    sqlx::query("UPDATE stock SET free = 1 WHERE shard = ?")
        .bind(home.number())
        .execute(&mut connection)
        .await
        .unwrap();
    sell(0).await;
    let item = process.item(user_of(home, 99), sku(1), 1);
    let call = process.reserve(home, vec![item]);
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::EmptyHere]);
}

#[tokio::test]
async fn a_locked_database_makes_calls_unavailable_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let options = OpenOptions { busy_timeout: Duration::from_millis(50), ..options(folder.path()) };
    let store = Arc::new(SqliteStore::open(&options).await.unwrap());
    let mut process = Process::start(Arc::clone(&store)).await;
    let mut connection = connect(folder.path()).await;
    let call = process.call(shard(0), CallBody::MoveOut { sku: sku(1), target: shard(1), want: 1 });
    let other = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
    assert!(matches!(store.call(&call).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.register().await, Err(StoreError::Unavailable(_))));
    other.rollback().await.unwrap();
    assert!(matches!(store.call(&call).await, Ok(Reply::Done(_))));
}

#[tokio::test]
async fn an_order_number_used_twice_hurts_nobody_else() {
    let (installation, mut process) = with_stock(160).await;
    let home = shard(5);
    let first = process.item(user_of(home, 0), sku(1), 1);
    let mut thief = process.item(user_of(home, 1), sku(1), 1);
    thief.order = first.order;
    let honest = process.item(user_of(home, 2), sku(1), 1);
    let call = process.reserve(home, vec![first]);
    process.done(&call).await;
    for round in 0..2 {
        // In a later batch, then under a new number in the same one.
        let fresh = process.item(user_of(home, 10 + round), sku(1), 1);
        let mut twin = process.item(user_of(home, 20 + round), sku(1), 1);
        twin.order = fresh.order;
        let call = process.reserve(home, vec![thief, honest, fresh, twin]);
        let (reserved, refused) = (ItemAnswer::Reserved, ItemAnswer::NotLoaded);
        assert_eq!(process.done(&call).await.answers, [refused, reserved, reserved, refused]);
    }
    assert_eq!(installation.orders(ACTIVITY).await.len(), 4);
    let mut wrong = process.item(user_of(home, 30), sku(1), 0);
    let no_units = process.reserve(home, vec![wrong]);
    assert_eq!(process.done(&no_units).await.answers, [ItemAnswer::NotLoaded]);
    (wrong.quantity, wrong.order) = (1, OrderNumber(u64::MAX));
    let no_number = process.reserve(home, vec![wrong]);
    assert_eq!(process.done(&no_number).await.answers, [ItemAnswer::NotLoaded]);
    installation.figures(sku(1)).await.assert_conserved();
}

#[tokio::test]
async fn pay_by_is_the_activity_s_time_from_now() {
    let (installation, mut process) = with_stock(16).await;
    let user = user_of(shard(0), 0);
    process.buy(user, sku(1), 1).await;
    let snapshot = installation.store().snapshot(shard(0)).await.unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let left = snapshot.marks[0].1.pay_by_ms - now;
    assert!((14 * 60_000..=15 * 60_000).contains(&left), "{left} ms");
}

/// Buys with many processes at once until told to stop; notes every order that was acknowledged.
async fn sell(
    store: Arc<SqliteStore>,
    told: Arc<Mutex<BTreeSet<OrderNumber>>>,
    started: Arc<tokio::sync::Notify>,
) {
    let lanes = (0..3).flat_map(|_| ShardId::all()).enumerate().map(|(lane, home)| {
        let (store, told, started) = (Arc::clone(&store), Arc::clone(&told), Arc::clone(&started));
        tokio::spawn(async move {
            let mut process = Process::start(store).await;
            let mut buyers = users_of(home).skip(lane / SHARDS * 1_000);
            loop {
                let items: Vec<_> =
                    buyers.by_ref().take(4).map(|user| process.item(user, sku(1), 1)).collect();
                let call = process.reserve(home, items.clone());
                let Ok(Reply::Done(done)) = process.store.call(&call).await else { return };
                let mut told = told.lock().unwrap();
                let sold =
                    items.iter().zip(done.answers).filter(|(_, answer)| *answer == ItemAnswer::Reserved);
                told.extend(sold.map(|(item, _)| item.order));
                if told.len() > 500 {
                    started.notify_one();
                }
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        let _ = lane.await;
    }
}

#[test]
fn a_process_that_vanishes_loses_nothing_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let told = Arc::new(Mutex::new(BTreeSet::new()));
    for round in 1..=3 {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (path, told) = (path.clone(), Arc::clone(&told));
        runtime.block_on(async {
            if round == 1 {
                let operator = rushgate::admin::activities::Activities::new(&path);
                operator.create(&new_activity(ACTIVITY, &[(SkuId(1), 1_000_000)])).await.unwrap();
            }
            let store = Arc::new(SqliteStore::open(&options(&path)).await.unwrap());
            assert_eq!(store.generation().0, round);
            audit(&path, &told).await;
            told.lock().unwrap().clear();
            let started = Arc::new(tokio::sync::Notify::new());
            tokio::spawn(sell(store, told, Arc::clone(&started)));
            started.notified().await;
        });
        // Every task ends where it stands, the writer's within its transaction.
        runtime.shutdown_timeout(Duration::from_secs(60));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(audit(&path, &told));
}

async fn audit(folder: &Path, told: &Mutex<BTreeSet<OrderNumber>>) {
    let stand: BTreeSet<_> = orders(folder, ACTIVITY).await.iter().map(|order| order.number).collect();
    let told = told.lock().unwrap().clone();
    assert_eq!(told.difference(&stand).count(), 0, "every acknowledged order stands");
    let figures = figures(folder, sku(1)).await;
    figures.assert_conserved();
    assert_eq!(figures.sold, stand.len() as u64);
}
