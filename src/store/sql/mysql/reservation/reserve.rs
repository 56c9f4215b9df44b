//! The reserve of an activity (rule 19 of the stock protocol): units that are never loaded into Redis, until an operator
//! hands what is left of them over.
//!
//! Each is one transaction. A unit is in exactly one place at any instant: this store's shards, an order of this store, or
//! (after the transaction that took it out of here) a load for Redis, which writers drive like any other.

use std::collections::BTreeMap;

use sqlx::MySqlConnection;

use super::MySqlStore;
use super::loads::{insert_own_load, record};
use super::rows;
use crate::protocol::{ActivityId, SkuId, SkuKey};
use crate::stock::calls::{Change, SHARDS, ShardId};
use crate::store::sql::batch::Batch;
use crate::store::sql::mysql::catalog::ActivityState;
use crate::store::sql::mysql::failure::{Failure, retried};
use crate::store::sql::mysql::operator_rows::{
    MySqlRefused, Written, add_available, commit, insert_load, insert_shares, lock_activity,
};
use crate::store::sql::mysql::order_rows::lock_generation;
use crate::store::sql::mysql::takeover;
use crate::store::sql::stock_loads::{Kind, Load, Touched, apply};
use crate::store::sql::{ReserveFigures, SkuFigures, shares};

impl MySqlStore {
    /// Takes up to so many free units out of the reserve and adds them to what Redis sells, as one transaction; how many
    /// they were, and the id of the load that writers drive.
    pub async fn hand_over(&self, sku: SkuKey, units: u32) -> Result<(String, u32), MySqlRefused> {
        retried!(self.installation.options.call_timeout; self.try_hand_over(sku, units))?
    }

    async fn try_hand_over(&self, sku: SkuKey, units: u32) -> Written<(String, u32)> {
        let mut transaction = self.installation.pool.begin().await?;
        match lock_activity(&mut transaction, sku.activity).await? {
            None => return Ok(Err(MySqlRefused::NoActivity(sku.activity))),
            Some((state, _)) if state >= ActivityState::Ending => {
                return Ok(Err(MySqlRefused::Ended(sku.activity)));
            }
            Some(_) if takeover::is_taken(&mut transaction, sku.activity).await? => {
                return Ok(Err(MySqlRefused::TakenOver(sku.activity)));
            }
            Some(_) => {}
        }
        let known: Option<u32> =
            sqlx::query_scalar("SELECT available FROM sku_stock WHERE activity = ? AND sku = ? FOR UPDATE")
                .bind(sku.activity.0)
                .bind(sku.sku.0)
                .fetch_optional(&mut *transaction)
                .await?;
        if known.is_none() {
            return Ok(Err(MySqlRefused::NoSku(sku)));
        }
        let (generation, now_ms) = lock_generation(&mut transaction).await?;
        let mut batch = Batch::new(generation, now_ms, [0; SHARDS]);
        rows::lock_shards(&mut transaction, &ShardId::ALL, &mut batch).await?;
        rows::read_everywhere(&mut transaction, [sku], &mut batch).await?;
        let ordinal = insert_own_load(&mut transaction, sku, Kind::Remove, units).await?;
        let load = Load { ordinal, sku, kind: Kind::Remove, amount: units };
        let mut touched = Touched::default();
        let amounts = apply(&mut batch, &load, &mut touched).map_err(Failure::Corrupt)?;
        record(&mut transaction, &load, &amounts, now_ms).await?;
        for (shard, skus) in ShardId::all().zip(touched).filter(|(_, skus)| !skus.is_empty()) {
            batch.append(shard, Change::Loaded, &skus.into_iter().collect::<Vec<_>>());
        }
        rows::write(&mut transaction, &mut batch, self.installation.options.feed_events_max).await?;
        let taken = amounts.iter().copied().fold(0, u32::saturating_add);
        add_available(&mut transaction, sku, taken).await?;
        let (ordinal, id) = insert_load(&mut transaction, sku, Kind::Add as u8, "add", taken).await?;
        let shares = shares::split(taken, sku).into_iter().zip(0_u8..);
        let shares: Vec<_> = shares.map(|(units, shard)| (ordinal, 1, shard, units)).collect();
        insert_shares(&mut transaction, &shares).await?;
        commit(transaction).await?;
        self.publish(&batch);
        Ok(Ok((id, taken)))
    }
}

/// What the reserve of each SKU adds up to.
pub(in super::super) async fn read_reserves(
    connection: &mut MySqlConnection,
    id: ActivityId,
    figures: &mut BTreeMap<SkuId, SkuFigures>,
) -> Result<(), Failure> {
    let found: Vec<(u16, u64, u64, u64, u64)> = sqlx::query_as(
        "SELECT l.sku, \
           CAST(SUM(CASE WHEN l.kind = 2 THEN -CAST(l.applied AS SIGNED) ELSE CAST(l.amount AS SIGNED) END) AS UNSIGNED), \
           CAST(COALESCE((SELECT SUM(free) FROM sql_stock s WHERE s.activity = l.activity AND s.sku = l.sku), 0) AS UNSIGNED), \
           CAST(COALESCE((SELECT SUM(CAST(moved_out AS SIGNED) - CAST(brought_in AS SIGNED)) FROM sql_transfers t \
             WHERE t.activity = l.activity AND t.sku = l.sku), 0) AS UNSIGNED), \
           CAST(COALESCE((SELECT SUM(quantity) FROM orders o WHERE o.activity = l.activity AND o.sku = l.sku \
             AND o.source = 2 AND o.state IN (1, 2, 3, 7)), 0) AS UNSIGNED) \
         FROM sql_loads l WHERE l.activity = ? GROUP BY l.activity, l.sku",
    )
    .bind(id.0)
    .fetch_all(connection)
    .await?;
    for (sku, total, free, in_transit, sold) in found {
        figures.entry(SkuId(sku)).or_default().reserve =
            Some(ReserveFigures { total, free: free.saturating_add(in_transit), sold });
    }
    Ok(())
}
