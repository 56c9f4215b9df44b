//! A database in trouble: deadlocks, lost connections, read-only, down.

use std::time::{Duration, Instant};

use rushgate::stock::calls::Gen;
use rushgate::store::StoreError;
use rushgate::store::sql::mysql::{MySqlInstallation, MySqlOptions, ProcessKind, SettleOutcome, Settlement};
use rushgate_servers::MariaDb;

use crate::fixture::{Scene, options, reservation, reservations};
use crate::proxy::{Cut, Proxy};

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlock_is_retried() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    scene.settle(&reservations(1)).await;
    // Another transaction holds the stock row, and has written so much that InnoDB never sacrifices it; then it asks
    // for what the settlement holds.
    let mut beside = scene.connect().await;
    sqlx::raw_sql(
        "CREATE TABLE heavy (id INT PRIMARY KEY); BEGIN; INSERT INTO heavy SELECT seq FROM seq_1_to_20000; \
         UPDATE sku_stock SET version = version + 1",
    )
    .execute(&mut beside)
    .await
    .unwrap();
    let sql = scene.sql.clone();
    let settling = tokio::spawn(async move {
        let batch = &reservations(3)[1..];
        sql.settle(Gen(0), batch).await
    });
    let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() \
                   AND INFO LIKE 'INSERT INTO sku_stock%'";
    until("the settlement waits for the stock row", async || scene.count(waiting).await > 0).await;
    let deadlocks = "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.GLOBAL_STATUS \
                     WHERE VARIABLE_NAME = 'Innodb_deadlocks'";
    let before = scene.count(deadlocks).await;
    sqlx::raw_sql("UPDATE orders SET pay_by_ms = pay_by_ms WHERE number IN (1002, 1003); COMMIT")
        .execute(&mut beside)
        .await
        .unwrap();
    assert!(scene.count(deadlocks).await > before, "there was a deadlock");
    settling.await.unwrap().unwrap();
    assert_eq!(scene.stock(1).await, (97, 3));
}

#[tokio::test]
async fn database_read_only_is_told() {
    let server = MariaDb::start().await.unwrap();
    let database = server.create_database().await.unwrap();
    let sql = MySqlInstallation::open(options(&database)).await.unwrap();
    server.set_read_only(true).await.unwrap();
    let error = sql.register(ProcessKind::Writer).await.unwrap_err();
    assert!(error.to_string().contains("the database is read-only"), "{error}");
    assert!(matches!(error, StoreError::Unavailable(_)));
    assert_eq!(sql.version().await.unwrap(), 0, "it can be read");
    // A schema that is up to date needs no write.
    MySqlInstallation::open(options(&database)).await.unwrap();
    let empty = server.create_database().await.unwrap();
    let error = MySqlInstallation::open(options(&empty)).await.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("read-only"), "{error}");
    server.set_read_only(false).await.unwrap();
    sql.register(ProcessKind::Writer).await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_down_is_unavailable_and_comes_back_without_a_restart() {
    let server = MariaDb::start().await.unwrap();
    let database = server.create_database().await.unwrap();
    let sql = MySqlInstallation::open(options(&database)).await.unwrap();
    server.kill9().await.unwrap();
    let error = sql.version().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    server.restart().await.unwrap();
    assert_eq!(sql.version().await.unwrap(), 0);
}

#[tokio::test]
async fn a_killed_connection_fails_one_call_at_most() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let batch = reservations(10);
    scene.settle(&batch[..5]).await;
    let server = crate::fixture::server().await;
    let connections =
        format!("SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}'", scene.database.name);
    for id in server.sql(&connections).await.unwrap().lines() {
        server.sql(&format!("KILL CONNECTION {id}")).await.unwrap();
    }
    let settlements = scene.settle(&batch).await;
    assert!(matches!(settlements[0], Settlement::WasSettled(_)));
    assert!(matches!(settlements[9], Settlement::Settled(_)));
}

#[tokio::test]
async fn connection_lost_in_commit_leaves_one_outcome() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let proxy = Proxy::start(scene.database.port).await;
    let through = MySqlOptions { port: proxy.port, ..options(&scene.database) };
    let sql = MySqlInstallation::open(through).await.unwrap();
    for (cut, user) in [(Cut::BeforeCommit, 1), (Cut::AfterCommit, 2)] {
        let batch = [reservation(user, 1000 + user)];
        proxy.cut(cut);
        let error = sql.settle(Gen(0), &batch).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(proxy.has_cut());
        if cut == Cut::AfterCommit {
            let rows = "SELECT COUNT(*) FROM orders WHERE number = 1002";
            until("the server executes what it was sent", async || scene.count(rows).await == 1).await;
        }
        // The entry comes again.
        let SettleOutcome::Committed(again) = sql.settle(Gen(0), &batch).await.unwrap() else { panic!() };
        match cut {
            Cut::AfterCommit => assert!(matches!(again[0], Settlement::WasSettled(_)), "{again:?}"),
            _ => assert!(matches!(again[0], Settlement::Settled(_)), "{again:?}"),
        }
    }
    assert_eq!(scene.stock(1).await, (98, 2));
}

#[tokio::test]
async fn a_link_that_falls_silent_does_not_hold_a_call_or_the_pool() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let proxy = Proxy::start(scene.database.port).await;
    let through = MySqlOptions {
        port: proxy.port,
        connections_max: 2,
        call_timeout: Duration::from_secs(2),
        ..options(&scene.database)
    };
    let sql = MySqlInstallation::open(through).await.unwrap();
    // More often than the pool has connections.
    for user in 1..=3 {
        let batch = [reservation(user, 1000 + user)];
        proxy.cut(Cut::Silence);
        let error = sql.settle(Gen(0), &batch).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        // The server still holds the locks of what it was not told to end; the entry comes again until they are gone.
        let connections = format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}' AND COMMAND = 'Sleep'",
            scene.database.name
        );
        let server = crate::fixture::server().await;
        for id in server.sql(&connections).await.unwrap().lines() {
            // Some end by themselves meanwhile.
            let _ = server.sql(&format!("KILL CONNECTION {id}")).await;
        }
        until("the batch is settled in the end", async || sql.settle(Gen(0), &batch).await.is_ok()).await;
    }
    assert_eq!(scene.stock(1).await, (97, 3));
}
