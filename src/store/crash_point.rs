//! Named places at which a process may be told to die, for tests and drills of what a crash leaves behind.
//!
//! One stands at each boundary of a script in Redis and of a commit in SQL. `RUSHGATE_CRASH_POINT=name` aborts the
//! process when it comes by for the first time, `name:3` for the third; `panic:name` panics there instead. Unset, passing one costs a relaxed load.
//! Armed once, at the start of a command; nothing else here is ever written.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Which environment variable names the place.
pub const VARIABLE: &str = "RUSHGATE_CRASH_POINT";

/// All of them, in the order in which a gateway and then a writer come by.
pub const ALL: &[&str] = &[
    "gateway.before_call",
    "gateway.after_reply",
    "gateway.before_queued",
    "gateway.after_queued",
    "gateway.before_hand_in",
    "gateway.after_hand_in",
    "writer.entries_read",
    "writer.entries_claimed",
    "writer.before_dead_letter",
    "writer.after_dead_letter",
    "writer.before_commit",
    "writer.after_commit",
    "writer.after_settled",
    "writer.after_acknowledge",
    "writer.before_backfill",
    "writer.after_backfill",
    "writer.before_preheat",
    "writer.after_preheat",
    "writer.before_load",
    "writer.after_load",
    "writer.after_load_done",
    "writer.before_release",
    "writer.after_release",
    "writer.after_releases_done",
    "writer.before_marks",
    "writer.after_marks",
    "writer.after_marks_told",
    "writer.before_payment",
    "writer.after_payment",
    "writer.after_parked",
    "writer.after_overdue_taken",
    "writer.after_asked",
    "writer.before_overdue_closed",
    "writer.after_overdue_closed",
    "writer.after_paid_answer",
    "writer.after_cancel_closed",
    "writer.after_cancels",
    "writer.before_end",
    "writer.after_end",
    "writer.after_archived",
    "writer.after_tombstones",
    "writer.after_trim",
    "writer.after_forget",
    "writer.after_forget_processes",
    "writer.after_forget_recoveries",
    "takeover.after_generation",
    "takeover.after_hand_ins",
    "takeover.after_close",
    "takeover.after_commit",
    "takeover.after_back",
];

/// Those of them that only orders pass that are paid, cancelled or not paid in time: tests of the writer kill it at each, and
/// a drill in which orders are paid; a sale in which nobody pays passes none.
pub const OF_PAYMENTS: [&str; 10] = [
    "writer.before_payment",
    "writer.after_payment",
    "writer.after_parked",
    "writer.after_overdue_taken",
    "writer.after_asked",
    "writer.before_overdue_closed",
    "writer.after_overdue_closed",
    "writer.after_paid_answer",
    "writer.after_cancel_closed",
    "writer.after_cancels",
];

/// Those of them that are passed only where orders were recorded first.
pub const OF_BACKFILL: [&str; 2] = ["writer.before_backfill", "writer.after_backfill"];

static ARMED: AtomicBool = AtomicBool::new(false);
static TARGET: OnceLock<Target> = OnceLock::new();

#[derive(Debug)]
struct Target {
    name: &'static str,
    left: AtomicU32,
    panics: bool,
}

/// Why a place could not be armed.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE}={value:?} names no crash point; `rushgate writer --crash-points` lists them, `:N` counts, `panic:` before it panics"
)]
pub struct UnknownCrashPoint {
    /// What was set.
    pub value: String,
}

/// Arms what the environment names, if it does. A second time changes nothing.
pub fn arm_from_environment() -> Result<(), UnknownCrashPoint> {
    let Ok(value) = std::env::var(VARIABLE) else { return Ok(()) };
    let target = parse(&value).ok_or(UnknownCrashPoint { value })?;
    let does = if target.panics { "panic" } else { "abort" };
    tracing::warn!(name = target.name, "a crash point is armed: this process will {does} there");
    if TARGET.set(target).is_ok() {
        ARMED.store(true, Ordering::Release);
    }
    Ok(())
}

fn parse(value: &str) -> Option<Target> {
    let (panics, value) = value.strip_prefix("panic:").map_or((false, value), |name| (true, name));
    let (name, count) = match value.split_once(':') {
        Some((name, count)) => (name, count.parse().ok().filter(|count| *count > 0)?),
        None => (value, 1),
    };
    let name = ALL.iter().find(|known| **known == name)?;
    Some(Target { name, left: AtomicU32::new(count), panics })
}

/// The process comes by the place of that name, one of [`ALL`].
pub fn pass(name: &'static str) {
    if ARMED.load(Ordering::Relaxed) {
        come_by(name);
    }
}

#[cold]
fn come_by(name: &'static str) {
    let Some(target) = TARGET.get().filter(|target| target.name == name) else { return };
    if target.left.fetch_sub(1, Ordering::Relaxed) == 1 {
        assert!(!target.panics, "at the crash point {name}");
        tracing::error!(name, "aborting at a crash point");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_count_and_has_to_be_known() {
        let parsed = |value| parse(value).map(|target| (target.name, target.left.into_inner()));
        assert_eq!(parsed("writer.after_commit"), Some(("writer.after_commit", 1)));
        assert_eq!(parsed("writer.after_commit:3"), Some(("writer.after_commit", 3)));
        assert_eq!(parsed("panic:writer.after_commit:3"), Some(("writer.after_commit", 3)));
        assert!(parse("panic:writer.after_commit").is_some_and(|target| target.panics));
        for wrong in ["", "writer", "writer.after_commit:", "writer.after_commit:0", "writer.after_commit:x"]
        {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_name_is_listed_twice() {
        for (nth, name) in ALL.iter().enumerate() {
            assert!(!ALL.iter().skip(nth).skip(1).any(|other| other == name), "{name}");
        }
    }
}
