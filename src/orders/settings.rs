//! What a writer is told.

use std::time::Duration;

use super::payments::PaymentSettings;

/// How a writer works. Durations are of its own clock unless a field says otherwise.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Orders in one transaction; one feed entry with more is a batch of its own.
    pub batch_rows_max: usize,
    /// How long a batch that is not full waits for more.
    pub linger: Duration,
    /// Orders per second that this writer settles at most, whatever the backlog; 0: no limit.
    pub rows_per_s: u32,
    /// Entries that some writer took and did not acknowledge for this long (by Redis's clock) go to another.
    pub claim_idle: Duration,
    /// How long before an activity opens (by the database's clock) its stock is loaded.
    pub preheat_ahead: Duration,
    /// Events younger than this (by Redis's clock) stay in the feeds.
    pub trim_keep: Duration,
    /// After a stop is asked for, how long what was read may take to be settled.
    pub stop_timeout: Duration,
    /// Payments, and what is not paid.
    pub payments: PaymentSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_rows_max: 1_000,
            linger: Duration::from_millis(20),
            rows_per_s: 0,
            claim_idle: Duration::from_secs(30),
            preheat_ahead: Duration::from_secs(600),
            trim_keep: Duration::from_secs(600),
            stop_timeout: Duration::from_secs(10),
            payments: PaymentSettings::default(),
        }
    }
}
