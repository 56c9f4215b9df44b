//! The sidecar writer, as the real process on a real Redis and a real MariaDB: what gateways reserved is settled once,
//! whatever dies in between. One server of each serves all tests but those that kill or stop it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    reason = "tests"
)]

mod audit;
mod child;
mod crash_points;
mod driving;
mod house;
mod outages;
mod panics;
mod payments;
mod rate;
mod reconcile;
mod recorded;
mod refused;
mod settling;
mod sharing;
mod stopping;
mod upkeep;
