//! Switches in the embedded store: two tables of the data folder's database.
//!
//! The serving process sets them through its writer task, a command in another process through a connection of its own
//! ([`SwitchFolder`]). Who follows them hears at once of what its own process sets; what others set shows when it looks
//! at the newest version again, 40 times a second (one seek). The database forgets nothing, so nothing is ever put back.

use std::path::Path;
use std::time::Duration;

use sqlx::SqliteConnection;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::OpenError;
use super::jobs::Job;
use super::open::{self, IfMissing};
use super::sqlite_store::SqliteStore;
use super::switches::{changes, read, set};
use super::writer::now_ms;
use crate::store::StoreError;
use crate::store::switches::{NewSwitch, SetSwitch, SwitchStore, Switches};

/// Between two looks for what another process has set.
const POLL: Duration = Duration::from_millis(25);

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
        Ok(set(&mut *self.connection.lock().await, new, now_ms()).await?)
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
