//! Calls of several shards as one function call (rules 1 to 4): each is answered, refused and repeated as if it had
//! gone alone.

use std::time::Duration;

use fastrand::Rng;
use rushgate::protocol::{ActivityId, SkuId, SkuKey};
use rushgate::stock::calls::{BringIn, Call, CallBody, Gen, ItemAnswer, Reply, SHARDS, ShardId};
use rushgate::store::redis::{RedisOptions, RedisShards};
use rushgate::store::{ReservationStore, StoreError};
use rushgate_servers::{Persistence, Redis};

use crate::installation::{ACTIVITY, Installation, Process, shard, sku, user_of};
use crate::redis_installation::{RedisInstallation, RedisStore, recover, redis, replicated};
use crate::rules::on_sale;

type Outcome = Result<Reply, StoreError>;

/// One call a shard, of one item each, for the users of that turn.
fn one_each(process: &mut Process<RedisStore>, turn: usize) -> Vec<Call> {
    let calls = ShardId::all().map(|home| {
        let item = process.item(user_of(home, turn), sku(1), 1);
        process.reserve(home, vec![item])
    });
    calls.collect()
}

/// As the stock task does it; they are one party.
async fn together(process: &Process<RedisStore>, calls: &[Call]) -> Vec<Outcome> {
    let parties = process.store.together(calls.to_vec());
    assert_eq!(parties, [calls], "they go together");
    process.store.call_together(calls).await
}

fn replies(outcomes: Vec<Outcome>) -> Vec<Reply> {
    outcomes.into_iter().map(Result::unwrap).collect()
}

fn sold(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(Reply::Done(done)) if done.answers == [ItemAnswer::Reserved])
}

/// Function calls of Redis so far.
async fn fcalls(redis: &Redis) -> u64 {
    let said = redis.cli(&["INFO", "commandstats"]).await.unwrap();
    let line = said.lines().find_map(|line| line.trim().strip_prefix("cmdstat_fcall:calls="));
    line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

/// Two installations live through the same sale: in one every call goes alone, in the other those of a turn go
/// together. Replies and what is stored are the same.
#[tokio::test]
async fn rules_1_to_4_calls_together_do_what_each_does_alone() {
    for seed in 0..4 {
        let mut rng = Rng::with_seed(seed);
        let (alone, mut one) = on_sale(160).await;
        let (company, other) = on_sale(160).await;
        let (article, unknown) = (SkuKey { activity: ActivityId(8), sku: SkuId(2) }, sku(99));
        for installation in [&alone, &company] {
            installation.create_activity(ACTIVITY, &[(SkuId(2), 40)]).await;
            installation.create_activity(article.activity, &[(article.sku, 40)]).await;
        }
        assert_eq!(one.number, other.number, "order numbers are the same in both");
        let mut moved: Vec<(ShardId, BringIn)> = Vec::new();
        for _ in 0..25 {
            let mut calls: Vec<Call> = Vec::new();
            for home in ShardId::all() {
                if rng.u8(..3) == 0 {
                    continue;
                }
                let items = (0..rng.usize(..5)).map(|_| {
                    let sku = [sku(1), sku(2), article, unknown][rng.usize(..4).min(rng.usize(..4))];
                    let mut item = one.item(user_of(home, rng.usize(..12)), sku, rng.u16(1..4));
                    item.attempt = 1 + u8::from(rng.u8(..20) == 0);
                    item
                });
                let items = items.collect();
                let (here, there) = moved.into_iter().partition(|(target, _)| *target == home);
                moved = there;
                let here: Vec<(ShardId, BringIn)> = here;
                let bring_in = here.into_iter().map(|(_, announced)| announced).collect();
                calls.push(one.call(home, CallBody::Reserve { bring_in, items }));
            }
            let mut expected = Vec::new();
            for call in &calls {
                expected.push(one.reply(call).await);
            }
            let mut told = Vec::new();
            for party in other.store.together(calls.clone()) {
                told.extend(replies(other.store.call_together(&party).await));
            }
            assert_eq!(told, expected, "seed {seed}");
            let (source, target) = (shard(rng.u8(..16)), shard(rng.u8(..16)));
            if source != target {
                let call = one.call(source, CallBody::MoveOut { sku: sku(1), target, want: 2 });
                let done = one.done(&call).await;
                assert_eq!(other.done(&call).await, done);
                let counters = done.counters.iter().find(|counters| counters.sku == sku(1)).unwrap();
                let out = counters.out.iter().find(|(to, _)| *to == target).map_or(0, |(_, units)| *units);
                moved.push((target, BringIn { sku: sku(1), source, out }));
            }
        }
        for home in ShardId::all() {
            let mut ends = Vec::new();
            for process in [&one, &other] {
                let mut snapshot = process.store.snapshot(home).await.unwrap();
                snapshot.marks.sort_unstable_by_key(|(user, mark)| (*user, mark.order));
                ends.push(snapshot);
            }
            assert_eq!(ends[0], ends[1], "seed {seed}");
        }
        company.figures(sku(1)).await.assert_conserved();
    }
}

#[tokio::test]
async fn rule_2_calls_repeated_in_any_company_get_the_same_replies() {
    let (installation, mut process) = on_sale(160).await;
    let calls = one_each(&mut process, 0);
    let first = replies(together(&process, &calls).await);
    assert_eq!(replies(together(&process, &calls).await), first, "the same company");
    let (some, others) = calls.split_at(5);
    assert_eq!(replies(together(&process, others).await), first[5..], "a smaller one");
    for (call, reply) in some.iter().zip(&first) {
        assert_eq!(process.reply(call).await, *reply, "alone");
    }
    // What was done alone is known in company too, beside what is new.
    let mut next = one_each(&mut process, 1);
    let alone = process.reply(&next[3]).await;
    let told = replies(together(&process, &next).await);
    assert_eq!(told[3], alone);
    next.swap(0, 9);
    let mut swapped = told.clone();
    swapped.swap(0, 9);
    assert_eq!(replies(together(&process, &next).await), swapped, "in another order");
    let figures = installation.figures(sku(1)).await;
    assert_eq!((figures.free, figures.sold), (128, 32), "nothing was done twice");
}

#[tokio::test]
async fn rule_2_a_stale_number_of_one_shard_is_stale_alone() {
    let (installation, mut process) = on_sale(160).await;
    let late = one_each(&mut process, 0);
    let next = one_each(&mut process, 1);
    assert!(sold(&process.store.call(&next[4]).await), "the late copy was overtaken in this shard");
    let told = replies(together(&process, &late).await);
    for (call, reply) in late.iter().zip(&told) {
        let is_stale = *reply == Reply::Stale;
        assert_eq!(is_stale, call.shard == shard(4), "{reply:?}");
    }
    assert_eq!(installation.figures(sku(1)).await.sold, 16);
}

#[tokio::test]
async fn rule_1_a_closed_shard_and_one_of_another_generation_refuse_for_themselves() {
    let (installation, mut process) = on_sale(160).await;
    let key = |number: u8| format!("{}:{{{number:02}}}:meta", installation.options.prefix);
    let set = async |number: u8, field: &str, value: &str| {
        redis().await.call(&["HSET", &key(number), field, value]).await.unwrap();
    };
    let epoch = installation.shards().shard_state(shard(2)).await.unwrap().own_epoch;
    set(2, "epoch", "another").await;
    set(7, "phase", "closed").await;
    set(11, "gen", "5").await;
    let calls = one_each(&mut process, 0);
    for (call, reply) in calls.iter().zip(replies(together(&process, &calls).await)) {
        match call.shard.number() {
            2 | 7 => assert_eq!(reply, Reply::Recovering),
            11 => assert_eq!(reply, Reply::Gen(Gen(5))),
            _ => assert!(sold(&Ok(reply.clone())), "{reply:?}"),
        }
    }
    // Open again: the refusal of a closed shard was not stored, that of the generation was.
    set(2, "epoch", &epoch).await;
    set(7, "phase", "open").await;
    set(11, "gen", "1").await;
    let told = replies(together(&process, &calls).await);
    assert_eq!(told[11], Reply::Gen(Gen(5)));
    assert!(sold(&Ok(told[2].clone())) && sold(&Ok(told[7].clone())));
    assert_eq!(installation.figures(sku(1)).await.sold, 15);
}

#[tokio::test]
async fn rule_3_a_wrong_typed_key_of_one_shard_is_its_error_alone() {
    let (installation, mut process) = on_sale(160).await;
    let (wrong, redis) = (shard(5), redis().await);
    for (turn, name) in ["meta", "feed", "calls", "7:stock", "7:buyers"].into_iter().enumerate() {
        let before = installation.shards().snapshot(wrong).await.unwrap();
        let key = format!("{}:{{05}}:{name}", installation.options.prefix);
        let aside = format!("{key}:aside");
        redis.call(&["COPY", &key, &aside]).await.unwrap();
        redis.call(&["DEL", &key]).await.unwrap();
        redis.call(&["SET", &key, "somebody else's"]).await.unwrap();
        let calls = one_each(&mut process, turn);
        let outcomes = together(&process, &calls).await;
        for (call, outcome) in calls.iter().zip(&outcomes) {
            if call.shard == wrong {
                let is_named = matches!(outcome, Err(StoreError::Corrupt(said)) if said.contains(&key));
                assert!(is_named, "{outcome:?}");
            } else {
                assert!(sold(outcome), "{name}: {outcome:?}");
            }
        }
        redis.call(&["DEL", &key]).await.unwrap();
        // No calls were stored yet the first time.
        if redis.cli(&["EXISTS", &aside]).await.unwrap() == "1" {
            redis.call(&["RENAME", &aside, &key]).await.unwrap();
        }
        let after = installation.shards().snapshot(wrong).await.unwrap();
        assert_eq!((after.seq, after.counters, after.marks.len()), (before.seq, before.counters, turn));
        let mended = together(&process, &calls).await;
        assert!(mended.iter().all(sold), "the same numbers, once it is mended: {mended:?}");
    }
    let figures = installation.figures(sku(1)).await;
    figures.assert_conserved();
    assert_eq!(figures.sold, 5 * SHARDS as u64);
}

#[tokio::test]
async fn calls_together_wait_for_replicas_and_count_only_when_they_have_them() {
    let (_master, replica, options) = replicated().await;
    let hasty = RedisOptions { wait_timeout: Duration::from_millis(50), ..options.clone() };
    let installation = RedisInstallation::with(options).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 160)]).await;
    let mut process = Process::start(installation.store()).await;
    let calls = one_each(&mut process, 0);
    assert!(together(&process, &calls).await.iter().all(sold));
    replica.pause().await.unwrap();
    let next = one_each(&mut process, 1);
    // A stored reply that is given again has to reach the replica as well.
    for calls in [&calls, &next, &next] {
        let shards = RedisShards::open(hasty.clone()).await.unwrap();
        for outcome in shards.call_together(calls).await {
            let is_told =
                matches!(&outcome, Err(StoreError::Unavailable(said)) if said.contains("0 of 1 replicas"));
            assert!(is_told, "{outcome:?}");
        }
    }
    replica.resume().unwrap();
    assert!(together(&process, &next).await.iter().all(sold));
    assert_eq!(replies(together(&process, &calls).await), vec![Reply::Stale; SHARDS], "overtaken");
    assert_eq!(installation.figures(sku(1)).await.sold, 32);
}

#[tokio::test]
async fn calls_together_go_as_one_and_outlive_flushed_functions_an_older_library_and_no_memory() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let installation = RedisInstallation::with(RedisOptions::single(redis.address())).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 160)]).await;
    let mut process = Process::start(installation.store()).await;
    let before = fcalls(&redis).await;
    let calls = one_each(&mut process, 0);
    assert!(together(&process, &calls).await.iter().all(sold));
    assert_eq!(fcalls(&redis).await, before + 1);

    redis.call(&["FUNCTION", "FLUSH"]).await.unwrap();
    let calls = one_each(&mut process, 1);
    assert!(together(&process, &calls).await.iter().all(sold));

    // A gateway of the version before this function was there has started meanwhile.
    let mut older = "#!lua name=rushgate_1\n".to_owned();
    for part in ["base", "calls", "reserve", "reads", "writers", "recovery"] {
        let path = format!("{}/src/store/redis/lua/{part}.lua", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        older.push_str(&text.replace("redis.register_function('rg1_reserve_many', reserve_many)", ""));
    }
    redis.call(&["FUNCTION", "LOAD", "REPLACE", &older]).await.unwrap();
    let calls = one_each(&mut process, 2);
    let alone = process.reply(&calls[6]).await;
    let told = together(&process, &calls).await;
    assert!(told.iter().all(sold), "{told:?}");
    assert_eq!(told[6].clone().unwrap(), alone, "what the older function stored counts");
    let next = process.buy(user_of(shard(6), 3), sku(1), 1).await;
    assert_eq!(next, ItemAnswer::Reserved, "the function that the other version calls is still there");

    redis.call(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let calls = one_each(&mut process, 4);
    for outcome in together(&process, &calls).await {
        let is_told = matches!(&outcome, Err(StoreError::Unavailable(said)) if said.contains("maxmemory"));
        assert!(is_told, "{outcome:?}");
    }
    redis.call(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!(installation.figures(sku(1)).await.sold, 49, "nothing was stored");
    assert!(together(&process, &calls).await.iter().all(sold));
    redis.kill9().await.unwrap();
    for outcome in together(&process, &calls).await {
        assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn calls_together_after_a_recovery_are_refused_by_their_generation_each() {
    let (installation, mut process) = on_sale(160).await;
    let sold_before = one_each(&mut process, 0);
    let first = replies(together(&process, &sold_before).await);
    let open = one_each(&mut process, 1);
    installation.lose_trust().await;
    for reply in replies(together(&process, &open).await) {
        assert_eq!(reply, Reply::Recovering);
    }
    recover(&installation.shards(), Gen(2)).await;
    assert_eq!(replies(together(&process, &sold_before).await), first, "stored replies outlive it");
    for reply in replies(together(&process, &open).await) {
        assert_eq!(reply, Reply::Gen(Gen(2)));
    }
    assert_eq!(installation.figures(sku(1)).await.sold, 16);
}
