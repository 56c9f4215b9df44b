//! What keeps Redis and the database from growing: feeds are trimmed (rule 15), processes and recoveries that are gone
//! are forgotten.

use std::time::Duration;

use super::chore::{Chore, Next};
use super::context::Context;
use super::counters::Count;
use crate::stock::calls::{ProcessNumber, ShardId};
use crate::store::StoreError;
use crate::store::crash_point;

/// A process that has been silent for so long does not repeat a call.
const SILENT_MS: u64 = 3_600_000;
/// A feed that dropped so many has more to drop.
const MANY: u64 = 1000;
/// Processes in one step.
const PROCESSES: u32 = 512;

/// Drops what every reader has: only what is acknowledged, old enough, and not the newest; the script sees to it.
#[derive(Debug)]
pub(super) struct Trims;

impl Chore for Trims {
    const WHAT: &'static str = "trimming the feeds";
    const INTERVAL: Duration = Duration::from_secs(5);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let mut next = Next::Later;
        for shard in ShardId::ALL {
            let dropped = context.redis.trim(shard, context.settings.trim_keep).await?;
            context.counters.add(Count::EntriesTrimmed, dropped);
            if dropped >= MANY {
                next = Next::AtOnce;
            }
            crash_point::pass("writer.after_trim");
            if context.stop.is_asked() {
                break;
            }
        }
        Ok(next)
    }
}

/// Forgets stored replies and consumers, then the processes themselves. Looks at all that are known in each pass: of
/// one that was forgotten before there is nothing left to do.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Those up to this one were looked at in this pass.
    after: Option<ProcessNumber>,
}

impl Chore for Processes {
    const WHAT: &'static str = "forgetting processes that are gone";
    const INTERVAL: Duration = Duration::from_secs(600);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let silent = context.sql.silent_processes(SILENT_MS, self.after, PROCESSES).await?;
        self.after = silent.last().copied();
        if silent.is_empty() {
            return Ok(Next::Later);
        }
        for shard in ShardId::ALL {
            context.redis.forget_processes(shard, &silent).await?;
            crash_point::pass("writer.after_forget");
        }
        // Only now: nothing else says whose replies are to be forgotten.
        context.sql.forget_processes(&silent).await?;
        crash_point::pass("writer.after_forget_processes");
        Ok(Next::AtOnce)
    }
}

/// Forgets recoveries long past.
#[derive(Debug)]
pub(super) struct Recoveries;

impl Chore for Recoveries {
    const WHAT: &'static str = "forgetting recoveries long past";
    const INTERVAL: Duration = Duration::from_secs(600);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let is_more = context.sql.forget_recoveries().await?;
        crash_point::pass("writer.after_forget_recoveries");
        Ok(if is_more { Next::AtOnce } else { Next::Later })
    }
}
