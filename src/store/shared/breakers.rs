//! The circuit breakers of the shared store, and the gate that they shut.
//!
//! Fed by the store's calls to Redis and by the keeper's heartbeats, from whatever task these run on; owned by what
//! [`Told`](super::keeper::Told) holds. They hold nothing back that is under way: an open call is repeated until it is
//! answered, heartbeats and feeds go on, and all of these are the probes. What a breaker changes is that nobody new is
//! let in to wait for what does not answer. On a cluster each shard has its own, because another node may serve its
//! neighbour; else all shards are one server.
//!
//! From the breakers and the switch `stock.mode` follows what is sold from what (`modes`): looked at after every change
//! and with every heartbeat, told and counted when it is another.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::stock::calls::{Reply, SHARDS, ShardId};
use crate::store::breaker::{Breaker, BreakerRules, BreakerState};
use crate::store::gate::{Gate, ShardMask, Way};
use crate::store::modes::{self, Standing, StockMode};
use crate::store::{FeedRead, StoreError};

/// When the breakers open and close, and what comes of that.
#[derive(Clone, Copy, Debug, Default)]
pub struct DegradingRules {
    /// Of each breaker.
    pub breaker: BreakerRules,
    /// Once Redis's has not been closed for so long the reserve is sold; `None`: by the switch alone.
    pub database_after: Option<Duration>,
}

/// How the breakers stand; of several, the worst. And what is sold from what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakersView {
    /// Of Redis.
    pub redis: BreakerState,
    /// Of the database.
    pub sql: BreakerState,
    /// How often one of Redis opened from being closed.
    pub redis_opened: u64,
    /// How often the database's did.
    pub sql_opened: u64,
    /// What the switch is set to.
    pub mode: StockMode,
    /// Shards whose purchases are sold from the reserve.
    pub database_shards: u32,
    /// How often that changed.
    pub mode_changes: u64,
}

#[derive(Debug)]
pub(super) struct Breakers {
    database_after: Option<Duration>,
    /// One, or one for each shard.
    redis: Vec<Mutex<Breaker>>,
    sql: Mutex<Breaker>,
    gate: Arc<Gate>,
    /// Held while the gate is set, so that an older sum does not overwrite a newer one.
    gate_set: Mutex<StockMode>,
    database_shards: AtomicU32,
    mode_changes: AtomicU64,
    redis_opened: AtomicU64,
    sql_opened: AtomicU64,
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Breakers {
    pub(super) fn new(rules: DegradingRules, is_cluster: bool) -> Self {
        let breaker = || Mutex::new(Breaker::new(rules.breaker));
        let redis = if is_cluster { SHARDS } else { 1 };
        Self {
            database_after: rules.database_after,
            redis: (0..redis).map(|_| breaker()).collect(),
            sql: breaker(),
            gate: Arc::default(),
            gate_set: Mutex::default(),
            database_shards: AtomicU32::new(0),
            mode_changes: AtomicU64::new(0),
            redis_opened: AtomicU64::new(0),
            sql_opened: AtomicU64::new(0),
        }
    }

    pub(super) const fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(super) fn view(&self) -> BreakersView {
        let state = |breaker: &Mutex<Breaker>| lock(breaker).state();
        BreakersView {
            redis: self.redis.iter().map(state).max().unwrap_or_default(),
            sql: state(&self.sql),
            redis_opened: self.redis_opened.load(Ordering::Relaxed),
            sql_opened: self.sql_opened.load(Ordering::Relaxed),
            mode: *lock(&self.gate_set),
            database_shards: self.database_shards.load(Ordering::Relaxed),
            mode_changes: self.mode_changes.load(Ordering::Relaxed),
        }
    }

    /// A call to a shard came to this, or all of a party did whose first shard it is: one network's silence is one failure.
    /// An answer that refuses is an answer; so is one that names a key which somebody's hand has damaged. True if the
    /// breaker is another now.
    pub(super) fn called(&self, shard: ShardId, outcome: &Result<Reply, StoreError>) -> bool {
        let Some(breaker) = self.of(shard) else { return false };
        let now = Instant::now();
        let mut breaker = lock(breaker);
        let (before, change) = (
            breaker.state(),
            match outcome {
                Err(StoreError::Unavailable(_)) => breaker.failed(now),
                Err(StoreError::Corrupt(_)) | Ok(_) => breaker.succeeded(now),
            },
        );
        drop(breaker);
        let why = outcome.as_ref().err();
        self.changed("redis", Some(shard), before, change, why, &self.redis_opened)
    }

    /// The feeds could be read, but for these.
    pub(super) fn fed(&self, reads: &[(ShardId, FeedRead)]) -> bool {
        let now = Instant::now();
        let mut is_another = false;
        for (shard, breaker) in ShardId::all().zip(&self.redis) {
            if self.redis.len() > 1 && reads.contains(&(shard, FeedRead::Unread)) {
                continue;
            }
            let mut breaker = lock(breaker);
            let (before, change) = (breaker.state(), breaker.lives(now));
            drop(breaker);
            is_another |= self.changed("redis", Some(shard), before, change, None, &self.redis_opened);
        }
        is_another
    }

    /// A heartbeat came to this.
    pub(super) fn renewed(&self, failure: Option<&StoreError>) {
        let now = Instant::now();
        let mut breaker = lock(&self.sql);
        let before = breaker.state();
        let change = if failure.is_some() { breaker.failed(now) } else { breaker.succeeded(now) };
        drop(breaker);
        self.changed("database", None, before, change, failure, &self.sql_opened);
    }

    /// The time has gone on, and the switch may be another (`None`: it could not be read).
    pub(super) fn look(&self, mode: Option<StockMode>) {
        if let Some(mode) = mode {
            *lock(&self.gate_set) = mode;
        }
        self.set_gate();
    }

    /// Whether the database is known not to answer: nothing that can wait is asked of it.
    pub(super) fn spares_sql(&self) -> Result<(), StoreError> {
        if lock(&self.sql).state() == BreakerState::Closed {
            return Ok(());
        }
        Err(StoreError::Unavailable("the database is known not to answer; it was not asked".to_owned()))
    }

    fn of(&self, shard: ShardId) -> Option<&Mutex<Breaker>> {
        self.redis.get(shard.index()).or_else(|| self.redis.first())
    }

    /// Tells of a change, counts it and sets the gate.
    fn changed(
        &self,
        of: &'static str,
        shard: Option<ShardId>,
        before: BreakerState,
        change: Option<BreakerState>,
        why: Option<&StoreError>,
        opened: &AtomicU64,
    ) -> bool {
        let Some(now) = change else { return false };
        let shard = shard.filter(|_| self.redis.len() > 1).map(ShardId::number);
        match (before, now) {
            (BreakerState::Closed, _) => {
                opened.fetch_add(1, Ordering::Relaxed);
                let why = why.map(ToString::to_string).unwrap_or_default();
                tracing::warn!(
                    breaker = of,
                    shard,
                    why,
                    "a circuit breaker has opened: new purchases are told BUSY at once"
                );
            }
            (_, BreakerState::Closed) => {
                tracing::info!(
                    breaker = of,
                    shard,
                    "a circuit breaker has closed: purchases are taken again"
                );
            }
            _ => tracing::debug!(breaker = of, shard, state = now.name(), "a circuit breaker has changed"),
        }
        self.set_gate();
        true
    }

    fn set_gate(&self) {
        let mode = lock(&self.gate_set);
        let now = Instant::now();
        let sql = lock(&self.sql).state();
        let (mut shut, mut database): (ShardMask, ShardMask) = (0, 0);
        let mut away_for = Duration::ZERO;
        for shard in ShardId::all() {
            let Some(breaker) = self.of(shard) else { continue };
            let breaker = lock(breaker);
            let redis = Standing { breaker: breaker.state(), shut_for: breaker.shut_for(now) };
            drop(breaker);
            match modes::way(*mode, self.database_after, sql, redis) {
                Way::Store => {}
                Way::Shut => shut |= 1 << shard.number(),
                Way::Database => {
                    database |= 1 << shard.number();
                    away_for = away_for.max(redis.shut_for.unwrap_or_default());
                }
            }
        }
        self.gate.set(shut, database);
        self.gate.shut_reserve(sql != BreakerState::Closed);
        let shards = database.count_ones();
        if self.database_shards.swap(shards, Ordering::Relaxed) != shards {
            self.mode_changes.fetch_add(1, Ordering::Relaxed);
            tell_mode(*mode, shards, away_for);
        }
    }
}

fn tell_mode(mode: StockMode, shards: u32, away_for: Duration) {
    if shards == 0 {
        tracing::warn!("purchases are sold from redis again");
    } else if mode == StockMode::Database {
        tracing::warn!(shards, "purchases are sold from the reserve in the database: switch stock.mode");
    } else {
        let away_s = away_for.as_secs();
        tracing::warn!(shards, away_s, "purchases are sold from the reserve in the database: redis is away");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stock::calls::Gen;
    use crate::store::gate::Way;

    fn unavailable() -> Result<Reply, StoreError> {
        Err(StoreError::Unavailable("silence".to_owned()))
    }

    fn shut(breakers: &Breakers) -> usize {
        ShardId::all().filter(|shard| breakers.gate().way(*shard) == Way::Shut).count()
    }

    #[test]
    fn one_server_is_shut_as_a_whole_and_a_node_of_a_cluster_for_its_shards() {
        for (is_cluster, expected) in [(false, 16), (true, 1)] {
            let breakers = Breakers::new(DegradingRules::default(), is_cluster);
            for _ in 0..4 {
                assert!(!breakers.called(ShardId::ALL[3], &unavailable()));
            }
            assert_eq!(shut(&breakers), 0);
            assert!(breakers.called(ShardId::ALL[3], &unavailable()));
            assert_eq!(shut(&breakers), expected);
            assert_eq!((breakers.view().redis, breakers.view().redis_opened), (BreakerState::Open, 1));
            for _ in 0..3 {
                breakers.called(ShardId::ALL[3], &Ok(Reply::Recovering));
            }
            assert_eq!((shut(&breakers), breakers.view().redis), (0, BreakerState::Closed));
        }
    }

    #[test]
    fn an_answer_that_refuses_or_names_damage_is_an_answer() {
        let breakers = Breakers::new(DegradingRules::default(), false);
        for _ in 0..20 {
            breakers.called(ShardId::ALL[3], &Ok(Reply::Gen(Gen(7))));
            breakers.called(ShardId::ALL[3], &Err(StoreError::Corrupt("a key of another type".to_owned())));
        }
        assert_eq!(breakers.view(), BreakersView::default());
    }

    #[test]
    fn a_database_that_takes_no_heartbeat_shuts_all_and_is_spared() {
        let breakers = Breakers::new(DegradingRules::default(), true);
        let failure = StoreError::Unavailable("silence".to_owned());
        for _ in 0..5 {
            breakers.renewed(Some(&failure));
        }
        assert_eq!((shut(&breakers), breakers.spares_sql().is_err()), (16, true));
        // Redis answers, which does not help.
        breakers.called(ShardId::ALL[3], &Ok(Reply::Recovering));
        assert_eq!(shut(&breakers), 16);
        for _ in 0..3 {
            breakers.renewed(None);
        }
        assert_eq!((shut(&breakers), breakers.spares_sql().is_ok()), (0, true));
    }

    #[test]
    fn rule_19_the_reserve_is_sold_by_the_switch_or_by_itself_and_both_end() {
        let after = Some(Duration::ZERO);
        for (database_after, expected) in [(after, Way::Database), (None, Way::Shut)] {
            let rules = DegradingRules { database_after, ..DegradingRules::default() };
            let breakers = Breakers::new(rules, false);
            let ways = || breakers.gate().way(ShardId::ALL[3]);
            for _ in 0..5 {
                breakers.called(ShardId::ALL[3], &unavailable());
            }
            assert_eq!(ways(), expected);
            for _ in 0..3 {
                breakers.called(ShardId::ALL[3], &Ok(Reply::Recovering));
            }
            assert_eq!(ways(), Way::Store);
            breakers.look(Some(StockMode::Database));
            assert_eq!((ways(), breakers.view().database_shards), (Way::Database, 16));
            breakers.look(None);
            assert_eq!(ways(), Way::Database, "a heartbeat that fails changes nothing");
            breakers.look(Some(StockMode::Default));
            assert_eq!((ways(), breakers.view().database_shards), (Way::Store, 0));
            let changes = if database_after.is_some() { 4 } else { 2 };
            assert_eq!(breakers.view().mode_changes, changes);
        }
    }
}
