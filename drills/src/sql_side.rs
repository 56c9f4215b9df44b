//! What SQL holds, by plain queries: the audit's own view, without any code of the library's stores.

use std::collections::BTreeMap;
use std::time::Duration;

use rushgate_servers::Database;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions as _, Row as _};

use crate::error::{DrillError, Result};
use crate::layout::{ACTIVITY, SHARDS};

const CONNECT_MAX: Duration = Duration::from_secs(10);

/// One row of `orders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderRow {
    pub(crate) user: u64,
    pub(crate) sku: u16,
    pub(crate) quantity: u64,
    pub(crate) attempt: u64,
    pub(crate) state: u8,
    pub(crate) shard: usize,
    /// Sold from the database, not by Redis.
    pub(crate) is_of_reserve: bool,
}

impl OrderRow {
    /// Whether it holds units.
    pub(crate) fn is_live(&self) -> bool {
        is_live(self.state)
    }
}

/// Reserved, pending payment, paid, recorded.
pub(crate) fn is_live(state: u8) -> bool {
    matches!(state, 1 | 2 | 3 | 7)
}

/// Everything that the audit compares.
#[derive(Clone, Debug, Default)]
pub(crate) struct SqlSide {
    /// By number.
    pub(crate) orders: BTreeMap<u64, OrderRow>,
    /// Available and sold units by SKU.
    pub(crate) stock: BTreeMap<u16, (u64, u64)>,
    /// Units loaded (added less taken) by SKU and shard.
    pub(crate) loaded: BTreeMap<(u16, usize), i64>,
    /// Units of the reserve that are free or moving, by SKU.
    pub(crate) reserve: BTreeMap<u16, i64>,
    /// Order numbers with a ledger row.
    pub(crate) ledger: Vec<u64>,
    pub(crate) dead_letters: u64,
    pub(crate) generation: u64,
}

/// What SQL still owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) loads: u64,
    pub(crate) releases: u64,
    pub(crate) marks: u64,
    pub(crate) recoveries: u64,
    /// Orders that are recorded and not settled.
    pub(crate) recorded: u64,
}

pub(crate) async fn connect(database: &Database) -> Result<MySqlConnection> {
    let options = MySqlConnectOptions::new()
        .host(&database.host)
        .port(database.port)
        .username(&database.user)
        .password(&database.password)
        .database(&database.name);
    let connected = tokio::time::timeout(CONNECT_MAX, options.connect()).await;
    let late = |_| DrillError::Late {
        what: "the database did not let the audit in".to_owned(),
        waited: CONNECT_MAX,
    };
    Ok(connected.map_err(late)??)
}

pub(crate) async fn pending_loads(database: &Database) -> Result<u64> {
    Ok(owed(database).await?.loads)
}

/// What is not done yet. Recoveries that a later one replaced do not count.
pub(crate) async fn owed(database: &Database) -> Result<Owed> {
    let mut connection = connect(database).await?;
    let row = sqlx::query(
        "SELECT CAST((SELECT COUNT(*) FROM loads WHERE state <> 2) AS UNSIGNED), \
         CAST((SELECT COUNT(*) FROM ledger WHERE done = 0) AS UNSIGNED), \
         CAST((SELECT COUNT(*) FROM outbox WHERE done = 0) AS UNSIGNED), \
         CAST((SELECT COUNT(*) FROM recoveries WHERE state <> 3 AND gen = (SELECT MAX(gen) FROM recoveries)) \
         AS UNSIGNED), \
         CAST((SELECT COUNT(*) FROM recorded) AS UNSIGNED)",
    )
    .fetch_one(&mut connection)
    .await?;
    Ok(Owed {
        loads: row.try_get(0)?,
        releases: row.try_get(1)?,
        marks: row.try_get(2)?,
        recoveries: row.try_get(3)?,
        recorded: row.try_get(4)?,
    })
}

pub(crate) async fn read(database: &Database) -> Result<SqlSide> {
    let mut connection = connect(database).await?;
    let mut side = SqlSide::default();
    let orders = sqlx::query(
        "SELECT number, user, CAST(sku AS UNSIGNED), CAST(quantity AS UNSIGNED), CAST(attempt AS UNSIGNED), \
         CAST(state AS UNSIGNED), CAST(shard AS UNSIGNED), CAST(source AS UNSIGNED) FROM orders WHERE activity = ?",
    )
    .bind(ACTIVITY)
    .fetch_all(&mut connection)
    .await?;
    for row in orders {
        let small = |at: usize| row.try_get::<u64, _>(at);
        let order = OrderRow {
            user: small(1)?,
            sku: narrow(small(2)?)?,
            quantity: small(3)?,
            attempt: small(4)?,
            state: narrow(small(5)?)?,
            shard: usize::from(narrow::<u8>(small(6)?)?),
            is_of_reserve: small(7)? == 2,
        };
        side.orders.insert(small(0)?, order);
    }
    let stock = sqlx::query(
        "SELECT CAST(sku AS UNSIGNED), CAST(available AS UNSIGNED), CAST(sold AS UNSIGNED) FROM sku_stock \
         WHERE activity = ?",
    )
    .bind(ACTIVITY)
    .fetch_all(&mut connection)
    .await?;
    for row in stock {
        side.stock.insert(narrow(row.try_get::<u64, _>(0)?)?, (row.try_get(1)?, row.try_get(2)?));
    }
    let loads = sqlx::query(
        "SELECT CAST(l.sku AS UNSIGNED), CAST(s.shard AS UNSIGNED), \
         CAST(SUM(CASE l.kind WHEN 1 THEN 1 ELSE -1 END * CAST(COALESCE(s.applied, 0) AS SIGNED)) AS SIGNED) \
         FROM loads l JOIN activities a ON a.id = l.activity AND l.ordinal > a.taken_loads \
         JOIN load_shards s ON s.ordinal = l.ordinal WHERE l.activity = ? GROUP BY l.sku, s.shard",
    )
    .bind(ACTIVITY)
    .fetch_all(&mut connection)
    .await?;
    for row in loads {
        let shard = usize::from(narrow::<u8>(row.try_get::<u64, _>(1)?)?);
        if shard < SHARDS {
            side.loaded.insert((narrow(row.try_get::<u64, _>(0)?)?, shard), row.try_get(2)?);
        }
    }
    let reserve = sqlx::query(
        "SELECT CAST(s.sku AS UNSIGNED), CAST(SUM(s.free) + COALESCE((SELECT SUM(CAST(t.moved_out AS SIGNED) \
         - CAST(t.brought_in AS SIGNED)) FROM sql_transfers t WHERE t.activity = s.activity AND t.sku = s.sku), 0) \
         AS SIGNED) FROM sql_stock s WHERE s.activity = ? GROUP BY s.activity, s.sku",
    )
    .bind(ACTIVITY);
    for row in reserve.fetch_all(&mut connection).await? {
        side.reserve.insert(narrow(row.try_get::<u64, _>(0)?)?, row.try_get(1)?);
    }
    let ledger = sqlx::query("SELECT number FROM ledger WHERE activity = ?").bind(ACTIVITY);
    for row in ledger.fetch_all(&mut connection).await? {
        side.ledger.push(row.try_get(0)?);
    }
    let counts = sqlx::query(
        "SELECT CAST((SELECT COUNT(*) FROM dead_letters) AS UNSIGNED), \
         CAST((SELECT gen FROM installation) AS UNSIGNED)",
    );
    let row = counts.fetch_one(&mut connection).await?;
    (side.dead_letters, side.generation) = (row.try_get(0)?, row.try_get(1)?);
    Ok(side)
}

fn narrow<T: TryFrom<u64>>(number: u64) -> Result<T> {
    T::try_from(number).map_err(|_| DrillError::Malformed(format!("{number} in a narrow column")))
}
