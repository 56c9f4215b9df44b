//! What a gateway may rely on in a recovery: that it is waited for while it lives (rule 11), and that nothing older than
//! what its lease tells is passed on to it (rule 12).

use std::time::{Duration, Instant};

use rushgate::protocol::{ActivityId, SkuId};
use rushgate::stock::calls::{Call, CallBody, Gen, ProcessNumber, Reply, SHARDS, ShardId};
use rushgate::store::redis::{Guarded, RedisOptions, RedisShards};
use rushgate::store::shared::{Keeper, SharedStore};
use rushgate::store::sql::mysql::{Leadership, MySqlInstallation, ProcessKind};
use rushgate::store::{FeedRead, HandIn, ReservationStore, StoreError};
use rushgate_servers::{Persistence, Redis, RedisSettings};

use super::house::SALE;
use super::shop::{Shop, own_redis};

const NONE: [bool; SHARDS] = [false; SHARDS];

/// A Redis of its own and a database, and nobody who works on them.
fn empty_shop() -> (tokio::runtime::Runtime, Redis, RedisOptions, Shop) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (redis, options) = runtime.block_on(own_redis(RedisSettings::new(Persistence::Off)));
    let shop = Shop::on(options.clone());
    (runtime, redis, options, shop)
}

/// Asks until there is an answer.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "in vain for 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn are_open(redis: &RedisShards, generation: Gen) -> Option<()> {
    for shard in ShardId::ALL {
        let state = redis.shard_state(shard).await.unwrap();
        if !state.is_open || state.generation != generation {
            return None;
        }
    }
    Some(())
}

async fn lead(sql: &MySqlInstallation) -> Leadership {
    until("nobody leads", async || sql.try_lead().await.unwrap()).await
}

#[test]
fn rule_11_the_leader_waits_for_a_gateway_that_lives_and_for_none_that_is_silent() {
    let (_runtime, server, options, shop) = empty_shop();
    shop.run(async |sql| {
        let redis = RedisShards::open(options).await.unwrap();
        let gateway = sql.register(ProcessKind::Gateway).await.unwrap().process;
        let (_, leader) = Keeper::register_writer(redis.clone(), sql.clone()).await.unwrap();
        let _state = leader.state();
        tokio::spawn(leader.run());
        let asked = async || sql.renew(gateway).await.unwrap().unwrap().recovery;
        let notice = until("a recovery begins", async || asked().await).await;
        // For as long as the gateway renews.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            assert_eq!(asked().await.as_ref(), Some(&notice), "it is not waited for");
            assert_eq!(are_open(&redis, notice.generation).await, None);
        }
        // No earlier leader opens a shard from now on.
        let fence = ["HGET", "seckill:{15}:meta", "fence"];
        until("the shards are fenced", async || {
            let fence = server.cli(&fence).await.unwrap();
            (fence.trim() == notice.generation.0.to_string()).then_some(())
        })
        .await;
        assert_eq!(sql.hand_in(gateway, notice.generation, &[]).await.unwrap(), HandIn::InTime);
        until("the shards open", async || are_open(&redis, notice.generation).await).await;

        // It says nothing any more, and a shard trusts a process that is gone.
        server.call(&["HSET", "seckill:{03}:meta", "epoch", "gone"]).await.unwrap();
        let next = Gen(notice.generation.0 + 1);
        until("the shards open without it", async || are_open(&redis, next).await).await;
        assert_eq!(sql.hand_ins(next).await.unwrap(), []);
        assert_eq!(sql.hand_in(gateway, next, &[]).await.unwrap(), HandIn::TooLate);
    });
}

/// Asks the first shard for nothing.
fn nothing(process: ProcessNumber, generation: Gen, number: u64) -> Call {
    let body = CallBody::Reserve { bring_in: Vec::new(), items: Vec::new() };
    Call { process, generation, shard: ShardId::ALL[0], number, body }
}

#[test]
fn rule_12_nothing_older_than_the_lease_tells_is_passed_on() {
    let (_runtime, _server, options, shop) = empty_shop();
    shop.run(async |sql| {
        let redis = RedisShards::open(options).await.unwrap();
        let store = SharedStore::new(redis.clone(), sql.clone());
        let process = store.register().await.unwrap().process;
        let handing_in = store.clone();
        tokio::spawn(async move {
            let call = handing_in.next_recovery(Gen(0)).await;
            handing_in.hand_in(call.generation, &[]).await.unwrap();
        });
        // Redis is empty: the gateway finds it closed and recovers it.
        let (mut generation, mut number) = (Gen(0), 0);
        until("it serves", async || {
            number += 1;
            match store.call(&nothing(process, generation, number)).await.unwrap() {
                Reply::Gen(current) => generation = current,
                Reply::Done(_) => return Some(()),
                Reply::Recovering | Reply::Stale => {}
            }
            None
        })
        .await;
        let mut current = [(generation, 0); SHARDS];
        for (shard, position) in ShardId::all().zip(&mut current) {
            position.1 = store.snapshot(shard).await.unwrap().seq;
        }
        assert_eq!(store.read_feeds(&current, Duration::ZERO).await.unwrap(), []);

        // A recovery has begun, and these shards do not know: as an old master that lives on.
        let mut leader = lead(sql).await;
        let newer = leader.raise_generation(&NONE).await.unwrap();
        let told = until("the heartbeat tells", async || {
            number += 1;
            let reply = store.call(&nothing(process, generation, number)).await.unwrap();
            (!matches!(reply, Reply::Done(_))).then_some(reply)
        })
        .await;
        assert_eq!(told, Reply::Gen(newer));
        let served = redis.call(&nothing(process, generation, number + 1)).await.unwrap();
        assert!(matches!(served, Reply::Done(_)), "{served:?}");
        for shard in ShardId::ALL {
            let snapshot = store.snapshot(shard).await;
            assert!(matches!(snapshot, Err(StoreError::Unavailable(_))), "{snapshot:?}");
        }
        // One of them has something to say, and that is not news either.
        let load = [(SkuId(1), 5)];
        let loaded = redis.load(ShardId::ALL[2], generation, "late", ActivityId(SALE), &load).await.unwrap();
        assert!(matches!(loaded, Guarded::Done(_)), "{loaded:?}");
        let mut news = store.read_feeds(&current, Duration::ZERO).await.unwrap();
        news.sort_by_key(|(shard, _)| shard.index());
        assert_eq!(news, ShardId::ALL.map(|shard| (shard, FeedRead::Gap)), "silence is not being current");
        leader.resign().await;
    });
}
