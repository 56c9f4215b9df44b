//! The leader of a recovery (rule 11 of the stock protocol): elected by a lock of the server that lives and dies with
//! one connection, and writes through that connection alone.
//!
//! Held by one process at a time. When the connection is lost the lock is free and every method here fails: whoever
//! led has to be elected anew. What an old leader still writes to Redis is refused there by the generation.

use std::time::Duration;

use sqlx::{Connection, MySqlConnection};

use super::failure::{Failure, retried};
use super::order_rows::lock_generation;
use super::processes::mask_of;
use super::{MySqlInstallation, open};
use crate::stock::calls::{Gen, SHARDS, ShardId};
use crate::store::StoreError;

/// The lock and its connection.
#[derive(Debug)]
pub struct Leadership {
    connection: MySqlConnection,
    patience: Duration,
}

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
        let mut connection = open::connect(&self.options).await.map_err(Failure::from)?;
        // By the database's name, because such locks are the whole server's.
        let locked: Option<bool> =
            sqlx::query_scalar("SELECT GET_LOCK(CONCAT('rg.leader.', SHA1(DATABASE())), 0) = 1")
                .fetch_one(&mut connection)
                .await
                .map_err(Failure::from)?;
        if locked == Some(true) {
            return Ok(Some(Leadership { connection, patience: self.options.call_timeout }));
        }
        let _ = connection.close().await;
        Ok(None)
    }
}

impl Leadership {
    /// Whether the lock is still this connection's. An error says no as well.
    pub async fn is_held(&mut self) -> Result<bool, StoreError> {
        let held: Option<bool> = sqlx::query_scalar(
            "SELECT IS_USED_LOCK(CONCAT('rg.leader.', SHA1(DATABASE()))) = CONNECTION_ID()",
        )
        .fetch_one(&mut self.connection)
        .await
        .map_err(Failure::from)?;
        Ok(held == Some(true))
    }

    /// Begins a recovery of the closed shards: the generation rises when every settlement under way has ended. The
    /// marks that gateways handed in for earlier recoveries are dropped.
    pub async fn raise_generation(&mut self, closed: &[bool; SHARDS]) -> Result<Gen, StoreError> {
        retried!(self.patience; raise_generation(&mut self.connection, mask_of(closed)))
    }

    /// Ends the handing in, of one moment for all: from now on a gateway is told that it is too late, and that these
    /// shards were rebuilt under this generation, which the leader goes on to do. Said afterwards, a leader that dies
    /// in between would leave gateways that believe what it has written off.
    pub async fn close_hand_ins(
        &mut self,
        generation: Gen,
        shards: &[ShardId],
    ) -> Result<RecoveryRecord, StoreError> {
        retried!(self.patience; close_hand_ins(&mut self.connection, generation, shards))
    }

    /// Records that all of it was done and the shards serve again.
    pub async fn recovery_done(&mut self, generation: Gen) -> Result<RecoveryRecord, StoreError> {
        retried!(self.patience; recovery_done(&mut self.connection, generation))
    }

    /// Lets go of the lead.
    pub async fn resign(self) {
        // That it does not close cleanly changes nothing: the lock ends with it.
        let _ = self.connection.close().await;
    }
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
    // That they handed in stays known: who asks again is told the same.
    sqlx::query("DELETE FROM hand_in_marks WHERE gen < ?")
        .bind(generation)
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
