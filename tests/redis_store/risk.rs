//! Risk lists in Redis: kept and followed, what is lost is noticed and given back, told apart by prefix.

use std::time::Duration;

use rushgate::store::StoreError;
use rushgate::store::redis::{RedisOptions, RedisShards};
use rushgate::store::risk::{Change, Followed, NewEntry, NewFlag, RiskStore};

use crate::redis_installation::redis;
use crate::risk::{
    a_flag_replaces_what_was_forgotten, all, changed, entries_are_kept_and_followed,
    flags_are_listed_only_over_what_the_gateway_has_seen, follow, forgotten_steps_are_an_overrun,
    many_entries_are_steps_and_pages, new, what_has_passed_is_forgotten,
};

struct Place {
    prefix: String,
    store: RedisShards,
}

impl Place {
    async fn new() -> Self {
        let prefix = redis().await.fresh_prefix();
        Self { store: open(&prefix).await, prefix }
    }

    fn key(&self, rest: &str) -> String {
        format!("{}:{{00}}:risk{rest}", self.prefix)
    }

    async fn lose(&self, rest: &[&str]) {
        for rest in rest {
            redis().await.call(&["DEL", self.key(rest).as_str()]).await.unwrap();
        }
    }

    async fn after(&self, version: u64) -> Followed {
        self.store.risk_changes(version, Duration::from_millis(20)).await.unwrap()
    }
}

const EVERYTHING: [&str; 3] = ["", ":log", ":until"];

async fn open(prefix: &str) -> RedisShards {
    let options = RedisOptions::single(redis().await.address());
    RedisShards::open(RedisOptions { prefix: prefix.to_owned(), ..options }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_kept_and_followed_in_redis() {
    let place = Place::new().await;
    entries_are_kept_and_followed(&place.store, &open(&place.prefix).await).await;
}

#[tokio::test]
async fn many_entries_are_steps_and_pages_in_redis() {
    many_entries_are_steps_and_pages(&Place::new().await.store).await;
}

#[tokio::test]
async fn forgotten_steps_are_an_overrun_in_redis() {
    forgotten_steps_are_an_overrun(&Place::new().await.store, 1_002, 1).await;
}

#[tokio::test]
async fn what_has_passed_is_forgotten_in_redis() {
    let place = Place::new().await;
    what_has_passed_is_forgotten(&place.store).await;
    let left = redis().await.call(&["ZCARD", place.key(":until").as_str()]).await.unwrap();
    assert_eq!(left, rushgate_servers::RespValue::Integer(1), "the one that has not");
}

#[tokio::test]
async fn flags_are_listed_only_over_what_the_gateway_has_seen_in_redis() {
    let place = Place::new().await;
    flags_are_listed_only_over_what_the_gateway_has_seen(&place.store, &open(&place.prefix).await).await;
    a_flag_replaces_what_was_forgotten(&Place::new().await.store).await;
}

#[tokio::test]
async fn who_follows_or_reads_all_is_told_which_entries_are_flags() {
    let place = Place::new().await;
    let by = |who: &str, subject: &str| NewEntry { who: who.to_owned(), ..new(subject, "slow", 0) };
    let all = [by("mia", "user:1"), by("gateway 7", "user:2"), by("a gateway", "user:3")];
    place.store.risk_add(&all).await.unwrap();
    place.store.risk_add(&all[..1]).await.unwrap();
    let flag = NewFlag { entry: by("gateway 8", "user:4"), seen: None };
    assert_eq!(place.store.risk_flag(&[flag]).await.unwrap(), [true]);
    let is_flag = |change: &Change| (change.subject.clone(), change.is_flag);
    let mut told: Vec<_> = follow(&place.store, 0).await.1.iter().map(is_flag).collect();
    let due = [("user:1", false), ("user:2", true), ("user:3", false), ("user:1", false), ("user:4", true)];
    let due = due.map(|(subject, is_flag)| (subject.to_owned(), is_flag));
    assert_eq!(told, due);
    told = place.store.risk_scan(None).await.unwrap().found.iter().map(is_flag).collect();
    told.sort();
    assert_eq!(told, [&due[..3], &due[4..]].concat());
}

#[tokio::test]
async fn two_installations_on_one_redis_have_risk_lists_of_their_own() {
    let (one, other) = (Place::new().await, Place::new().await);
    one.store.risk_add(&[new("user:1", "block", 0)]).await.unwrap();
    assert_eq!((other.store.risk_version().await.unwrap(), all(&other.store).await.len()), (0, 0));
    assert_eq!(other.after(0).await, Followed::Changes { version: 0, changes: Vec::new() });
}

#[tokio::test]
async fn a_redis_that_has_lost_the_lists_says_so_before_and_after_others_are_listed() {
    for lost in [&EVERYTHING[..], &[""]] {
        let place = Place::new().await;
        place.store.risk_add(&[new("user:1", "block", 0)]).await.unwrap();
        let known = place.store.risk_add(&[new("user:2", "block", 0)]).await.unwrap();
        place.lose(lost).await;
        assert_eq!(place.after(known).await, Followed::Lost, "{lost:?}");
        place.store.risk_add(&[new("user:3", "block", 0)]).await.unwrap();
        assert_eq!(place.after(known).await, Followed::Lost, "{lost:?}");
    }
}

#[tokio::test]
async fn a_redis_that_came_back_without_the_last_step_says_so() {
    let place = Place::new().await;
    let kept = place.store.risk_add(&[new("user:1", "block", 0)]).await.unwrap();
    let known = place.store.risk_add(&[new("user:2", "block", 0)]).await.unwrap();
    // As a server that had not yet written the second step to its disk: everything is as after the first one.
    redis().await.call(&["HDEL", place.key("").as_str(), "user:2"]).await.unwrap();
    redis().await.call(&["HSET", place.key("").as_str(), "version", &kept.to_string()]).await.unwrap();
    redis().await.call(&["XDEL", place.key(":log").as_str(), &format!("{known}-0")]).await.unwrap();
    assert_eq!(place.after(known).await, Followed::Lost);
    let next = place.store.risk_add(&[new("user:3", "block", 0)]).await.unwrap();
    assert!(next > kept);
    assert_eq!(place.after(known).await, Followed::Lost, "also when something newer stands there");
    assert_eq!(follow(&place.store, kept).await, (next, vec![changed("user:3", Some(("block", 0)))]));
}

#[tokio::test]
async fn a_stream_that_is_lost_alone_is_an_overrun_and_versions_go_on() {
    let place = Place::new().await;
    let first = place.store.risk_add(&[new("user:1", "block", 0)]).await.unwrap();
    let second = place.store.risk_add(&[new("user:2", "block", 0)]).await.unwrap();
    place.lose(&[":log"]).await;
    assert_eq!(place.after(first).await, Followed::Overrun);
    assert_eq!(place.after(second).await, Followed::Changes { version: second, changes: Vec::new() });
    let third = place.store.risk_add(&[new("user:3", "block", 0)]).await.unwrap();
    assert_eq!(follow(&place.store, second).await.0, third);
}

#[tokio::test]
async fn what_was_lost_is_put_back_and_what_stands_there_stays() {
    let place = Place::new().await;
    let known = [new("user:1", "block", 0), new("user:2", "slow", 0)];
    assert_eq!(place.store.risk_restore(&[]).await.unwrap(), 0);
    place.store.risk_add(&[new("user:2", "block", 0)]).await.unwrap();
    assert_eq!(place.store.risk_restore(&known).await.unwrap(), 1);
    let version = place.store.risk_version().await.unwrap();
    assert_eq!(place.store.risk_restore(&known).await.unwrap(), 0);
    assert_eq!(place.store.risk_version().await.unwrap(), version, "nothing was changed");
    let now = all(&place.store).await;
    assert_eq!((now["user:1"].0.as_str(), now["user:2"].0.as_str()), ("block", "block"));
}

#[tokio::test]
async fn what_somebody_else_wrote_into_the_lists_harms_nothing() {
    let place = Place::new().await;
    let first = place.store.risk_add(&[new("user:1", "block", 0)]).await.unwrap();
    let hash = place.key("");
    for (subject, text) in
        [("user:2", "block"), ("user:3", "1 2 block {\"who\":1}"), ("nobody", "1 0 block {}")]
    {
        redis().await.call(&["HSET", hash.as_str(), subject, text]).await.unwrap();
    }
    let found = all(&place.store).await;
    assert_eq!((found.len(), found["user:2"].0.as_str(), found["user:3"].0.as_str()), (3, "", "block"));
    let told = place.store.risk_find(&["user:2", "user:3"].map(str::to_owned)).await.unwrap();
    assert!(told.iter().all(|entry| entry.who.is_empty()), "{told:?}");
    // A step that nobody can read is as good as missing.
    redis().await.call(&["XADD", place.key(":log").as_str(), "*", "a", "b"]).await.unwrap();
    assert_eq!(place.after(first).await, Followed::Overrun);
}

#[tokio::test]
async fn a_key_of_the_lists_that_is_of_another_type_is_named() {
    for rest in EVERYTHING {
        let place = Place::new().await;
        let key = place.key(rest);
        redis().await.call(&["SET", key.as_str(), "somebody's"]).await.unwrap();
        let error = place.store.risk_add(&[new("user:1", "block", 1)]).await.unwrap_err();
        let named = matches!(&error, StoreError::Corrupt(said) if said.contains(&format!("the key {key}")));
        assert!(named, "{error}");
        for other in EVERYTHING.into_iter().filter(|other| *other != rest) {
            let kept = redis().await.call(&["EXISTS", place.key(other).as_str()]).await.unwrap();
            assert_eq!(kept, rushgate_servers::RespValue::Integer(0), "nothing was changed");
        }
    }
}
