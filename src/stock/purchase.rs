//! What goes into the engine and what comes out: purchases, outcomes, and the bounds it keeps.

use super::calls::Mark;
use crate::protocol::{OrderNumber, SkuKey, UserId};

/// Bounds and times of the engine. Times are milliseconds of one monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Items that may wait per shard.
    pub queue_items_max: usize,
    /// Items per call.
    pub batch_items_max: usize,
    /// An item not sent by then is told BUSY.
    pub patience_ms: u64,
    /// An item sent but not answered by then (counted from its arrival) is told UNCONFIRMED.
    pub unconfirmed_after_ms: u64,
    /// A call without a reply is sent again after so long.
    pub call_timeout_ms: u64,
    /// A view whose feeds were not read to their end for longer says nothing.
    pub view_lag_ms_max: u64,
    /// How often an item of more than one unit may find its gathered units taken.
    pub gathers_max: u32,
    /// Units on their way to a shard that no item waits for are brought in after so long.
    pub orphan_wait_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue_items_max: 4096,
            batch_items_max: 256,
            patience_ms: 2000,
            unconfirmed_after_ms: 3000,
            call_timeout_ms: 1000,
            view_lag_ms_max: 500,
            gathers_max: 3,
            orphan_wait_ms: 50,
        }
    }
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The unit is the user's, durably.
    Queued(Mark),
    /// He holds another order.
    Already(Mark),
    /// His order was closed and he may not buy again.
    NotAgain,
    /// Nothing is left anywhere.
    SoldOut,
    /// So many are left, fewer than asked for; not final.
    Insufficient(u32),
    /// The activity closed or ended while the purchase waited; nothing was done.
    Ended,
    /// Not tried, or under an attempt that was not his next; nothing was done.
    Busy,
    /// The user has asked the store as often as he may for now; nothing was done.
    TooOften {
        /// When he may again, in milliseconds.
        retry_after_ms: u32,
    },
    /// Not known yet; the number that the order will have if there is one.
    Unconfirmed(OrderNumber),
}

impl Outcome {
    /// The order that it tells of: there is one, or may be.
    pub const fn order(&self) -> Option<OrderNumber> {
        match self {
            Self::Queued(mark) | Self::Already(mark) => Some(mark.order),
            Self::Unconfirmed(order) => Some(*order),
            Self::NotAgain
            | Self::SoldOut
            | Self::Insufficient(_)
            | Self::Ended
            | Self::Busy
            | Self::TooOften { .. } => None,
        }
    }

    /// Whether it says that the order asked for does not exist and will not.
    pub(super) const fn is_refusal(&self) -> bool {
        !matches!(self, Self::Queued(_) | Self::Unconfirmed(_))
    }
}

/// One request for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The buyer.
    pub user: UserId,
    /// What.
    pub sku: SkuKey,
    /// Units, at least 1, all or nothing.
    pub quantity: u16,
    /// How long the client waits for its turn at the store; the lesser of this and the setting counts. 0 = the
    /// setting. It does not shorten the wait for the store's reply.
    pub patience_ms: u32,
}
