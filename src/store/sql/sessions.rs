//! Sessions in the embedded store: the rows of one table, read by the serving process, changed by commands beside it over
//! a connection of their own. What has ended is deleted by the next that is kept.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sqlx::{Connection, SqliteConnection, SqliteExecutor};
use tokio::sync::Mutex;

use super::error::{Failure, OpenError};
use super::open::{self, IfMissing};
use super::rows;
use super::sqlite_store::SqliteStore;
use crate::store::StoreError;
use crate::store::sessions::{SessionEditor, SessionKey, SessionStore, StoredSession};

/// The sessions of a data folder for one operator's command.
#[derive(Debug)]
pub struct SessionFolder {
    connection: Mutex<SqliteConnection>,
}

impl SessionFolder {
    /// Opens a folder that holds a database.
    pub async fn open(data_dir: &Path) -> Result<Self, OpenError> {
        let connection = open::open_to_operate(data_dir, IfMissing::Refuse).await?;
        Ok(Self { connection: Mutex::new(connection) })
    }
}

impl SessionStore for SessionFolder {
    async fn session(&self, key: &SessionKey) -> Result<Option<StoredSession>, StoreError> {
        Ok(read(&mut *self.connection.lock().await, key).await?)
    }
}

impl SessionEditor for SessionFolder {
    async fn put_session(
        &self,
        key: &SessionKey,
        session: &StoredSession,
        ends_at_s: u64,
    ) -> Result<(), StoreError> {
        Ok(put(&mut *self.connection.lock().await, key, session, ends_at_s).await?)
    }

    async fn remove_session(&self, key: &SessionKey) -> Result<bool, StoreError> {
        Ok(remove(&mut *self.connection.lock().await, key).await?)
    }
}

impl SessionStore for SqliteStore {
    async fn session(&self, key: &SessionKey) -> Result<Option<StoredSession>, StoreError> {
        Ok(read(&self.readers, key).await?)
    }
}

async fn read<'c>(
    connection: impl SqliteExecutor<'c>,
    key: &SessionKey,
) -> Result<Option<StoredSession>, Failure> {
    let found: Option<(String, String, String, String)> =
        sqlx::query_as("SELECT user, exp, scope, claims FROM sessions WHERE token_sha256 = ?")
            .bind(key.0.as_slice())
            .fetch_optional(connection)
            .await?;
    Ok(found.map(|(user, exp, scope, claims)| StoredSession { user, exp, scope, claims }))
}

async fn put(
    connection: &mut SqliteConnection,
    key: &SessionKey,
    session: &StoredSession,
    ends_at_s: u64,
) -> Result<(), Failure> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("DELETE FROM sessions WHERE ends_at_s < ?")
        .bind(rows::signed(now_s))
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "INSERT OR REPLACE INTO sessions (token_sha256, user, exp, scope, claims, ends_at_s) \
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(key.0.as_slice())
    .bind(session.user.as_str())
    .bind(session.exp.as_str())
    .bind(session.scope.as_str())
    .bind(session.claims.as_str())
    .bind(rows::signed(ends_at_s))
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

async fn remove(connection: &mut SqliteConnection, key: &SessionKey) -> Result<bool, Failure> {
    let removed = sqlx::query("DELETE FROM sessions WHERE token_sha256 = ?")
        .bind(key.0.as_slice())
        .execute(connection)
        .await?;
    Ok(removed.rows_affected() > 0)
}
