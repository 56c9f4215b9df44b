//! What gateways know that is not settled yet, asked before a takeover. Heartbeats bring the question; the answers are
//! rows that nothing is decided by, and go when the next question is asked.

use std::sync::LazyLock;

use super::super::MySqlInstallation;
use super::super::failure::{Failure, retried};
use super::super::statements::{Shapes, write};
use crate::protocol::UserId;
use crate::stock::calls::{Mark, ProcessNumber};
use crate::store::StoreError;

static INSERT: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT INTO takeover_look_marks (look, number, user, activity, sku, quantity, attempt) VALUES ",
        "(?,?,?,?,?,?,?)",
        " ON DUPLICATE KEY UPDATE number = number",
    )
});

impl MySqlInstallation {
    /// Asks all gateways what they know; the question's number.
    pub async fn ask_look(&self) -> Result<u64, StoreError> {
        retried!(self.options.call_timeout; self.try_ask_look())
    }

    /// Answers one: the reservations that this gateway knows and that are not settled.
    pub async fn answer_look(
        &self,
        process: ProcessNumber,
        look: u64,
        marks: &[(UserId, Mark)],
    ) -> Result<(), StoreError> {
        retried!(self.options.call_timeout; self.try_answer_look(process, look, marks))
    }

    /// The gateways that have answered.
    pub async fn look_answers(&self, look: u64) -> Result<Vec<ProcessNumber>, StoreError> {
        retried!(self.options.call_timeout; self.read_look_answers(look))
    }

    async fn try_ask_look(&self) -> Result<u64, Failure> {
        let asked = sqlx::query(concat!("INSERT INTO takeover_looks (at_ms) VALUES (", now_ms!(), ")"))
            .execute(&self.pool)
            .await?;
        let look = asked.last_insert_id();
        for delete in [
            "DELETE FROM takeover_look_marks WHERE look < ?",
            "DELETE FROM takeover_look_answers WHERE look < ?",
            "DELETE FROM takeover_looks WHERE id < ?",
        ] {
            sqlx::query(delete).bind(look).execute(&self.pool).await?;
        }
        Ok(look)
    }

    async fn try_answer_look(
        &self,
        process: ProcessNumber,
        look: u64,
        marks: &[(UserId, Mark)],
    ) -> Result<(), Failure> {
        let mut transaction = self.pool.begin().await?;
        let mut marks = marks.to_vec();
        marks.sort_unstable_by_key(|(user, mark)| (mark.order, *user));
        write(&mut transaction, &INSERT, &marks, |query, (user, mark)| {
            let query = query.bind(look).bind(mark.order.0).bind(user.0).bind(mark.sku.activity.0);
            query.bind(mark.sku.sku.0).bind(mark.quantity).bind(mark.attempt)
        })
        .await?;
        sqlx::query(
            "INSERT INTO takeover_look_answers (look, process) VALUES (?, ?) \
             ON DUPLICATE KEY UPDATE process = process",
        )
        .bind(look)
        .bind(process.0)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn read_look_answers(&self, look: u64) -> Result<Vec<ProcessNumber>, Failure> {
        let processes: Vec<u32> =
            sqlx::query_scalar("SELECT process FROM takeover_look_answers WHERE look = ? ORDER BY process")
                .bind(look)
                .fetch_all(&self.pool)
                .await?;
        Ok(processes.into_iter().map(ProcessNumber).collect())
    }
}
