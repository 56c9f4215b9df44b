//! The rows of payments: the statements, without what decides on them.

use sqlx::{MySqlConnection, MySqlPool};

use super::failure::Failure;
use crate::payment::{Notice, Payment, PaymentId, PaymentState, RefundCause};
use crate::protocol::OrderNumber;
use crate::store::payments::ParkedPlace;
use crate::store::sql::payment_columns;

/// Id, order, amount, and when it was paid.
pub(super) type PaymentRow = (String, u64, u64, u64);

pub(super) async fn insert(
    connection: &mut MySqlConnection,
    payment: &Payment,
    now_ms: u64,
) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO payments (id, number, amount_minor, paid_at_ms, state, refund_cause, received_at_ms, changed_at_ms) \
         VALUES (?, ?, ?, ?, 1, 0, ?, ?)",
    )
    .bind(payment.id.as_str())
    .bind(payment.order.0)
    .bind(payment.amount_minor)
    .bind(payment.paid_at_ms)
    .bind(now_ms)
    .bind(now_ms)
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn record(
    connection: &mut MySqlConnection,
    payment: &Payment,
    state: PaymentState,
    now_ms: u64,
) -> Result<(), Failure> {
    let (state, cause) = payment_columns::of_state(state);
    sqlx::query("UPDATE payments SET state = ?, refund_cause = ?, changed_at_ms = ? WHERE id = ?")
        .bind(state)
        .bind(cause)
        .bind(now_ms)
        .bind(payment.id.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// A payment whose id is there already.
pub(super) async fn known(connection: &mut MySqlConnection, payment: &Payment) -> Result<Notice, Failure> {
    let (number, amount_minor, state, cause): (u64, u64, u8, u8) =
        sqlx::query_as("SELECT number, amount_minor, state, refund_cause FROM payments WHERE id = ?")
            .bind(payment.id.as_str())
            .fetch_one(connection)
            .await?;
    if (number, amount_minor) != (payment.order.0, payment.amount_minor) {
        return Ok(Notice::Conflict);
    }
    let state = payment_columns::state(&payment.id, state, cause).map_err(Failure::Corrupt)?;
    Ok(Notice::Kept { state, repeated: true })
}

/// Whether some process can have given this number: one that was registered (rule 17).
pub(super) async fn may_exist(connection: &mut MySqlConnection, order: OrderNumber) -> Result<bool, Failure> {
    let newest: Option<u32> =
        sqlx::query_scalar("SELECT MAX(number) FROM processes").fetch_one(connection).await?;
    Ok(payment_columns::may_exist(order, newest.unwrap_or_default()))
}

/// Whether an order has a row, settled or not.
pub(super) async fn has_row(connection: &mut MySqlConnection, order: OrderNumber) -> Result<bool, Failure> {
    let found: Option<u8> = sqlx::query_scalar("SELECT state FROM orders WHERE number = ?")
        .bind(order.0)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

pub(super) async fn count_refunds(pool: &MySqlPool) -> Result<u64, Failure> {
    Ok(sqlx::query_scalar("SELECT CAST(COUNT(*) AS UNSIGNED) FROM payments WHERE state = 3")
        .fetch_one(pool)
        .await?)
}

/// Parked payments that somebody can do something about, by order number.
pub(super) async fn ripe(
    pool: &MySqlPool,
    park_ms: u64,
    after: &ParkedPlace,
    limit: u32,
) -> Result<Vec<(String, u64)>, Failure> {
    Ok(sqlx::query_as(concat!(
        "SELECT p.id, p.number FROM payments p LEFT JOIN orders o ON o.number = p.number \
         WHERE p.state = 1 AND p.number >= ? AND (p.number > ? OR p.id > ?) AND (o.state NOT IN (1, 7) OR (o.number IS NULL AND p.received_at_ms + ? < ",
        now_ms!(),
        ")) ORDER BY p.number, p.id LIMIT ?"
    ))
    .bind(after.order)
    .bind(after.order)
    .bind(&after.payment)
    .bind(park_ms)
    .bind(limit)
    .fetch_all(pool)
    .await?)
}

pub(super) fn payment(row: PaymentRow) -> Result<Payment, Failure> {
    payment_columns::payment(row).map_err(Failure::Corrupt)
}

pub(super) fn refund_cause(id: &PaymentId, number: u8) -> Result<RefundCause, Failure> {
    payment_columns::refund_cause(id, number).map_err(Failure::Corrupt)
}
