//! The way back: an activity that was taken over is sold by Redis again, all of what is left of it and with the marks of
//! its orders.
//!
//! One transaction turns the books round: the units, free and held, are one addition that the shards have still to take
//! in, and the orders are Redis's. It raises the generation below which shards are rebuilt: the recovery that follows
//! writes loads and marks, as it does into an empty Redis. Until then nobody sells the activity.

use std::collections::BTreeMap;

use sqlx::{Connection, MySqlConnection};

use super::super::MySqlInstallation;
use super::super::catalog::ActivityState;
use super::super::failure::{Failure, retried};
use super::super::leadership::Leadership;
use super::super::operator_rows::{commit, insert_load, insert_shares};
use super::super::reservation::loads::{insert_own_load, record_applied};
use super::super::reservation::rows;
use super::orders::{self, DATABASE, REDIS};
use super::records::{self, Kind as RecordKind};
use super::take::{PATIENCE, stock_of};
use super::{Ground, TakenSku, Takeover, TakeoverRefused, late, lock};
use crate::protocol::{ActivityId, SkuId, SkuKey};
use crate::stock::calls::{Gen, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::sql::batch::Batch;
use crate::store::sql::shares;
use crate::store::sql::stock_loads::Kind;

impl MySqlInstallation {
    /// Gives an activity back to Redis, as the leader; under a generation of its own.
    pub async fn give_activity_back(
        &self,
        leadership: &mut Leadership,
        activity: ActivityId,
    ) -> Result<Takeover, StoreError> {
        let mut connection = leadership.connection().await?;
        retried!(PATIENCE; give_back(&mut connection, activity))
    }

    /// Shards of an older generation are rebuilt, however they look: an activity was taken over, or given back, since.
    pub async fn rebuild_below(&self) -> Result<Gen, StoreError> {
        retried!(self.options.call_timeout; self.read_rebuild_below())
    }

    async fn read_rebuild_below(&self) -> Result<Gen, Failure> {
        let below: u64 =
            sqlx::query_scalar("SELECT rebuild_below FROM installation").fetch_one(&self.pool).await?;
        Ok(Gen(below))
    }
}

async fn give_back(connection: &mut MySqlConnection, activity: ActivityId) -> Result<Takeover, Failure> {
    let mut transaction = connection.begin().await?;
    let ground = match lock(&mut transaction, activity).await? {
        Some(ground) if !ground.is_taken => {
            return Ok(Takeover::Refused(TakeoverRefused::NotTaken(activity)));
        }
        Some(ground) if ground.state != ActivityState::Loaded => {
            return Ok(Takeover::Refused(TakeoverRefused::Ended(activity)));
        }
        Some(ground) => Ground { generation: Gen(ground.generation.0.saturating_add(1)), ..ground },
        None => return Ok(Takeover::Refused(TakeoverRefused::NoActivity(activity))),
    };
    let mut skus = stock_of(&mut transaction, activity).await?;
    orders::add_up(&mut transaction, activity, DATABASE, &mut skus).await?;
    let held = held(&mut transaction, activity).await?;
    let free = take_all(&mut transaction, &ground, &skus).await?;
    for (sku, of) in &mut skus {
        of.opened = free.get(sku).copied().unwrap_or_default();
        of.total = of.opened.saturating_add(of.unpaid).saturating_add(of.paid);
        let shares = held.get(sku).copied().unwrap_or_default();
        load(&mut transaction, &ground, of, shares).await?;
    }
    orders::turn(&mut transaction, activity, (DATABASE, REDIS)).await?;
    for statement in [
        "DELETE FROM sql_marks WHERE activity = ?",
        "DELETE FROM sql_transfers WHERE activity = ?",
        "UPDATE activities SET taken_over = 0 WHERE id = ?",
    ] {
        sqlx::query(statement).bind(activity.0).execute(&mut *transaction).await?;
    }
    // Of this activity the shards in Redis know nothing, or less than nothing.
    sqlx::query("UPDATE installation SET gen = ?, rebuild_below = ?")
        .bind(ground.generation.0)
        .bind(ground.generation.0)
        .execute(&mut *transaction)
        .await?;
    let skus: Vec<TakenSku> = skus.into_values().collect();
    records::write(&mut transaction, &ground, RecordKind::GivenBack, &skus).await?;
    commit(transaction).await?;
    Ok(Takeover::Done { skus, failed: Vec::new() })
}

/// Units of live orders in each shard.
async fn held(
    connection: &mut MySqlConnection,
    activity: ActivityId,
) -> Result<BTreeMap<SkuId, [u32; SHARDS]>, Failure> {
    let rows: Vec<(u16, u8, u64)> = sqlx::query_as(
        "SELECT sku, shard, CAST(SUM(quantity) AS UNSIGNED) FROM orders \
         WHERE activity = ? AND source = 2 AND live = 1 GROUP BY sku, shard",
    )
    .bind(activity.0)
    .fetch_all(connection)
    .await?;
    let mut held: BTreeMap<SkuId, [u32; SHARDS]> = BTreeMap::new();
    for (sku, shard, units) in rows {
        if let Some(slot) = held.entry(SkuId(sku)).or_default().get_mut(usize::from(shard)) {
            *slot = u32::try_from(units).unwrap_or(u32::MAX);
        }
    }
    Ok(held)
}

/// Takes every free unit out of the shards here; how many there were of each SKU.
async fn take_all(
    connection: &mut MySqlConnection,
    ground: &Ground,
    skus: &BTreeMap<SkuId, TakenSku>,
) -> Result<BTreeMap<SkuId, u64>, Failure> {
    let mut batch = Batch::new(ground.generation, ground.now_ms, [0; SHARDS]);
    rows::lock_shards(connection, &ShardId::ALL, &mut batch).await?;
    let key = |sku: SkuId| SkuKey { activity: ground.activity, sku };
    rows::read_everywhere(connection, skus.keys().map(|sku| key(*sku)), &mut batch).await?;
    let free = skus.keys().map(|sku| (*sku, late::free_of(&batch, key(*sku)))).collect();
    sqlx::query("UPDATE sql_stock SET free = 0 WHERE activity = ?")
        .bind(ground.activity.0)
        .execute(connection)
        .await?;
    Ok(free)
}

/// The units leave the books of the shards here, as one removal, and come into Redis's, as one addition: free ones evenly
/// spread, held ones where their orders are.
async fn load(
    connection: &mut MySqlConnection,
    ground: &Ground,
    of: &TakenSku,
    held: [u32; SHARDS],
) -> Result<(), Failure> {
    let sku = SkuKey { activity: ground.activity, sku: of.sku };
    let units = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
    let ordinal = insert_own_load(connection, sku, Kind::Remove, units(of.total)).await?;
    let free = shares::split(units(of.opened), sku);
    record_applied(connection, (ordinal, units(of.total).into()), &free, ground.now_ms).await?;
    let (ordinal, _) = insert_load(connection, sku, Kind::Add as u8, "back", units(of.total)).await?;
    let shares = free.into_iter().zip(held).zip(0_u8..);
    let shares: Vec<_> =
        shares.map(|((free, held), shard)| (ordinal, 1, shard, free.saturating_add(held))).collect();
    insert_shares(connection, &shares).await?;
    sqlx::query(
        "UPDATE sku_stock SET available = ?, sold = ?, version = version + 1 WHERE activity = ? AND sku = ?",
    )
    .bind(of.opened)
    .bind(of.unpaid.saturating_add(of.paid))
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .execute(connection)
    .await?;
    Ok(())
}
