//! A single Redis does what the tests of the product rely on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    missing_docs,
    reason = "tests"
)]

use std::time::{Duration, Instant};

use rushgate_servers::{Persistence, Redis, RedisSettings, RespValue, ServerError};
use tokio::time::timeout;

#[tokio::test]
async fn what_was_answered_before_a_kill_is_there_after_it_with_always() {
    let redis = Redis::start(Persistence::Always).await.unwrap();
    redis.cli(&["SET", "sku", "41"]).await.unwrap();
    let port = redis.port();
    redis.kill9().await.unwrap();
    assert!(matches!(redis.cli(&["PING"]).await, Err(ServerError::Io { .. })));
    assert!(matches!(redis.kill9().await, Err(ServerError::NotRunning { .. })));
    redis.restart().await.unwrap();
    assert_eq!(redis.port(), port);
    assert_eq!(redis.cli(&["GET", "sku"]).await.unwrap(), "41");
}

#[tokio::test]
async fn nothing_is_there_after_a_restart_with_off_and_the_run_id_is_another() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    redis.cli(&["SET", "sku", "41"]).await.unwrap();
    let run_id = |info: &str| info.lines().find(|line| line.starts_with("run_id:")).unwrap().to_owned();
    let before = run_id(&redis.cli(&["INFO", "server"]).await.unwrap());
    redis.restart().await.unwrap();
    assert_eq!(redis.call(&["GET", "sku"]).await.unwrap(), RespValue::Bulk(None));
    assert_ne!(run_id(&redis.cli(&["INFO", "server"]).await.unwrap()), before);
}

#[tokio::test]
async fn the_append_only_file_is_cut_between_commands_and_never_inside_a_transaction() {
    let redis = Redis::start(Persistence::EverySecond).await.unwrap();
    redis.cli(&["SET", "first", "1"]).await.unwrap();
    redis.cli(&["EVAL", "redis.call('SET', 'a', '2') redis.call('SET', 'b', '2')", "0"]).await.unwrap();
    redis.cli(&["SET", "last", "3"]).await.unwrap();
    assert!(redis.truncate_aof(1).is_err(), "cut while redis was running");
    redis.kill9().await.unwrap();
    assert_eq!(redis.truncate_aof(1).unwrap(), 2);
    redis.restart().await.unwrap();
    assert_eq!(redis.cli(&["MGET", "first", "a", "b", "last"]).await.unwrap(), "1\n2\n2\n");
    redis.kill9().await.unwrap();
    assert_eq!(redis.truncate_aof(1).unwrap(), 1);
    redis.restart().await.unwrap();
    assert_eq!(redis.cli(&["MGET", "first", "a", "b", "last"]).await.unwrap(), "1\n\n\n");
    redis.kill9().await.unwrap();
    assert!(redis.truncate_aof(2).is_err(), "cut more than there is");
    assert_eq!(redis.truncate_aof(1).unwrap(), 0);
    redis.restart().await.unwrap();
    assert_eq!(redis.cli(&["DBSIZE"]).await.unwrap(), "0");
}

#[tokio::test]
async fn a_paused_server_answers_nothing_and_answers_late_when_it_runs_on() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let mut connection = redis.connect().await.unwrap();
    redis.pause().await.unwrap();
    let asked = connection.call(&["PING"]);
    tokio::pin!(asked);
    assert!(timeout(Duration::from_millis(100), &mut asked).await.is_err());
    redis.resume().unwrap();
    assert_eq!(asked.await.unwrap(), RespValue::Simple("PONG".to_owned()));
    redis.pause().await.unwrap();
    redis.restart().await.unwrap();
    redis.pause().await.unwrap();
    redis.kill9().await.unwrap();
}

#[tokio::test]
async fn a_password_and_a_limit_of_memory_are_kept() {
    let settings = RedisSettings {
        password: Some("pass word".to_owned()),
        maxmemory_bytes: Some(4_000_000),
        ..RedisSettings::new(Persistence::Off)
    };
    let redis = Redis::start_with(settings).await.unwrap();
    let mut stranger = rushgate_servers::RespConnection::connect(redis.port(), None).await.unwrap();
    let refused = stranger.call(&["GET", "sku"]).await.unwrap_err();
    assert!(refused.to_string().contains("NOAUTH"), "{refused}");
    let big = "x".repeat(3_000_000);
    redis.cli(&["SET", "big", &big]).await.ok();
    let refused = redis.cli(&["SET", "bigger", &big]).await.unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
}

#[tokio::test]
async fn a_replica_has_what_its_master_was_told_and_wait_counts_it() {
    let settings =
        RedisSettings { password: Some("secret".to_owned()), ..RedisSettings::new(Persistence::Off) };
    let master = Redis::start_with(settings).await.unwrap();
    let replica = Redis::replicate_of(&master).await.unwrap();
    let mut connection = master.connect().await.unwrap();
    connection.call(&["SET", "sku", "41"]).await.unwrap();
    assert_eq!(connection.call(&["WAIT", "1", "5000"]).await.unwrap(), RespValue::Integer(1));
    assert_eq!(replica.cli(&["GET", "sku"]).await.unwrap(), "41");
    replica.pause().await.unwrap();
    connection.call(&["SET", "sku", "40"]).await.unwrap();
    assert_eq!(connection.call(&["WAIT", "1", "50"]).await.unwrap(), RespValue::Integer(0));
}

#[tokio::test]
async fn cpu_time_grows_with_work() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let before = redis.cpu_time().unwrap();
    redis.cli(&["EVAL", "for i = 1, 3e6 do local a = i * i end", "0"]).await.unwrap();
    assert!(redis.cpu_time().unwrap() > before);
}

#[tokio::test]
async fn a_start_that_fails_shows_the_log() {
    let settings =
        RedisSettings { more: vec!["no-such-setting 1".to_owned()], ..RedisSettings::new(Persistence::Off) };
    let error = Redis::start_with(settings).await.unwrap_err();
    assert!(matches!(error, ServerError::Ended { .. }));
    assert!(error.to_string().contains("no-such-setting"), "{error}");
}

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_folder_also_when_it_is_paused() {
    let redis = Redis::start(Persistence::Always).await.unwrap();
    let (port, folder) = (redis.port(), redis.data_dir().to_owned());
    redis.pause().await.unwrap();
    drop(redis);
    assert!(!folder.exists());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[tokio::test]
async fn starts_in_well_under_a_second() {
    let begun = Instant::now();
    let redis = Redis::start(Persistence::Always).await.unwrap();
    let took = begun.elapsed();
    println!("redis started in {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop(redis);
}
