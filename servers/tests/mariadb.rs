//! A MariaDB does what the tests of the product rely on. One server for what does not disturb it, one of its own
//! for each test that kills or stops it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, reason = "tests")]

use std::process::Command;
use std::time::{Duration, Instant};

use rushgate_servers::{Database, MariaDb};
use tokio::sync::OnceCell;

static SHARED: OnceCell<MariaDb> = OnceCell::const_new();

async fn shared() -> &'static MariaDb {
    SHARED.get_or_try_init(MariaDb::start).await.unwrap()
}

/// As the product's user, over TCP.
fn as_user(database: &Database, statements: &str) -> Result<String, String> {
    let output = Command::new("mariadb")
        .args(["--no-defaults", "--protocol=tcp", "--batch", "--skip-column-names"])
        .arg(format!("--host={}", database.host))
        .arg(format!("--port={}", database.port))
        .arg(format!("--user={}", database.user))
        .arg(format!("--password={}", database.password))
        .arg(format!("--database={}", database.name))
        .args(["--execute", statements])
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

#[tokio::test]
async fn committed_rows_are_there_after_a_kill() {
    let server = MariaDb::start().await.unwrap();
    let database = server.create_database().await.unwrap();
    as_user(
        &database,
        "CREATE TABLE orders (number BIGINT UNSIGNED PRIMARY KEY); INSERT INTO orders VALUES (7)",
    )
    .unwrap();
    server.kill9().await.unwrap();
    assert!(as_user(&database, "SELECT 1").is_err());
    server.restart().await.unwrap();
    assert_eq!(as_user(&database, "SELECT number FROM orders").unwrap(), "7\n");
    server.restart().await.unwrap();
    assert_eq!(as_user(&database, "SELECT number FROM orders").unwrap(), "7\n");
}

#[tokio::test]
async fn each_database_is_empty_and_its_user_is_no_administrator() {
    let server = shared().await;
    let (one, other) = (server.create_database().await.unwrap(), server.create_database().await.unwrap());
    assert_ne!(one.name, other.name);
    as_user(&one, "CREATE TABLE orders (number INT)").unwrap();
    assert_eq!(as_user(&other, "SHOW TABLES").unwrap(), "");
    assert!(as_user(&one, "SET GLOBAL read_only = OFF").is_err());
}

#[tokio::test]
async fn commits_are_durable_and_isolation_is_the_servers_default() {
    let server = shared().await;
    let answer = server.sql("SELECT @@innodb_flush_log_at_trx_commit, @@version").await.unwrap();
    assert!(answer.starts_with("1\t10."), "{answer}");
}

#[tokio::test]
async fn a_read_only_server_refuses_the_products_user() {
    let server = MariaDb::start().await.unwrap();
    let database = server.create_database().await.unwrap();
    as_user(&database, "CREATE TABLE orders (number INT)").unwrap();
    server.set_read_only(true).await.unwrap();
    let refused = as_user(&database, "INSERT INTO orders VALUES (1)").unwrap_err();
    assert!(refused.contains("1290"), "{refused}");
    server.set_read_only(false).await.unwrap();
    as_user(&database, "INSERT INTO orders VALUES (1)").unwrap();
}

#[tokio::test]
async fn a_paused_server_answers_when_it_runs_on() {
    let server = MariaDb::start().await.unwrap();
    let database = server.create_database().await.unwrap();
    server.pause().await.unwrap();
    let asked = tokio::task::spawn_blocking(move || as_user(&database, "SELECT 2"));
    tokio::pin!(asked);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut asked).await.is_err());
    server.resume().unwrap();
    assert_eq!(asked.await.unwrap().unwrap(), "2\n");
}

#[tokio::test]
async fn starts_in_a_few_seconds() {
    shared().await;
    let begun = Instant::now();
    let server = MariaDb::start().await.unwrap();
    let took = begun.elapsed();
    println!("mariadb started in {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    drop(server);
}
