//! What is told of a reservation after its activity was taken over (rule 20): offered to the shards here as an ordinary
//! item, under its number; what cannot be sold is FAILED.
//!
//! Part of a transaction that has locked the generation for sharing. Repeated, it tells the same.

use std::collections::HashMap;

use sqlx::MySqlConnection;

use super::super::MySqlInstallation;
use super::super::failure::Failure;
use super::super::orders::by_number;
use super::super::payments::{apply_parked, tell};
use super::super::releases::{FailOutcome, Release, insert_failed_order};
use super::super::reservation;
use super::super::reservation::rows;
use crate::protocol::{ActivityId, OrderState, SkuKey, UserId};
use crate::stock::calls::{Change, Gen, Mark, SHARDS, ShardId};
use crate::store::sql::batch::Batch;

/// Sells it if its user has no order and there are units, wherever they are; else it fails.
pub(in super::super) async fn offer(
    connection: &mut MySqlConnection,
    sql: &MySqlInstallation,
    (user, mark): (UserId, &Mark),
    why: &str,
    (generation, now_ms): (Gen, u64),
) -> Result<FailOutcome, Failure> {
    match by_number(connection, mark.order).await? {
        Some((owner, found)) if owner == user && found.state == OrderState::Failed => {
            return Ok(FailOutcome::WasFailed);
        }
        Some((owner, found)) if owner == user => return Ok(FailOutcome::Stands(found)),
        Some((owner, _)) => {
            tracing::error!(order = %mark.order, %user, %owner, "two users have the same order number");
            return Ok(FailOutcome::Failed);
        }
        None => {}
    }
    let mut batch = Batch::new(generation, now_ms, [0; SHARDS]);
    rows::lock_shards(connection, &ShardId::ALL, &mut batch).await?;
    rows::read_everywhere(connection, [mark.sku], &mut batch).await?;
    let (holds, last_attempt) = attempts(connection, user, mark).await?;
    let home = ShardId::of(user);
    if holds || !gather(&mut batch, home, mark.sku, u32::from(mark.quantity)) {
        insert_failed(connection, user, mark, why, now_ms).await?;
        let failed = Mark { state: OrderState::Failed, pay_by_ms: 0, ..*mark };
        batch.append(home, Change::Marked(vec![(user, failed)]), &[]);
        rows::write(connection, &mut batch, sql.options.feed_events_max).await?;
        return Ok(FailOutcome::Failed);
    }
    let row = batch.stock.get_mut(&(home, mark.sku));
    let pay_within_ms = row.map_or(0, |row| {
        row.free = row.free.saturating_sub(mark.quantity.into());
        row.changed = true;
        row.pay_within_ms
    });
    let order = Mark {
        state: OrderState::PendingPayment,
        pay_by_ms: now_ms.saturating_add(pay_within_ms),
        attempt: mark.attempt.max(last_attempt.saturating_add(1)),
        ..*mark
    };
    batch.orders.push((user, order));
    batch.append(home, Change::Marked(vec![(user, order)]), &[mark.sku]);
    rows::write(connection, &mut batch, sql.options.feed_events_max).await?;
    let unparked = apply_parked(connection, sql, &[order.order.0], now_ms).await?;
    tell(&unparked);
    let now = by_number(connection, order.order).await?;
    Ok(FailOutcome::Stands(now.map_or(order, |(_, now)| now)))
}

/// A FAILED row that stands in nobody's way, and that a snapshot tells as long as its user has no other order.
pub(in super::super) async fn insert_failed(
    connection: &mut MySqlConnection,
    user: UserId,
    mark: &Mark,
    why: &str,
    now_ms: u64,
) -> Result<(), Failure> {
    let shard = ShardId::of(user);
    let mark = Mark { state: OrderState::Failed, pay_by_ms: 0, ..*mark };
    insert_failed_order(connection, &Release { id: 0, shard, user, mark }, why, now_ms).await?;
    // Before any attempt: these count from one.
    sqlx::query(
        "INSERT IGNORE INTO sql_marks (shard, activity, user, attempt, number) VALUES (?, ?, ?, 0, ?)",
    )
    .bind(shard.number())
    .bind(mark.sku.activity.0)
    .bind(user.0)
    .bind(mark.order.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Whether an order of the user lives, and his last attempt.
async fn attempts(
    connection: &mut MySqlConnection,
    user: UserId,
    mark: &Mark,
) -> Result<(bool, u8), Failure> {
    let rows: Vec<(u8, u8)> =
        sqlx::query_as("SELECT attempt, state FROM orders WHERE activity = ? AND user = ? AND state <> 5")
            .bind(mark.sku.activity.0)
            .bind(user.0)
            .fetch_all(connection)
            .await?;
    let holds = rows.iter().any(|(_, state)| OrderState::from_wire(*state).is_some_and(OrderState::is_live));
    Ok((holds, rows.iter().map(|(attempt, _)| *attempt).max().unwrap_or(0)))
}

/// Free units of an SKU in all shards, and those between two.
pub(super) fn free_of(batch: &Batch, sku: SkuKey) -> u64 {
    let free = ShardId::all().filter_map(|shard| batch.stock.get(&(shard, sku)));
    let free = free.fold(0_u64, |sum, row| sum.saturating_add(row.free.into()));
    moving(batch, sku).fold(free, |sum, (_, _, units)| sum.saturating_add(units.into()))
}

/// What left a shard and has not come in where it was to: from, to, units.
fn moving(batch: &Batch, sku: SkuKey) -> impl Iterator<Item = (ShardId, ShardId, u32)> {
    let pairs = ShardId::all().flat_map(|from| ShardId::all().map(move |to| (from, to)));
    pairs.filter_map(move |(from, to)| {
        let of = |shard, peer| batch.transfers.get(&(shard, sku)).and_then(|peers| peers.get(&peer));
        let out = of(from, to).map_or(0, |row| row.moved_out);
        let brought_in = of(to, from).map_or(0, |row| row.brought_in);
        u32::try_from(out.saturating_sub(brought_in))
            .ok()
            .filter(|units| *units > 0)
            .map(|units| (from, to, units))
    })
}

/// Brings so many free units to a shard, as moves; false, and nothing changed, if there are too few anywhere.
fn gather(batch: &mut Batch, home: ShardId, sku: SkuKey, quantity: u32) -> bool {
    if free_of(batch, sku) < u64::from(quantity) || !batch.stock.contains_key(&(home, sku)) {
        return false;
    }
    for (from, to, units) in moving(batch, sku).collect::<Vec<_>>() {
        bring_in(batch, sku, (from, to), units);
        if to != home {
            batch.append(to, Change::Moved, &[sku]);
        }
    }
    for source in ShardId::all().filter(|source| *source != home) {
        let free = |shard| batch.stock.get(&(shard, sku)).map_or(0, |row| row.free);
        let units = free(source).min(quantity.saturating_sub(free(home)));
        if units == 0 {
            continue;
        }
        if let Some(row) = batch.stock.get_mut(&(source, sku)) {
            row.free = row.free.saturating_sub(units);
            row.changed = true;
        }
        let out = batch.transfers.entry((source, sku)).or_default().entry(home).or_default();
        out.moved_out = out.moved_out.saturating_add(units.into());
        out.changed = true;
        bring_in(batch, sku, (source, home), units);
        batch.append(source, Change::Moved, &[sku]);
    }
    true
}

fn bring_in(batch: &mut Batch, sku: SkuKey, (from, to): (ShardId, ShardId), units: u32) {
    if let Some(row) = batch.stock.get_mut(&(to, sku)) {
        row.free = row.free.saturating_add(units);
        row.changed = true;
    }
    let brought = batch.transfers.entry((to, sku)).or_default().entry(from).or_default();
    brought.brought_in = brought.brought_in.saturating_add(units.into());
    brought.changed = true;
}

/// Why a reservation that comes out of a feed of before the takeover is not settled.
const OF_BEFORE: &str = "its activity was taken over from Redis since, and no gateway handed it in";

/// Ends such a one, and tells gateways so.
pub(in super::super) async fn fail_of_before(
    connection: &mut MySqlConnection,
    sql: &MySqlInstallation,
    (user, mark): (UserId, &Mark),
    now_ms: u64,
) -> Result<(), Failure> {
    tracing::error!(
        order = %mark.order, %user, sku = %mark.sku,
        "a reservation of before a takeover has failed: no gateway handed it in, and Redis is not believed about it"
    );
    insert_failed(connection, user, mark, OF_BEFORE, now_ms).await?;
    if super::is_taken(connection, mark.sku.activity).await? {
        reservation::tell(connection, sql, mark.order, now_ms).await?;
    }
    Ok(())
}

/// The generation of the last takeover of activities that ever were taken over.
pub(in super::super) async fn taken(
    connection: &mut MySqlConnection,
) -> Result<HashMap<ActivityId, Gen>, Failure> {
    let taken: Vec<(u32, u64)> = sqlx::query_as("SELECT id, taken_gen FROM activities WHERE taken_gen > 0")
        .fetch_all(connection)
        .await?;
    Ok(taken.into_iter().map(|(id, generation)| (ActivityId(id), Gen(generation))).collect())
}
