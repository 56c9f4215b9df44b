//! The limit of one activity: its pace in force, and where it stands.
//!
//! Runs on the gateway's worker threads; part of the snapshot of what is on sale. The state is shared by all
//! snapshots that come of one another, so that replacing one changes no decision.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::pace::{Pace, update};
use super::{Rate, Share, Slice};

/// See the module.
#[derive(Clone, Debug)]
pub struct ActivityLimit {
    pace: Pace,
    stand: Arc<Stand>,
}

#[derive(Debug, Default)]
struct Stand {
    state: AtomicU64,
    slice: Slice,
}

impl ActivityLimit {
    /// With its full burst.
    pub fn new(rate: Rate, share: Share) -> Self {
        Self { pace: Pace::new(rate, share), stand: Arc::default() }
    }

    /// The same one, at this rate and share from that time on.
    #[must_use]
    pub fn changed(&self, now_ns: u64, rate: Rate, share: Share) -> Self {
        Self { pace: self.pace.changed(now_ns, rate, share), stand: Arc::clone(&self.stand) }
    }

    /// May one more pass at this time? `Err`: in how many milliseconds it would, if nobody else came.
    #[inline]
    pub fn check(&self, now_ns: u64) -> Result<(), u32> {
        if !self.pace.is_on() {
            return Ok(());
        }
        let passed = self.pace.check(now_ns, &self.stand.state);
        passed.or_else(|wait_ms| self.pace.or_borrowed(wait_ms, || self.stand.slice.take(now_ns)))
    }

    /// The rate in force, for all gateways together.
    pub const fn rate(&self) -> Rate {
        self.pace.rate()
    }

    /// Takes up to so many tokens at once for other gateways, as long as half of the burst stays; how many.
    pub fn lend(&self, now_ns: u64, most: u32) -> u32 {
        update(&self.stand.state, |state| self.pace.lend(now_ns, state, most))
    }

    /// What is borrowed for it.
    pub fn slice(&self) -> &Slice {
        &self.stand.slice
    }
}
