//! What SQL knows of shards that are to be rebuilt (rule 11.5 of the stock protocol), all of one instant.

use std::collections::{HashMap, HashSet};

use sqlx::{MySqlConnection, QueryBuilder};

use super::MySqlInstallation;
use super::catalog::ActivityState;
use super::failure::{self, Failure, retried};
use super::loads::ShardLoad;
use super::orders::{PlacedMarkRow, placed_mark};
use super::takeover;
use crate::protocol::{ActivityId, SkuId, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};
use crate::store::StoreError;

/// An order that was given out by Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredOrder {
    /// Where its mark is.
    pub shard: ShardId,
    /// Whose it is.
    pub user: UserId,
    /// The order as SQL has it.
    pub mark: Mark,
    /// It has a ledger row, done or not: it counts as released, whatever its state.
    pub released: bool,
}

/// A load as one shard was told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredLoad {
    /// What the shard was told; of a recorded one, what it really did.
    pub load: ShardLoad,
    /// Its answer is recorded. An addition counts as applied either way; a take that is not recorded counts as the
    /// shard says.
    pub is_recorded: bool,
}

/// Everything SQL knows of some shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredShards {
    /// Every activity that was ever preheated. An archived one has nothing but its tombstone, below.
    pub activities: Vec<(ActivityId, ActivityState)>,
    /// Orders of activities that are not archived, without those that hold no unit of Redis.
    pub orders: Vec<RecoveredOrder>,
    /// Loads of activities that are preheated and not archived.
    pub loads: Vec<RecoveredLoad>,
    /// The generation of the last takeover of activities that ever were taken over: what a shard of an older one holds
    /// of them counts for nothing.
    pub taken: HashMap<ActivityId, Gen>,
}

impl MySqlInstallation {
    /// Reads what the leader needs, after the gateways have handed in.
    pub async fn read_for_recovery(&self, shards: &[ShardId]) -> Result<RecoveredShards, StoreError> {
        retried!(self.options.call_timeout; self.try_read(shards))
    }

    async fn try_read(&self, shards: &[ShardId]) -> Result<RecoveredShards, Failure> {
        let mut transaction = self.repeatable_read().await?;
        let states: Vec<(u32, u8, bool)> =
            sqlx::query_as("SELECT id, state, taken_over FROM activities WHERE state > 1 ORDER BY id")
                .fetch_all(&mut *transaction)
                .await?;
        let state = |(id, state, is_taken)| {
            // Of one that was taken over a shard holds a tombstone, as of one that is archived.
            let state = if is_taken { ActivityState::Archived } else { ActivityState::of(state)? };
            Ok((ActivityId(id), state))
        };
        let activities = states.into_iter().map(state).collect::<Result<Vec<_>, Failure>>()?;
        let mut read = RecoveredShards { activities, ..RecoveredShards::default() };
        read.taken = takeover::late::taken(&mut transaction).await?;
        if !shards.is_empty() {
            read.orders = orders(&mut transaction, shards).await?;
            read.loads = loads(&mut transaction, shards).await?;
        }
        transaction.rollback().await?;
        Ok(read)
    }
}

fn push_shards(query: &mut QueryBuilder<sqlx::MySql>, shards: &[ShardId]) {
    let mut list = query.separated(",");
    for shard in shards {
        list.push_bind(shard.number());
    }
    query.push(")");
}

fn order(row: PlacedMarkRow, released: bool) -> Result<RecoveredOrder, Failure> {
    let (shard, user, mark) = placed_mark(row)?;
    Ok(RecoveredOrder { shard, user, mark, released })
}

async fn orders(
    connection: &mut MySqlConnection,
    shards: &[ShardId],
) -> Result<Vec<RecoveredOrder>, Failure> {
    // The ledger first; what is in it and has no row of its own in `orders` stands for itself.
    let mut select = QueryBuilder::new(
        "SELECT l.shard, l.user, l.number, l.activity, l.sku, l.quantity, l.attempt, l.state, \
         CAST(0 AS UNSIGNED) FROM ledger l LEFT JOIN activities a ON a.id = l.activity \
         WHERE (a.state IS NULL OR a.state < 4) AND l.shard IN (",
    );
    push_shards(&mut select, shards);
    let released: Vec<PlacedMarkRow> = select.build_query_as().fetch_all(&mut *connection).await?;
    let mut select = QueryBuilder::new(
        "SELECT o.shard, o.user, o.number, o.activity, o.sku, o.quantity, o.attempt, o.state, o.pay_by_ms \
         FROM orders o LEFT JOIN activities a ON a.id = o.activity \
         WHERE o.source = 1 AND (a.state IS NULL OR a.state < 4) AND o.shard IN (",
    );
    push_shards(&mut select, shards);
    let found: Vec<PlacedMarkRow> = select.build_query_as().fetch_all(connection).await?;
    let mut without_a_row: HashSet<(u64, u64)> = released.iter().map(|row| (row.2, row.1)).collect();
    let mut orders = Vec::with_capacity(found.len());
    for row in found {
        let is_released = without_a_row.remove(&(row.2, row.1));
        orders.push(order(row, is_released)?);
    }
    for row in released {
        if without_a_row.contains(&(row.2, row.1)) {
            orders.push(order(row, true)?);
        }
    }
    Ok(orders)
}

async fn loads(connection: &mut MySqlConnection, shards: &[ShardId]) -> Result<Vec<RecoveredLoad>, Failure> {
    type Row = (String, u16, u8, u32, u16, u8, u32, Option<u32>);
    let mut select = QueryBuilder::new(
        "SELECT l.call_id, s.round, s.shard, l.activity, l.sku, l.kind, s.wanted, s.applied FROM loads l \
         JOIN activities a ON a.id = l.activity AND a.state IN (2, 3) AND l.ordinal > a.taken_loads \
         JOIN load_shards s ON s.ordinal = l.ordinal WHERE s.shard IN (",
    );
    push_shards(&mut select, shards);
    select.push(" ORDER BY l.activity, l.call_id, s.round, s.shard, l.sku");
    let rows: Vec<Row> = select.build_query_as().fetch_all(connection).await?;
    let mut loads: Vec<RecoveredLoad> = Vec::new();
    for (call_id, round, shard, activity, sku, kind, wanted, applied) in rows {
        let (load_id, shard) = (format!("{call_id}#{round}"), failure::shard_id(shard)?);
        let units = i64::from(applied.unwrap_or(wanted));
        let change = (SkuId(sku), if kind == 1 { units } else { units.saturating_neg() });
        match loads.last_mut() {
            Some(last) if last.load.load_id == load_id && last.load.shard == shard => {
                last.load.changes.push(change);
                last.is_recorded &= applied.is_some();
            }
            _ => loads.push(RecoveredLoad {
                load: ShardLoad { load_id, shard, activity: ActivityId(activity), changes: vec![change] },
                is_recorded: applied.is_some(),
            }),
        }
    }
    Ok(loads)
}
