//! Counts of devices in Redis: bounded sets that pass, away from everything else whatever devices are called.

use std::time::Duration;

use rushgate::store::StoreError;
use rushgate::store::devices::{CountBounds, DEVICES_OF_USER_MAX, DeviceStore, SIGHTINGS_MAX};
use rushgate::store::redis::{RedisOptions, RedisShards};
use rushgate_servers::{Persistence, Redis, RedisCluster, RedisSettings, RespValue};

use crate::devices::{
    BOUNDS, HOSTILE, a_sighting_counts_for_its_window, count, devices_and_users_are_counted, seen,
};
use crate::redis_installation::redis;

async fn open(prefix: &str) -> RedisShards {
    let options = RedisOptions::single(redis().await.address());
    RedisShards::open(RedisOptions { prefix: prefix.to_owned(), ..options }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_counted_over_all_gateways_in_redis() {
    let prefix = redis().await.fresh_prefix();
    devices_and_users_are_counted(&open(&prefix).await, &open(&prefix).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_seen_too_long_ago_do_not_count_in_redis() {
    let prefix = redis().await.fresh_prefix();
    a_sighting_counts_for_its_window(&open(&prefix).await).await;
}

async fn keys(pattern: &str) -> Vec<String> {
    let found = redis().await.call(&["KEYS", pattern]).await.unwrap();
    let RespValue::Array(Some(found)) = found else { panic!("{found:?}") };
    let text = |key: RespValue| match key {
        RespValue::Bulk(Some(key)) => String::from_utf8(key).unwrap(),
        other => panic!("{other:?}"),
    };
    found.into_iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_keep_bounded_sets_that_pass_by_themselves() {
    let prefix = redis().await.fresh_prefix();
    let store = open(&prefix).await;
    for user in 1..=1000 {
        count(&store, "farm", user).await;
    }
    let of_device = keys(&format!("{prefix}:*:seen:device:*")).await;
    assert_eq!(of_device.len(), 1);
    let size = redis().await.call(&["ZCARD", of_device[0].as_str()]).await.unwrap();
    assert_eq!(size, RespValue::Integer(6), "one more than may be");
    let all = keys(&format!("{prefix}:*")).await;
    assert_eq!(all.len(), 1001, "one set for the device and one for each user");
    for key in all.iter().take(50) {
        let RespValue::Integer(ttl_ms) = redis().await.call(&["PTTL", key.as_str()]).await.unwrap() else {
            panic!()
        };
        let window_ms = BOUNDS.window.as_millis() as i64;
        assert!((window_ms - 60_000..=window_ms).contains(&ttl_ms), "{key} goes in {ttl_ms} ms");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_one_user_make_no_more_sets_than_may_be() {
    for (devices_max, bound) in [(BOUNDS.devices_max, BOUNDS.devices_max), (0, DEVICES_OF_USER_MAX)] {
        let prefix = redis().await.fresh_prefix();
        let store = open(&prefix).await;
        let bounds = CountBounds { devices_max, ..BOUNDS };
        let all: Vec<_> = (0..10_000).map(|number| seen(&format!("random {number}"), 1)).collect();
        for some in all.chunks(SIGHTINGS_MAX) {
            let counts = store.devices_seen(some, &bounds).await.unwrap();
            assert!(counts.iter().all(|at| at.devices <= devices_max + 1), "{counts:?}");
        }
        let of_device = keys(&format!("{prefix}:*:seen:device:*")).await;
        assert_eq!(of_device.len(), bound as usize, "one set for each device that counted");
        assert_eq!(keys(&format!("{prefix}:*")).await.len(), bound as usize + 1, "and the user's");
    }
}

/// Of a cluster: there a name that chose its key's slot would be refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_any_name_are_counted_on_a_cluster() {
    let settings = RedisSettings::new(Persistence::Off);
    let cluster = RedisCluster::start_with(3, 0, settings).await.unwrap();
    let store = RedisShards::open(RedisOptions::cluster(cluster.addresses())).await.unwrap();
    for (at, name) in HOSTILE.iter().enumerate() {
        for user in 1..=3_u32 {
            assert_eq!(count(&store, name, 10 * at as u64 + u64::from(user)).await, (user, 1), "{name:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_under_a_key_of_somebody_elses_are_refused_by_name() {
    let prefix = redis().await.fresh_prefix();
    let store = open(&prefix).await;
    count(&store, "phone:feed", 1).await;
    let key = keys(&format!("{prefix}:*:seen:device:*")).await.remove(0);
    redis().await.call(&["DEL", key.as_str()]).await.unwrap();
    redis().await.call(&["SET", key.as_str(), "mine"]).await.unwrap();
    let refused = store.devices_seen(&[seen("phone:feed", 2)], &BOUNDS).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Corrupt(why) if why.contains(&key)), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_not_counted_while_redis_is_away_and_again_when_it_is_back() {
    let server = Redis::start(Persistence::Off).await.unwrap();
    let options =
        RedisOptions { call_timeout: Duration::from_millis(300), ..RedisOptions::single(server.address()) };
    let store = RedisShards::open(options).await.unwrap();
    assert_eq!(count(&store, "phone", 1).await, (1, 1));
    server.pause().await.unwrap();
    let away = store.devices_seen(&[seen("phone", 2)], &BOUNDS).await.unwrap_err();
    assert!(matches!(away, StoreError::Unavailable(_)), "{away}");
    server.resume().unwrap();
    assert_eq!(count(&store, "phone", 2).await, (2, 1));
}
