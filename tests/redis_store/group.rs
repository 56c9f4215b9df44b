//! The consumer group: what writers are given, what they may claim, what may be trimmed (rules 13 and 15).

use std::collections::BTreeSet;
use std::time::Duration;

use rushgate::protocol::SkuId;
use rushgate::stock::calls::{Change, Gen, ProcessNumber, SHARDS, ShardId};
use rushgate::store::redis::{Backlog, ClaimCursor, EntryId, RedisShards};
use rushgate::store::{FeedRead, StoreError};

use crate::installation::{ACTIVITY, Installation, shard, sku, user_of};
use crate::redis_installation::{RedisInstallation, redis};
use crate::rules::on_sale;

const SOON: Duration = Duration::from_millis(20);

/// Everything a consumer is given until there is no more, as (shard, id).
async fn drain(shards: &RedisShards, consumer: &str) -> Vec<(ShardId, EntryId)> {
    let mut ids = Vec::new();
    loop {
        let delivered = shards.read_group(consumer, 100, SOON).await.unwrap();
        if delivered.is_empty() {
            return ids;
        }
        for delivered in delivered {
            for entry in &delivered.entries {
                assert_eq!(entry.id.generation, delivered.generation);
                assert!(entry.at_ms > 1_700_000_000_000, "{entry:?}");
                entry.what.as_ref().unwrap();
            }
            ids.extend(delivered.entries.iter().map(|entry| (delivered.shard, entry.id)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_each_entry_is_given_to_one_consumer_and_what_is_left_is_claimed() {
    let (installation, mut process) = on_sale(1600).await;
    let shards = installation.shards();
    let mut given = drain(&shards, "one").await;
    assert_eq!(given.len(), 32, "a beginning and a load per shard");
    for nth in 0..30 {
        process.buy(user_of(shard(6), nth), sku(1), 1).await;
        process.buy(user_of(shard(7), nth), sku(1), 1).await;
    }
    let (first, second) = tokio::join!(drain(&shards, "one"), drain(&shards, "two"));
    given.extend(first.iter().chain(&second));
    assert_eq!(given.len(), 32 + 60);
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len(), "nothing is given twice");
    let backlog = shards.backlog(shard(6)).await.unwrap();
    assert_eq!((backlog.entries_pending, backlog.entries_undelivered), (32, 0));
    assert!(backlog.oldest_at_ms.is_some());

    // Another consumer claims what the others left, a few at a time, to the end of the cursor.
    let (mut cursor, mut claimed) = (ClaimCursor::start(), Vec::new());
    for step in 0.. {
        assert!(step < 50, "the cursor comes to its end");
        let step = shards.claim(shard(6), "three", Duration::ZERO, &cursor, 5).await.unwrap().unwrap();
        assert!(step.delivered.entries.len() <= 5);
        assert_eq!(step.delivered.generation, process.generation);
        claimed.extend(step.delivered.entries.into_iter().map(|entry| entry.id));
        cursor = step.cursor;
        if cursor.is_start() {
            break;
        }
    }
    assert_eq!(claimed.len(), 32);
    let nothing = shards.claim(shard(6), "four", Duration::from_secs(60), &ClaimCursor::start(), 50).await;
    assert!(nothing.unwrap().unwrap().delivered.entries.is_empty(), "it was claimed just now");
    shards.acknowledge(shard(6), &claimed).await.unwrap();
    assert_eq!(shards.backlog(shard(6)).await.unwrap(), Backlog::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_what_was_delivered_to_nobody_who_waited_is_given_to_the_next_call() {
    let (installation, mut process) = on_sale(160).await;
    let shards = installation.shards();
    drain(&shards, "one").await;
    let waiting = shards.read_group("one", 10, Duration::from_secs(60));
    assert!(tokio::time::timeout(SOON, waiting).await.is_err(), "nothing comes, and the caller goes");
    process.buy(user_of(shard(8), 0), sku(1), 1).await;
    let delivered = shards.read_group("one", 10, Duration::from_secs(60)).await.unwrap();
    assert_eq!(delivered.len(), 1);
    assert_eq!((delivered[0].shard, delivered[0].entries.len()), (shard(8), 1));
    assert!(matches!(delivered[0].entries[0].what.as_ref().unwrap().change, Change::Marked(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_13_entries_of_a_shard_that_waits_for_its_recovery_stay_pending() {
    let (installation, _) = on_sale(160).await;
    let shards = installation.shards();
    installation.lose_trust().await;
    assert_eq!(shards.read_group("one", 10, SOON).await.unwrap(), []);
    assert_eq!(shards.claim(shard(0), "one", Duration::ZERO, &ClaimCursor::start(), 10).await.unwrap(), None);
    assert_eq!(shards.backlog(shard(0)).await.unwrap().entries_pending, 2);
    crate::redis_installation::recover(&shards, Gen(2)).await;
    let claimed = shards.claim(shard(0), "one", Duration::ZERO, &ClaimCursor::start(), 10).await.unwrap();
    assert_eq!(claimed.unwrap().delivered.entries.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_entry_is_told_by_key_and_id_and_hides_no_other() {
    let (installation, mut process) = on_sale(160).await;
    let (shards, home) = (installation.shards(), shard(4));
    drain(&shards, "one").await;
    let feed = format!("{}:{{04}}:feed", installation.options.prefix);
    // Somebody's entry takes the place of the next one: the call that would have it is refused before it changes
    // anything.
    redis().await.call(&["XADD", &feed, "1-2", "note", "hello"]).await.unwrap();
    let item = process.item(user_of(home, 0), sku(1), 1);
    let call = process.reserve(home, vec![item]);
    let error = process.store.shards.call(&call).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt(said) if said.contains("recovery")), "{error}");
    installation.figures(sku(1)).await.assert_conserved();
    let delivered = shards.read_group("one", 10, SOON).await.unwrap();
    let problem = delivered[0].entries[0].what.as_ref().unwrap_err();
    assert!(problem.contains(&feed) && problem.contains("1-2"), "{problem}");
    let mut after = [(process.generation, u64::MAX - 1); SHARDS];
    after[4].1 = 1;
    assert_eq!(shards.read_feeds(&after, Duration::ZERO).await.unwrap(), [(home, FeedRead::Gap)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_of_processes_that_are_gone_are_dropped_unless_something_is_pending() {
    let (installation, mut process) = on_sale(160).await;
    let (shards, home) = (installation.shards(), shard(3));
    shards.forget_processes(home, &[ProcessNumber(7)]).await.unwrap();
    let feed = format!("{}:{{03}}:feed", installation.options.prefix);
    let consumers = || async {
        let list = redis().await.cli(&["XINFO", "CONSUMERS", &feed, "settle"]).await.unwrap();
        let fields: Vec<_> = list.lines().collect();
        let names = fields.windows(2).filter(|pair| pair[0] == "name").map(|pair| pair[1].to_owned());
        names.collect::<BTreeSet<_>>()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    // 7 leaves something pending, 8 was given nothing, 9 is not gone.
    drain(&shards, "7").await;
    for consumer in ["8", "9"] {
        redis().await.call(&["XGROUP", "CREATECONSUMER", &feed, "settle", consumer]).await.unwrap();
    }
    process.buy(user_of(home, 0), sku(1), 1).await;
    let calls = format!("{}:{{03}}:calls", installation.options.prefix);
    assert_eq!(redis().await.cli(&["HLEN", &calls]).await.unwrap(), "1");
    let gone = [ProcessNumber(7), ProcessNumber(8), process.number];
    shards.forget_processes(home, &gone).await.unwrap();
    assert_eq!(redis().await.cli(&["HLEN", &calls]).await.unwrap(), "0");
    assert_eq!(consumers().await, set(&["7", "9"]));
    let (start, idle) = (ClaimCursor::start(), Duration::ZERO);
    let claimed = shards.claim(home, "9", idle, &start, 100).await.unwrap().unwrap().delivered.entries;
    assert_eq!(claimed.len(), 2, "what was pending is not lost");
    shards.forget_processes(home, &gone).await.unwrap();
    assert_eq!(consumers().await, set(&["9"]));
    // One that was only taken for gone reads on.
    let late = shards.read_group("8", 10, Duration::from_secs(60)).await.unwrap();
    assert_eq!((late[0].shard, late[0].entries.len()), (home, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_15_trimming_spares_what_is_pending_undelivered_young_or_the_newest() {
    let installation = RedisInstallation::create().await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 1600)]).await;
    let mut process = crate::installation::Process::start(installation.store()).await;
    let (shards, home) = (installation.shards(), shard(12));
    for nth in 0..20 {
        process.buy(user_of(home, nth), sku(1), 1).await;
    }
    let length = || async {
        let feed = format!("{}:{{12}}:feed", installation.options.prefix);
        redis().await.cli(&["XLEN", &feed]).await.unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(length().await, 22);
    assert_eq!(shards.trim(home, Duration::ZERO).await.unwrap(), 0, "no group yet: nothing is delivered");
    let mut delivered = Vec::new();
    while delivered.len() < 10 {
        let some = shards.read_group("one", 5, SOON).await.unwrap();
        let here = some.into_iter().filter(|delivered| delivered.shard == home);
        delivered.extend(here.flat_map(|delivered| delivered.entries).map(|entry| entry.id));
    }
    // The clock of the script counts in milliseconds: what it appended in this one is not older than now.
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(shards.trim(home, Duration::ZERO).await.unwrap(), 0, "nothing is acknowledged");
    let (kept, acknowledged) = (delivered[6], [&delivered[..6], &delivered[7..]].concat());
    shards.acknowledge(home, &acknowledged).await.unwrap();
    assert_eq!(shards.trim(home, Duration::from_secs(3600)).await.unwrap(), 0, "they are young");
    assert_eq!(shards.trim(home, Duration::ZERO).await.unwrap(), 6, "up to the pending one");
    shards.acknowledge(home, &[kept]).await.unwrap();
    let undelivered = 22 - delivered.len() as u64;
    shards.trim(home, Duration::ZERO).await.unwrap();
    assert_eq!(length().await, undelivered, "up to what is undelivered");
    for (shard, id) in drain(&shards, "one").await {
        shards.acknowledge(shard, &[id]).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
    shards.trim(home, Duration::ZERO).await.unwrap();
    assert_eq!(length().await, 1, "the newest stays");

    // A reader that fell behind what was trimmed is told so; one that is current is.
    let seq = shards.snapshot(home).await.unwrap().seq;
    let mut after = [(process.generation, u64::MAX - 1); SHARDS];
    for (position, expected) in [(0, true), (seq - 2, true), (seq, false)] {
        after[12].1 = position;
        let news = shards.read_feeds(&after, Duration::ZERO).await.unwrap();
        let gap: Vec<_> = expected.then_some((home, FeedRead::Gap)).into_iter().collect();
        assert_eq!(news, gap, "at {position}");
    }
}
