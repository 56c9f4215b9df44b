//! Orders that were not paid in time: found by index, shared among writers without a leader, closed in batches.
//!
//! Taking an order locks its row for no longer than the taking (`FOR UPDATE SKIP LOCKED`), and puts off its next turn:
//! the payment centre is asked outside of any transaction, so that a payment that comes meanwhile finds the row free. Who
//! dies between taking and closing has only delayed it. The delay doubles with each asking, so that it is the back-off for
//! orders of which the payment centre knows nothing, too.
//!
//! One SKU whose books are wrong keeps its own orders open and nobody else's: the batch is closed without them, and they are
//! told to the caller.
//!
//! Time is the database's alone.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::failure::{Failure, retried, sku_key};
use super::order_rows::{give_back, lock_generation, undo};
use super::order_states::{Step, insert_history};
use super::orders::{SourcedMarkRow, by_number, sourced_mark};
use super::releases::{Release, insert_ledger_rows};
use super::reservation::MySqlStore;
use super::statements::{Reading, Shapes, execute_among, execute_among_with, read};
use crate::protocol::{OrderNumber, OrderState, SkuKey, UserId};
use crate::stock::calls::{Mark, ShardId};
use crate::store::StoreError;
use crate::store::payments::DOUBLINGS_MAX;
pub use crate::store::payments::{Closings, LeftOpen, Overdue, OverdueOrder, Taken};

static PUT_OFF: LazyLock<Shapes> = LazyLock::new(|| {
    let head = format!(
        "UPDATE orders SET deferred_ms = ? + LEAST(?, ? << LEAST(asked, {DOUBLINGS_MAX})) - pay_by_ms, \
         asked = LEAST(asked, 65000) + 1 WHERE number IN ("
    );
    Shapes::new(&head, "?", ")")
});

/// Orders with who settled them, each locked.
pub(super) static LOCK_ORDERS: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "SELECT user, number, activity, sku, quantity, attempt, state, pay_by_ms, source FROM orders \
         WHERE number IN (",
        "?",
        ") FOR UPDATE",
    )
});

static CLOSE: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new("UPDATE orders SET state = 4 WHERE state = 2 AND source = 1 AND number IN (", "?", ")")
});

static RESTOCK_LAG: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "SELECT CAST(COALESCE(MAX(l.done_at_ms - LEAST(o.pay_by_ms, l.done_at_ms)), 0) AS UNSIGNED) \
         FROM ledger l JOIN orders o ON o.number = l.number JOIN order_history h ON h.number = l.number \
         WHERE h.cause = 2 AND l.done = 1 AND l.id IN (",
        "?",
        ")",
    )
});

/// What came of one try to close a batch.
enum Round {
    /// Committed; the orders that are of the shards in this database are to be closed there.
    Closed { closings: Closings, of_sql: Vec<(UserId, Mark)> },
    /// Nothing was written: this SKU cannot take its units back.
    BadSku(SkuKey, String),
}

impl MySqlInstallation {
    /// Takes orders whose turn it is, the longest due first; nobody else is given them before the delay is over.
    pub async fn take_overdue(&self, how: Overdue) -> Result<Taken, StoreError> {
        retried!(self.options.call_timeout; self.try_take_overdue(how))
    }

    /// Closes those of these orders that still wait for their payment: one transaction for their states, their units
    /// and their ledger rows, without those of SKUs that cannot take their units back.
    pub async fn close_overdue(&self, orders: &[OrderNumber]) -> Result<Closings, StoreError> {
        let mut bad_skus = BTreeMap::new();
        let (mut closings, of_sql) = loop {
            match retried!(self.options.call_timeout; self.try_close_overdue(orders, &bad_skus))? {
                Round::Closed { closings, of_sql } => break (closings, of_sql),
                // Each round finds another one, or none.
                Round::BadSku(sku, reason) => drop(bad_skus.insert(sku, reason)),
            }
        };
        if !of_sql.is_empty() {
            let store = MySqlStore::new(self.clone());
            for (user, mark) in of_sql {
                match store.close_order(mark.order).await {
                    Ok(outcome) => {
                        let closed = u64::from(outcome == super::CloseOutcome::Closed);
                        closings.closed = closings.closed.saturating_add(closed);
                    }
                    Err(StoreError::Corrupt(reason)) => {
                        closings.left_open.push(LeftOpen { user, order: mark.order, sku: mark.sku, reason });
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(closings)
    }

    /// The order, if it waits for its payment.
    pub async fn waiting_for_payment(
        &self,
        order: OrderNumber,
    ) -> Result<Option<(UserId, Mark)>, StoreError> {
        retried!(self.options.call_timeout; self.read_waiting(order))
    }

    /// For how long the order has been due that has waited longest for its turn; 0: none is due.
    pub async fn overdue_lag_ms(&self) -> Result<u64, StoreError> {
        retried!(self.options.call_timeout; self.read_overdue_lag())
    }

    /// Of these releases that are done, those of orders that timed out: the longest time from an order's pay-by to when
    /// its units were for sale again.
    pub async fn restock_lag_ms(&self, releases: &[u64]) -> Result<u64, StoreError> {
        retried!(self.options.call_timeout; self.read_restock_lag(releases))
    }

    async fn try_take_overdue(&self, how: Overdue) -> Result<Taken, Failure> {
        let mut transaction = self.pool.begin().await?;
        let now_ms: u64 =
            sqlx::query_scalar(concat!("SELECT ", now_ms!())).fetch_one(&mut *transaction).await?;
        let due: Vec<(u64, u64, u64)> = sqlx::query_as(
            "SELECT number, pay_by_ms, ask_at_ms FROM orders FORCE INDEX (orders_ask) \
             WHERE ask_at_ms <= ? ORDER BY ask_at_ms LIMIT ? FOR UPDATE SKIP LOCKED",
        )
        .bind(now_ms)
        .bind(how.limit)
        .fetch_all(&mut *transaction)
        .await?;
        let mut numbers: Vec<_> = due.iter().map(|(number, ..)| *number).collect();
        numbers.sort_unstable();
        let (longest_ms, first_ms) = how.delays_ms();
        execute_among_with(&mut transaction, &PUT_OFF, &numbers, |query| {
            query.bind(now_ms).bind(longest_ms).bind(first_ms)
        })
        .await?;
        transaction.commit().await?;
        let order = |(number, pay_by_ms, ask_at_ms)| OverdueOrder {
            order: OrderNumber(number),
            overdue_ms: now_ms.saturating_sub(pay_by_ms),
            waited_ms: now_ms.saturating_sub(ask_at_ms),
        };
        Ok(Taken { now_ms, orders: due.into_iter().map(order).collect() })
    }

    async fn try_close_overdue(
        &self,
        orders: &[OrderNumber],
        bad_skus: &BTreeMap<SkuKey, String>,
    ) -> Result<Round, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (_, now_ms) = lock_generation(&mut transaction).await?;
        let Waiting { closing, of_sql, left_open } = lock_waiting(&mut transaction, orders, bad_skus).await?;
        let numbers: Vec<_> = closing.iter().map(|(_, mark)| mark.order.0).collect();
        execute_among(&mut transaction, &CLOSE, &numbers).await?;
        let closed: Vec<_> = numbers.iter().copied().map(OrderNumber).collect();
        insert_history(&mut transaction, &closed, Step::TIMED_OUT, now_ms).await?;
        let release = |(user, mark): &(UserId, Mark)| Release {
            id: 0,
            shard: ShardId::of(*user),
            user: *user,
            mark: Mark { state: OrderState::Closed, ..*mark },
        };
        let releases: Vec<_> = closing.iter().map(release).collect();
        insert_ledger_rows(&mut transaction, &releases, now_ms).await?;
        // Last, and in the order of the SKUs, as settlements do: their rows are what everybody waits for.
        let mut units: BTreeMap<SkuKey, u64> = BTreeMap::new();
        for (_, mark) in &closing {
            let sum = units.entry(mark.sku).or_default();
            *sum = sum.saturating_add(mark.quantity.into());
        }
        for (sku, units) in units {
            match give_back(&mut transaction, sku, units).await {
                Err(Failure::Corrupt(reason)) => {
                    undo(transaction).await;
                    return Ok(Round::BadSku(sku, reason));
                }
                given => given?,
            }
        }
        transaction.commit().await?;
        let closed = u64::try_from(numbers.len()).unwrap_or(u64::MAX);
        Ok(Round::Closed { closings: Closings { closed, left_open }, of_sql })
    }

    async fn read_waiting(&self, order: OrderNumber) -> Result<Option<(UserId, Mark)>, Failure> {
        let mut connection = self.pool.acquire().await?;
        let found = by_number(&mut connection, order).await?;
        Ok(found.filter(|(_, mark)| mark.state == OrderState::PendingPayment))
    }

    async fn read_overdue_lag(&self) -> Result<u64, Failure> {
        let lag: Option<u64> = sqlx::query_scalar(concat!(
            "SELECT CAST(",
            now_ms!(),
            " - LEAST(MIN(ask_at_ms), ",
            now_ms!(),
            ") AS UNSIGNED) FROM orders"
        ))
        .fetch_one(&self.pool)
        .await?;
        Ok(lag.unwrap_or_default())
    }

    async fn read_restock_lag(&self, releases: &[u64]) -> Result<u64, Failure> {
        let mut connection = self.pool.acquire().await?;
        let lags: Vec<(u64,)> = read(&mut connection, &RESTOCK_LAG, releases, Reading::bind).await?;
        Ok(lags.into_iter().map(|(lag_ms,)| lag_ms).max().unwrap_or_default())
    }
}

/// Orders that wait for their payment.
#[derive(Default)]
struct Waiting {
    /// Of the shards in Redis, by number.
    closing: Vec<(UserId, Mark)>,
    /// Of the shards in this database.
    of_sql: Vec<(UserId, Mark)>,
    left_open: Vec<LeftOpen>,
}

/// Those of these orders that wait for their payment, locked.
async fn lock_waiting(
    connection: &mut MySqlConnection,
    orders: &[OrderNumber],
    bad_skus: &BTreeMap<SkuKey, String>,
) -> Result<Waiting, Failure> {
    let mut numbers: Vec<_> = orders.iter().map(|order| order.0).collect();
    numbers.sort_unstable();
    let rows: Vec<SourcedMarkRow> = read(connection, &LOCK_ORDERS, &numbers, Reading::bind).await?;
    // Keys that fill a statement up bring a row twice.
    let rows: BTreeMap<_, _> = rows.into_iter().map(|row| (row.1, row)).collect();
    let mut waiting = Waiting::default();
    for (number, row) in rows {
        let (order, user, sku) = (OrderNumber(number), UserId(row.0), sku_key(row.2, row.3));
        let left_open = |reason: String| LeftOpen { user, order, sku, reason };
        match sourced_mark(row) {
            Err(Failure::Corrupt(reason)) => waiting.left_open.push(left_open(reason)),
            Err(failure) => return Err(failure),
            Ok((_, mark, _)) if mark.state != OrderState::PendingPayment => {}
            Ok((user, mark, true)) => match bad_skus.get(&sku) {
                Some(reason) => waiting.left_open.push(left_open(reason.clone())),
                None => waiting.closing.push((user, mark)),
            },
            Ok((user, mark, false)) => waiting.of_sql.push((user, mark)),
        }
    }
    Ok(waiting)
}
