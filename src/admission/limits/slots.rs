//! Keys with their states, open addressing with linear probing: a lookup is one cache line.
//!
//! A general hash table looks at its control bytes, then at the entry: with a million keys two misses, and a
//! purchase over a service connection waits for both. Here a slot holds nothing but key and state (16 bytes for a
//! user), so that a key and the few beside it that share its way are in one line. Slots are chosen by the *high*
//! bits of the hash; filled to four fifths at most, grown by half, so a key of a large table costs at most 1.9 slots.
//!
//! Runs under the lock of a shard of `table`; nothing here blocks or fails.

/// State of a slot without a key. No key has it: see [`Slots::insert`].
const EMPTY: u64 = 0;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 16;

/// See the module. States are never 0.
pub(super) struct Slots<K> {
    slots: Box<[Slot<K>]>,
    len: usize,
}

/// Packed, for the keys that are a multiple of 4 bytes: 16 bytes for a user, 20 for an address.
#[repr(C, packed(4))]
pub(super) struct Slot<K> {
    key: K,
    pub(super) state: u64,
}

impl<K: Copy> Copy for Slot<K> {}

impl<K: Copy> Clone for Slot<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Copy + Eq> Slots<K> {
    pub(super) fn new() -> Self {
        Self { slots: Box::default(), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Keys for which there is room before it grows.
    pub(super) const fn room(&self) -> usize {
        keys_max(self.slots.len())
    }

    /// The slot of a key that is there. Whoever changes its state never makes it 0.
    #[inline]
    pub(super) fn find(&mut self, hash: u64, key: K) -> Option<&mut Slot<K>> {
        self.way(hash).find(|slot| slot.state == EMPTY || slot.is(key)).filter(|slot| slot.state != EMPTY)
    }

    /// The state in the slot where a key of this hash is looked for first, whosever it is.
    #[inline]
    pub(super) fn peek(&self, hash: u64) -> Option<u64> {
        self.slots.get(scale(hash, self.slots.len())).map(|slot| slot.state)
    }

    /// Adds a key that is not there. A state of 0 is stored as 1, which means the same: an instant long past.
    pub(super) fn insert(&mut self, hash: u64, key: K, state: u64, rehash: impl Fn(K) -> u64) {
        if self.len >= self.room() {
            let grown = self.slots.len().saturating_add(self.slots.len() >> 1).max(SLOTS_MIN);
            self.resize(grown, key, &rehash);
        }
        self.place(hash, Slot { key, state: state.max(1) });
        self.len = self.len.saturating_add(1);
    }

    /// Drops the keys that `keep` refuses with their states, and gives memory back if `shrink` says so of the room there is
    /// and of the keys left.
    pub(super) fn retain(
        &mut self,
        keep: impl Fn(K, u64) -> bool,
        shrink: impl Fn(usize, usize) -> bool,
        rehash: impl Fn(K) -> u64,
    ) {
        // A key may stand behind others that shared its way: where one goes, those behind it, up to the next
        // empty slot, move up. In order from an empty slot on, so that each finds its place among keys that have
        // theirs already.
        let Some(start) = self.slots.iter().position(|slot| slot.state == EMPTY) else { return };
        let mut gap = false;
        for number in (start..self.slots.len()).chain(0..start) {
            let Some(slot) = self.slots.get_mut(number) else { continue };
            let taken = *slot;
            if taken.state == EMPTY {
                gap = false;
            } else if !keep(taken.key, taken.state) {
                slot.state = EMPTY;
                self.len = self.len.saturating_sub(1);
                gap = true;
            } else if gap {
                slot.state = EMPTY;
                self.place(rehash(taken.key), taken);
            }
        }
        if shrink(self.room(), self.len) {
            let any = self.slots.iter().find(|slot| slot.state != EMPTY).map(|slot| slot.key);
            match any {
                None => self.slots = Box::default(),
                Some(any) => self.resize(slots_min(self.len), any, &rehash),
            }
        }
    }

    /// `any` is what stands in a slot without a key.
    fn resize(&mut self, slots: usize, any: K, rehash: &impl Fn(K) -> u64) {
        let empty = Slot { key: any, state: EMPTY };
        let old = std::mem::replace(&mut self.slots, vec![empty; slots].into_boxed_slice());
        for slot in old.into_iter().filter(|slot| slot.state != EMPTY) {
            self.place(rehash(slot.key), slot);
        }
    }

    /// Into the first empty slot on its way. There is one: a fifth of the slots are empty.
    #[inline]
    fn place(&mut self, hash: u64, slot: Slot<K>) {
        if let Some(empty) = self.way(hash).find(|slot| slot.state == EMPTY) {
            *empty = slot;
        }
    }

    /// All slots, from a hash's own on.
    #[inline]
    fn way(&mut self, hash: u64) -> impl Iterator<Item = &mut Slot<K>> {
        let own = scale(hash, self.slots.len());
        let (before, from) = self.slots.split_at_mut(own);
        from.iter_mut().chain(before)
    }
}

impl<K: Copy + Eq> Slot<K> {
    #[inline]
    fn is(&self, key: K) -> bool {
        // A copy: nothing may refer to a field of a packed struct.
        let own = self.key;
        own == key
    }
}

/// A number below `slots`, evenly: the hash as a fraction of 2⁶⁴, times `slots`. 0 of no slots.
#[inline]
fn scale(hash: u64, slots: usize) -> usize {
    let slots = u64::try_from(slots).unwrap_or(u64::MAX);
    let scaled = u128::from(hash).wrapping_mul(u128::from(slots)) >> 64;
    usize::try_from(scaled).unwrap_or(0)
}

/// Keys that so many slots may hold.
const fn keys_max(slots: usize) -> usize {
    slots.saturating_sub(slots.div_ceil(5))
}

/// Slots for that many keys, and some to come.
const fn slots_min(keys: usize) -> usize {
    let slots = keys.saturating_add(keys >> 1);
    if slots < SLOTS_MIN { SLOTS_MIN } else { slots }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]

    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::protocol::UserId;

    /// Few ways, long ones, and some that run over the end.
    const fn crowded(key: u16) -> u64 {
        (key as u64 % 5) << 62 | (key as u64 % 3) << 40 | u64::MAX >> 8
    }

    #[test]
    fn a_slot_is_as_small_as_it_can_be() {
        assert_eq!(size_of::<Slot<UserId>>(), 16);
        assert_eq!(size_of::<Slot<[u32; 3]>>(), 20);
    }

    #[test]
    fn a_fifth_is_empty_whatever_the_size() {
        let mut slots = Slots::new();
        for key in 0..10_000_u16 {
            slots.insert(u64::from(key) << 48, key, 7, |key| u64::from(key) << 48);
            assert!(slots.len() * 5 <= slots.slots.len() * 4);
            assert!(slots.len() < 100 || slots.len() * 15 >= slots.slots.len() * 8 - 15);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_is_a_map(
            acts in prop::collection::vec((0..200_u16, 0..50_u64), 1..400),
            shrinks in any::<bool>(),
        ) {
            let (mut slots, mut model) = (Slots::new(), HashMap::new());
            for (key, state) in acts {
                if state == 0 {
                    // The older half goes.
                    slots.retain(|_, state| state > 25, |_, _| shrinks, crowded);
                    model.retain(|_, state| *state > 25);
                } else if let Some(slot) = slots.find(crowded(key), key) {
                    slot.state = state;
                    *model.get_mut(&key).unwrap() = state;
                } else {
                    slots.insert(crowded(key), key, state, crowded);
                    prop_assert_eq!(model.insert(key, state), None);
                }
                prop_assert_eq!(slots.len(), model.len());
            }
            for key in 0..200 {
                prop_assert_eq!(slots.find(crowded(key), key).map(|slot| slot.state), model.get(&key).copied());
            }
        }
    }
}
