//! A map that is read by everybody and changed by nobody: a change makes another map that shares most of it.
//!
//! The keys lie in a fixed number of pages, by hash. A change copies the pages that it touches and the list of pages, so
//! that one entry of a million costs microseconds, and whoever reads the old map goes on reading it. Within a page: open
//! addressing with linear probing, filled to three quarters at most.
//!
//! Memory: a slot for each key and a third more, twice that of a page at most while it is copied.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::sync::Arc;

use foldhash::quality::RandomState;

use super::subject::{Effect, Listing};

/// At a million entries a page holds about a thousand.
const PAGES: usize = 1 << PAGE_BITS;
const PAGE_BITS: u32 = 10;

/// An effect, whether it is a flag's, and until when, in a word that is never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing(NonZeroU64);

impl Standing {
    /// `until_ms`: 0 = for good.
    pub(super) fn new(Listing { effect, until_ms, is_flag }: Listing) -> Self {
        let until_ms = if until_ms == 0 { Self::FOR_GOOD } else { until_ms.min(Self::FOR_GOOD) };
        let word = until_ms << 2 | u64::from(is_flag) << 1 | u64::from(effect == Effect::Block);
        Self(NonZeroU64::new(word).unwrap_or(NonZeroU64::MAX))
    }

    const FOR_GOOD: u64 = u64::MAX >> 2;

    pub(super) const fn effect(self) -> Effect {
        if self.0.get() & 1 == 1 { Effect::Block } else { Effect::Slow }
    }

    /// The first instant at which it does not hold any more; in the far future for one that holds for good.
    pub(super) const fn until_ms(self) -> u64 {
        self.0.get() >> 2
    }

    /// As it was listed.
    pub(super) const fn listing(self) -> Listing {
        let until_ms = if self.until_ms() == Self::FOR_GOOD { 0 } else { self.until_ms() };
        Listing { effect: self.effect(), until_ms, is_flag: self.0.get() & 2 == 2 }
    }

    pub(super) const fn holds(self, now_ms: u64) -> bool {
        now_ms < self.until_ms()
    }
}

type Slot<K> = Option<(K, Standing)>;
type PageOf<K> = Arc<[Slot<K>]>;
type Changes<K> = HashMap<K, Option<Standing>, RandomState>;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Pages<K> {
    by_hash: Box<[PageOf<K>]>,
    hasher: RandomState,
    len: usize,
}

impl<K: Clone + Eq + Hash> Default for Pages<K> {
    fn default() -> Self {
        let empty: PageOf<K> = Arc::default();
        let by_hash = (0..PAGES).map(|_| Arc::clone(&empty)).collect();
        Self { by_hash, hasher: RandomState::default(), len: 0 }
    }
}

impl<K: Clone + Eq + Hash> Pages<K> {
    /// How many keys there are, those whose time has passed and that nobody has dropped yet included.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The hash of a key, or of what is equal to one.
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// No keys; their hashes stay the same.
    pub(super) fn emptied(&self) -> Self {
        Self { hasher: self.hasher.clone(), ..Self::default() }
    }

    /// How a key stands, whether or not its time has passed.
    pub(super) fn find(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<Standing> {
        let page = self.by_hash.get(page_of(hash))?;
        let own = scale(hash, page.len());
        let (before, from) = page.split_at_checked(own)?;
        // There is an empty slot, or none at all.
        let way = from.iter().chain(before).map_while(Option::as_ref);
        way.into_iter().find(|(key, _)| is(key)).map(|(_, standing)| *standing)
    }

    /// The map after these changes, in their order (`None`: taken off). Drops what has passed from the pages that it
    /// touches.
    pub(super) fn with(&self, changes: Vec<(K, Option<Standing>)>, now_ms: u64) -> Self {
        let mut by_page: HashMap<usize, Changes<K>, RandomState> = HashMap::default();
        for (key, standing) in changes {
            let hash = self.hash(&key);
            by_page.entry(page_of(hash)).or_default().insert(key, standing);
        }
        let mut after = self.clone();
        for (number, changes) in by_page {
            let Some(page) = after.by_hash.get_mut(number) else { continue };
            let (slots, len_before, len_after) = self.changed(page, changes, now_ms);
            *page = slots;
            after.len = after.len.saturating_sub(len_before).saturating_add(len_after);
        }
        after
    }

    /// The page after these changes; how many keys it had, and has.
    fn changed(&self, page: &PageOf<K>, changes: Changes<K>, now_ms: u64) -> (PageOf<K>, usize, usize) {
        let here = page.iter().flatten();
        let stays =
            here.clone().filter(|(key, standing)| standing.holds(now_ms) && !changes.contains_key(key));
        let mut kept: Vec<(K, Standing)> = stays.cloned().collect();
        let comes = changes.into_iter().filter_map(|(key, standing)| Some((key, standing?)));
        kept.extend(comes.filter(|(_, standing)| standing.holds(now_ms)));
        let len_after = kept.len();
        // A quarter is empty, at least one slot.
        let slots = len_after.saturating_add(len_after / 3).saturating_add(1);
        let mut placed: Vec<Slot<K>> = vec![None; if len_after == 0 { 0 } else { slots }];
        for (key, standing) in kept {
            let (before, from) = placed.split_at_mut(scale(self.hash(&key), slots));
            if let Some(empty) = from.iter_mut().chain(before).find(|slot| slot.is_none()) {
                *empty = Some((key, standing));
            }
        }
        (placed.into(), here.count(), len_after)
    }

    /// Every key with how it stands.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, Standing)> {
        self.by_hash.iter().flat_map(|page| page.iter().flatten())
    }

    /// What the slots take, without what keys hold elsewhere.
    #[cfg(test)]
    pub(super) fn slot_bytes(&self) -> usize {
        self.by_hash.iter().map(|page| size_of_val::<[Slot<K>]>(page)).sum()
    }
}

/// By the highest bits.
fn page_of(hash: u64) -> usize {
    usize::try_from(hash >> (64 - PAGE_BITS)).unwrap_or_default()
}

/// A number below `slots`, evenly, by the bits that did not choose the page; 0 of no slots.
fn scale(hash: u64, slots: usize) -> usize {
    let slots = u64::try_from(slots).unwrap_or(u64::MAX);
    let scaled = u128::from(hash << PAGE_BITS).wrapping_mul(u128::from(slots)) >> 64;
    usize::try_from(scaled).unwrap_or_default()
}
