//! What gateways know of closed shards, handed in for a recovery (rule 11.3 of the stock protocol).
//!
//! All of a gateway's marks are one transaction under the recovery's generation; handing in again changes nothing.

use std::sync::LazyLock;

use super::MySqlInstallation;
use super::failure::{Failure, retried};
use super::order_rows::lock_generation;
use super::orders::{MarkRow, mark, mark_columns};
use super::statements::{Shapes, write};
use crate::protocol::UserId;
use crate::stock::calls::{Gen, Mark, ProcessNumber};
use crate::store::{HandIn, StoreError};

static INSERT: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO hand_in_marks (gen, process, activity, user, number, sku, quantity, attempt, state, pay_by_ms) \
         VALUES ",
        "(?,?,?,?,?,?,?,?,?,?)",
        " ON DUPLICATE KEY UPDATE number = number",
    )
});

impl MySqlInstallation {
    /// Hands in a gateway's marks of the closed shards, none left out. What is answered once is answered ever after.
    pub async fn hand_in(
        &self,
        process: ProcessNumber,
        generation: Gen,
        marks: &[(UserId, Mark)],
    ) -> Result<HandIn, StoreError> {
        retried!(self.options.call_timeout; self.try_hand_in(process, generation, marks))
    }

    /// The gateways that have handed in for a recovery.
    pub async fn hand_ins(&self, generation: Gen) -> Result<Vec<ProcessNumber>, StoreError> {
        retried!(self.options.call_timeout; self.read_hand_ins(generation))
    }

    /// What one of them handed in.
    pub async fn handed_in(
        &self,
        generation: Gen,
        process: ProcessNumber,
    ) -> Result<Vec<(UserId, Mark)>, StoreError> {
        retried!(self.options.call_timeout; self.read_handed_in(generation, process))
    }

    async fn read_hand_ins(&self, generation: Gen) -> Result<Vec<ProcessNumber>, Failure> {
        let processes: Vec<u32> =
            sqlx::query_scalar("SELECT process FROM hand_ins WHERE gen = ? ORDER BY process")
                .bind(generation.0)
                .fetch_all(&self.pool)
                .await?;
        Ok(processes.into_iter().map(ProcessNumber).collect())
    }

    async fn read_handed_in(
        &self,
        generation: Gen,
        process: ProcessNumber,
    ) -> Result<Vec<(UserId, Mark)>, Failure> {
        let rows: Vec<MarkRow> = sqlx::query_as(concat!(
            "SELECT ",
            mark_columns!(),
            " FROM hand_in_marks WHERE gen = ? AND process = ? ORDER BY activity, user"
        ))
        .bind(generation.0)
        .bind(process.0)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(mark).collect()
    }

    async fn try_hand_in(
        &self,
        process: ProcessNumber,
        generation: Gen,
        marks: &[(UserId, Mark)],
    ) -> Result<HandIn, Failure> {
        let mut transaction = self.pool.begin().await?;
        let (current, now_ms) = lock_generation(&mut transaction).await?;
        let handed_in: Option<u32> =
            sqlx::query_scalar("SELECT process FROM hand_ins WHERE gen = ? AND process = ?")
                .bind(generation.0)
                .bind(process.0)
                .fetch_optional(&mut *transaction)
                .await?;
        if handed_in.is_some() {
            return Ok(HandIn::InTime);
        }
        // Locked, so that the leader does not begin to read before this is committed.
        let state: Option<u8> =
            sqlx::query_scalar("SELECT state FROM recoveries WHERE gen = ? LOCK IN SHARE MODE")
                .bind(generation.0)
                .fetch_optional(&mut *transaction)
                .await?;
        if current != generation || state != Some(1) {
            return Ok(HandIn::TooLate);
        }
        sqlx::query("INSERT INTO hand_ins (gen, process, at_ms) VALUES (?, ?, ?)")
            .bind(generation.0)
            .bind(process.0)
            .bind(now_ms)
            .execute(&mut *transaction)
            .await?;
        let mut marks = marks.to_vec();
        marks.sort_unstable_by_key(|(user, mark)| (mark.sku.activity, *user));
        write(&mut transaction, &INSERT, &marks, |query, (user, mark)| {
            let query = query.bind(generation.0).bind(process.0).bind(mark.sku.activity.0).bind(user.0);
            let query = query.bind(mark.order.0).bind(mark.sku.sku.0).bind(mark.quantity);
            query.bind(mark.attempt).bind(mark.state as u8).bind(mark.pay_by_ms)
        })
        .await?;
        transaction.commit().await?;
        Ok(HandIn::InTime)
    }
}
