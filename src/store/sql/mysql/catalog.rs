//! What is on sale, read for gateways and operators. Each function reads one instant.

use std::collections::HashMap;

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::failure::{Failure, retried};
use crate::protocol::{ActivityId, SkuId};
use crate::store::StoreError;
use crate::store::catalog::{Activity, Eligibility, Ended, Sku};

/// How far an activity has come; only forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActivityState {
    /// Written; nothing of it is in Redis.
    Created = 1,
    /// Preheated: its loads are written and driven until done.
    Loaded = 2,
    /// Shards refuse to reserve; what is under way is brought to its end.
    Ending = 3,
    /// Shards hold a tombstone; the rest is in SQL.
    Archived = 4,
}

impl ActivityState {
    pub(super) fn of(number: u8) -> Result<Self, Failure> {
        Ok(match number {
            1 => Self::Created,
            2 => Self::Loaded,
            3 => Self::Ending,
            4 => Self::Archived,
            other => return Err(Failure::Corrupt(format!("an activity has the unknown state {other}"))),
        })
    }
}

/// Reads that have to agree with each other.
pub(super) const ONE_INSTANT: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

impl MySqlInstallation {
    /// A number that changes with every change that an operator makes. Cheap.
    pub async fn version(&self) -> Result<u64, StoreError> {
        retried!(self.options.call_timeout; self.read_version())
    }

    /// Every activity that is not archived, by ascending id.
    pub async fn activities(&self) -> Result<Vec<Activity>, StoreError> {
        retried!(self.options.call_timeout; self.read_activities())
    }

    /// How far every activity has come, archived ones included.
    pub async fn activity_states(&self) -> Result<Vec<(ActivityId, ActivityState)>, StoreError> {
        retried!(self.options.call_timeout; self.read_states())
    }

    /// Every activity that is ending or archived, by ascending id.
    pub async fn ended(&self) -> Result<Vec<Ended>, StoreError> {
        retried!(self.options.call_timeout; self.read_ended())
    }

    async fn read_version(&self) -> Result<u64, Failure> {
        Ok(sqlx::query_scalar("SELECT version FROM catalog").fetch_one(&self.pool).await?)
    }

    async fn read_states(&self) -> Result<Vec<(ActivityId, ActivityState)>, Failure> {
        let rows: Vec<(u32, u8)> =
            sqlx::query_as("SELECT id, state FROM activities ORDER BY id").fetch_all(&self.pool).await?;
        rows.into_iter().map(|(id, state)| Ok((ActivityId(id), ActivityState::of(state)?))).collect()
    }

    async fn read_ended(&self) -> Result<Vec<Ended>, Failure> {
        let rows: Vec<(u32, Option<u64>)> =
            sqlx::query_as("SELECT id, archived_at_ms FROM activities WHERE state >= 3 ORDER BY id")
                .fetch_all(&self.pool)
                .await?;
        let ended = |(id, archived_at_ms)| Ended { id: ActivityId(id), archived_at_ms };
        Ok(rows.into_iter().map(ended).collect())
    }

    async fn read_activities(&self) -> Result<Vec<Activity>, Failure> {
        let mut connection = self.repeatable_read().await?;
        let activities = read_activities(&mut connection).await?;
        connection.rollback().await?;
        Ok(activities)
    }

    /// A transaction whose reads are all of one instant.
    pub(super) async fn repeatable_read(
        &self,
    ) -> Result<sqlx::Transaction<'static, sqlx::MySql>, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        // For the next transaction alone; the session stays as it is.
        sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute(&mut *connection).await?;
        sqlx::Transaction::begin(connection, Some(sqlx::SqlSafeStr::into_sql_str(ONE_INSTANT))).await
    }
}

pub(super) async fn read_activities(connection: &mut MySqlConnection) -> Result<Vec<Activity>, Failure> {
    type Row = (u32, String, bool, u64, u64, u16, String, bool, u8);
    let found: Vec<Row> = sqlx::query_as(
        "SELECT id, name, entry_open, opens_at_ms, closes_at_ms, per_user_limit, eligibility, allow_list, \
         buy_again_max \
         FROM activities WHERE state < 4 ORDER BY id",
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut skus = read_skus(connection).await?;
    let activity = |(
        id,
        name,
        entry_open,
        opens_at_ms,
        closes_at_ms,
        per_user_limit,
        rule,
        allow_list,
        buy_again_max,
    )| Activity {
        id: ActivityId(id),
        name,
        entry_open,
        opens_at_ms,
        closes_at_ms,
        per_user_limit,
        buy_again_max,
        eligibility: Eligibility { rule, allow_list },
        skus: skus.remove(&id).unwrap_or_default(),
    };
    Ok(found.into_iter().map(activity).collect())
}

async fn read_skus(connection: &mut MySqlConnection) -> Result<HashMap<u32, Vec<Sku>>, Failure> {
    // kind 1 adds, 2 takes.
    let found: Vec<(u32, u16, String, u64, u64)> = sqlx::query_as(
        "SELECT k.activity, k.sku, k.name, k.price_minor, CAST(k.units AS UNSIGNED) FROM (\
           SELECT s.activity, s.sku, s.name, s.price_minor, \
             COALESCE(SUM(CASE l.kind WHEN 1 THEN CAST(l.applied AS SIGNED) ELSE -CAST(l.applied AS SIGNED) END), 0) units \
           FROM activities a JOIN skus s ON s.activity = a.id \
           LEFT JOIN loads l ON l.activity = s.activity AND l.sku = s.sku \
           WHERE a.state < 4 GROUP BY s.activity, s.sku, s.name, s.price_minor) k \
         ORDER BY k.activity, k.sku",
    )
    .fetch_all(connection)
    .await?;
    let mut skus: HashMap<u32, Vec<Sku>> = HashMap::new();
    for (activity, sku, name, price_minor, units) in found {
        let stock_total = u32::try_from(units)
            .map_err(|_| Failure::Corrupt(format!("SKU {activity}/{sku} has {units} units")))?;
        skus.entry(activity).or_default().push(Sku { id: SkuId(sku), name, price_minor, stock_total });
    }
    Ok(skus)
}
