//! The loop: BEGIN IMMEDIATE, orders in statements of many rows, the rows beside them, COMMIT; and its report.
//!
//! One thread. Settings of the connection are those of the gateway's writer. The first error ends it.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use rusqlite::{Connection, OpenFlags, Statement, params};
use serde_json::{Value, json};

use crate::rows::{Batch, Order, Source, reply};

/// Rows per statement, as the gateway's writer has them.
const ROWS_PER_STATEMENT: usize = 256;
/// Default of `rushgate activity create --pay-within`.
const PAY_WITHIN_MS: i64 = 900_000;
/// Longest transaction that the histogram holds apart, in microseconds.
const LATENCY_MAX_US: u64 = 60_000_000;
/// Units that a stock row starts with: enough for any run.
const FREE: u32 = 1_000_000_000;

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(
        "cannot open {path}: {error}; make it with `rushgate activity create --id 1 … --data-dir DIR`, and let no gateway serve it"
    )]
    Open { path: PathBuf, error: rusqlite::Error },
    #[error("there is no activity {0} with the SKU 1; make it with `rushgate activity create`")]
    NoActivity(u32),
    #[error("a transaction failed: {0}")]
    Transaction(#[from] rusqlite::Error),
    #[error(
        "nothing was committed in the time that is measured; give it more --seconds or a smaller --batch"
    )]
    Nothing,
    #[error("the latencies cannot be kept: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
}

impl RunError {
    pub(crate) const fn is_before_start(&self) -> bool {
        matches!(self, Self::Open { .. } | Self::NoActivity(_))
    }
}

/// What is run.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) database: PathBuf,
    pub(crate) activity: u32,
    pub(crate) batch: u32,
    pub(crate) measured: Duration,
    pub(crate) warmup: Duration,
}

/// Runs to the end of its time; the report is one JSON object.
pub(crate) fn run(settings: &Settings) -> Result<Value, RunError> {
    let connection = open(settings)?;
    let mut statements = Statements::prepare(&connection)?;
    let (mut source, mut batch) = (Source::new(), Batch::default());
    let mut latency_us = Histogram::<u64>::new_with_bounds(1, LATENCY_MAX_US, 3)?;
    let mut commits = 0_u64;
    let started_at = Instant::now();
    while started_at.elapsed() < settings.warmup {
        source.fill(&mut batch, settings.batch);
        statements.commit(&connection, settings.activity, &batch, &mut commits)?;
    }
    let (measured_at, cpu_at) = (Instant::now(), cpu_ns());
    let (mut rows, mut transactions) = (0_u64, 0_u64);
    while measured_at.elapsed() < settings.measured {
        let began_at = Instant::now();
        source.fill(&mut batch, settings.batch);
        statements.commit(&connection, settings.activity, &batch, &mut commits)?;
        let took_us = u64::try_from(began_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        latency_us.saturating_record(took_us);
        rows = rows.saturating_add(u64::try_from(batch.orders.len()).unwrap_or_default());
        transactions = transactions.saturating_add(1);
    }
    let (seconds, cpu) = (measured_at.elapsed().as_secs_f64(), cpu_ns().saturating_sub(cpu_at));
    if rows == 0 {
        return Err(RunError::Nothing);
    }
    Ok(json!({
        "rows_per_s": exact(rows) / seconds,
        "transactions_per_s": exact(transactions) / seconds,
        "rows": rows,
        "seconds": seconds,
        "cpu_ns": (cpu > 0).then(|| exact(cpu) / exact(rows)),
        "p50_us": latency_us.value_at_quantile(0.5),
        "p99_us": latency_us.value_at_quantile(0.99),
    }))
}

fn open(settings: &Settings) -> Result<Connection, RunError> {
    let failed = |error| RunError::Open { path: settings.database.clone(), error };
    let connection =
        Connection::open_with_flags(&settings.database, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8000;
             PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON;",
        )
        .map_err(failed)?;
    let count: u32 = connection
        .query_row("SELECT count(*) FROM skus WHERE activity = ? AND sku = 1", [settings.activity], |row| {
            row.get(0)
        })
        .map_err(failed)?;
    if count == 1 { Ok(connection) } else { Err(RunError::NoActivity(settings.activity)) }
}

struct Statements<'c> {
    many_orders: Statement<'c>,
    one_order: Statement<'c>,
    stock: Statement<'c>,
    shard: Statement<'c>,
    call: Statement<'c>,
}

impl<'c> Statements<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let orders = |rows: usize| {
            let values = vec!["(?,?,?,1,?,1,1,2,?,?)"; rows].join(",");
            connection.prepare(&format!(
                "INSERT INTO orders (shard, activity, user, attempt, number, sku, quantity, state, pay_by_ms, \
                 created_at_ms) VALUES {values}"
            ))
        };
        Ok(Self {
            many_orders: orders(ROWS_PER_STATEMENT)?,
            one_order: orders(1)?,
            stock: connection.prepare(
                "INSERT INTO stock (shard, activity, sku, free) VALUES (?, ?, 1, ?) \
                 ON CONFLICT DO UPDATE SET free = excluded.free",
            )?,
            shard: connection.prepare(
                "INSERT INTO shards (shard, seq) VALUES (?, ?) ON CONFLICT DO UPDATE SET seq = excluded.seq",
            )?,
            call: connection.prepare(
                "INSERT INTO calls (process, shard, number, reply, at_ms) VALUES (1, ?, ?, ?, ?) \
                 ON CONFLICT DO UPDATE SET number = excluded.number, reply = excluded.reply, at_ms = excluded.at_ms",
            )?,
        })
    }

    /// One transaction.
    fn commit(
        &mut self,
        connection: &Connection,
        activity: u32,
        batch: &Batch,
        commits: &mut u64,
    ) -> rusqlite::Result<()> {
        *commits = commits.saturating_add(1);
        let at_ms = now_ms();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut chunks = batch.orders.chunks_exact(ROWS_PER_STATEMENT);
        for orders in &mut chunks {
            insert(&mut self.many_orders, activity, orders, at_ms)?;
        }
        for order in chunks.remainder() {
            insert(&mut self.one_order, activity, std::slice::from_ref(order), at_ms)?;
        }
        for (shard, orders) in (0_u8..).zip(batch.per_shard).filter(|(_, orders)| *orders > 0) {
            let number = i64::try_from(*commits).unwrap_or(i64::MAX);
            self.stock.execute(params![shard, activity, FREE.saturating_sub(orders)])?;
            self.shard.execute(params![shard, number])?;
            self.call.execute(params![shard, number, reply(orders), at_ms])?;
        }
        connection.execute_batch("COMMIT")
    }
}

fn insert(
    statement: &mut Statement<'_>,
    activity: u32,
    orders: &[Order],
    at_ms: i64,
) -> rusqlite::Result<()> {
    let mut place = 0_usize;
    let mut bind = |statement: &mut Statement<'_>, value: i64| {
        place = place.saturating_add(1);
        statement.raw_bind_parameter(place, value)
    };
    for order in orders {
        bind(statement, i64::from(order.shard))?;
        bind(statement, i64::from(activity))?;
        bind(statement, i64::try_from(order.user).unwrap_or(i64::MAX))?;
        bind(statement, i64::try_from(order.number).unwrap_or(i64::MAX))?;
        bind(statement, at_ms.saturating_add(PAY_WITHIN_MS))?;
        bind(statement, at_ms)?;
    }
    statement.raw_execute().map(drop)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// What this thread has run, by the kernel's count; 0 where it keeps none.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
const fn exact(count: u64) -> f64 {
    count as f64
}
