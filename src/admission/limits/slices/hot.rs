//! The addresses whose share was not enough: a fixed number of slices, each of one address for as long as it is wanted.
//!
//! Claimed on worker threads by an address that was refused, looked at and released by the task that borrows. Nothing
//! locks: a slot is found by its fingerprint, which is written last. Who finds no free slot among the few that may be
//! his is left with the share of this gateway.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use super::super::IpKey;
use super::Slice;

/// Addresses at a time, and among how many slots one looks for its own.
const SLOTS: usize = 256;
const WAYS: usize = 8;

/// What a fingerprint is not.
const FREE: u64 = 0;
const BEING_CLAIMED: u64 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct HotAddresses {
    sets: Box<[[Slot; WAYS]]>,
    hasher: SeedableRandomState,
}

#[derive(Debug, Default)]
struct Slot {
    fingerprint: AtomicU64,
    /// The key as a number.
    high: AtomicU64,
    low: AtomicU64,
    slice: Slice,
}

impl Default for HotAddresses {
    fn default() -> Self {
        // Clients choose addresses: where theirs meet is not for them to know.
        let seed = RandomState::new().hash_one(SLOTS);
        Self {
            sets: (0..SLOTS / WAYS).map(|_| Default::default()).collect(),
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_random()),
        }
    }
}

impl HotAddresses {
    /// Takes one token; without one, notes that one was wanted, where there is room for the address.
    pub(super) fn take(&self, now_ns: u64, key: IpKey) -> bool {
        let fingerprint = self.fingerprint(key);
        let mut free = None;
        for slot in self.set(fingerprint) {
            match slot.fingerprint.load(Ordering::Acquire) {
                seen if seen == fingerprint => return slot.slice.take(now_ns),
                FREE => free = free.or(Some(slot)),
                _ => {}
            }
        }
        if let Some(slot) = free {
            slot.claim(now_ns, key, fingerprint);
        }
        false
    }

    /// Every address that has a slot.
    pub(super) fn visit(&self, mut visit: impl FnMut(IpKey, &Slice)) {
        for slot in self.sets.iter().flatten() {
            if slot.fingerprint.load(Ordering::Acquire) > BEING_CLAIMED
                && let Some(key) = slot.key()
            {
                visit(key, &slot.slice);
            }
        }
    }

    /// Frees the slot of an address. A thread that has found it before may still take a token that the next address
    /// gets: one of another's, and none too many.
    pub(super) fn release(&self, key: IpKey) {
        let fingerprint = self.fingerprint(key);
        for slot in self.set(fingerprint) {
            let seen = &slot.fingerprint;
            let _ = seen.compare_exchange(fingerprint, FREE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn fingerprint(&self, key: IpKey) -> u64 {
        self.hasher.hash_one(key) | (BEING_CLAIMED << 1)
    }

    fn set(&self, fingerprint: u64) -> &[Slot] {
        let set = usize::try_from(fingerprint >> 32).unwrap_or_default().checked_rem(self.sets.len());
        set.and_then(|set| self.sets.get(set)).map_or(&[], |set| set.as_slice())
    }
}

impl Slot {
    fn claim(&self, now_ns: u64, key: IpKey, fingerprint: u64) {
        let claimed = &self.fingerprint;
        if claimed.compare_exchange(FREE, BEING_CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        let (high, low) = halves(key.number());
        self.high.store(high, Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
        // What the address before it has left is nobody's.
        self.slice.take_up_to(u32::MAX, now_ns);
        self.slice.take(now_ns);
        claimed.store(fingerprint, Ordering::Release);
    }

    fn key(&self) -> Option<IpKey> {
        let (high, low) = (self.high.load(Ordering::Relaxed), self.low.load(Ordering::Relaxed));
        IpKey::of_number((u128::from(high) << 64) | u128::from(low))
    }
}

fn halves(number: u128) -> (u64, u64) {
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
    (half(number >> 64), half(number))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::HashSet;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    fn key(nth: u32) -> IpKey {
        IpKey::new(1, IpAddr::V4(Ipv4Addr::from_bits(nth)))
    }

    fn seen(addresses: &HotAddresses) -> HashSet<IpKey> {
        let mut seen = HashSet::new();
        addresses.visit(|key, _| assert!(seen.insert(key), "each once"));
        seen
    }

    #[test]
    fn an_address_that_was_refused_has_a_slice_of_its_own_until_it_is_released() {
        let addresses = HotAddresses::default();
        let six = IpKey::new(0, IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, 6)));
        assert!(!addresses.take(0, key(1)) && !addresses.take(0, six) && !addresses.take(0, key(1)));
        assert_eq!(seen(&addresses), HashSet::from([key(1), six]));
        addresses.visit(|_, slice| {
            assert!(slice.was_short(), "from the first refusal on");
            slice.put(0, 1, 1_000_000_000);
        });
        assert!(addresses.take(0, six) && !addresses.take(0, six));
        addresses.release(key(1));
        assert_eq!(seen(&addresses), HashSet::from([six]));
        assert!(!addresses.take(0, key(1)), "what it had is gone");
        assert!(!addresses.take(0, key(1)));
    }

    #[test]
    fn any_number_of_addresses_takes_the_same_memory_and_those_without_a_slot_are_refused() {
        let addresses = HotAddresses::default();
        assert!((0..100_000).all(|nth| !addresses.take(0, key(nth))));
        let before = seen(&addresses);
        assert_eq!(before.len(), SLOTS);
        for key in before {
            addresses.release(key);
        }
        assert!(seen(&addresses).is_empty());
    }
}
