//! Trouble that comes again and again, told without flooding the log: the first time, then a summary every few
//! seconds, and once when it is over.

use std::fmt::Display;

/// Between two summaries.
const SUMMARY_MS: u64 = 5000;

/// One kind of trouble.
#[derive(Debug)]
pub(super) struct Trouble {
    what: &'static str,
    times: u64,
    told_ms: u64,
}

impl Trouble {
    pub(super) const fn new(what: &'static str) -> Self {
        Self { what, times: 0, told_ms: 0 }
    }

    /// It happened (again).
    pub(super) fn happened(&mut self, now_ms: u64, error: &impl Display) {
        let is_first = self.times == 0;
        self.times = self.times.saturating_add(1);
        if is_first || now_ms.saturating_sub(self.told_ms) >= SUMMARY_MS {
            self.told_ms = now_ms;
            tracing::warn!(%error, times = self.times, "{}; it is tried again", self.what);
        }
    }

    /// It went well.
    pub(super) fn over(&mut self) {
        if self.times > 0 {
            tracing::info!(times = self.times, "over: {}", self.what);
            self.times = 0;
        }
    }
}
