//! Payments (rules 14 and 18 of the stock protocol): each is a row, decided on in one transaction with its order.
//!
//! A payment and its order may come in either order, and at once. Each side writes its own row first and then looks for
//! the other with a locking read: whoever comes second finds the first, or waits for it, and two that wait for each other
//! are a deadlock, which is run again. So no payment stays parked beside an order that is settled; and should it,
//! [`MySqlInstallation::judge_parked`] finds it.
//!
//! A payment of an order that cannot be judged (its SKU has no price any more) is kept all the same: it stays parked, with
//! a dead letter that says why, and holds up neither the notice nor the settlement that it came with.

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::dead_letters;
use super::failure::{Failure, order_state, retried, sku_key};
use super::order_rows::lock_generation;
use super::order_states::{Step, advance, owe_mark};
use super::payment_rows::{
    PaymentRow, count_refunds, has_row, insert, known, may_exist, payment, record, refund_cause, ripe,
};
use super::statements::{Reading, Shapes, read};
use crate::payment::{Notice, Owed, Payment, PaymentState, RefundCause, Verdict, judge};
use crate::protocol::{OrderNumber, OrderState};
use crate::store::StoreError;
use crate::store::payments::ParkedPlace;
pub use crate::store::payments::{Judged, Refund, Stuck, Unparked};

static PARKED_OF_ORDERS: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "SELECT id, number, amount_minor, paid_at_ms FROM payments FORCE INDEX (payments_state) \
         WHERE state = 1 AND number IN (",
        "?",
        ") FOR UPDATE",
    )
});

impl MySqlInstallation {
    /// Takes a payment: once, however often it is told. `signed_at_ms` has to be within the window around the
    /// database's time.
    pub async fn take_payment(
        &self,
        payment: &Payment,
        signed_at_ms: u64,
        window: Duration,
    ) -> Result<Notice, StoreError> {
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        retried!(self.options.call_timeout; self.try_take(payment, Some((signed_at_ms, window_ms))))
    }

    /// Takes a payment that the payment centre itself answered with: no window.
    pub async fn take_answered_payment(&self, payment: &Payment) -> Result<Notice, StoreError> {
        retried!(self.options.call_timeout; self.try_take(payment, None))
    }

    /// Judges payments again that are parked though their order has gone on, or for longer than this; from after an
    /// order number (0: from the first).
    pub async fn judge_parked(
        &self,
        park_for: Duration,
        after: &ParkedPlace,
        limit: u32,
    ) -> Result<Judged, StoreError> {
        let park_ms = u64::try_from(park_for.as_millis()).unwrap_or(u64::MAX);
        let due = retried!(self.options.call_timeout; ripe(&self.pool, park_ms, after, limit))?;
        let next = due.last().filter(|_| due.len() >= usize::try_from(limit).unwrap_or(usize::MAX));
        let next = next.map(|(id, number)| ParkedPlace { order: *number, payment: id.clone() });
        let mut judged = Judged { next, ..Judged::default() };
        for (id, number) in due {
            let order = OrderNumber(number);
            match retried!(self.options.call_timeout; self.try_judge_parked(&id, park_ms)) {
                Ok(Ok(unparked)) => judged.unparked.extend(unparked),
                // It stays so until somebody mends it; the others must not wait for that.
                Ok(Err(Unjudged(reason))) | Err(StoreError::Corrupt(reason)) => {
                    judged.stuck.push(Stuck { payment: id, order, reason });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(judged)
    }

    /// How many payments are to be given back.
    pub async fn refunds_due_count(&self) -> Result<u64, StoreError> {
        retried!(self.options.call_timeout; count_refunds(&self.pool))
    }

    /// Money that is to be given back, the oldest first, at most so many.
    pub async fn refunds_due(&self, limit: u32) -> Result<Vec<Refund>, StoreError> {
        retried!(self.options.call_timeout; self.read_refunds(limit))
    }

    async fn try_take(&self, payment: &Payment, signed: Option<(u64, u64)>) -> Result<Notice, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (_, now_ms) = lock_generation(&mut transaction).await?;
        if signed.is_some_and(|(at_ms, window_ms)| at_ms.abs_diff(now_ms) > window_ms) {
            return Ok(Notice::Stale { now_ms });
        }
        match insert(&mut transaction, payment, now_ms).await {
            Err(failure) if failure.is_duplicate() => return known(&mut transaction, payment).await,
            other => other?,
        }
        let mut verdict =
            apply(&mut transaction, self, payment, now_ms).await?.unwrap_or(PaymentState::Parked);
        if verdict == PaymentState::Parked && !may_exist(&mut transaction, payment.order).await? {
            verdict = PaymentState::RefundDue(RefundCause::NoSuchOrder);
            record(&mut transaction, payment, verdict, now_ms).await?;
        }
        transaction.commit().await?;
        Ok(Notice::Kept { state: verdict, repeated: false })
    }

    /// What became of it, if it is parked no longer.
    async fn try_judge_parked(
        &self,
        id: &str,
        park_ms: u64,
    ) -> Result<Result<Option<Unparked>, Unjudged>, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (_, now_ms) = lock_generation(&mut transaction).await?;
        let found: Option<(u64, u64, u64, u64)> = sqlx::query_as(
            "SELECT number, amount_minor, paid_at_ms, received_at_ms FROM payments \
             WHERE id = ? AND state = 1 FOR UPDATE",
        )
        .bind(id)
        .fetch_optional(&mut *transaction)
        .await?;
        let Some((number, amount_minor, paid_at_ms, received_at_ms)) = found else { return Ok(Ok(None)) };
        let payment = payment((id.to_owned(), number, amount_minor, paid_at_ms))?;
        let mut state = match apply(&mut transaction, self, &payment, now_ms).await? {
            Ok(state) => state,
            Err(unjudged) => {
                transaction.commit().await?;
                return Ok(Err(unjudged));
            }
        };
        let is_over_time = received_at_ms.saturating_add(park_ms) < now_ms;
        // One that has a row is settled some day, however late.
        if state == PaymentState::Parked && is_over_time && !has_row(&mut transaction, payment.order).await? {
            state = PaymentState::RefundDue(RefundCause::NeverSettled);
            record(&mut transaction, &payment, state, now_ms).await?;
        }
        transaction.commit().await?;
        Ok(Ok((state != PaymentState::Parked).then_some(Unparked { payment, state })))
    }

    async fn read_refunds(&self, limit: u32) -> Result<Vec<Refund>, Failure> {
        let rows: Vec<(String, u64, u64, u64, u8, u64)> = sqlx::query_as(
            "SELECT id, number, amount_minor, paid_at_ms, refund_cause, changed_at_ms FROM payments \
             WHERE state = 3 ORDER BY changed_at_ms, id LIMIT ?",
        )
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        let refund = |(id, number, amount_minor, paid_at_ms, cause, since_ms)| {
            let payment = payment((id, number, amount_minor, paid_at_ms))?;
            let cause = refund_cause(&payment.id, cause)?;
            Ok(Refund { payment, cause, since_ms })
        };
        rows.into_iter().map(refund).collect()
    }
}

/// Applies what is parked for these orders, whose rows the caller has just written; what became of it.
pub(super) async fn apply_parked(
    connection: &mut MySqlConnection,
    installation: &MySqlInstallation,
    orders: &[u64],
    now_ms: u64,
) -> Result<Vec<Unparked>, Failure> {
    let rows: Vec<PaymentRow> = read(connection, &PARKED_OF_ORDERS, orders, Reading::bind).await?;
    let mut unparked = Vec::new();
    let mut seen = Vec::new();
    for row in rows {
        // One that nobody can read is found with those that are parked; the orders must not wait for it.
        let Ok(payment) = payment(row) else { continue };
        // Keys that fill a statement up bring a row twice.
        if seen.contains(&payment.id) {
            continue;
        }
        seen.push(payment.id.clone());
        match apply(connection, installation, &payment, now_ms).await? {
            Ok(PaymentState::Parked) | Err(Unjudged(_)) => {}
            Ok(state) => unparked.push(Unparked { payment, state }),
        }
    }
    Ok(unparked)
}

/// A settlement has committed what became of these; money that is to be given back is told, as that of a notice is.
pub(super) fn tell(unparked: &[Unparked]) {
    for Unparked { payment, state } in unparked {
        if let PaymentState::RefundDue(cause) = state {
            tracing::error!(
                payment = payment.id.as_str(), order = %payment.order, amount_minor = payment.amount_minor,
                cause = cause.name(), "money is to be given back: it came before its order was settled"
            );
        }
    }
}

/// Why a payment could not be judged. It has a dead letter.
#[derive(Debug, PartialEq, Eq)]
struct Unjudged(String);

/// Decides on a payment that has a row, and writes what follows, to the order, the history, and what Redis has to learn.
async fn apply(
    connection: &mut MySqlConnection,
    installation: &MySqlInstallation,
    payment: &Payment,
    now_ms: u64,
) -> Result<Result<PaymentState, Unjudged>, Failure> {
    let found = match owed(connection, payment.order).await {
        // Nothing was written yet.
        Err(Failure::Corrupt(reason)) => {
            let said = format!("payment {} cannot be judged: {reason}", payment.id.as_str());
            dead_letters::insert_of_order(connection, payment.order, &said, now_ms).await?;
            return Ok(Err(Unjudged(reason)));
        }
        found => found?,
    };
    let Verdict { payment: state, order } = judge(found.map(|found| found.owed), payment.amount_minor);
    if let (Some(found), Some((to, cause))) = (found, order) {
        let reason = format!("payment {}", payment.id.as_str());
        let step = Step { from: Some(found.owed.state), to, cause, reason: &reason };
        if !advance(connection, payment.order, step, now_ms).await? {
            return Err(Failure::Corrupt(format!("order {} moved while it was locked", payment.order)));
        }
        if found.is_of_redis {
            owe_mark(connection, payment.order, to, now_ms).await?;
        } else {
            super::reservation::tell(connection, installation, payment.order, now_ms).await?;
        }
    }
    if state != PaymentState::Parked {
        record(connection, payment, state, now_ms).await?;
    }
    Ok(Ok(state))
}

#[derive(Clone, Copy)]
struct Found {
    owed: Owed,
    is_of_redis: bool,
}

/// The order as it stands, locked; one that failed without a row of its own has a row in the ledger.
async fn owed(connection: &mut MySqlConnection, order: OrderNumber) -> Result<Option<Found>, Failure> {
    let row: Option<(u8, u8, u64, u32, u16, u16)> = sqlx::query_as(
        "SELECT state, source, user, activity, sku, quantity FROM orders WHERE number = ? FOR UPDATE",
    )
    .bind(order.0)
    .fetch_optional(&mut *connection)
    .await?;
    let Some((state, source, user, activity, sku, quantity)) = row else {
        let failed: Option<u8> = sqlx::query_scalar("SELECT state FROM ledger WHERE number = ? LIMIT 1")
            .bind(order.0)
            .fetch_optional(connection)
            .await?;
        let owed = Owed { state: OrderState::Failed, amount_minor: 0 };
        return Ok(failed.map(|_| Found { owed, is_of_redis: true }));
    };
    let (state, is_of_redis) = (order_state(order.0, state)?, source == 1);
    // What it costs is asked of nothing else, and an order that failed may be of an SKU that SQL does not have.
    if state != OrderState::PendingPayment {
        return Ok(Some(Found { owed: Owed { state, amount_minor: 0 }, is_of_redis }));
    }
    let price_minor: Option<u64> =
        sqlx::query_scalar("SELECT price_minor FROM skus WHERE activity = ? AND sku = ?")
            .bind(activity)
            .bind(sku)
            .fetch_optional(connection)
            .await?;
    let no_price = || {
        let sku = sku_key(activity, sku);
        Failure::Corrupt(format!("order {order} of user {user} is of SKU {sku}, which has no price"))
    };
    let price_minor = price_minor.ok_or_else(no_price)?;
    let owed = Owed { state, amount_minor: price_minor.saturating_mul(quantity.into()) };
    Ok(Some(Found { owed, is_of_redis }))
}
