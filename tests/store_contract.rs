//! The contract that every reservation store keeps, run on each of them, and what is particular to each.

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

#[path = "store_contract/allow_lists.rs"]
mod allow_lists;
#[macro_use]
#[path = "store_contract/contract.rs"]
mod contract;
#[path = "store_contract/devices.rs"]
mod devices;
#[path = "store_contract/installation.rs"]
mod installation;
#[path = "store_contract/operators.rs"]
mod operators;
#[path = "store_contract/random.rs"]
mod random;
#[path = "store_contract/replay.rs"]
mod replay;
#[path = "store_contract/risk.rs"]
mod risk;
#[path = "store_contract/sqlite.rs"]
mod sqlite;
#[path = "store_contract/sqlite_allow_lists.rs"]
mod sqlite_allow_lists;
#[path = "store_contract/sqlite_devices.rs"]
mod sqlite_devices;
#[path = "store_contract/sqlite_faults.rs"]
mod sqlite_faults;
#[path = "store_contract/sqlite_payments.rs"]
mod sqlite_payments;
#[path = "store_contract/sqlite_risk.rs"]
mod sqlite_risk;
#[path = "store_contract/sqlite_switches.rs"]
mod sqlite_switches;
#[path = "store_contract/suite.rs"]
mod suite;
#[path = "store_contract/switches.rs"]
mod switches;

mod on_sqlite {
    use super::sqlite::SqliteInstallation;

    contract_of_every_store!(SqliteInstallation);
    contract!(SqliteInstallation:
        suite::an_excess_announcement_creates_no_unit,
        suite::an_old_position_is_a_gap,
    );
}
