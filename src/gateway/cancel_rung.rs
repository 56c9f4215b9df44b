//! What CANCEL is answered at once, from memory: by the order's state, and by whose it is.
//!
//! Runs on the connection's task, inside one wake; a part of the funnel that asks nobody and does not wait.

use super::cancels::told_of;
use super::clock::Now;
use super::funnel::Funnel;
use super::reply_parts::busy_hint_ms;
use super::view::View;
use crate::admission::limits::Held;
use crate::protocol::{ActivityId, OrderNumber, Reply, Status, UserId};
use crate::stock::Standing;
use crate::stock::calls::Mark;

/// Where the answer to a CANCEL is.
#[derive(Debug)]
pub(super) enum Cancellable {
    Told((Status, u32, Reply)),
    /// The store is to be asked to cancel this order.
    AtTheStore(Mark),
}

impl Funnel {
    /// Whether a user's order may be cancelled. Whose order it is decides the read model: of another's, or of one that
    /// never was, nothing is told.
    pub(super) fn cancel(
        &self,
        now: Now,
        view: &View,
        (activity, user): (ActivityId, UserId),
        order: OrderNumber,
        held: Option<&Held>,
    ) -> Cancellable {
        if let Err(told) = self.question_rate(now, view.on_sale().rates(), user, held) {
            return Cancellable::Told(told);
        }
        if view.on_sale().is_archived(activity) {
            return Cancellable::Told((Status::Ended, 0, Reply::Empty));
        }
        // Asked before and after, as for RESULT.
        let was_fresh = self.board.is_fresh(now.mono_ms());
        let no_order = (Status::NoOrder, 0, Reply::Empty);
        Cancellable::Told(match self.buyers.standing(activity, user) {
            Some(Standing::Order(mark)) if mark.order != order => no_order,
            Some(Standing::Order(mark)) if mark.state.is_unpaid() => return Cancellable::AtTheStore(mark),
            Some(Standing::Order(mark)) => told_of(mark),
            Some(Standing::Unconfirmed(order_number)) => {
                (Status::Unconfirmed, busy_hint_ms(), Reply::Pending { order_number })
            }
            None if was_fresh && self.board.is_fresh(now.mono_ms()) && view.is_of(&self.buyers) => no_order,
            None => (Status::Unconfirmed, busy_hint_ms(), Reply::Pending { order_number: OrderNumber(0) }),
        })
    }
}
