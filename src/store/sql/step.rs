//! A step of an order from one state to another, as both databases write it down. Pure.

use crate::payment::Cause;
use crate::protocol::OrderState;

/// Characters of a reason that are kept.
const REASON_CHARS_MAX: usize = 255;

/// From which state an order went to which, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    /// `None`: it had no row.
    pub(super) from: Option<OrderState>,
    pub(super) to: OrderState,
    pub(super) cause: Cause,
    pub(super) reason: &'a str,
}

impl Step<'_> {
    /// Not paid in time.
    pub(super) const TIMED_OUT: Self = Self {
        from: Some(OrderState::PendingPayment),
        to: OrderState::Closed,
        cause: Cause::TimedOut,
        reason: "not paid in time",
    };

    /// `Err`: orders only move forward.
    pub(super) fn checked(&self) -> Result<(), String> {
        match self.from {
            Some(from) if !from.may_become(self.to) => {
                Err(format!("an order would go back from {from:?} to {:?}", self.to))
            }
            _ => Ok(()),
        }
    }

    /// As much of the reason as is kept.
    pub(super) fn kept_reason(&self) -> String {
        self.reason.chars().take(REASON_CHARS_MAX).collect()
    }
}
