//! Switches in Redis: kept and followed, given back when Redis has lost them, told apart by prefix.

use std::time::Duration;

use rushgate::store::StoreError;
use rushgate::store::redis::{RedisOptions, RedisShards};
use rushgate::store::switches::{SetSwitch, SwitchStore};
use rushgate_servers::RespValue;

use crate::redis_installation::redis;
use crate::switches::{new, switches_are_kept_and_followed, the_last_changes_are_kept_and_every_switch};

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
        format!("{}:{{00}}:switches{rest}", self.prefix)
    }

    async fn lose_everything(&self) {
        let (hash, log) = (self.key(""), self.key(":log"));
        redis().await.call(&["DEL", hash.as_str(), log.as_str()]).await.unwrap();
    }
}

async fn open(prefix: &str) -> RedisShards {
    let options = RedisOptions::single(redis().await.address());
    RedisShards::open(RedisOptions { prefix: prefix.to_owned(), ..options }).await.unwrap()
}

/// Waits until the server's clock has moved on from a version. A server that has lost its data has, long before it is back.
async fn clock_passes(version: u64) {
    loop {
        let time = redis().await.cli(&["TIME"]).await.unwrap();
        let mut parts = time.split_whitespace().map(|part| part.parse::<u64>().unwrap());
        if parts.next().unwrap() * 1_000 + parts.next().unwrap() / 1_000 > version {
            return;
        }
    }
}

fn older(switch: &SetSwitch, name: &str, value: &str) -> SetSwitch {
    let (name, value) = (name.to_owned(), value.to_owned());
    SetSwitch { name, value, version: switch.version - 1_000, ..switch.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_are_kept_and_followed_in_redis() {
    let place = Place::new().await;
    switches_are_kept_and_followed(&place.store, &open(&place.prefix).await).await;
}

#[tokio::test]
async fn the_last_changes_are_kept_and_every_switch_in_redis() {
    the_last_changes_are_kept_and_every_switch(&Place::new().await.store).await;
}

#[tokio::test]
async fn two_installations_on_one_redis_have_switches_of_their_own() {
    let (one, other) = (Place::new().await, Place::new().await);
    let version = one.store.set_switch(&new("entry", "closed", "here")).await.unwrap();
    assert!(other.store.switches().await.unwrap().set.is_empty());
    assert!(other.store.switch_changes(0, Duration::from_millis(50)).await.unwrap().is_empty());
    other.store.set_switch(&new("entry", "open", "there")).await.unwrap();
    let here = one.store.switches().await.unwrap();
    assert_eq!((here.version(), here.set[0].value.as_str()), (version, "closed"));
}

#[tokio::test]
async fn what_redis_has_lost_is_put_back_and_what_is_newer_stays() {
    let place = Place::new().await;
    let store = &place.store;
    store.set_switch(&new("entry", "closed", "lost")).await.unwrap();
    store.set_switch(&new("entry/7", "closed", "lost, too")).await.unwrap();
    let known = store.switches().await.unwrap();
    assert_eq!(store.restore_switches(&known.set).await.unwrap(), 0, "nothing was lost");
    place.lose_everything().await;
    clock_passes(known.version()).await;
    let newest = store.set_switch(&new("entry/7", "open", "since then")).await.unwrap();
    assert!(newest > known.version());
    assert_eq!(store.restore_switches(&known.set).await.unwrap(), 1);
    let now = store.switches().await.unwrap();
    assert_eq!(now.set[0], known.set[0]);
    assert_eq!((now.set[1].version, now.set[1].value.as_str()), (newest, "open"));
    // A second gateway puts back the same, and one that knows less, nothing.
    assert_eq!(store.restore_switches(&known.set).await.unwrap(), 0);
    assert_eq!(store.restore_switches(&[older(&known.set[0], "entry", "open")]).await.unwrap(), 0);
    assert_eq!(store.switches().await.unwrap(), now);
    // Into an empty one all of it, and followers hear of it.
    place.lose_everything().await;
    assert_eq!(store.restore_switches(&now.set).await.unwrap(), 2);
    assert_eq!(store.switches().await.unwrap(), now);
    let told = store.switch_changes(0, Duration::from_millis(50)).await.unwrap();
    assert!(told.iter().map(|switch| switch.version).eq([known.set[0].version, newest]));
    assert!(store.set_switch(&new("entry", "open", "on")).await.unwrap() > newest);
}

#[tokio::test]
async fn a_version_never_goes_back_though_hash_stream_or_clock_do() {
    let place = Place::new().await;
    let ahead = SetSwitch {
        name: "entry".to_owned(),
        value: "closed".to_owned(),
        // As by a clock that was an hour fast.
        version: 3_600_000 + std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64,
        at_ms: 1,
        who: "mia".to_owned(),
        why: "fast".to_owned(),
    };
    place.store.restore_switches(std::slice::from_ref(&ahead)).await.unwrap();
    for (nth, key) in [(1, ":nothing"), (2, ""), (3, ":log")] {
        redis().await.call(&["DEL", place.key(key).as_str()]).await.unwrap();
        let version = place.store.set_switch(&new("entry", "open", "next")).await.unwrap();
        assert_eq!(version, ahead.version + nth, "after losing switches{key}");
    }
}

#[tokio::test]
async fn what_somebody_else_wrote_is_told_by_name_and_harms_nothing() {
    let place = Place::new().await;
    place.store.set_switch(&new("entry", "closed", "mine")).await.unwrap();
    let hash = place.key("");
    for (name, text) in [("entry/7", "closed"), ("entry/8", "12 13 {\"value\":1}"), ("entry/9", "")] {
        redis().await.call(&["HSET", hash.as_str(), name, text]).await.unwrap();
    }
    redis().await.call(&["XADD", place.key(":log").as_str(), "*", "a", "b"]).await.unwrap();
    let found = place.store.switches().await.unwrap();
    assert_eq!(
        (found.set.len(), found.unreadable),
        (1, ["entry/7", "entry/8", "entry/9"].map(str::to_owned).to_vec())
    );
    let next = place.store.set_switch(&new("entry/7", "open", "mended")).await.unwrap();
    assert_eq!(place.store.switches().await.unwrap().version(), next);
}

#[tokio::test]
async fn a_late_copy_of_a_set_is_known_again_and_never_undoes_a_newer_one() {
    let place = Place::new().await;
    let (hash, log) = (place.key(""), place.key(":log"));
    // As a set leaves here whose answer is lost: the copy is the same to the letter.
    let record = r#"{"value":"open","who":"mia","why":"late"}"#;
    let copy = async |seen: &str, id: &str| {
        let call = ["FCALL", "rg1_switch_set", "2", &hash, &log, "1000", "entry", record, seen, id];
        redis().await.call(&call).await.unwrap()
    };
    let text = |version: u64| RespValue::Bulk(Some(version.to_string().into_bytes()));
    let first = copy("0", "one").await;
    let opened = place.store.switches().await.unwrap().version();
    assert_eq!(first, text(opened));
    assert_eq!(copy("0", "one").await, text(opened), "the second copy finds it done");
    let closed = place.store.set_switch(&new("entry", "closed", "newer")).await.unwrap();
    assert_eq!(copy("0", "one").await, text(opened), "done, long ago");
    // One that had not arrived at all when the newer one was set.
    assert_eq!(copy(&opened.to_string(), "two").await, RespValue::Bulk(Some(b"CHANGED".to_vec())));
    assert_eq!(copy("0", "three").await, RespValue::Bulk(Some(b"CHANGED".to_vec())));
    let now = place.store.switches().await.unwrap();
    assert_eq!((now.version(), now.set[0].value.as_str()), (closed, "closed"));
    assert_eq!(place.store.switch_changes(0, Duration::ZERO).await.unwrap().len(), 2);
    // Whoever sets it now has seen that.
    assert!(place.store.set_switch(&new("entry", "open", "now")).await.unwrap() > closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_set_one_switch_at_once_are_all_done_one_after_the_other() {
    let place = Place::new().await;
    let mut setting = tokio::task::JoinSet::new();
    for nth in 0..8 {
        let store = place.store.clone();
        setting
            .spawn(async move { store.set_switch(&new("entry", "closed", &nth.to_string())).await.unwrap() });
    }
    let mut versions = setting.join_all().await;
    versions.sort_unstable();
    let told = place.store.switch_changes(0, Duration::ZERO).await.unwrap();
    assert!(told.iter().map(|change| change.version).eq(versions), "{told:?}");
}

#[tokio::test]
async fn what_was_set_after_a_loss_is_newer_than_what_was_lost_though_the_clock_is_behind() {
    let place = Place::new().await;
    let store = &place.store;
    let closed = store.set_switch(&new("entry", "closed", "since then")).await.unwrap();
    // What gateways obey, from before: the clock was an hour ahead then.
    let before = |name: &str, value: &str| SetSwitch {
        name: name.to_owned(),
        value: value.to_owned(),
        version: closed + 3_600_000,
        at_ms: 1,
        who: "mia".to_owned(),
        why: "an hour ahead".to_owned(),
    };
    let known = [before("entry", "open"), before("entry/7", "closed")];
    assert_eq!(store.restore_switches(&known).await.unwrap(), 1, "entry/7 alone was lost");
    let now = store.switches().await.unwrap();
    assert_eq!((now.set[0].value.as_str(), now.set[0].why.as_str()), ("closed", "since then"));
    assert!(now.set[0].version > known[0].version, "so that those who obeyed the other see it");
    assert_eq!(now.set[1], known[1]);
    assert_eq!(now.lost(&known).count(), 0);
    let told = store.switch_changes(known[0].version, Duration::ZERO).await.unwrap();
    assert!(told.iter().any(|change| change.name == "entry" && change.value == "closed"), "{told:?}");
    // A second gateway that obeys the same changes nothing more.
    assert_eq!(store.restore_switches(&known).await.unwrap(), 0);
    assert_eq!(store.switches().await.unwrap(), now);
    // What was put back is of no life: something newer that a gateway obeys replaces it.
    let newer = SetSwitch { version: now.version() + 5, value: "open".to_owned(), ..known[1].clone() };
    assert_eq!(store.restore_switches(std::slice::from_ref(&newer)).await.unwrap(), 1);
    assert_eq!(store.switches().await.unwrap().set[1], newer);
}

#[tokio::test]
async fn a_name_that_is_no_text_is_told_of_and_stops_nothing() {
    let place = Place::new().await;
    let version = place.store.set_switch(&new("entry", "closed", "mine")).await.unwrap();
    let script = "redis.call('HSET', KEYS[1], string.char(255, 254) .. 'x', 'y') \
                  redis.call('HSET', KEYS[1], 'entry/8', string.char(255)) \
                  redis.call('XADD', KEYS[2], '*', 'n', string.char(255), 'r', string.char(254)) return 1";
    let call = ["EVAL", script, "2", &place.key(""), &place.key(":log")];
    redis().await.call(&call).await.unwrap();
    let found = place.store.switches().await.unwrap();
    assert_eq!((found.set.len(), found.version()), (1, version));
    assert_eq!(found.unreadable, ["entry/8", "\u{fffd}\u{fffd}x"]);
    let next = place.store.set_switch(&new("entry", "open", "goes on")).await.unwrap();
    let told = place.store.switch_changes(version, Duration::ZERO).await.unwrap();
    assert!(told.iter().map(|change| change.version).eq([next]), "{told:?}");
}

#[tokio::test]
async fn a_stray_version_neither_stops_what_is_set_later_nor_stands_above_it() {
    for stray in ["90000000000000", "18446744073709551615", "99999999999999999999", "1e300"] {
        let place = Place::new().await;
        let (hash, log) = (place.key(""), place.key(":log"));
        let first = place.store.set_switch(&new("entry", "closed", "mine")).await.unwrap();
        let kept = format!("{stray} 1 {{\"value\":\"open\",\"who\":\"x\",\"why\":\"y\"}}");
        redis().await.call(&["HSET", &hash, "version", stray, "entry/7", &kept]).await.unwrap();
        if stray.len() < 21 && !stray.contains('e') {
            let id = format!("{}-7", &stray[..stray.len().min(20)].parse::<u64>().unwrap_or(u64::MAX));
            redis().await.call(&["XADD", &log, &id, "n", "entry/7", "r", &kept]).await.unwrap();
        }
        let found = place.store.switches().await.unwrap();
        assert_eq!((found.version(), found.unreadable.as_slice()), (first, &["entry/7".to_owned()][..]));
        let second = place.store.set_switch(&new("entry/7", "open", "mended")).await.unwrap();
        let third = place.store.set_switch(&new("entry", "open", "goes on")).await.unwrap();
        assert!(first < second && second < third && third < first + 3_600_000, "{first} {second} {third}");
        let told = place.store.switch_changes(first, Duration::ZERO).await.unwrap();
        assert!(told.iter().map(|change| change.version).eq([second, third]), "{stray}: {told:?}");
        assert!(place.store.switches().await.unwrap().unreadable.is_empty());
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_named() {
    for rest in ["", ":log"] {
        let place = Place::new().await;
        let key = place.key(rest);
        redis().await.call(&["SET", key.as_str(), "somebody's"]).await.unwrap();
        let error = place.store.set_switch(&new("entry", "closed", "why")).await.unwrap_err();
        let named = matches!(&error, StoreError::Corrupt(said) if said.contains(&format!("the key {key}")));
        assert!(named, "{error}");
        let kept = redis().await.call(&["EXISTS", place.key("").as_str(), place.key(":log").as_str()]).await;
        assert_eq!(kept.unwrap(), RespValue::Integer(1), "nothing was changed");
    }
}
