//! What SQL owes to Redis (rule 14): units to give back (the ledger), states to learn (the outbox).
//!
//! The generation is asked for after the rows were read: a recovery that begins later finds those rows, so a call that
//! an old master still answers under the old generation loses nothing. Nothing is marked done but what a shard answered
//! under that generation.

use std::time::Duration;

use tokio::task::JoinSet;

use super::chore::{Chore, Next};
use super::context::Context;
use super::counters::Count;
use crate::protocol::{OrderState, UserId};
use crate::stock::calls::{Gen, Mark, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::redis::{Guarded, Release};
use crate::store::sql::mysql;

/// Rows in one step.
const PAGE: u32 = 256;
const PAGE_ROWS: usize = 256;

/// Gives units back.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Rows up to this one were looked at in this pass.
    after: u64,
}

impl Chore for Ledger {
    const WHAT: &'static str = "giving units back to the shards";
    const INTERVAL: Duration = Duration::from_millis(100);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let due = context.sql.due_releases(self.after, PAGE).await?;
        // What fails now comes again in the next pass, after everything behind it.
        self.after = self.next(context, &due).await?;
        if due.is_empty() {
            return Ok(Next::Later);
        }
        let generation = context.sql.generation().await?;
        let is_timed_out = due.iter().any(|row| row.mark.state == OrderState::Closed);
        let (done, failed) = release_all(context, generation, due).await;
        if !done.is_empty() {
            context.sql.releases_done(&done).await?;
            crash_point::pass("writer.after_releases_done");
            context.counters.add_len(Count::Releases, done.len());
            if is_timed_out {
                context.counters.note_restock(context.sql.restock_lag_ms(&done).await?);
            }
        }
        match failed {
            Some(error) => Err(error),
            None if done.is_empty() => Ok(Next::Later),
            None => Ok(Next::AtOnce),
        }
    }
}

impl Ledger {
    /// Where to go on. Behind a first page that is full, writers part: each goes on somewhere in what is due, so that
    /// together they give back many units faster than one of them. What all of them skip is the next pass's.
    async fn next(&self, context: &Context, due: &[mysql::Release]) -> Result<u64, StoreError> {
        let Some(last) = due.last().filter(|_| due.len() >= PAGE_ROWS) else { return Ok(0) };
        if self.after > 0 {
            return Ok(last.id);
        }
        let newest = context.sql.newest_due_release().await?.max(last.id);
        Ok(fastrand::u64(last.id..=newest))
    }
}

/// Releases in each shard one after the other, and in the shards side by side; what is done, and why some is not.
async fn release_all(
    context: &Context,
    generation: Gen,
    due: Vec<mysql::Release>,
) -> (Vec<u64>, Option<StoreError>) {
    let mut by_shard: [Vec<mysql::Release>; SHARDS] = Default::default();
    for row in due {
        if let Some(rows) = by_shard.get_mut(row.shard.index()) {
            rows.push(row);
        }
    }
    let mut shards = JoinSet::new();
    for rows in by_shard.into_iter().filter(|rows| !rows.is_empty()) {
        let context = context.clone();
        shards.spawn(async move {
            let (mut done, mut failed) = (Vec::new(), None);
            for row in &rows {
                match release(&context, generation, row).await {
                    Ok(true) => done.push(row.id),
                    Ok(false) => {}
                    Err(error) => failed = Some(error),
                }
                if context.stop.is_asked() {
                    break;
                }
            }
            (done, failed)
        });
    }
    let (mut done, mut failed) = (Vec::new(), None);
    while let Some(shard) = shards.join_next().await {
        match shard {
            Ok((some, error)) => {
                done.extend(some);
                failed = error.or(failed);
            }
            // Only a panic ends a shard like that; its rows stay due.
            Err(error) => tracing::error!(%error, "giving units back to a shard broke off"),
        }
    }
    (done, failed)
}

/// Whether the shard has answered: its answer is the same however often it is asked.
async fn release(context: &Context, generation: Gen, row: &mysql::Release) -> Result<bool, StoreError> {
    let (mark, activity) = (&row.mark, row.mark.sku.activity);
    crash_point::pass("writer.before_release");
    let answer =
        context.redis.release(row.shard, generation, activity, row.user, mark.order, mark.state).await;
    crash_point::pass("writer.after_release");
    match answer {
        Ok(Guarded::Done(outcome)) => {
            tracing::debug!(
                %activity, sku = %mark.sku.sku, user = %row.user, order = %mark.order, quantity = mark.quantity,
                units_back = outcome == Release::Released,
                "an order that is over is told to its shard"
            );
            Ok(true)
        }
        Ok(Guarded::Gen(_) | Guarded::Recovering) => Ok(false),
        Err(error) => {
            tracing::debug!(%error, %activity, user = %row.user, order = %mark.order, "not given back yet");
            Err(error)
        }
    }
}

/// One shard's rows: their ids, and what they tell.
type Due = (Vec<u64>, Vec<(UserId, Mark)>);

/// Tells states.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    after: u64,
}

impl Chore for Outbox {
    const WHAT: &'static str = "telling the shards how orders stand";
    const INTERVAL: Duration = Duration::from_millis(100);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let due = context.sql.due_marks(self.after, PAGE).await?;
        self.after = due.last().map_or(0, |row| row.id);
        if due.is_empty() {
            return Ok(Next::Later);
        }
        let generation = context.sql.generation().await?;
        let mut by_shard: [Due; SHARDS] = Default::default();
        for row in &due {
            if let Some((ids, marks)) = by_shard.get_mut(row.shard.index()) {
                ids.push(row.id);
                marks.push((row.user, row.mark));
            }
        }
        let (mut done, mut failed) = (Vec::new(), None);
        for (shard, (ids, marks)) in ShardId::all().zip(by_shard).filter(|(_, (ids, _))| !ids.is_empty()) {
            crash_point::pass("writer.before_marks");
            let told = context.redis.settled(shard, generation, &marks).await;
            crash_point::pass("writer.after_marks");
            match told {
                Ok(Guarded::Done(())) => done.extend(ids),
                Ok(Guarded::Gen(_) | Guarded::Recovering) => {}
                Err(error) => failed = Some(error),
            }
        }
        if !done.is_empty() {
            context.sql.marks_told(&done).await?;
            crash_point::pass("writer.after_marks_told");
            context.counters.add_len(Count::MarksTold, done.len());
        }
        match failed {
            Some(error) => Err(error),
            None if done.is_empty() => Ok(Next::Later),
            None => Ok(Next::AtOnce),
        }
    }
}
