//! Payments of the embedded store (rules 14 and 18 of the stock protocol): each is a row, decided on in one transaction
//! with its order.
//!
//! Run by the writer task, which alone writes, so a payment and its order never meet. A payment that comes before its
//! order is parked; it is judged again soon after the order is there, and until then nobody closes that order.

use sqlx::{Connection, SqliteConnection, SqlitePool};

use super::error::Failure;
use super::feed::Feeds;
use super::rows::{self, Wanted};
use super::statements::signed;
use super::step::Step;
use super::{order_changes, overdue, payment_columns};
use crate::payment::{Notice, Owed, Payment, PaymentState, RefundCause, Verdict, judge};
use crate::protocol::{OrderNumber, OrderState, UserId};
use crate::stock::calls::Mark;
use crate::store::payments::{ParkedPlace, Refund, Unparked};

/// Takes a payment: once, however often it is told. `signed_within`: when it was signed, and how far from now that may
/// be.
pub(super) async fn take(
    connection: &mut SqliteConnection,
    feeds: &Feeds,
    payment: &Payment,
    signed_within: Option<(u64, u64)>,
    now_ms: u64,
) -> Result<Notice, Failure> {
    if signed_within.is_some_and(|(at_ms, window_ms)| at_ms.abs_diff(now_ms) > window_ms) {
        return Ok(Notice::Stale { now_ms });
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if let Some(notice) = known(&mut transaction, payment).await? {
        return Ok(notice);
    }
    insert(&mut transaction, payment, now_ms).await?;
    let mut batch = rows::load(&mut transaction, &Wanted::default(), now_ms).await?;
    feeds.align(&batch.seq);
    let mut state = apply(&mut transaction, &mut batch, payment).await?;
    if state == PaymentState::Parked && !may_exist(&mut transaction, payment.order).await? {
        state = PaymentState::RefundDue(RefundCause::NoSuchOrder);
    }
    record(&mut transaction, payment, state, now_ms).await?;
    rows::store(&mut transaction, &batch).await?;
    transaction.commit().await?;
    feeds.publish(batch.events);
    Ok(Notice::Kept { state, repeated: false })
}

/// Judges a parked payment again; what has become of it, if it is parked no more.
pub(super) async fn judge_parked(
    connection: &mut SqliteConnection,
    feeds: &Feeds,
    id: &str,
    park_ms: u64,
    now_ms: u64,
) -> Result<Option<Unparked>, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found: Option<(i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT number, amount_minor, paid_at_ms, received_at_ms FROM payments WHERE id = ? AND state = 1",
    )
    .bind(id)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some((number, amount_minor, paid_at_ms, received_at_ms)) = found else { return Ok(None) };
    let payment = payment((id.to_owned(), number, amount_minor, paid_at_ms))?;
    let mut batch = rows::load(&mut transaction, &Wanted::default(), now_ms).await?;
    feeds.align(&batch.seq);
    let mut state = apply(&mut transaction, &mut batch, &payment).await?;
    let is_late = rows::unsigned(received_at_ms)?.saturating_add(park_ms) < now_ms;
    if state == PaymentState::Parked && is_late {
        state = PaymentState::RefundDue(RefundCause::NeverSettled);
    }
    if state == PaymentState::Parked {
        return Ok(None);
    }
    record(&mut transaction, &payment, state, now_ms).await?;
    rows::store(&mut transaction, &batch).await?;
    transaction.commit().await?;
    feeds.publish(batch.events);
    Ok(Some(Unparked { payment, state }))
}

/// Parked payments that somebody can do something about, by order number.
pub(super) async fn ripe(
    readers: &SqlitePool,
    parked_before_ms: u64,
    after: &ParkedPlace,
    limit: u32,
) -> Result<Vec<(String, OrderNumber)>, Failure> {
    let found: Vec<(String, i64)> = sqlx::query_as(
        "SELECT p.id, p.number FROM payments p INDEXED BY payments_parked \
         WHERE p.state = 1 AND p.number >= ? AND (p.number, p.id) > (?, ?) AND (p.received_at_ms < ? \
           OR EXISTS (SELECT 1 FROM orders o WHERE o.number = p.number)) ORDER BY p.number, p.id LIMIT ?",
    )
    .bind(signed(after.order))
    .bind(signed(after.order))
    .bind(&after.payment)
    .bind(signed(parked_before_ms))
    .bind(limit)
    .fetch_all(readers)
    .await?;
    found.into_iter().map(|(id, number)| Ok((id, OrderNumber(rows::unsigned(number)?)))).collect()
}

/// How many payments are to be given back.
pub(super) async fn count_refunds(readers: &SqlitePool) -> Result<u64, Failure> {
    let count: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM payments WHERE state = 3").fetch_one(readers).await?;
    rows::unsigned(count)
}

/// Money that is to be given back, the oldest first, at most so many.
pub(super) async fn refunds(readers: &SqlitePool, limit: u32) -> Result<Vec<Refund>, Failure> {
    let found: Vec<(String, i64, i64, i64, u8, i64)> = sqlx::query_as(
        "SELECT id, number, amount_minor, paid_at_ms, refund_cause, changed_at_ms FROM payments \
         WHERE state = 3 ORDER BY changed_at_ms, id LIMIT ?",
    )
    .bind(limit)
    .fetch_all(readers)
    .await?;
    let refund = |(id, number, amount_minor, paid_at_ms, cause, since_ms)| {
        let payment = payment((id, number, amount_minor, paid_at_ms))?;
        let cause = payment_columns::refund_cause(&payment.id, cause).map_err(Failure::Corrupt)?;
        Ok(Refund { payment, cause, since_ms: rows::unsigned(since_ms)? })
    };
    found.into_iter().map(refund).collect()
}

/// Decides on a payment, and moves its order.
async fn apply(
    connection: &mut SqliteConnection,
    batch: &mut super::batch::Batch,
    payment: &Payment,
) -> Result<PaymentState, Failure> {
    let found = overdue::find(&mut *connection, payment.order).await?;
    let owed = match &found {
        Some(found) => Some(owed(connection, found).await?),
        None => None,
    };
    let Verdict { payment: state, order } = judge(owed, payment.amount_minor);
    if let (Some(found), Some((to, cause))) = (found, order) {
        let reason = format!("payment {}", payment.id.as_str());
        let step = Step { from: Some(found.1.state), to, cause, reason: &reason };
        order_changes::advance(connection, batch, &[found], step).await?;
    }
    Ok(state)
}

/// What it costs is asked of none but those that wait for their payment.
async fn owed(connection: &mut SqliteConnection, (_, mark): &(UserId, Mark)) -> Result<Owed, Failure> {
    if mark.state != OrderState::PendingPayment {
        return Ok(Owed { state: mark.state, amount_minor: 0 });
    }
    let price_minor: Option<i64> =
        sqlx::query_scalar("SELECT price_minor FROM skus WHERE activity = ? AND sku = ?")
            .bind(mark.sku.activity.0)
            .bind(mark.sku.sku.0)
            .fetch_optional(connection)
            .await?;
    let price_minor = price_minor
        .ok_or_else(|| Failure::Corrupt(format!("order {} is of an SKU without a price", mark.order)))?;
    let amount_minor = rows::unsigned(price_minor)?.saturating_mul(mark.quantity.into());
    Ok(Owed { state: mark.state, amount_minor })
}

async fn insert(connection: &mut SqliteConnection, payment: &Payment, now_ms: u64) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO payments (id, number, amount_minor, paid_at_ms, state, refund_cause, received_at_ms, \
         changed_at_ms) VALUES (?, ?, ?, ?, 1, 0, ?, ?)",
    )
    .bind(payment.id.as_str())
    .bind(signed(payment.order.0))
    .bind(signed(payment.amount_minor))
    .bind(signed(payment.paid_at_ms))
    .bind(signed(now_ms))
    .bind(signed(now_ms))
    .execute(connection)
    .await?;
    Ok(())
}

async fn record(
    connection: &mut SqliteConnection,
    payment: &Payment,
    state: PaymentState,
    now_ms: u64,
) -> Result<(), Failure> {
    let (state, cause) = payment_columns::of_state(state);
    sqlx::query("UPDATE payments SET state = ?, refund_cause = ?, changed_at_ms = ? WHERE id = ?")
        .bind(state)
        .bind(cause)
        .bind(signed(now_ms))
        .bind(payment.id.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// What a payment is told whose id is there already. Numbers beyond 2^63 are kept as the greatest.
async fn known(connection: &mut SqliteConnection, payment: &Payment) -> Result<Option<Notice>, Failure> {
    let found: Option<(i64, i64, u8, u8)> =
        sqlx::query_as("SELECT number, amount_minor, state, refund_cause FROM payments WHERE id = ?")
            .bind(payment.id.as_str())
            .fetch_optional(connection)
            .await?;
    let Some((number, amount_minor, state, cause)) = found else { return Ok(None) };
    if (number, amount_minor) != (signed(payment.order.0), signed(payment.amount_minor)) {
        return Ok(Some(Notice::Conflict));
    }
    let state = payment_columns::state(&payment.id, state, cause).map_err(Failure::Corrupt)?;
    Ok(Some(Notice::Kept { state, repeated: true }))
}

/// Whether some process can have given this number.
async fn may_exist(connection: &mut SqliteConnection, order: OrderNumber) -> Result<bool, Failure> {
    let newest: Option<u32> =
        sqlx::query_scalar("SELECT MAX(number) FROM processes").fetch_one(connection).await?;
    Ok(payment_columns::may_exist(order, newest.unwrap_or_default()))
}

fn payment((id, number, amount_minor, paid_at_ms): (String, i64, i64, i64)) -> Result<Payment, Failure> {
    let columns = (id, rows::unsigned(number)?, rows::unsigned(amount_minor)?, rows::unsigned(paid_at_ms)?);
    payment_columns::payment(columns).map_err(Failure::Corrupt)
}
