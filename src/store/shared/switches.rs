//! The switches of the production form: in Redis, but for those that have to be set while Redis is away, which are in SQL.
//!
//! Run by whoever sets or follows them. Either server may be away without hiding what the other has from who only wants
//! that: a door is closed without the database, and the mode is switched without Redis.

use std::time::Duration;

use crate::store::StoreError;
use crate::store::modes::is_kept_in_sql;
use crate::store::redis::RedisShards;
use crate::store::sql::mysql::MySqlInstallation;
use crate::store::switches::{NewSwitch, SetSwitch, SwitchStore, Switches};

/// For what SQL has of switches, by itself: who follows those of Redis does not wait for longer.
const PATIENCE: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Clone, Debug)]
pub struct InstallationSwitches {
    redis: RedisShards,
    sql: MySqlInstallation,
    patience: Duration,
}

impl InstallationSwitches {
    /// Of an installation.
    pub const fn new(redis: RedisShards, sql: MySqlInstallation) -> Self {
        Self { redis, sql, patience: PATIENCE }
    }

    /// The same, waiting so long for what SQL has.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// What SQL has. Nothing while it does not answer: who obeys what it knew obeys that on.
    async fn of_sql(&self) -> Vec<SetSwitch> {
        match tokio::time::timeout(self.patience, self.sql.switches()).await {
            Ok(Ok(switches)) => switches.set,
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }
}

impl SwitchStore for InstallationSwitches {
    async fn switches(&self) -> Result<Switches, StoreError> {
        let (found, of_sql) = tokio::join!(self.redis.switches(), self.of_sql());
        let mut found = found?;
        found.set.retain(|switch| !is_kept_in_sql(&switch.name));
        found.set.extend(of_sql);
        found.set.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    async fn set_switch(&self, new: &NewSwitch) -> Result<u64, StoreError> {
        if is_kept_in_sql(&new.name) {
            self.sql.set_switch(new).await
        } else {
            self.redis.set_switch(new).await
        }
    }

    /// Of either, whichever has some first.
    async fn switch_changes(&self, after: u64, wait: Duration) -> Result<Vec<SetSwitch>, StoreError> {
        let (mut changes, others) = tokio::select! {
            changes = self.redis.switch_changes(after, wait) => {
                (changes?, self.sql.switch_changes(after, Duration::ZERO).await?)
            }
            changes = self.sql.switch_changes(after, wait) => {
                (changes?, self.redis.switch_changes(after, Duration::ZERO).await?)
            }
        };
        changes.extend(others);
        changes.sort_by_key(|change| change.version);
        Ok(changes)
    }

    async fn restore_switches(&self, lost: &[SetSwitch]) -> Result<u64, StoreError> {
        // SQL loses none: what is missing could not be read.
        let lost: Vec<SetSwitch> =
            lost.iter().filter(|switch| !is_kept_in_sql(&switch.name)).cloned().collect();
        if lost.is_empty() { Ok(0) } else { self.redis.restore_switches(&lost).await }
    }
}
