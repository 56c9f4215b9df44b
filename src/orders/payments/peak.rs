//! The greatest value of the last minute or two: a gauge that an alarm can stand on, and that goes down again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One of them. Written seldom, read when metrics are asked for.
#[derive(Debug)]
pub(in crate::orders) struct Peak {
    window: Duration,
    state: Mutex<Option<State>>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    since: Instant,
    now: u64,
    before: u64,
}

impl Peak {
    /// Remembers values for so long, at most twice as long.
    pub(in crate::orders) const fn over(window: Duration) -> Self {
        Self { window, state: Mutex::new(None) }
    }

    pub(in crate::orders) fn note(&self, value: u64, now: Instant) {
        self.with(now, |state| state.now = state.now.max(value));
    }

    pub(in crate::orders) fn read(&self, now: Instant) -> u64 {
        self.with(now, |state| state.now.max(state.before))
    }

    fn with<T>(&self, now: Instant, act: impl FnOnce(&mut State) -> T) -> T {
        let mut slot = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = slot.get_or_insert(State { since: now, now: 0, before: 0 });
        let age = now.saturating_duration_since(state.since);
        if age >= self.window {
            let is_recent = age < self.window.saturating_mul(2);
            *state = State { since: now, now: 0, before: if is_recent { state.now } else { 0 } };
        }
        act(state)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;

    #[test]
    fn a_peak_is_remembered_for_its_window_and_then_forgotten() {
        let peak = Peak::over(Duration::from_secs(60));
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let start = at(0);
        assert_eq!(peak.read(start), 0);
        peak.note(7, start + Duration::from_secs(1));
        peak.note(3, start + Duration::from_secs(2));
        assert_eq!(peak.read(start + Duration::from_secs(59)), 7);
        assert_eq!(peak.read(start + Duration::from_secs(61)), 7);
        peak.note(2, start + Duration::from_secs(62));
        assert_eq!(peak.read(start + Duration::from_secs(115)), 7);
        assert_eq!(peak.read(start + Duration::from_secs(125)), 2);
        assert_eq!(peak.read(start + Duration::from_secs(1000)), 0);
    }
}
