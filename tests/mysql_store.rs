//! The SQL side of the production form on a real MariaDB: a test for each rule of the stock protocol that SQL keeps.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

#[macro_use]
#[path = "store_contract/contract.rs"]
mod every_store;
#[path = "mysql_store/cancels.rs"]
mod cancels;
#[path = "mysql_store/contract.rs"]
mod contract;
#[path = "mysql_store/fixture.rs"]
mod fixture;
#[path = "mysql_store/housekeeping.rs"]
mod housekeeping;
#[path = "mysql_store/loads.rs"]
mod loads;
#[path = "mysql_store/modes.rs"]
mod modes;
#[path = "mysql_store/opening.rs"]
mod opening;
#[path = "mysql_store/operators.rs"]
mod operators;
#[path = "mysql_store/overdue.rs"]
mod overdue;
#[path = "mysql_store/payments.rs"]
mod payments;
#[path = "mysql_store/processes.rs"]
mod processes;
#[path = "mysql_store/proxy.rs"]
mod proxy;
#[path = "mysql_store/reconcile.rs"]
mod reconcile;
#[path = "mysql_store/recorded.rs"]
mod recorded;
#[path = "mysql_store/recovery.rs"]
mod recovery;
#[path = "mysql_store/releases.rs"]
mod releases;
#[path = "mysql_store/reservation.rs"]
mod reservation;
#[path = "mysql_store/reserve.rs"]
mod reserve;
#[path = "mysql_store/settlement.rs"]
mod settlement;
#[path = "mysql_store/takeover.rs"]
mod takeover;
#[path = "mysql_store/trouble.rs"]
mod trouble;
#[path = "mysql_store/vanished.rs"]
mod vanished;

// The suite that every store passes.
#[path = "store_contract/installation.rs"]
mod installation;
#[path = "store_contract/random.rs"]
mod random;
#[path = "store_contract/replay.rs"]
mod replay;
#[path = "store_contract/suite.rs"]
mod suite;
