//! The rows that operators' commands, the preheat and the reserve write alike: loads and their shares, stock added, the
//! activity's lock, the catalogue's version; and why a write was not made.
//!
//! Each runs inside a transaction of its caller.

use std::sync::LazyLock;

use sqlx::{MySql, MySqlConnection};

use super::catalog::ActivityState;
use super::failure::Failure;
use super::statements::{Shapes, write};
use crate::protocol::{ActivityId, SkuKey};
use crate::store::StoreError;
use crate::store::catalog::STOCK_MAX;

static INSERT_SHARES: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new("INSERT INTO load_shards (ordinal, round, shard, wanted) VALUES ", "(?,?,?,?)", "")
});

/// Why a write was not made.
#[derive(Debug, thiserror::Error)]
pub enum MySqlRefused {
    /// The id is taken.
    #[error("activity {0} exists already; choose another id")]
    ActivityExists(ActivityId),
    /// No such activity.
    #[error("there is no activity {0}")]
    NoActivity(ActivityId),
    /// The activity has no such SKU.
    #[error("activity {} has no SKU {}", .0.activity, .0.sku)]
    NoSku(SkuKey),
    /// The activity is ending or archived.
    #[error("activity {0} has ended; its stock does not change any more")]
    Ended(ActivityId),
    /// The activity is sold from the database.
    #[error(
        "activity {0} was taken over and is sold from the database; its stock changes again once Redis sells it: \
         rushgate takeover --back --activity {0}"
    )]
    TakenOver(ActivityId),
    /// More stock than an SKU may have.
    #[error("SKU {sku} would have {total} units; the greatest stock is {STOCK_MAX}")]
    TooMuchStock {
        /// The article.
        sku: SkuKey,
        /// Loaded, planned and asked for.
        total: u64,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) type Written<T> = Result<Result<T, MySqlRefused>, Failure>;

pub(super) async fn commit(mut transaction: sqlx::Transaction<'_, MySql>) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE catalog SET version = version + 1").execute(&mut *transaction).await?;
    transaction.commit().await
}

/// Locks an activity's row; its state, and whether it has opened by the database's clock.
pub(super) async fn lock_activity(
    connection: &mut MySqlConnection,
    id: ActivityId,
) -> Result<Option<(ActivityState, bool)>, Failure> {
    let found: Option<(u8, bool)> = sqlx::query_as(concat!(
        "SELECT state, opens_at_ms <= ",
        now_ms!(),
        " FROM activities WHERE id = ? FOR UPDATE"
    ))
    .bind(id.0)
    .fetch_optional(connection)
    .await?;
    found.map(|(state, has_opened)| Ok((ActivityState::of(state)?, has_opened))).transpose()
}

pub(super) async fn add_available(
    connection: &mut MySqlConnection,
    sku: SkuKey,
    units: u32,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE sku_stock SET available = available + ?, version = version + 1 WHERE activity = ? AND sku = ?",
    )
    .bind(units)
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn insert_load(
    connection: &mut MySqlConnection,
    sku: SkuKey,
    kind: u8,
    verb: &str,
    amount: u32,
) -> Result<(u64, String), Failure> {
    let inserted = sqlx::query(concat!(
        "INSERT INTO loads (id, call_id, activity, sku, kind, amount, state, applied, created_at_ms) \
         VALUES (UUID(), '', ?, ?, ?, ?, 1, ?, ",
        now_ms!(),
        ")"
    ))
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .bind(kind)
    .bind(amount)
    .bind(if kind == 1 { amount } else { 0 })
    .execute(&mut *connection)
    .await?;
    let ordinal = inserted.last_insert_id();
    // Readable, and unique by the ordinal.
    let id = format!("{sku}/{verb}/{ordinal}");
    sqlx::query("UPDATE loads SET id = ?, call_id = ? WHERE ordinal = ?")
        .bind(id.as_str())
        .bind(id.as_str())
        .bind(ordinal)
        .execute(connection)
        .await?;
    Ok((ordinal, id))
}

/// Shares of one load or of several: the load's ordinal, the round, the shard, the units.
pub(super) async fn insert_shares(
    connection: &mut MySqlConnection,
    shares: &[(u64, u16, u8, u32)],
) -> Result<(), sqlx::Error> {
    write(connection, &INSERT_SHARES, shares, |query, (ordinal, round, shard, units)| {
        query.bind(*ordinal).bind(*round).bind(*shard).bind(*units)
    })
    .await
}
