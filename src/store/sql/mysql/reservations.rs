//! What a writer hands over for settlement, and what came of it. Pure.

use crate::protocol::{OrderState, UserId};
use crate::stock::calls::{Gen, Mark, ShardId};

/// One reservation out of a feed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The shard whose feed it came from.
    pub shard: ShardId,
    /// The generation and seq of its entry.
    pub entry: (Gen, u64),
    /// Whose it is.
    pub user: UserId,
    /// What was reserved, in state RESERVED.
    pub mark: Mark,
}

impl Settlement {
    /// Of an order whose row was written now.
    pub(super) const fn of(mark: Mark) -> Self {
        match mark.state {
            OrderState::Recorded => Self::Recorded(mark),
            _ => Self::Settled(mark),
        }
    }
}

/// What came of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// The installation's generation is another: nothing was written, the entries are read again under it.
    Gen(Gen),
    /// Committed; one for each reservation, in their order.
    Committed(Vec<Settlement>),
}

/// What came of one reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Its row was inserted and its units deducted now.
    Settled(Mark),
    /// Its row was inserted in state RECORDED; its units are deducted when it is settled.
    Recorded(Mark),
    /// Its number has a row already, which may have gone further: an order that stands, or one that failed.
    WasSettled(Mark),
    /// Another order of the user is in the way. This number has a FAILED row, and its units go back by the ledger.
    Superseded {
        /// The order that stands.
        already: Mark,
    },
    /// The number is another user's order. This one failed, loudly, and its units go back by the ledger.
    Collision {
        /// Whose order has the number.
        owner: UserId,
    },
    /// It could not be settled: a dead letter, and its units go back by the ledger.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Reservation {
    /// What no correct gateway sends.
    pub(super) fn fault(&self) -> Option<&'static str> {
        if UserId::new(self.user.0).is_none() {
            return Some("the user id is out of range");
        }
        if ShardId::of(self.user) != self.shard {
            return Some("the user belongs to another shard");
        }
        if self.mark.order.0 == 0 || i64::try_from(self.mark.order.0).is_err() {
            return Some("the order number is out of range");
        }
        if self.mark.quantity == 0 {
            return Some("the quantity is 0");
        }
        if self.mark.attempt == 0 {
            return Some("the attempt is 0");
        }
        if self.mark.state != OrderState::Reserved {
            return Some("its state is not RESERVED");
        }
        None
    }

    /// Whether the table of orders can hold a row of it at all.
    pub(super) fn fits_a_row(&self) -> bool {
        self.user.0 > 0 && self.mark.order.0 > 0 && self.mark.quantity > 0 && self.mark.attempt > 0
    }
}
