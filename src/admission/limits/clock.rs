//! A clock for governor that shows the time its caller passed.
//!
//! governor takes its clock as a type and asks it for "now" inside every check. Here time is an argument, so the
//! clock is a cell of the calling thread, set by [`at`] before a check. Nothing reads a real clock.

use std::cell::Cell;

use governor::clock::Clock;
use governor::nanos::Nanos;

/// Times above this are taken as this (292 years): governor adds up to 2⁶² ns to a time, and must not overflow.
const NOW_NS_MAX: u64 = u64::MAX / 2;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

/// Shows the time of the last [`at`] of this thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerClock;

impl Clock for CallerClock {
    type Instant = Nanos;

    #[inline]
    fn now(&self) -> Nanos {
        Nanos::new(NOW_NS.get())
    }
}

/// Runs a check at that time, which it also receives in governor's form. Checks do not nest.
#[inline]
pub(super) fn at<T>(now_ns: u64, check: impl FnOnce(Nanos) -> T) -> T {
    let now_ns = now_ns.min(NOW_NS_MAX);
    NOW_NS.set(now_ns);
    check(Nanos::new(now_ns))
}
