//! The rung Risk: what is done about a request, from the newest snapshot of the lists.
//!
//! Runs on the gateway's worker threads, inside one wake: no lock, no wait, no allocation. One task publishes snapshots.
//! A connection whose user, address and device do not change keeps a [`HeldVerdict`]: as long as the lists are the same, a
//! request costs it two compares.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};

use super::lists::{Found, Lists, Who};
use super::slowed::Slowed;

/// The time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct RiskTime {
    /// Monotonic milliseconds.
    pub mono_ms: u64,
    /// Unix milliseconds of the sale clock, by which entries pass.
    pub sale_ms: u64,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Listed with effect block.
    Blocked,
    /// Listed with effect slow, and not yet due again.
    Slowed {
        /// When he is. Without jitter: that is the caller's.
        retry_after_ms: u32,
    },
}

/// What a snapshot said of a connection's one user, address and device.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    /// Of the snapshot.
    mark: u64,
    /// When it is no longer known.
    until_ms: u64,
    says: Says,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Nothing,
    Slowed,
    Blocked,
}

/// What one connection keeps; it belongs to one user, address and device.
#[derive(Debug)]
pub struct HeldVerdict(Cell<Verdict>);

impl HeldVerdict {
    /// As long as nothing was ever listed: nothing is to be looked up.
    pub const fn new() -> Self {
        Self(Cell::new(Verdict { mark: NOBODY_LISTED, until_ms: u64::MAX, says: Says::Nothing }))
    }
}

impl Default for HeldVerdict {
    fn default() -> Self {
        Self::new()
    }
}

/// The mark of snapshots in which nobody is listed; others have a number that is never given twice.
const NOBODY_LISTED: u64 = 0;

/// See the module.
#[derive(Debug)]
pub struct Risk {
    lists: ArcSwap<Lists>,
    mark: AtomicU64,
    marks: AtomicU64,
    slowed: Slowed,
    slow_interval_ms: u64,
}

impl Risk {
    /// With empty lists. A slowed subject passes once in `slow_interval_ms`.
    pub fn new(slow_interval_ms: u64) -> Self {
        Self {
            lists: ArcSwap::default(),
            mark: AtomicU64::new(NOBODY_LISTED),
            marks: AtomicU64::new(NOBODY_LISTED),
            slowed: Slowed::default(),
            slow_interval_ms,
        }
    }

    /// The lists in force.
    pub fn lists(&self) -> Arc<Lists> {
        self.lists.load_full()
    }

    /// Puts lists in force: whoever asks from now on is judged by them. What was in force before is given back: somebody
    /// may be looking at it for a moment longer, and to free it may take a while.
    #[must_use = "what is freed here is not freed by whoever looks at it last"]
    pub fn publish(&self, lists: Lists) -> Arc<Lists> {
        let mark = if lists.is_empty() {
            NOBODY_LISTED
        } else {
            self.marks.fetch_add(1, Ordering::Relaxed).saturating_add(1)
        };
        let before = self.lists.swap(Arc::new(lists));
        // Whoever sees the mark sees the lists; one who sees the lists under the old mark looks once more.
        self.mark.store(mark, Ordering::Release);
        before
    }

    /// The lists in force, to go by for a moment.
    pub fn lists_for_a_moment(&self) -> Guard<Arc<Lists>> {
        self.lists.load()
    }

    /// May this request pass, by lists that were in force a moment ago?
    #[inline]
    pub fn check<'a>(
        &self,
        now: RiskTime,
        lists: impl FnOnce() -> &'a Lists,
        who: &Who<'_>,
    ) -> Result<(), Refused> {
        if self.mark.load(Ordering::Acquire) == NOBODY_LISTED {
            return Ok(());
        }
        lists().find(who, now.sale_ms).map_or(Ok(()), |found| self.judge(now, &found))
    }

    /// [`check`](Self::check) for a connection that is always the same user, address and device.
    #[inline]
    pub fn check_held(&self, now: RiskTime, held: &HeldVerdict, who: &Who<'_>) -> Result<(), Refused> {
        let mark = self.mark.load(Ordering::Acquire);
        let verdict = held.0.get();
        if verdict.mark == mark && now.sale_ms < verdict.until_ms {
            match verdict.says {
                Says::Nothing => return Ok(()),
                Says::Blocked => return Err(Refused::Blocked),
                // Each request takes its turn.
                Says::Slowed => {}
            }
        }
        self.look_again(now, mark, held, who)
    }

    #[cold]
    fn look_again(&self, now: RiskTime, mark: u64, held: &HeldVerdict, who: &Who<'_>) -> Result<(), Refused> {
        if mark == NOBODY_LISTED {
            held.0.set(HeldVerdict::new().0.get());
            return Ok(());
        }
        let Some(found) = self.lists.load().find(who, now.sale_ms) else {
            held.0.set(Verdict { mark, until_ms: u64::MAX, says: Says::Nothing });
            return Ok(());
        };
        let says = if found.is_blocked { Says::Blocked } else { Says::Slowed };
        held.0.set(Verdict { mark, until_ms: found.until_ms, says });
        self.judge(now, &found)
    }

    fn judge(&self, now: RiskTime, found: &Found) -> Result<(), Refused> {
        if found.is_blocked {
            return Err(Refused::Blocked);
        }
        // Each of his names takes its turn: a thousand slowed users of one slowed device are one.
        for subject in found.slowed.into_iter().flatten() {
            let passed = self.slowed.pass(subject, now.mono_ms, self.slow_interval_ms);
            passed.map_err(|retry_after_ms| Refused::Slowed { retry_after_ms })?;
        }
        Ok(())
    }
}
