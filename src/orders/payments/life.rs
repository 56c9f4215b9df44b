//! What the tasks of payments have, whichever database they work on.

use std::sync::Arc;

use super::{Notices, PaymentSettings};
use crate::orders::context::{Context, Stop, Stopping};
use crate::orders::counters::Counters;
use crate::store::payments::PaymentStore;
use crate::store::sql::mysql::MySqlInstallation;

/// See the module. Cheap to clone.
#[derive(Debug)]
pub(in crate::orders) struct Life<S> {
    pub(in crate::orders) store: Arc<S>,
    pub(in crate::orders) settings: Arc<PaymentSettings>,
    pub(in crate::orders) counters: Arc<Counters>,
    pub(in crate::orders) stop: Stop,
}

impl<S> Clone for Life<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            settings: Arc::clone(&self.settings),
            counters: Arc::clone(&self.counters),
            stop: self.stop.clone(),
        }
    }
}

impl Life<MySqlInstallation> {
    /// Of a writer's tasks.
    pub(in crate::orders) fn of_writer(context: &Context) -> Self {
        Self {
            store: Arc::new(context.sql.clone()),
            settings: Arc::new(context.settings.payments.clone()),
            counters: Arc::clone(&context.counters),
            stop: context.stop.clone(),
        }
    }
}

impl<S: PaymentStore> Life<S> {
    /// Who takes payment notices, if a key is there to check them with.
    pub(in crate::orders) fn notices(&self) -> Option<Notices<S>> {
        let keys = self.settings.keys.clone()?;
        let counters = Arc::clone(&self.counters);
        Some(Notices::new(Arc::clone(&self.store), counters, keys, self.settings.replay_window))
    }
}

impl<S: PaymentStore> Stopping for Life<S> {
    fn stop(&self) -> &Stop {
        &self.stop
    }
}
