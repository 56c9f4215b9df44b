//! The Redis store: the contract that every reservation store keeps, the rules of the stock protocol one by one,
//! and what Redis, its network and its cluster do to them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests; parts of the contract's vocabulary are for other stores"
)]

#[path = "redis_store/cluster.rs"]
mod cluster;
#[path = "redis_store/group.rs"]
mod group;
#[path = "store_contract/installation.rs"]
mod installation;
#[path = "store_contract/random.rs"]
mod random;
#[path = "redis_store/recovery.rs"]
mod recovery;
#[path = "redis_store/redis_installation.rs"]
mod redis_installation;
#[path = "store_contract/replay.rs"]
mod replay;
#[path = "redis_store/rules.rs"]
mod rules;
#[path = "store_contract/suite.rs"]
mod suite;
#[path = "redis_store/trouble.rs"]
mod trouble;

/// Runs the contract on one kind of installation.
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

/// All of it but two: a shard cannot look at another's counters, so that an excess announcement is not noticed (a
/// caller announces only what it has seen under its own generation), and the feed is trimmed by writers, not by
/// length (`group` has the gaps).
mod on_redis {
    use super::redis_installation::RedisInstallation;
    use super::{random, suite};

    contract!(RedisInstallation:
        suite::exactly_n_of_n_sell,
        suite::items_of_one_batch_see_each_other,
        suite::many_of_one_batch_of_whom_one_holds_an_order,
        suite::a_duplicate_leaves_the_stock_untouched,
        suite::a_closed_order_admits_no_other,
        suite::the_same_number_gives_the_same_reply_and_does_nothing_twice,
        suite::concurrent_copies_of_a_call_execute_once,
        suite::a_stored_reply_outlives_a_restart,
        suite::a_late_copy_of_a_lower_number_is_stale,
        suite::an_old_generation_is_refused_and_its_number_used_up,
        suite::moves_conserve_units_and_repeat_harmlessly,
        suite::announcements_may_come_in_any_order,
        suite::empty_here_concerns_one_item_and_one_shard,
        suite::what_was_never_loaded_is_not_loaded,
        suite::an_item_of_another_shard_is_refused,
        suite::every_change_is_one_event_and_nothing_else_is,
        suite::a_snapshot_is_the_replay_of_the_feed,
        suite::a_reader_waits_for_news,
        suite::a_load_is_applied_once,
        suite::a_removal_takes_only_what_is_free,
        suite::a_dropped_future_leaves_one_outcome,
        suite::process_numbers_are_never_reused,
        random::concurrent_processes_conserve_every_unit,
    );
}
