//! Loads: additions and removals of stock, written by operators and applied exactly once.
//!
//! A load is a row first (pending) and becomes stock in the one transaction that marks it done. Run by the
//! writer task of the serving process, or by an operator's command that holds the folder's lock; never by both.

use sqlx::{Connection, SqliteConnection};

use super::error::Failure;
use super::rows::{self, Wanted};
use super::stock_loads::{Kind, Load, Touched, apply};
use crate::stock::calls::{Change, Event, SHARDS, ShardId};

/// Loads in one transaction, and so SKUs in one event, at most.
const LOADS_MAX: u32 = 64;

/// What one transaction applied.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) loads: u64,
    /// Each shard's seq before it.
    pub(super) seq_before: [u64; SHARDS],
    pub(super) events: Vec<(ShardId, Event)>,
}

/// Applies the oldest pending loads in one transaction; 0 when none is pending.
pub(super) async fn apply_some(connection: &mut SqliteConnection, now_ms: u64) -> Result<Applied, Failure> {
    if pending(connection).await?.is_empty() {
        let seq_before = rows::load(connection, &Wanted::default(), now_ms).await?.seq;
        return Ok(Applied { seq_before, ..Applied::default() });
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let loads = pending(&mut transaction).await?;
    let keys: Vec<_> =
        loads.iter().flat_map(|load| ShardId::all().map(move |shard| (shard, load.sku))).collect();
    let wanted = Wanted { stock: keys.clone(), transfers: keys, ..Wanted::default() };
    let mut batch = rows::load(&mut transaction, &wanted, now_ms).await?;
    let seq_before = batch.seq;
    let mut touched = Touched::default();
    for load in &loads {
        let amounts = apply(&mut batch, load, &mut touched).map_err(Failure::Corrupt)?;
        record(&mut transaction, load, &amounts, now_ms).await?;
    }
    for (shard, skus) in ShardId::all().zip(touched).filter(|(_, skus)| !skus.is_empty()) {
        batch.append(shard, Change::Loaded, &skus.into_iter().collect::<Vec<_>>());
    }
    rows::store(&mut transaction, &batch).await?;
    // An activity is loaded when none of its first loads is pending.
    sqlx::query(
        "UPDATE activities SET state = 2 WHERE state = 1 AND NOT EXISTS \
         (SELECT 1 FROM loads l WHERE l.activity = activities.id AND l.state = 1)",
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query("UPDATE installation SET catalog_version = catalog_version + 1")
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(Applied { loads: loads.len() as u64, seq_before, events: batch.events })
}

async fn pending(connection: &mut SqliteConnection) -> Result<Vec<Load>, Failure> {
    let rows: Vec<(i64, u32, u16, u8, u32)> = sqlx::query_as(
        "SELECT ordinal, activity, sku, kind, amount FROM loads WHERE state = 1 ORDER BY ordinal LIMIT ?",
    )
    .bind(LOADS_MAX)
    .fetch_all(connection)
    .await?;
    let load = |(ordinal, activity, sku, kind, amount)| {
        let (ordinal, sku) = (rows::unsigned(ordinal)?, rows::sku_key(activity, sku));
        Ok(Load { ordinal, sku, kind: Kind::of(kind), amount })
    };
    rows.into_iter().map(load).collect()
}

async fn record(
    connection: &mut SqliteConnection,
    load: &Load,
    amounts: &[u32; SHARDS],
    now_ms: u64,
) -> Result<(), Failure> {
    let applied: u64 = amounts.iter().map(|units| u64::from(*units)).sum();
    let amounts = amounts.map(|units| units.to_string()).join(",");
    sqlx::query("UPDATE loads SET state = 2, applied = ?, amounts = ?, done_at_ms = ? WHERE ordinal = ?")
        .bind(rows::signed(applied))
        .bind(format!("[{amounts}]"))
        .bind(rows::signed(now_ms))
        .bind(rows::signed(load.ordinal))
        .execute(connection)
        .await?;
    Ok(())
}
