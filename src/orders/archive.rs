//! The end of an activity (rule 21): SQL says ENDING, every shard refuses reservations, what is under way is brought
//! to its end, SQL says ARCHIVED, every shard deletes the keys and leaves a tombstone.
//!
//! Driven by what SQL and the shards say, so that any writer takes over at any step, also after a recovery that forgot
//! one. Only how long ago the shards had all ended is remembered here: a writer that is new waits for it once more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::chore::{Chore, Next};
use super::context::Context;
use super::counters::Count;
use crate::protocol::ActivityId;
use crate::stock::calls::{Gen, ShardId};
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::redis::{ActivityPhase, Guarded, ShardContent, ShardState};
use crate::store::sql::mysql::{ActivityState, ArchiveStep};

/// How much younger than the end, by Redis's clocks, the oldest unfinished entry has to be: the nodes of a cluster
/// need not agree.
const CLOCKS_APART_MS: u64 = 60_000;
/// Between two looks through everything that the shards hold, which may be much.
const LOOK_THROUGH_PAUSE: Duration = Duration::from_secs(10);
/// Looks between two at activities that are archived already: a recovery may have brought their keys back.
const ARCHIVED_EVERY: u32 = 60;

/// An activity that all shards have ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    /// By Redis's clock.
    at_ms: u64,
    /// When it was last looked through and something was still under way.
    looked_at: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Archive {
    ended: BTreeMap<ActivityId, Ended>,
    looks: u32,
}

impl Chore for Archive {
    const WHAT: &'static str = "ending activities";
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let states = context.sql.activity_states().await?;
        let of = |wanted| states.iter().filter(move |(_, state)| *state == wanted).map(|(id, _)| *id);
        let ending: Vec<_> = of(ActivityState::Ending).collect();
        let looks_at_archived = self.looks.is_multiple_of(ARCHIVED_EVERY);
        self.looks = self.looks.wrapping_add(1);
        let mut archived: Vec<_> = if looks_at_archived || !ending.is_empty() {
            of(ActivityState::Archived).collect()
        } else {
            Vec::new()
        };
        self.ended.retain(|id, _| ending.contains(id));
        if ending.is_empty() && archived.is_empty() {
            return Ok(Next::Later);
        }
        // After SQL was read: a recovery that begins later finds what SQL says.
        let generation = context.sql.generation().await?;
        let shards = shards(context).await?;
        for id in ending {
            if self.bring_to_its_end(context, generation, &shards, id).await? {
                archived.push(id);
            }
        }
        for id in archived {
            leave_tombstones(context, generation, &shards, id).await?;
        }
        Ok(Next::Later)
    }
}

impl Archive {
    /// Whether it is archived in SQL now.
    async fn bring_to_its_end(
        &mut self,
        context: &Context,
        generation: Gen,
        shards: &[(ShardId, ShardState)],
        id: ActivityId,
    ) -> Result<bool, StoreError> {
        if !end(context, generation, shards, id).await? {
            self.ended.remove(&id);
            return Ok(false);
        }
        let ended = if let Some(ended) = self.ended.get(&id) {
            *ended
        } else {
            let now = context.redis.time().await?;
            let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            *self.ended.entry(id).or_insert(Ended { at_ms, looked_at: None })
        };
        if ended.looked_at.is_some_and(|at| at.elapsed() < LOOK_THROUGH_PAUSE)
            || !is_drained(context, ended.at_ms).await?
        {
            return Ok(false);
        }
        self.ended.insert(id, Ended { looked_at: Some(Instant::now()), ..ended });
        if is_in_transit(context, shards, id).await? {
            tracing::info!(activity = %id, "ending: units are between two shards; a gateway brings them in");
            return Ok(false);
        }
        match context.sql.archive_activity(id).await? {
            ArchiveStep::Done => {
                crash_point::pass("writer.after_archived");
                context.counters.add(Count::Archived, 1);
                tracing::info!(activity = %id, "archived: its orders are in the database alone");
                Ok(true)
            }
            ArchiveStep::WasDone => Ok(true),
            ArchiveStep::Waits(due) => {
                tracing::info!(activity = %id, ?due, "ending: something is still due");
                Ok(false)
            }
            ArchiveStep::TooEarly | ArchiveStep::NoActivity => Ok(false),
        }
    }
}

async fn shards(context: &Context) -> Result<Vec<(ShardId, ShardState)>, StoreError> {
    let mut shards = Vec::with_capacity(ShardId::ALL.len());
    for shard in ShardId::ALL {
        shards.push((shard, context.redis.shard_state(shard).await?));
    }
    Ok(shards)
}

fn phase(state: &ShardState, id: ActivityId) -> Option<ActivityPhase> {
    state.activities.iter().find(|(known, _)| *known == id).map(|(_, phase)| *phase)
}

/// Whether all shards had ended it before this look; those that had not are told now.
async fn end(
    context: &Context,
    generation: Gen,
    shards: &[(ShardId, ShardState)],
    id: ActivityId,
) -> Result<bool, StoreError> {
    let mut all_ended = true;
    for (shard, state) in shards {
        if matches!(phase(state, id), Some(ActivityPhase::Ending | ActivityPhase::Archived)) {
            continue;
        }
        all_ended = false;
        crash_point::pass("writer.before_end");
        let answer = context.redis.end(*shard, generation, id).await?;
        crash_point::pass("writer.after_end");
        if !matches!(answer, Guarded::Done(_)) {
            return Ok(false);
        }
    }
    Ok(all_ended)
}

/// Whether everything that was reserved before the end is settled.
async fn is_drained(context: &Context, ended_at_ms: u64) -> Result<bool, StoreError> {
    for shard in ShardId::ALL {
        let oldest_at_ms = context.redis.backlog(shard).await?.oldest_at_ms;
        if oldest_at_ms.is_some_and(|at_ms| at_ms <= ended_at_ms.saturating_add(CLOCKS_APART_MS)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether units are between two shards. Gateways bring them in; nobody buys them any more.
async fn is_in_transit(
    context: &Context,
    shards: &[(ShardId, ShardState)],
    id: ActivityId,
) -> Result<bool, StoreError> {
    let (mut out, mut brought_in) = (BTreeMap::new(), BTreeMap::new());
    for (shard, state) in shards {
        if phase(state, id) == Some(ActivityPhase::Archived) {
            continue;
        }
        let ShardContent { activities, .. } = context.redis.content(*shard).await?;
        for counters in activities.iter().filter(|one| one.id == id).flat_map(|one| &one.counters) {
            let sku = counters.sku;
            out.extend(counters.out.iter().map(|(target, units)| ((sku, *shard, *target), *units)));
            brought_in
                .extend(counters.brought_in.iter().map(|(source, units)| ((sku, *source, *shard), *units)));
        }
    }
    out.retain(|_, units| *units > 0);
    brought_in.retain(|_, units| *units > 0);
    Ok(out != brought_in)
}

async fn leave_tombstones(
    context: &Context,
    generation: Gen,
    shards: &[(ShardId, ShardState)],
    id: ActivityId,
) -> Result<(), StoreError> {
    for (shard, state) in shards {
        match phase(state, id) {
            // Also where it was never loaded: a late copy of a load must not make it anew.
            None | Some(ActivityPhase::Live) => {
                context.redis.end(*shard, generation, id).await?;
            }
            Some(ActivityPhase::Ending) => {}
            Some(ActivityPhase::Archived) => continue,
        }
        context.redis.archive(*shard, generation, id).await?;
        crash_point::pass("writer.after_tombstones");
    }
    Ok(())
}
