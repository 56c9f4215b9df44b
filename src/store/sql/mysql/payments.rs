//! Payments (rules 14 and 18 of the stock protocol): each is a row, decided on in one transaction with its order.
//!
//! A payment and its order may come in either order, and at once. Each side writes its own row first and then looks for
//! the other with a locking read: whoever comes second finds the first, or waits for it, and two that wait for each other
//! are a deadlock, which is run again. So no payment stays parked beside an order that is settled; and should it,
//! [`MySqlInstallation::judge_parked`] finds it.

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::{MySqlConnection, MySqlPool};

use super::MySqlInstallation;
use super::failure::{Failure, order_state, retried};
use super::order_rows::lock_generation;
use super::order_states::{Step, advance, owe_mark};
use super::statements::{Reading, Shapes, read};
use crate::payment::{Notice, Owed, Payment, PaymentId, PaymentState, RefundCause, Verdict, judge};
use crate::protocol::{OrderNumber, OrderState};
use crate::store::StoreError;

/// Numbers below are the sequence within a process (rule 17).
const SEQUENCE_BITS: u32 = 36;

static PARKED_OF_ORDERS: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "SELECT id, number, amount_minor, paid_at_ms FROM payments FORCE INDEX (payments_state) \
         WHERE state = 1 AND number IN (",
        "?",
        ") FOR UPDATE",
    )
});

type PaymentRow = (String, u64, u64, u64);

/// A payment that was parked and is no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unparked {
    /// Which.
    pub payment: Payment,
    /// What has become of it.
    pub state: PaymentState,
}

/// Money that is to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// The payment.
    pub payment: Payment,
    /// Why.
    pub cause: RefundCause,
    /// Since when, in Unix milliseconds.
    pub since_ms: u64,
}

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
    /// order number (0: from the first). One that cannot be judged is told and left. What became of them, and where to go on; `None`: that was the last page.
    pub async fn judge_parked(
        &self,
        park_for: Duration,
        after: OrderNumber,
        limit: u32,
    ) -> Result<(Vec<Unparked>, Option<OrderNumber>), StoreError> {
        let park_ms = u64::try_from(park_for.as_millis()).unwrap_or(u64::MAX);
        let due = retried!(self.options.call_timeout; ripe(&self.pool, park_ms, after, limit))?;
        let next = due.last().filter(|_| due.len() >= usize::try_from(limit).unwrap_or(usize::MAX));
        let next = next.map(|(_, number)| OrderNumber(*number));
        let mut unparked = Vec::new();
        for (id, _) in due {
            match retried!(self.options.call_timeout; self.try_judge_parked(&id, park_ms)) {
                Ok(judged) => unparked.extend(judged),
                // It stays so until somebody mends it; the others must not wait for that.
                Err(StoreError::Corrupt(reason)) => {
                    tracing::error!(
                        payment = id,
                        reason,
                        "a parked payment cannot be judged; it stays parked"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok((unparked, next))
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
        let mut verdict = apply(&mut transaction, self, payment, now_ms).await?;
        if verdict == PaymentState::Parked && !may_exist(&mut transaction, payment.order).await? {
            verdict = PaymentState::RefundDue(RefundCause::NoSuchOrder);
            record(&mut transaction, payment, verdict, now_ms).await?;
        }
        transaction.commit().await?;
        Ok(Notice::Kept { state: verdict, repeated: false })
    }

    async fn try_judge_parked(&self, id: &str, park_ms: u64) -> Result<Option<Unparked>, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (_, now_ms) = lock_generation(&mut transaction).await?;
        let found: Option<(u64, u64, u64, u64)> = sqlx::query_as(
            "SELECT number, amount_minor, paid_at_ms, received_at_ms FROM payments \
             WHERE id = ? AND state = 1 FOR UPDATE",
        )
        .bind(id)
        .fetch_optional(&mut *transaction)
        .await?;
        let Some((number, amount_minor, paid_at_ms, received_at_ms)) = found else { return Ok(None) };
        let payment = payment((id.to_owned(), number, amount_minor, paid_at_ms))?;
        let mut state = apply(&mut transaction, self, &payment, now_ms).await?;
        if state == PaymentState::Parked && received_at_ms.saturating_add(park_ms) < now_ms {
            state = PaymentState::RefundDue(RefundCause::NeverSettled);
            record(&mut transaction, &payment, state, now_ms).await?;
        }
        transaction.commit().await?;
        Ok((state != PaymentState::Parked).then_some(Unparked { payment, state }))
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

/// Applies what is parked for these orders, whose rows the caller has just written; the states to which that moved them.
pub(super) async fn apply_parked(
    connection: &mut MySqlConnection,
    installation: &MySqlInstallation,
    orders: &[u64],
    now_ms: u64,
) -> Result<Vec<(OrderNumber, OrderState)>, Failure> {
    let rows: Vec<PaymentRow> = read(connection, &PARKED_OF_ORDERS, orders, Reading::bind).await?;
    let mut moved = Vec::new();
    let mut seen = Vec::new();
    for row in rows {
        let payment = payment(row)?;
        // Keys that fill a statement up bring a row twice.
        if seen.contains(&payment.id) {
            continue;
        }
        if apply(connection, installation, &payment, now_ms).await? == PaymentState::Applied {
            moved.push((payment.order, OrderState::Paid));
        }
        seen.push(payment.id);
    }
    Ok(moved)
}

/// Decides on a payment that has a row, and writes what follows, to the order, the history, and what Redis has to learn.
async fn apply(
    connection: &mut MySqlConnection,
    installation: &MySqlInstallation,
    payment: &Payment,
    now_ms: u64,
) -> Result<PaymentState, Failure> {
    let found = owed(connection, payment.order).await?;
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
    Ok(state)
}

#[derive(Clone, Copy)]
struct Found {
    owed: Owed,
    is_of_redis: bool,
}

/// The order as it stands, locked; one that failed without a row of its own has a row in the ledger.
async fn owed(connection: &mut MySqlConnection, order: OrderNumber) -> Result<Option<Found>, Failure> {
    let row: Option<(u8, u8, u32, u16, u16)> = sqlx::query_as(
        "SELECT state, source, activity, sku, quantity FROM orders WHERE number = ? FOR UPDATE",
    )
    .bind(order.0)
    .fetch_optional(&mut *connection)
    .await?;
    let Some((state, source, activity, sku, quantity)) = row else {
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
    let price_minor =
        price_minor.ok_or_else(|| Failure::Corrupt(format!("order {order} is of an SKU without a price")))?;
    let owed = Owed { state, amount_minor: price_minor.saturating_mul(quantity.into()) };
    Ok(Some(Found { owed, is_of_redis }))
}

async fn insert(connection: &mut MySqlConnection, payment: &Payment, now_ms: u64) -> Result<(), Failure> {
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

async fn record(
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
async fn known(connection: &mut MySqlConnection, payment: &Payment) -> Result<Notice, Failure> {
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
async fn may_exist(connection: &mut MySqlConnection, order: OrderNumber) -> Result<bool, Failure> {
    let newest: Option<u32> =
        sqlx::query_scalar("SELECT MAX(number) FROM processes").fetch_one(connection).await?;
    let process = order.0.checked_shr(SEQUENCE_BITS).unwrap_or_default();
    Ok(process > 0 && process <= newest.unwrap_or_default().into())
}

/// Parked payments that somebody can do something about, by order number.
async fn ripe(
    pool: &MySqlPool,
    park_ms: u64,
    after: OrderNumber,
    limit: u32,
) -> Result<Vec<(String, u64)>, Failure> {
    Ok(sqlx::query_as(concat!(
        "SELECT p.id, p.number FROM payments p LEFT JOIN orders o ON o.number = p.number \
         WHERE p.state = 1 AND p.number > ? AND (o.state NOT IN (1, 7) OR p.received_at_ms + ? < ",
        now_ms!(),
        ") ORDER BY p.number LIMIT ?"
    ))
    .bind(after.0)
    .bind(park_ms)
    .bind(limit)
    .fetch_all(pool)
    .await?)
}

fn payment((id, number, amount_minor, paid_at_ms): PaymentRow) -> Result<Payment, Failure> {
    let parsed = PaymentId::new(&id);
    let id = parsed.ok_or_else(|| Failure::Corrupt(format!("{id:?} is the id of a payment")))?;
    Ok(Payment { id, order: OrderNumber(number), amount_minor, paid_at_ms })
}

fn refund_cause(id: &PaymentId, number: u8) -> Result<RefundCause, Failure> {
    let unknown = || Failure::Corrupt(format!("payment {} has the unknown cause {number}", id.as_str()));
    RefundCause::from_number(number).ok_or_else(unknown)
}
