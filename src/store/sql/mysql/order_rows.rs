//! The rows that a settlement writes, and the generation that it locks: the statements, without what decides on them.
//!
//! Each is part of a caller's transaction. Rows and SKUs are taken in one order by everybody.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::{MySql, MySqlConnection, Transaction};

use super::failure::Failure;
use super::statements::{Shapes, write};
use crate::protocol::{SkuKey, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};

static INSERT_ORDERS: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO orders (number, activity, user, attempt, sku, quantity, state, source, shard, pay_by_ms, \
         created_at_ms) VALUES ",
        "(?,?,?,?,?,?,?,1,?,?,?)",
        "",
    )
});

/// Inserts nothing ever: an SKU that is not there has no row in `skus` either, which the foreign key tells. One
/// that has too little left is out of the column's range.
static DEDUCT: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO sku_stock (activity, sku, available, sold, version) VALUES ",
        "(?,?,0,?,0)",
        " ON DUPLICATE KEY UPDATE available = available - VALUES(sold), sold = sold + VALUES(sold), \
         version = version + 1",
    )
});

/// Locks the generation until the transaction's end, against a recovery but not against other writers; and the time.
pub(super) async fn lock_generation(connection: &mut MySqlConnection) -> Result<(Gen, u64), Failure> {
    let (generation, _, now_ms) = lock_generation_to_settle(connection).await?;
    Ok((generation, now_ms))
}

/// The same for who settles, and the generation of the last takeover, or way back: what was read under an older one is
/// settled with care.
pub(super) async fn lock_generation_to_settle(
    connection: &mut MySqlConnection,
) -> Result<(Gen, Gen, u64), Failure> {
    let select = concat!("SELECT gen, rebuild_below, ", now_ms!(), " FROM installation LOCK IN SHARE MODE");
    let (generation, taken, now_ms): (u64, u64, u64) = sqlx::query_as(select).fetch_one(connection).await?;
    Ok((Gen(generation), Gen(taken), now_ms))
}

/// Rolls back now rather than when the connection is used next: the transaction that follows would wait for the locks
/// of this one. Where it fails the connection is lost, and its transaction with it.
pub(super) async fn undo(transaction: Transaction<'_, MySql>) {
    if let Err(error) = transaction.rollback().await {
        tracing::debug!(%error, "a rollback failed");
    }
}

pub(super) async fn insert_orders(
    connection: &mut MySqlConnection,
    orders: &[(ShardId, UserId, Mark)],
    now_ms: u64,
) -> Result<(), sqlx::Error> {
    write(connection, &INSERT_ORDERS, orders, |query, (shard, user, mark)| {
        query
            .bind(mark.order.0)
            .bind(mark.sku.activity.0)
            .bind(user.0)
            .bind(mark.attempt)
            .bind(mark.sku.sku.0)
            .bind(mark.quantity)
            .bind(mark.state as u8)
            .bind(shard.number())
            .bind(mark.pay_by_ms)
            .bind(now_ms)
    })
    .await
}

/// Takes the units of orders from their SKUs, in the order of the SKUs.
pub(super) async fn deduct(
    connection: &mut MySqlConnection,
    orders: impl Iterator<Item = &Mark>,
) -> Result<(), sqlx::Error> {
    let mut units: BTreeMap<SkuKey, u64> = BTreeMap::new();
    for mark in orders {
        let sum = units.entry(mark.sku).or_default();
        *sum = sum.saturating_add(u64::from(mark.quantity));
    }
    let units: Vec<_> = units.into_iter().collect();
    write(connection, &DEDUCT, &units, |query, (sku, units)| {
        query.bind(sku.activity.0).bind(sku.sku.0).bind(*units)
    })
    .await
}

/// Gives the units of orders that are closed back to their SKU, which has to be there and to have sold as many.
pub(super) async fn give_back(
    connection: &mut MySqlConnection,
    sku: SkuKey,
    units: u64,
) -> Result<(), Failure> {
    let given = sqlx::query(
        "UPDATE sku_stock SET available = available + ?, sold = sold - ?, version = version + 1 \
         WHERE activity = ? AND sku = ?",
    )
    .bind(units)
    .bind(units)
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .execute(connection)
    .await
    .map_err(Failure::from);
    match given {
        Ok(given) if given.rows_affected() > 0 => Ok(()),
        Ok(_) => Err(Failure::Corrupt(format!("SKU {sku} has no stock row, and orders that hold its units"))),
        Err(failure) if failure.is_bad_row() => Err(Failure::Corrupt(format!(
            "the stock row of SKU {sku} cannot take {units} units back: {failure}"
        ))),
        Err(failure) => Err(failure),
    }
}
