//! The read model of marks: who holds which order in which activity.
//!
//! Written by the stock task (replies, feed, snapshots), read by every connection task for the duplicate rung and
//! RESULT. A guard of the map never lives longer than one method here. Marks only move forward.
//!
//! Nearly everybody who asks stands nowhere. So a filter of one bit per hash stands before the map: a bit that is not
//! set says so in one load, without the map's lock, which all threads would share. A bit that is set says nothing.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::{Entry, OccupiedEntry};
use foldhash::fast::RandomState;

use super::calls::{Mark, ShardId};
use crate::protocol::{ActivityId, OrderNumber, OrderState, UserId};

/// Where a user stands in an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// He has, or had, this order.
    Order(Mark),
    /// He was told UNCONFIRMED and the outcome is not known yet.
    Unconfirmed(OrderNumber),
}

/// What a start anew brought.
#[derive(Debug)]
pub(super) struct Anew {
    /// Marks that differ from what was known.
    pub(super) news: Vec<(UserId, Mark)>,
    /// Marks to be kept that the shard does not hold.
    pub(super) missing: Vec<(UserId, Mark)>,
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
    /// The last order, which is over, of whoever is in doubt about the next: so few that it is seldom looked into. Locked
    /// behind the other map, never before it.
    over: DashMap<(ActivityId, UserId), Mark, RandomState>,
    /// Raised before orders of archived activities are forgotten.
    forgettings: AtomicU64,
}

impl Default for Buyers {
    fn default() -> Self {
        Self {
            filter: (0..FILTER_WORDS).map(|_| AtomicU64::new(0)).collect(),
            standings: DashMap::with_hasher(RandomState::default()),
            over: DashMap::with_hasher(RandomState::default()),
            forgettings: AtomicU64::new(0),
        }
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

    /// Takes in a mark; true if it told something new.
    pub(super) fn learn(&self, user: UserId, mark: Mark) -> bool {
        self.open_filter(mark.sku.activity, user);
        match self.standings.entry((mark.sku.activity, user)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Standing::Order(mark));
                true
            }
            Entry::Occupied(mut occupied) => {
                let key = *occupied.key();
                match *occupied.get() {
                    Standing::Unconfirmed(order) if ends_no_doubt(&mark, order) => {
                        let known = self.over.get(&key).map(|known| *known);
                        let newer = known.is_none_or(|known| is_newer(&mark, &known));
                        if newer {
                            self.over.insert(key, mark);
                        }
                        newer
                    }
                    Standing::Order(known) if !is_newer(&mark, &known) => false,
                    Standing::Order(_) | Standing::Unconfirmed(_) => {
                        self.tell_of(&mut occupied, mark);
                        true
                    }
                }
            }
        }
    }

    /// The user stands so from now on, without a doubt.
    fn tell_of(&self, occupied: &mut OccupiedEntry<'_, (ActivityId, UserId), Standing>, mark: Mark) {
        if matches!(occupied.insert(Standing::Order(mark)), Standing::Unconfirmed(_)) {
            self.over.remove(occupied.key());
        }
    }

    /// Notes that the user was told UNCONFIRMED, unless an order of his is known that stands.
    pub(super) fn doubt(&self, activity: ActivityId, user: UserId, order: OrderNumber) {
        self.open_filter(activity, user);
        match self.standings.entry((activity, user)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Standing::Unconfirmed(order));
            }
            Entry::Occupied(mut occupied) => {
                if let Standing::Order(known) = *occupied.get()
                    && ends_no_doubt(&known, order)
                {
                    self.over.insert(*occupied.key(), known);
                    occupied.insert(Standing::Unconfirmed(order));
                }
            }
        }
    }

    /// The doubtful order turned out not to exist: what was there before counts.
    pub(super) fn resolve_refused(&self, activity: ActivityId, user: UserId, order: OrderNumber) {
        let Entry::Occupied(mut occupied) = self.standings.entry((activity, user)) else { return };
        if *occupied.get() != Standing::Unconfirmed(order) {
            return;
        }
        match self.over.remove(occupied.key()) {
            Some((_, over)) => drop(occupied.insert(Standing::Order(over))),
            None => drop(occupied.remove()),
        }
    }

    /// The marks asked for, in order.
    pub(super) fn marks(&self, is_wanted: impl Fn(UserId, &Mark) -> bool) -> Vec<(UserId, Mark)> {
        let wanted = self.standings.iter().filter_map(|entry| match *entry.value() {
            Standing::Order(mark) if is_wanted(entry.key().1, &mark) => Some((entry.key().1, mark)),
            Standing::Order(_) | Standing::Unconfirmed(_) => None,
        });
        let mut wanted: Vec<(UserId, Mark)> = wanted.collect();
        wanted.sort_unstable_by_key(|(user, mark)| (user.0, mark.order.0));
        wanted
    }

    /// Reservations that nobody has settled yet, as far as is known here.
    pub fn unsettled(&self) -> Vec<(UserId, Mark)> {
        self.marks(|_, mark| mark.state == OrderState::Reserved)
    }

    /// The first that is told of a shard under a new generation: its marks are these, all others are forgotten. What
    /// is in doubt stays so, and so do marks to be kept that are missing, unless the shard holds another order of the
    /// user that is not an earlier one.
    pub(super) fn start_anew(
        &self,
        shard: ShardId,
        marks: &[(UserId, Mark)],
        is_kept: impl Fn(&Mark) -> bool,
    ) -> Anew {
        let told: HashMap<_, Mark> =
            marks.iter().map(|(user, mark)| ((mark.sku.activity, *user), *mark)).collect();
        let mut missing = Vec::new();
        // Who is in doubt stays so; which order of his is over, the shard tells anew.
        self.over.retain(|buyer, _| ShardId::of(buyer.1) != shard);
        self.standings.retain(|buyer, standing| {
            let Standing::Order(known) = *standing else { return true };
            if ShardId::of(buyer.1) != shard {
                return true;
            }
            let now = told.get(buyer);
            let is_missing = now.is_none_or(|now| now.order != known.order && now.attempt <= known.attempt);
            if is_missing && is_kept(&known) {
                missing.push((buyer.1, known));
                return true;
            }
            // A later attempt that the shard does not know is lost like any other order.
            now.is_some_and(|now| now.attempt >= known.attempt)
        });
        missing.sort_unstable_by_key(|(user, mark)| (user.0, mark.order.0));
        let news = marks.iter().filter(|(user, mark)| self.replace(*user, *mark)).copied().collect();
        Anew { news, missing }
    }

    /// Puts a mark in place of what was known, unless that is a later attempt; true if it told something new.
    fn replace(&self, user: UserId, mark: Mark) -> bool {
        self.open_filter(mark.sku.activity, user);
        match self.standings.entry((mark.sku.activity, user)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Standing::Order(mark));
                true
            }
            Entry::Occupied(mut occupied) => {
                let is_news = match *occupied.get() {
                    Standing::Order(known) if known.attempt > mark.attempt => return false,
                    Standing::Order(known) => (known.order, known.state) != (mark.order, mark.state),
                    Standing::Unconfirmed(order) if ends_no_doubt(&mark, order) => {
                        self.over.insert(*occupied.key(), mark);
                        return true;
                    }
                    Standing::Unconfirmed(_) => true,
                };
                self.tell_of(&mut occupied, mark);
                is_news
            }
        }
    }

    /// Forgets everybody who stands in such an activity.
    pub(super) fn forget(&self, is_archived: impl Fn(ActivityId) -> bool) {
        if !self.standings.iter().any(|entry| is_archived(entry.key().0)) {
            return;
        }
        // Before: whoever does not find a user for this sees that it was.
        self.forgettings.fetch_add(1, Ordering::Release);
        self.standings.retain(|(activity, _), _| !is_archived(*activity));
        self.over.retain(|(activity, _), _| !is_archived(*activity));
    }

    /// How often orders were forgotten. If it is the same before and after somebody was not found, he was not forgotten
    /// in between.
    pub fn forgettings(&self) -> u64 {
        self.forgettings.load(Ordering::Acquire)
    }

    /// What became of an order of which only this process knew; another that stands by now is left.
    pub(super) fn end(&self, user: UserId, mark: Mark) {
        self.open_filter(mark.sku.activity, user);
        match self.standings.entry((mark.sku.activity, user)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Standing::Order(mark));
            }
            Entry::Occupied(mut occupied) => match *occupied.get() {
                Standing::Order(known) if known.order != mark.order => {}
                Standing::Unconfirmed(order) if order != mark.order => {}
                Standing::Order(_) | Standing::Unconfirmed(_) => self.tell_of(&mut occupied, mark),
            },
        }
    }
}

/// An order that is over says nothing of another one: where its user may buy again, that one may stand.
fn ends_no_doubt(mark: &Mark, doubtful: OrderNumber) -> bool {
    mark.order != doubtful && !mark.state.is_live()
}

/// Higher attempts are, then the state further along. Two orders under one attempt are never in a shard; the one told last
/// replaces one that a recovery has lost.
fn is_newer(mark: &Mark, known: &Mark) -> bool {
    if known.attempt == mark.attempt && known.order != mark.order {
        return true;
    }
    (known.attempt, known.state.rank()) < (mark.attempt, mark.state.rank())
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
    fn whoever_is_noted_is_found_however_that_came_about() {
        let [learnt, doubtful, told, ended] = neighbours();
        let buyers = Buyers::default();
        buyers.learn(learnt, mark(1, 1, OrderState::Reserved));
        buyers.doubt(ACTIVITY, doubtful, OrderNumber(2));
        let marks = [(learnt, mark(1, 1, OrderState::Reserved)), (told, mark(3, 1, OrderState::Reserved))];
        buyers.start_anew(ShardId::of(USER), &marks, |_| false);
        buyers.end(ended, mark(4, 1, OrderState::Failed));
        for user in [learnt, doubtful, told, ended] {
            assert!(buyers.standing(ACTIVITY, user).is_some(), "user {user}");
        }
    }

    /// Users of one shard.
    fn neighbours() -> [UserId; 4] {
        let of_shard = (1..=u64::MAX).map(UserId).filter(|user| ShardId::of(*user) == ShardId::of(USER));
        let mut users = [USER; 4];
        for (place, user) in users.iter_mut().zip(of_shard) {
            *place = user;
        }
        users
    }

    #[test]
    fn a_start_anew_forgets_what_the_shard_does_not_hold_but_no_doubt_and_nothing_to_be_kept() {
        let (buyers, [a, b, c, d], shard) = (Buyers::default(), neighbours(), ShardId::of(USER));
        let other = (1..=u64::MAX).map(UserId).find(|user| ShardId::of(*user) != shard).unwrap_or(USER);
        for (user, order) in [(a, 1), (b, 2), (c, 3), (other, 5)] {
            buyers.learn(user, mark(order, 1, OrderState::Reserved));
        }
        buyers.doubt(ACTIVITY, d, OrderNumber(4));
        let now = [(a, mark(1, 1, OrderState::Reserved)), (USER, mark(7, 1, OrderState::Reserved))];
        let anew = buyers.start_anew(shard, &now[..1], |known| known.order == OrderNumber(2));
        assert_eq!((anew.news, anew.missing), (vec![], vec![(b, mark(2, 1, OrderState::Reserved))]));
        let order = |user| match buyers.standing(ACTIVITY, user) {
            Some(Standing::Order(mark)) => Some(mark.order.0),
            _ => None,
        };
        assert_eq!([a, b, c, other].map(order), [Some(1), Some(2), None, Some(5)]);
        assert_eq!(buyers.standing(ACTIVITY, d), Some(Standing::Unconfirmed(OrderNumber(4))));
        // Another order of the same attempt stands in the shard: that one is told of, and the first is still missed.
        let taken = [(b, mark(9, 1, OrderState::Reserved))];
        let anew = buyers.start_anew(shard, &taken, |known| known.order == OrderNumber(2));
        assert_eq!(anew.missing, [(b, mark(2, 1, OrderState::Reserved))]);
        assert_eq!((anew.news, order(b), order(a)), (taken.to_vec(), Some(9), None));
        buyers.end(b, mark(2, 1, OrderState::Failed));
        assert_eq!(order(b), Some(9), "the end of the lost one does not hide the other");
    }

    #[test]
    fn an_order_that_is_over_ends_no_doubt_about_the_next_and_counts_again_when_there_is_none() {
        let (buyers, doubtful) = (Buyers::default(), Some(Standing::Unconfirmed(OrderNumber(2))));
        let (closed, second) = (mark(1, 1, OrderState::Closed), mark(2, 2, OrderState::Reserved));
        let standing = || buyers.standing(ACTIVITY, USER);
        buyers.learn(USER, closed);
        for _ in 0..2 {
            buyers.doubt(ACTIVITY, USER, OrderNumber(2));
            assert_eq!(standing(), doubtful);
            let refund = mark(1, 1, OrderState::RefundDue);
            assert!(buyers.learn(USER, refund) || buyers.over.get(&(ACTIVITY, USER)).is_some());
            assert!(!buyers.learn(USER, closed), "old news");
            assert_eq!(standing(), doubtful);
            buyers.resolve_refused(ACTIVITY, USER, OrderNumber(3));
            buyers.resolve_refused(ACTIVITY, USER, OrderNumber(2));
            assert_eq!(standing(), Some(Standing::Order(refund)));
        }
        // Whoever tells first that it was closed, an attempt later: the doubt is about another one.
        buyers.doubt(ACTIVITY, USER, OrderNumber(2));
        let anew = buyers.start_anew(ShardId::of(USER), &[(USER, closed)], |_| false);
        assert_eq!((anew.news.len(), standing()), (1, doubtful));
        assert!(buyers.learn(USER, second));
        assert_eq!((standing(), buyers.over.len()), (Some(Standing::Order(second)), 0));
        buyers.doubt(ACTIVITY, USER, OrderNumber(3));
        assert_eq!(standing(), Some(Standing::Order(second)), "it stands");
    }

    #[test]
    fn a_later_attempt_that_a_recovery_has_lost_gives_way_to_what_the_shard_holds() {
        let (buyers, closed) = (Buyers::default(), mark(1, 1, OrderState::Closed));
        let lost = mark(2, 2, OrderState::Reserved);
        for kept in [false, true] {
            buyers.learn(USER, lost);
            let anew = buyers.start_anew(ShardId::of(USER), &[(USER, closed)], |_| kept);
            let stands = if kept { lost } else { closed };
            assert_eq!(buyers.standing(ACTIVITY, USER), Some(Standing::Order(stands)), "{kept}");
            assert_eq!(anew.missing.len(), usize::from(kept));
        }
    }
}
