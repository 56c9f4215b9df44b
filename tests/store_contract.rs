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

#[path = "store_contract/installation.rs"]
mod installation;
#[path = "store_contract/operators.rs"]
mod operators;
#[path = "store_contract/random.rs"]
mod random;
#[path = "store_contract/replay.rs"]
mod replay;
#[path = "store_contract/sqlite.rs"]
mod sqlite;
#[path = "store_contract/sqlite_faults.rs"]
mod sqlite_faults;
#[path = "store_contract/suite.rs"]
mod suite;

/// Runs the whole contract on one kind of installation.
macro_rules! contract {
    ($installation:ty: $($module:ident::$test:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $module::$test::<$installation>().await;
            }
        )+
    };
}

mod on_sqlite {
    use super::sqlite::SqliteInstallation;
    use super::{random, suite};

    contract!(SqliteInstallation:
        suite::exactly_n_of_n_sell,
        suite::items_of_one_batch_see_each_other,
        suite::a_duplicate_leaves_the_stock_untouched,
        suite::many_of_one_batch_of_whom_one_holds_an_order,
        suite::a_closed_order_admits_no_other,
        suite::the_same_number_gives_the_same_reply_and_does_nothing_twice,
        suite::concurrent_copies_of_a_call_execute_once,
        suite::a_stored_reply_outlives_a_restart,
        suite::a_late_copy_of_a_lower_number_is_stale,
        suite::an_old_generation_is_refused_and_its_number_used_up,
        suite::moves_conserve_units_and_repeat_harmlessly,
        suite::announcements_may_come_in_any_order,
        suite::an_excess_announcement_creates_no_unit,
        suite::empty_here_concerns_one_item_and_one_shard,
        suite::what_was_never_loaded_is_not_loaded,
        suite::an_item_of_another_shard_is_refused,
        suite::every_change_is_one_event_and_nothing_else_is,
        suite::an_old_position_is_a_gap,
        suite::a_snapshot_is_the_replay_of_the_feed,
        suite::a_reader_waits_for_news,
        suite::a_load_is_applied_once,
        suite::a_removal_takes_only_what_is_free,
        suite::a_dropped_future_leaves_one_outcome,
        suite::process_numbers_are_never_reused,
        random::concurrent_processes_conserve_every_unit,
    );
}
