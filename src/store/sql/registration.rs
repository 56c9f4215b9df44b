//! Durable process numbers (27 bits, never reused): an order number starts with one.

use sqlx::{Connection, SqliteConnection};

use super::error::Failure;
use super::rows;
use crate::stock::PROCESS_MAX;
use crate::stock::calls::{Gen, ProcessNumber};
use crate::store::Registration;

/// One transaction: a new number and the generation it belongs to.
pub(super) async fn register(
    connection: &mut SqliteConnection,
    now_ms: u64,
) -> Result<Registration, Failure> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let number: i64 = sqlx::query_scalar("INSERT INTO processes (started_at_ms) VALUES (?) RETURNING number")
        .bind(rows::signed(now_ms))
        .fetch_one(&mut *transaction)
        .await?;
    let generation: i64 =
        sqlx::query_scalar("SELECT gen FROM installation").fetch_one(&mut *transaction).await?;
    let number = u32::try_from(number).ok().filter(|number| *number <= PROCESS_MAX).ok_or_else(|| {
        Failure::Corrupt(format!("all {PROCESS_MAX} process numbers are used up: {number}"))
    })?;
    transaction.commit().await?;
    Ok(Registration { process: ProcessNumber(number), generation: Gen(rows::unsigned(generation)?) })
}
