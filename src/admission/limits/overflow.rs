//! States that keys share for which there is no memory.
//!
//! Runs on the gateway's worker threads, under the lock of a shard of `table`; made when the first key overflows.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets shared by the keys that found their table full (128 KiB).
pub(super) const SHARED_BUCKETS: usize = 16_384;

/// See the module. One for each pace, for its states mean that one.
#[derive(Default)]
pub(super) struct Overflow(OnceLock<Box<[AtomicU64; SHARED_BUCKETS]>>);

impl Overflow {
    /// The state that keys of this hash share.
    pub(super) fn state(&self, hash: u64) -> &AtomicU64 {
        let buckets = self.0.get_or_init(|| Box::new(array::from_fn(|_| AtomicU64::new(0))));
        let [first, ..] = &**buckets;
        // Never the default: the mask leaves no other number than one of a bucket.
        buckets.get(bucket(hash)).unwrap_or(first)
    }

    /// Where it stands; 0, that is, fresh, where nothing overflowed.
    pub(super) fn seen(&self, hash: u64) -> u64 {
        let state = self.0.get().and_then(|buckets| buckets.get(bucket(hash)));
        state.map_or(0, |state| state.load(Ordering::Relaxed))
    }
}

fn bucket(hash: u64) -> usize {
    let [low, high, ..] = hash.to_le_bytes();
    usize::from(u16::from_le_bytes([low, high])) & SHARED_BUCKETS.saturating_sub(1)
}
