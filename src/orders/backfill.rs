//! Settling what was only recorded (the switch `orders.mode`): by every writer once the switch lets it, and by
//! `rushgate backfill` whatever the switch says.
//!
//! Both take batches of rows that nobody else is at, each batch one transaction in SQL (`sql::mysql`, `recorded`); Redis
//! learns of it by the outbox. Nothing is remembered here: who dies has settled a batch or nothing, and whoever comes goes
//! on with what is left.

use std::future::Future;
use std::time::{Duration, Instant};

use super::chore::{Chore, Next};
use super::context::Context;
use super::counters::Count;
use super::pace::Pace;
use crate::protocol::ActivityId;
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::sql::mysql::{Backfilled, MySqlInstallation, NotSettled};

/// Between two counts of what is left.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// While others are at all that is left.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Batches per second where a rate is given, so that it is not settled by fits and starts.
const BATCHES_PER_S: usize = 5;

/// A writer's part of it.
#[derive(Debug, Default)]
pub(super) struct Backfills {
    counted_at: Option<Instant>,
}

impl Chore for Backfills {
    const WHAT: &'static str = "settling orders that were recorded";
    const INTERVAL: Duration = Duration::from_millis(250);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let Context { sql, counters, .. } = context;
        let modes = context.modes.get(sql, counters).await?;
        if self.counted_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY) {
            counters.set_recorded(sql.recorded_orders(None).await?);
            self.counted_at = Some(Instant::now());
        }
        let rows = u32::try_from(context.settings.batch_rows_max).unwrap_or(u32::MAX).max(1);
        let mut activities = sql.recorded_activities().await?;
        activities.retain(|activity| !modes.records(*activity));
        fastrand::shuffle(&mut activities);
        for activity in activities {
            crash_point::pass("writer.before_backfill");
            let done = sql.settle_recorded(activity, rows).await?;
            crash_point::pass("writer.after_backfill");
            if done.taken == 0 {
                continue;
            }
            counters.add(Count::RowsBackfilled, done.settled);
            counters.add_len(Count::BackfillsFailed, done.failed.len());
            tell(&done.failed);
            self.counted_at = self.counted_at.filter(|_| done.taken == u64::from(rows));
            context.keep_pace(usize::try_from(done.taken).unwrap_or(usize::MAX)).await;
            return Ok(Next::AtOnce);
        }
        Ok(Next::Later)
    }
}

fn tell(failed: &[NotSettled]) {
    for NotSettled { user, order, sku, reason } in failed {
        tracing::error!(
            %order, %user, %sku, reason,
            "a recorded order could not be settled: it is a dead letter, the order failed, its units go back"
        );
    }
}

/// How far a backfill has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Orders that this run has settled.
    pub settled: u64,
    /// Orders that could not be settled.
    pub failed: Vec<NotSettled>,
    /// It was told to stop before nothing was left.
    pub is_stopped: bool,
}

/// A run of `rushgate backfill`.
pub struct Backfill {
    sql: MySqlInstallation,
    activity: Option<ActivityId>,
    rows: u32,
    pace: Pace,
    progress: Progress,
}

impl Backfill {
    /// Of one activity or of all; at most `rate_per_s` orders a second (0: as fast as it goes), in transactions of at
    /// most so many.
    pub fn new(
        sql: MySqlInstallation,
        activity: Option<ActivityId>,
        rate_per_s: u32,
        batch_rows_max: usize,
    ) -> Self {
        let rate = usize::try_from(rate_per_s).unwrap_or(usize::MAX);
        let rows = match rate.checked_div(BATCHES_PER_S).filter(|_| rate > 0) {
            Some(rows) => rows.min(batch_rows_max).max(1),
            None => batch_rows_max.max(1),
        };
        let pace = Pace::new(rate_per_s, rows);
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        Self { sql, activity, rows, pace, progress: Progress::default() }
    }

    /// How many orders are recorded and not settled, whoever settles them.
    pub async fn left(&self) -> Result<u64, StoreError> {
        self.sql.recorded_orders(self.activity).await
    }

    /// Settles until none is left, or `stop` is over; `told` after each batch.
    pub async fn run(
        mut self,
        mut told: impl FnMut(&Progress) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Progress, (Progress, StoreError)> {
        tokio::pin!(stop);
        loop {
            let taken = match self.step().await {
                Ok(Some(taken)) => taken,
                Ok(None) => return Ok(self.progress),
                Err(error) => return Err((self.progress, error)),
            };
            told(&self.progress);
            tokio::select! {
                biased;
                () = &mut stop => {
                    self.progress.is_stopped = true;
                    return Ok(self.progress);
                }
                () = pause(&self.pace, taken) => {}
            }
        }
    }

    /// One batch; how many rows it was, 0: others are at all that is left. `None`: nothing is.
    async fn step(&mut self) -> Result<Option<usize>, StoreError> {
        let mut activities = self.sql.recorded_activities().await?;
        activities.retain(|found| self.activity.is_none_or(|activity| activity == *found));
        for activity in &activities {
            let Backfilled { taken, settled, failed } =
                self.sql.settle_recorded(*activity, self.rows).await?;
            if taken == 0 {
                continue;
            }
            tell(&failed);
            self.progress.settled = self.progress.settled.saturating_add(settled);
            self.progress.failed.extend(failed);
            return Ok(Some(usize::try_from(taken).unwrap_or(usize::MAX)));
        }
        // What others are at is settled, or comes back to be taken.
        Ok((!activities.is_empty()).then_some(0))
    }
}

async fn pause(pace: &Pace, taken: usize) {
    match taken {
        0 => tokio::time::sleep(BUSY_PAUSE).await,
        taken => drop(pace.wait(taken).await),
    }
}

impl std::fmt::Debug for Backfill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backfill").field("activity", &self.activity).finish_non_exhaustive()
    }
}
