//! Cancels by users: a row that says so, whatever the order does, and the close that follows from it.
//!
//! Keeping one is a statement of its own, so it may come before the order's settlement, after it, or beside it. It is
//! applied when the order's row is there: one that waits for its payment is closed as an operator closes it, one that
//! was paid or is over stays as it is. Applied twice is applied once.

use super::failure::{Failure, order_state, retried};
use super::reservation::MySqlStore;
use super::{CloseOutcome, MySqlInstallation};
use crate::protocol::{OrderNumber, OrderState, UserId};
use crate::store::StoreError;
use crate::store::crash_point;

const REASON: &str = "cancelled by the user";

/// A cancel that may be applied: the order's state, if it has a row, and whether its units are of the shards in Redis.
type DueRow = (u64, u64, Option<u64>, Option<u8>, Option<u8>, Option<u64>);

/// What was done in one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Orders that were closed.
    pub closed: u64,
    /// Where to go on; `None`: that was the last page.
    pub next: Option<OrderNumber>,
}

impl MySqlInstallation {
    /// Keeps that a user has cancelled an order; once, however often he does.
    pub async fn keep_cancel(&self, user: UserId, order: OrderNumber) -> Result<(), StoreError> {
        retried!(self.options.call_timeout; self.insert_cancel(user, order))
    }

    /// Applies cancels whose orders are settled, from after an order number (0: from the first), at most so many.
    pub async fn apply_cancels(&self, after: OrderNumber, limit: u32) -> Result<Applied, StoreError> {
        let due = retried!(self.options.call_timeout; self.due_cancels(after, limit))?;
        let is_full = due.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let next = due.last().filter(|_| is_full).map(|(number, ..)| OrderNumber(*number));
        let mut applied = Applied { closed: 0, next };
        for (number, user, owner, state, source, failed) in due {
            let order = OrderNumber(number);
            let state = state.map(|state| order_state(number, state)).transpose()?;
            let is_done = match state {
                Some(_) if owner != Some(user) => true,
                Some(OrderState::Reserved | OrderState::Recorded) => false,
                Some(OrderState::PendingPayment) => {
                    let closed = self.close_cancelled(order, source == Some(1)).await?;
                    crash_point::pass("writer.after_cancel_closed");
                    applied.closed = applied.closed.saturating_add(u64::from(closed));
                    true
                }
                Some(_) => true,
                // It has failed without a row of its own; else it is not settled yet.
                None => failed.is_some(),
            };
            if is_done {
                retried!(self.options.call_timeout; self.cancel_done(UserId(user), order))?;
            }
        }
        Ok(applied)
    }

    async fn close_cancelled(&self, order: OrderNumber, is_of_redis: bool) -> Result<bool, StoreError> {
        let outcome = if is_of_redis {
            self.close_order(order, REASON).await?
        } else {
            MySqlStore::new(self.clone()).close_order_asked(order, REASON).await?
        };
        Ok(outcome == CloseOutcome::Closed)
    }

    async fn insert_cancel(&self, user: UserId, order: OrderNumber) -> Result<(), Failure> {
        sqlx::query(concat!(
            "INSERT INTO cancels (number, user, done, asked_at_ms) VALUES (?, ?, 0, ",
            now_ms!(),
            ") ON DUPLICATE KEY UPDATE number = number"
        ))
        .bind(order.0)
        .bind(user.0)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    async fn due_cancels(&self, after: OrderNumber, limit: u32) -> Result<Vec<DueRow>, Failure> {
        Ok(sqlx::query_as(
            "SELECT c.number, c.user, o.user, o.state, o.source, \
               (SELECT l.number FROM ledger l WHERE l.number = c.number AND l.user = c.user) \
             FROM cancels c LEFT JOIN orders o ON o.number = c.number \
             WHERE c.done = 0 AND c.number > ? ORDER BY c.number LIMIT ?",
        )
        .bind(after.0)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?)
    }

    async fn cancel_done(&self, user: UserId, order: OrderNumber) -> Result<(), Failure> {
        sqlx::query(concat!(
            "UPDATE cancels SET done = 1, done_at_ms = ",
            now_ms!(),
            " WHERE number = ? AND user = ? AND done = 0"
        ))
        .bind(order.0)
        .bind(user.0)
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
