//! Orders that are recorded and not settled yet (state RECORDED): what is owed to each is a row of `recorded`, and a
//! settlement later takes it.
//!
//! Recording is a part of the settlement's transaction (`settle`): rows of orders under the same unique keys, and these
//! rows; no stock is deducted, no time to pay begins, no payment is applied. So what SQL calls available includes the
//! units of recorded orders, and whoever compares subtracts them.
//!
//! Settling later is this file: any number of processes at once take different rows (`FOR UPDATE SKIP LOCKED`), a batch of
//! one activity is one transaction, and a row is gone with the state that it was about, so that nothing is settled twice,
//! whoever dies. Redis learns the new state by the outbox; no call to Redis is made, and none is needed. An order whose
//! units are not there (the books were wrong) FAILS, with its ledger row and a dead letter, and holds up no other.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::dead_letters;
use super::failure::{Failure, retried};
use super::order_rows::{deduct, lock_generation, undo};
use super::order_states::{Step, advance, insert_history, owe_marks};
use super::orders::{SourcedMarkRow, sourced_mark};
use super::overdue::LOCK_ORDERS;
use super::payments::{self, apply_parked};
use super::releases::{Release, insert_ledger};
use super::statements::{Reading, Shapes, Writing, execute_among, execute_among_with, read, write};
use crate::payment::Cause;
use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use crate::stock::calls::{Mark, ShardId};
use crate::store::StoreError;

static INSERT: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new("INSERT INTO recorded (number, activity, sku, quantity) VALUES ", "(?,?,?,?)", "")
});

static SETTLE: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new("UPDATE orders SET state = 2, pay_by_ms = ? WHERE state = 7 AND number IN (", "?", ")")
});

static DELETE: LazyLock<Shapes> =
    LazyLock::new(|| Shapes::new("DELETE FROM recorded WHERE number IN (", "?", ")"));

/// For a look at all orders.
const FIND_TIMEOUT: Duration = Duration::from_secs(300);

/// In the history of what is settled.
const LATER: Step<'static> = Step {
    from: Some(OrderState::Recorded),
    to: OrderState::PendingPayment,
    cause: Cause::SettledLater,
    reason: "recorded before",
};

/// What a batch of recorded orders came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backfilled {
    /// Rows that were taken; fewer than asked for: no more are left but those that others are at.
    pub taken: u64,
    /// Orders that are settled now.
    pub settled: u64,
    /// Orders that failed.
    pub failed: Vec<NotSettled>,
}

/// A recorded order that could not be settled. It is FAILED, and its units go back by the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSettled {
    /// Whose it is.
    pub user: UserId,
    /// The order.
    pub order: OrderNumber,
    /// What it was for.
    pub sku: SkuKey,
    /// Why.
    pub reason: String,
}

/// How the units of a batch are looked after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Units {
    /// They are there, as they always should be: deducted last, so that nobody waits for their rows for long.
    Trusted,
    /// After the database refused to deduct them: their rows are locked and read first.
    Counted,
}

impl MySqlInstallation {
    /// Activities that have recorded orders.
    pub async fn recorded_activities(&self) -> Result<Vec<ActivityId>, StoreError> {
        retried!(self.options.call_timeout; self.read_recorded_activities())
    }

    /// How many orders are recorded and not settled, of one activity or of all.
    pub async fn recorded_orders(&self, activity: Option<ActivityId>) -> Result<u64, StoreError> {
        retried!(self.options.call_timeout; self.count_recorded(activity))
    }

    /// Settles recorded orders of an activity, at most so many in one transaction; the time to pay begins now, by the
    /// database's clock.
    pub async fn settle_recorded(&self, activity: ActivityId, limit: u32) -> Result<Backfilled, StoreError> {
        let trusted = Units::Trusted;
        if let Some(done) =
            retried!(self.options.call_timeout; self.try_settle_recorded(activity, limit, trusted))?
        {
            return Ok(done);
        }
        let counted = Units::Counted;
        let done = retried!(self.options.call_timeout; self.try_settle_recorded(activity, limit, counted))?;
        done.ok_or_else(|| {
            StoreError::Unavailable(format!(
                "recorded orders of activity {activity} were disturbed by other writers"
            ))
        })
    }

    /// Looks for orders in state RECORDED that nothing says are still to be settled, as somebody's hand may leave them, and
    /// says it; how many. Reads all orders.
    pub async fn find_recorded(&self, activity: Option<ActivityId>) -> Result<u64, StoreError> {
        retried!(FIND_TIMEOUT; self.try_find_recorded(activity))
    }

    async fn try_find_recorded(&self, activity: Option<ActivityId>) -> Result<u64, Failure> {
        // IGNORE: an article that is not there holds up no other.
        let found = sqlx::query(
            "INSERT IGNORE INTO recorded (number, activity, sku, quantity) \
             SELECT o.number, o.activity, o.sku, o.quantity FROM orders o LEFT JOIN recorded r ON r.number = o.number \
             WHERE o.state = 7 AND r.number IS NULL AND (? = 0 OR o.activity = ?)",
        )
        .bind(activity.map_or(0, |activity| activity.0))
        .bind(activity.map_or(0, |activity| activity.0))
        .execute(&self.pool)
        .await?;
        Ok(found.rows_affected())
    }

    async fn read_recorded_activities(&self) -> Result<Vec<ActivityId>, Failure> {
        let activities: Vec<u32> =
            sqlx::query_scalar("SELECT DISTINCT activity FROM recorded").fetch_all(&self.pool).await?;
        Ok(activities.into_iter().map(ActivityId).collect())
    }

    async fn count_recorded(&self, activity: Option<ActivityId>) -> Result<u64, Failure> {
        let count = match activity {
            Some(activity) => sqlx::query_scalar(
                "SELECT CAST(COUNT(*) AS UNSIGNED) FROM recorded FORCE INDEX (recorded_sku) WHERE activity = ?",
            )
            .bind(activity.0),
            None => sqlx::query_scalar("SELECT CAST(COUNT(*) AS UNSIGNED) FROM recorded"),
        };
        Ok(count.fetch_one(&self.pool).await?)
    }

    /// `None`: nothing was written, because the units of some order are not there.
    async fn try_settle_recorded(
        &self,
        activity: ActivityId,
        limit: u32,
        units: Units,
    ) -> Result<Option<Backfilled>, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (_, now_ms) = lock_generation(&mut transaction).await?;
        let numbers = take(&mut transaction, activity, limit).await?;
        if numbers.is_empty() {
            undo(transaction).await;
            return Ok(Some(Backfilled::default()));
        }
        let due = lock_recorded(&mut transaction, &numbers).await?;
        let (due, failed) = match units {
            Units::Trusted => (due, Vec::new()),
            Units::Counted => part(&mut transaction, activity, due).await?,
        };
        let pay_by_ms = now_ms.saturating_add(pay_within_ms(&mut transaction, activity).await?);
        let written = settle(&mut transaction, &due, pay_by_ms, now_ms).await;
        if let Err(failure) = written {
            undo(transaction).await;
            return if failure.is_bad_row() { Ok(None) } else { Err(failure) };
        }
        for (user, mark, reason) in &failed {
            fail(&mut transaction, *user, mark, reason, now_ms).await?;
        }
        execute_among(&mut transaction, &DELETE, &numbers).await?;
        let unparked = apply_parked(&mut transaction, self, &numbers, now_ms).await?;
        transaction.commit().await?;
        payments::tell(&unparked);
        let failed = failed.into_iter().map(|(user, mark, reason)| NotSettled {
            user,
            order: mark.order,
            sku: mark.sku,
            reason,
        });
        let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
        Ok(Some(Backfilled {
            taken: count(numbers.len()),
            settled: count(due.len()),
            failed: failed.collect(),
        }))
    }
}

type Due = (UserId, Mark);

/// What the units of orders are owed whose rows the caller has just written: those of recorded ones are deducted when
/// they are settled.
pub(super) async fn write_units(
    connection: &mut MySqlConnection,
    orders: impl Iterator<Item = &Mark>,
) -> Result<(), Failure> {
    let (recorded, settled): (Vec<Mark>, Vec<Mark>) =
        orders.copied().partition(|mark| mark.state == OrderState::Recorded);
    insert(connection, &recorded).await?;
    Ok(deduct(connection, settled.iter()).await?)
}

/// Writes that these orders, which are recorded, are still to be settled.
pub(super) async fn insert(connection: &mut MySqlConnection, recorded: &[Mark]) -> Result<(), sqlx::Error> {
    write(connection, &INSERT, recorded, |query: Writing, mark| {
        let query = query.bind(mark.order.0).bind(mark.sku.activity.0);
        query.bind(mark.sku.sku.0).bind(mark.quantity)
    })
    .await
}

/// Rows that nobody else is at, by number.
async fn take(
    connection: &mut MySqlConnection,
    activity: ActivityId,
    limit: u32,
) -> Result<Vec<u64>, Failure> {
    let mut numbers: Vec<u64> = sqlx::query_scalar(
        "SELECT number FROM recorded FORCE INDEX (recorded_sku) WHERE activity = ? LIMIT ? \
         FOR UPDATE SKIP LOCKED",
    )
    .bind(activity.0)
    .bind(limit)
    .fetch_all(connection)
    .await?;
    numbers.sort_unstable();
    Ok(numbers)
}

/// The orders of these rows that are still to be settled, locked, by number.
async fn lock_recorded(connection: &mut MySqlConnection, numbers: &[u64]) -> Result<Vec<Due>, Failure> {
    let rows: Vec<SourcedMarkRow> = read(connection, &LOCK_ORDERS, numbers, Reading::bind).await?;
    // Keys that fill a statement up bring a row twice.
    let mut due = BTreeMap::new();
    for row in rows {
        let (user, mark, _) = sourced_mark(row)?;
        if mark.state == OrderState::Recorded {
            due.insert(mark.order, (user, mark));
        }
    }
    Ok(due.into_values().collect())
}

async fn pay_within_ms(connection: &mut MySqlConnection, activity: ActivityId) -> Result<u64, Failure> {
    let found: Option<u64> = sqlx::query_scalar("SELECT pay_within_ms FROM activities WHERE id = ?")
        .bind(activity.0)
        .fetch_optional(connection)
        .await?;
    found.ok_or_else(|| {
        Failure::Corrupt(format!("orders are recorded of activity {activity}, which is not there"))
    })
}

/// Parts those whose units are there from those whose are not; their stock rows stay locked.
async fn part(
    connection: &mut MySqlConnection,
    activity: ActivityId,
    due: Vec<Due>,
) -> Result<(Vec<Due>, Vec<(UserId, Mark, String)>), Failure> {
    let mut available: BTreeMap<SkuId, Option<u64>> =
        due.iter().map(|(_, mark)| (mark.sku.sku, None)).collect();
    for (sku, units) in &mut available {
        *units = sqlx::query_scalar(
            "SELECT CAST(available AS UNSIGNED) FROM sku_stock WHERE activity = ? AND sku = ? FOR UPDATE",
        )
        .bind(activity.0)
        .bind(sku.0)
        .fetch_optional(&mut *connection)
        .await?;
    }
    let (mut good, mut failed) = (Vec::with_capacity(due.len()), Vec::new());
    for (user, mark) in due {
        let units = available.get_mut(&mark.sku.sku).and_then(Option::as_mut);
        let Some(units) = units else {
            failed.push((user, mark, format!("SKU {} has no stock", mark.sku)));
            continue;
        };
        match units.checked_sub(mark.quantity.into()) {
            Some(left) => {
                *units = left;
                good.push((user, mark));
            }
            None => {
                failed.push((
                    user,
                    mark,
                    format!("SKU {} has only {units} units that are not sold", mark.sku),
                ));
            }
        }
    }
    Ok((good, failed))
}

async fn settle(
    connection: &mut MySqlConnection,
    due: &[Due],
    pay_by_ms: u64,
    now_ms: u64,
) -> Result<(), Failure> {
    let orders: Vec<_> = due.iter().map(|(_, mark)| mark.order).collect();
    let numbers: Vec<_> = orders.iter().map(|order| order.0).collect();
    execute_among_with(connection, &SETTLE, &numbers, |query| query.bind(pay_by_ms)).await?;
    insert_history(connection, &orders, LATER, now_ms).await?;
    owe_marks(connection, &orders, OrderState::PendingPayment, now_ms).await?;
    // Last, and in the order of the SKUs, as settlements do: their rows are what everybody waits for.
    Ok(deduct(connection, due.iter().map(|(_, mark)| mark)).await?)
}

async fn fail(
    connection: &mut MySqlConnection,
    user: UserId,
    mark: &Mark,
    reason: &str,
    now_ms: u64,
) -> Result<(), Failure> {
    let step =
        Step { from: Some(OrderState::Recorded), to: OrderState::Failed, cause: Cause::NotSettled, reason };
    advance(connection, mark.order, step, now_ms).await?;
    let mark = Mark { state: OrderState::Failed, pay_by_ms: 0, ..*mark };
    let release = Release { id: 0, shard: ShardId::of(user), user, mark };
    insert_ledger(connection, &release, now_ms).await?;
    dead_letters::insert_of_order(connection, mark.order, reason, now_ms).await
}
