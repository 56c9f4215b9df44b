//! Orders that go from one kind of shards to the other. Part of a transaction that has locked the generation and the
//! activity.

use std::collections::BTreeMap;

use sqlx::MySqlConnection;

use super::super::failure::Failure;
use super::TakenSku;
use crate::protocol::{ActivityId, OrderState, SkuId};

/// Where an order's units are from, as SQL has it.
pub(super) const REDIS: u8 = 1;
pub(super) const DATABASE: u8 = 2;

/// Reservations that have a row and were never settled are settled by this: their units are held from now on.
pub(super) async fn settle_rows(
    connection: &mut MySqlConnection,
    activity: ActivityId,
    pay_by_ms: u64,
) -> Result<(), Failure> {
    sqlx::query(
        "UPDATE orders SET state = 2, pay_by_ms = ? WHERE activity = ? AND source = 1 AND state IN (1, 7)",
    )
    .bind(pay_by_ms)
    .bind(activity.0)
    .execute(&mut *connection)
    .await?;
    // Nothing of them is left to be settled.
    sqlx::query("DELETE FROM recorded WHERE activity = ?").bind(activity.0).execute(connection).await?;
    Ok(())
}

/// Turns all orders of an activity that did not fail into orders of the other kind. Attempts are numbered apart: where a
/// user has one there under the same number, the order that is over stays what it is. One that lives gets the next number
/// after all of his there, if it has not the highest: that one is his mark.
pub(super) async fn turn(
    connection: &mut MySqlConnection,
    activity: ActivityId,
    (from, to): (u8, u8),
) -> Result<(), Failure> {
    sqlx::query(
        "UPDATE orders o LEFT JOIN orders p ON p.activity = o.activity AND p.user = o.user AND p.source = ? \
           AND p.held_attempt = o.attempt \
         SET o.source = ? WHERE o.activity = ? AND o.source = ? AND o.state <> 5 AND p.number IS NULL",
    )
    .bind(to)
    .bind(to)
    .bind(activity.0)
    .bind(from)
    .execute(&mut *connection)
    .await?;
    let left: Vec<(u64, u64)> = sqlx::query_as(
        "SELECT o.number, o.user FROM orders o WHERE o.activity = ? AND o.live = 1 AND (o.source = ? OR EXISTS (\
           SELECT 1 FROM orders p WHERE p.activity = o.activity AND p.user = o.user AND p.source = ? \
             AND p.held_attempt > o.attempt))",
    )
    .bind(activity.0)
    .bind(from)
    .bind(to)
    .fetch_all(&mut *connection)
    .await?;
    for (number, user) in left {
        let last: Option<u8> = sqlx::query_scalar(
            "SELECT MAX(held_attempt) FROM orders WHERE activity = ? AND user = ? AND source = ?",
        )
        .bind(activity.0)
        .bind(user)
        .bind(to)
        .fetch_one(&mut *connection)
        .await?;
        let attempt = last.unwrap_or(0).checked_add(1).ok_or_else(|| {
            Failure::Corrupt(format!(
                "user {user} has 255 attempts in activity {activity}; order {number} waits"
            ))
        })?;
        sqlx::query("UPDATE orders SET source = ?, attempt = ? WHERE number = ?")
            .bind(to)
            .bind(attempt)
            .bind(number)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Units of settled orders, by SKU and state.
pub(super) async fn add_up(
    connection: &mut MySqlConnection,
    activity: ActivityId,
    source: u8,
    skus: &mut BTreeMap<SkuId, TakenSku>,
) -> Result<(), Failure> {
    let sums: Vec<(u16, u8, u64)> = sqlx::query_as(
        "SELECT sku, state, CAST(SUM(quantity) AS UNSIGNED) FROM orders WHERE activity = ? AND source = ? \
         GROUP BY sku, state",
    )
    .bind(activity.0)
    .bind(source)
    .fetch_all(connection)
    .await?;
    for (sku, state, units) in sums {
        let Some(of) = skus.get_mut(&SkuId(sku)) else { continue };
        let slot = match OrderState::from_wire(state) {
            Some(OrderState::Paid) => &mut of.paid,
            Some(OrderState::Closed | OrderState::RefundDue) => &mut of.closed,
            Some(state) if state.is_live() => &mut of.unpaid,
            _ => continue,
        };
        *slot = slot.saturating_add(units);
    }
    Ok(())
}
