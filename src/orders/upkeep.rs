//! What keeps Redis from growing: feeds are trimmed (rule 15), stored replies of processes that are gone are forgotten.

use std::collections::HashSet;
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
/// Names of processes in one call.
const PROCESSES: usize = 512;

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

/// Forgets stored replies.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// Processes that every shard has forgotten.
    forgotten: HashSet<ProcessNumber>,
}

impl Chore for Forgetting {
    const WHAT: &'static str = "forgetting replies of processes that are gone";
    const INTERVAL: Duration = Duration::from_secs(600);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let silent = context.sql.silent_processes(SILENT_MS).await?;
        let silent: Vec<_> = silent.into_iter().filter(|process| !self.forgotten.contains(process)).collect();
        for some in silent.chunks(PROCESSES) {
            for shard in ShardId::ALL {
                context.redis.forget_calls(shard, some).await?;
                crash_point::pass("writer.after_forget");
            }
            self.forgotten.extend(some);
        }
        Ok(Next::Later)
    }
}
