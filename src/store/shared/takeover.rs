//! A takeover (rule 20 of the stock protocol), and the way back, step by step, by the operator's command.
//!
//! Runs in the command's own process, under the same lock as recoveries: while it leads nobody rebuilds a shard. It asks
//! nothing of Redis. Every step may be the last: before the transaction that takes an activity over nothing has happened
//! but a generation that rose, and gateways that have told what they know; after it everything has. Run again it goes on,
//! or tells what it came to.

use std::time::{Duration, Instant};

use super::recovery::wait_for_hand_ins;
use crate::protocol::ActivityId;
use crate::stock::calls::{ProcessNumber, SHARDS};
use crate::store::sql::mysql::{Leadership, MySqlInstallation, RecoveryRecord, Takeover};
use crate::store::{StoreError, crash_point};

/// How long a recovery that somebody leads is waited for.
const LEAD_PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries, and two looks at who has answered.
const POLL: Duration = Duration::from_millis(50);

/// How far a takeover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverStage {
    /// Another process leads a recovery, and is waited for.
    Leading,
    /// Gateways that live hand in what they know.
    HandingIn,
    /// An activity is taken over, or given back.
    Turning(ActivityId),
}

/// What gateways told of what they know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// The question's number.
    pub look: u64,
    /// Gateways that live.
    pub live: Vec<ProcessNumber>,
    /// Those of them that have answered.
    pub answered: Vec<ProcessNumber>,
}

/// Asks the gateways that live what they know and is not settled; changes nothing. Whoever does not answer in time is
/// left out.
pub async fn look(sql: &MySqlInstallation, patience: Duration) -> Result<Looked, StoreError> {
    let look = sql.ask_look().await?;
    let began = Instant::now();
    loop {
        let live = sql.live_gateways().await?;
        let answered = sql.look_answers(look).await?;
        let is_complete = live.iter().all(|gateway| answered.contains(gateway));
        if is_complete || began.elapsed() >= patience {
            return Ok(Looked { look, live, answered });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Takes activities over, one transaction each, after all gateways that live have handed in what they know.
pub async fn take_over(
    sql: &MySqlInstallation,
    activities: &[ActivityId],
    watch: &(dyn Fn(TakeoverStage) + Sync),
) -> Result<Vec<(ActivityId, Takeover)>, StoreError> {
    let mut leadership = lead(sql, watch).await?;
    let taken = take_over_as_leader(sql, &mut leadership, activities, watch).await;
    leadership.resign().await;
    taken
}

async fn take_over_as_leader(
    sql: &MySqlInstallation,
    leadership: &mut Leadership,
    activities: &[ActivityId],
    watch: &(dyn Fn(TakeoverStage) + Sync),
) -> Result<Vec<(ActivityId, Takeover)>, StoreError> {
    // From here on no gateway believes what any shard tells it.
    let generation = leadership.raise_generation(&[true; SHARDS]).await?;
    crash_point::pass("takeover.after_generation");
    watch(TakeoverStage::HandingIn);
    wait_for_hand_ins(sql, generation).await?;
    crash_point::pass("takeover.after_hand_ins");
    // No shard is said to be rebuilt: of other activities the next recovery asks again.
    if leadership.close_hand_ins(generation, &[]).await? != RecoveryRecord::Recorded {
        return Err(overtaken());
    }
    crash_point::pass("takeover.after_close");
    let mut taken = Vec::with_capacity(activities.len());
    for id in activities {
        watch(TakeoverStage::Turning(*id));
        let one = sql.take_over(leadership, generation, *id).await?;
        if matches!(one, Takeover::Gen(_)) {
            return Err(overtaken());
        }
        crash_point::pass("takeover.after_commit");
        taken.push((*id, one));
    }
    if leadership.recovery_done(generation).await? != RecoveryRecord::Recorded {
        return Err(overtaken());
    }
    Ok(taken)
}

/// Gives activities back to Redis, one transaction each. Recoveries by gateways and writers do the rest.
pub async fn give_back(
    sql: &MySqlInstallation,
    activities: &[ActivityId],
    watch: &(dyn Fn(TakeoverStage) + Sync),
) -> Result<Vec<(ActivityId, Takeover)>, StoreError> {
    let mut leadership = lead(sql, watch).await?;
    let mut given = Vec::with_capacity(activities.len());
    for id in activities {
        watch(TakeoverStage::Turning(*id));
        match sql.give_activity_back(&mut leadership, *id).await {
            Ok(one) => given.push((*id, one)),
            Err(error) => {
                leadership.resign().await;
                return Err(error);
            }
        }
        crash_point::pass("takeover.after_back");
    }
    leadership.resign().await;
    Ok(given)
}

async fn lead(
    sql: &MySqlInstallation,
    watch: &(dyn Fn(TakeoverStage) + Sync),
) -> Result<Leadership, StoreError> {
    let began = Instant::now();
    loop {
        if let Some(leadership) = sql.try_lead().await? {
            return Ok(leadership);
        }
        if began.elapsed() >= LEAD_PATIENCE {
            return Err(StoreError::Unavailable(format!(
                "another process has led a recovery, or another takeover, for {LEAD_PATIENCE:?}; nothing was changed"
            )));
        }
        watch(TakeoverStage::Leading);
        tokio::time::sleep(POLL).await;
    }
}

fn overtaken() -> StoreError {
    StoreError::Unavailable(
        "another recovery has begun since, for this command had lost its lead; run it again".to_owned(),
    )
}
