//! What a serving process reads beside the writer task: snapshots and the catalogue.
//!
//! Each function is one read transaction on a pool connection, so that everything in its result is of one
//! instant. Never writes (the connections refuse to).

use std::collections::{BTreeMap, HashMap};

use sqlx::{SqliteConnection, SqlitePool};

use super::batch::{TransferRow, counters};
use super::error::Failure;
use super::rows::{self, MarkColumns, TransferColumns};
use crate::protocol::{ActivityId, SkuId, SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId, SkuCounters, Snapshot};
use crate::store::catalog::{Activity, Eligibility, Ended, Sku};

/// Everything a shard holds of the activities that are not archived.
pub(super) async fn snapshot(readers: &SqlitePool, shard: ShardId) -> Result<Snapshot, Failure> {
    let mut transaction = readers.begin().await?;
    let (generation, seq): (i64, i64) =
        sqlx::query_as("SELECT i.gen, s.seq FROM installation i CROSS JOIN shards s WHERE s.shard = ?")
            .bind(shard.number())
            .fetch_one(&mut *transaction)
            .await?;
    let counters = shard_counters(&mut transaction, shard).await?;
    let marks = shard_marks(&mut transaction, shard).await?;
    transaction.commit().await?;
    Ok(Snapshot {
        shard,
        generation: Gen(rows::unsigned(generation)?),
        seq: rows::unsigned(seq)?,
        counters,
        marks,
    })
}

async fn shard_counters(
    connection: &mut SqliteConnection,
    shard: ShardId,
) -> Result<Vec<SkuCounters>, Failure> {
    let moved: Vec<TransferColumns> = sqlx::query_as(
        "SELECT shard, activity, sku, peer, moved_out, brought_in FROM transfers WHERE shard = ?",
    )
    .bind(shard.number())
    .fetch_all(&mut *connection)
    .await?;
    let mut transfers: HashMap<SkuKey, BTreeMap<ShardId, TransferRow>> = HashMap::new();
    for columns in moved {
        let (_, sku, peer, row) = rows::transfer(columns)?;
        transfers.entry(sku).or_default().insert(peer, row);
    }
    let stock: Vec<(u32, u16, u32)> =
        sqlx::query_as("SELECT activity, sku, free FROM stock WHERE shard = ? ORDER BY activity, sku")
            .bind(shard.number())
            .fetch_all(connection)
            .await?;
    let one = |(activity, sku, free)| {
        let sku = rows::sku_key(activity, sku);
        counters(sku, free, transfers.get(&sku))
    };
    Ok(stock.into_iter().map(one).collect())
}

async fn shard_marks(
    connection: &mut SqliteConnection,
    shard: ShardId,
) -> Result<Vec<(UserId, Mark)>, Failure> {
    // The latest attempt alone is the user's mark. CROSS JOIN: one range of the shard per activity.
    let marks: Vec<MarkColumns> = sqlx::query_as(
        "SELECT o.user, o.number, o.activity, o.sku, o.quantity, o.attempt, o.state, o.pay_by_ms \
         FROM activities a CROSS JOIN orders o ON o.shard = ? AND o.activity = a.id \
         WHERE a.state < 4 ORDER BY a.id, o.user, o.attempt",
    )
    .bind(shard.number())
    .fetch_all(connection)
    .await?;
    let mut latest: Vec<(UserId, Mark)> = Vec::with_capacity(marks.len());
    for columns in marks {
        let (user, mark) = rows::mark(columns)?;
        match latest.last_mut() {
            Some((same, slot)) if *same == user && slot.sku.activity == mark.sku.activity => *slot = mark,
            _ => latest.push((user, mark)),
        }
    }
    Ok(latest)
}

/// The user's latest order in an activity: the table has one for each attempt.
pub(super) async fn order_of(
    readers: &SqlitePool,
    user: UserId,
    activity: ActivityId,
) -> Result<Option<Mark>, Failure> {
    let found: Option<MarkColumns> = sqlx::query_as(
        "SELECT user, number, activity, sku, quantity, attempt, state, pay_by_ms FROM orders \
         WHERE shard = ? AND activity = ? AND user = ? ORDER BY attempt DESC LIMIT 1",
    )
    .bind(ShardId::of(user).number())
    .bind(activity.0)
    .bind(rows::signed(user.0))
    .fetch_optional(readers)
    .await?;
    Ok(found.map(rows::mark).transpose()?.map(|(_, mark)| mark))
}

/// Every activity that is ending or archived, by ascending id. Nobody notes here when one was archived: its end is
/// the earliest that it can have been.
pub(super) async fn ended(readers: &SqlitePool) -> Result<Vec<Ended>, Failure> {
    let found: Vec<(u32, u8, i64)> =
        sqlx::query_as("SELECT id, state, closes_at_ms FROM activities WHERE state >= 3 ORDER BY id")
            .fetch_all(readers)
            .await?;
    let mut ended = Vec::with_capacity(found.len());
    for (id, state, closes_at_ms) in found {
        let archived_at_ms = if state == 4 { Some(rows::unsigned(closes_at_ms)?) } else { None };
        ended.push(Ended { id: ActivityId(id), archived_at_ms });
    }
    Ok(ended)
}

/// The catalogue's version.
pub(super) async fn catalog_version(readers: &SqlitePool) -> Result<u64, Failure> {
    let version: i64 =
        sqlx::query_scalar("SELECT catalog_version FROM installation").fetch_one(readers).await?;
    rows::unsigned(version)
}

/// Every activity that is not archived, by ascending id.
pub(super) async fn activities(readers: &SqlitePool) -> Result<Vec<Activity>, Failure> {
    let mut transaction = readers.begin().await?;
    let activities = read_activities(&mut transaction).await?;
    transaction.commit().await?;
    Ok(activities)
}

pub(super) async fn read_activities(connection: &mut SqliteConnection) -> Result<Vec<Activity>, Failure> {
    type Row = (u32, String, bool, i64, i64, u16, String, bool, u8);
    let found: Vec<Row> = sqlx::query_as(
        "SELECT id, name, entry_open, opens_at_ms, closes_at_ms, per_user_limit, eligibility, allow_list, \
         buy_again_max \
         FROM activities WHERE state < 4 ORDER BY id",
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut skus = read_skus(connection).await?;
    let mut activities = Vec::with_capacity(found.len());
    for (id, name, entry_open, opens_at_ms, closes_at_ms, per_user_limit, rule, allow_list, buy_again_max) in
        found
    {
        activities.push(Activity {
            id: ActivityId(id),
            name,
            entry_open,
            opens_at_ms: rows::unsigned(opens_at_ms)?,
            closes_at_ms: rows::unsigned(closes_at_ms)?,
            per_user_limit,
            buy_again_max,
            eligibility: Eligibility { rule, allow_list },
            skus: skus.remove(&id).unwrap_or_default(),
        });
    }
    Ok(activities)
}

async fn read_skus(connection: &mut SqliteConnection) -> Result<HashMap<u32, Vec<Sku>>, Failure> {
    // kind 1 adds, 2 removes; what is pending has applied 0.
    let found: Vec<(u32, u16, String, i64, u32)> = sqlx::query_as(
        "SELECT k.activity, k.sku, k.name, k.price_minor, \
           (SELECT COALESCE(SUM(CASE l.kind WHEN 1 THEN l.applied ELSE -l.applied END), 0) \
            FROM loads l WHERE l.activity = k.activity AND l.sku = k.sku) \
         FROM skus k JOIN activities a ON a.id = k.activity WHERE a.state < 4 ORDER BY k.activity, k.sku",
    )
    .fetch_all(connection)
    .await?;
    let mut skus: HashMap<u32, Vec<Sku>> = HashMap::new();
    for (activity, sku, name, price_minor, stock_total) in found {
        let price_minor = rows::unsigned(price_minor)?;
        let sku = Sku { id: SkuId(sku), name, price_minor, stock_total };
        skus.entry(activity).or_default().push(sku);
    }
    Ok(skus)
}
