//! Allow-lists in Redis: sets that anybody can look at, changes that are remembered, and what somebody's hand does.

use rushgate::protocol::{ActivityId, UserId};
use rushgate::store::StoreError;
use rushgate::store::allow_lists::{AllowListEditor, AllowListStore, ListState};
use rushgate::store::redis::{RedisOptions, RedisShards};

use crate::allow_lists::{lists_are_sets_whose_version_rises, state, users};
use crate::redis_installation::redis;

const ONE: ActivityId = ActivityId(7);

struct Place {
    prefix: String,
    store: RedisShards,
}

impl Place {
    async fn new() -> Self {
        let prefix = redis().await.fresh_prefix();
        let options = RedisOptions::single(redis().await.address());
        let store = RedisShards::open(RedisOptions { prefix: prefix.clone(), ..options }).await.unwrap();
        Self { prefix, store }
    }

    fn key(&self, rest: &str) -> String {
        format!("{}:{{00}}:{rest}", self.prefix)
    }

    async fn cli(&self, command: &str, key: &str, more: &[&str]) -> String {
        let key = self.key(key);
        let command = [&[command, key.as_str()], more].concat();
        redis().await.cli(&command).await.unwrap().trim().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_in_redis_are_sets_whose_version_rises() {
    let place = Place::new().await;
    lists_are_sets_whose_version_rises(&place.store, &place.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_all_lists_follow_one_another_and_each_says_on_what_it_was_made() {
    let place = Place::new().await;
    let store = &place.store;
    store.change_list(ONE, &users([1, 2]), true).await.unwrap();
    store.change_list(ActivityId(8), &users([5]), true).await.unwrap();
    store.change_list(ONE, &users([2, 3]), false).await.unwrap();
    let changes = store.list_changes(0).await.unwrap();
    let seen: Vec<_> = changes.iter().map(|one| (one.activity.0, one.is_in, one.after.users)).collect();
    assert_eq!(seen, [(7, true, 2), (8, true, 1), (7, false, 1)]);
    assert_eq!((changes[0].before, changes[2].before), (0, changes[0].after.version));
    assert_eq!(changes[2].users, users([2, 3]));
    assert_eq!(state(store, ONE).await, changes[2].after);
    assert_eq!(store.list_changes(changes[1].after.version).await.unwrap(), changes[2..]);
    // No version is given twice, also where hash or log was lost alone.
    for lost in ["allow", "allow:log"] {
        let before = changes[2].after.version.max(state(store, ONE).await.version);
        place.cli("DEL", lost, &[]).await;
        store.change_list(ONE, &users([9]), true).await.unwrap();
        store.change_list(ONE, &users([9]), false).await.unwrap();
        assert!(state(store, ONE).await.version > before, "without {lost}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_filled_by_hand_is_a_list_and_what_is_no_user_counts_and_lets_nobody_in() {
    let place = Place::new().await;
    place
        .cli(
            "SADD",
            "7:allowed",
            &["42", "007", "bob", "0", "-1", "9223372036854775808", "9223372036854775807"],
        )
        .await;
    assert_eq!(state(&place.store, ONE).await, ListState { version: 0, users: 7 });
    let mut listed = place.store.listed(ONE).await.unwrap();
    listed.users.sort_unstable();
    assert_eq!((listed.users, listed.others), (users([42, UserId::MAX]), 5));
    // A key of another kind is named, and nothing is changed.
    place.cli("SET", "8:allowed", &["x"]).await;
    let refused = place.store.change_list(ActivityId(8), &users([1]), true).await;
    assert!(
        matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains("8:allowed") && why.contains("string")),
        "{refused:?}"
    );
    assert_eq!(place.store.list_changes(0).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_100_000_is_read_whole_and_given_back_whole() {
    let place = Place::new().await;
    let all = users(1..=100_000);
    assert!(place.store.restore_list(ONE, &all).await.unwrap());
    assert_eq!(state(&place.store, ONE).await.users, 100_000);
    let mut listed = place.store.listed(ONE).await.unwrap().users;
    listed.sort_unstable();
    listed.dedup();
    assert_eq!(listed, all);
    assert_eq!(place.cli("SISMEMBER", "7:allowed", &["99999"]).await, "1");
}
