//! One reconciliation: two looks where the first one found anything, corrections if they are asked for.

use std::time::Duration;

use super::compare::{add_up, compare};
use super::difference::{Difference, Kind};
use super::evidence::{self, Evidence};
use super::figures::{Explained, Figures, SkuFigures};
use super::findings::Findings;
use super::mend::mend;
use super::watch::Watch;
use crate::protocol::{ActivityId, SkuId};
use crate::store::StoreError;
use crate::store::redis::RedisShards;
use crate::store::sql::mysql::{ActivityState, MySqlInstallation};

/// How long units may be between two shards before somebody has to bring them in.
const MOVING_PATIENCE: Duration = Duration::from_secs(2);

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// One activity; `None`: all that are loaded or ending.
    pub activity: Option<ActivityId>,
    /// Whether differences are corrected.
    pub fix: bool,
}

/// What was found in one activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityReport {
    /// The activity.
    pub id: ActivityId,
    /// By SKU.
    pub skus: Vec<(SkuId, SkuFigures)>,
    /// What differs, and what became of it: corrected, or why not; `None` where nobody tried.
    pub differences: Vec<(Difference, Option<Result<(), String>>)>,
    /// What differs and is on its way.
    pub explained: Explained,
}

/// Compares and corrects.
#[derive(Clone, Debug)]
pub struct Reconciliation {
    redis: RedisShards,
    sql: MySqlInstallation,
}

impl Reconciliation {
    /// Of one installation.
    pub const fn new(redis: RedisShards, sql: MySqlInstallation) -> Self {
        Self { redis, sql }
    }

    /// The activities to compare: those asked for that Redis holds. `None`: there is no such activity.
    pub async fn activities(&self, request: Request) -> Result<Option<Vec<ActivityId>>, StoreError> {
        let states = self.sql.activity_states().await?;
        let is_asked = |id: ActivityId| request.activity.is_none_or(|asked| asked == id);
        let asked: Vec<_> = states.into_iter().filter(|(id, _)| is_asked(*id)).collect();
        if asked.is_empty() && request.activity.is_some() {
            return Ok(None);
        }
        let is_held = |state| matches!(state, ActivityState::Loaded | ActivityState::Ending);
        // One that was taken over has one set of books.
        let taken = self.sql.taken_over().await?;
        let asked = asked.into_iter().filter(|(id, state)| is_held(*state) && !taken.contains(id));
        Ok(Some(asked.map(|(id, _)| id).collect()))
    }

    /// Compares one activity, and corrects it if that is asked for. An error: it cannot be told whether it is right.
    pub async fn activity(
        &self,
        id: ActivityId,
        fix: bool,
        watch: &dyn Watch,
    ) -> Result<ActivityReport, StoreError> {
        let (mut evidence, mut findings) = self.look(id, &[], watch).await?;
        let short = findings.short_shards();
        if !short.is_empty() {
            evidence.read_records(&self.redis, &short).await?;
            findings = compare(&evidence);
        }
        if !findings.differences.is_empty() {
            // What is on its way at one look is somewhere else at the next.
            if findings.differences.iter().any(|one| one.kind == Kind::MoveHalfDone) {
                tokio::time::sleep(MOVING_PATIENCE).await;
            }
            let seen = findings.identities();
            // A million orders are not held twice.
            drop(evidence);
            (evidence, findings) = self.look(id, &short, watch).await?;
            findings.keep(&seen);
        }
        add_up(&evidence, &mut findings);
        if evidence.sql.state.is_none_or(|state| state == ActivityState::Archived) {
            findings.differences.clear();
        }
        let mut outcomes = Vec::with_capacity(findings.differences.len());
        if fix && !findings.differences.is_empty() {
            outcomes = mend(&self.redis, &self.sql, &evidence, &findings.differences, watch).await?;
        }
        Ok(report(id, findings, outcomes))
    }

    async fn look(
        &self,
        id: ActivityId,
        records_of: &[crate::stock::calls::ShardId],
        watch: &dyn Watch,
    ) -> Result<(Evidence, Findings), StoreError> {
        let mut evidence = evidence::read(&self.redis, &self.sql, id, watch).await?;
        evidence.read_records(&self.redis, records_of).await?;
        let findings = compare(&evidence);
        Ok((evidence, findings))
    }
}

fn report(id: ActivityId, findings: Findings, outcomes: Vec<Option<Result<(), String>>>) -> ActivityReport {
    let Findings { figures, explained, differences } = findings;
    let outcomes = outcomes.into_iter().chain(std::iter::repeat(None));
    let skus = Figures::into_iter(figures).collect();
    ActivityReport { id, skus, differences: differences.into_iter().zip(outcomes).collect(), explained }
}
