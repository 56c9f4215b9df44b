//! What Redis, its operators and its network do to a sale: nothing is done twice, nothing is lost, and what is said
//! says what to do.

use std::time::Duration;

use rushgate::protocol::SkuId;
use rushgate::stock::calls::{Gen, ItemAnswer, Reply, ShardId};
use rushgate::store::redis::{RedisOpenError, RedisOptions, RedisShards};
use rushgate::store::{ReservationStore, StoreError};
use rushgate_servers::{Direction, FaultyLink, Persistence, Redis, RedisSettings};

use crate::installation::{ACTIVITY, Installation, Process, shard, sku, user_of};
use crate::redis_installation::{RedisInstallation, recover};

const PATIENCE: Duration = Duration::from_secs(10);

async fn own_server() -> (Redis, RedisInstallation, Process<crate::redis_installation::RedisStore>) {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let installation = RedisInstallation::with(RedisOptions::single(redis.address())).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 1600)]).await;
    let process = Process::start(installation.store()).await;
    (redis, installation, process)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_flushed_while_selling_are_loaded_again_on_the_spot() {
    let (redis, installation, mut process) = own_server().await;
    let shards = installation.shards();
    shards.read_group("one", 10, Duration::from_millis(10)).await.unwrap();
    for nth in 0..20 {
        redis.call(&["FUNCTION", "FLUSH"]).await.unwrap();
        assert_eq!(process.buy(user_of(shard(3), nth), sku(1), 1).await, ItemAnswer::Reserved);
        if nth % 5 == 0 {
            redis.call(&["FUNCTION", "FLUSH"]).await.unwrap();
            let delivered = shards.read_group("one", 10, Duration::from_secs(10)).await.unwrap();
            assert_eq!(delivered[0].shard, shard(3));
            redis.call(&["FUNCTION", "FLUSH"]).await.unwrap();
            shards.snapshot(shard(3)).await.unwrap();
        }
    }
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.free, figures.sold), (1580, 20));
}

#[tokio::test]
async fn functions_of_two_versions_work_side_by_side() {
    let (redis, installation, mut process) = own_server().await;
    let mut other = "#!lua name=rushgate_0\n".to_owned();
    for part in ["base", "calls", "reserve", "reads", "writers", "recovery"] {
        let path = format!("{}/src/store/redis/lua/{part}.lua", env!("CARGO_MANIFEST_DIR"));
        other.push_str(&std::fs::read_to_string(path).unwrap().replace("'rg1_", "'rg0_"));
    }
    redis.call(&["FUNCTION", "LOAD", &other]).await.unwrap();
    assert_eq!(process.buy(user_of(shard(3), 0), sku(1), 1).await, ItemAnswer::Reserved);
    let meta = "seckill:{03}:meta";
    let guards = (
        redis.cli(&["FCALL", "rg0_guard", "1", meta]).await.unwrap(),
        redis.cli(&["FCALL", "rg1_guard", "1", meta]).await.unwrap(),
    );
    assert_eq!(guards, ("D\n1".to_owned(), "D\n1".to_owned()));
    // A gateway that starts loads its own version again and touches no other.
    RedisShards::open(installation.options.clone()).await.unwrap();
    let libraries = redis.cli(&["FUNCTION", "LIST"]).await.unwrap();
    assert!(libraries.contains("rushgate_0") && libraries.contains("rushgate_1"), "{libraries}");
}

#[tokio::test]
async fn out_of_memory_stores_nothing_and_the_same_number_sells_later() {
    let (redis, installation, mut process) = own_server().await;
    redis.call(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let item = process.item(user_of(shard(3), 0), sku(1), 1);
    let call = process.reserve(shard(3), vec![item]);
    let error = process.store.call(&call).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(said) if said.contains("maxmemory")), "{error}");
    installation.shards().trim(shard(3), Duration::ZERO).await.unwrap();
    redis.call(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!(installation.figures(sku(1)).await.sold, 0);
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
    redis.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await.unwrap();
    let item = process.item(user_of(shard(3), 1), sku(1), 1);
    let call = process.reserve(shard(3), vec![item]);
    let error = process.store.call(&call).await.unwrap_err().to_string();
    assert!(error.contains("min-replicas-to-write"), "{error}");
    redis.call(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await.unwrap();
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
}

#[tokio::test]
async fn too_few_replicas_leave_a_call_unconfirmed_until_one_has_it() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let options = RedisOptions {
        wait_replicas: 1,
        wait_timeout: Duration::from_millis(50),
        ..RedisOptions::single(redis.address())
    };
    let installation = RedisInstallation::with(options).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 160)]).await;
    let mut process = Process::start(installation.store()).await;
    let item = process.item(user_of(shard(3), 0), sku(1), 1);
    let call = process.reserve(shard(3), vec![item]);
    for _ in 0..2 {
        let error = process.store.call(&call).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Unavailable(said) if said.contains("0 of 1 replicas")),
            "{error}"
        );
    }
    let _replica = Redis::replicate_of(&redis).await.unwrap();
    // Asked again as a gateway does: on a busy machine a replica needs longer than one wait. The first replica gives
    // the master a new replication id: a recovery that loses nothing.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let reply = loop {
        match process.store.call(&call).await {
            Ok(Reply::Recovering) => recover(&installation.shards(), Gen(2)).await,
            Ok(reply) => break reply,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
    };
    let Reply::Done(done) = reply else { panic!("{reply:?}") };
    assert_eq!(done.answers, [ItemAnswer::Reserved]);
    assert_eq!(installation.figures(sku(1)).await.sold, 1);
}

#[tokio::test]
async fn what_hinders_an_opening_is_told() {
    let redis = Redis::start_with(RedisSettings {
        password: Some("open sesame".to_owned()),
        ..RedisSettings::new(Persistence::Off)
    })
    .await
    .unwrap();
    let right =
        RedisOptions { password: Some("open sesame".to_owned()), ..RedisOptions::single(redis.address()) };
    for password in [None, Some("wrong".to_owned())] {
        let error = RedisShards::open(RedisOptions { password, ..right.clone() }).await.unwrap_err();
        assert!(matches!(error, RedisOpenError::Refused { .. }) && !error.is_temporary(), "{error}");
    }
    assert!(!format!("{right:?}").contains("sesame"));
    let shards = RedisShards::open(right.clone()).await.unwrap();
    assert!(shards.time().await.unwrap() > Duration::from_secs(1_700_000_000));
    assert!(shards.probe().await.is_err(), "an empty Redis waits for its recovery");
    recover(&shards, Gen(1)).await;
    shards.probe().await.unwrap();

    let replica = Redis::replicate_of(&redis).await.unwrap();
    let unfit = RedisShards::open(RedisOptions { nodes: vec![replica.address()], ..right.clone() }).await;
    assert!(matches!(unfit, Err(RedisOpenError::Unfit { .. })), "{unfit:?}");
    let evicting = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    redis.call(&evicting).await.unwrap();
    redis.call(&["CONFIG", "SET", "maxmemory", "1gb"]).await.unwrap();
    let unfit = RedisShards::open(right.clone()).await;
    assert!(matches!(unfit, Err(RedisOpenError::Unfit { .. })), "{unfit:?}");
    let nodes = |nodes: &[&str]| RedisOptions {
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        ..right.clone()
    };
    let address = redis.address();
    let wrong = [
        nodes(&[]),
        nodes(&["nowhere"]),
        nodes(&[&address, &address]),
        RedisOptions { cluster: true, ..right.clone() },
        RedisOptions { prefix: "a{b}".to_owned(), ..right.clone() },
        RedisOptions { wait_replicas: 1, wait_timeout: Duration::ZERO, ..right.clone() },
    ];
    for options in wrong {
        let error = RedisShards::open(options).await.unwrap_err();
        assert!(!error.is_temporary(), "{error}");
    }
    redis.kill9().await.unwrap();
    let down = RedisShards::open(right).await.unwrap_err();
    assert!(down.is_temporary(), "{down}");
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_is_waited_for_no_longer_than_a_call() {
    let settings =
        RedisSettings { password: Some("open sesame".to_owned()), ..RedisSettings::new(Persistence::Off) };
    let redis = Redis::start_with(settings).await.unwrap();
    let link = FaultyLink::start(format!("127.0.0.1:{}", redis.port()).parse().unwrap()).await.unwrap();
    let options = RedisOptions {
        password: Some("open sesame".to_owned()),
        connect_timeout: PATIENCE * 3,
        call_timeout: Duration::from_millis(200),
        ..RedisOptions::single(link.address().to_string())
    };
    let installation = RedisInstallation::with(options).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 1600)]).await;
    let mut process = Process::start(installation.store()).await;
    let item = process.item(user_of(shard(3), 0), sku(1), 1);
    let call = process.reserve(shard(3), vec![item]);
    // The next connection is accepted; its password is never answered.
    link.swallow(Direction::ToServer, true);
    link.cut();
    let begun = std::time::Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (store, call) = (std::sync::Arc::clone(&process.store), call.clone());
        callers.spawn(async move { store.call(&call).await });
    }
    while let Some(outcome) = callers.join_next().await {
        let outcome = outcome.unwrap();
        assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    link.swallow(Direction::ToServer, false);
    link.cut();
    while process.store.call(&call).await.is_err() {
        assert!(begun.elapsed() < PATIENCE * 2, "it is not connected again");
    }
    assert_eq!(installation.figures(sku(1)).await.sold, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_or_half_open_are_replaced_and_sell_once() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let link = FaultyLink::start(format!("127.0.0.1:{}", redis.port()).parse().unwrap()).await.unwrap();
    let options = RedisOptions {
        call_timeout: Duration::from_millis(200),
        ..RedisOptions::single(link.address().to_string())
    };
    let installation = RedisInstallation::with(options).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 1600)]).await;
    let mut process = Process::start(installation.store()).await;
    let mut sold = 0;
    for nth in 0..6 {
        let item = process.item(user_of(shard(3), nth), sku(1), 1);
        let call = process.reserve(shard(3), vec![item]);
        match nth {
            // Cut between two calls: nobody notices.
            0 | 1 => link.cut(),
            // The replies are lost: the outcome is unknown until the same number is answered.
            2 => {
                link.swallow(Direction::ToClient, true);
                let error = process.store.call(&call).await.unwrap_err().to_string();
                assert!(error.contains("in time"), "{error}");
                link.swallow(Direction::ToClient, false);
                link.cut();
            }
            // Half open for good: given up after some timeouts in a row.
            3 => {
                let before = link.accepted();
                link.hold(Direction::ToServer);
                for _ in 0..3 {
                    assert!(process.store.call(&call).await.is_err());
                }
                link.release(Direction::ToServer);
                process.done(&call).await;
                assert!(link.accepted() > before, "the connection was replaced");
            }
            _ => {}
        }
        assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
        sold += 1;
    }
    assert_eq!(installation.figures(sku(1)).await.sold, sold);
    let snapshot = installation.store().snapshot(ShardId::ALL[3]).await.unwrap();
    assert_eq!(snapshot.marks.len() as u64, sold);
}
