//! Payments, from configuration: the settings of the tasks that take them.

use std::path::PathBuf;

use super::Failure;
use crate::config::Payment;
use crate::orders::PaymentSettings;
use crate::payment::Keys;
use crate::payment::http::Target;

/// What the tasks are told; reads the keys.
pub(super) fn payment_settings(payment: &Payment) -> Result<PaymentSettings, Failure> {
    let read_keys = |path: &PathBuf| {
        Keys::read(path, payment.other_key_file.as_deref())
            .map_err(|error| Failure::cannot_start(error.to_string()))
    };
    let read_url = |url: &String| {
        let read = url.parse::<Target>();
        read.map_err(|error| Failure::cannot_start(format!("payment.centre_url = {error}")))
    };
    Ok(PaymentSettings {
        keys: payment.key_file.as_ref().map(read_keys).transpose()?,
        replay_window: payment.replay_window,
        park_for: payment.park_for,
        centre: payment.centre_url.as_ref().map(read_url).transpose()?,
        ask_timeout: payment.ask_timeout,
        ask_orders_max: payment.ask_orders_max,
        asks_in_flight: payment.asks_in_flight,
        retry_max: payment.retry_max,
        alarm_after: payment.alarm_after,
    })
}
