//! What every task of a writer has: the stores, the settings, the counters, and the word to stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::counters::Counters;
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
    pub(super) put_back: Arc<PutBack>,
    /// This writer's name in the consumer group: its process number, which nobody else ever has.
    pub(super) consumer: Arc<str>,
    pub(super) stop: Stop,
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
