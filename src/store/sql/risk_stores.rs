//! Risk lists in the embedded store: two tables of the data folder's database.
//!
//! The serving process changes them through its writer task, a command in another process through a connection of its
//! own ([`RiskFolder`]). Who follows them hears at once of what its own process changes; what others change shows when it
//! looks again, 40 times a second (one seek). The database forgets nothing, so nothing is ever put back.

use std::path::Path;
use std::time::Duration;

use sqlx::SqliteConnection;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::{Failure, OpenError};
use super::jobs::Job;
use super::open::{self, IfMissing};
use super::risk::{self, Done, Step};
use super::sqlite_store::SqliteStore;
use super::writer::now_ms;
use crate::store::StoreError;
use crate::store::risk::{
    Change, Entry, Followed, NewEntry, NewFlag, Page, Removed, RiskStore, STEP_ENTRIES,
};

/// Between two looks for what another process has changed.
const POLL: Duration = Duration::from_millis(25);

/// The risk lists of a data folder for one operator's command, whether or not a process serves it.
#[derive(Debug)]
pub struct RiskFolder {
    connection: Mutex<SqliteConnection>,
}

impl RiskFolder {
    /// Opens a folder that holds a database.
    pub async fn open(data_dir: &Path) -> Result<Self, OpenError> {
        let connection = open::open_to_operate(data_dir, IfMissing::Refuse).await?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    async fn change(&self, step: Step) -> Result<Done, StoreError> {
        Ok(risk::change(&mut *self.connection.lock().await, &step, now_ms()).await?)
    }
}

impl RiskStore for RiskFolder {
    async fn risk_add(&self, entries: &[NewEntry]) -> Result<u64, StoreError> {
        let mut version = self.risk_version().await?;
        for step in entries.chunks(STEP_ENTRIES) {
            version = self.change(Step::Add(step.to_vec())).await?.version;
        }
        Ok(version)
    }

    async fn risk_remove(&self, subjects: &[String]) -> Result<Removed, StoreError> {
        let mut removed = Removed { version: self.risk_version().await?, entries: 0 };
        for step in subjects.chunks(STEP_ENTRIES) {
            removed = sum(removed, self.change(Step::Remove(step.to_vec())).await?.into());
        }
        Ok(removed)
    }

    async fn risk_flag(&self, flags: &[NewFlag]) -> Result<Vec<bool>, StoreError> {
        let mut stand = Vec::with_capacity(flags.len());
        for step in flags.chunks(STEP_ENTRIES) {
            stand.extend(self.change(Step::Flag(step.to_vec())).await?.stand);
        }
        Ok(stand)
    }

    async fn risk_find(&self, subjects: &[String]) -> Result<Vec<Entry>, StoreError> {
        Ok(risk::find(&mut *self.connection.lock().await, subjects).await?)
    }

    async fn risk_page(&self, cursor: Option<&str>) -> Result<Page<Entry>, StoreError> {
        Ok(risk::page(&mut *self.connection.lock().await, cursor).await?)
    }

    async fn risk_scan(&self, cursor: Option<&str>) -> Result<Page<Change>, StoreError> {
        self.risk_page(cursor).await.map(scanned)
    }

    async fn risk_version(&self) -> Result<u64, StoreError> {
        Ok(risk::version(&mut *self.connection.lock().await).await?)
    }

    async fn risk_changes(&self, after: u64, wait: Duration) -> Result<Followed, StoreError> {
        let deadline = Instant::now().checked_add(wait);
        loop {
            if let Some(found) = risk::changes(&mut *self.connection.lock().await, after).await? {
                return Ok(found);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Followed::Changes { version: after, changes: Vec::new() });
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl SqliteStore {
    async fn change_risk(&self, step: Step) -> Result<Done, StoreError> {
        let done = self.ask(|answer| Job::ChangeRisk { step, answer }).await?;
        self.risk_changed.notify_waiters();
        Ok(done)
    }
}

impl RiskStore for SqliteStore {
    async fn risk_add(&self, entries: &[NewEntry]) -> Result<u64, StoreError> {
        let mut version = self.risk_version().await?;
        for step in entries.chunks(STEP_ENTRIES) {
            version = self.change_risk(Step::Add(step.to_vec())).await?.version;
        }
        Ok(version)
    }

    async fn risk_remove(&self, subjects: &[String]) -> Result<Removed, StoreError> {
        let mut removed = Removed { version: self.risk_version().await?, entries: 0 };
        for step in subjects.chunks(STEP_ENTRIES) {
            removed = sum(removed, self.change_risk(Step::Remove(step.to_vec())).await?.into());
        }
        Ok(removed)
    }

    async fn risk_flag(&self, flags: &[NewFlag]) -> Result<Vec<bool>, StoreError> {
        let mut stand = Vec::with_capacity(flags.len());
        for step in flags.chunks(STEP_ENTRIES) {
            stand.extend(self.change_risk(Step::Flag(step.to_vec())).await?.stand);
        }
        Ok(stand)
    }

    async fn risk_find(&self, subjects: &[String]) -> Result<Vec<Entry>, StoreError> {
        let mut connection = self.readers.acquire().await.map_err(Failure::from)?;
        Ok(risk::find(&mut connection, subjects).await?)
    }

    async fn risk_page(&self, cursor: Option<&str>) -> Result<Page<Entry>, StoreError> {
        Ok(risk::page(&self.readers, cursor).await?)
    }

    async fn risk_scan(&self, cursor: Option<&str>) -> Result<Page<Change>, StoreError> {
        self.risk_page(cursor).await.map(scanned)
    }

    async fn risk_version(&self) -> Result<u64, StoreError> {
        Ok(risk::version(&self.readers).await?)
    }

    async fn risk_changes(&self, after: u64, wait: Duration) -> Result<Followed, StoreError> {
        let deadline = Instant::now().checked_add(wait);
        loop {
            // Before the look, so that nothing that is changed after it is missed.
            let changed_here = self.risk_changed.notified();
            if let Some(found) = risk::changes(&self.readers, after).await? {
                return Ok(found);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Followed::Changes { version: after, changes: Vec::new() });
            }
            let _ = tokio::time::timeout(POLL, changed_here).await;
        }
    }
}

fn sum(before: Removed, step: Removed) -> Removed {
    Removed { version: step.version, entries: before.entries.saturating_add(step.entries) }
}

fn scanned(page: Page<Entry>) -> Page<Change> {
    let change = |entry: Entry| {
        let is_flag = entry.is_flag();
        let Entry { subject, effect, until_ms, .. } = entry;
        Change { subject, listed: Some((effect, until_ms)), is_flag }
    };
    Page { found: page.found.into_iter().map(change).collect(), next: page.next }
}
