//! The pace of one limit: its rate and burst in force, and how they change without touching a state.
//!
//! A state is one word, GCRA's theoretical arrival time: the instant at which the burst is full again; 0 = never
//! used. It is told by a *virtual clock*, which counts tokens, not nanoseconds: it runs as fast as the rate, and a
//! token is [`TOKEN`] of its units whatever the rate is. So states mean the same under every rate:
//! - another rate is another slope from now on: who had nothing left still has nothing, who had all still has all;
//! - another burst shifts the clock by the difference, so that each keeps the tokens that it has, but no more than
//!   the new burst;
//! - while a limit is off nobody is asked, and the clock runs on as before: a burst fills up in the meantime.
//!
//! The step itself is three lines, those of the crate `governor`, to which tests hold it state by state: a BUY climbs five
//! limits, and each step by the crate (its clock, its quotas and snapshots) took 60 instructions more. Where states live is
//! for others (`table`). Runs on the gateway's worker threads; nothing here locks, allocates or fails.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Rate, Share};

/// Units of the virtual clock per token: a rate of 1/s is exact to a quarter of a millisecond, and the clock at the
/// greatest rate runs for seven years.
const TOKEN: u64 = 4096;
/// More it never shows, and no state is so late by far.
const NOW_MAX: u64 = u64::MAX / 2;
/// What it shows at first: shifts towards a greater burst must not end below 0.
const START: u64 = 1 << 40;
/// Fractional bits of units per nanosecond.
const SLOPE_BITS: u32 = 56;
/// Fractional bits of milliseconds per unit.
const WAIT_BITS: u32 = 44;
/// For so long after a change of the burst no state counts as at rest. Forgotten keys start with a full burst: one
/// that goes up and down must not give it to them each time.
const UNREST_NS: u64 = 30_000_000_000;

/// Somebody asks for a loan at least this often, while somebody wants one.
const LENDING_MS: u64 = 150;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    is_on: bool,
    clock: VirtualClock,
    /// How far a state may be ahead for one more to pass: the burst but for one token.
    tolerance: u64,
    /// Milliseconds per unit.
    wait: u64,
    /// No state of this pace is this far behind its turn, unless it was made at another.
    lag_max: u64,
    /// The rate before it was shared out.
    rate: Rate,
    share: Share,
    /// Of this gateway; of the last rate, where the limit is off; 0 = it never was on.
    burst: u32,
    /// When that changed last.
    burst_changed_ns: u64,
}

/// Units as a line over nanoseconds.
#[derive(Clone, Copy, Debug)]
struct VirtualClock {
    base: u64,
    at_ns: u64,
    slope: u64,
}

impl VirtualClock {
    #[inline]
    fn read(self, now_ns: u64) -> u64 {
        let since_ns = u128::from(now_ns.saturating_sub(self.at_ns));
        let units = since_ns.wrapping_mul(u128::from(self.slope)) >> SLOPE_BITS;
        self.base.saturating_add(u64::try_from(units).unwrap_or(u64::MAX)).min(NOW_MAX)
    }
}

impl Pace {
    /// Everybody has a full burst.
    pub(super) fn new(rate: Rate, share: Share) -> Self {
        let nothing = Self {
            is_on: false,
            clock: VirtualClock { base: START, at_ns: 0, slope: 0 },
            tolerance: 0,
            wait: 0,
            lag_max: u64::MAX,
            rate: Rate::OFF,
            share,
            burst: 0,
            burst_changed_ns: 0,
        };
        nothing.changed(0, rate, share)
    }

    /// The pace from that time on.
    pub(super) fn changed(&self, now_ns: u64, rate: Rate, share: Share) -> Self {
        let rate = rate.bounded();
        let is_same = (rate, share) == (self.rate, self.share);
        let (now_ns, base) = if is_same {
            (self.clock.at_ns, self.clock.base)
        } else {
            // A clock that several threads read may be a little older than the last change.
            (now_ns.max(self.clock.at_ns), self.clock.read(now_ns))
        };
        if rate.rate_per_s == 0 {
            let clock = VirtualClock { base, at_ns: now_ns, ..self.clock };
            return Self { is_on: false, clock, rate, share, ..*self };
        }
        let burst = share.of_burst(rate.burst);
        let had = if self.burst == 0 { burst } else { self.burst };
        let base = base.saturating_add(tokens(had)).saturating_sub(tokens(burst));
        let clock = VirtualClock { base, at_ns: now_ns, slope: slope(rate, share) };
        let per_s = clock.read(now_ns.saturating_add(1_000_000_000)).saturating_sub(base);
        let burst_changed_ns = if had == burst { self.burst_changed_ns } else { now_ns };
        Self {
            is_on: true,
            clock,
            tolerance: tokens(burst.saturating_sub(1)),
            wait: wait(rate, share),
            lag_max: TOKEN.saturating_add(per_s),
            rate,
            share,
            burst,
            burst_changed_ns,
        }
    }

    /// What is in force, before it was shared out.
    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    #[inline]
    pub(super) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// What this gateway's share refused passes if something can be taken of what others do not use.
    #[inline]
    pub(super) fn or_borrowed(&self, wait_ms: u32, take: impl FnOnce() -> bool) -> Result<(), u32> {
        if self.share.is_part() && take() { Ok(()) } else { Err(wait_ms) }
    }

    /// What becomes of a state by one more request at that time, and whether it passes. `Err`: the milliseconds after
    /// which it would. A refusal changes no state, but for one case.
    ///
    /// A thread that has not seen a change yet may go on for a moment by a clock that runs much faster, and leave a
    /// state that this one reaches in an hour. Nobody is locked out for that: where a state is further ahead than any
    /// clock of another thread explains, it becomes "nothing left".
    #[inline]
    pub(super) fn judge(&self, now_ns: u64, state: u64) -> (u64, Result<(), u32>) {
        if !self.is_on {
            return (state, Ok(()));
        }
        let now = self.clock.read(now_ns);
        let earliest = state.saturating_sub(self.tolerance);
        if earliest <= now {
            (state.max(now).saturating_add(TOKEN), Ok(()))
        } else {
            self.refuse(now, state, earliest)
        }
    }

    #[cold]
    fn refuse(&self, now: u64, state: u64, earliest: u64) -> (u64, Result<(), u32>) {
        let lag = earliest.saturating_sub(now);
        if lag > self.lag_max {
            return (now.saturating_add(tokens(self.burst)), Err(self.wait_ms(TOKEN)));
        }
        (state, Err(self.wait_ms(lag)))
    }

    #[inline]
    fn wait_ms(&self, lag: u64) -> u32 {
        let wait_ms = lag.saturating_mul(self.wait).div_ceil(1 << WAIT_BITS);
        u32::try_from(wait_ms).unwrap_or(u32::MAX).max(1)
    }

    /// Judges a state that others may change at the same time.
    #[inline]
    pub(super) fn check(&self, now_ns: u64, state: &AtomicU64) -> Result<(), u32> {
        update(state, |state| self.judge(now_ns, state))
    }

    /// [`check`](Self::check) of a state that nobody else sees.
    #[inline]
    pub(super) fn check_own(&self, now_ns: u64, state: &Cell<u64>) -> Result<(), u32> {
        let (next, passed) = self.judge(now_ns, state.get());
        state.set(next);
        passed
    }

    /// What becomes of a state by taking up to so many tokens at once, as long as half of the burst stays; and how
    /// many those are. None where the limit is off.
    pub(super) fn lend(&self, now_ns: u64, state: u64, most: u32) -> (u64, u32) {
        if !self.is_on() {
            return (state, 0);
        }
        let now = self.clock.read(now_ns);
        let from = state.max(now);
        let left = now.saturating_add(tokens(self.burst)).saturating_sub(from);
        let spare = left.saturating_sub(self.kept()) / TOKEN;
        let lent = u32::try_from(spare).unwrap_or(u32::MAX).min(most);
        if lent == 0 { (state, 0) } else { (from.saturating_add(tokens(lent)), lent) }
    }

    /// What is never lent: half of the burst; less where that leaves no room for what comes between two times that
    /// somebody asks for a loan, which would be nobody's.
    fn kept(&self) -> u64 {
        let per_s = self.lag_max.saturating_sub(TOKEN);
        let between = per_s.saturating_mul(LENDING_MS) / 1_000;
        tokens(self.burst / 2).min(tokens(self.burst).saturating_sub(between))
    }

    /// States up to this one are at rest: their burst is full.
    pub(super) fn rest(&self, now_ns: u64) -> u64 {
        let is_unrest =
            self.burst_changed_ns != 0 && now_ns < self.burst_changed_ns.saturating_add(UNREST_NS);
        if is_unrest { 0 } else { self.clock.read(now_ns) }
    }
}

/// Decides again and again until nobody has changed the state meanwhile. Relaxed: it is one word and guards no other
/// memory.
#[inline]
pub(super) fn update<T>(state: &AtomicU64, decide: impl Fn(u64) -> (u64, T)) -> T {
    let mut seen = state.load(Ordering::Relaxed);
    loop {
        let (next, decision) = decide(seen);
        if next == seen {
            return decision;
        }
        match state.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return decision,
            Err(newer) => seen = newer,
        }
    }
}

fn tokens(count: u32) -> u64 {
    u64::from(count).saturating_mul(TOKEN)
}

/// Units per nanosecond. Rounded up, by less than a hundred-millionth: who comes back when he was told to passes.
fn slope(rate: Rate, share: Share) -> u64 {
    let units_per_s = u128::from(tokens(rate.rate_per_s)) << SLOPE_BITS;
    let slope = units_per_s.div_ceil(1_000_000_000_u128.saturating_mul(share.parts()));
    u64::try_from(slope).unwrap_or(u64::MAX)
}

/// Milliseconds per unit.
fn wait(rate: Rate, share: Share) -> u64 {
    let units_per_s = u128::from(tokens(rate.rate_per_s));
    let wait = (1000_u128.saturating_mul(share.parts()) << WAIT_BITS).checked_div(units_per_s);
    wait.and_then(|wait| u64::try_from(wait).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]

    use std::num::NonZeroU32;
    use std::time::Duration;

    use governor::clock::FakeRelativeClock;
    use governor::{Quota, RateLimiter};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// 1,000 a second: a token is a millisecond to both.
        #[test]
        fn a_step_is_the_one_of_the_crate_governor(
            burst in 1..50_u32,
            waits_us in prop::collection::vec(prop_oneof![Just(0), 0..3_000_u64, 0..100_000_u64], 1..300),
        ) {
            let pace = Pace::new(Rate { rate_per_s: 1_000, burst }, Share::WHOLE);
            let clock = FakeRelativeClock::default();
            let quota = Quota::with_period(Duration::from_millis(1)).unwrap();
            let quota = quota.allow_burst(NonZeroU32::new(burst).unwrap());
            let governor = RateLimiter::direct_with_clock(quota, clock.clone());
            let (state, mut now_us) = (AtomicU64::new(0), 0);
            for wait_us in waits_us {
                now_us += wait_us;
                clock.advance(Duration::from_micros(wait_us));
                let passed = pace.check(now_us * 1_000, &state);
                prop_assert_eq!(passed.is_ok(), governor.check().is_ok(), "at {} us: {:?}", now_us, passed);
            }
        }
    }
}
