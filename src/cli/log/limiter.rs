//! How often each kind of line may be logged: so many at once, then one in a while; the others are counted, and the next
//! line of the kind tells how many there were.
//!
//! What fails for one client fails for a hundred thousand a second. A kind is a place in the source. Pure: time is an
//! argument, and what to say is returned. Memory is bounded by the number of places.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Lines of a kind that may come at once.
const BURST: u32 = 20;
/// After these, one in so long.
const PERIOD: Duration = Duration::from_secs(3);
/// What was left out of a kind of which nothing more comes is told after so long.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// Whether a line is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is, and so many of its kind were not since the last one that was.
    Logged { left_out: u64 },
    /// It is counted.
    LeftOut,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// GCRA: when the lines that were logged would have been due, one a period.
    due_at: Duration,
    left_out: u64,
    /// When the first of these came.
    since: Duration,
}

impl Kind {
    fn may(&mut self, now: Duration) -> bool {
        let ahead = PERIOD.saturating_mul(BURST.saturating_sub(1));
        if self.due_at > now.saturating_add(ahead) {
            return false;
        }
        self.due_at = self.due_at.max(now).saturating_add(PERIOD);
        true
    }
}

/// See the module. `K` names a kind; times are since any moment that stays the same.
#[derive(Debug)]
pub(super) struct Limiter<K> {
    kinds: HashMap<K, Kind, foldhash::fast::RandomState>,
    left_out: u64,
}

impl<K> Default for Limiter<K> {
    fn default() -> Self {
        Self { kinds: HashMap::default(), left_out: 0 }
    }
}

impl<K: Clone + Eq + Hash> Limiter<K> {
    /// A line of this kind.
    pub(super) fn came(&mut self, kind: &K, now: Duration) -> Verdict {
        let known = match self.kinds.get_mut(kind) {
            Some(known) => known,
            None => self.kinds.entry(kind.clone()).or_default(),
        };
        if known.may(now) {
            return Verdict::Logged { left_out: std::mem::take(&mut known.left_out) };
        }
        if known.left_out == 0 {
            known.since = now;
        }
        known.left_out = known.left_out.saturating_add(1);
        self.left_out = self.left_out.saturating_add(1);
        Verdict::LeftOut
    }

    /// Kinds of which some were left out and nothing has come that would tell, with how many.
    pub(super) fn untold(&mut self, now: Duration) -> Vec<(K, u64)> {
        let mut untold = Vec::new();
        for (kind, known) in &mut self.kinds {
            let is_late = now.saturating_sub(known.since) >= TOLD_WITHIN;
            if known.left_out > 0 && is_late && known.may(now) {
                untold.push((kind.clone(), std::mem::take(&mut known.left_out)));
            }
        }
        untold
    }

    /// Lines that were left out, of all kinds, since the start.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation, reason = "tests")]

    use super::*;

    /// As long as the longest lines that are usual.
    const LINE_BYTES: u64 = 300;

    #[test]
    fn ten_million_lines_of_forty_kinds_are_less_than_ten_mebibytes_and_none_is_forgotten() {
        // One for each of 10,000 requests a second: a slow gateway, on which they take longest.
        let (mut limiter, mut told, mut left_out) = (Limiter::default(), 0_u64, 0_u64);
        for nth in 0..10_000_000_u64 {
            let now = Duration::from_micros(100 * nth);
            if nth % 10_000 == 0 {
                for (_, count) in limiter.untold(now) {
                    told += 1;
                    left_out += count;
                }
            }
            if let Verdict::Logged { left_out: count } = limiter.came(&(nth % 40), now) {
                told += 1;
                left_out += count;
            }
        }
        for (_, count) in limiter.untold(Duration::from_secs(1_100)) {
            told += 1;
            left_out += count;
        }
        assert!(told * LINE_BYTES < 10 << 20, "{told} lines");
        assert!(told >= 40 * 300, "{told} lines: kinds are heard of as long as they last");
        assert_eq!(limiter.left_out(), left_out, "each is told of");
        assert!(told + left_out >= 10_000_000);
    }

    #[test]
    fn a_kind_may_burst_and_is_told_of_when_it_speaks_again() {
        let mut limiter = Limiter::default();
        let at = |seconds| Duration::from_secs(seconds);
        let logged = (0..100).filter(|_| limiter.came(&'a', at(0)) != Verdict::LeftOut).count();
        assert_eq!(logged, BURST as usize);
        assert_eq!(limiter.came(&'b', at(0)), Verdict::Logged { left_out: 0 }, "another kind is not meant");
        assert_eq!(limiter.came(&'a', at(3)), Verdict::Logged { left_out: 80 });
        assert_eq!(limiter.came(&'a', at(3)), Verdict::LeftOut);
        assert_eq!(limiter.untold(at(5)), [], "the next line may tell");
        assert_eq!(limiter.untold(at(13)), [('a', 1)]);
        assert_eq!(limiter.untold(at(30)), [], "once");
        // After a rest all of the burst is there again.
        let logged = (0..100).filter(|_| limiter.came(&'a', at(600)) != Verdict::LeftOut).count();
        assert_eq!(logged, BURST as usize);
    }
}
