//! The gateway's two clocks, read once per wake and handed down as an argument.
//!
//! Any thread. The monotonic one counts from the gateway's start; the sale clock is the wall clock that windows
//! and countdowns go by, and it never moves back: while the wall clock is behind, it stands still.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Monotonic nanoseconds since the gateway's start.
    pub(super) mono_ns: u64,
    /// Unix milliseconds of the sale clock.
    pub(super) sale_ms: u64,
}

impl Now {
    /// Monotonic milliseconds since the gateway's start.
    pub(super) const fn mono_ms(self) -> u64 {
        self.mono_ns / 1_000_000
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Clock {
    started: Instant,
    sale_ms: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { started: Instant::now(), sale_ms: AtomicU64::new(0) }
    }
}

impl Clock {
    /// Reads both.
    pub(super) fn now(&self) -> Now {
        let mono_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        let before = self.sale_ms.fetch_max(wall_ms, Ordering::Relaxed);
        Now { mono_ns, sale_ms: before.max(wall_ms) }
    }
}
