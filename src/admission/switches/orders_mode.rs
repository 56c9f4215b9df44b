//! The switch of what writers make of reservations.

use crate::protocol::ActivityId;

/// What writers of the production form do with what was sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrdersMode {
    /// As for all activities; of one activity alone.
    Default,
    /// Settle it.
    Settle,
    /// Record it, to be settled later.
    Record,
}

impl OrdersMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Default, Self::Settle, Self::Record];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Settle => "settle",
            Self::Record => "record",
        }
    }

    /// `None`: that is none, or not for all.
    pub(super) fn parse(activity: Option<ActivityId>, value: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == value);
        found.filter(|mode| activity.is_some() || *mode != Self::Default)
    }
}
