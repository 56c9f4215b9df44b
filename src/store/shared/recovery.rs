//! One recovery, by its leader (rule 11): all closed shards as one.
//!
//! Run by a keeper's leading task; whoever holds the lock in SQL leads, and a leader that dies loses it. Nothing here
//! is remembered between two attempts: every step may be repeated, by this or another leader, under a newer
//! generation. A shard that cannot be reached keeps the others closed, because what moved between two shards can only
//! be told by both; when it answers again the recovery goes on.

use std::time::Duration;

use super::merge::{self, Known, Merged, SqlLoad, SqlOrder};
use crate::stock::calls::{Gen, SHARDS, ShardId, SkuCounters};
use crate::store::StoreError;
use crate::store::redis::{
    ActivityContent, ActivityPhase, Adopted, Fenced, Rebuilt, RedisShards, ShardContent, ShardState,
};
use crate::store::sql::mysql::{ActivityState, Leadership, MySqlInstallation, RecoveredLoad, RecoveryRecord};

/// Between two looks at who has handed in.
const HAND_IN_INTERVAL: Duration = Duration::from_millis(20);

/// What is told of a promise that a recovery could not keep.
pub(super) const WHY_FAILED: &str = "lost in a recovery, and no unit was left for it";
/// Times that a leader who failed goes on deleting what its attempts have left.
const FORGET_MAX: u32 = 20;

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovered {
    /// There was nothing to do.
    AllOpen,
    /// Another process is at it.
    SomebodyElseLeads,
    /// Done.
    Opened {
        /// The generation that it began.
        generation: Gen,
        /// How many were closed.
        shards: u64,
        /// Reservations given up.
        broken: u64,
    },
}

/// Looks at all shards and recovers those that are closed.
pub(super) async fn recover(redis: &RedisShards, sql: &MySqlInstallation) -> Result<Recovered, StoreError> {
    if all_open(&states(redis).await?, sql.generation().await?) {
        return Ok(Recovered::AllOpen);
    }
    let Some(mut leadership) = sql.try_lead().await? else { return Ok(Recovered::SomebodyElseLeads) };
    let recovered = attempts(redis, sql, &mut leadership).await;
    leadership.resign().await;
    if recovered.is_err() {
        forget_attempts(sql).await;
    }
    recovered
}

/// While Redis takes no write one attempt follows another, and for each all gateways hand in.
async fn forget_attempts(sql: &MySqlInstallation) {
    for _ in 0..FORGET_MAX {
        if !sql.forget_recoveries().await.unwrap_or(false) {
            return;
        }
    }
}

async fn attempts(
    redis: &RedisShards,
    sql: &MySqlInstallation,
    leadership: &mut Leadership,
) -> Result<Recovered, StoreError> {
    let mut is_first = true;
    loop {
        shut_old(redis, sql).await?;
        let states = states(redis).await?;
        // As the leader: what was seen before the lock may be another leader's work by now.
        if is_first && all_open(&states, sql.generation().await?) {
            return Ok(Recovered::AllOpen);
        }
        is_first = false;
        if let Some(recovered) = attempt(redis, sql, leadership, &states).await? {
            return Ok(recovered);
        }
    }
}

/// Shards that have not heard that something was taken over from them, or given back to them, are rebuilt (rule 20). One
/// that cannot be shut has become another since; it is looked at next.
async fn shut_old(redis: &RedisShards, sql: &MySqlInstallation) -> Result<(), StoreError> {
    let below = sql.rebuild_below().await?;
    for (shard, state) in ShardId::all().zip(states(redis).await?) {
        if state.is_open && state.generation < below {
            let shut = redis.shut(shard, &state.own_epoch, below).await?;
            tracing::warn!(
                shard = shard.number(),
                generation = state.generation.0,
                ?shut,
                "a shard of before a takeover"
            );
        }
    }
    Ok(())
}

/// `None`: a shard has closed meanwhile, or changed its epoch; once more, under a new generation.
async fn attempt(
    redis: &RedisShards,
    sql: &MySqlInstallation,
    leadership: &mut Leadership,
    states: &[ShardState],
) -> Result<Option<Recovered>, StoreError> {
    let mut closed = [false; SHARDS];
    for (shut, state) in closed.iter_mut().zip(states) {
        *shut = !state.is_open;
    }
    let generation = leadership.raise_generation(&closed).await?;
    let shut: Vec<ShardId> =
        ShardId::all().zip(closed).filter(|(_, closed)| *closed).map(|(shard, _)| shard).collect();
    tracing::warn!(
        generation = generation.0,
        shards = ?shut.iter().map(|shard| shard.number()).collect::<Vec<_>>(),
        "recovering shards that are closed"
    );
    let Some(open) = adopt(redis, states, generation).await? else { return Ok(None) };
    if !fence(redis, states, generation).await? {
        return Ok(None);
    }
    wait_for_hand_ins(sql, generation).await?;
    if leadership.close_hand_ins(generation, &shut).await? != RecoveryRecord::Recorded {
        return Ok(None);
    }
    let mut surviving = Vec::with_capacity(shut.len());
    for shard in &shut {
        let content = redis.content(*shard).await?;
        if states.get(shard.index()).is_some_and(|state| state.own_epoch != content.epoch) {
            return Ok(None);
        }
        let of = states.get(shard.index()).map_or(Gen(0), |state| state.generation);
        surviving.push((*shard, of, content));
    }
    let known = known(sql, generation, surviving, open).await?;
    // Beside the runtime: a process that has one thread goes on with its heartbeat and keeps the lead.
    let merged = tokio::task::spawn_blocking(|| merge::merge(known)).await;
    let merged = merged.map_err(|ended| StoreError::Unavailable(format!("the merge has ended: {ended}")))?;
    if !leadership.is_held().await? {
        return Ok(Some(Recovered::SomebodyElseLeads));
    }
    tell_losses(&merged);
    if leadership.fail(generation, &merged.broken, WHY_FAILED).await? != RecoveryRecord::Recorded {
        return Ok(None);
    }
    for (shard, content) in &merged.contents {
        if !write(redis, *shard, generation, content).await? {
            return Ok(None);
        }
    }
    if leadership.recovery_done(generation).await? != RecoveryRecord::Recorded {
        return Ok(None);
    }
    Ok(Some(Recovered::Opened { generation, shards: shut.len() as u64, broken: merged.broken.len() as u64 }))
}

async fn states(redis: &RedisShards) -> Result<Vec<ShardState>, StoreError> {
    let mut states = Vec::with_capacity(SHARDS);
    for shard in ShardId::ALL {
        states.push(redis.shard_state(shard).await?);
    }
    Ok(states)
}

fn all_open(states: &[ShardState], generation: Gen) -> bool {
    states.iter().all(|state| state.is_open && state.generation == generation)
}

/// Step 2: open shards take over the generation, and nothing of an older one is served there any more.
async fn adopt(
    redis: &RedisShards,
    states: &[ShardState],
    generation: Gen,
) -> Result<Option<Vec<(ShardId, Vec<SkuCounters>)>>, StoreError> {
    let mut open = Vec::new();
    for (shard, state) in ShardId::all().zip(states).filter(|(_, state)| state.is_open) {
        match redis.adopt(shard, &state.own_epoch, generation).await? {
            Adopted::Adopted(counters) => open.push((shard, counters)),
            Adopted::Refused => return Ok(None),
        }
    }
    Ok(Some(open))
}

/// Closed shards stay closed to earlier recoveries, whose leaders may write late: what moved between two of them would
/// be told by one leader of one shard and by another of the other. False if one has opened or changed meanwhile.
async fn fence(redis: &RedisShards, states: &[ShardState], generation: Gen) -> Result<bool, StoreError> {
    for (shard, state) in ShardId::all().zip(states).filter(|(_, state)| !state.is_open) {
        if redis.fence(shard, &state.own_epoch, generation).await? == Fenced::Refused {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Step 3: a gateway that falls silent is not waited for.
pub(super) async fn wait_for_hand_ins(sql: &MySqlInstallation, generation: Gen) -> Result<(), StoreError> {
    loop {
        let live = sql.live_gateways().await?;
        let handed_in = sql.hand_ins(generation).await?;
        if live.iter().all(|gateway| handed_in.contains(gateway)) {
            return Ok(());
        }
        tokio::time::sleep(HAND_IN_INTERVAL).await;
    }
}

/// Step 5: what was handed in, also by gateways that have fallen silent since; then SQL, last.
async fn known(
    sql: &MySqlInstallation,
    generation: Gen,
    surviving: Vec<(ShardId, Gen, ShardContent)>,
    open: Vec<(ShardId, Vec<SkuCounters>)>,
) -> Result<Known, StoreError> {
    let mut known = Known { open, ..Known::default() };
    for gateway in sql.hand_ins(generation).await? {
        known.handed_in.extend(sql.handed_in(generation, gateway).await?);
    }
    let shards: Vec<ShardId> = surviving.iter().map(|(shard, ..)| *shard).collect();
    let read = sql.read_for_recovery(&shards).await?;
    let since = |of: Gen, activity| read.taken.get(&activity).is_none_or(|taken| of >= *taken);
    for (shard, of, mut content) in surviving {
        // What an older shard holds of an activity that was taken over counts for nothing, for ever.
        for activity in content.activities.iter_mut().filter(|activity| !since(of, activity.id)) {
            let (id, phase) = (activity.id, activity.phase);
            *activity =
                ActivityContent { id, phase, counters: Vec::new(), loads: Vec::new(), marks: Vec::new() };
        }
        known.surviving.push((shard, content));
    }
    known.orders = read
        .orders
        .into_iter()
        .map(|order| SqlOrder { user: order.user, mark: order.mark, is_in_ledger: order.released })
        .collect();
    known.loads = read
        .loads
        .into_iter()
        .map(|RecoveredLoad { load, is_recorded }| SqlLoad {
            shard: load.shard,
            activity: load.activity,
            is_undone_take: !is_recorded && load.changes.iter().any(|(_, units)| *units < 0),
            id: load.load_id,
            amounts: load.changes,
        })
        .collect();
    let phase = |state| match state {
        ActivityState::Created | ActivityState::Loaded => ActivityPhase::Live,
        ActivityState::Ending => ActivityPhase::Ending,
        ActivityState::Archived => ActivityPhase::Archived,
    };
    known.phases = read.activities.into_iter().map(|(id, state)| (id, phase(state))).collect();
    Ok(known)
}

fn tell_losses(merged: &Merged) {
    for (user, mark) in &merged.broken {
        tracing::error!(
            user = %user, order = %mark.order, sku = %mark.sku, quantity = mark.quantity,
            "a reservation is lost: no unit is left for it; its order is FAILED"
        );
    }
    for (sku, units) in &merged.missing_units {
        tracing::error!(
            %sku, units,
            "settled orders hold more units than were ever loaded; reconcile this SKU before it is sold on"
        );
    }
}

/// Step 7; false if the shard is of another epoch by now.
async fn write(
    redis: &RedisShards,
    shard: ShardId,
    generation: Gen,
    content: &ShardContent,
) -> Result<bool, StoreError> {
    Ok(match redis.rebuild(shard, &content.epoch, generation, content).await? {
        Rebuilt::Opened => true,
        Rebuilt::AlreadyOpen(opened) => opened == generation,
        Rebuilt::OtherEpoch(_) | Rebuilt::LaterGeneration(_) => false,
    })
}
