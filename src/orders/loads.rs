//! Stock on its way to Redis (rule 16): preheats that are due, and the shares of loads that shards have not answered.

use std::time::Duration;

use super::chore::{Chore, Next};
use super::context::Context;
use super::counters::Count;
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::redis::Guarded;
use crate::store::sql::mysql::{LoadRecord, Preheat, ShardLoad};

/// Shares looked at in one step.
const PAGE: u32 = 256;

/// Loads the stock of activities that will open soon: one compare-and-set in SQL each.
#[derive(Debug)]
pub(super) struct Preheats;

impl Chore for Preheats {
    const WHAT: &'static str = "preheating activities";
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let ahead_ms = u64::try_from(context.settings.preheat_ahead.as_millis()).unwrap_or(u64::MAX);
        for activity in context.sql.due_preheats(ahead_ms).await? {
            crash_point::pass("writer.before_preheat");
            let outcome = context.sql.preheat(activity).await?;
            crash_point::pass("writer.after_preheat");
            match outcome {
                Preheat::Loaded => {
                    context.counters.add(Count::Preheats, 1);
                    tracing::info!(%activity, "preheated: its stock is on its way to the shards");
                }
                Preheat::AfterOpening => tracing::error!(
                    %activity,
                    "it has opened without its stock and is not preheated any more; add stock to it"
                ),
                Preheat::WasLoaded | Preheat::NoActivity => {}
            }
        }
        Ok(Next::Later)
    }
}

/// Tells shards what is loaded into them or taken from them, once per load id, and records what they say.
#[derive(Debug)]
pub(super) struct Loads;

impl Chore for Loads {
    const WHAT: &'static str = "loading stock into the shards";
    const INTERVAL: Duration = Duration::from_millis(100);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let due = context.sql.due_loads(PAGE).await?;
        let mut done = 0_u32;
        // One that fails does not hold up the others: they may be for shards that answer.
        let mut failed = None;
        for load in &due {
            match drive(context, load).await {
                Ok(true) => done = done.saturating_add(1),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            if context.stop.is_asked() {
                break;
            }
        }
        match failed {
            Some(error) => Err(error),
            None if done > 0 => Ok(Next::AtOnce),
            None => Ok(Next::Later),
        }
    }
}

/// Whether it is done.
async fn drive(context: &Context, load: &ShardLoad) -> Result<bool, StoreError> {
    // After the row was read: a recovery that begins later finds the row.
    let generation = context.sql.generation().await?;
    crash_point::pass("writer.before_load");
    let told =
        context.redis.load(load.shard, generation, &load.load_id, load.activity, &load.changes).await?;
    crash_point::pass("writer.after_load");
    let Guarded::Done(applied) = told else { return Ok(false) };
    let recorded = context.sql.load_done(load, generation, &applied).await?;
    crash_point::pass("writer.after_load_done");
    if recorded == LoadRecord::Recorded {
        context.counters.add(Count::Loads, 1);
        tracing::debug!(
            load = load.load_id, shard = load.shard.number(), activity = %load.activity, ?applied,
            "a shard has its share of a load"
        );
    }
    Ok(recorded == LoadRecord::Recorded)
}
