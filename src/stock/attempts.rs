//! Who may buy again after his order was closed, and under which number of attempt.
//!
//! Part of the engine. Whether is a matter of the activity, told by the stock task as it learns of changes; which number
//! follows from the user's mark, and the shard takes that one alone: of two gateways that let one user buy again, and of
//! what one of them sends late, no more than one can win.

use super::again::Again;
use super::buyers::Standing;
use super::calls::Mark;
use super::engine::Stock;
use crate::protocol::{ActivityId, UserId};

impl<T> Stock<T> {
    /// From now on a user may buy again so often, by activity, after his order was closed.
    pub fn set_again(&mut self, max: impl Fn(ActivityId) -> u8 + Send + Sync + 'static) {
        self.again = Again::new(max);
    }

    /// Whether the activity sells again to whoever's order was closed.
    pub(super) fn sells_again(&self, activity: ActivityId) -> bool {
        self.again.max(activity) > 0
    }

    /// The attempt that an order of this user has, made now.
    pub(super) fn attempt_of(&self, activity: ActivityId, user: UserId) -> u8 {
        match self.buyers.standing(activity, user) {
            Some(Standing::Order(mark)) if !mark.state.is_live() => self.attempt_after(&mark).unwrap_or(1),
            Some(Standing::Order(_) | Standing::Unconfirmed(_)) | None => 1,
        }
    }

    /// The attempt that follows an order which is over, if there may be one. A promise that was broken is in no shard,
    /// so that its number is still to be had there.
    pub(super) fn attempt_after(&self, over: &Mark) -> Option<u8> {
        let max = self.again.max(over.sku.activity);
        let next =
            if self.recoveries.is_broken(over.order) { over.attempt } else { over.attempt.checked_add(1)? };
        (max > 0 && next <= max.saturating_add(1)).then_some(next)
    }
}
