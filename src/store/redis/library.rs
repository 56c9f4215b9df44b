//! The library of Redis Functions. Its name and its functions carry a version, so that gateways of two versions
//! work side by side on one Redis; what a version's functions store is what the next version's must read.

/// The library as `FUNCTION LOAD` takes it.
pub(super) const CODE: &str = concat!(
    "#!lua name=rushgate_1\n",
    include_str!("lua/base.lua"),
    include_str!("lua/calls.lua"),
    include_str!("lua/attempts.lua"),
    include_str!("lua/reserve.lua"),
    include_str!("lua/reads.lua"),
    include_str!("lua/writers.lua"),
    include_str!("lua/recovery.lua"),
    include_str!("lua/switches.lua"),
    include_str!("lua/risk.lua"),
    include_str!("lua/devices.lua"),
    include_str!("lua/allow_lists.lua"),
    include_str!("lua/slices.lua"),
    include_str!("lua/reconcile.lua"),
);

pub(super) const RESERVE: &str = "rg1_reserve";
pub(super) const RESERVE_MANY: &str = "rg1_reserve_many";
pub(super) const RESERVE_LIMITED: &str = "rg1_reserve_limited";
pub(super) const RESERVE_MANY_LIMITED: &str = "rg1_reserve_many_limited";
pub(super) const MOVE_OUT: &str = "rg1_move_out";
pub(super) const GUARD: &str = "rg1_guard";
pub(super) const COUNTERS: &str = "rg1_counters";
pub(super) const MARKS: &str = "rg1_marks";
pub(super) const TAIL: &str = "rg1_tail";
pub(super) const LOAD: &str = "rg1_load";
pub(super) const SETTLED: &str = "rg1_settled";
pub(super) const RELEASE: &str = "rg1_release";
pub(super) const END: &str = "rg1_end";
pub(super) const ARCHIVE: &str = "rg1_archive";
pub(super) const CLAIM: &str = "rg1_claim";
pub(super) const BACKLOG: &str = "rg1_backlog";
pub(super) const TRIM: &str = "rg1_trim";
pub(super) const FORGET: &str = "rg1_forget";
pub(super) const STATE: &str = "rg1_state";
pub(super) const ADOPT: &str = "rg1_adopt";
pub(super) const SHUT: &str = "rg1_shut";
pub(super) const FENCE: &str = "rg1_fence";
pub(super) const REBUILD: &str = "rg1_rebuild";
pub(super) const SWITCH_SET: &str = "rg1_switch_set";
pub(super) const SWITCH_RESTORE: &str = "rg1_switch_restore";
pub(super) const RISK_ADD: &str = "rg1_risk_add";
pub(super) const RISK_RESTORE: &str = "rg1_risk_restore";
pub(super) const RISK_FLAG: &str = "rg1_risk_flag";
pub(super) const RISK_REMOVE: &str = "rg1_risk_remove";
pub(super) const SEEN: &str = "rg1_seen";
pub(super) const ALLOW_CHANGE: &str = "rg1_allow_change";
pub(super) const ALLOW_PUT: &str = "rg1_allow_put";
pub(super) const ALLOW_STATES: &str = "rg1_allow_states";
pub(super) const SLICES: &str = "rg1_slices";
pub(super) const BOOKS: &str = "rg1_books";
pub(super) const MEND_UNITS: &str = "rg1_mend_units";
pub(super) const MEND_MOVED: &str = "rg1_mend_moved";
pub(super) const MEND_LOAD: &str = "rg1_mend_load";
pub(super) const MEND_MARKS: &str = "rg1_mend_marks";
pub(super) const MEND_RECORDS: &str = "rg1_mend_records";

/// `FCALL` of a function with its keys; arguments are appended by the caller.
pub(super) fn fcall(function: &str, keys: &[String]) -> redis::Cmd {
    let mut command = redis::cmd("FCALL");
    command.arg(function).arg(keys.len()).arg(keys);
    command
}
