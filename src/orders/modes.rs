//! The switch `orders.mode` (`store::orders_modes`), as this writer obeys it: read from SQL a few times a second.
//!
//! One chore reads it (`follow_modes`); the settler and the backfill ask for what is known. Nothing is settled before it was
//! read for the first time. While SQL is away what was known last holds: nothing can be settled or recorded then either. Every change
//! is told in the log, with who made it and why, and counted.

use std::sync::{Arc, PoisonError, RwLock};

use super::counters::{Count, Counters};
use crate::store::StoreError;
use crate::store::orders_modes::{OrdersModes, is_of_orders};
use crate::store::sql::mysql::MySqlInstallation;
use crate::store::switches::{SetSwitch, SwitchStore};

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Modes(RwLock<Option<Arc<OrdersModes>>>);

impl Modes {
    /// As it was read last, or is read now.
    pub(super) async fn get(
        &self,
        sql: &MySqlInstallation,
        counters: &Counters,
    ) -> Result<Arc<OrdersModes>, StoreError> {
        match self.known() {
            Some(known) => Ok(known),
            None => self.read(sql, counters).await,
        }
    }

    fn known(&self) -> Option<Arc<OrdersModes>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads it.
    pub(super) async fn read(
        &self,
        sql: &MySqlInstallation,
        counters: &Counters,
    ) -> Result<Arc<OrdersModes>, StoreError> {
        let set = sql.switches().await?.set;
        let mut slot = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = slot.clone();
        let named = set.iter().map(|switch| (switch.name.as_str(), switch.value.as_str()));
        let now = Arc::new(OrdersModes::read(named, before.as_deref().unwrap_or(&OrdersModes::default())));
        if before.as_ref() == Some(&now) {
            return Ok(now);
        }
        *slot = Some(Arc::clone(&now));
        drop(slot);
        let activities = u64::try_from(now.recording_activities().count()).unwrap_or(u64::MAX);
        counters.set_orders_modes(now.records_all(), activities);
        // What a writer finds at its start is no change, and the usual case not worth a line.
        if before.is_some() || *now != OrdersModes::default() {
            counters.add(Count::OrdersModeChanges, u64::from(before.is_some()));
            tell(&now, &set);
        }
        Ok(now)
    }
}

fn tell(now: &OrdersModes, set: &[SetSwitch]) {
    let last = set.iter().filter(|switch| is_of_orders(&switch.name)).max_by_key(|switch| switch.version);
    let (who, why) = last.map_or(("", ""), |switch| (switch.who.as_str(), switch.why.as_str()));
    if now.records_all() || now.recording_activities().next().is_some() {
        tracing::warn!(
            mode = %now, who, why,
            "the switch orders.mode is obeyed: orders are recorded and not settled, until it is set back or \
             rushgate backfill is run"
        );
    } else {
        tracing::info!(mode = %now, who, why, "the switch orders.mode is obeyed: orders are settled");
    }
}
