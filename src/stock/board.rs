//! The board: what the funnel may read of stock without asking anybody.
//!
//! Written by the stock task after each change of its view, read by every connection task with two atomic
//! loads. It says "sold out" only while the view behind it is complete, still and fresh; a view that stops being
//! fed stops saying anything when its freshness runs out, without anyone having to come by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dashmap::DashMap;

use crate::protocol::SkuKey;

const UNKNOWN: u32 = u32::MAX;

/// What is known of an SKU over all 16 sub-keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Not known at the moment: ask the store.
    Unknown,
    /// Exactly so many units are free, and none is moving. 0 = sold out.
    Exactly(u32),
}

/// The published state of one SKU.
#[derive(Debug)]
pub struct Slot {
    left: AtomicU32,
    free_seen: AtomicU32,
}

/// All published SKUs, and until when what they say holds.
#[derive(Debug, Default)]
pub struct Board {
    slots: DashMap<SkuKey, Arc<Slot>>,
    fresh_until_ms: AtomicU64,
}

impl Board {
    /// The slot of an SKU, made on first use. Not for the hot path: keep the slot.
    pub fn slot(&self, sku: SkuKey) -> Arc<Slot> {
        let made = || Arc::new(Slot { left: AtomicU32::new(UNKNOWN), free_seen: AtomicU32::new(UNKNOWN) });
        Arc::clone(&self.slots.entry(sku).or_insert_with(made))
    }

    /// What may be said of the slot's SKU at `now_ms` (monotonic, the clock that the stock task is fed with).
    pub fn left(&self, slot: &Slot, now_ms: u64) -> Left {
        // Freshness first: the stock task publishes what is left before it raises the freshness, so what is read
        // after it is at least as new. The other way round a number from before a long silence could be read
        // together with the freshness from after it.
        if !self.is_fresh(now_ms) {
            return Left::Unknown;
        }
        match slot.left.load(Ordering::Acquire) {
            UNKNOWN => Left::Unknown,
            left => Left::Exactly(left),
        }
    }

    /// Whether the view behind the board is fresh at `now_ms`. Ask it before *and* after [`Buyers`](super::Buyers)
    /// knew nothing of a user: if it is both times, he has no order older than the view's lag.
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        let until_ms = self.fresh_until_ms.load(Ordering::Acquire);
        until_ms != 0 && now_ms <= until_ms
    }

    /// Until when the view is fresh.
    pub(super) fn set_fresh_until(&self, now_ms: u64) {
        self.fresh_until_ms.store(now_ms, Ordering::Release);
    }
}

impl Slot {
    /// Free units last seen over the shards that are known, moving ones left out; `None` before the first.
    /// For display: not a promise.
    pub fn free_seen(&self) -> Option<u32> {
        Some(self.free_seen.load(Ordering::Relaxed)).filter(|&free| free != UNKNOWN)
    }

    pub(super) fn publish(&self, left: Left, free_seen: u32) {
        self.free_seen.store(free_seen.min(UNKNOWN.saturating_sub(1)), Ordering::Relaxed);
        let left = match left {
            Left::Unknown => UNKNOWN,
            Left::Exactly(units) => units,
        };
        self.left.store(left, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::protocol::{ActivityId, SkuId};

    const SKU: SkuKey = SkuKey { activity: ActivityId(1), sku: SkuId(1) };

    #[test]
    fn says_nothing_before_it_was_told_and_after_freshness_ran_out() {
        let board = Board::default();
        let slot = board.slot(SKU);
        assert_eq!((board.left(&slot, 0), slot.free_seen()), (Left::Unknown, None));
        board.set_fresh_until(100);
        assert_eq!(board.left(&slot, 50), Left::Unknown, "fresh, but this SKU was never published");
        slot.publish(Left::Exactly(0), 0);
        assert_eq!(board.left(&slot, 100), Left::Exactly(0));
        assert!(board.is_fresh(100));
        assert_eq!(board.left(&slot, 101), Left::Unknown, "nobody had to come by to take it back");
        assert!(!board.is_fresh(101));
        board.set_fresh_until(0);
        assert_eq!(board.left(&slot, 50), Left::Unknown, "a view that was lost takes its word back at once");
    }

    #[test]
    fn what_is_not_known_is_not_told_though_units_were_seen() {
        let board = Board::default();
        board.set_fresh_until(100);
        let slot = board.slot(SKU);
        slot.publish(Left::Unknown, 7);
        assert_eq!((board.left(&slot, 1), slot.free_seen()), (Left::Unknown, Some(7)));
        assert!(Arc::ptr_eq(&slot, &board.slot(SKU)), "a slot that is kept goes on being written");
    }
}
