//! The keeper: a process's heartbeat, and its ear for recoveries.
//!
//! One task per gateway and writer. Every half second it renews the heartbeat in SQL, which tells the generation and a
//! recovery that waits for hand-ins; when something suggests that shards are closed it looks, and tries to lead
//! their recovery, which runs in a task of its own so that the heartbeat never waits for it. It ends when everybody who
//! listens to it has gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

use super::breakers::{Breakers, BreakersView, DegradingRules};
use super::lease::Lease;
use super::recovery::{self, Recovered};
use crate::stock::calls::{ProcessNumber, RecoveryCall, SHARDS};
use crate::store::breaker::BreakerState;
use crate::store::failures::{Failures, Say};
use crate::store::modes::StockMode;
use crate::store::redis::RedisShards;
use crate::store::sql::mysql::{MySqlInstallation, ProcessKind, Renewal};
use crate::store::{Registration, StoreError, watched};

/// How often the heartbeat is renewed.
const RENEW_INTERVAL: Duration = Duration::from_millis(500);
/// How long one renewal may take; the next is sent instead.
const RENEW_TIMEOUT: Duration = Duration::from_millis(1500);
/// How often shards are looked at though nothing suggests it: a writer may be the only one that would notice.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Between two looks while something suggests that shards are closed.
const SUSPICION_INTERVAL: Duration = Duration::from_millis(100);

/// What the rest of the process may know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperState {
    /// Whether answers may be acknowledged.
    pub holds_lease: bool,
    /// Whether shards were closed at the last look.
    pub shards_closed: bool,
    /// Whether the last renewal told of a recovery that has begun and not ended.
    pub recovery_runs: bool,
    /// How often the lease had run out.
    pub leases_lost: u64,
    /// Recoveries that this process led to their end.
    pub recoveries_led: u64,
    /// How long the shards of the last one were closed, as far as this process saw; milliseconds.
    pub last_closed_ms: u64,
    /// Reservations given up because no unit was left for them, over all recoveries led.
    pub promises_broken: u64,
    /// Of the circuit breakers.
    pub breakers: BreakersView,
}

impl KeeperState {
    /// Whether everything is sold from the reserve in the database: Redis is not needed for that.
    pub fn sells_the_reserve(&self) -> bool {
        usize::try_from(self.breakers.database_shards) == Ok(SHARDS)
    }

    /// Why the process should not be sent clients; empty when it may.
    pub fn not_ready(&self) -> impl Iterator<Item = &'static str> {
        let needs_redis = !self.sells_the_reserve();
        let is_redis_shut = self.breakers.redis != BreakerState::Closed;
        let reasons = [
            (!self.holds_lease, "cannot renew with the database"),
            (needs_redis && (self.shards_closed || self.recovery_runs), "a shard is being recovered"),
            (needs_redis && is_redis_shut, "the circuit breaker of redis is open"),
            (self.breakers.sql != BreakerState::Closed, "the circuit breaker of the database is open"),
        ];
        reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason))
    }
}

/// Between the keeper and the store.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) lease: Lease,
    pub(super) recovery: watch::Sender<Option<RecoveryCall>>,
    /// The last question what gateways know (rule 20); 0: none yet.
    pub(super) look: watch::Sender<u64>,
    pub(super) state: watch::Sender<KeeperState>,
    pub(super) breakers: Breakers,
    suspicion: Notify,
}

impl Told {
    pub(super) fn new(rules: DegradingRules, is_cluster: bool) -> Self {
        Self {
            breakers: Breakers::new(rules, is_cluster),
            lease: Lease::new(),
            recovery: watch::Sender::new(None),
            look: watch::Sender::new(0),
            state: watch::Sender::default(),
            suspicion: Notify::new(),
        }
    }

    /// A breaker is another.
    pub(super) fn tell_breakers(&self) {
        let breakers = self.breakers.view();
        self.state.send_if_modified(|state| std::mem::replace(&mut state.breakers, breakers) != breakers);
    }

    /// A shard may be closed.
    pub(super) fn suspect(&self) {
        self.suspicion.notify_one();
    }
}

/// See the module.
#[derive(Debug)]
pub struct Keeper {
    redis: RedisShards,
    sql: MySqlInstallation,
    process: ProcessNumber,
    kind: ProcessKind,
    told: Arc<Told>,
    failures: Failures,
}

impl Keeper {
    /// Registers a gateway.
    pub(super) async fn register_gateway(
        redis: RedisShards,
        sql: MySqlInstallation,
        told: Arc<Told>,
    ) -> Result<(Registration, Self), StoreError> {
        Self::register(redis, sql, ProcessKind::Gateway, told).await
    }

    /// Registers a writer; its keeper is to be run.
    pub async fn register_writer(
        redis: RedisShards,
        sql: MySqlInstallation,
    ) -> Result<(Registration, Self), StoreError> {
        // Nobody waits at a writer: it retries by itself, and its breakers are not looked at.
        let told = Arc::new(Told::new(DegradingRules::default(), false));
        Self::register(redis, sql, ProcessKind::Writer, told).await
    }

    async fn register(
        redis: RedisShards,
        sql: MySqlInstallation,
        kind: ProcessKind,
        told: Arc<Told>,
    ) -> Result<(Registration, Self), StoreError> {
        let sent_at = Instant::now();
        let registration = sql.register(kind).await?;
        told.lease.renewed(sent_at, registration.generation);
        told.state.send_modify(|state| state.holds_lease = true);
        let process = registration.process;
        Ok((registration, Self { redis, sql, process, kind, told, failures: Failures::default() }))
    }

    /// How things stand.
    pub fn state(&self) -> watch::Receiver<KeeperState> {
        self.told.state.subscribe()
    }

    /// Runs until nobody else knows of it.
    pub async fn run(mut self) {
        let (redis, sql, told, kind) =
            (self.redis.clone(), self.sql.clone(), Arc::clone(&self.told), self.kind);
        let leading = tokio::spawn(async move {
            watched::restarted("leading recoveries", || lead(&redis, &sql, &told, kind)).await;
        });
        let mut tick = tokio::time::interval(RENEW_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Two: this one and the leading task's.
        while Arc::strong_count(&self.told) > 2 || self.told.state.receiver_count() > 0 {
            tick.tick().await;
            // One that panicked was not sent: without another in time nothing is acknowledged.
            let _ = watched::caught("the heartbeat", self.renew()).await;
        }
        leading.abort();
    }

    /// What a heartbeat says of the database, and the database of the mode.
    fn degrade(&self, renewed: &Result<Option<Renewal>, StoreError>) {
        if self.kind != ProcessKind::Gateway {
            return;
        }
        let breakers = &self.told.breakers;
        breakers.renewed(renewed.as_ref().err());
        let mode = renewed.as_ref().ok().and_then(Option::as_ref).map(|renewal| &renewal.stock_mode);
        // A word of a later version, or of somebody's hand, changes nothing.
        let mode = mode.and_then(|mode| mode.as_deref().map_or(Some(StockMode::Default), StockMode::of));
        breakers.look(mode);
        self.told.tell_breakers();
    }

    async fn renew(&mut self) {
        let sent_at = Instant::now();
        let mut recovery_runs = None;
        let renewed = match tokio::time::timeout(RENEW_TIMEOUT, self.sql.renew(self.process)).await {
            Ok(renewed) => renewed,
            Err(_) => Err(StoreError::Unavailable("the heartbeat was not taken in time".to_owned())),
        };
        self.degrade(&renewed);
        match renewed {
            Ok(Some(Renewal { generation, recovery, look, .. })) => {
                if let Some(failures) = self.failures.succeeded() {
                    tracing::info!(failures, "the heartbeat reaches the database again");
                }
                recovery_runs = Some(recovery.is_some());
                if let Some(notice) = recovery {
                    // Before the lease: who believes the new lease finds the recovery's call.
                    let call = RecoveryCall {
                        generation: notice.generation,
                        closed: notice.closed,
                        rebuilt: notice.rebuilt,
                    };
                    self.told.recovery.send_if_modified(|known| known.replace(call) != Some(call));
                }
                self.told.lease.renewed(sent_at, generation);
                let look = look.unwrap_or_default();
                self.told.look.send_if_modified(|known| std::mem::replace(known, look.max(*known)) < look);
            }
            Ok(None) => tracing::error!(
                process = self.process.0,
                "the database does not know this process any more: nothing is acknowledged; restart it"
            ),
            Err(error) => match self.failures.failed(sent_at) {
                Say::Nothing => {}
                Say::First => tracing::warn!(%error, "the heartbeat does not reach the database"),
                Say::Summary(count) => {
                    tracing::warn!(%error, count, "the heartbeat does not reach the database");
                }
            },
        }
        let lease = &self.told.lease;
        self.told.state.send_if_modified(|state| {
            let (holds_lease, leases_lost) = (lease.is_held(), lease.times_lost());
            let recovery_runs = recovery_runs.unwrap_or(state.recovery_runs);
            let now = KeeperState { holds_lease, recovery_runs, leases_lost, ..*state };
            std::mem::replace(state, now) != now
        });
    }
}

/// Looks for closed shards, now and then and when somebody suspects some, and leads their recovery if nobody else
/// does. A gateway that suspects nothing asks Redis nothing.
async fn lead(redis: &RedisShards, sql: &MySqlInstallation, told: &Told, kind: ProcessKind) {
    let mut failures = Failures::default();
    let mut closed_since: Option<Instant> = None;
    loop {
        told.state.send_if_modified(|state| {
            let shards_closed = closed_since.is_some();
            std::mem::replace(&mut state.shards_closed, shards_closed) != shards_closed
        });
        let pause = if closed_since.is_some() { SUSPICION_INTERVAL } else { LOOK_INTERVAL };
        match kind {
            ProcessKind::Gateway if closed_since.is_none() => told.suspicion.notified().await,
            _ => {
                let _ = tokio::time::timeout(pause, told.suspicion.notified()).await;
            }
        }
        let began = Instant::now();
        match recovery::recover(redis, sql).await {
            Ok(Recovered::AllOpen) => {
                if let Some(since) = closed_since.take() {
                    tracing::info!(closed_ms = millis(since), "all shards are open again");
                }
            }
            Ok(Recovered::SomebodyElseLeads) => {
                closed_since.get_or_insert(began);
                tokio::time::sleep(SUSPICION_INTERVAL).await;
            }
            Ok(Recovered::Opened { generation, shards, broken }) => {
                let closed_ms = millis(closed_since.take().unwrap_or(began));
                tracing::info!(
                    generation = generation.0,
                    shards,
                    closed_ms,
                    broken,
                    "shards recovered and opened"
                );
                told.state.send_modify(|state| {
                    state.recoveries_led = state.recoveries_led.saturating_add(1);
                    state.last_closed_ms = closed_ms;
                    state.promises_broken = state.promises_broken.saturating_add(broken);
                });
            }
            Err(error) => {
                closed_since.get_or_insert(began);
                match failures.failed(began) {
                    Say::Nothing => {}
                    Say::First => tracing::warn!(%error, "shards cannot be recovered yet"),
                    Say::Summary(count) => tracing::warn!(%error, count, "shards cannot be recovered yet"),
                }
                tokio::time::sleep(SUSPICION_INTERVAL).await;
                continue;
            }
        }
        let _ = failures.succeeded();
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
