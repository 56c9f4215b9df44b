//! Preheat (rule 16 of the stock protocol): one compare-and-set CREATED → LOADED that writes every SKU's 16 amounts.
//!
//! Run by an operator's command or a writer's timer, as often as anybody likes: it loads once. Never after opening:
//! users who were told that nothing is loaded would see a sale begin anew.

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::catalog::ActivityState;
use super::failure::{Failure, retried};
use super::operator_rows::{commit, insert_shares, lock_activity};
use crate::protocol::{ActivityId, SkuId, SkuKey};
use crate::stock::calls::SHARDS;
use crate::store::StoreError;
use crate::store::sql::shares;

/// What came of a preheat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preheat {
    /// The loads are written; writers drive them.
    Loaded,
    /// They were written before; nothing changed.
    WasLoaded,
    /// The activity has opened by the database's clock; nothing changed.
    AfterOpening,
    /// There is no such activity.
    NoActivity,
}

impl MySqlInstallation {
    /// Writes the first loads of an activity, once, before it opens.
    pub async fn preheat(&self, id: ActivityId) -> Result<Preheat, StoreError> {
        retried!(self.options.call_timeout; self.try_preheat(id))
    }

    /// Activities that are not preheated and open within `ahead_ms` by the database's clock.
    pub async fn due_preheats(&self, ahead_ms: u64) -> Result<Vec<ActivityId>, StoreError> {
        retried!(self.options.call_timeout; self.read_due_preheats(ahead_ms))
    }

    async fn read_due_preheats(&self, ahead_ms: u64) -> Result<Vec<ActivityId>, Failure> {
        let due: Vec<u32> = sqlx::query_scalar(concat!(
            "SELECT id FROM activities WHERE state = 1 AND opens_at_ms > ",
            now_ms!(),
            " AND opens_at_ms <= ? + ",
            now_ms!(),
            " ORDER BY opens_at_ms, id"
        ))
        .bind(ahead_ms)
        .fetch_all(&self.pool)
        .await?;
        Ok(due.into_iter().map(ActivityId).collect())
    }

    async fn try_preheat(&self, id: ActivityId) -> Result<Preheat, Failure> {
        let mut transaction = self.pool.begin().await?;
        match lock_activity(&mut transaction, id).await? {
            None => return Ok(Preheat::NoActivity),
            Some((ActivityState::Created, false)) => {}
            Some((ActivityState::Created, true)) => return Ok(Preheat::AfterOpening),
            Some(_) => return Ok(Preheat::WasLoaded),
        }
        // One call per shard tells all SKUs.
        sqlx::query(concat!(
            "INSERT INTO loads (id, call_id, activity, sku, kind, amount, state, applied, created_at_ms) \
             SELECT CONCAT(activity, '/', sku, '/preheat'), CONCAT(activity, '/preheat'), activity, sku, 1, \
               planned_stock, 1, planned_stock, ",
            now_ms!(),
            " FROM skus WHERE activity = ? ORDER BY sku"
        ))
        .bind(id.0)
        .execute(&mut *transaction)
        .await?;
        insert_amounts(&mut transaction, id).await?;
        sqlx::query(
            "UPDATE sku_stock s JOIN skus k ON k.activity = s.activity AND k.sku = s.sku \
             SET s.available = s.available + k.planned_stock, s.version = s.version + 1 WHERE s.activity = ?",
        )
        .bind(id.0)
        .execute(&mut *transaction)
        .await?;
        sqlx::query("UPDATE activities SET state = 2 WHERE id = ? AND state = 1")
            .bind(id.0)
            .execute(&mut *transaction)
            .await?;
        commit(transaction).await?;
        Ok(Preheat::Loaded)
    }
}

async fn insert_amounts(connection: &mut MySqlConnection, id: ActivityId) -> Result<(), Failure> {
    let loads: Vec<(u64, u16, u32)> = sqlx::query_as(
        "SELECT ordinal, sku, amount FROM loads WHERE call_id = CONCAT(?, '/preheat') ORDER BY ordinal",
    )
    .bind(id.0)
    .fetch_all(&mut *connection)
    .await?;
    let amounts = |(ordinal, sku, amount): (u64, u16, u32)| {
        let shares = shares::split(amount, SkuKey { activity: id, sku: SkuId(sku) });
        shares.into_iter().zip(0_u8..).map(move |(units, shard)| (ordinal, 1, shard, units))
    };
    let rows: Vec<_> = loads.into_iter().flat_map(amounts).collect();
    Ok(insert_shares(connection, &rows).await?)
}

const _: () = assert!(SHARDS == 16, "a preheat writes 16 amounts per SKU");
