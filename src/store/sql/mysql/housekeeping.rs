//! What the database need not keep: marks and names of recoveries long past, processes long gone.
//!
//! Run now and then by any writer, several at once. Each statement deletes a bounded number of rows, so that it holds
//! nothing up; what it leaves comes next time. Nothing here is a condition for anything else: what is read is named by
//! its generation or its process number, and what is left over is never asked for.

use std::sync::LazyLock;

use sqlx::MySqlPool;

use super::MySqlInstallation;
use super::failure::{Failure, retried};
use super::statements::{Shapes, execute_among};
use crate::stock::calls::ProcessNumber;
use crate::store::StoreError;

/// Of the last recoveries it stays known who handed in: whoever asks again is told the same.
const RECOVERIES_KEPT: u64 = 100;
/// Marks that were handed in for the newest recovery are kept for so long after it began, if it is over. Those of older
/// ones nobody needs: a leader that still reads them has lost the lead, and asks whether it has it before it writes.
const MARKS_KEPT_MS: u64 = 600_000;
/// Rows in one statement.
const ROWS_MAX: u64 = 5_000;
/// A process that was silent for 30 days is not expected back. It would have to be started anew.
const PROCESS_KEPT_MS: u64 = 30 * 24 * 3_600_000;

static DELETE_PROCESSES: LazyLock<Shapes> = LazyLock::new(|| {
    let head = format!(
        "DELETE FROM processes WHERE heartbeat_ms + {PROCESS_KEPT_MS} < {} AND number IN (",
        now_ms!()
    );
    Shapes::new(&head, "?", ")")
});

/// The reservation store here answers a repeated call from these. Its gateways need no heartbeat, so that their own last
/// call counts as well.
static DELETE_CALLS: LazyLock<Shapes> = LazyLock::new(|| {
    let head =
        format!("DELETE FROM sql_calls WHERE at_ms + {PROCESS_KEPT_MS} < {} AND process IN (", now_ms!());
    Shapes::new(&head, "?", ")")
});

impl MySqlInstallation {
    /// Deletes some of what recoveries long past have left; whether there is more.
    pub async fn forget_recoveries(&self) -> Result<bool, StoreError> {
        retried!(self.options.call_timeout; forget_recoveries(&self.pool))
    }

    /// Deletes what is kept of those of these processes that have been silent for 30 days.
    pub async fn forget_processes(&self, silent: &[ProcessNumber]) -> Result<(), StoreError> {
        retried!(self.options.call_timeout; forget_processes(&self.pool, silent))
    }
}

async fn forget_recoveries(pool: &MySqlPool) -> Result<bool, Failure> {
    let (current, marks_until): (u64, Option<u64>) = sqlx::query_as(concat!(
        "SELECT i.gen, (SELECT MAX(r.gen) FROM recoveries r \
           WHERE r.gen < i.gen OR (r.state = 3 AND r.started_at_ms + ? < ",
        now_ms!(),
        ")) FROM installation i"
    ))
    .bind(MARKS_KEPT_MS)
    .fetch_one(pool)
    .await?;
    let kept_until = current.saturating_sub(RECOVERIES_KEPT);
    let mut is_more = false;
    for (delete, until) in [
        (
            "DELETE FROM hand_in_marks WHERE gen <= ? ORDER BY gen LIMIT ?",
            marks_until.unwrap_or(0).max(kept_until),
        ),
        ("DELETE FROM hand_ins WHERE gen <= ? ORDER BY gen LIMIT ?", kept_until),
        ("DELETE FROM recoveries WHERE gen <= ? ORDER BY gen LIMIT ?", kept_until),
    ] {
        let deleted = sqlx::query(delete).bind(until).bind(ROWS_MAX).execute(pool).await?;
        is_more |= deleted.rows_affected() >= ROWS_MAX;
    }
    Ok(is_more)
}

async fn forget_processes(pool: &MySqlPool, silent: &[ProcessNumber]) -> Result<(), Failure> {
    // The newest stays, whatever it is: where the server's own counter is lost, numbers go on from there.
    let newest: Option<u32> = sqlx::query_scalar("SELECT MAX(number) FROM processes").fetch_one(pool).await?;
    let older: Vec<u64> =
        silent.iter().filter(|process| Some(process.0) < newest).map(|process| process.0.into()).collect();
    let mut connection = pool.acquire().await?;
    execute_among(&mut connection, &DELETE_CALLS, &older).await?;
    Ok(execute_among(&mut connection, &DELETE_PROCESSES, &older).await?)
}
