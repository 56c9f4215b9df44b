//! The read model of marks: who holds which order in which activity.
//!
//! Written by the stock task (replies, feed, snapshots), read by every connection task for the duplicate rung and
//! RESULT. A guard of the map never lives longer than one method here. Marks only move forward.

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::calls::Mark;
use crate::protocol::{ActivityId, OrderNumber, OrderState, UserId};

/// Where a user stands in an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// He has, or had, this order.
    Order(Mark),
    /// He was told UNCONFIRMED and the outcome is not known yet.
    Unconfirmed(OrderNumber),
}

/// Everyone who stands somewhere. Winners are few, so it is small.
#[derive(Debug, Default)]
pub struct Buyers {
    standings: DashMap<(ActivityId, UserId), Standing>,
}

/// How far along an order is; a mark never goes to a lower one.
const fn rank(state: OrderState) -> u8 {
    match state {
        OrderState::Reserved => 0,
        OrderState::Recorded => 1,
        OrderState::PendingPayment => 2,
        OrderState::Paid => 3,
        OrderState::Closed | OrderState::Failed => 4,
        OrderState::RefundDue => 5,
    }
}

impl Buyers {
    /// Where the user stands.
    pub fn standing(&self, activity: ActivityId, user: UserId) -> Option<Standing> {
        self.standings.get(&(activity, user)).map(|found| *found)
    }

    /// How many stand somewhere.
    pub fn len(&self) -> usize {
        self.standings.len()
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.standings.is_empty()
    }

    /// Takes in a mark; true if it told something new. Higher attempts win, then the state further along.
    pub(super) fn learn(&self, user: UserId, mark: Mark) -> bool {
        match self.standings.entry((mark.sku.activity, user)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Standing::Order(mark));
                true
            }
            Entry::Occupied(mut occupied) => {
                let newer = match occupied.get() {
                    Standing::Unconfirmed(_) => true,
                    Standing::Order(known) => {
                        (known.attempt, rank(known.state)) < (mark.attempt, rank(mark.state))
                    }
                };
                if newer {
                    occupied.insert(Standing::Order(mark));
                }
                newer
            }
        }
    }

    /// Notes that the user was told UNCONFIRMED, unless more is known already.
    pub(super) fn doubt(&self, activity: ActivityId, user: UserId, order: OrderNumber) {
        self.standings.entry((activity, user)).or_insert(Standing::Unconfirmed(order));
    }

    /// The doubtful order turned out not to exist.
    pub(super) fn resolve_refused(&self, activity: ActivityId, user: UserId, order: OrderNumber) {
        self.standings.remove_if(&(activity, user), |_, standing| *standing == Standing::Unconfirmed(order));
    }

    /// Forgets all marks: a new generation starts them anew. What is in doubt stays so.
    pub(super) fn forget(&self) {
        self.standings.retain(|_, standing| matches!(standing, Standing::Unconfirmed(_)));
    }
}
