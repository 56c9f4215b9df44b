//! What SQL holds of payments, closes and restocks, by plain queries of the audit's own.

use rushgate_servers::Database;
use sqlx::Row as _;

use crate::error::{DrillError, Result};
use crate::layout::ACTIVITY;
use crate::sql_side::connect;

/// One payment, whatever became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PaymentRow {
    pub(crate) id: String,
    pub(crate) number: u64,
    pub(crate) amount_minor: u64,
    pub(crate) state: u8,
    pub(crate) cause: u8,
}

/// A step of an order's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryRow {
    pub(crate) number: u64,
    /// 0: not known.
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) cause: u8,
    pub(crate) at_ms: u64,
    /// Of the order, as it is now; 0: it has no row.
    pub(crate) pay_by_ms: u64,
}

/// Units that are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LedgerRow {
    pub(crate) number: u64,
    pub(crate) user: u64,
    pub(crate) quantity: u64,
    pub(crate) is_done: bool,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaySide {
    pub(crate) payments: Vec<PaymentRow>,
    /// In the order of writing.
    pub(crate) history: Vec<HistoryRow>,
    pub(crate) ledger: Vec<LedgerRow>,
}

/// How orders and payments stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) orders: u64,
    /// Wait for their payment.
    pub(crate) unpaid: u64,
    /// Of these, the pay-by has been over for a second.
    pub(crate) overdue: u64,
    pub(crate) closed: u64,
    pub(crate) payments: u64,
    /// Payments that wait for their order.
    pub(crate) parked: u64,
}

pub(crate) async fn standing(database: &Database) -> Result<Standing> {
    let mut connection = connect(database).await?;
    let row = sqlx::query(
        "SELECT CAST(COUNT(*) AS UNSIGNED), CAST(COALESCE(SUM(state IN (1, 2, 7)), 0) AS UNSIGNED), \
         CAST(COALESCE(SUM(state = 2 AND pay_by_ms + 1000 < UNIX_TIMESTAMP(NOW(3)) * 1000), 0) AS UNSIGNED), \
         CAST(COALESCE(SUM(state IN (4, 6)), 0) AS UNSIGNED), \
         CAST((SELECT COUNT(*) FROM payments) AS UNSIGNED), \
         CAST((SELECT COUNT(*) FROM payments WHERE state = 1) AS UNSIGNED) FROM orders WHERE activity = ?",
    )
    .bind(ACTIVITY)
    .fetch_one(&mut connection)
    .await?;
    Ok(Standing {
        orders: row.try_get(0)?,
        unpaid: row.try_get(1)?,
        overdue: row.try_get(2)?,
        closed: row.try_get(3)?,
        payments: row.try_get(4)?,
        parked: row.try_get(5)?,
    })
}

pub(crate) async fn read(database: &Database) -> Result<PaySide> {
    let mut connection = connect(database).await?;
    let mut side = PaySide::default();
    let payments = sqlx::query(
        "SELECT CAST(id AS CHAR), number, amount_minor, CAST(state AS UNSIGNED), CAST(refund_cause AS UNSIGNED) \
         FROM payments",
    );
    for row in payments.fetch_all(&mut connection).await? {
        side.payments.push(PaymentRow {
            id: row.try_get(0)?,
            number: row.try_get(1)?,
            amount_minor: row.try_get(2)?,
            state: small(row.try_get(3)?)?,
            cause: small(row.try_get(4)?)?,
        });
    }
    let history = sqlx::query(
        "SELECT h.number, CAST(h.from_state AS UNSIGNED), CAST(h.state AS UNSIGNED), CAST(h.cause AS UNSIGNED), \
         h.at_ms, CAST(COALESCE(o.pay_by_ms, 0) AS UNSIGNED) FROM order_history h \
         LEFT JOIN orders o ON o.number = h.number ORDER BY h.id",
    );
    for row in history.fetch_all(&mut connection).await? {
        side.history.push(HistoryRow {
            number: row.try_get(0)?,
            from: small(row.try_get(1)?)?,
            to: small(row.try_get(2)?)?,
            cause: small(row.try_get(3)?)?,
            at_ms: row.try_get(4)?,
            pay_by_ms: row.try_get(5)?,
        });
    }
    let ledger = sqlx::query(
        "SELECT number, user, CAST(quantity AS UNSIGNED), CAST(done AS UNSIGNED) FROM ledger WHERE activity = ?",
    )
    .bind(ACTIVITY);
    for row in ledger.fetch_all(&mut connection).await? {
        side.ledger.push(LedgerRow {
            number: row.try_get(0)?,
            user: row.try_get(1)?,
            quantity: row.try_get(2)?,
            is_done: row.try_get::<u64, _>(3)? == 1,
        });
    }
    Ok(side)
}

fn small(number: u64) -> Result<u8> {
    u8::try_from(number).map_err(|_| DrillError::Malformed(format!("{number} in a narrow column")))
}
