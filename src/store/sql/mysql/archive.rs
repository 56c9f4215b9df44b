//! The end of an activity (rule 21 of the stock protocol), as far as SQL decides it. Only forward.

use sqlx::MySqlConnection;

use super::MySqlInstallation;
use super::catalog::ActivityState;
use super::failure::{Failure, retried};
use super::operator_rows::{commit, lock_activity};
use crate::protocol::ActivityId;
use crate::store::StoreError;

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveStep {
    /// Done now.
    Done,
    /// It was as far before; nothing changed.
    WasDone,
    /// An earlier step comes first; nothing changed.
    TooEarly,
    /// Something is still due; nothing changed.
    Waits(StillDue),
    /// There is no such activity.
    NoActivity,
}

/// What an activity still owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StillDue {
    /// Loads that are not done.
    pub loads: u64,
    /// Units that are to go back to Redis.
    pub releases: u64,
    /// States that Redis has to learn.
    pub marks: u64,
    /// Orders that are recorded and not settled: see the switch `orders.mode`, or `rushgate backfill`.
    pub recorded: u64,
}

impl MySqlInstallation {
    /// Begins the end: LOADED → ENDING. Shards are then told to refuse reservations. One that was never preheated
    /// ends too.
    pub async fn end_activity(&self, id: ActivityId) -> Result<ArchiveStep, StoreError> {
        retried!(self.options.call_timeout; self.try_end(id))
    }

    /// ENDING → ARCHIVED, when nothing is due in SQL. The caller has seen every shard's answer, drained feeds, and
    /// nothing in transit.
    pub async fn archive_activity(&self, id: ActivityId) -> Result<ArchiveStep, StoreError> {
        retried!(self.options.call_timeout; self.try_archive(id))
    }

    async fn try_end(&self, id: ActivityId) -> Result<ArchiveStep, Failure> {
        let mut transaction = self.pool.begin().await?;
        match lock_activity(&mut transaction, id).await? {
            None => return Ok(ArchiveStep::NoActivity),
            Some((state, _)) if state >= ActivityState::Ending => return Ok(ArchiveStep::WasDone),
            Some(_) => {}
        }
        set_state(&mut transaction, id, ActivityState::Ending).await?;
        commit(transaction).await?;
        Ok(ArchiveStep::Done)
    }

    async fn try_archive(&self, id: ActivityId) -> Result<ArchiveStep, Failure> {
        let mut transaction = self.pool.begin().await?;
        match lock_activity(&mut transaction, id).await? {
            None => return Ok(ArchiveStep::NoActivity),
            Some((ActivityState::Archived, _)) => return Ok(ArchiveStep::WasDone),
            Some((ActivityState::Ending, _)) => {}
            Some(_) => return Ok(ArchiveStep::TooEarly),
        }
        let due = still_due(&mut transaction, id).await?;
        if due != StillDue::default() {
            return Ok(ArchiveStep::Waits(due));
        }
        set_state(&mut transaction, id, ActivityState::Archived).await?;
        commit(transaction).await?;
        Ok(ArchiveStep::Done)
    }
}

async fn set_state(
    connection: &mut MySqlConnection,
    id: ActivityId,
    state: ActivityState,
) -> Result<(), sqlx::Error> {
    sqlx::query(concat!(
        "UPDATE activities SET state = ?, archived_at_ms = IF(? = 4, ",
        now_ms!(),
        ", NULL) WHERE id = ?"
    ))
    .bind(state as u8)
    .bind(state as u8)
    .bind(id.0)
    .execute(connection)
    .await?;
    Ok(())
}

async fn still_due(connection: &mut MySqlConnection, id: ActivityId) -> Result<StillDue, Failure> {
    let (loads, releases, marks, recorded): (i64, i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT COUNT(*) FROM loads WHERE activity = ? AND state = 1), \
         (SELECT COUNT(*) FROM ledger WHERE done = 0 AND activity = ?), \
         (SELECT COUNT(*) FROM outbox x JOIN orders o ON o.number = x.number WHERE x.done = 0 AND o.activity = ?), \
         (SELECT COUNT(*) FROM recorded WHERE activity = ?)",
    )
    .bind(id.0)
    .bind(id.0)
    .bind(id.0)
    .bind(id.0)
    .fetch_one(connection)
    .await?;
    let count = |count: i64| u64::try_from(count).unwrap_or_default();
    Ok(StillDue {
        loads: count(loads),
        releases: count(releases),
        marks: count(marks),
        recorded: count(recorded),
    })
}
