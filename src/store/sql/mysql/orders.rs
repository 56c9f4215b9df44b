//! Orders as SQL has them: for audits, for the archive, for RESULT after the end.

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::failure::{self, Failure, retried};
use crate::protocol::{ActivityId, OrderNumber, UserId};
use crate::stock::calls::{Mark, ShardId};
use crate::store::StoreError;

pub(super) type MarkRow = (u64, u64, u32, u16, u16, u8, u8, u64);

/// What [`mark`] reads.
macro_rules! mark_columns {
    () => {
        "user, number, activity, sku, quantity, attempt, state, pay_by_ms"
    };
}

pub(super) use mark_columns;

/// The shard before a mark.
pub(super) type PlacedMarkRow = (u8, u64, u64, u32, u16, u16, u8, u8, u64);

pub(super) fn placed_mark(row: PlacedMarkRow) -> Result<(ShardId, UserId, Mark), Failure> {
    let (shard, user, number, activity, sku, quantity, attempt, state, pay_by_ms) = row;
    let (user, mark) = mark((user, number, activity, sku, quantity, attempt, state, pay_by_ms))?;
    Ok((failure::shard_id(shard)?, user, mark))
}

/// Where the order's units are from, after a mark.
pub(super) type SourcedMarkRow = (u64, u64, u32, u16, u16, u8, u8, u64, u8);

/// And whether its units are from the shards in Redis.
pub(super) fn sourced_mark(row: SourcedMarkRow) -> Result<(UserId, Mark, bool), Failure> {
    let (user, number, activity, sku, quantity, attempt, state, pay_by_ms, source) = row;
    let (user, mark) = mark((user, number, activity, sku, quantity, attempt, state, pay_by_ms))?;
    Ok((user, mark, source == 1))
}

pub(super) fn mark(row: MarkRow) -> Result<(UserId, Mark), Failure> {
    let (user, number, activity, sku, quantity, attempt, state, pay_by_ms) = row;
    let mark = Mark {
        order: OrderNumber(number),
        sku: failure::sku_key(activity, sku),
        quantity,
        attempt,
        state: failure::order_state(number, state)?,
        pay_by_ms,
    };
    Ok((UserId(user), mark))
}

impl MySqlInstallation {
    /// Orders of an activity by ascending user and attempt, failed ones included, at most `limit`, from after a user
    /// (0: from the first). All of a user's orders come together: the last user may be one too many for `limit`.
    pub async fn orders(
        &self,
        activity: ActivityId,
        after: UserId,
        limit: u32,
    ) -> Result<Vec<(UserId, Mark)>, StoreError> {
        retried!(self.options.call_timeout; self.read_orders(activity, after, limit))
    }

    /// The user's latest order in an activity: the one that stands, else the one with the highest attempt that came
    /// furthest.
    pub async fn order_of(&self, user: UserId, activity: ActivityId) -> Result<Option<Mark>, StoreError> {
        retried!(self.options.call_timeout; self.read_order_of(user, activity))
    }

    async fn read_order_of(&self, user: UserId, activity: ActivityId) -> Result<Option<Mark>, Failure> {
        let found: Option<MarkRow> = sqlx::query_as(concat!(
            "SELECT ",
            mark_columns!(),
            " FROM orders WHERE activity = ? AND user = ? \
             ORDER BY live DESC, attempt DESC, state = 5, created_at_ms DESC LIMIT 1"
        ))
        .bind(activity.0)
        .bind(user.0)
        .fetch_optional(&self.pool)
        .await?;
        Ok(found.map(mark).transpose()?.map(|(_, mark)| mark))
    }

    async fn read_orders(
        &self,
        activity: ActivityId,
        after: UserId,
        limit: u32,
    ) -> Result<Vec<(UserId, Mark)>, Failure> {
        // The last user of the page first, so that none is cut in two.
        let last: Option<u64> = sqlx::query_scalar(
            "SELECT MAX(user) FROM (SELECT user FROM orders WHERE activity = ? AND user > ? \
             ORDER BY user LIMIT ?) page",
        )
        .bind(activity.0)
        .bind(after.0)
        .bind(limit.max(1))
        .fetch_one(&self.pool)
        .await?;
        let Some(last) = last else { return Ok(Vec::new()) };
        let rows: Vec<MarkRow> = sqlx::query_as(concat!(
            "SELECT ",
            mark_columns!(),
            " FROM orders WHERE activity = ? AND user > ? AND user <= ? \
             ORDER BY user, attempt, number"
        ))
        .bind(activity.0)
        .bind(after.0)
        .bind(last)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(mark).collect()
    }
}

pub(super) async fn by_number(
    connection: &mut MySqlConnection,
    order: OrderNumber,
) -> Result<Option<(UserId, Mark)>, Failure> {
    let found: Option<MarkRow> =
        sqlx::query_as(concat!("SELECT ", mark_columns!(), " FROM orders WHERE number = ?"))
            .bind(order.0)
            .fetch_optional(connection)
            .await?;
    found.map(mark).transpose()
}
