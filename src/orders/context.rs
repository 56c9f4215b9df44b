//! What every task of a writer has: the stores, the settings, the counters, and the word to stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::counters::{Count, Counters};
use super::modes::Modes;
use super::pace::Pace;
use super::put_back::PutBack;
use super::settings::Settings;
use crate::store::redis::RedisShards;
use crate::store::sql::mysql::MySqlInstallation;

#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) redis: RedisShards,
    pub(super) sql: MySqlInstallation,
    pub(super) settings: Arc<Settings>,
    pub(super) counters: Arc<Counters>,
    pub(super) modes: Arc<Modes>,
    pub(super) pace: Arc<Pace>,
    pub(super) put_back: Arc<PutBack>,
    /// This writer's name in the consumer group: its process number, which nobody else ever has.
    pub(super) consumer: Arc<str>,
    pub(super) stop: Stop,
}

impl Context {
    /// Waits until so many rows are due; nobody waits once a stop is asked for: it is the last of it.
    pub(super) async fn keep_pace(&self, rows: usize) {
        let waited = tokio::select! {
            biased;
            () = self.stop.asked() => Duration::ZERO,
            waited = self.pace.wait(rows) => waited,
        };
        let us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.counters.add(Count::RateLimitedUs, us);
    }
}

/// What tasks have that end when they are told to.
pub(super) trait Stopping: Send + Sync + 'static {
    fn stop(&self) -> &Stop;
}

impl Stopping for Context {
    fn stop(&self) -> &Stop {
        &self.stop
    }
}

/// Whether to stop, and when to give up what is not done by then.
#[derive(Clone, Debug)]
pub(super) struct Stop(pub(super) watch::Receiver<Option<Instant>>);

impl Stop {
    pub(super) fn is_asked(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.0.borrow().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits until a stop is asked for.
    pub(super) async fn asked(&self) {
        // An error: the writer is gone, which is a stop as well.
        let _ = self.0.clone().wait_for(Option::is_some).await;
    }

    /// Waits so long, or until a stop is asked for.
    pub(super) async fn pause(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.asked()).await;
    }
}
