//! The read model of marks: who holds which order in which activity.
//!
//! Written by the stock task (replies, feed, snapshots), read by every connection task for the duplicate rung and
//! RESULT. A guard of the map never lives longer than one method here. Marks only move forward.
//!
//! Nearly everybody who asks stands nowhere. So a filter of one bit per hash stands before the map: a bit that is not
//! set says so in one load, without the map's lock, which all threads would share. A bit that is set says nothing.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;

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

/// Bits of the filter (128 KiB: in a core's cache). With 100,000 buyers one absent user in eleven goes on to the map.
const FILTER_WORDS: usize = 16 * 1024;
const FILTER_BITS: u64 = 64 * 16 * 1024;

/// Everyone who stands somewhere. Winners are few, so it is small.
#[derive(Debug)]
pub struct Buyers {
    /// Bits are set before the map is written, and never taken back.
    filter: Box<[AtomicU64]>,
    standings: DashMap<(ActivityId, UserId), Standing, RandomState>,
}

impl Default for Buyers {
    fn default() -> Self {
        Self {
            filter: (0..FILTER_WORDS).map(|_| AtomicU64::new(0)).collect(),
            standings: DashMap::with_hasher(RandomState::default()),
        }
    }
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
        let (word, bit) = self.place(activity, user);
        // Relaxed: whoever must not miss a mark has read, with Acquire, what the stock task published after it.
        if word?.load(Ordering::Relaxed) & bit == 0 {
            return None;
        }
        self.standings.get(&(activity, user)).map(|found| *found)
    }

    /// Where the filter has the user's bit.
    fn place(&self, activity: ActivityId, user: UserId) -> (Option<&AtomicU64>, u64) {
        let hash = self.standings.hasher().hash_one((activity, user)) % FILTER_BITS;
        let word = usize::try_from(hash / 64).ok().and_then(|word| self.filter.get(word));
        (word, 1 << (hash % 64))
    }

    /// To be called before the map is written.
    fn open_filter(&self, activity: ActivityId, user: UserId) {
        if let (Some(word), bit) = self.place(activity, user) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
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
        self.open_filter(mark.sku.activity, user);
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
        self.open_filter(activity, user);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{SkuId, SkuKey};

    const ACTIVITY: ActivityId = ActivityId(1);
    const USER: UserId = UserId(7);

    fn mark(order: u64, attempt: u8, state: OrderState) -> Mark {
        let sku = SkuKey { activity: ACTIVITY, sku: SkuId(1) };
        Mark { order: OrderNumber(order), sku, quantity: 1, attempt, state, pay_by_ms: 0 }
    }

    #[test]
    fn marks_only_move_forward_and_a_higher_attempt_wins() {
        let buyers = Buyers::default();
        let steps = [
            (mark(1, 1, OrderState::Reserved), true),
            (mark(1, 1, OrderState::Reserved), false),
            (mark(1, 1, OrderState::Paid), true),
            (mark(1, 1, OrderState::PendingPayment), false),
            (mark(1, 1, OrderState::Closed), true),
            (mark(1, 1, OrderState::Reserved), false),
            (mark(2, 2, OrderState::Reserved), true),
            (mark(1, 1, OrderState::RefundDue), false),
        ];
        for (mark, is_news) in steps {
            assert_eq!(buyers.learn(USER, mark), is_news, "{mark:?}");
        }
        let newest = mark(2, 2, OrderState::Reserved);
        assert_eq!(buyers.standing(ACTIVITY, USER), Some(Standing::Order(newest)));
        assert_eq!((buyers.len(), buyers.standing(ActivityId(2), USER)), (1, None));
    }

    #[test]
    fn a_doubt_never_hides_an_order_and_only_its_own_refusal_ends_it() {
        let buyers = Buyers::default();
        buyers.doubt(ACTIVITY, USER, OrderNumber(1));
        buyers.doubt(ACTIVITY, USER, OrderNumber(2));
        buyers.resolve_refused(ACTIVITY, USER, OrderNumber(2));
        assert_eq!(buyers.standing(ACTIVITY, USER), Some(Standing::Unconfirmed(OrderNumber(1))));
        buyers.resolve_refused(ACTIVITY, USER, OrderNumber(1));
        assert!(buyers.is_empty());
        buyers.doubt(ACTIVITY, USER, OrderNumber(3));
        assert!(buyers.learn(USER, mark(3, 1, OrderState::Reserved)), "an order ends the doubt");
        buyers.doubt(ACTIVITY, USER, OrderNumber(4));
        buyers.resolve_refused(ACTIVITY, USER, OrderNumber(3));
        assert!(matches!(buyers.standing(ACTIVITY, USER), Some(Standing::Order(_))));
    }

    #[test]
    fn a_new_generation_forgets_orders_but_no_doubt() {
        let buyers = Buyers::default();
        buyers.learn(USER, mark(1, 1, OrderState::Paid));
        buyers.doubt(ACTIVITY, UserId(8), OrderNumber(2));
        buyers.forget();
        assert_eq!(buyers.standing(ACTIVITY, USER), None);
        assert_eq!(buyers.standing(ACTIVITY, UserId(8)), Some(Standing::Unconfirmed(OrderNumber(2))));
    }
}
