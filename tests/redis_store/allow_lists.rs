//! Allow-lists in Redis: sets that anybody can look at, changes that are remembered, and what somebody's hand does.

use rushgate::protocol::{ActivityId, UserId};
use rushgate::store::StoreError;
use rushgate::store::allow_lists::{AllowListEditor, AllowListStore, Changed, ListState, WholeList};
use rushgate::store::redis::{RedisOptions, RedisShards};

use crate::allow_lists::{lists_are_sets_whose_version_rises, state, users};
use crate::redis_installation::redis;

const ONE: ActivityId = ActivityId(7);

async fn options(prefix: &str) -> RedisOptions {
    RedisOptions { prefix: prefix.to_owned(), ..RedisOptions::single(redis().await.address()) }
}

struct Place {
    prefix: String,
    store: RedisShards,
}

impl Place {
    async fn new() -> Self {
        let prefix = redis().await.fresh_prefix();
        let store = RedisShards::open(options(&prefix).await).await.unwrap();
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
    let made = |ids: &[u64], is_in| Changed::Users { users: users(ids.iter().copied()), is_in };
    let seen: Vec<_> =
        changes.iter().map(|one| (one.activity.0, one.what.clone(), one.after.users)).collect();
    assert_eq!(seen, [(7, made(&[1, 2], true), 2), (8, made(&[5], true), 1), (7, made(&[2, 3], false), 1)]);
    assert_eq!((changes[0].before, changes[2].before), (0, changes[0].after.version));
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
async fn a_list_whose_key_is_of_another_kind_hides_no_other() {
    let place = Place::new().await;
    let other = ActivityId(9);
    place.store.change_list(other, &users([1]), true).await.unwrap();
    place.cli("SET", "7:allowed", &["x"]).await;
    place.cli("HSET", "allow", &["8", "yesterday"]).await;
    let told = place.store.list_states(&[ONE, ActivityId(8), other]).await.unwrap();
    for (told, says) in told.iter().zip(["7:allowed is a string", "allow holds \"yesterday\", no version"]) {
        assert!(matches!(told, Err(StoreError::Corrupt(why)) if why.contains(says)), "{told:?}");
    }
    assert_eq!(told[2].as_ref().unwrap().users, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_100_000_is_read_whole_and_given_back_whole_and_nobody_sees_a_part_of_it() {
    let place = Place::new().await;
    let all = users(1..=100_000);
    let nothing = ListState::default();
    let (done, is_done) = tokio::sync::watch::channel(false);
    let looker = RedisShards::open(options(&place.prefix).await).await.unwrap();
    let looking = tokio::spawn(async move {
        let mut looks = Vec::new();
        while !*is_done.borrow() {
            looks.push(state(&looker, ONE).await);
        }
        looks
    });
    let whole = WholeList { users: &all, known: Some(41) };
    let put = place.store.put_list(ONE, nothing, whole).await.unwrap().unwrap();
    done.send_replace(true);
    let looks = looking.await.unwrap();
    assert!(looks.len() > 10 && looks.iter().all(|look| [nothing, put].contains(look)), "{looks:?}");
    assert_eq!((put.users, state(&place.store, ONE).await), (100_000, put));
    let mut listed = place.store.listed(ONE).await.unwrap().users;
    listed.sort_unstable();
    listed.dedup();
    assert_eq!(listed, all);
    assert_eq!(place.cli("SISMEMBER", "7:allowed", &["99999"]).await, "1");
    assert_eq!(place.cli("TTL", "7:allowed", &[]).await, "-1", "what was staged expires, and this does not");
    let changes = place.store.list_changes(0).await.unwrap();
    let due = (0, put, Changed::Whole { known: Some(41) });
    assert_eq!(
        changes.iter().map(|one| (one.before, one.after, one.what.clone())).collect::<Vec<_>>(),
        [due]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_list_takes_the_place_only_of_what_was_seen_there() {
    let place = Place::new().await;
    let store = &place.store;
    let (some, nothing) = (users([1, 2, 3]), ListState::default());
    let whole = WholeList { users: &some, known: None };
    // An operator was faster; then somebody's hand.
    store.change_list(ONE, &users([9]), true).await.unwrap();
    let seen = state(store, ONE).await;
    assert_eq!(store.put_list(ONE, nothing, whole).await.unwrap(), None);
    place.cli("SADD", "7:allowed", &["10"]).await;
    assert_eq!(store.put_list(ONE, seen, whole).await.unwrap(), None);
    assert_eq!(state(store, ONE).await, ListState { users: 2, ..seen }, "nothing was changed");
    assert_eq!(store.list_changes(seen.version).await.unwrap(), []);
    // As it stands; the version goes on, and the next change is made on it.
    let put = store.put_list(ONE, ListState { users: 2, ..seen }, whole).await.unwrap().unwrap();
    assert!(put.version > seen.version && put == state(store, ONE).await && put.users == 3, "{put:?}");
    store.change_list(ONE, &users([3]), false).await.unwrap();
    let changes = store.list_changes(seen.version).await.unwrap();
    assert_eq!((changes[0].before, changes[1].before), (seen.version, put.version));
    assert_eq!(changes[0].what, Changed::Whole { known: None });
    // Also an empty one.
    let seen = state(store, ONE).await;
    let empty = store.put_list(ONE, seen, WholeList { users: &[], known: Some(1) }).await.unwrap().unwrap();
    assert_eq!((empty.users, state(store, ONE).await), (0, empty));
    // Another twice in it is not what was staged: nothing is done.
    let twice = users([1, 1]);
    let twice = WholeList { users: &twice, known: None };
    assert_eq!(store.put_list(ONE, empty, twice).await.unwrap(), None);
    let left = redis().await.cli(&["KEYS", &place.key("staged:*")]).await.unwrap();
    assert_eq!(left.trim(), "", "what was staged for nothing is gone");
}
