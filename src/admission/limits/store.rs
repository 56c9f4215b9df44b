//! Where keyed limiters keep their states: a table that never holds more keys than it may.
//!
//! governor's own keyed stores insert every key they meet and never evict. Here the number of keys is counted
//! exactly and capped; a key that finds the table full shares one of a fixed array of buckets with other such
//! keys, chosen by hash. So a key refused memory is still limited (at worst too strictly), and memory does not
//! grow with the number of addresses an attacker has.
//!
//! Runs on the gateway's worker threads; [`KeyTable::retain`] on a timer task. A shard of the table is locked for
//! one lookup, one insertion, or the scan of that shard; never while anything else is called.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use governor::nanos::Nanos;
use governor::state::StateStore;

/// Lock shards: at the default cap a shard holds about 8,000 keys, so that growing or scanning one under its lock
/// takes well below a millisecond.
const SHARDS: usize = 256;

/// Buckets shared by the keys that found the table full (128 KiB).
const SHARED_BUCKETS: usize = 16_384;

/// Shrinking starts when less than a quarter of the reserved room is used, and leaves small tables alone:
/// giving memory back after every scan would make the next wave allocate it again.
const SHRINK_RATIO: usize = 4;
const SHRINK_ABOVE: usize = 65_536;

/// The states of many keys, at most `keys_max` of them. Several limiters may keep theirs in one table as long as
/// no key belongs to two of them.
pub(super) struct KeyTable<K> {
    /// Per key governor's state: the instant (ns) at which its burst is full again.
    states: DashMap<K, AtomicU64>,
    /// Never below the true number of keys: raised before an insertion, lowered after a removal.
    len: AtomicUsize,
    keys_max: usize,
    overflowed: AtomicU64,
}

impl<K: Eq + Hash + Clone> KeyTable<K> {
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            states: DashMap::with_hasher_and_shard_amount(RandomState::new(), SHARDS),
            len: AtomicUsize::new(0),
            keys_max,
            overflowed: AtomicU64::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Checks that had to use a shared bucket, since the start.
    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Drops the keys whose burst is full again at `now_ns` (to a limiter they are like keys never seen), then
    /// gives memory back if most of it is unused.
    pub(super) fn retain(&self, now_ns: u64) {
        let mut dropped: usize = 0;
        self.states.retain(|_, state| {
            let busy = *state.get_mut() > now_ns;
            if !busy {
                dropped = dropped.saturating_add(1);
            }
            busy
        });
        // Only now: while the scan runs the count may be too high, which costs a shared bucket, never too low.
        self.len.fetch_sub(dropped, Ordering::Relaxed);
        let room = self.states.capacity();
        if room > SHRINK_ABOVE && room > self.len().saturating_mul(SHRINK_RATIO) {
            self.states.shrink_to_fit();
        }
    }

    /// The keys counted one by one.
    #[cfg(test)]
    pub(super) fn true_len(&self) -> usize {
        self.states.len()
    }

    /// Keys for which memory is held.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.states.capacity()
    }

    /// Takes the right to insert one key; false when the table is full.
    fn reserve(&self) -> bool {
        self.len
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |len| {
                (len < self.keys_max).then_some(len.saturating_add(1))
            })
            .is_ok()
    }
}

/// One limiter's view of a [`KeyTable`], with shared buckets of its own (their states mean its rate).
pub(super) struct BoundedStore<K> {
    table: Arc<KeyTable<K>>,
    shared: Box<[AtomicU64]>,
}

impl<K: Eq + Hash + Clone> BoundedStore<K> {
    pub(super) fn new(table: Arc<KeyTable<K>>) -> Self {
        Self { table, shared: (0..SHARED_BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn shared_bucket(&self, key: &K) -> Option<&AtomicU64> {
        let hash = self.table.states.hasher().hash_one(key);
        // Upper bits and lower bits choose shards and slots of the table; which ones does not matter here.
        let buckets = u64::try_from(self.shared.len()).unwrap_or(u64::MAX);
        usize::try_from(hash.checked_rem(buckets)?).ok().and_then(|bucket| self.shared.get(bucket))
    }
}

impl<K: Eq + Hash + Clone> StateStore for BoundedStore<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        if let Some(state) = self.table.states.get(key) {
            return measure_one(&state, f);
        }
        let Some(shared) = self.shared_bucket(key) else {
            // Not reached: the array of buckets is not empty. A bucket that is always fresh would not limit.
            return measure_one(&AtomicU64::new(u64::MAX), f);
        };
        if !self.table.reserve() {
            self.table.overflowed.fetch_add(1, Ordering::Relaxed);
            return measure_one(shared, f);
        }
        match self.table.states.entry(key.clone()) {
            Entry::Vacant(slot) => {
                // A key that so far used a shared bucket goes on from there: getting a bucket of its own must not
                // give it a second burst. Where nothing overflowed the shared bucket is 0, that is, fresh.
                let state = slot.insert(AtomicU64::new(shared.load(Ordering::Relaxed)));
                measure_one(&state, f)
            }
            Entry::Occupied(slot) => {
                // Another thread inserted it since the lookup.
                self.table.len.fetch_sub(1, Ordering::Relaxed);
                measure_one(slot.get(), f)
            }
        }
    }
}

/// Decides on one state and replaces it, again and again until nobody else replaced it meanwhile. 0 = never used.
/// Relaxed: the state is one word and guards no other memory.
fn measure_one<T, F, E>(state: &AtomicU64, f: F) -> Result<T, E>
where
    F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
{
    let mut seen = state.load(Ordering::Relaxed);
    loop {
        let (outcome, next) = f((seen != 0).then(|| Nanos::new(seen)))?;
        match state.compare_exchange_weak(seen, next.as_u64(), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Ok(outcome),
            Err(newer) => seen = newer,
        }
    }
}

impl<K: Eq + Hash + Clone> fmt::Debug for BoundedStore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedStore").field("len", &self.table.len()).finish_non_exhaustive()
    }
}
