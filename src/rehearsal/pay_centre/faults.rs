//! How badly it works.

use std::time::Duration;

/// Rates are from 0 (never) to 1 (always).
#[derive(Clone, Debug, PartialEq)]
pub struct PayFaults {
    /// Decides who is hit.
    pub seed: u64,
    /// A question waits for its answer for up to so long.
    pub answer_delay_max: Duration,
    /// A notice waits for up to so long before it is first told; so they come out of order.
    pub notice_delay_max: Duration,
    /// Questions answered with status 500, half of them after their orders were closed.
    pub error_rate: f64,
    /// Orders of a question of which it says *unknown*, and does nothing.
    pub unknown_rate: f64,
    /// Orders that are paid right after they were closed.
    pub late_rate: f64,
    /// Notices that are told once more though they were answered.
    pub repeat_rate: f64,
    /// Notices that are preceded by a forged one.
    pub forge_rate: f64,
    /// Payments of another amount than the order costs.
    pub wrong_amount_rate: f64,
}

impl Default for PayFaults {
    /// None.
    fn default() -> Self {
        Self {
            seed: 1,
            answer_delay_max: Duration::ZERO,
            notice_delay_max: Duration::ZERO,
            error_rate: 0.0,
            unknown_rate: 0.0,
            late_rate: 0.0,
            repeat_rate: 0.0,
            forge_rate: 0.0,
            wrong_amount_rate: 0.0,
        }
    }
}
