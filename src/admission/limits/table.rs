//! Where the states of keyed limits live: a table that never holds more keys than it may.
//!
//! governor's own keyed stores insert every key they meet and never evict. Here the number of keys is counted
//! exactly and capped; a key that finds the table full shares one of a fixed array of buckets with other such
//! keys, chosen by hash. So a key refused memory is still limited (at worst too strictly), and memory does not
//! grow with the number of addresses an attacker has.
//!
//! A key that comes and goes has its state inside the table, beside the key (see `slots`): one lock, one line. A key
//! that a connection holds has it in a cell of its own, which the connection reaches without the table; the table
//! then keeps a mark in its place and the cell in a second, small table. Both ways lead to the one state.
//!
//! Runs on the gateway's worker threads; [`KeyTable::retain`] on a timer task. A shard is locked for one decision,
//! one insertion, or the scan of that shard; never while anything else is called. Nothing here fails.

use std::array;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam::utils::CachePadded;
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use super::overflow::Overflow;
use super::pace::{Pace, update};
use super::slots::Slots;

/// Lock shards: at the default cap a shard holds about 8,000 keys, so that growing or scanning one under its lock
/// takes well below a millisecond.
const SHARDS: usize = 256;

/// Shrinking starts when less than a quarter of the reserved room is used, and leaves small shards alone: giving
/// memory back after every scan would make the next wave allocate it again.
const SHRINK_RATIO: usize = 4;
const SHRINK_ABOVE: usize = 256;

/// In place of a state: it is in the key's cell. No state is as late: see `pace`.
const HELD: u64 = u64::MAX;

/// A state that connections hold. `T` is what they need to know beside it.
#[derive(Debug)]
pub(super) struct Cell<T> {
    pub(super) state: AtomicU64,
    pub(super) tag: T,
}

/// How a key is judged, and where if there is no memory for it.
#[derive(Clone, Copy)]
pub(super) struct Rule<'a> {
    pub(super) pace: &'a Pace,
    pub(super) overflow: &'a Overflow,
}

/// The states of many keys, at most `keys_max` of them. Several rules may keep theirs in one table as long as no
/// key belongs to two of them.
pub(super) struct KeyTable<K, T> {
    shards: Box<[LockedShard<K, T>; SHARDS]>,
    hasher: SeedableRandomState,
    /// Never below the true number of keys: raised before an insertion, lowered after a removal.
    len: CachePadded<AtomicUsize>,
    overflowed: AtomicU64,
    keys_max: usize,
}

type LockedShard<K, T> = CachePadded<Mutex<Shard<K, T>>>;

/// In this order: a lock and what leads to the states behind it are one cache line.
#[repr(C)]
struct Shard<K, T> {
    states: Slots<K>,
    cells: HashMap<K, Arc<Cell<T>>, SeedableRandomState>,
}

impl<K: Copy + Eq + Hash, T> KeyTable<K, T> {
    pub(super) fn new(keys_max: usize) -> Self {
        // Clients choose keys: the seed is the operating system's randomness, another one for every table. Linear
        // probing wants the hash's better variant.
        let seed = RandomState::new().hash_one(keys_max);
        let hasher = SeedableRandomState::with_seed(seed, SharedSeed::global_random());
        let shard = || Shard { states: Slots::new(), cells: HashMap::with_hasher(hasher.clone()) };
        Self {
            shards: Box::new(array::from_fn(|_| CachePadded::new(Mutex::new(shard())))),
            hasher,
            len: CachePadded::new(AtomicUsize::new(0)),
            overflowed: AtomicU64::new(0),
            keys_max,
        }
    }

    /// Keys remembered.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Checks that had to use a shared bucket, since the start.
    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// May this key pass? `Err`: milliseconds after which it would.
    pub(super) fn check(&self, rule: Rule<'_>, now_ns: u64, key: K) -> Result<(), u32> {
        self.update(rule.overflow, key, |state| rule.pace.judge(now_ns, state))
    }

    /// Takes up to so many tokens of the key's, as [`Pace::lend`] says; how many.
    pub(super) fn lend(&self, rule: Rule<'_>, now_ns: u64, key: K, most: u32) -> u32 {
        self.update(rule.overflow, key, |state| rule.pace.lend(now_ns, state, most))
    }

    #[inline]
    fn update<D>(&self, overflow: &Overflow, key: K, decide: impl Fn(u64) -> (u64, D)) -> D {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        let Some(slot) = shard.states.find(hash, key) else {
            return self.update_new(&mut shard, overflow, hash, key, decide);
        };
        if slot.state != HELD {
            let (state, decision) = decide(slot.state);
            slot.state = state;
            return decision;
        }
        // The mark and the cell come and go together, so there always is one.
        let state = shard.cells.get(&key).map_or_else(|| overflow.state(hash), |cell| &cell.state);
        update(state, decide)
    }

    /// Looks where this key's state will be looked for, and decides nothing: with many keys each look waits for the
    /// memory, but looks close together wait together.
    pub(super) fn warm(&self, key: K) {
        let hash = self.hasher.hash_one(key);
        std::hint::black_box(self.shard(hash).states.peek(hash));
    }

    /// The key's cell, to be kept by a connection; `None` when there is no room for the key. A key has one cell,
    /// whoever holds it, and is not forgotten while anybody does.
    pub(super) fn hold(&self, overflow: &Overflow, key: K, tag: T) -> Option<Arc<Cell<T>>> {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        let state = if let Some(slot) = shard.states.find(hash, key) {
            let state = slot.state;
            slot.state = HELD;
            state
        } else {
            self.reserve().then(|| self.insert(&mut shard, hash, key, HELD))?;
            overflow.seen(hash)
        };
        if state == HELD {
            return shard.cells.get(&key).map(Arc::clone);
        }
        let cell = Arc::new(Cell { state: AtomicU64::new(state), tag });
        shard.cells.insert(key, Arc::clone(&cell));
        Some(cell)
    }

    /// Takes the states out of the cells that nobody holds any more, drops the keys at rest, whose burst is full again
    /// (to a limiter they are like keys never seen), then gives memory back where most of it is unused.
    pub(super) fn retain(&self, is_at_rest: impl Fn(K, u64) -> bool) {
        for shard in self.shards.iter() {
            let mut shard = lock(shard);
            let Shard { states, cells } = &mut *shard;
            // Before: what is removed goes on to count as used room.
            let room = cells.capacity();
            cells.retain(|key, cell| {
                // Cells are handed out under the lock only: one that is nobody else's now stays so.
                let Some(cell) = Arc::get_mut(cell) else { return true };
                if let Some(slot) = states.find(self.hasher.hash_one(key), *key) {
                    slot.state = (*cell.state.get_mut()).max(1);
                }
                false
            });
            let before = states.len();
            let is_busy = |key, state| state == HELD || !is_at_rest(key, state);
            states.retain(is_busy, is_mostly_unused, |key| self.hasher.hash_one(key));
            // Only now: while the scan runs the count may be too high, which costs a shared bucket, never too low.
            self.len.fetch_sub(before.saturating_sub(states.len()), Ordering::Relaxed);
            if cells.is_empty() || is_mostly_unused(room, cells.len()) {
                cells.shrink_to_fit();
            }
        }
    }

    /// A key that the table does not know. Under the lock of its shard to the end, so that it cannot use a shared
    /// bucket and one of its own at the same time.
    #[cold]
    fn update_new<D>(
        &self,
        shard: &mut Shard<K, T>,
        overflow: &Overflow,
        hash: u64,
        key: K,
        decide: impl Fn(u64) -> (u64, D),
    ) -> D {
        if !self.reserve() {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
            return update(overflow.state(hash), decide);
        }
        // A key that so far used a shared bucket goes on from there: getting a bucket of its own must not give it
        // a second burst. Where nothing overflowed the shared bucket is 0, that is, fresh.
        let (state, decision) = decide(overflow.seen(hash));
        self.insert(shard, hash, key, state);
        decision
    }

    fn insert(&self, shard: &mut Shard<K, T>, hash: u64, key: K, state: u64) {
        shard.states.insert(hash, key, state, |key| self.hasher.hash_one(key));
    }

    /// Takes the right to insert one key; false when the table is full.
    fn reserve(&self) -> bool {
        self.len
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |len| {
                (len < self.keys_max).then_some(len.saturating_add(1))
            })
            .is_ok()
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<K, T>> {
        // The lowest bits; the highest choose the slot.
        let [shard, ..] = hash.to_le_bytes();
        let [first, ..] = &*self.shards;
        // Never the default: there are as many shards as values of a byte.
        lock(self.shards.get(usize::from(shard)).unwrap_or(first))
    }
}

/// A shard is whole between two statements: a panic elsewhere in its thread has not broken it.
fn lock<S>(shard: &Mutex<S>) -> MutexGuard<'_, S> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn is_mostly_unused(room: usize, used: usize) -> bool {
    room > SHRINK_ABOVE && room > used.saturating_mul(SHRINK_RATIO)
}

#[cfg(test)]
impl<K: Copy + Eq, T> KeyTable<K, T> {
    /// The keys counted one by one.
    pub(super) fn true_len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).states.len()).sum()
    }

    /// Keys that have a cell.
    pub(super) fn cells(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).cells.len()).sum()
    }

    /// Keys for which memory is reserved.
    pub(super) fn room(&self) -> usize {
        let rooms = self.shards.iter().map(|shard| lock(shard));
        rooms.map(|shard| shard.states.room().saturating_add(shard.cells.capacity())).sum()
    }
}
