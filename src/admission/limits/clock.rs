//! A clock for governor that shows the time its caller passed.
//!
//! governor takes its clock as a type and asks it for "now" inside every check. Here time is an argument, so the
//! clock is a cell of the calling thread, set by [`at`] for the duration of one check. Nothing reads a real clock.

use std::cell::Cell;

use governor::clock::Clock;
use governor::nanos::Nanos;

/// Times above this are taken as this (292 years): governor adds up to 2⁶² ns to a time, and must not overflow.
const NOW_NS_MAX: u64 = u64::MAX / 2;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

/// Shows the time of the innermost [`at`] of this thread; 0 outside of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerClock;

impl Clock for CallerClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(NOW_NS.get())
    }
}

/// Runs a check at that time, which it also receives in governor's form.
pub(super) fn at<T>(now_ns: u64, check: impl FnOnce(Nanos) -> T) -> T {
    let now_ns = now_ns.min(NOW_NS_MAX);
    let outer = NOW_NS.replace(now_ns);
    let outcome = check(Nanos::new(now_ns));
    NOW_NS.set(outer);
    outcome
}
