//! What SQL knows of an activity, read for a reconciliation and for the writers' look at the stock; each of one instant.
//!
//! Changes nothing. Orders of the database's own shards are counted alone: no Redis knows of them.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::catalog::ActivityState;
use super::failure::{self, Failure, retried};
use super::orders::{PlacedMarkRow, placed_mark};
use super::reservation::books::{self as reserve, ReserveBooks};
use crate::protocol::{ActivityId, OrderNumber, SkuId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};
use crate::store::StoreError;

/// For everything of one activity; a million orders take seconds.
const BOOKS_TIMEOUT: Duration = Duration::from_secs(300);

/// Orders read at a time.
const PAGE_ROWS: u16 = 20_000;

/// An order, or what the ledger says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedOrder {
    /// Where its mark is.
    pub shard: ShardId,
    /// Whose it is.
    pub user: UserId,
    /// The order.
    pub mark: Mark,
}

/// A row of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// What is to be released.
    pub order: PlacedOrder,
    /// Whether the shard was told.
    pub is_done: bool,
}

/// A shard's share of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadShare {
    /// Under which the shard knows it.
    pub load_id: String,
    /// The shard.
    pub shard: ShardId,
    /// Of which article.
    pub sku: SkuId,
    /// Units added, below zero for a take; `None` while the shard's answer is not recorded.
    pub applied: Option<i64>,
}

/// An SKU's stock as SQL counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockRow {
    /// Units that no order holds, and those of orders that are recorded and not settled.
    pub available: i64,
    /// Units that settled orders hold.
    pub sold: i64,
    /// Additions written, less units taken.
    pub loaded: i64,
}

/// Everything of one activity, of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlBooks {
    /// The installation's generation.
    pub generation: Gen,
    /// How far the activity has come; `None`: there is none.
    pub state: Option<ActivityState>,
    /// Its orders, whatever their state.
    pub orders: Vec<PlacedOrder>,
    /// Its rows of the ledger.
    pub ledger: Vec<LedgerRow>,
    /// Shares of its loads.
    pub loads: Vec<LoadShare>,
    /// Its stock.
    pub stock: BTreeMap<SkuId, StockRow>,
    /// What is held back from Redis, of each SKU of which anything ever was.
    pub reserve: BTreeMap<SkuId, ReserveBooks>,
    /// Orders whose state Redis has still to learn.
    pub outbox: HashSet<OrderNumber>,
}

/// What an SKU's units in Redis have to add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockDue {
    /// Units that no order holds, not even a recorded one.
    pub available: i64,
    /// Of these, units that the ledger has still to give back to Redis.
    pub owed: i64,
    /// Whether a load is on its way to the shards, so that nobody knows which of them have it.
    pub is_loading: bool,
}

impl MySqlInstallation {
    /// Everything of one activity.
    pub async fn books(&self, activity: ActivityId) -> Result<SqlBooks, StoreError> {
        self.books_watched(activity, &|_| {}).await
    }

    /// The same; `read` is told how many orders were read by now.
    pub async fn books_watched(
        &self,
        activity: ActivityId,
        read: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<SqlBooks, StoreError> {
        retried!(BOOKS_TIMEOUT; self.read_books(activity, read))
    }

    /// What the units of every SKU in Redis have to add up to, of activities that are loaded or ending; and the
    /// generation.
    pub async fn stock_due(&self) -> Result<(Gen, BTreeMap<SkuKey, StockDue>), StoreError> {
        retried!(self.options.call_timeout; self.read_stock_due())
    }

    async fn read_books(
        &self,
        activity: ActivityId,
        read: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<SqlBooks, Failure> {
        let mut transaction = self.repeatable_read().await?;
        let connection = &mut *transaction;
        let generation: u64 =
            sqlx::query_scalar("SELECT gen FROM installation").fetch_one(&mut *connection).await?;
        let state: Option<u8> = sqlx::query_scalar("SELECT state FROM activities WHERE id = ?")
            .bind(activity.0)
            .fetch_optional(&mut *connection)
            .await?;
        let books = SqlBooks {
            generation: Gen(generation),
            state: state.map(ActivityState::of).transpose()?,
            orders: orders(connection, activity, read).await?,
            ledger: ledger(connection, activity).await?,
            loads: loads(connection, activity).await?,
            stock: stock(connection, activity).await?,
            reserve: reserve::read_books(connection, activity).await?,
            outbox: outbox(connection, activity).await?,
        };
        transaction.rollback().await?;
        Ok(books)
    }

    async fn read_stock_due(&self) -> Result<(Gen, BTreeMap<SkuKey, StockDue>), Failure> {
        let mut transaction = self.repeatable_read().await?;
        let generation: u64 =
            sqlx::query_scalar("SELECT gen FROM installation").fetch_one(&mut *transaction).await?;
        let available: Vec<(u32, u16, u32)> = sqlx::query_as(
            "SELECT s.activity, s.sku, s.available FROM sku_stock s \
             JOIN activities a ON a.id = s.activity AND a.state IN (2, 3) AND a.taken_over = 0",
        )
        .fetch_all(&mut *transaction)
        .await?;
        let recorded: Vec<(u32, u16, i64)> = sqlx::query_as(
            "SELECT activity, sku, CAST(SUM(quantity) AS SIGNED) FROM recorded GROUP BY activity, sku",
        )
        .fetch_all(&mut *transaction)
        .await?;
        let owed: Vec<(u32, u16, i64)> = sqlx::query_as(
            "SELECT activity, sku, CAST(SUM(quantity) AS SIGNED) FROM ledger WHERE done = 0 GROUP BY activity, sku",
        )
        .fetch_all(&mut *transaction)
        .await?;
        let loading: Vec<(u32, u16)> =
            sqlx::query_as("SELECT DISTINCT activity, sku FROM loads WHERE state = 1")
                .fetch_all(&mut *transaction)
                .await?;
        transaction.rollback().await?;
        let mut due: BTreeMap<SkuKey, StockDue> = BTreeMap::new();
        for (activity, sku, available) in available {
            due.entry(failure::sku_key(activity, sku)).or_default().available = available.into();
        }
        for (activity, sku, units) in recorded {
            if let Some(due) = due.get_mut(&failure::sku_key(activity, sku)) {
                due.available = due.available.saturating_sub(units);
            }
        }
        for (activity, sku, units) in owed {
            if let Some(due) = due.get_mut(&failure::sku_key(activity, sku)) {
                due.owed = units;
            }
        }
        for (activity, sku) in loading {
            if let Some(due) = due.get_mut(&failure::sku_key(activity, sku)) {
                due.is_loading = true;
            }
        }
        Ok((Gen(generation), due))
    }
}

fn placed((shard, user, mark): (ShardId, UserId, Mark)) -> PlacedOrder {
    PlacedOrder { shard, user, mark }
}

/// Page by page, so that rows as they come from the server are not all held beside what is made of them.
async fn orders(
    connection: &mut MySqlConnection,
    activity: ActivityId,
    read: &(dyn Fn(usize) + Send + Sync),
) -> Result<Vec<PlacedOrder>, Failure> {
    let (mut orders, mut after) = (Vec::new(), 0_u64);
    loop {
        let mut rows: Vec<PlacedMarkRow> = sqlx::query_as(
            "SELECT shard, user, number, activity, sku, quantity, attempt, state, pay_by_ms \
             FROM orders FORCE INDEX (orders_attempt) WHERE activity = ? AND user > ? AND source = 1 \
             ORDER BY user LIMIT ?",
        )
        .bind(activity.0)
        .bind(after)
        .bind(PAGE_ROWS)
        .fetch_all(&mut *connection)
        .await?;
        let is_last = rows.len() < usize::from(PAGE_ROWS);
        // Whose orders may go on behind the page comes whole with the next one: nobody has a page of them.
        let last = rows.last().map(|row| row.1);
        if let Some(last) = last.filter(|_| !is_last) {
            rows.retain(|row| row.1 != last);
        }
        after = rows.last().map_or(after, |row| row.1);
        for row in rows {
            orders.push(placed(placed_mark(row)?));
        }
        read(orders.len());
        if is_last {
            return Ok(orders);
        }
    }
}

async fn ledger(connection: &mut MySqlConnection, activity: ActivityId) -> Result<Vec<LedgerRow>, Failure> {
    type Row = (bool, u8, u64, u64, u16, u16, u8, u8);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT done, shard, user, number, sku, quantity, attempt, state FROM ledger WHERE activity = ?",
    )
    .bind(activity.0)
    .fetch_all(connection)
    .await?;
    let row = |(is_done, shard, user, number, sku, quantity, attempt, state): Row| {
        let order = placed_mark((shard, user, number, activity.0, sku, quantity, attempt, state, 0))?;
        Ok(LedgerRow { order: placed(order), is_done })
    };
    rows.into_iter().map(row).collect()
}

async fn loads(connection: &mut MySqlConnection, activity: ActivityId) -> Result<Vec<LoadShare>, Failure> {
    let rows: Vec<(String, u16, u8, u16, u8, Option<u32>)> = sqlx::query_as(
        "SELECT l.call_id, s.round, s.shard, l.sku, l.kind, s.applied FROM loads l \
         JOIN activities a ON a.id = l.activity AND l.ordinal > a.taken_loads \
         JOIN load_shards s ON s.ordinal = l.ordinal WHERE l.activity = ? ORDER BY l.ordinal, s.round, s.shard",
    )
    .bind(activity.0)
    .fetch_all(connection)
    .await?;
    let share = |(call_id, round, shard, sku, kind, applied): (String, u16, u8, u16, u8, Option<u32>)| {
        let signed =
            |units: u32| if kind == 1 { i64::from(units) } else { i64::from(units).saturating_neg() };
        Ok(LoadShare {
            load_id: format!("{call_id}#{round}"),
            shard: failure::shard_id(shard)?,
            sku: SkuId(sku),
            applied: applied.map(signed),
        })
    };
    rows.into_iter().map(share).collect()
}

/// Additions written less units taken, as SQL.
pub(super) const LOADED: &str = "COALESCE((SELECT CAST(SUM(IF(l.kind = 1, 1, -1) * CAST(l.applied AS SIGNED)) AS SIGNED) \
     FROM loads l WHERE l.activity = s.activity AND l.sku = s.sku), 0)";

async fn stock(
    connection: &mut MySqlConnection,
    activity: ActivityId,
) -> Result<BTreeMap<SkuId, StockRow>, Failure> {
    let select = format!("SELECT s.sku, s.available, s.sold, {LOADED} FROM sku_stock s WHERE s.activity = ?");
    let rows: Vec<(u16, u32, u32, i64)> =
        sqlx::query_as(sqlx::AssertSqlSafe(select)).bind(activity.0).fetch_all(connection).await?;
    let row = |(sku, available, sold, loaded): (u16, u32, u32, i64)| {
        (SkuId(sku), StockRow { available: available.into(), sold: sold.into(), loaded })
    };
    Ok(rows.into_iter().map(row).collect())
}

async fn outbox(
    connection: &mut MySqlConnection,
    activity: ActivityId,
) -> Result<HashSet<OrderNumber>, Failure> {
    let due: Vec<u64> = sqlx::query_scalar(
        "SELECT x.number FROM outbox x JOIN orders o ON o.number = x.number WHERE x.done = 0 AND o.activity = ?",
    )
    .bind(activity.0)
    .fetch_all(connection)
    .await?;
    Ok(due.into_iter().map(OrderNumber).collect())
}
