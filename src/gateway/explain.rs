//! What became of a user's last BUY on this gateway: by which rung, with what status, when.
//!
//! For whoever asks why somebody was turned away. A table of fixed size that the workers write in passing: a place for each
//! user, by a number that is made of his id without loss, so that what does not choose the place tells whose it is. Who
//! comes later to the same place takes it. Two plain stores a BUY, no lock; whoever reads between them may see the time
//! and activity of another user's.

use std::sync::atomic::{AtomicU64, Ordering};

use super::counters::Rung;
use crate::protocol::{ActivityId, Status, UserId};

/// Fewer places leave a user's number too long for what is kept beside it.
const PLACE_BITS_MIN: u32 = RUNG_BITS + STATUS_BITS;
const RUNG_BITS: u32 = 6;
const STATUS_BITS: u32 = 7;

/// What became of a BUY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBuy {
    /// Where it ended; [`Rung::Passed`]: with the stock task, which answered it.
    pub rung: Rung,
    /// What was answered; OK where the stock task was to answer.
    pub status: Status,
    /// What he wanted to buy in.
    pub activity: ActivityId,
    /// When, in Unix seconds of the sale clock.
    pub at_s: u32,
}

#[derive(Debug, Default)]
struct Place {
    /// The rest of the user's number, rung, status.
    what: AtomicU64,
    /// Activity, seconds.
    when: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Explain {
    places: Box<[Place]>,
    place_bits: u32,
}

impl Explain {
    /// For about so many users, rounded up to a power of two; 0 = none.
    pub(super) fn new(users: usize) -> Self {
        if users == 0 {
            return Self { places: Box::default(), place_bits: 0 };
        }
        let place_bits = users.next_power_of_two().trailing_zeros().max(PLACE_BITS_MIN);
        let places = 1_usize.checked_shl(place_bits).unwrap_or_default();
        Self { places: (0..places).map(|_| Place::default()).collect(), place_bits }
    }

    /// Remembers it in place of what was there.
    pub(super) fn remember(&self, user: UserId, buy: LastBuy) {
        let Some((place, rest)) = self.place(user) else { return };
        let rung = u64::try_from(buy.rung as usize).unwrap_or_default();
        let what = rest << PLACE_BITS_MIN | rung << STATUS_BITS | short(buy.status);
        place.what.store(what, Ordering::Relaxed);
        place.when.store(u64::from(buy.activity.0) << 32 | u64::from(buy.at_s), Ordering::Relaxed);
    }

    /// Fetches a user's place, for a [`remember`](Self::remember) soon.
    pub(super) fn warm(&self, user: UserId) {
        if let Some((place, _)) = self.place(user) {
            std::hint::black_box(place.what.load(Ordering::Relaxed));
        }
    }

    /// What is remembered of a user.
    pub(super) fn of(&self, user: UserId) -> Option<LastBuy> {
        let (place, rest) = self.place(user)?;
        let (what, when) = (place.what.load(Ordering::Relaxed), place.when.load(Ordering::Relaxed));
        let activity = ActivityId(u32::try_from(when >> 32).unwrap_or_default());
        if what >> PLACE_BITS_MIN != rest || activity.0 == 0 {
            return None;
        }
        let rung = usize::try_from(what >> STATUS_BITS & ((1 << RUNG_BITS) - 1)).unwrap_or_default();
        let status = what & ((1 << STATUS_BITS) - 1);
        Some(LastBuy {
            rung: Rung::ALL.iter().copied().find(|known| *known as usize == rung)?,
            status: Status::ALL.iter().copied().find(|known| short(*known) == status)?,
            activity,
            at_s: u32::try_from(when & u64::from(u32::MAX)).unwrap_or_default(),
        })
    }

    fn place(&self, user: UserId) -> Option<(&Place, u64)> {
        let number = mixed(user.0);
        let place = number.checked_shr(64_u32.saturating_sub(self.place_bits)).unwrap_or_default();
        let rest = number & u64::MAX.checked_shr(self.place_bits).unwrap_or_default();
        self.places.get(usize::try_from(place).ok()?).map(|place| (place, rest))
    }
}

/// Class and number in the class.
fn short(status: Status) -> u64 {
    let code = u64::from(status.code());
    code >> 12 << 4 | code & 0xF
}

/// splitmix64's last steps: each number has one of its own, and neighbours are far apart.
const fn mixed(id: u64) -> u64 {
    let id = (id ^ (id >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let id = (id ^ (id >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    id ^ (id >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;

    fn buy(rung: Rung, status: Status, activity: u32, at_s: u32) -> LastBuy {
        LastBuy { rung, status, activity: ActivityId(activity), at_s }
    }

    #[test]
    fn every_rung_and_status_comes_back_and_the_last_one_counts() {
        let explain = Explain::new(1);
        let user = UserId(UserId::MAX);
        assert_eq!(explain.of(user), None);
        for (rung, status) in
            Rung::ALL.iter().flat_map(|rung| Status::ALL.iter().map(move |status| (*rung, *status)))
        {
            let last = buy(rung, status, u32::MAX, u32::MAX);
            explain.remember(user, last);
            assert_eq!(explain.of(user), Some(last));
        }
        assert!(Rung::ALL.len() < 1 << RUNG_BITS);
    }

    #[test]
    fn nobody_is_told_what_became_of_another() {
        let explain = Explain::new(8192);
        let users = || (1..=50_000_u64).map(UserId);
        for user in users() {
            let at_s = u32::try_from(user.0).unwrap();
            explain.remember(user, buy(Rung::Stock, Status::SoldOut, 7, at_s));
        }
        let told = users().filter_map(|user| Some((user, explain.of(user)?)));
        let told: Vec<_> = told.inspect(|(user, buy)| assert_eq!(u64::from(buy.at_s), user.0)).collect();
        assert!(told.len() > 8_000, "{}", told.len());
    }

    #[test]
    fn it_can_be_off() {
        let explain = Explain::new(0);
        explain.remember(UserId(1), buy(Rung::Stock, Status::SoldOut, 7, 1));
        assert_eq!(explain.of(UserId(1)), None);
    }
}
