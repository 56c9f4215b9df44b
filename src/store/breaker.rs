//! A circuit breaker: after so many failures in a row nobody new is sent where nothing answers, until it does again.
//!
//! Pure: time is an argument, and each change is returned, for whoever owns the breaker to tell and to count. It holds
//! nobody up by itself: what is under way is repeated by its owner whatever the breaker says, because it has to be known
//! one day, and these repetitions are the probes. An outcome that only says that the server lives (a feed that could be read)
//! counts less than a call: it opens the way to probes, and counts as one of them every now and then, for when no call is
//! under way.
//!
//! Wanted of a crate and not found: time as an argument, probes that are not let through but happen anyway, and a pause
//! that a sign of life ends (ARCHITECTURE.md, Decisions).

use std::time::{Duration, Instant};

/// The first pause after opening, doubled with each probe that fails.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// A sign of life counts as a probe that went well no more often. Longer than the longest time between two repetitions of a
/// call that is refused at once (640 ms), so that one that still fails is heard of before.
const SIGNS_EVERY: Duration = Duration::from_millis(700);

/// When it opens and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Failures in a row that open it.
    pub failures: u32,
    /// The longest pause between two probes.
    pub pause_max: Duration,
    /// Probes in a row that close it when they go well.
    pub probes: u32,
}

impl Default for BreakerRules {
    fn default() -> Self {
        Self { failures: 5, pause_max: Duration::from_secs(30), probes: 3 }
    }
}

/// How it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerState {
    /// As if it were not there.
    #[default]
    Closed,
    /// Something answers again; some more of that, and it closes.
    HalfOpen,
    /// Nothing answers.
    Open,
}

impl BreakerState {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half open",
            Self::Open => "open",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed { failures: u32 },
    Open { since: Instant },
    HalfOpen { successes: u32, sign_at: Instant },
}

/// See the module.
#[derive(Debug)]
pub struct Breaker {
    rules: BreakerRules,
    phase: Phase,
    pause: Duration,
    /// When it was last closed before it opened.
    shut_since: Option<Instant>,
}

impl Breaker {
    /// A closed one.
    pub const fn new(rules: BreakerRules) -> Self {
        Self { rules, phase: Phase::Closed { failures: 0 }, pause: PAUSE_MIN, shut_since: None }
    }

    /// How it stands.
    pub const fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
            Phase::Open { .. } => BreakerState::Open,
        }
    }

    /// For how long it has not been closed.
    pub fn shut_for(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.shut_since?))
    }

    /// A call failed, or got no answer. The new state, if it is another.
    pub fn failed(&mut self, now: Instant) -> Option<BreakerState> {
        match &mut self.phase {
            Phase::Closed { failures } => {
                *failures = failures.saturating_add(1);
                if *failures < self.rules.failures.max(1) {
                    return None;
                }
                self.pause = PAUSE_MIN.min(self.rules.pause_max);
                self.shut_since = Some(now);
            }
            Phase::HalfOpen { .. } => self.pause = self.pause.saturating_mul(2).min(self.rules.pause_max),
            Phase::Open { .. } => return None,
        }
        self.phase = Phase::Open { since: now };
        Some(BreakerState::Open)
    }

    /// A call was answered. The new state, if it is another.
    pub fn succeeded(&mut self, now: Instant) -> Option<BreakerState> {
        match &mut self.phase {
            Phase::Closed { failures } => {
                *failures = 0;
                None
            }
            Phase::Open { .. } => self.half_open(now, 1),
            Phase::HalfOpen { successes, .. } => {
                *successes = successes.saturating_add(1);
                let successes = *successes;
                self.close_after(successes)
            }
        }
    }

    /// The server answered something that is no call. The new state, if it is another.
    pub fn lives(&mut self, now: Instant) -> Option<BreakerState> {
        match &mut self.phase {
            Phase::Closed { .. } => None,
            Phase::Open { since } if now.saturating_duration_since(*since) < self.pause => None,
            Phase::Open { .. } => self.half_open(now, 0),
            Phase::HalfOpen { sign_at, .. } if now.saturating_duration_since(*sign_at) < SIGNS_EVERY => None,
            Phase::HalfOpen { successes, sign_at } => {
                *sign_at = now;
                *successes = successes.saturating_add(1);
                let successes = *successes;
                self.close_after(successes)
            }
        }
    }

    fn half_open(&mut self, now: Instant, successes: u32) -> Option<BreakerState> {
        self.phase = Phase::HalfOpen { successes, sign_at: now };
        self.close_after(successes).or(Some(BreakerState::HalfOpen))
    }

    fn close_after(&mut self, successes: u32) -> Option<BreakerState> {
        if successes < self.rules.probes.max(1) {
            return None;
        }
        self.phase = Phase::Closed { failures: 0 };
        self.shut_since = None;
        Some(BreakerState::Closed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;
    use BreakerState::{Closed, HalfOpen, Open};

    const RULES: BreakerRules = BreakerRules { failures: 5, pause_max: Duration::from_secs(30), probes: 3 };

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(RULES);
        for _ in 0..4 {
            assert_eq!(breaker.failed(now), None);
        }
        assert_eq!(breaker.failed(now), Some(Open));
        breaker
    }

    fn after(now: Instant, ms: u64) -> Instant {
        now + Duration::from_millis(ms)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_alone() {
        let (mut breaker, now) = (Breaker::new(RULES), Instant::now());
        for _ in 0..100 {
            for _ in 0..4 {
                assert_eq!(breaker.failed(now), None);
            }
            assert_eq!(breaker.succeeded(now), None);
            assert_eq!(breaker.lives(now), None);
        }
        assert_eq!((breaker.state(), breaker.shut_for(now)), (Closed, None));
        for _ in 0..4 {
            breaker.failed(now);
        }
        assert_eq!(breaker.lives(now), None, "what is no call does not make up for calls that fail");
        assert_eq!(breaker.failed(now), Some(Open));
        assert_eq!(breaker.failed(after(now, 9)), None, "told once");
        assert_eq!(breaker.shut_for(after(now, 9)), Some(Duration::from_millis(9)));
    }

    #[test]
    fn three_calls_that_are_answered_close_it_however_long_the_pause() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let changes = [1, 2, 3].map(|ms| breaker.succeeded(after(now, ms)));
        assert_eq!(changes, [Some(HalfOpen), None, Some(Closed)]);
        assert_eq!(breaker.shut_for(after(now, 9)), None);
        // The failures before do not count any more.
        assert_eq!(breaker.failed(after(now, 10)), None);
    }

    #[test]
    fn signs_of_life_close_it_slowly_and_only_where_no_call_fails() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert_eq!(breaker.lives(after(now, 499)), None);
        assert_eq!(breaker.lives(after(now, 500)), Some(HalfOpen));
        assert_eq!(breaker.lives(after(now, 1_199)), None);
        let changes = [1_200, 1_210, 1_900, 2_600].map(|ms| breaker.lives(after(now, ms)));
        assert_eq!(changes, [None, None, None, Some(Closed)]);
    }

    #[test]
    fn a_probe_that_fails_makes_the_pause_longer_up_to_the_longest() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let (mut at, mut pauses) = (now, Vec::new());
        for _ in 0..8 {
            let opened_at = at;
            while breaker.lives(at) != Some(HalfOpen) {
                at = after(at, 100);
            }
            pauses.push((at - opened_at).as_millis());
            assert_eq!(breaker.failed(at), Some(Open));
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(breaker.shut_for(at), Some(at - now), "counted from the first opening");
        // Opened anew after it was closed, it begins with the shortest.
        for _ in 0..3 {
            breaker.succeeded(at);
        }
        for _ in 0..5 {
            breaker.failed(at);
        }
        assert_eq!(breaker.lives(after(at, 500)), Some(HalfOpen));
    }

    #[test]
    fn half_open_closes_by_successes_in_a_row_alone() {
        let now = Instant::now();
        let mut breaker = opened(now);
        breaker.succeeded(now);
        breaker.succeeded(now);
        assert_eq!(breaker.failed(now), Some(Open));
        let changes = [(); 3].map(|()| breaker.succeeded(now));
        assert_eq!(changes, [Some(HalfOpen), None, Some(Closed)]);
    }

    #[test]
    fn rules_of_nought_are_rules_of_one() {
        let mut breaker =
            Breaker::new(BreakerRules { failures: 0, probes: 0, pause_max: Duration::from_secs(1) });
        let now = Instant::now();
        assert_eq!(breaker.failed(now), Some(Open));
        assert_eq!(breaker.succeeded(now), Some(Closed));
    }
}
