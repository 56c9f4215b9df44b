//! The leader of a recovery (rule 11 of the stock protocol): elected by a lock of the server that lives and dies with
//! one connection, and writes through that connection alone.
//!
//! Held by one process at a time. The server ends a session that says nothing for ten seconds, so that a leader whose
//! host has vanished does not lead for ever; a task says something every second for as long as the leader lives, on its
//! runtime: what blocks that runtime's threads for longer costs the lead. When the connection is lost the lock is free
//! and every method here fails: whoever led has to be elected anew. What an old leader still writes to Redis is refused
//! there by the generation, once the next one has told it.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, MySqlConnection};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::task::AbortHandle;

use super::failure::{Failure, retried};
use super::order_rows::lock_generation;
use super::processes::mask_of;
use super::releases::fail_promise;
use super::{MySqlInstallation, open};
use crate::protocol::UserId;
use crate::stock::calls::{Gen, Mark, SHARDS, ShardId};
use crate::store::StoreError;

/// How long the server keeps the lock of a leader of whom it hears nothing.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// How often it hears something.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer may take; after that the lock may be another's.
const PING_PATIENCE: Duration = Duration::from_secs(5);
/// Promises that end in one transaction.
const FAILED_PER_TRANSACTION: usize = 500;
/// How long the end of the connection may take.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// The lock and its connection; dropping it lets go of both.
#[derive(Debug)]
pub struct Leadership {
    held: Arc<Held>,
    patience: Duration,
    pinging: AbortHandle,
}

/// Between the leader and the task that keeps its lock.
type Held = Mutex<Option<MySqlConnection>>;

/// What came of recording a completed recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryRecord {
    /// Recorded now, or before.
    Recorded,
    /// Another recovery has begun since; nothing was recorded.
    Gen(Gen),
}

impl MySqlInstallation {
    /// Takes the lead, unless another process has it.
    pub async fn try_lead(&self) -> Result<Option<Leadership>, StoreError> {
        let patience = self.options.call_timeout;
        let mut connection = open::connect(&self.options, IDLE_MAX).await.map_err(Failure::from)?;
        if !retried!(patience; lock(&mut connection))? {
            let _ = tokio::time::timeout(CLOSE_PATIENCE, connection.close()).await;
            return Ok(None);
        }
        let held = Arc::new(Mutex::new(Some(connection)));
        let pinging = tokio::spawn(keep(Arc::clone(&held))).abort_handle();
        Ok(Some(Leadership { held, patience, pinging }))
    }
}

impl Leadership {
    /// Whether the lock is still this connection's, asked of the server: for before a leader writes what only a leader
    /// may write. An error says no as well.
    pub async fn is_held(&mut self) -> Result<bool, StoreError> {
        let Ok(mut connection) = self.connection().await else { return Ok(false) };
        retried!(PING_PATIENCE; is_mine(&mut connection))
    }

    /// Begins a recovery of the closed shards: the generation rises when every settlement under way has ended.
    pub async fn raise_generation(&mut self, closed: &[bool; SHARDS]) -> Result<Gen, StoreError> {
        let mut connection = self.connection().await?;
        retried!(self.patience; raise_generation(&mut connection, mask_of(closed)))
    }

    /// Ends the handing in, of one moment for all: from now on a gateway is told that it is too late, and that these
    /// shards were rebuilt under this generation, which the leader goes on to do. Said afterwards, a leader that dies
    /// in between would leave gateways that believe what it has written off.
    pub async fn close_hand_ins(
        &mut self,
        generation: Gen,
        shards: &[ShardId],
    ) -> Result<RecoveryRecord, StoreError> {
        let mut connection = self.connection().await?;
        retried!(self.patience; close_hand_ins(&mut connection, generation, shards))
    }

    /// Ends promises for which no unit was left with explicit FAILED rows, while this recovery is the newest one.
    pub async fn fail(
        &mut self,
        generation: Gen,
        broken: &[(UserId, Mark)],
        reason: &str,
    ) -> Result<RecoveryRecord, StoreError> {
        let mut connection = self.connection().await?;
        for some in broken.chunks(FAILED_PER_TRANSACTION) {
            let record = retried!(self.patience; fail(&mut connection, generation, some, reason))?;
            if record != RecoveryRecord::Recorded {
                return Ok(record);
            }
        }
        Ok(RecoveryRecord::Recorded)
    }

    /// Records that all of it was done and the shards serve again.
    pub async fn recovery_done(&mut self, generation: Gen) -> Result<RecoveryRecord, StoreError> {
        let mut connection = self.connection().await?;
        retried!(self.patience; recovery_done(&mut connection, generation))
    }

    /// Lets go of the lead.
    pub async fn resign(self) {
        self.pinging.abort();
        // That it does not close cleanly changes nothing: the lock ends with it.
        if let Some(connection) = self.held.lock().await.take() {
            let _ = tokio::time::timeout(CLOSE_PATIENCE, connection.close()).await;
        }
    }

    pub(super) async fn connection(&self) -> Result<MappedMutexGuard<'_, MySqlConnection>, StoreError> {
        MutexGuard::try_map(self.held.lock().await, Option::as_mut).map_err(|_| {
            StoreError::Unavailable("the lead of the recovery is lost; it is begun anew".to_owned())
        })
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.pinging.abort();
    }
}

/// Says something now and then, until the lock is not ours any more.
async fn keep(held: Arc<Held>) {
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        // Whoever has it is saying something.
        let mut held = held.lock().await;
        let Some(connection) = held.as_mut() else { return };
        let reason = match tokio::time::timeout(PING_PATIENCE, is_mine(connection)).await {
            Ok(Ok(true)) => continue,
            Ok(Ok(false)) => "the lock is another connection's".to_owned(),
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => format!("the database did not answer within {PING_PATIENCE:?}"),
        };
        tracing::warn!(reason, "the lead of the recovery is lost");
        *held = None;
        return;
    }
}

/// The lock goes by the database's name, because such locks are the whole server's.
async fn lock(connection: &mut MySqlConnection) -> Result<bool, Failure> {
    let locked: Option<bool> =
        sqlx::query_scalar("SELECT GET_LOCK(CONCAT('rg.leader.', SHA1(DATABASE())), 0) = 1")
            .fetch_one(connection)
            .await?;
    Ok(locked == Some(true))
}

async fn is_mine(connection: &mut MySqlConnection) -> Result<bool, Failure> {
    let held: Option<bool> =
        sqlx::query_scalar("SELECT IS_USED_LOCK(CONCAT('rg.leader.', SHA1(DATABASE()))) = CONNECTION_ID()")
            .fetch_one(connection)
            .await?;
    Ok(held == Some(true))
}

async fn raise_generation(connection: &mut MySqlConnection, closed: u16) -> Result<Gen, Failure> {
    let mut transaction = connection.begin().await?;
    sqlx::query("UPDATE installation SET gen = gen + 1").execute(&mut *transaction).await?;
    let generation: u64 =
        sqlx::query_scalar("SELECT gen FROM installation").fetch_one(&mut *transaction).await?;
    sqlx::query(concat!(
        "INSERT INTO recoveries (gen, closed, state, started_at_ms) VALUES (?, ?, 1, ",
        now_ms!(),
        ")"
    ))
    .bind(generation)
    .bind(closed)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(Gen(generation))
}

async fn close_hand_ins(
    connection: &mut MySqlConnection,
    generation: Gen,
    shards: &[ShardId],
) -> Result<RecoveryRecord, Failure> {
    let mut transaction = connection.begin().await?;
    let (current, _) = lock_generation(&mut transaction).await?;
    if current != generation {
        return Ok(RecoveryRecord::Gen(current));
    }
    // Waits for whoever is handing in at this moment.
    sqlx::query("UPDATE recoveries SET state = 2 WHERE gen = ? AND state = 1")
        .bind(generation.0)
        .execute(&mut *transaction)
        .await?;
    for shard in shards {
        sqlx::query("UPDATE rebuilt_shards SET gen = ? WHERE shard = ?")
            .bind(generation.0)
            .bind(shard.number())
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(RecoveryRecord::Recorded)
}

async fn fail(
    connection: &mut MySqlConnection,
    generation: Gen,
    broken: &[(UserId, Mark)],
    reason: &str,
) -> Result<RecoveryRecord, Failure> {
    let mut transaction = connection.begin().await?;
    let (current, now_ms) = lock_generation(&mut transaction).await?;
    if current != generation {
        return Ok(RecoveryRecord::Gen(current));
    }
    for (user, mark) in broken {
        fail_promise(&mut transaction, *user, mark, reason, now_ms).await?;
    }
    transaction.commit().await?;
    Ok(RecoveryRecord::Recorded)
}

async fn recovery_done(connection: &mut MySqlConnection, generation: Gen) -> Result<RecoveryRecord, Failure> {
    let mut transaction = connection.begin().await?;
    let (current, now_ms) = lock_generation(&mut transaction).await?;
    if current != generation {
        return Ok(RecoveryRecord::Gen(current));
    }
    sqlx::query("UPDATE recoveries SET state = 3, done_at_ms = ? WHERE gen = ? AND state < 3")
        .bind(now_ms)
        .bind(generation.0)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(RecoveryRecord::Recorded)
}
