//! What a recovery does with shards (rule 11).

use std::time::{Duration, Instant};

use rushgate::protocol::{OrderState, SkuId};
use rushgate::stock::calls::{BringIn, Change, Gen, ItemAnswer, Reply, SHARDS, ShardId};
use rushgate::store::redis::{Adopted, Fenced, Guarded, Rebuilt, RedisOptions, RedisShards};
use rushgate::store::{FeedRead, ReservationStore};
use rushgate_servers::{Persistence, Redis};

use crate::installation::{ACTIVITY, Installation, Process, shard, sku, user_of};
use crate::redis_installation::{RedisInstallation, recover, replicated};
use crate::rules::{mark_of, on_sale};

#[tokio::test]
async fn rule_11_an_open_shard_adopts_a_generation_and_tells_its_counters() {
    let (installation, mut process) = on_sale(160).await;
    let (home, shards) = (shard(3), installation.shards());
    process.move_out(home, sku(1), shard(4), 2).await;
    let state = shards.shard_state(home).await.unwrap();
    assert!(state.is_open && state.epoch.as_ref() == Some(&state.own_epoch));
    assert_eq!((state.generation, state.seq, state.activities.len()), (Gen(1), 2, 1));
    assert_eq!(shards.adopt(home, "another", Gen(2)).await.unwrap(), Adopted::Refused);
    assert_eq!(shards.shard_state(home).await.unwrap(), state);
    for _ in 0..2 {
        let Adopted::Adopted(counters) = shards.adopt(home, &state.own_epoch, Gen(2)).await.unwrap() else {
            panic!("it is open")
        };
        assert_eq!((counters[0].free, counters[0].out.as_slice()), (8, [(shard(4), 2)].as_slice()));
    }
    assert_eq!(
        shards.adopt(home, &state.own_epoch, Gen(1)).await.unwrap(),
        Adopted::Refused,
        "a later one was here"
    );
    let item = process.item(user_of(home, 0), sku(1), 1);
    let call = process.reserve(home, vec![item]);
    assert_eq!(process.reply(&call).await, Reply::Gen(Gen(2)));
    // A reader of the old generation is told to start anew, though nothing else has happened.
    let mut after = [(Gen(1), u64::MAX - 1); SHARDS];
    after[3] = (Gen(1), 2);
    let news = shards.read_feeds(&after, Duration::from_secs(60)).await.unwrap();
    assert_eq!(news, [(home, FeedRead::Gap)]);
    process.generation = Gen(2);
    let call = process.reserve(home, vec![item]);
    let done = process.done(&call).await;
    assert_eq!((done.generation, done.seq, done.answers[0]), (Gen(2), 1, ItemAnswer::Reserved));
    installation.lose_trust().await;
    assert_eq!(shards.adopt(home, &state.own_epoch, Gen(3)).await.unwrap(), Adopted::Refused, "it is closed");
}

#[tokio::test]
async fn rule_11_one_function_decides_about_a_rebuild() {
    let (installation, mut process) = on_sale(160).await;
    let (home, shards) = (shard(3), installation.shards());
    let items = vec![process.item(user_of(home, 0), sku(1), 1), process.item(user_of(home, 1), sku(1), 2)];
    let call = process.reserve(home, items.clone());
    process.done(&call).await;
    let paid = rushgate::stock::calls::Mark { state: OrderState::Paid, pay_by_ms: 5, ..mark_of(&items[1]) };
    shards.settled(home, Gen(1), &[(items[1].user, paid)]).await.unwrap();
    let content = shards.content(home).await.unwrap();
    let epoch = content.epoch.as_str();
    assert_eq!(content.activities[0].loads[0].amounts, [(SkuId(1), 10)]);
    let rebuild = |epoch, generation| shards.rebuild(home, epoch, generation, &content);
    assert_eq!(rebuild(epoch, Gen(2)).await.unwrap(), Rebuilt::AlreadyOpen(Gen(1)));
    installation.lose_trust().await;
    assert_eq!(rebuild("another", Gen(2)).await.unwrap(), Rebuilt::OtherEpoch(epoch.to_owned()));
    assert_eq!(rebuild(epoch, Gen(0)).await.unwrap(), Rebuilt::LaterGeneration(Gen(1)));
    assert_eq!(
        rebuild(epoch, Gen(1)).await.unwrap(),
        Rebuilt::LaterGeneration(Gen(1)),
        "its feed has that one"
    );
    let mut lacking = content.clone();
    lacking.activities.clear();
    assert!(shards.rebuild(home, epoch, Gen(2), &lacking).await.is_err(), "an activity would be lost");
    assert!(!shards.shard_state(home).await.unwrap().is_open);
    assert_eq!(shards.content(home).await.unwrap(), content, "a refusal changes nothing");

    assert_eq!(rebuild(epoch, Gen(2)).await.unwrap(), Rebuilt::Opened);
    assert_eq!(rebuild(epoch, Gen(2)).await.unwrap(), Rebuilt::AlreadyOpen(Gen(2)));
    assert_eq!(shards.content(home).await.unwrap(), content, "it is what was written");
    let state = shards.shard_state(home).await.unwrap();
    assert_eq!((state.generation, state.seq, state.is_open), (Gen(2), 1, true));
    // What is still RESERVED is told once more, for writers that may not have seen it.
    let mut after = [(Gen(2), u64::MAX - 1); SHARDS];
    after[3].1 = 0;
    let news = shards.read_feeds(&after, Duration::ZERO).await.unwrap();
    let [(_, FeedRead::Events(events))] = news.as_slice() else { panic!("{news:?}") };
    assert_eq!(events[0].change, Change::Marked(vec![(items[0].user, mark_of(&items[0]))]));
    // Nothing staged expires after it was switched in, and nothing staged is left.
    let redis = crate::redis_installation::redis().await;
    let keys = redis.cli(&["KEYS", &format!("{}:{{03}}:*", installation.options.prefix)]).await.unwrap();
    for key in keys.lines() {
        assert_eq!(redis.cli(&["TTL", key]).await.unwrap(), "-1", "{key}");
    }
}

#[tokio::test]
async fn rule_11_a_leader_that_was_superseded_opens_nothing_any_more() {
    let (installation, mut process) = on_sale(160).await;
    let (one, other, shards) = (shard(3), shard(4), installation.shards());
    process.move_out(one, sku(1), other, 2).await;
    let open = shards.shard_state(one).await.unwrap();
    assert_eq!(shards.fence(one, &open.own_epoch, Gen(2)).await.unwrap(), Fenced::Refused, "it is open");
    assert_eq!(shards.shard_state(one).await.unwrap(), open);
    installation.lose_trust().await;
    // One leader has read under generation 2 and sleeps; the next one begins generation 3.
    let mut read = Vec::new();
    for shard in [one, other] {
        let content = shards.content(shard).await.unwrap();
        let fence = |epoch: &str, generation| {
            let (shards, epoch) = (shards.clone(), epoch.to_owned());
            async move { shards.fence(shard, &epoch, generation).await.unwrap() }
        };
        for _ in 0..2 {
            assert_eq!(fence(&content.epoch, Gen(2)).await, Fenced::Fenced, "a copy is no other leader");
        }
        assert_eq!(fence("another", Gen(3)).await, Fenced::Refused);
        assert_eq!(fence(&content.epoch, Gen(3)).await, Fenced::Fenced);
        assert_eq!(fence(&content.epoch, Gen(2)).await, Fenced::Refused, "a later one was here");
        read.push((shard, content));
    }
    for (shard, content) in &read {
        let late = shards.rebuild(*shard, &content.epoch, Gen(2), content).await.unwrap();
        assert_eq!(late, Rebuilt::LaterGeneration(Gen(3)));
        assert!(!shards.shard_state(*shard).await.unwrap().is_open);
        assert_eq!(shards.content(*shard).await.unwrap(), *content, "it has changed nothing");
    }
    for (shard, content) in &read {
        let rebuilt = shards.rebuild(*shard, &content.epoch, Gen(3), content).await.unwrap();
        assert_eq!(rebuilt, Rebuilt::Opened);
        assert_eq!(
            shards.fence(*shard, &content.epoch, Gen(4)).await.unwrap(),
            Fenced::Refused,
            "it is open"
        );
    }
}

#[tokio::test]
async fn rule_11_a_tombstone_is_rebuilt_as_a_tombstone() {
    let (installation, _) = on_sale(160).await;
    let (home, shards) = (shard(3), installation.shards());
    shards.end(home, Gen(1), ACTIVITY).await.unwrap();
    shards.archive(home, Gen(1), ACTIVITY).await.unwrap();
    installation.lose_trust().await;
    recover(&shards, Gen(2)).await;
    let late = shards.load(home, Gen(2), "late", ACTIVITY, &[(SkuId(1), 5)]).await.unwrap();
    assert_eq!(late, Guarded::Done(vec![(SkuId(1), 0)]));
    assert_eq!(shards.snapshot(home).await.unwrap().counters, []);
}

#[tokio::test]
async fn rule_1_a_promoted_replica_is_closed_until_it_is_recovered_and_loses_nothing() {
    let (master, replica, options) = replicated().await;
    let installation = RedisInstallation::with(options.clone()).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 320)]).await;
    let mut process = Process::start(installation.store()).await;
    let (from, home) = (shard(1), shard(2));
    let moved = process.move_out(from, sku(1), home, 5).await;
    assert_eq!(process.buy(user_of(home, 0), sku(1), 2).await, ItemAnswer::Reserved);
    let item = process.item(user_of(home, 1), sku(1), 1);
    let last = process.reserve(home, vec![item]);
    let reply = process.reply(&last).await;
    master.kill9().await.unwrap();
    assert!(process.store.call(&last).await.is_err());
    replica.call(&["REPLICAOF", "NO", "ONE"]).await.unwrap();

    let shards = RedisShards::open(RedisOptions::single(replica.address())).await.unwrap();
    assert_eq!(shards.call(&last).await.unwrap(), Reply::Recovering, "it trusts the dead master");
    recover(&shards, Gen(2)).await;
    assert_eq!(shards.call(&last).await.unwrap(), reply, "its stored reply came along");
    let done = {
        process.generation = Gen(2);
        let announced = BringIn { sku: sku(1), source: from, out: moved.counters[0].out[0].1 };
        process.call(
            home,
            rushgate::stock::calls::CallBody::Reserve { bring_in: vec![announced], items: vec![] },
        )
    };
    let Reply::Done(done) = shards.call(&done).await.unwrap() else { panic!("it is open") };
    assert_eq!(done.counters[0].free, 20 - 3 + 5);
    assert_eq!(shards.snapshot(ShardId::ALL[2]).await.unwrap().marks.len(), 2);
}

/// Follows `master` and has taken over what it holds.
async fn follow(follower: &Redis, master: &Redis) {
    follower.call(&["REPLICAOF", master.host(), &master.port().to_string()]).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !follower.cli(&["INFO", "replication"]).await.unwrap().contains("master_link_status:up") {
        assert!(Instant::now() < deadline, "it does not follow");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn rule_1_a_master_that_followed_one_that_had_lost_writes_is_closed_when_it_is_master_again() {
    let former = Redis::start(Persistence::Off).await.unwrap();
    let other = Redis::replicate_of(&former).await.unwrap();
    let installation = RedisInstallation::with(RedisOptions::single(former.address())).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 160)]).await;
    let mut process = Process::start(installation.store()).await;
    let (shards, home) = (installation.shards(), shard(2));
    let trusted = shards.shard_state(home).await.unwrap();
    assert!(trusted.is_open);
    let deadline = Instant::now() + Duration::from_secs(30);
    while other.cli(&["HGET", "seckill:{15}:meta", "a:7"]).await.unwrap() != "live" {
        assert!(Instant::now() < deadline, "the load did not come through");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    other.call(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    assert_eq!(process.buy(user_of(home, 0), sku(1), 1).await, ItemAnswer::Reserved, "the other lacks it");

    follow(&former, &other).await;
    let state = shards.shard_state(home).await.unwrap();
    assert!(!state.is_open && state.epoch == trusted.epoch, "a replica is open for nobody: {state:?}");
    former.call(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    let state = shards.shard_state(home).await.unwrap();
    assert!(!state.is_open && state.epoch == trusted.epoch, "nobody has recovered it: {state:?}");
    let item = process.item(user_of(home, 1), sku(1), 1);
    let call = process.reserve(home, vec![item]);
    assert_eq!(process.reply(&call).await, Reply::Recovering);
    assert_eq!(shards.content(home).await.unwrap().activities[0].marks, [], "the first user's mark is lost");
    assert_eq!(
        shards.rebuild(home, &trusted.own_epoch, Gen(2), &shards.content(home).await.unwrap()).await.unwrap(),
        Rebuilt::OtherEpoch(state.own_epoch),
        "nor by one who saw it before it followed"
    );
    recover(&shards, Gen(2)).await;
    process.generation = Gen(2);
    let call = process.reserve(home, vec![item]);
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
}
