//! Switches in the embedded store: two tables of the data folder's database.
//!
//! The serving process sets them through its writer task, a command in another process through a connection of its own
//! ([`SwitchFolder`]). Who follows them hears at once of what its own process sets; what others set shows when it looks
//! at the newest version again, 40 times a second (one seek). The database forgets nothing, so nothing is ever put back.

use std::path::Path;
use std::time::Duration;

use sqlx::{Connection, FromRow, SqliteConnection, SqliteExecutor};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::{Failure, OpenError};
use super::open::{self, IfMissing};
use super::rows;
use super::sqlite_store::SqliteStore;
use super::writer::{Job, now_ms};
use crate::store::StoreError;
use crate::store::switches::{CHANGES_KEPT, NewSwitch, SetSwitch, SwitchStore, Switches};

/// Between two looks for what another process has set.
const POLL: Duration = Duration::from_millis(25);
/// Changes told at a time.
const CHANGES_MAX: i64 = 100;

/// The switches of a data folder for one operator's command, whether or not a process serves it.
#[derive(Debug)]
pub struct SwitchFolder {
    connection: Mutex<SqliteConnection>,
}

impl SwitchFolder {
    /// Opens a folder that holds a database.
    pub async fn open(data_dir: &Path) -> Result<Self, OpenError> {
        let connection = open::open_to_operate(data_dir, IfMissing::Refuse).await?;
        Ok(Self { connection: Mutex::new(connection) })
    }
}

impl SwitchStore for SwitchFolder {
    async fn switches(&self) -> Result<Switches, StoreError> {
        Ok(read(&mut *self.connection.lock().await).await?)
    }

    async fn set_switch(&self, new: &NewSwitch) -> Result<u64, StoreError> {
        Ok(set(&mut *self.connection.lock().await, new).await?)
    }

    async fn switch_changes(&self, after: u64, wait: Duration) -> Result<Vec<SetSwitch>, StoreError> {
        let deadline = Instant::now().checked_add(wait);
        loop {
            let found = changes(&mut *self.connection.lock().await, after).await?;
            if !found.is_empty() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(found);
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl SwitchStore for SqliteStore {
    async fn switches(&self) -> Result<Switches, StoreError> {
        Ok(read(&self.readers).await?)
    }

    async fn set_switch(&self, new: &NewSwitch) -> Result<u64, StoreError> {
        let new = new.clone();
        let version = self.ask(|answer| Job::SetSwitch { new, answer }).await?;
        self.switch_set.notify_waiters();
        Ok(version)
    }

    async fn switch_changes(&self, after: u64, wait: Duration) -> Result<Vec<SetSwitch>, StoreError> {
        let deadline = Instant::now().checked_add(wait);
        loop {
            // Before the look, so that nothing that is set after it is missed.
            let set_here = self.switch_set.notified();
            let found = changes(&self.readers, after).await?;
            if !found.is_empty() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(found);
            }
            let _ = tokio::time::timeout(POLL, set_here).await;
        }
    }
}

/// One transaction: what holds, and that it was changed.
pub(super) async fn set(connection: &mut SqliteConnection, new: &NewSwitch) -> Result<u64, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let last: Option<i64> =
        sqlx::query_scalar("SELECT MAX(version) FROM switch_changes").fetch_one(&mut *transaction).await?;
    let at_ms = rows::signed(now_ms());
    let version = at_ms.max(last.unwrap_or(0).saturating_add(1));
    for statement in [
        "INSERT INTO switches (name, value, version, at_ms, who, why) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value, version = excluded.version, \
         at_ms = excluded.at_ms, who = excluded.who, why = excluded.why",
        "INSERT INTO switch_changes (name, value, version, at_ms, who, why) VALUES (?, ?, ?, ?, ?, ?)",
    ] {
        sqlx::query(statement)
            .bind(new.name.as_str())
            .bind(new.value.as_str())
            .bind(version)
            .bind(at_ms)
            .bind(new.who.as_str())
            .bind(new.why.as_str())
            .execute(&mut *transaction)
            .await?;
    }
    sqlx::query(
        "DELETE FROM switch_changes WHERE version <= \
         (SELECT version FROM switch_changes ORDER BY version DESC LIMIT 1 OFFSET ?)",
    )
    .bind(i64::try_from(CHANGES_KEPT).unwrap_or(i64::MAX))
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    rows::unsigned(version)
}

async fn read<'c>(connection: impl SqliteExecutor<'c>) -> Result<Switches, Failure> {
    let found: Vec<Columns> =
        sqlx::query_as("SELECT name, value, version, at_ms, who, why FROM switches ORDER BY name")
            .fetch_all(connection)
            .await?;
    let set = found.into_iter().map(Columns::switch).collect::<Result<_, _>>()?;
    Ok(Switches { set, unreadable: Vec::new() })
}

async fn changes<'c>(connection: impl SqliteExecutor<'c>, after: u64) -> Result<Vec<SetSwitch>, Failure> {
    let found: Vec<Columns> = sqlx::query_as(
        "SELECT name, value, version, at_ms, who, why FROM switch_changes WHERE version > ? \
         ORDER BY version LIMIT ?",
    )
    .bind(rows::signed(after))
    .bind(CHANGES_MAX)
    .fetch_all(connection)
    .await?;
    found.into_iter().map(Columns::switch).collect()
}

#[derive(FromRow)]
struct Columns {
    name: String,
    value: String,
    version: i64,
    at_ms: i64,
    who: String,
    why: String,
}

impl Columns {
    fn switch(self) -> Result<SetSwitch, Failure> {
        let Self { name, value, version, at_ms, who, why } = self;
        let (version, at_ms) = (rows::unsigned(version)?, rows::unsigned(at_ms)?);
        Ok(SetSwitch { name, value, version, at_ms, who, why })
    }
}
