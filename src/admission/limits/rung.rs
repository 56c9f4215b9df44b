//! One limit each: governor's limiters, with our clock and store, answering in milliseconds.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{NotUntil, Quota, RateLimiter};

use super::Rate;
use super::clock::{CallerClock, at};
use super::store::{BoundedStore, KeyTable};

type Limiter<K, S> = RateLimiter<K, S, CallerClock, NoOpMiddleware<Nanos>>;

/// A limit for everybody together.
pub(super) struct Direct(Limiter<NotKeyed, InMemoryState>);

impl Direct {
    /// `None` when the rate is off.
    pub(super) fn new(rate: Rate) -> Option<Self> {
        let quota = quota(rate)?;
        // The limiter's epoch is the caller's 0.
        Some(Self(at(0, |_| RateLimiter::new(quota, InMemoryState::default(), CallerClock))))
    }

    /// `Err`: milliseconds after which it would pass.
    pub(super) fn check(&self, now_ns: u64) -> Result<(), u32> {
        at(now_ns, |now| self.0.check().map_err(|refusal| wait_ms(&refusal, now)))
    }
}

/// A limit for each key.
pub(super) struct Keyed<K: Eq + Hash + Clone>(Limiter<K, BoundedStore<K>>);

impl<K: Eq + Hash + Clone> Keyed<K> {
    /// `None` when the rate is off.
    pub(super) fn new(rate: Rate, table: &Arc<KeyTable<K>>) -> Option<Self> {
        let quota = quota(rate)?;
        let store = BoundedStore::new(Arc::clone(table));
        Some(Self(at(0, |_| RateLimiter::new(quota, store, CallerClock))))
    }

    /// `Err`: milliseconds after which it would pass.
    pub(super) fn check(&self, now_ns: u64, key: &K) -> Result<(), u32> {
        at(now_ns, |now| self.0.check_key(key).map_err(|refusal| wait_ms(&refusal, now)))
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

fn wait_ms(refusal: &NotUntil<Nanos>, now: Nanos) -> u32 {
    let wait_ms = refusal.wait_time_from(now).as_nanos().div_ceil(1_000_000);
    u32::try_from(wait_ms).unwrap_or(u32::MAX).max(1)
}
