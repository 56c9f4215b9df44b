//! The rows of payments: the statements, without what decides on them.

use sqlx::{MySqlConnection, MySqlPool};

use super::failure::Failure;
use crate::payment::{Notice, Payment, PaymentId, PaymentState, RefundCause};
use crate::protocol::OrderNumber;

/// Numbers below are the sequence within a process (rule 17).
const SEQUENCE_BITS: u32 = 36;

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
    let (state, cause) = match state {
        PaymentState::Parked => (1, 0),
        PaymentState::Applied => (2, 0),
        PaymentState::RefundDue(cause) => (3, cause as u8),
    };
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
    let state = match state {
        1 => PaymentState::Parked,
        2 => PaymentState::Applied,
        _ => PaymentState::RefundDue(refund_cause(&payment.id, cause)?),
    };
    Ok(Notice::Kept { state, repeated: true })
}

/// Whether some process can have given this number: one that was registered (rule 17).
pub(super) async fn may_exist(connection: &mut MySqlConnection, order: OrderNumber) -> Result<bool, Failure> {
    let newest: Option<u32> =
        sqlx::query_scalar("SELECT MAX(number) FROM processes").fetch_one(connection).await?;
    let process = order.0.checked_shr(SEQUENCE_BITS).unwrap_or_default();
    Ok(process > 0 && process <= newest.unwrap_or_default().into())
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
    after: OrderNumber,
    limit: u32,
) -> Result<Vec<(String, u64)>, Failure> {
    Ok(sqlx::query_as(concat!(
        "SELECT p.id, p.number FROM payments p LEFT JOIN orders o ON o.number = p.number \
         WHERE p.state = 1 AND p.number > ? AND (o.state NOT IN (1, 7) OR (o.number IS NULL AND p.received_at_ms + ? < ",
        now_ms!(),
        ")) ORDER BY p.number LIMIT ?"
    ))
    .bind(after.0)
    .bind(park_ms)
    .bind(limit)
    .fetch_all(pool)
    .await?)
}

pub(super) fn payment((id, number, amount_minor, paid_at_ms): PaymentRow) -> Result<Payment, Failure> {
    let parsed = PaymentId::new(&id);
    let id = parsed.ok_or_else(|| Failure::Corrupt(format!("{id:?} is the id of a payment")))?;
    Ok(Payment { id, order: OrderNumber(number), amount_minor, paid_at_ms })
}

pub(super) fn refund_cause(id: &PaymentId, number: u8) -> Result<RefundCause, Failure> {
    let unknown = || Failure::Corrupt(format!("payment {} has the unknown cause {number}", id.as_str()));
    RefundCause::from_number(number).ok_or_else(unknown)
}
