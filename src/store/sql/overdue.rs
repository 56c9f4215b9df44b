//! The embedded store's orders that were not paid in time: found by index, put off while the payment centre is asked,
//! closed in batches.
//!
//! Closing is one transaction: states, history, ledger, units. Run by the writer task, but for the look whether anything
//! is due at all. Who dies between taking and closing has only delayed it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::{Connection, SqliteConnection, SqliteExecutor, SqlitePool};

use super::error::Failure;
use super::feed::Feeds;
use super::order_changes;
use super::rows::{self, MarkColumns};
use super::statements::{Shapes, read, signed, write_with};
use super::step::Step;
use crate::protocol::{OrderNumber, OrderState, UserId};
use crate::stock::calls::{Mark, ShardId};
use crate::store::payments::{Closings, DOUBLINGS_MAX, LeftOpen, Overdue, OverdueOrder, Taken};

/// The last values are now, the longest delay, and the first one.
static PUT_OFF: LazyLock<Shapes> = LazyLock::new(|| {
    let tail = format!(
        ") UPDATE orders SET deferred_ms = ? + MIN(?, ? << MIN(asked, {DOUBLINGS_MAX})) - pay_by_ms, \
         asked = MIN(asked, 65000) + 1 WHERE number IN (SELECT number FROM k)"
    );
    Shapes::new("WITH k (number) AS (VALUES ", "(?)", &tail)
});

/// An order that a parked payment waits for is not closed: that payment is judged first.
static READ_WAITING: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "WITH k (number) AS (VALUES ",
        "(?)",
        ") SELECT o.user, o.number, o.activity, o.sku, o.quantity, o.attempt, o.state, o.pay_by_ms \
         FROM k CROSS JOIN orders o ON o.number = k.number WHERE o.state = 2 \
         AND NOT EXISTS (SELECT 1 FROM payments p WHERE p.number = o.number AND p.state = 1)",
    )
});

/// For how long the order has been due that has waited longest for its turn.
pub(super) async fn lag_ms(readers: &SqlitePool, now_ms: u64) -> Result<u64, Failure> {
    let first: Option<i64> = sqlx::query_scalar(
        "SELECT MIN(pay_by_ms + deferred_ms) FROM orders INDEXED BY orders_ask WHERE state = 2",
    )
    .fetch_one(readers)
    .await?;
    Ok(first.map(rows::unsigned).transpose()?.map_or(0, |first_ms| now_ms.saturating_sub(first_ms)))
}

pub(super) async fn take(
    connection: &mut SqliteConnection,
    how: Overdue,
    now_ms: u64,
) -> Result<Taken, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let due: Vec<(i64, i64, i64)> = sqlx::query_as(
        "SELECT number, pay_by_ms, pay_by_ms + deferred_ms FROM orders INDEXED BY orders_ask \
         WHERE state = 2 AND pay_by_ms + deferred_ms <= ? ORDER BY pay_by_ms + deferred_ms LIMIT ?",
    )
    .bind(signed(now_ms))
    .bind(how.limit)
    .fetch_all(&mut *transaction)
    .await?;
    let (longest_ms, first_ms) = how.delays_ms();
    let delays = |query: super::statements::Writing| {
        query.bind(signed(now_ms)).bind(signed(longest_ms)).bind(signed(first_ms))
    };
    write_with(&mut transaction, &PUT_OFF, &due, |query, (number, ..)| query.bind(*number), delays).await?;
    transaction.commit().await?;
    let mut orders = Vec::with_capacity(due.len());
    for (number, pay_by_ms, ask_at_ms) in due {
        orders.push(OverdueOrder {
            order: OrderNumber(rows::unsigned(number)?),
            overdue_ms: now_ms.saturating_sub(rows::unsigned(pay_by_ms)?),
            waited_ms: now_ms.saturating_sub(rows::unsigned(ask_at_ms)?),
        });
    }
    Ok(Taken { now_ms, orders })
}

/// Closes those of these orders that still wait for their payment.
pub(super) async fn close(
    connection: &mut SqliteConnection,
    feeds: &Feeds,
    orders: &[OrderNumber],
    now_ms: u64,
) -> Result<(Closings, Option<u64>), Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let waiting = read_waiting(&mut transaction, orders).await?;
    if waiting.is_empty() {
        return Ok((Closings::default(), None));
    }
    let mut batch = rows::load(&mut transaction, &order_changes::wanted(&waiting), now_ms).await?;
    feeds.align(&batch.seq);
    // Orders whose units have no place to go back to hold up nobody else's.
    let (waiting, stuck): (Vec<_>, Vec<_>) = waiting
        .into_iter()
        .partition(|(user, mark)| batch.stock.contains_key(&(ShardId::of(*user), mark.sku)));
    order_changes::release(&mut transaction, &mut batch, &waiting, Step::TIMED_OUT).await?;
    rows::store(&mut transaction, &batch).await?;
    transaction.commit().await?;
    feeds.publish(batch.events);
    let lag_ms = waiting.iter().map(|(_, mark)| now_ms.saturating_sub(mark.pay_by_ms)).max();
    let left_open = |(user, mark): (UserId, Mark)| LeftOpen {
        user,
        order: mark.order,
        sku: mark.sku,
        reason: format!("SKU {} has no row of stock in the shard that it was sold from", mark.sku),
    };
    let closed = u64::try_from(waiting.len()).unwrap_or(u64::MAX);
    Ok((Closings { closed, left_open: stuck.into_iter().map(left_open).collect() }, lag_ms))
}

/// By number.
async fn read_waiting(
    connection: &mut SqliteConnection,
    orders: &[OrderNumber],
) -> Result<Vec<(UserId, Mark)>, Failure> {
    let found: Vec<MarkColumns> =
        read(connection, &READ_WAITING, orders, |query, order| query.bind(signed(order.0))).await?;
    let mut waiting = BTreeMap::new();
    for columns in found {
        let (user, mark) = rows::mark(columns)?;
        waiting.insert(mark.order, (user, mark));
    }
    Ok(waiting.into_values().collect())
}

/// An order, of this user where one is named, that is closed because somebody asks for it; how it stands then, if there is
/// one.
pub(super) async fn close_asked(
    connection: &mut SqliteConnection,
    feeds: &Feeds,
    (order, of): (OrderNumber, Option<UserId>),
    reason: &str,
    now_ms: u64,
) -> Result<Option<(UserId, Mark)>, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let waiting = read_waiting(&mut transaction, &[order]).await?;
    let is_his = |owner: UserId| of.is_none_or(|of| of == owner);
    let [(user, mark)] = waiting.as_slice() else {
        return Ok(find(&mut *transaction, order).await?.filter(|(owner, _)| is_his(*owner)));
    };
    if !is_his(*user) {
        return Ok(None);
    }
    let mut batch = rows::load(&mut transaction, &order_changes::wanted(&waiting), now_ms).await?;
    feeds.align(&batch.seq);
    let step = Step { cause: crate::payment::Cause::Asked, reason, ..Step::TIMED_OUT };
    order_changes::release(&mut transaction, &mut batch, &waiting, step).await?;
    rows::store(&mut transaction, &batch).await?;
    transaction.commit().await?;
    feeds.publish(batch.events);
    Ok(Some((*user, Mark { state: OrderState::Closed, ..*mark })))
}

/// The order of this number, whatever has become of it.
pub(super) async fn find<'c>(
    connection: impl SqliteExecutor<'c>,
    order: OrderNumber,
) -> Result<Option<(UserId, Mark)>, Failure> {
    let found: Option<MarkColumns> = sqlx::query_as(
        "SELECT user, number, activity, sku, quantity, attempt, state, pay_by_ms FROM orders WHERE number = ?",
    )
    .bind(signed(order.0))
    .fetch_optional(connection)
    .await?;
    found.map(rows::mark).transpose()
}
