//! Behaviour: how many requests a user makes a minute, over all his connections of this gateway, and when that is too
//! many. It turns nobody away: who makes too many is flagged, and the risk lists do the rest on all gateways.
//!
//! Each user has a leaking bucket: every request adds one, and so many a minute leak out. Above `burst` he is to be
//! slowed; who goes on, until there are `block_after` more in it, is to be blocked. Who stops, or keeps to the rate, is
//! free again when his flag has passed.
//!
//! Runs on the gateway's worker threads, on the way of every request: one line of memory, no lock, no allocation; time is
//! an argument. Nothing here fails: see `buckets` for what happens when there are too many users.

mod buckets;

use std::time::Duration;

use self::buckets::Buckets;
use super::flag::{Flag, Why};
use super::risk::{Effect, Subject};
use crate::protocol::UserId;

/// How many requests are too many, and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BehaviourRules {
    /// Requests a minute that one user may go on with; 0 = any number. At most [`Self::PER_MINUTE_MAX`].
    pub per_minute: u32,
    /// At once, after a rest.
    pub burst: u32,
    /// For how long he is slowed who makes more.
    pub slow_for: Duration,
    /// So many more, and he is blocked.
    pub block_after: u32,
    /// For how long.
    pub block_for: Duration,
}

impl BehaviourRules {
    /// Faster than that a bucket does not leak.
    pub const PER_MINUTE_MAX: u32 = 60_000;
    /// More than that a bucket does not hold, of `burst` and of `block_after`.
    pub const REQUESTS_MAX: u32 = 1_000_000_000;
}

impl Default for BehaviourRules {
    fn default() -> Self {
        Self {
            per_minute: 0,
            burst: 120,
            slow_for: Duration::from_secs(60),
            block_after: 240,
            block_for: Duration::from_secs(600),
        }
    }
}

/// The buckets of all users.
#[derive(Debug)]
pub struct Behaviour(Option<Watch>);

#[derive(Debug)]
struct Watch {
    rules: BehaviourRules,
    /// Ticks in which one request leaks out.
    interval: u64,
    /// Ticks until a bucket at its bound is empty, for either bound.
    slow_above: u64,
    block_above: u64,
    buckets: Buckets,
}

impl Behaviour {
    /// Nobody has asked for anything yet. Takes 8 MiB, or nothing where any number may be.
    pub fn new(rules: BehaviourRules) -> Self {
        let per_minute = u64::from(rules.per_minute.min(BehaviourRules::PER_MINUTE_MAX));
        let Some(interval) = (60 * buckets::TICKS_PER_S).checked_div(per_minute) else { return Self(None) };
        let bounded = |requests: u32| u64::from(requests.clamp(1, BehaviourRules::REQUESTS_MAX));
        let slow_above = bounded(rules.burst).saturating_mul(interval);
        let block_above = slow_above.saturating_add(bounded(rules.block_after).saturating_mul(interval));
        let buckets = Buckets::new(block_above.saturating_add(interval));
        Self(Some(Watch { rules, interval, slow_above, block_above, buckets }))
    }

    /// A user makes a request at this time (nanoseconds of a clock that does not go back); what comes of it.
    #[inline]
    pub fn request(&self, now_ns: u64, user: UserId) -> Option<Flag> {
        let watch = self.0.as_ref()?;
        watch.request(now_ns, user)
    }
}

impl Behaviour {
    /// Says that [`request`](Self::request) will be asked of this user soon. Changes no outcome: said of many users in a
    /// row, it makes what is asked of them cheaper.
    pub fn warm(&self, user: UserId) {
        if let Some(watch) = &self.0 {
            watch.buckets.warm(user);
        }
    }
}

impl Watch {
    fn request(&self, now_ns: u64, user: UserId) -> Option<Flag> {
        let mut crossed = None;
        self.buckets.update(now_ns, user, |level| {
            let next = level.saturating_add(self.interval);
            if next > self.block_above {
                crossed = Some(Effect::Block);
                // From here on as many more again, before he is blocked anew.
                return self.slow_above.saturating_add(self.interval);
            }
            let is_first_above = level <= self.slow_above && next > self.slow_above;
            crossed = is_first_above.then_some(Effect::Slow);
            next
        });
        crossed.map(|effect| self.flag(user, effect))
    }

    #[cold]
    fn flag(&self, user: UserId, effect: Effect) -> Flag {
        let BehaviourRules { per_minute, slow_for, block_for, .. } = self.rules;
        let (lasts, why) = match effect {
            Effect::Slow => (slow_for, Why::Requests { per_minute }),
            Effect::Block => (block_for, Why::RequestsGoOn { per_minute }),
        };
        Flag { subject: Subject::User(user), effect, lasts, why }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]
    use super::*;

    const S: u64 = 1_000_000_000;

    fn behaviour() -> Behaviour {
        let rules = BehaviourRules {
            per_minute: 20,
            burst: 10,
            slow_for: Duration::from_secs(60),
            block_after: 15,
            block_for: Duration::from_secs(600),
        };
        Behaviour::new(rules)
    }

    fn user(id: u64) -> UserId {
        UserId::new(id).unwrap()
    }

    /// So many at once; the numbers of those that were flagged, and how.
    fn at_once(behaviour: &Behaviour, now_ns: u64, id: u64, count: usize) -> Vec<(usize, Effect)> {
        let asked = (1..=count).map(|number| (number, behaviour.request(now_ns, user(id))));
        asked.filter_map(|(number, flag)| Some((number, flag?.effect))).collect()
    }

    #[test]
    fn a_burst_is_fine_one_more_is_slowed_and_going_on_is_blocked() {
        let behaviour = behaviour();
        assert_eq!(at_once(&behaviour, 7 * S, 1, 30), [(11, Effect::Slow), (26, Effect::Block)]);
        assert_eq!(at_once(&behaviour, 7 * S, 2, 10), []);
        let flag = behaviour.request(7 * S, user(2)).unwrap();
        assert_eq!((flag.subject, flag.lasts), (Subject::User(user(2)), Duration::from_secs(60)));
        assert_eq!(flag.why.to_string(), "more than 20 requests a minute");
    }

    #[test]
    fn who_keeps_to_the_rate_is_never_flagged_and_who_does_not_is() {
        let behaviour = behaviour();
        // Every 3 s, for a day.
        assert!((0..28_800).all(|turn| behaviour.request(turn * 3 * S, user(1)).is_none()));
        // A tenth faster: ten come together in half an hour, fifteen more in an hour and a quarter.
        let flags: Vec<(u64, Effect)> = (0..2_000)
            .filter_map(|turn| Some((turn, behaviour.request(turn * 27 * S / 10, user(2))?.effect)))
            .collect();
        assert!(flags.iter().any(|(turn, effect)| *turn < 130 && *effect == Effect::Slow), "{flags:?}");
        let blocked = flags.iter().find(|(_, effect)| *effect == Effect::Block).unwrap();
        assert!((230..270).contains(&blocked.0), "{flags:?}");
    }

    #[test]
    fn who_stops_is_as_good_as_new_when_his_time_has_passed() {
        let behaviour = behaviour();
        assert_eq!(at_once(&behaviour, 0, 1, 26).len(), 2);
        // Blocked for ten minutes, in which all of it leaks out.
        assert_eq!(at_once(&behaviour, 600 * S, 1, 11), [(11, Effect::Slow)]);
        // Who goes on while he is blocked is blocked again.
        assert_eq!(at_once(&behaviour, 600 * S, 1, 15).last(), Some(&(15, Effect::Block)));
        assert_eq!(at_once(&behaviour, 600 * S, 1, 30), [(15, Effect::Block), (30, Effect::Block)]);
    }

    #[test]
    fn by_default_any_number_may_be_and_extremes_do_not_overflow() {
        let off = Behaviour::new(BehaviourRules::default());
        assert!((0..10_000).all(|_| off.request(0, user(1)).is_none()));
        let rules = BehaviourRules {
            per_minute: 1,
            burst: u32::MAX,
            block_after: u32::MAX,
            ..BehaviourRules::default()
        };
        let slowest = Behaviour::new(rules);
        assert!((0..10_000).all(|_| slowest.request(u64::MAX, user(1)).is_none()));
        let strictest =
            Behaviour::new(BehaviourRules { per_minute: u32::MAX, burst: 0, block_after: 0, ..rules });
        assert_eq!(at_once(&strictest, 0, 1, 3), [(2, Effect::Slow), (3, Effect::Block)]);
    }

    #[test]
    fn threads_that_ask_for_one_user_are_one_user() {
        let behaviour = behaviour();
        let flags: Vec<Effect> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| at_once(&behaviour, S, 1, 10))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).map(|(_, effect)| effect).collect()
        });
        assert_eq!(flags.iter().filter(|effect| **effect == Effect::Slow).count(), 1, "{flags:?}");
        assert_eq!(flags.iter().filter(|effect| **effect == Effect::Block).count(), 1, "{flags:?}");
    }
}
