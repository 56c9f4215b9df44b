//! BUYs that are counted towards the caps on open unpaid reservations: those under way, and of devices those that may have
//! come to an order.
//!
//! What is open and unpaid is told by the buyers, never by this book: it says where to look. So nothing in it has to be
//! taken back when an order is paid, closed or fails, and nothing can stay counted. Written by connections as a BUY passes
//! the funnel and by the stock task as it is answered, only while a cap is in force; no guard of the map outlives a
//! method. A timer forgets what counts no more. It is bounded: of holders beyond the bound nothing is kept, and they are
//! not held to what only this book knows.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;

use crate::admission::limits::OpenUnpaidMax;
use crate::protocol::{ActivityId, UserId};

/// BUYs remembered of each holder.
pub(super) const BIDS_MAX: usize = OpenUnpaidMax::PER_DEVICE_MAX as usize;
/// Users and devices remembered, together: some 30 MB.
const HOLDERS_MAX: usize = 131_072;
/// A BUY that nobody has answered for so long is not under way any more.
const WAITS_MS_MAX: u64 = 60_000;

/// Whose BUYs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    User(UserId),
    /// By its name's hash.
    Device(u64),
}

/// A BUY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bid {
    pub(super) activity: ActivityId,
    pub(super) user: UserId,
    /// Since when it waits for its answer; 0 = it has it.
    waits_since_ms: u64,
}

impl Bid {
    pub(super) const fn new(activity: ActivityId, user: UserId, now_ms: u64) -> Self {
        Self { activity, user, waits_since_ms: now_ms.saturating_add(1) }
    }

    /// Whether it is under way.
    pub(super) const fn waits(&self, now_ms: u64) -> bool {
        self.waits_since_ms > 0 && now_ms < self.waits_since_ms.saturating_add(WAITS_MS_MAX)
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.activity, self.user) == (other.activity, other.user)
    }
}

pub(super) type Bids = [Option<Bid>; BIDS_MAX];

/// What a ticket is counted under until its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) activity: ActivityId,
    pub(super) user: UserId,
    pub(super) by_user: bool,
    pub(super) device: Option<u64>,
}

impl Counted {
    fn holders(&self) -> impl Iterator<Item = Holder> {
        let user = self.by_user.then_some(Holder::User(self.user));
        user.into_iter().chain(self.device.map(Holder::Device))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UnpaidBook {
    bids: DashMap<Holder, Bids, RandomState>,
    holders: AtomicUsize,
    names: RandomState,
}

impl UnpaidBook {
    /// The number of a device.
    pub(super) fn device(&self, name: &str) -> u64 {
        self.names.hash_one(name)
    }

    /// What is remembered of a holder.
    pub(super) fn of(&self, holder: Holder) -> Bids {
        self.bids.get(&holder).map_or([None; BIDS_MAX], |found| *found)
    }

    /// Notes a BUY that is under way, in the place of the same one, in an empty place, or in that of one which is over. If
    /// there is none, it is not noted.
    pub(super) fn enter(&self, holder: Holder, bid: Bid, over: Option<Bid>) {
        match self.bids.entry(holder) {
            Entry::Occupied(mut known) => {
                let places = known.get_mut();
                let of_same = |place: &Option<Bid>| place.is_some_and(|one| one.is_same(&bid));
                let at = places.iter().position(of_same);
                let at = at.or_else(|| places.iter().position(Option::is_none));
                let at = at.or_else(|| places.iter().position(|place| place.is_some() && *place == over));
                if let Some(place) = at.and_then(|at| places.get_mut(at)) {
                    *place = Some(bid);
                }
            }
            Entry::Vacant(vacant) => {
                if self.holders.load(Ordering::Relaxed) < HOLDERS_MAX {
                    self.holders.fetch_add(1, Ordering::Relaxed);
                    let mut places = [None; BIDS_MAX];
                    if let Some(first) = places.first_mut() {
                        *first = Some(bid);
                    }
                    vacant.insert(places);
                }
            }
        }
    }

    /// The BUY has its answer. Of a user nothing is kept beyond that: the buyers know all that he holds.
    pub(super) fn answered(&self, counted: &Counted) {
        for holder in counted.holders() {
            let Entry::Occupied(mut known) = self.bids.entry(holder) else { continue };
            let is_his = |bid: &Bid| (bid.activity, bid.user) == (counted.activity, counted.user);
            for place in known.get_mut().iter_mut().filter(|place| place.is_some_and(|bid| is_his(&bid))) {
                *place = match (holder, *place) {
                    (Holder::Device(_), Some(bid)) => Some(Bid { waits_since_ms: 0, ..bid }),
                    (Holder::Device(_) | Holder::User(_), _) => None,
                };
            }
            if known.get().iter().all(Option::is_none) {
                known.remove();
                self.holders.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Forgets what neither is under way nor is open, by what the caller says. For a timer task; each lock shard is held
    /// while it is scanned.
    pub(super) fn retain(&self, now_ms: u64, is_open: impl Fn(&Bid) -> bool) {
        let mut forgotten = 0_usize;
        self.bids.retain(|_, places| {
            for place in places.iter_mut() {
                *place = place.filter(|bid| bid.waits(now_ms) || is_open(bid));
            }
            let is_kept = places.iter().any(Option::is_some);
            forgotten = forgotten.saturating_add(usize::from(!is_kept));
            is_kept
        });
        self.holders.fetch_sub(forgotten, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        reason = "tests"
    )]

    use super::*;

    const DEVICE: Holder = Holder::Device(5);

    fn bid(nth: u32, now_ms: u64) -> Bid {
        Bid::new(ActivityId(nth), UserId(u64::from(nth)), now_ms)
    }

    fn counted(nth: u32) -> Counted {
        Counted { activity: ActivityId(nth), user: UserId(u64::from(nth)), by_user: true, device: Some(5) }
    }

    #[test]
    fn a_user_is_forgotten_with_his_answer_and_a_device_when_nothing_of_it_is_open() {
        let book = UnpaidBook::default();
        book.enter(Holder::User(UserId(1)), bid(1, 0), None);
        book.enter(DEVICE, bid(1, 0), None);
        assert!(book.of(DEVICE)[0].is_some_and(|bid| bid.waits(0) && !bid.waits(60_001)));
        book.answered(&counted(1));
        assert_eq!(book.of(Holder::User(UserId(1))), [None; BIDS_MAX]);
        assert!(book.of(DEVICE)[0].is_some_and(|bid| !bid.waits(0)));
        assert_eq!(book.holders.load(Ordering::Relaxed), 1);
        book.retain(0, |_| true);
        assert!(book.of(DEVICE)[0].is_some());
        book.retain(0, |_| false);
        assert_eq!((book.of(DEVICE), book.holders.load(Ordering::Relaxed)), ([None; BIDS_MAX], 0));
    }

    #[test]
    fn a_place_is_taken_by_the_same_or_of_one_that_is_over_and_of_no_other() {
        let book = UnpaidBook::default();
        for nth in 1..=BIDS_MAX as u32 {
            book.enter(DEVICE, bid(nth, 0), None);
            book.enter(DEVICE, bid(nth, 3), None);
        }
        let full = book.of(DEVICE);
        assert!(full.iter().all(Option::is_some));
        book.enter(DEVICE, bid(99, 0), None);
        book.enter(DEVICE, bid(99, 0), Some(bid(98, 0)));
        assert_eq!(book.of(DEVICE), full);
        book.enter(DEVICE, bid(99, 0), full[2]);
        assert_eq!(book.of(DEVICE)[2], Some(bid(99, 0)));
    }

    #[test]
    fn it_is_bounded_and_has_room_again_when_something_is_over() {
        let book = UnpaidBook::default();
        for nth in 0..HOLDERS_MAX as u64 + 10 {
            book.enter(Holder::Device(nth), bid(1, 0), None);
        }
        assert_eq!(book.bids.len(), HOLDERS_MAX);
        book.retain(100_000, |_| false);
        book.enter(DEVICE, bid(1, 100_000), None);
        assert_eq!(book.bids.len(), 1);
    }
}
