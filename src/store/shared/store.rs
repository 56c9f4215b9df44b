//! [`SharedStore`]: Redis's answers, as far as the lease lets them be believed.
//!
//! Every method may be called from any task. An answer that comes while the lease is out, or that is of an older
//! generation than the last renewal told, is not passed on: the caller repeats the call and its clients hear
//! UNCONFIRMED meanwhile.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::watch;

use super::breakers::DegradingRules;
use super::keeper::{Keeper, Told};
use super::switches::InstallationSwitches;
use crate::protocol::{ActivityId, OrderState, UserId};
use crate::stock::calls::{Call, Gen, Mark, ProcessNumber, RecoveryCall, Reply, ShardId, Snapshot};
use crate::store::allow_lists::{AllowListStore, ListChange, ListState, Listed, WholeList};
use crate::store::catalog::{Activity, Catalogue, Ended};
use crate::store::gate::Gate;
use crate::store::redis::RedisShards;
use crate::store::sessions::{SessionKey, SessionStore, StoredSession};
use crate::store::slices::{SliceCall, SliceReply, SliceStore};
use crate::store::sql::mysql::{FailOutcome, MySqlInstallation, MySqlStore};
use crate::store::switches::{NewSwitch, SetSwitch, SwitchStore, Switches};
use crate::store::watched;
use crate::store::{FeedPositions, FeedRead, GatedStore, HandIn, Registration, ReservationStore, StoreError};

/// What a gateway of the shared form works on.
#[derive(Clone, Debug)]
pub struct SharedStore {
    redis: RedisShards,
    sql: MySqlInstallation,
    reserve: Arc<MySqlStore>,
    told: Arc<Told>,
    keeper: Arc<OnceLock<ProcessNumber>>,
}

impl SharedStore {
    /// Composes the two; nothing runs before [`register`](ReservationStore::register).
    pub fn new(redis: RedisShards, sql: MySqlInstallation) -> Self {
        Self::degrading(redis, sql, DegradingRules::default())
    }

    /// The same, with these rules for when one of them is away.
    pub fn degrading(redis: RedisShards, sql: MySqlInstallation, rules: DegradingRules) -> Self {
        let told = Arc::new(Told::new(rules, redis.is_cluster()));
        let reserve = Arc::new(MySqlStore::new(sql.clone()));
        Self { redis, sql, reserve, told, keeper: Arc::default() }
    }

    /// Where its switches are kept.
    pub fn switch_store(&self) -> InstallationSwitches {
        InstallationSwitches::new(self.redis.clone(), self.sql.clone())
    }

    /// The shards in Redis.
    pub const fn redis(&self) -> &RedisShards {
        &self.redis
    }

    /// The database.
    pub const fn sql(&self) -> &MySqlInstallation {
        &self.sql
    }

    /// How the lease and the recoveries stand; for metrics and readiness.
    pub fn keeper_state(&self) -> watch::Receiver<super::KeeperState> {
        self.told.state.subscribe()
    }

    /// Ends this process's registration: no recovery waits for its heartbeat.
    pub async fn retire(&self) -> Result<(), StoreError> {
        match self.keeper.get() {
            Some(process) => self.sql.retire(*process).await,
            None => Ok(()),
        }
    }

    fn process(&self) -> Result<ProcessNumber, StoreError> {
        self.keeper.get().copied().ok_or_else(|| StoreError::Unavailable("not registered yet".to_owned()))
    }

    /// Nothing is acknowledged without the lease.
    fn acknowledge(&self) -> Result<Gen, StoreError> {
        if self.told.lease.is_held() {
            return Ok(self.told.lease.generation());
        }
        Err(StoreError::Unavailable(
            "the database could not be told for two seconds that this gateway lives, so nothing is acknowledged; \
             see whether the database can be reached"
                .to_owned(),
        ))
    }

    /// What a call, or a party of calls whose first this is, came to at Redis.
    fn called(&self, shard: ShardId, outcome: &Result<Reply, StoreError>) {
        if self.told.breakers.called(shard, outcome) {
            self.told.tell_breakers();
        }
    }

    /// What a reply is worth while the lease stands as it does.
    fn believed(&self, reply: Reply) -> Result<Reply, StoreError> {
        match reply {
            Reply::Done(done) => {
                let generation = self.acknowledge()?;
                if done.generation < generation {
                    // A recovery has begun since: what it says may have been written off.
                    return Ok(Reply::Gen(generation));
                }
                Ok(Reply::Done(done))
            }
            Reply::Recovering => {
                self.told.suspect();
                Ok(Reply::Recovering)
            }
            Reply::Gen(current) => {
                // Of an older one than SQL tells of: its leader died before the shards knew.
                if current < self.told.lease.generation() {
                    self.told.suspect();
                }
                Ok(Reply::Gen(current))
            }
            Reply::Stale => Ok(Reply::Stale),
        }
    }
}

impl ReservationStore for SharedStore {
    async fn register(&self) -> Result<Registration, StoreError> {
        if self.keeper.get().is_some() {
            return Err(StoreError::Corrupt("this process is registered already".to_owned()));
        }
        let (registration, keeper) =
            Keeper::register_gateway(self.redis.clone(), self.sql.clone(), Arc::clone(&self.told)).await?;
        let _ = self.keeper.set(registration.process);
        tokio::spawn(watched::vital("the keeper", keeper.run()));
        Ok(registration)
    }

    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        let outcome = self.redis.call(call).await;
        self.called(call.shard, &outcome);
        self.believed(outcome?)
    }

    fn together(&self, calls: Vec<Call>) -> Vec<Vec<Call>> {
        self.redis.together(calls)
    }

    async fn call_together(&self, calls: &[Call]) -> Vec<Result<Reply, StoreError>> {
        let outcomes = self.redis.call_together(calls).await;
        // One that was answered says that the others' failure is not the server's silence.
        let first = outcomes.iter().position(Result::is_ok).unwrap_or_default();
        if let (Some(call), Some(outcome)) = (calls.get(first), outcomes.get(first)) {
            self.called(call.shard, outcome);
        }
        outcomes.into_iter().map(|outcome| self.believed(outcome?)).collect()
    }

    async fn snapshot(&self, shard: ShardId) -> Result<Snapshot, StoreError> {
        let snapshot = self.redis.snapshot(shard).await.inspect_err(|_| self.told.suspect())?;
        let generation = self.acknowledge()?;
        if snapshot.generation < generation {
            self.told.suspect();
            return Err(StoreError::Unavailable(format!(
                "shard {} is of generation {}, the installation of {}: a recovery is under way",
                shard.number(),
                snapshot.generation.0,
                generation.0
            )));
        }
        Ok(snapshot)
    }

    async fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        let mut reads = self.redis.read_feeds(after, wait).await.inspect_err(|_| self.told.suspect())?;
        if self.told.breakers.fed(&reads) {
            self.told.tell_breakers();
        }
        let generation = self.acknowledge()?;
        if reads.iter().any(|(_, read)| *read == FeedRead::Unread) {
            self.told.suspect();
        }
        for (_, read) in &mut reads {
            let is_old = matches!(read, FeedRead::Events(events)
                if events.iter().any(|event| event.generation < generation));
            if is_old {
                *read = FeedRead::Gap;
            }
        }
        // An old master that lives on has nothing new to say, which is not the same as being current.
        for (shard, (known, _)) in ShardId::all().zip(after) {
            if *known < generation && !reads.iter().any(|(named, _)| *named == shard) {
                reads.push((shard, FeedRead::Gap));
            }
        }
        Ok(reads)
    }

    async fn sale_time(&self) -> Result<Option<Duration>, StoreError> {
        self.redis.time().await.map(Some)
    }

    async fn next_recovery(&self, after: Gen) -> RecoveryCall {
        let mut recoveries = self.told.recovery.subscribe();
        loop {
            let found = recoveries.wait_for(|call| call.is_some_and(|call| call.generation > after)).await;
            match found.map(|call| *call) {
                Ok(Some(call)) => return call,
                Ok(None) => {}
                // The sender lives as long as this store does.
                Err(_) => std::future::pending().await,
            }
        }
    }

    async fn hand_in(&self, generation: Gen, marks: &[(UserId, Mark)]) -> Result<HandIn, StoreError> {
        let answer = self.sql.hand_in(self.process()?, generation, marks).await?;
        if answer == HandIn::TooLate {
            tracing::warn!(
                generation = generation.0,
                marks = marks.len(),
                "too late to hand in for this recovery"
            );
        }
        Ok(answer)
    }

    async fn next_look(&self, after: u64) -> u64 {
        let mut looks = self.told.look.subscribe();
        match looks.wait_for(|look| *look > after).await.map(|look| *look) {
            Ok(look) => look,
            // The sender lives as long as this store does.
            Err(_) => std::future::pending().await,
        }
    }

    async fn answer_look(&self, look: u64, marks: &[(UserId, Mark)]) -> Result<(), StoreError> {
        self.sql.answer_look(self.process()?, look, marks).await
    }

    async fn fail(&self, user: UserId, mark: &Mark) -> Result<Mark, StoreError> {
        Ok(match self.sql.fail(user, mark, super::recovery::WHY_FAILED).await? {
            FailOutcome::Failed | FailOutcome::WasFailed => {
                Mark { state: OrderState::Failed, pay_by_ms: 0, ..*mark }
            }
            FailOutcome::Stands(mark) => mark,
        })
    }
}

impl GatedStore for SharedStore {
    type Reserve = MySqlStore;

    fn reserve(&self) -> Option<Arc<MySqlStore>> {
        Some(Arc::clone(&self.reserve))
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::clone(self.told.breakers.gate())
    }
}

/// Redis's, whatever the lease says: who is cut off from the database may still be told to close a door.
impl SwitchStore for SharedStore {
    async fn switches(&self) -> Result<Switches, StoreError> {
        self.switch_store().switches().await
    }

    async fn set_switch(&self, new: &NewSwitch) -> Result<u64, StoreError> {
        self.switch_store().set_switch(new).await
    }

    async fn switch_changes(&self, after: u64, wait: Duration) -> Result<Vec<SetSwitch>, StoreError> {
        self.redis.switch_changes(after, wait).await
    }

    async fn restore_switches(&self, lost: &[SetSwitch]) -> Result<u64, StoreError> {
        self.switch_store().restore_switches(lost).await
    }
}

/// Redis's as well: they are no promise.
impl AllowListStore for SharedStore {
    async fn list_states(
        &self,
        activities: &[ActivityId],
    ) -> Result<Vec<Result<ListState, StoreError>>, StoreError> {
        self.redis.list_states(activities).await
    }

    async fn listed(&self, activity: ActivityId) -> Result<Listed, StoreError> {
        self.redis.listed(activity).await
    }

    async fn list_changes(&self, after: u64) -> Result<Vec<ListChange>, StoreError> {
        self.redis.list_changes(after).await
    }

    fn may_lose(&self) -> bool {
        self.redis.may_lose()
    }

    async fn put_list(
        &self,
        activity: ActivityId,
        seen: ListState,
        whole: WholeList<'_>,
    ) -> Result<Option<ListState>, StoreError> {
        self.redis.put_list(activity, seen, whole).await
    }
}

/// Redis's, too: a rate is shared whether or not anything may be sold.
impl SliceStore for SharedStore {
    async fn exchange_slices(&self, call: &SliceCall) -> Result<Option<SliceReply>, StoreError> {
        self.redis.exchange_slices(call).await
    }

    async fn leave_slices(&self, gateway: ProcessNumber) -> Result<(), StoreError> {
        self.redis.leave_slices(gateway).await
    }
}

impl SessionStore for SharedStore {
    async fn session(&self, key: &SessionKey) -> Result<Option<StoredSession>, StoreError> {
        self.redis.session(key).await
    }
}

impl Catalogue for SharedStore {
    async fn version(&self) -> Result<u64, StoreError> {
        self.sql.version().await
    }

    async fn activities(&self) -> Result<Vec<Activity>, StoreError> {
        self.sql.activities().await
    }

    async fn ended(&self) -> Result<Vec<Ended>, StoreError> {
        self.sql.ended().await
    }

    async fn taken_over(&self) -> Result<Vec<ActivityId>, StoreError> {
        self.sql.taken_over().await
    }

    /// Whoever holds no lease may still read: what SQL says is what is.
    async fn order_of(&self, user: UserId, activity: ActivityId) -> Result<Option<Mark>, StoreError> {
        self.told.breakers.spares_sql()?;
        self.sql.order_of(user, activity).await
    }

    /// Those for Redis writers drive; a gateway only sees what comes of it. Those of the reserve are one transaction in
    /// the database.
    async fn drive_loads(&self) -> Result<u64, StoreError> {
        self.reserve.drive_loads().await
    }
}
