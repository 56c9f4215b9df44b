//! Which part of a rate that is meant for all gateways this one gives out by itself.
//!
//! Plain data, put in force by the task that knows how many gateways live; see `pace` for what a change does.

/// The part of the rates that are for all gateways (global, per activity, per address) that one gives out by itself:
/// the rate and the burst, divided by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// How many share them; 0 is taken as 1.
    pub gateways: u32,
}

impl Share {
    /// All of them.
    pub const WHOLE: Self = Self { gateways: 1 };

    /// Whether there are others to borrow from.
    pub(super) const fn is_part(self) -> bool {
        self.gateways > 1
    }

    pub(super) fn parts(self) -> u128 {
        u128::from(self.gateways.max(1))
    }

    /// Of a burst: at least one.
    pub(super) fn of_burst(self, burst: u32) -> u32 {
        burst.checked_div(self.gateways.max(1)).unwrap_or(burst).max(1)
    }
}
