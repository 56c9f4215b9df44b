//! Switches that are kept in the database, because they have to be set while Redis is away.
//!
//! One row a switch, under versions that count with those of Redis: both are Unix milliseconds. Heartbeats read them as well
//! (`processes`), so that gateways obey within a second without asking for more.

use std::time::Duration;

use tokio::time::Instant;

use super::MySqlInstallation;
use super::failure::{Failure, retried};
use crate::store::StoreError;
use crate::store::switches::{NewSwitch, SetSwitch, SwitchStore, Switches};

/// Between two looks for a change.
const POLL: Duration = Duration::from_millis(100);

type Row = (String, String, u64, u64, String, String);

fn switch((name, value, version, at_ms, who, why): Row) -> SetSwitch {
    SetSwitch { name, value, version, at_ms, who, why }
}

impl MySqlInstallation {
    async fn read_switches(&self, after: u64) -> Result<Vec<SetSwitch>, Failure> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT name, value, version, at_ms, who, why FROM switches WHERE version > ? ORDER BY version",
        )
        .bind(after)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(switch).collect())
    }

    async fn try_set_switch(&self, new: &NewSwitch) -> Result<u64, Failure> {
        let mut transaction = self.pool.begin().await?;
        // Locked, so that two that set something at the same time get two versions.
        let (last, now_ms): (u64, u64) = sqlx::query_as(concat!(
            "SELECT CAST(COALESCE(MAX(version), 0) AS UNSIGNED), ",
            now_ms!(),
            " FROM switches FOR UPDATE"
        ))
        .fetch_one(&mut *transaction)
        .await?;
        let version = now_ms.max(last.saturating_add(1));
        sqlx::query(
            "INSERT INTO switches (name, value, version, at_ms, who, why) VALUES (?, ?, ?, ?, ?, ?) \
             ON DUPLICATE KEY UPDATE value = VALUES(value), version = VALUES(version), at_ms = VALUES(at_ms), \
             who = VALUES(who), why = VALUES(why)",
        )
        .bind(new.name.as_str())
        .bind(new.value.as_str())
        .bind(version)
        .bind(now_ms)
        .bind(new.who.as_str())
        .bind(new.why.as_str())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(version)
    }
}

impl SwitchStore for MySqlInstallation {
    async fn switches(&self) -> Result<Switches, StoreError> {
        let mut set = retried!(self.options.call_timeout; self.read_switches(0))?;
        set.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Switches { set, unreadable: Vec::new() })
    }

    async fn set_switch(&self, new: &NewSwitch) -> Result<u64, StoreError> {
        retried!(self.options.call_timeout; self.try_set_switch(new))
    }

    async fn switch_changes(&self, after: u64, wait: Duration) -> Result<Vec<SetSwitch>, StoreError> {
        let deadline = Instant::now().checked_add(wait);
        loop {
            let changes = retried!(self.options.call_timeout; self.read_switches(after))?;
            if !changes.is_empty() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(changes);
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
