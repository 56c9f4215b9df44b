//! Allow-lists in the embedded store: the rows of one table, and how each list stands in another.
//!
//! The serving process reads them, an operator's command changes them over a connection of its own, whether or not a
//! process serves the folder. No changes are remembered: a list that has changed is read again, from this disk. The
//! database forgets nothing, so nothing is ever put back.

use std::path::Path;

use sqlx::{Connection, SqliteConnection, SqliteExecutor};
use tokio::sync::Mutex;

use super::error::{Failure, OpenError};
use super::open::{self, IfMissing};
use super::rows;
use super::sqlite_store::SqliteStore;
use crate::protocol::{ActivityId, UserId};
use crate::store::StoreError;
use crate::store::allow_lists::{AllowListEditor, AllowListStore, ListState, Listed, USERS_PER_CHANGE_MAX};

/// The allow-lists of a data folder for one operator's command.
#[derive(Debug)]
pub struct AllowListFolder {
    connection: Mutex<SqliteConnection>,
}

impl AllowListFolder {
    /// Opens a folder that holds a database.
    pub async fn open(data_dir: &Path) -> Result<Self, OpenError> {
        let connection = open::open_to_operate(data_dir, IfMissing::Refuse).await?;
        Ok(Self { connection: Mutex::new(connection) })
    }
}

impl AllowListStore for AllowListFolder {
    async fn list_states(
        &self,
        activities: &[ActivityId],
    ) -> Result<Vec<Result<ListState, StoreError>>, StoreError> {
        Ok(states(&mut *self.connection.lock().await, activities).await?)
    }

    async fn listed(&self, activity: ActivityId) -> Result<Listed, StoreError> {
        Ok(read(&mut *self.connection.lock().await, activity).await?)
    }
}

impl AllowListEditor for AllowListFolder {
    async fn change_list(
        &self,
        activity: ActivityId,
        users: &[UserId],
        is_in: bool,
    ) -> Result<u64, StoreError> {
        let users = users.get(..USERS_PER_CHANGE_MAX).unwrap_or(users);
        Ok(change(&mut *self.connection.lock().await, activity, users, is_in).await?)
    }
}

impl AllowListStore for SqliteStore {
    async fn list_states(
        &self,
        activities: &[ActivityId],
    ) -> Result<Vec<Result<ListState, StoreError>>, StoreError> {
        Ok(states(&self.readers, activities).await?)
    }

    async fn listed(&self, activity: ActivityId) -> Result<Listed, StoreError> {
        Ok(read(&self.readers, activity).await?)
    }
}

/// Of all lists, of one instant; there are not many.
async fn states<'c>(
    connection: impl SqliteExecutor<'c>,
    activities: &[ActivityId],
) -> Result<Vec<Result<ListState, StoreError>>, Failure> {
    let found: Vec<(u32, i64, i64)> =
        sqlx::query_as("SELECT activity, version, users FROM allow_lists ORDER BY activity")
            .fetch_all(connection)
            .await?;
    let state = |activity: &ActivityId| -> Result<ListState, Failure> {
        let at = found.binary_search_by_key(&activity.0, |(id, ..)| *id);
        match at.ok().and_then(|at| found.get(at)) {
            Some((_, version, users)) => {
                Ok(ListState { version: rows::unsigned(*version)?, users: rows::unsigned(*users)? })
            }
            None => Ok(ListState::default()),
        }
    };
    Ok(activities.iter().map(|activity| state(activity).map_err(StoreError::from)).collect())
}

async fn read<'c>(connection: impl SqliteExecutor<'c>, activity: ActivityId) -> Result<Listed, Failure> {
    let found: Vec<i64> =
        sqlx::query_scalar("SELECT user FROM allowed_users WHERE activity = ? ORDER BY user")
            .bind(activity.0)
            .fetch_all(connection)
            .await?;
    let users = found.into_iter().map(|user| Ok(UserId(rows::unsigned(user)?)));
    Ok(Listed { users: users.collect::<Result<_, Failure>>()?, others: 0 })
}

/// One transaction: the users, and how the list stands then.
async fn change(
    connection: &mut SqliteConnection,
    activity: ActivityId,
    users: &[UserId],
    is_in: bool,
) -> Result<u64, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let statement = if is_in {
        "INSERT OR IGNORE INTO allowed_users (activity, user) VALUES (?, ?)"
    } else {
        "DELETE FROM allowed_users WHERE activity = ? AND user = ?"
    };
    let mut changed: u64 = 0;
    for user in users {
        let done = sqlx::query(statement).bind(activity.0).bind(rows::signed(user.0));
        changed = changed.saturating_add(done.execute(&mut *transaction).await?.rows_affected());
    }
    if changed == 0 {
        return Ok(0);
    }
    let difference = i64::try_from(changed).unwrap_or(i64::MAX);
    let difference = if is_in { difference } else { difference.saturating_neg() };
    sqlx::query(
        "INSERT INTO allow_lists (activity, version, users) VALUES (?, 1, ?) \
         ON CONFLICT (activity) DO UPDATE SET version = version + 1, users = users + excluded.users",
    )
    .bind(activity.0)
    .bind(difference)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(changed)
}
