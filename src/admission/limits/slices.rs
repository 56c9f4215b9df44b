//! What was borrowed ahead of time of what other gateways do not use, for requests that this one's share refuses.
//!
//! Runs on the gateway's worker threads; the task that borrows puts permits in. Nothing here locks, allocates, waits or
//! fails: without a permit the answer is no, and the demand is counted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::IpKey;

/// Permits of one limit that are good until a time.
#[derive(Debug, Default)]
pub struct Slice {
    /// The milliseconds of the gateway's clock at which they expire, then how many are left: 32 bits each.
    permits: AtomicU64,
    wanted: AtomicU32,
}

impl Slice {
    /// Takes one permit; without one, notes that one was wanted.
    pub fn take(&self, now_ns: u64) -> bool {
        let now_ms = now_ns / 1_000_000;
        let taken = self.permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |permits| {
            let is_good = permits & u64::from(u32::MAX) != 0 && permits >> 32 > now_ms;
            is_good.then(|| permits.wrapping_sub(1))
        });
        if taken.is_err() {
            self.wanted.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }
}

/// The slices of a gateway's limits.
#[derive(Debug, Default)]
pub struct Slices {
    /// Of the global rate.
    pub global: Slice,
}

impl Slices {
    /// Nothing is borrowed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one permit of an address; without one, notes that one was wanted. No address has any yet.
    pub const fn take_ip(&self, _now_ns: u64, _key: IpKey) -> bool {
        false
    }
}
