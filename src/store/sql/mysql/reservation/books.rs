//! The reserve against itself, for a reconciliation: what was held back, where it is, and a correction by the difference.
//!
//! Everything is in one database, so reading is of one instant and exact. A correction holds the rows of all shards, looks
//! again, and tells gateways like any change of their stock.

use std::collections::BTreeMap;

use sqlx::MySqlConnection;

use super::MySqlStore;
use super::rows;
use crate::protocol::{ActivityId, SkuId, SkuKey};
use crate::stock::calls::{Change, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::sql::batch::Batch;
use crate::store::sql::mysql::failure::{Failure, retried};
use crate::store::sql::mysql::order_rows::lock_generation;
use crate::store::sql::stock_loads::{Kind, Load, Touched, apply};

/// Where an SKU's units of the reserve are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveBooks {
    /// Held back, and not handed over.
    pub loaded: i64,
    /// Free units.
    pub free: i64,
    /// Units between two shards.
    pub moving: i64,
    /// Units that orders of the reserve hold.
    pub held: i64,
}

impl ReserveBooks {
    /// Free units beyond what the others leave; below zero: too few.
    pub const fn off(&self) -> i64 {
        self.free.saturating_add(self.moving).saturating_add(self.held).saturating_sub(self.loaded)
    }
}

impl MySqlStore {
    /// Corrects an SKU's free units to what its loads, moves and orders leave; by how much, and by how much it is off
    /// then: no more is taken than is free.
    pub async fn mend_reserve(&self, sku: SkuKey) -> Result<(i64, i64), StoreError> {
        retried!(self.installation.options.call_timeout; self.try_mend_reserve(sku))
    }

    async fn try_mend_reserve(&self, sku: SkuKey) -> Result<(i64, i64), Failure> {
        let mut transaction = self.installation.pool.begin().await?;
        let (generation, now_ms) = lock_generation(&mut transaction).await?;
        let mut batch = Batch::new(generation, now_ms, [0; SHARDS]);
        // Whoever changes any of it holds one of these.
        rows::lock_shards(&mut transaction, &ShardId::ALL, &mut batch).await?;
        rows::read_everywhere(&mut transaction, [sku], &mut batch).await?;
        let books = read_books(&mut transaction, sku.activity).await?;
        let off = books.get(&sku.sku).map_or(0, ReserveBooks::off);
        if off == 0 {
            return Ok((0, 0));
        }
        let kind = if off > 0 { Kind::Remove } else { Kind::Add };
        let amount = u32::try_from(off.unsigned_abs()).unwrap_or(u32::MAX);
        let mut touched = Touched::default();
        let load = Load { ordinal: 0, sku, kind, amount };
        let amounts = apply(&mut batch, &load, &mut touched).map_err(Failure::Corrupt)?;
        for (shard, skus) in ShardId::all().zip(touched).filter(|(_, skus)| !skus.is_empty()) {
            batch.append(shard, Change::Loaded, &skus.into_iter().collect::<Vec<_>>());
        }
        rows::write(&mut transaction, &mut batch, self.installation.options.feed_events_max).await?;
        transaction.commit().await?;
        self.publish(&batch);
        let units = amounts.iter().fold(0_i64, |sum, some| sum.saturating_add(i64::from(*some)));
        let by = if off > 0 { units.saturating_neg() } else { units };
        Ok((by, off.saturating_add(by)))
    }
}

/// The reserve of each SKU that ever had one.
pub(in super::super) async fn read_books(
    connection: &mut MySqlConnection,
    activity: ActivityId,
) -> Result<BTreeMap<SkuId, ReserveBooks>, Failure> {
    type Figure = fn(&mut ReserveBooks) -> &mut i64;
    const LOADED: &str = "SELECT sku, CAST(SUM(IF(kind = 1, 1, -1) * CAST(applied AS SIGNED)) AS SIGNED) \
        FROM sql_loads WHERE activity = ? GROUP BY sku";
    const FREE: &str = "SELECT sku, CAST(SUM(free) AS SIGNED) FROM sql_stock WHERE activity = ? GROUP BY sku";
    const MOVING: &str = "SELECT sku, CAST(SUM(CAST(moved_out AS SIGNED) - CAST(brought_in AS SIGNED)) AS SIGNED) \
        FROM sql_transfers WHERE activity = ? GROUP BY sku";
    const HELD: &str = "SELECT sku, CAST(SUM(quantity) AS SIGNED) FROM orders \
        WHERE activity = ? AND source = 2 AND state IN (1, 2, 3, 7) GROUP BY sku";
    let mut books: BTreeMap<SkuId, ReserveBooks> = BTreeMap::new();
    let figures: [(&'static str, Figure); 4] = [
        (LOADED, |books| &mut books.loaded),
        (FREE, |books| &mut books.free),
        (MOVING, |books| &mut books.moving),
        (HELD, |books| &mut books.held),
    ];
    for (query, figure) in figures {
        let rows: Vec<(u16, i64)> =
            sqlx::query_as(query).bind(activity.0).fetch_all(&mut *connection).await?;
        for (sku, units) in rows {
            *figure(books.entry(SkuId(sku)).or_default()) = units;
        }
        // The orders of an activity that never held anything back are not looked through.
        if books.is_empty() {
            break;
        }
    }
    Ok(books)
}
