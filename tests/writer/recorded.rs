//! Orders that are only recorded: the switch `orders.mode` in mid-sale, under writers that die, and `rushgate backfill`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rushgate::protocol::OrderState;
use rushgate::store::sql::mysql::MySqlInstallation;
use rushgate::store::switches::{NewSwitch, SwitchStore};
use rushgate_servers::{Persistence, Redis};
use serde_json::Value;

use super::child::WriterProcess;
use super::house::{ACTIVITY, World, eventually, shared_mariadb};

async fn set_mode(sql: &MySqlInstallation, name: &str, value: &str) {
    let text = |text: &str| text.to_owned();
    let new = NewSwitch { name: text(name), value: text(value), who: text("mia"), why: text("too slow") };
    sql.set_switch(&new).await.unwrap();
}

/// A command of the real binary.
fn command(config: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushgate"));
    command.args(arguments).arg("--config").arg(config).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Its exit code, and what it says as JSON.
async fn backfill(config: &Path, arguments: &[&str]) -> (i32, Value) {
    let mut command = command(config, &[&["backfill", "--json"], arguments].concat());
    let run = move || command.output().unwrap();
    let Output { status, stdout, stderr } = tokio::task::spawn_blocking(run).await.unwrap();
    let said = String::from_utf8_lossy(&stderr);
    let told = serde_json::from_slice(&stdout).unwrap_or_else(|error| panic!("{status} {error}: {said}"));
    (status.code().unwrap(), told)
}

impl World {
    async fn recorded(&self) -> u64 {
        self.sql.recorded_orders(None).await.unwrap()
    }

    /// Everything that was recorded is settled, and Redis knows.
    async fn backfilled(&self) {
        eventually("all is settled and told", || async {
            self.recorded().await == 0 && self.sql.due_marks(0, 1).await.unwrap().is_empty()
        })
        .await;
        // What Redis was told is in the feeds, too.
        self.drained().await;
    }

    async fn hand_in_sql(&self, statement: &str) {
        let statement = format!("USE {}; {statement}", self.database.name);
        shared_mariadb().await.sql(&statement).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_recorded_told_and_acknowledged_and_settled_when_the_switch_is_back() {
    let mut world = World::with_stock(2000).await;
    let writer = WriterProcess::working(&world, "");
    world.reserve(1..=100).await;
    world.drained().await;
    set_mode(&world.sql, "orders.mode", "record").await;
    let set_at = Instant::now();
    eventually("it is obeyed", || async { writer.metric("rushgate_writer_records_orders") == 1 }).await;
    assert!(set_at.elapsed() < Duration::from_secs(1), "{:?}", set_at.elapsed());
    world.reserve(101..=400).await;
    world.drained().await;
    assert_eq!((writer.count("rows_settled"), writer.count("rows_recorded")), (100, 300));
    let marks = world.marks().await;
    let told = |state| marks.values().filter(|mark| mark.state == state).count();
    assert_eq!((told(OrderState::PendingPayment), told(OrderState::Recorded)), (100, 300));
    let (_, figures) = world.sql.figures(ACTIVITY).await.unwrap();
    let figures = &figures[&super::house::SKU.sku];
    assert_eq!((figures.total, figures.free, figures.recorded, figures.sold), (2000, 1600, 300, 100));
    // The books balance meanwhile, by both checks.
    let (code, report) = {
        let mut command = command(&world.config(""), &["reconcile", "--json"]);
        let run = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (run.status.code(), serde_json::from_slice::<Value>(&run.stdout).unwrap())
    };
    let sku = &report["activities"][0]["skus"][0];
    assert_eq!((code, &report["differences"]), (Some(0), &0.into()), "{report}");
    assert_eq!([&sku["free"], &sku["recorded"], &sku["sold"]], [1600, 300, 100]);
    let stills = writer.count("stock_looks_still");
    eventually("the live check looks", || async { writer.count("stock_looks_still") > stills }).await;
    assert_eq!(writer.metric("rushgate_units_off"), 0);
    eventually("they are counted", || async { writer.metric("rushgate_recorded_orders") == 300 }).await;
    set_mode(&world.sql, "orders.mode", "settle").await;
    world.backfilled().await;
    world.audit(2000, 400).await;
    assert_eq!((writer.count("rows_backfilled"), writer.count("orders_mode_changes")), (300, 2));
    let log = writer.log();
    let line = log.lines().find(|line| line.contains("orders are recorded")).unwrap_or_default();
    assert!(line.contains("WARN") && line.contains("mia") && line.contains("too slow"), "{log}");
    writer.stopped();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_the_mode_flipped_in_mid_sale_under_writers_that_are_killed_settles_each_order_once() {
    let mut world = World::with_stock(10_000).await;
    let points = [
        "writer.after_commit",
        "writer.after_backfill",
        "writer.before_commit",
        "writer.before_backfill",
        "writer.after_settled",
        "writer.after_backfill:2",
    ];
    let mut sold = 0;
    for (nth, point) in points.into_iter().enumerate() {
        // Some are recorded by one that lives, which is killed in the midst of it.
        set_mode(&world.sql, "orders.mode", "record").await;
        let recorder = WriterProcess::working(&world, "batch_rows_max = 20\nrows_per_s = 800");
        let users = sold + 1..=sold + 300;
        world.reserve(users).await;
        eventually("some are recorded", || async { recorder.count("rows_recorded") > 120 }).await;
        recorder.kill();
        // Others come while it is set back, and the next writer dies at its point.
        set_mode(&world.sql, "orders.mode", if nth == 3 { "record" } else { "settle" }).await;
        world.reserve(sold + 301..=sold + 400).await;
        sold += 400;
        if nth == 3 {
            set_mode(&world.sql, "orders.mode/7", "settle").await;
        }
        WriterProcess::start(&world, "batch_rows_max = 50", Some(point)).crashed();
        if nth == 3 {
            set_mode(&world.sql, "orders.mode/7", "default").await;
        }
    }
    set_mode(&world.sql, "orders.mode", "settle").await;
    let writers = [WriterProcess::working(&world, ""), WriterProcess::working(&world, "batch_rows_max = 50")];
    world.drained().await;
    world.backfilled().await;
    world.audit(10_000, usize::try_from(sold).unwrap()).await;
    let twice = "SELECT COUNT(*) - COUNT(DISTINCT number) FROM order_history WHERE cause = 6";
    let twice = shared_mariadb().await.sql(&format!("USE {}; {twice}", world.database.name)).await.unwrap();
    assert_eq!(twice.trim(), "0");
    writers.into_iter().for_each(WriterProcess::stopped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mode_is_set_and_obeyed_while_redis_is_away() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let world = World::on(&redis, shared_mariadb().await).await;
    let writer = WriterProcess::working(&world, "");
    redis.kill9().await.unwrap();
    let mut set = command(&world.config(""), &["switch", "set", "orders.mode", "record", "--why", "a drill"]);
    let set = tokio::task::spawn_blocking(move || set.output().unwrap()).await.unwrap();
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let set_at = Instant::now();
    eventually("it is obeyed", || async { writer.metric("rushgate_writer_records_orders") == 1 }).await;
    assert!(set_at.elapsed() < Duration::from_secs(1), "{:?}", set_at.elapsed());
    writer.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_recorded_orders_are_backfilled_at_a_rate_by_whoever_comes() {
    const ORDERS: u64 = 100_000;
    let world = World::with_stock(120_000).await;
    world
        .hand_in_sql(&format!(
            "INSERT INTO orders (number, activity, user, attempt, sku, quantity, state, source, shard, pay_by_ms, \
             created_at_ms) SELECT 1000000 + seq, 7, seq, 1, 1, 1, 7, 1, 0, 0, 1 FROM seq_1_to_{ORDERS}; \
             INSERT INTO recorded SELECT number, activity, sku, quantity FROM orders ORDER BY number LIMIT 90000"
        ))
        .await;
    // The rows that nothing tells of are found. One file for all: who reads it must not meet who writes it anew.
    let config = world.config("");
    let mut first = command(&config, &["backfill", "--activity", "7", "--rate", "20000"]);
    let mut first =
        first.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    eventually("it is at it", || async { (1..=80_000).contains(&world.recorded().await) }).await;
    // Killed where it stands; the next ones go on, two at once.
    first.kill().unwrap();
    first.wait().unwrap();
    let left = world.sql.recorded_orders(Some(ACTIVITY)).await.unwrap();
    let began = Instant::now();
    let (one, two) = tokio::join!(
        backfill(&config, &["--rate", "15000"]),
        backfill(&config, &["--activity", "7", "--rate", "15000"])
    );
    let took = began.elapsed();
    let settled = |done: &(i32, Value)| done.1["settled"].as_u64().unwrap();
    assert_eq!((one.0, two.0), (0, 0), "{one:?} {two:?}");
    assert!(settled(&one) > 0 && settled(&two) > 0, "{one:?} {two:?}");
    assert!(settled(&one) + settled(&two) <= left, "{left}: {one:?} {two:?}");
    // At 15,000 a second each, after the first batches.
    assert!(took >= Duration::from_millis(left.saturating_sub(6_000) / 30), "{left} in {took:?}");
    let count = async |what: &str| {
        let query = format!("USE {}; SELECT COUNT(*) FROM {what}", world.database.name);
        shared_mariadb().await.sql(&query).await.unwrap().trim().parse::<u64>().unwrap()
    };
    assert_eq!(count("orders WHERE state = 2 AND pay_by_ms > 0").await, ORDERS);
    assert_eq!(count("order_history WHERE cause = 6").await, ORDERS);
    assert_eq!(count("outbox WHERE state = 2").await, ORDERS);
    let figures = world.sql.figures(ACTIVITY).await.unwrap().1;
    let figures = &figures[&super::house::SKU.sku];
    assert_eq!((figures.free, figures.recorded, figures.sold), (20_000, 0, ORDERS));
    // Nothing is left, and no such activity: the exit codes say which.
    let again = backfill(&config, &[]).await;
    assert_eq!((again.0, settled(&again), &again.1["left"]), (0, 0, &0.into()));
    let mut none = command(&config, &["backfill", "--activity", "99"]);
    let none = tokio::task::spawn_blocking(move || none.output().unwrap()).await.unwrap();
    assert_eq!(none.status.code(), Some(2), "{}", String::from_utf8_lossy(&none.stderr));
    // Where the books are wrong some fail, and the exit code says so.
    world
        .hand_in_sql("INSERT INTO orders (number, activity, user, attempt, sku, quantity, state, source, shard, \
             pay_by_ms, created_at_ms) VALUES (5, 7, 900001, 1, 1, 1, 7, 1, 0, 0, 1); UPDATE sku_stock SET available = 0")
        .await;
    let (code, told) = backfill(&config, &[]).await;
    assert_eq!((code, &told["found"], &told["failed"][0]["order"]), (1, &1.into(), &5.into()), "{told}");
}
