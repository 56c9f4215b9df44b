//! Additions and removals of this store's stock: rows first, each applied in the transaction that marks it done.
//!
//! Any process may drive them, several at once: the shards' rows are locked.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sqlx::MySqlConnection;
use tokio::time::Instant;

use super::MySqlStore;
use super::rows;
use crate::protocol::{SkuId, SkuKey};
use crate::stock::calls::{Change, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::catalog::{Activity, STOCK_MAX};
use crate::store::sql::NewLoad;
use crate::store::sql::batch::Batch;
use crate::store::sql::mysql::catalog::{self, ActivityState};
use crate::store::sql::mysql::failure::{self, Failure, retried};
use crate::store::sql::mysql::operator_rows::{commit, lock_activity};
use crate::store::sql::mysql::order_rows::lock_generation;
use crate::store::sql::mysql::{MySqlInstallation, MySqlRefused};
use crate::store::sql::stock_loads::{Kind, Load, Touched, apply};

/// Loads in one transaction, and so SKUs in one event, at most.
const LOADS_MAX: u32 = 64;
const POLL: Duration = Duration::from_millis(20);

impl MySqlStore {
    /// Writes a load of this store's own stock; its number.
    pub async fn write_load(&self, sku: SkuKey, load: NewLoad) -> Result<u64, MySqlRefused> {
        retried!(self.installation.options.call_timeout; self.try_write_load(sku, load))?
    }

    /// Waits until a load is applied, for `patience` at most (`None`: does not give up); units really added or taken.
    pub async fn applied_load(
        &self,
        load: u64,
        patience: Option<Duration>,
    ) -> Result<Option<u32>, StoreError> {
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        loop {
            let (state, applied) = retried!(self.installation.options.call_timeout; self.read_load(load))?;
            if state == 2 {
                return Ok(Some(applied));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn read_load(&self, load: u64) -> Result<(u8, u32), Failure> {
        let load = sqlx::query_as("SELECT state, applied FROM sql_loads WHERE ordinal = ?").bind(load);
        Ok(load.fetch_one(&self.installation.pool).await?)
    }

    async fn try_write_load(&self, sku: SkuKey, load: NewLoad) -> Result<Result<u64, MySqlRefused>, Failure> {
        let mut transaction = self.installation.pool.begin().await?;
        // Locked, so that two additions together do not exceed the greatest stock.
        match lock_activity(&mut transaction, sku.activity).await? {
            None => return Ok(Err(MySqlRefused::NoActivity(sku.activity))),
            Some((state, _)) if state >= ActivityState::Ending => {
                return Ok(Err(MySqlRefused::Ended(sku.activity)));
            }
            Some(_) => {}
        }
        let found: Option<i32> = sqlx::query_scalar("SELECT 1 FROM skus WHERE activity = ? AND sku = ?")
            .bind(sku.activity.0)
            .bind(sku.sku.0)
            .fetch_optional(&mut *transaction)
            .await?;
        if found.is_none() {
            return Ok(Err(MySqlRefused::NoSku(sku)));
        }
        let (kind, amount) = match load {
            NewLoad::Add(amount) => (Kind::Add, amount),
            NewLoad::Remove(amount) => (Kind::Remove, amount),
        };
        if let NewLoad::Add(amount) = load {
            let total = written(&mut transaction, sku).await?.saturating_add(u64::from(amount));
            if total > u64::from(STOCK_MAX) {
                return Ok(Err(MySqlRefused::TooMuchStock { sku, total }));
            }
        }
        let ordinal = insert_own_load(&mut transaction, sku, kind, amount).await?;
        commit(transaction).await?;
        Ok(Ok(ordinal))
    }

    /// Applies the oldest pending loads in one transaction; how many.
    pub(super) async fn apply_some_loads(&self) -> Result<u64, Failure> {
        let pending: Option<u64> =
            sqlx::query_scalar("SELECT ordinal FROM sql_loads WHERE state = 1 LIMIT 1")
                .fetch_optional(&self.installation.pool)
                .await?;
        if pending.is_none() {
            return Ok(0);
        }
        let mut transaction = self.installation.pool.begin().await?;
        let (generation, now_ms) = lock_generation(&mut transaction).await?;
        let mut batch = Batch::new(generation, now_ms, [0; SHARDS]);
        rows::lock_shards(&mut transaction, &ShardId::ALL, &mut batch).await?;
        let loads = read_pending(&mut transaction).await?;
        rows::read_everywhere(&mut transaction, loads.iter().map(|load| load.sku), &mut batch).await?;
        let mut touched = Touched::default();
        for load in &loads {
            let amounts = apply(&mut batch, load, &mut touched).map_err(Failure::Corrupt)?;
            record(&mut transaction, load, &amounts, now_ms).await?;
        }
        for (shard, skus) in ShardId::all().zip(touched).filter(|(_, skus)| !skus.is_empty()) {
            batch.append(shard, Change::Loaded, &skus.into_iter().collect::<Vec<_>>());
        }
        rows::write(&mut transaction, &mut batch, self.installation.options.feed_events_max).await?;
        commit(transaction).await?;
        self.publish(&batch);
        Ok(loads.len() as u64)
    }
}

async fn read_pending(connection: &mut MySqlConnection) -> Result<Vec<Load>, Failure> {
    let rows: Vec<(u64, u32, u16, u8, u32)> = sqlx::query_as(
        "SELECT ordinal, activity, sku, kind, amount FROM sql_loads WHERE state = 1 \
         ORDER BY ordinal LIMIT ? FOR UPDATE",
    )
    .bind(LOADS_MAX)
    .fetch_all(connection)
    .await?;
    let load = |(ordinal, activity, sku, kind, amount)| Load {
        ordinal,
        sku: failure::sku_key(activity, sku),
        kind: Kind::of(kind),
        amount,
    };
    Ok(rows.into_iter().map(load).collect())
}

pub(super) async fn record(
    connection: &mut MySqlConnection,
    load: &Load,
    amounts: &[u32; SHARDS],
    now_ms: u64,
) -> Result<(), Failure> {
    let applied = amounts.iter().map(|units| u64::from(*units)).sum();
    record_applied(connection, (load.ordinal, applied), amounts, now_ms).await
}

/// The same for so many units, some of which orders hold: those are in no shard's amount.
pub(in crate::store::sql::mysql) async fn record_applied(
    connection: &mut MySqlConnection,
    (ordinal, applied): (u64, u64),
    amounts: &[u32; SHARDS],
    now_ms: u64,
) -> Result<(), Failure> {
    sqlx::query("UPDATE sql_loads SET state = 2, applied = ?, amounts = ?, done_at_ms = ? WHERE ordinal = ?")
        .bind(applied)
        .bind(amounts.map(|units| units.to_string()).join(","))
        .bind(now_ms)
        .bind(ordinal)
        .execute(connection)
        .await?;
    Ok(())
}

/// Units loaded, or written to be; takes that may yet take nothing do not count.
async fn written(connection: &mut MySqlConnection, sku: SkuKey) -> Result<u64, Failure> {
    let total: u64 = sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(CASE WHEN kind = 2 THEN -CAST(applied AS SIGNED) \
           WHEN state = 1 THEN CAST(amount AS SIGNED) ELSE CAST(applied AS SIGNED) END), 0) AS UNSIGNED) \
         FROM sql_loads WHERE activity = ? AND sku = ?",
    )
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .fetch_one(connection)
    .await?;
    Ok(total)
}

/// The catalogue with this store's stock.
pub(super) async fn activities(installation: &MySqlInstallation) -> Result<Vec<Activity>, Failure> {
    let mut transaction = installation.repeatable_read().await?;
    let mut activities = catalog::read_activities(&mut transaction).await?;
    let rows: Vec<(u32, u16, u64)> = sqlx::query_as(
        "SELECT k.activity, k.sku, CAST(k.units AS UNSIGNED) FROM (SELECT activity, sku, \
           SUM(CASE kind WHEN 1 THEN CAST(applied AS SIGNED) ELSE -CAST(applied AS SIGNED) END) units \
         FROM sql_loads GROUP BY activity, sku) k",
    )
    .fetch_all(&mut *transaction)
    .await?;
    transaction.rollback().await?;
    let mut stock: HashMap<u32, BTreeMap<SkuId, u64>> = HashMap::new();
    for (activity, sku, units) in rows {
        stock.entry(activity).or_default().insert(SkuId(sku), units);
    }
    for activity in &mut activities {
        let stock = stock.remove(&activity.id.0).unwrap_or_default();
        for sku in &mut activity.skus {
            let units = stock.get(&sku.id).copied().unwrap_or_default();
            sku.stock_total = u32::try_from(units)
                .map_err(|_| Failure::Corrupt(format!("SKU {}/{} has {units} units", activity.id, sku.id)))?;
        }
    }
    Ok(activities)
}

/// A load of this store's own stock, to be applied; its ordinal.
pub(in super::super) async fn insert_own_load(
    connection: &mut MySqlConnection,
    sku: SkuKey,
    kind: Kind,
    units: u32,
) -> Result<u64, sqlx::Error> {
    let inserted = sqlx::query(concat!(
        "INSERT INTO sql_loads (activity, sku, kind, amount, state, applied, amounts, created_at_ms) \
         VALUES (?, ?, ?, ?, 1, 0, '', ",
        now_ms!(),
        ")"
    ))
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .bind(kind as u8)
    .bind(units)
    .execute(connection)
    .await?;
    Ok(inserted.last_insert_id())
}
