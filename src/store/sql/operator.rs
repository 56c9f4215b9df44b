//! What an operator's command does to a data folder, from its own process, whether or not one serves it.
//!
//! Every write is one `BEGIN IMMEDIATE` transaction that raises the catalogue's version, which the serving
//! process polls. Stock never changes here directly: a command writes a load, and the serving process applies
//! it; only where nobody serves (the folder's lock is free) the command applies it itself, holding the lock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::SqliteTransaction;
use sqlx::{Connection, SqliteConnection};
use tokio::time::Instant;

use super::error::{Failure, OpenError};
use super::loads;
use super::lock::{FolderLock, Role};
use super::open::{self, IfMissing};
use super::reserve_figures::ReserveFigures;
use super::stock_loads::Kind;
use super::writer::now_ms;
use super::{read, rows};
use crate::protocol::{ActivityId, OrderState, SkuId, SkuKey};
use crate::stock::calls::SHARDS;
use crate::store::StoreError;
use crate::store::catalog::{Activity, STOCK_MAX};

const POLL: Duration = Duration::from_millis(20);

/// Why a write was not made.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The id is taken.
    #[error("activity {0} exists already; choose another id")]
    ActivityExists(ActivityId),
    /// No such activity.
    #[error("there is no activity {0}")]
    NoActivity(ActivityId),
    /// The activity has no such SKU.
    #[error("activity {} has no SKU {}", .0.activity, .0.sku)]
    NoSku(SkuKey),
    /// More stock than an SKU may have.
    #[error("SKU {sku} would have {total} units; the greatest stock is {STOCK_MAX}")]
    TooMuchStock {
        /// The article.
        sku: SkuKey,
        /// Loaded, pending and asked for.
        total: u64,
    },
    /// The folder could not be locked or its database not be reached.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Store(failure.into())
    }
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Failure::from(error).into()
    }
}

/// A change of stock to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewLoad {
    /// Units added.
    Add(u32),
    /// Units removed, as far as they are free.
    Remove(u32),
}

/// A load that is not applied yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingLoad {
    /// Its id.
    pub id: String,
    /// What was asked for.
    pub asked: NewLoad,
}

/// What one SKU's rows add up to, at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkuFigures {
    /// Loaded so far, additions less removals.
    pub total: u64,
    /// Free in the 16 shards.
    pub free: u64,
    /// Moved out of a shard and not yet brought into another.
    pub in_transit: u64,
    /// Units of orders that are recorded and not settled.
    pub recorded: u64,
    /// Units of orders that hold them.
    pub sold: u64,
    /// Orders by state; the state's wire number orders them.
    pub orders: BTreeMap<u8, u64>,
    /// Loads not applied yet, oldest first.
    pub pending_loads: Vec<PendingLoad>,
    /// What is held back from Redis, where anything ever was.
    pub reserve: Option<ReserveFigures>,
}

/// A connection for one command.
#[derive(Debug)]
pub struct OperatorConnection {
    folder: PathBuf,
    connection: SqliteConnection,
}

impl OperatorConnection {
    pub(super) async fn open(folder: &Path, if_missing: IfMissing) -> Result<Self, OpenError> {
        let connection = open::open_to_operate(folder, if_missing).await?;
        Ok(Self { folder: folder.into(), connection })
    }

    /// Closes the connection; a command that ends without it loses nothing.
    pub async fn close(self) {
        let _ = self.connection.close().await;
    }

    /// Writes an activity with one pending load per SKU (its `stock_total` is what is to be loaded); their ids.
    pub async fn create(&mut self, activity: &Activity, pay_within_ms: u64) -> Result<Vec<String>, Refused> {
        let mut transaction = self.begin().await?;
        if exists(&mut transaction, activity.id).await? {
            return Err(Refused::ActivityExists(activity.id));
        }
        sqlx::query(
            "INSERT INTO activities (id, name, state, entry_open, opens_at_ms, closes_at_ms, per_user_limit, pay_within_ms, \
             created_at_ms, eligibility, allow_list, buy_again_max) VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(activity.id.0)
        .bind(activity.name.as_str())
        .bind(activity.entry_open)
        .bind(rows::signed(activity.opens_at_ms))
        .bind(rows::signed(activity.closes_at_ms))
        .bind(activity.per_user_limit)
        .bind(rows::signed(pay_within_ms))
        .bind(rows::signed(now_ms()))
        .bind(activity.eligibility.rule.as_str())
        .bind(activity.eligibility.allow_list)
        .bind(activity.buy_again_max)
        .execute(&mut *transaction)
        .await?;
        let mut loads = Vec::with_capacity(activity.skus.len());
        for sku in &activity.skus {
            sqlx::query("INSERT INTO skus (activity, sku, name, price_minor) VALUES (?, ?, ?, ?)")
                .bind(activity.id.0)
                .bind(sku.id.0)
                .bind(sku.name.as_str())
                .bind(rows::signed(sku.price_minor))
                .execute(&mut *transaction)
                .await?;
            let key = SkuKey { activity: activity.id, sku: sku.id };
            loads.push(insert_load(&mut transaction, key, NewLoad::Add(sku.stock_total)).await?);
        }
        commit(transaction).await?;
        Ok(loads)
    }

    /// Every activity that is not archived.
    pub async fn activities(&mut self) -> Result<Vec<Activity>, Refused> {
        let mut transaction = self.connection.begin().await?;
        Ok(read::read_activities(&mut transaction).await?)
    }

    /// Opens or closes an activity's entry.
    pub async fn set_entry(&mut self, id: ActivityId, open: bool) -> Result<(), Refused> {
        let mut transaction = self.begin().await?;
        let changed = sqlx::query("UPDATE activities SET entry_open = ? WHERE id = ?")
            .bind(open)
            .bind(id.0)
            .execute(&mut *transaction)
            .await?;
        if changed.rows_affected() == 0 {
            return Err(Refused::NoActivity(id));
        }
        commit(transaction).await
    }

    /// Writes a load; its id.
    pub async fn write_load(&mut self, sku: SkuKey, load: NewLoad) -> Result<String, Refused> {
        let mut transaction = self.begin().await?;
        if !exists(&mut transaction, sku.activity).await? {
            return Err(Refused::NoActivity(sku.activity));
        }
        let found: Option<i64> = sqlx::query_scalar("SELECT 1 FROM skus WHERE activity = ? AND sku = ?")
            .bind(sku.activity.0)
            .bind(sku.sku.0)
            .fetch_optional(&mut *transaction)
            .await?;
        if found.is_none() {
            return Err(Refused::NoSku(sku));
        }
        if let NewLoad::Add(amount) = load {
            let total = committed_total(&mut transaction, sku).await?.saturating_add(u64::from(amount));
            if total > u64::from(STOCK_MAX) {
                return Err(Refused::TooMuchStock { sku, total });
            }
        }
        let id = insert_load(&mut transaction, sku, load).await?;
        commit(transaction).await?;
        Ok(id)
    }

    /// Waits up to `patience` for a load to be applied, by the serving process or, where there is none, here.
    /// The units really added or removed; `None` while it is pending.
    pub async fn settle(&mut self, load: &str, patience: Duration) -> Result<Option<u32>, Refused> {
        let deadline = Instant::now().checked_add(patience);
        loop {
            self.drive_if_unserved().await?;
            let (state, applied): (u8, u32) = sqlx::query_as("SELECT state, applied FROM loads WHERE id = ?")
                .bind(load)
                .fetch_one(&mut self.connection)
                .await?;
            if state == 2 {
                return Ok(Some(applied));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Applies what is pending if the folder's lock is free; whether it was.
    pub async fn drive_if_unserved(&mut self) -> Result<bool, Refused> {
        let Some(_lock) = FolderLock::try_acquire(&self.folder, Role::Operator)? else {
            return Ok(false);
        };
        // Nobody listens to these events: whoever serves next begins a new generation.
        while loads::apply_some(&mut self.connection, now_ms()).await?.loads > 0 {}
        Ok(true)
    }

    /// What each SKU of an activity adds up to, by SKU id, all at one instant.
    pub async fn figures(
        &mut self,
        id: ActivityId,
    ) -> Result<(Activity, BTreeMap<SkuId, SkuFigures>), Refused> {
        let mut transaction = self.connection.begin().await?;
        let activity = read::read_activities(&mut transaction).await?.into_iter().find(|one| one.id == id);
        let activity = activity.ok_or(Refused::NoActivity(id))?;
        let mut figures: BTreeMap<_, _> =
            activity.skus.iter().map(|sku| (sku.id, SkuFigures::default())).collect();
        for sku in &activity.skus {
            figures.entry(sku.id).or_default().total = u64::from(sku.stock_total);
        }
        read_units(&mut transaction, id, &mut figures).await?;
        read_orders(&mut transaction, id, &mut figures).await?;
        read_pending(&mut transaction, id, &mut figures).await?;
        Ok((activity, figures))
    }

    pub(super) async fn begin(&mut self) -> Result<SqliteTransaction<'_>, Refused> {
        Ok(self.connection.begin_with("BEGIN IMMEDIATE").await?)
    }
}

pub(super) async fn commit(mut transaction: SqliteTransaction<'_>) -> Result<(), Refused> {
    sqlx::query("UPDATE installation SET catalog_version = catalog_version + 1")
        .execute(&mut *transaction)
        .await?;
    Ok(transaction.commit().await?)
}

async fn exists(connection: &mut SqliteConnection, id: ActivityId) -> Result<bool, Refused> {
    let found: Option<i64> = sqlx::query_scalar("SELECT 1 FROM activities WHERE id = ?")
        .bind(id.0)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// Units loaded or about to be; pending removals may yet remove nothing and do not count.
async fn committed_total(connection: &mut SqliteConnection, sku: SkuKey) -> Result<u64, Refused> {
    let total: i64 = sqlx::query_scalar(
        "SELECT COALESCE(SUM(CASE WHEN kind = 2 THEN -applied WHEN state = 1 THEN amount ELSE applied END), 0) \
         FROM loads WHERE activity = ? AND sku = ?",
    )
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .fetch_one(connection)
    .await?;
    Ok(rows::unsigned(total)?)
}

async fn insert_load(
    connection: &mut SqliteConnection,
    sku: SkuKey,
    load: NewLoad,
) -> Result<String, Refused> {
    let (kind, verb, amount) = match load {
        NewLoad::Add(amount) => (Kind::Add, "add", amount),
        NewLoad::Remove(amount) => (Kind::Remove, "remove", amount),
    };
    // The transaction is the only writer, so the next ordinal is known and makes the id readable and unique.
    let last: Option<i64> = sqlx::query_scalar("SELECT seq FROM sqlite_sequence WHERE name = 'loads'")
        .fetch_optional(&mut *connection)
        .await?;
    let id = format!("{sku}/{verb}/{}", last.unwrap_or(0).saturating_add(1));
    sqlx::query(
        "INSERT INTO loads (id, activity, sku, kind, amount, state, created_at_ms) VALUES (?, ?, ?, ?, ?, 1, ?)",
    )
    .bind(id.as_str())
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .bind(kind as u8)
    .bind(amount)
    .bind(rows::signed(now_ms()))
    .execute(connection)
    .await?;
    Ok(id)
}

type Figures = BTreeMap<SkuId, SkuFigures>;

async fn read_units(
    connection: &mut SqliteConnection,
    id: ActivityId,
    figures: &mut Figures,
) -> Result<(), Refused> {
    let free: Vec<(u16, i64)> = sqlx::query_as(
        "SELECT k.sku, SUM(k.free) FROM shards s CROSS JOIN stock k \
         ON k.shard = s.shard AND k.activity = ? GROUP BY k.sku",
    )
    .bind(id.0)
    .fetch_all(&mut *connection)
    .await?;
    for (sku, units) in free {
        figures.entry(SkuId(sku)).or_default().free = rows::unsigned(units)?;
    }
    let moved: Vec<(u16, i64)> = sqlx::query_as(
        "SELECT t.sku, SUM(t.moved_out - t.brought_in) FROM shards s CROSS JOIN transfers t \
         ON t.shard = s.shard AND t.activity = ? GROUP BY t.sku",
    )
    .bind(id.0)
    .fetch_all(connection)
    .await?;
    for (sku, units) in moved {
        figures.entry(SkuId(sku)).or_default().in_transit = rows::unsigned(units)?;
    }
    Ok(())
}

async fn read_orders(
    connection: &mut SqliteConnection,
    id: ActivityId,
    figures: &mut Figures,
) -> Result<(), Refused> {
    let counted: Vec<(u16, u8, i64, i64)> = sqlx::query_as(
        "SELECT o.sku, o.state, COUNT(*), SUM(o.quantity) FROM shards s CROSS JOIN orders o \
         ON o.shard = s.shard AND o.activity = ? GROUP BY o.sku, o.state",
    )
    .bind(id.0)
    .fetch_all(connection)
    .await?;
    for (sku, state, orders, units) in counted {
        let figures = figures.entry(SkuId(sku)).or_default();
        figures.orders.insert(state, rows::unsigned(orders)?);
        if OrderState::from_wire(state).is_some_and(OrderState::is_live) {
            figures.sold = figures.sold.saturating_add(rows::unsigned(units)?);
        }
    }
    Ok(())
}

async fn read_pending(
    connection: &mut SqliteConnection,
    id: ActivityId,
    figures: &mut Figures,
) -> Result<(), Refused> {
    let pending: Vec<(u16, String, u8, u32)> = sqlx::query_as(
        "SELECT sku, id, kind, amount FROM loads WHERE activity = ? AND state = 1 ORDER BY ordinal",
    )
    .bind(id.0)
    .fetch_all(connection)
    .await?;
    for (sku, id, kind, amount) in pending {
        let asked = if kind == Kind::Add as u8 { NewLoad::Add(amount) } else { NewLoad::Remove(amount) };
        figures.entry(SkuId(sku)).or_default().pending_loads.push(PendingLoad { id, asked });
    }
    Ok(())
}

// The queries above join with the 16 shard rows, so that each shard's range is one seek.
const _: () = assert!(SHARDS == 16, "the schema has 16 shard rows");
