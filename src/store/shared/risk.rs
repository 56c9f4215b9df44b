//! The risk lists of the shared store: Redis's, whatever the lease says. Who is cut off from the database may still turn
//! somebody away.

use std::time::Duration;

use super::SharedStore;
use crate::store::StoreError;
use crate::store::risk::{Change, Entry, Followed, NewEntry, NewFlag, Page, Removed, RiskStore};

impl RiskStore for SharedStore {
    async fn risk_add(&self, entries: &[NewEntry]) -> Result<u64, StoreError> {
        self.redis().risk_add(entries).await
    }

    async fn risk_flag(&self, flags: &[NewFlag]) -> Result<Vec<bool>, StoreError> {
        self.redis().risk_flag(flags).await
    }

    async fn risk_remove(&self, subjects: &[String]) -> Result<Removed, StoreError> {
        self.redis().risk_remove(subjects).await
    }

    async fn risk_find(&self, subjects: &[String]) -> Result<Vec<Entry>, StoreError> {
        self.redis().risk_find(subjects).await
    }

    async fn risk_page(&self, cursor: Option<&str>) -> Result<Page<Entry>, StoreError> {
        self.redis().risk_page(cursor).await
    }

    async fn risk_scan(&self, cursor: Option<&str>) -> Result<Page<Change>, StoreError> {
        self.redis().risk_scan(cursor).await
    }

    async fn risk_version(&self) -> Result<u64, StoreError> {
        self.redis().risk_version().await
    }

    async fn risk_changes(&self, after: u64, wait: Duration) -> Result<Followed, StoreError> {
        self.redis().risk_changes(after, wait).await
    }

    async fn risk_restore(&self, lost: &[NewEntry]) -> Result<u64, StoreError> {
        self.redis().risk_restore(lost).await
    }
}
