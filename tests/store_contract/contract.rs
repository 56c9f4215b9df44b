//! The contract as tests of one kind of installation: each sentence of the suite is a test where this is called.

/// `contract_of_every_store!(Installation)`: what every store does.
macro_rules! contract_of_every_store {
    ($installation:ty) => {
        contract!($installation:
            suite::exactly_n_of_n_sell,
            suite::items_of_one_batch_see_each_other,
            suite::a_duplicate_leaves_the_stock_untouched,
            suite::many_of_one_batch_of_whom_one_holds_an_order,
            suite::a_closed_order_admits_the_next_attempt_alone,
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
    };
}

/// These sentences on one kind of installation.
macro_rules! contract {
    ($installation:ty: $($module:ident::$test:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::$module::$test::<$installation>().await;
            }
        )+
    };
}
