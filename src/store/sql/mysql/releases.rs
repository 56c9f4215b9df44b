//! What is owed to Redis (rule 14 of the stock protocol): units to give back (the ledger), states to learn (the outbox).
//!
//! A row is written in the transaction that changed the order, and stays due until a writer says that Redis has it.
//! Any writer may drive any row, several at once: both calls to Redis are idempotent.

use std::sync::LazyLock;

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::failure::{Failure, retried};
use super::order_rows::{give_back, lock_generation};
use super::order_states::{Step, insert_history, owe_mark};
use super::orders::placed_mark;
use super::statements::{Shapes, Writing, execute_among, write};
use crate::payment::Cause;
use crate::protocol::{OrderNumber, OrderState, UserId};
use crate::stock::calls::{Mark, ShardId};
use crate::store::StoreError;

static LEDGER_DONE: LazyLock<Shapes> = LazyLock::new(|| {
    let head = concat!("UPDATE ledger SET done = 1, done_at_ms = ", now_ms!(), " WHERE done = 0 AND id IN (");
    Shapes::new(head, "?", ")")
});

static OUTBOX_DONE: LazyLock<Shapes> = LazyLock::new(|| {
    let head = concat!("UPDATE outbox SET done = 1, done_at_ms = ", now_ms!(), " WHERE done = 0 AND id IN (");
    Shapes::new(head, "?", ")")
});

static INSERT_LEDGER: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO ledger (number, user, activity, sku, quantity, attempt, state, shard, done, created_at_ms) VALUES ",
        "(?,?,?,?,?,?,?,?,0,?)",
        " ON DUPLICATE KEY UPDATE number = number",
    )
});

/// Units that go back to a shard: release the order's mark there, by compare-and-set on its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its place in the ledger.
    pub id: u64,
    /// Where the mark is.
    pub shard: ShardId,
    /// Whose it is.
    pub user: UserId,
    /// The order, in its final state (CLOSED or FAILED).
    pub mark: Mark,
}

/// A state that a shard has to learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkUpdate {
    /// Its place in the outbox.
    pub id: u64,
    /// Where the mark is.
    pub shard: ShardId,
    /// Whose it is.
    pub user: UserId,
    /// The order as SQL has it now.
    pub mark: Mark,
}

/// What came of failing a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailOutcome {
    /// Its FAILED row is written; a unit that it may still hold goes back by the ledger.
    Failed,
    /// It has failed before.
    WasFailed,
    /// It was settled: the order as SQL has it. Nothing changed.
    Stands(Mark),
}

/// What came of closing an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome {
    /// Closed; its units are for sale in SQL and go back to Redis by the ledger.
    Closed,
    /// It does not wait for its payment: the order as SQL has it. Nothing changed.
    Stands(Mark),
    /// There is no such order of Redis's shards.
    NoOrder,
}

impl MySqlInstallation {
    /// Releases that are due, by ascending id, from after one (0: from the first).
    pub async fn due_releases(&self, after: u64, limit: u32) -> Result<Vec<Release>, StoreError> {
        retried!(self.options.call_timeout; self.read_releases(after, limit))
    }

    /// The id of the newest release that is due; 0: none is.
    pub async fn newest_due_release(&self) -> Result<u64, StoreError> {
        retried!(self.options.call_timeout; self.read_newest_release())
    }

    /// Redis has executed these releases, or knows no such mark any more.
    pub async fn releases_done(&self, ids: &[u64]) -> Result<(), StoreError> {
        retried!(self.options.call_timeout; self.mark_done(&LEDGER_DONE, ids))
    }

    /// States that Redis has to learn, by ascending id, from after one (0: from the first).
    pub async fn due_marks(&self, after: u64, limit: u32) -> Result<Vec<MarkUpdate>, StoreError> {
        retried!(self.options.call_timeout; self.read_marks(after, limit))
    }

    /// Redis knows these states.
    pub async fn marks_told(&self, ids: &[u64]) -> Result<(), StoreError> {
        retried!(self.options.call_timeout; self.mark_done(&OUTBOX_DONE, ids))
    }

    /// Closes an order that waits for its payment: one transaction for its state, its units and its ledger row.
    pub async fn close_order(&self, order: OrderNumber, reason: &str) -> Result<CloseOutcome, StoreError> {
        retried!(self.options.call_timeout; self.try_close(order, reason))
    }

    async fn read_releases(&self, after: u64, limit: u32) -> Result<Vec<Release>, Failure> {
        let rows: Vec<ReleaseRow> = sqlx::query_as(
            "SELECT id, shard, user, number, activity, sku, quantity, attempt, state FROM ledger \
             WHERE done = 0 AND id > ? ORDER BY id LIMIT ?",
        )
        .bind(after)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(release).collect()
    }

    async fn read_newest_release(&self) -> Result<u64, Failure> {
        let newest: Option<u64> =
            sqlx::query_scalar("SELECT MAX(id) FROM ledger WHERE done = 0").fetch_one(&self.pool).await?;
        Ok(newest.unwrap_or_default())
    }

    async fn read_marks(&self, after: u64, limit: u32) -> Result<Vec<MarkUpdate>, Failure> {
        type Row = (u64, u8, u64, u64, u32, u16, u16, u8, u8, u64);
        // REFUND_DUE follows CLOSED: told before the release, a live mark would not take it, and it counted as told.
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT x.id, o.shard, o.user, o.number, o.activity, o.sku, o.quantity, o.attempt, o.state, o.pay_by_ms \
             FROM outbox x JOIN orders o ON o.number = x.number \
             WHERE x.done = 0 AND x.id > ? AND NOT (x.state = 6 AND EXISTS (\
               SELECT 1 FROM ledger l WHERE l.number = x.number AND l.user = o.user AND l.done = 0)) \
             ORDER BY x.id LIMIT ?",
        )
        .bind(after)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        let update = |(id, shard, user, number, activity, sku, quantity, attempt, state, pay_by_ms): Row| {
            let row = (shard, user, number, activity, sku, quantity, attempt, state, pay_by_ms);
            let (shard, user, mark) = placed_mark(row)?;
            Ok(MarkUpdate { id, shard, user, mark })
        };
        rows.into_iter().map(update).collect()
    }

    async fn mark_done(&self, statement: &'static LazyLock<Shapes>, ids: &[u64]) -> Result<(), Failure> {
        let mut connection = self.pool.acquire().await?;
        Ok(execute_among(&mut connection, statement, ids).await?)
    }

    async fn try_close(&self, order: OrderNumber, reason: &str) -> Result<CloseOutcome, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (_, now_ms) = lock_generation(&mut transaction).await?;
        let closed = sqlx::query("UPDATE orders SET state = 4 WHERE number = ? AND state = 2 AND source = 1")
            .bind(order.0)
            .execute(&mut *transaction)
            .await?;
        let found = super::orders::by_number(&mut transaction, order).await?;
        let Some((user, mark)) = found else {
            return Ok(CloseOutcome::NoOrder);
        };
        if closed.rows_affected() == 0 {
            return Ok(CloseOutcome::Stands(mark));
        }
        give_back(&mut transaction, mark.sku, mark.quantity.into()).await?;
        let release = Release { id: 0, shard: ShardId::of(user), user, mark };
        insert_ledger(&mut transaction, &release, now_ms).await?;
        let step = Step {
            from: Some(OrderState::PendingPayment),
            to: OrderState::Closed,
            cause: Cause::Asked,
            reason,
        };
        insert_history(&mut transaction, &[order], step, now_ms).await?;
        transaction.commit().await?;
        Ok(CloseOutcome::Closed)
    }
}

/// In a transaction that locks the generation.
pub(super) async fn fail_promise(
    connection: &mut MySqlConnection,
    user: UserId,
    mark: &Mark,
    reason: &str,
    now_ms: u64,
) -> Result<FailOutcome, Failure> {
    let failed = Mark { state: OrderState::Failed, pay_by_ms: 0, ..*mark };
    let release = Release { id: 0, shard: ShardId::of(user), user, mark: failed };
    let found = match insert_failed_order(connection, &release, reason, now_ms).await {
        Ok(()) => None,
        Err(failure) if failure.is_duplicate() => {
            let found = super::orders::by_number(connection, mark.order).await?;
            let missing = || Failure::Corrupt(format!("order {} is there and is not", mark.order));
            Some(found.ok_or_else(missing)?)
        }
        Err(failure) => return Err(failure),
    };
    match found {
        Some((owner, found)) if owner == user && found.state != OrderState::Failed => {
            return Ok(FailOutcome::Stands(found));
        }
        Some((owner, _)) if owner == user => return Ok(FailOutcome::WasFailed),
        // Another user's number: the ledger row alone says that this one failed.
        Some(_) | None => {}
    }
    insert_ledger(connection, &release, now_ms).await?;
    Ok(FailOutcome::Failed)
}

/// A row of the ledger, without whether it is done.
pub(super) type ReleaseRow = (u64, u8, u64, u64, u32, u16, u16, u8, u8);

pub(super) fn release(row: ReleaseRow) -> Result<Release, Failure> {
    let (id, shard, user, number, activity, sku, quantity, attempt, state) = row;
    let (shard, user, mark) = placed_mark((shard, user, number, activity, sku, quantity, attempt, state, 0))?;
    Ok(Release { id, shard, user, mark })
}

/// An order that failed before it was settled, with the reason in its history. An order that the database refuses in
/// any state has no row: its ledger row and its dead letter stand for it.
pub(super) async fn insert_failed_order(
    connection: &mut MySqlConnection,
    release: &Release,
    reason: &str,
    now_ms: u64,
) -> Result<(), Failure> {
    let order = (release.shard, release.user, release.mark);
    match super::order_rows::insert_orders(connection, &[order], now_ms).await.map_err(Failure::from) {
        Err(failure) if failure.is_bad_row() => return Ok(()),
        other => other?,
    }
    let step = Step { from: None, to: release.mark.state, cause: Cause::NotSettled, reason };
    insert_history(connection, &[release.mark.order], step, now_ms).await
}

/// Once per order and user; a second time changes nothing.
pub(super) async fn insert_ledger(
    connection: &mut MySqlConnection,
    release: &Release,
    now_ms: u64,
) -> Result<(), Failure> {
    insert_ledger_rows(connection, std::slice::from_ref(release), now_ms).await
}

/// The same for several.
pub(super) async fn insert_ledger_rows(
    connection: &mut MySqlConnection,
    releases: &[Release],
    now_ms: u64,
) -> Result<(), Failure> {
    let bind = |query: Writing, release: &Release| {
        let mark = &release.mark;
        let query = query.bind(mark.order.0).bind(release.user.0).bind(mark.sku.activity.0);
        let query = query.bind(mark.sku.sku.0).bind(mark.quantity).bind(mark.attempt);
        query.bind(mark.state as u8).bind(release.shard.number()).bind(now_ms)
    };
    Ok(write(connection, &INSERT_LEDGER, releases, bind).await?)
}

/// Owes a release anew, done or not: its number was reserved again since. Under another id: who is at it now, and may
/// have been told by the shard before the number was reserved again, then ends a row that is not there any more. So is
/// the state that follows the release: the mark that had it was lost.
pub(super) async fn owe_again(
    connection: &mut MySqlConnection,
    release: &Release,
    now_ms: u64,
) -> Result<(), Failure> {
    sqlx::query("DELETE FROM ledger WHERE number = ? AND user = ?")
        .bind(release.mark.order.0)
        .bind(release.user.0)
        .execute(&mut *connection)
        .await?;
    insert_ledger(connection, release, now_ms).await?;
    let (order, follows) = (release.mark.order, OrderState::RefundDue);
    let told = sqlx::query("DELETE FROM outbox WHERE number = ? AND state = ?")
        .bind(order.0)
        .bind(follows as u8)
        .execute(&mut *connection)
        .await?;
    if told.rows_affected() > 0 {
        owe_mark(connection, order, follows, now_ms).await?;
    }
    Ok(())
}
