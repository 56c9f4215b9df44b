//! The tasks of payments where there is no writer: in the process that serves an embedded store.
//!
//! They run on the caller's runtime until they are stopped or dropped, and each may end between any two steps: what is
//! due is a row that stays due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::life::Life;
use super::{Notices, Overdues, Parked, PaymentSettings};
use crate::orders::chore::{self, Chore, Next};
use crate::orders::context::Stop;
use crate::orders::counters::Counters;
use crate::store::StoreError;
use crate::store::payments::PaymentStore;

/// How long what is under way may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub struct PaymentTasks<S> {
    life: Life<S>,
    stop: watch::Sender<Option<Instant>>,
    tasks: JoinSet<()>,
}

impl<S: PaymentStore> PaymentTasks<S> {
    /// Starts them. `None`: without a key nobody can tell of a payment, and nobody may be asked.
    pub fn start(store: Arc<S>, settings: PaymentSettings) -> Option<Self> {
        settings.keys.as_ref()?;
        let (stop, stopping) = watch::channel(None);
        let life = Life {
            store,
            settings: Arc::new(settings),
            counters: Arc::new(Counters::default()),
            stop: Stop(stopping),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(chore::run(Parked::default(), life.clone()));
        tasks.spawn(chore::run(Lags, life.clone()));
        for overdues in Overdues::tasks(&life.settings) {
            tasks.spawn(chore::run(overdues, life.clone()));
        }
        Some(Self { life, stop, tasks })
    }

    /// Who takes payment notices. Works until the store is closed.
    pub fn notices(&self) -> Option<Notices<S>> {
        self.life.notices()
    }

    /// What they count; of payments alone.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.life.counters)
    }

    /// Ends them, each after its step.
    pub async fn stop(mut self) {
        let deadline = Instant::now().checked_add(STOP_TIMEOUT).unwrap_or_else(Instant::now);
        self.stop.send_replace(Some(deadline));
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(STOP_TIMEOUT, ended).await;
    }
}

/// How long orders wait for the payment centre to be asked, for metrics.
#[derive(Debug)]
struct Lags;

impl<S: PaymentStore> Chore<Life<S>> for Lags {
    const WHAT: &'static str = "looking at how long orders have been overdue";
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn step(&mut self, life: &Life<S>) -> Result<Next, StoreError> {
        life.counters.set_overdue(life.store.overdue_lag_ms().await?);
        Ok(Next::Later)
    }
}
