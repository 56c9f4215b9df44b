//! Loads, driven by any writer until every shard has its share (rule 16 of the stock protocol).
//!
//! A share is due until its shard's answer is recorded. An addition counts in SQL from its first row on; what a take
//! gave counts when it is recorded, under the generation of the shard's reply: a recovery that ran in between may have
//! given the units to somebody else. A take that some shard could give more of goes on in another round.

use std::collections::BTreeMap;

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::failure::{self, Failure, retried};
use super::operator_rows::insert_shares;
use super::order_rows::lock_generation;
use crate::protocol::{ActivityId, SkuId, SkuKey};
use crate::stock::calls::{Gen, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::sql::shares;

/// What one call tells one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardLoad {
    /// Under which the shard does it once and repeats its answer.
    pub load_id: String,
    /// Where.
    pub shard: ShardId,
    /// The activity.
    pub activity: ActivityId,
    /// Units to add; negative: to take, as far as they are free.
    pub changes: Vec<(SkuId, i64)>,
}

/// What came of recording a shard's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadRecord {
    /// Recorded now, or before.
    Recorded,
    /// The installation's generation is another than the reply's: ask the shard again under it.
    Gen(Gen),
}

/// A part of a load that one shard has not answered yet.
struct Share {
    ordinal: u64,
    sku: SkuKey,
    kind: u8,
    wanted: u32,
}

impl MySqlInstallation {
    /// Calls to shards that are due, the oldest loads first, of activities that are preheated and not archived.
    pub async fn due_loads(&self, limit: u32) -> Result<Vec<ShardLoad>, StoreError> {
        retried!(self.options.call_timeout; self.read_due(limit))
    }

    /// Records what a shard answered under `generation`: units really added or taken, per SKU.
    pub async fn load_done(
        &self,
        load: &ShardLoad,
        generation: Gen,
        applied: &[(SkuId, u32)],
    ) -> Result<LoadRecord, StoreError> {
        retried!(self.options.call_timeout; self.record(load, generation, applied))
    }

    async fn read_due(&self, limit: u32) -> Result<Vec<ShardLoad>, Failure> {
        type Due = (String, u16, u8, u32, u16, u8, u32);
        let due: Vec<Due> = sqlx::query_as(
            "SELECT l.call_id, s.round, s.shard, l.activity, l.sku, l.kind, s.wanted FROM (\
               SELECT c.call_id, p.round, p.shard, MIN(c.ordinal) first \
               FROM loads c JOIN activities a ON a.id = c.activity AND a.state IN (2, 3) \
               JOIN load_shards p ON p.ordinal = c.ordinal AND p.applied IS NULL \
               WHERE c.state = 1 GROUP BY c.call_id, p.round, p.shard \
               ORDER BY first, p.shard LIMIT ?) d \
             JOIN loads l ON l.call_id = d.call_id \
             JOIN load_shards s ON s.ordinal = l.ordinal AND s.round = d.round AND s.shard = d.shard \
             WHERE s.applied IS NULL ORDER BY d.first, s.round, s.shard, l.ordinal",
        )
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        let mut loads: Vec<ShardLoad> = Vec::new();
        for (call_id, round, shard, activity, sku, kind, wanted) in due {
            let (load_id, shard) = (format!("{call_id}#{round}"), failure::shard_id(shard)?);
            let units = i64::from(wanted);
            let change = (SkuId(sku), if kind == 1 { units } else { units.saturating_neg() });
            match loads.last_mut() {
                Some(last) if last.load_id == load_id && last.shard == shard => last.changes.push(change),
                _ => loads.push(ShardLoad {
                    load_id,
                    shard,
                    activity: ActivityId(activity),
                    changes: vec![change],
                }),
            }
        }
        Ok(loads)
    }

    async fn record(
        &self,
        load: &ShardLoad,
        generation: Gen,
        applied: &[(SkuId, u32)],
    ) -> Result<LoadRecord, Failure> {
        let malformed = || Failure::Corrupt(format!("there is no load {}", load.load_id));
        let (call_id, round) = load.load_id.rsplit_once('#').ok_or_else(malformed)?;
        let round: u16 = round.parse().map_err(|_| malformed())?;
        let mut transaction = self.pool.begin().await?;
        let (current, _) = lock_generation(&mut transaction).await?;
        if current != generation {
            return Ok(LoadRecord::Gen(current));
        }
        let applied: BTreeMap<SkuId, u32> = applied.iter().copied().collect();
        let units_of = |share: &Share| applied.get(&share.sku.sku).copied().unwrap_or(0).min(share.wanted);
        let shares = open_shares(&mut transaction, call_id, round, load.shard).await?;
        if shares.iter().all(|share| share.kind == 1 && units_of(share) == share.wanted) {
            record_additions(&mut transaction, call_id, round, load.shard).await?;
        } else {
            for share in &shares {
                record_share(&mut transaction, share, round, load.shard, units_of(share)).await?;
                finish(&mut transaction, share).await?;
            }
        }
        transaction.commit().await?;
        Ok(LoadRecord::Recorded)
    }
}

/// The shares of one call that are not recorded yet, their loads locked.
async fn open_shares(
    connection: &mut MySqlConnection,
    call_id: &str,
    round: u16,
    shard: ShardId,
) -> Result<Vec<Share>, Failure> {
    let ordinals: Vec<u64> =
        sqlx::query_scalar("SELECT ordinal FROM loads WHERE call_id = ? ORDER BY ordinal FOR UPDATE")
            .bind(call_id)
            .fetch_all(&mut *connection)
            .await?;
    if ordinals.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(u64, u32, u16, u8, u32)> = sqlx::query_as(
        "SELECT l.ordinal, l.activity, l.sku, l.kind, s.wanted FROM loads l \
         JOIN load_shards s ON s.ordinal = l.ordinal \
         WHERE s.applied IS NULL AND l.call_id = ? AND s.round = ? AND s.shard = ? ORDER BY l.ordinal",
    )
    .bind(call_id)
    .bind(round)
    .bind(shard.number())
    .fetch_all(connection)
    .await?;
    let share = |(ordinal, activity, sku, kind, wanted)| {
        let sku = failure::sku_key(activity, sku);
        Share { ordinal, sku, kind, wanted }
    };
    Ok(rows.into_iter().map(share).collect())
}

/// The usual case, for any number of SKUs: a shard added all that it was told to.
async fn record_additions(
    connection: &mut MySqlConnection,
    call_id: &str,
    round: u16,
    shard: ShardId,
) -> Result<(), Failure> {
    sqlx::query(
        "UPDATE load_shards s JOIN loads l ON l.ordinal = s.ordinal SET s.applied = s.wanted \
         WHERE l.call_id = ? AND s.round = ? AND s.shard = ? AND s.applied IS NULL",
    )
    .bind(call_id)
    .bind(round)
    .bind(shard.number())
    .execute(&mut *connection)
    .await?;
    sqlx::query(concat!(
        "UPDATE loads l SET l.state = 2, l.done_at_ms = ",
        now_ms!(),
        " WHERE l.call_id = ? AND l.state = 1 AND NOT \
         EXISTS (SELECT 1 FROM load_shards s WHERE s.ordinal = l.ordinal AND s.applied IS NULL)"
    ))
    .bind(call_id)
    .execute(connection)
    .await?;
    Ok(())
}

async fn record_share(
    connection: &mut MySqlConnection,
    share: &Share,
    round: u16,
    shard: ShardId,
    units: u32,
) -> Result<(), Failure> {
    sqlx::query("UPDATE load_shards SET applied = ? WHERE ordinal = ? AND round = ? AND shard = ?")
        .bind(units)
        .bind(share.ordinal)
        .bind(round)
        .bind(shard.number())
        .execute(&mut *connection)
        .await?;
    // An addition counted in full; what a shard did not take in does not. A take counts what was given.
    let lost = if share.kind == 1 { share.wanted.saturating_sub(units) } else { units };
    if lost == 0 {
        return Ok(());
    }
    sqlx::query(if share.kind == 1 {
        "UPDATE loads SET applied = applied - ? WHERE ordinal = ?"
    } else {
        "UPDATE loads SET applied = applied + ? WHERE ordinal = ?"
    })
    .bind(lost)
    .bind(share.ordinal)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "UPDATE sku_stock SET available = available - ?, version = version + 1 WHERE activity = ? AND sku = ?",
    )
    .bind(lost)
    .bind(share.sku.activity.0)
    .bind(share.sku.sku.0)
    .execute(&mut *connection)
    .await?;
    sqlx::query("UPDATE catalog SET version = version + 1").execute(connection).await?;
    Ok(())
}

/// Ends a load when its last share is recorded, or begins a take's next round.
async fn finish(connection: &mut MySqlConnection, share: &Share) -> Result<(), Failure> {
    let shares: Vec<(u16, u8, u32, Option<u32>)> =
        sqlx::query_as("SELECT round, shard, wanted, applied FROM load_shards WHERE ordinal = ?")
            .bind(share.ordinal)
            .fetch_all(&mut *connection)
            .await?;
    let mut round_last = 0;
    let mut gave_less = [false; SHARDS];
    for (round, shard, wanted, applied) in shares {
        let Some(applied) = applied else { return Ok(()) };
        round_last = round.max(round_last);
        if let Some(slot) = gave_less.get_mut(usize::from(shard)) {
            *slot |= applied < wanted;
        }
    }
    if share.kind == 2 {
        let (amount, applied): (u32, u32) =
            sqlx::query_as("SELECT amount, applied FROM loads WHERE ordinal = ?")
                .bind(share.ordinal)
                .fetch_one(&mut *connection)
                .await?;
        let may_give_more: Vec<_> =
            (0..SHARDS).filter(|shard| gave_less.get(*shard) == Some(&false)).collect();
        let round = round_last.saturating_add(1);
        let next: Vec<_> = shares::split_over(amount.saturating_sub(applied), &may_give_more)
            .into_iter()
            .filter(|(_, units)| *units > 0)
            .filter_map(|(shard, units)| Some((share.ordinal, round, u8::try_from(shard).ok()?, units)))
            .collect();
        if !next.is_empty() {
            insert_shares(connection, &next).await?;
            return Ok(());
        }
    }
    sqlx::query(concat!("UPDATE loads SET state = 2, done_at_ms = ", now_ms!(), " WHERE ordinal = ?"))
        .bind(share.ordinal)
        .execute(connection)
        .await?;
    Ok(())
}
