//! A sale of 3 units to 5 users that is right in every respect: user 1 wins and asks again, user 2 buys twice at
//! once, user 3 loses the connection and learns by RESULT that the unit pulled from shard 2 is his, users 4 and 5 are
//! refused.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};

use crate::protocol::{ActivityId, OrderNumber, SkuId, Status};
use crate::rehearsal::{
    Asked, Books, Buys, Check, End, Event, Got, Listening, SaleHistory, SeenOrder, Tally, UserHistory,
    Verdict, audit,
};

const ROWS: &str = "
    INSERT INTO activities VALUES (1, 'test', 2, 1, 1, 2, 5, 900000, 1, '', 0, 0);
    INSERT INTO skus VALUES (1, 1, 'unit', 100);
    INSERT INTO loads VALUES (1, 'first', 1, 1, 1, 3, 2, 3, '[1,1,1,0,0,0,0,0,0,0,0,0,0,0,0,0]', 1, 1);
    INSERT INTO stock SELECT shard, 1, 1, 0 FROM shards;
    INSERT INTO transfers VALUES (2, 1, 1, 5, 1, 0), (5, 1, 1, 2, 0, 1);
    INSERT INTO orders (shard, activity, user, attempt, number, sku, quantity, state, pay_by_ms, created_at_ms)
        VALUES (0, 1, 1, 1, 101, 1, 1, 2, 0, 0), (1, 1, 2, 1, 102, 1, 1, 2, 0, 0), (5, 1, 3, 1, 103, 1, 1, 2, 0, 0);
";

/// SQL that loads one more unit into a shard.
pub(super) fn one_more_unit(shard: usize) -> String {
    let mut amounts = [0; 16];
    amounts[shard] = 1;
    format!(
        "INSERT INTO loads VALUES (2, 'second', 1, 1, 1, 1, 2, 1, '{amounts:?}', 1, 1); \
         UPDATE stock SET free = free + 1 WHERE shard = {shard};"
    )
}

/// SQL that gives a user an order.
pub(super) fn an_order(shard: usize, user: u64, attempt: u8, number: u64) -> String {
    format!(
        "INSERT INTO orders (shard, activity, user, attempt, number, sku, quantity, state, pay_by_ms, created_at_ms) \
         VALUES ({shard}, 1, {user}, {attempt}, {number}, 1, 1, 2, 0, 0);"
    )
}

pub(super) fn seen(number: u64) -> SeenOrder {
    SeenOrder { number: OrderNumber(number), activity: ActivityId(1), sku: SkuId(1), quantity: 1 }
}

pub(super) fn event(asked: Asked, sent_ns: u64, received_ns: u64, got: Got) -> Event {
    Event { asked, sent_ns, received_ns, got }
}

pub(super) fn order(asked: Asked, times: (u64, u64), status: Status, number: u64) -> Event {
    event(asked, times.0, times.1, Got::Order(status.code(), seen(number)))
}

pub(super) fn status(asked: Asked, times: (u64, u64), status: Status) -> Event {
    event(asked, times.0, times.1, Got::Status(status.code()))
}

fn user(end: End, events: Vec<Event>) -> UserHistory {
    UserHistory { quantity: 1, listening: Listening::default(), end, events }
}

pub(super) fn history() -> SaleHistory {
    use Asked::{Buy, FinalResult, Push, Result};
    let sold_out = End::Refused(Status::SoldOut.code());
    let users = vec![
        user(
            End::Won(OrderNumber(101)),
            vec![
                status(Buy, (10, 20), Status::Busy),
                order(Buy, (30, 40), Status::Queued, 101),
                order(Push, (45, 45), Status::Ok, 101),
                order(Buy, (50, 60), Status::Already, 101),
                order(FinalResult, (1000, 1010), Status::Ok, 101),
            ],
        ),
        user(
            End::Won(OrderNumber(102)),
            vec![
                order(Buy, (11, 40), Status::Queued, 102),
                order(Buy, (10, 41), Status::Already, 102),
                order(FinalResult, (1000, 1010), Status::Ok, 102),
            ],
        ),
        user(
            End::Won(OrderNumber(103)),
            vec![
                event(Buy, 10, 20, Got::Unknown),
                status(Result, (30, 40), Status::Unconfirmed),
                order(Result, (50, 60), Status::Ok, 103),
                order(FinalResult, (1000, 1010), Status::Ok, 103),
            ],
        ),
        user(sold_out, Vec::new()),
        user(sold_out, vec![status(FinalResult, (1000, 1010), Status::NoOrder)]),
    ];
    SaleHistory {
        activity: ActivityId(1),
        sku: SkuId(1),
        first_user: 1,
        users,
        tally: Tally::default(),
        buys: Buys::default(),
        latency_us: Histogram::new(3).unwrap(),
        duration: Duration::from_secs(1),
        answered: 0,
    }
}

/// A database with the rows of the right sale, then changed by `sql`.
pub(super) async fn database(path: &Path, sql: &str) {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::migrate!("./migrations/sqlite").run(&mut connection).await.unwrap();
    let sql = format!("PRAGMA foreign_keys = OFF; {ROWS} {sql}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn books(sql: &str) -> Books {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rushgate.db");
    database(&path, sql).await;
    Books::read(&path, ActivityId(1), SkuId(1)).await.unwrap()
}

/// The audit's verdict on the right sale with its books changed after they were read.
pub(super) async fn verdict_on(change: impl FnOnce(&mut Books)) -> Verdict {
    let mut books = books("").await;
    change(&mut books);
    audit(&history(), &books)
}

/// The audit's verdict on the right sale with its history and its database changed.
pub(super) async fn verdict(change: impl FnOnce(&mut SaleHistory), sql: &str) -> Verdict {
    let books = books(sql).await;
    let mut history = history();
    change(&mut history);
    audit(&history, &books)
}

/// The history as it is.
pub(super) fn nothing(_: &mut SaleHistory) {}

/// The checks that turned red.
pub(super) fn red(verdict: &Verdict) -> Vec<Check> {
    let names: BTreeSet<String> =
        verdict.findings.iter().map(|finding| format!("{:?}", finding.check)).collect();
    let mut checks: Vec<Check> = Vec::new();
    for finding in &verdict.findings {
        if !checks.contains(&finding.check) {
            checks.push(finding.check);
        }
    }
    assert_eq!(names.len(), checks.len());
    checks
}

/// That check turned red, and said so with these words.
pub(super) fn assert_red(verdict: &Verdict, check: Check, words: &str) {
    let found = verdict.findings.iter().any(|found| found.check == check && found.sentence.contains(words));
    assert!(found, "{check:?} with `{words}` is not in {verdict:#?}");
}

/// That check alone turned red.
pub(super) fn assert_only(verdict: &Verdict, check: Check, words: &str) {
    assert_eq!(red(verdict), [check], "{verdict:#?}");
    assert_red(verdict, check, words);
}
