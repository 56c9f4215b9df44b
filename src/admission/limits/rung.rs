//! One rate: governor's GCRA as a step from one state to the next, answering in milliseconds.
//!
//! A state is one word, governor's theoretical arrival time: the instant (ns of the caller's clock) at which the
//! burst is full again; 0 = never used. It does not depend on the rate, so a state outlives a change of rates.
//! Where states live is for others (`table`): governor is handed the one that it is to judge as its "key".
//! Runs on the gateway's worker threads; nothing here locks, allocates or fails.

use std::array;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{NotUntil, Quota, RateLimiter};

use super::Rate;
use super::clock::{CallerClock, at};

/// Buckets shared by the keys that found their table full (128 KiB).
pub(super) const SHARED_BUCKETS: usize = 16_384;

/// See the module.
pub(super) struct Rung(RateLimiter<Step, StepStore, CallerClock, NoOpMiddleware<Nanos>>);

impl Rung {
    /// `None` when the rate is off.
    pub(super) fn new(rate: Rate) -> Option<Self> {
        let quota = quota(rate)?;
        // The limiter's epoch is the caller's 0.
        Some(Self(at(0, |_| RateLimiter::new(quota, StepStore, CallerClock))))
    }

    /// The state after one more request at that time, or the milliseconds after which it would pass.
    #[inline]
    pub(super) fn step(&self, now_ns: u64, state: u64) -> Result<u64, u32> {
        let step = Step(Cell::new(state));
        at(now_ns, |now| self.0.check_key(&step).map_err(|refusal| wait_ms(&refusal, now)))?;
        Ok(step.0.get())
    }

    /// A step of a state that others may change at the same time: again and again until nobody did. A refusal
    /// writes nothing. Relaxed: the state is one word and guards no other memory.
    #[inline]
    pub(super) fn check(&self, now_ns: u64, state: &AtomicU64) -> Result<(), u32> {
        let mut seen = state.load(Ordering::Relaxed);
        loop {
            let next = self.step(now_ns, seen)?;
            match state.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(newer) => seen = newer,
            }
        }
    }
}

/// One rate for many keys, with the buckets for those of them that found no memory (their states mean this rate).
pub(super) struct Rule {
    pub(super) rung: Rung,
    shared: Box<[AtomicU64; SHARED_BUCKETS]>,
}

impl Rule {
    /// `None` when the rate is off.
    pub(super) fn new(rate: Rate) -> Option<Self> {
        let rung = Rung::new(rate)?;
        Some(Self { rung, shared: Box::new(array::from_fn(|_| AtomicU64::new(0))) })
    }

    /// The bucket that keys of this hash share.
    pub(super) fn shared(&self, hash: u64) -> &AtomicU64 {
        let [low, high, ..] = hash.to_le_bytes();
        let [first, ..] = &*self.shared;
        let bucket = usize::from(u16::from_le_bytes([low, high])) & SHARED_BUCKETS.saturating_sub(1);
        // Never the default: the mask leaves no other number than one of a bucket.
        self.shared.get(bucket).unwrap_or(first)
    }
}

/// What governor takes for a key: the very state. (It asks keys to be `Hash`; nobody hashes this one.)
#[derive(Clone, PartialEq, Eq)]
struct Step(Cell<u64>);

impl Hash for Step {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.get().hash(hasher);
    }
}

struct StepStore;

impl StateStore for StepStore {
    type Key = Step;

    #[inline]
    fn measure_and_replace<T, F, E>(&self, step: &Step, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let state = step.0.get();
        let (outcome, next) = decide((state != 0).then(|| Nanos::new(state)))?;
        step.0.set(next.as_u64());
        Ok(outcome)
    }
}

/// The time between two is rounded up to whole nanoseconds (governor's own constructors round down): the rate
/// that was configured is never exceeded.
fn quota(rate: Rate) -> Option<Quota> {
    if rate.rate_per_s == 0 {
        return None;
    }
    let interval_ns = 1_000_000_000_u64.div_ceil(u64::from(rate.rate_per_s));
    let burst = NonZeroU32::new(rate.burst).unwrap_or(NonZeroU32::MIN);
    Some(Quota::with_period(Duration::from_nanos(interval_ns))?.allow_burst(burst))
}

/// In 64 bits: governor's own `wait_time_from` goes through `Duration`, and that to nanoseconds through 128.
fn wait_ms(refusal: &NotUntil<Nanos>, now: Nanos) -> u32 {
    let wait_ns = refusal.earliest_possible().as_u64().saturating_sub(now.as_u64());
    u32::try_from(wait_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1)
}
