//! Corrections: each is made once, under the generation and the count of corrections that it was worked out from.

use std::collections::BTreeMap;

use rushgate::protocol::{OrderState, SkuId};
use rushgate::stock::calls::{Gen, Mark, ShardId};
use rushgate::store::redis::{MendAt, Mended, RedisOptions, RedisShards};
use rushgate_servers::{Persistence, Redis};

use crate::installation::{ACTIVITY, Installation as _, Process, shard, sku, user_of};
use crate::redis_installation::RedisInstallation;
use crate::rules::on_sale;

async fn place(shards: &RedisShards, shard: ShardId) -> MendAt {
    let books = shards.books(shard, ACTIVITY).await.unwrap().unwrap();
    MendAt { shard, generation: books.generation, mended: books.mended, activity: ACTIVITY }
}

async fn free(shards: &RedisShards, shard: ShardId) -> i64 {
    shards.books(shard, ACTIVITY).await.unwrap().unwrap().skus[&SkuId(1)].free
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correction_is_made_once_however_late_its_copies_come() {
    let (installation, mut process) = on_sale(1600).await;
    let shards = installation.shards();
    let home = shard(3);
    let mut at = place(&shards, home).await;
    let (late, mut of_old) = (at, at);
    assert_eq!(shards.mend_units(&mut at, sku(1), 5).await.unwrap(), Mended::By(5));
    assert_eq!(free(&shards, home).await, 105);
    assert_eq!(at.mended, late.mended + 1);
    // It sells meanwhile: a correction by a difference does not mind.
    process.buy(user_of(home, 1), sku(1), 1).await;
    let mut copy = late;
    assert_eq!(shards.mend_units(&mut copy, sku(1), 5).await.unwrap(), Mended::ReadAgain);
    assert_eq!(copy.mended, late.mended);
    of_old.generation = Gen(of_old.generation.0 - 1);
    of_old.mended = at.mended;
    assert_eq!(shards.mend_units(&mut of_old, sku(1), 5).await.unwrap(), Mended::ReadAgain);
    assert_eq!(free(&shards, home).await, 104);
    // No more is taken than is free.
    assert_eq!(shards.mend_units(&mut at, sku(1), -110).await.unwrap(), Mended::By(-104));
    assert_eq!(free(&shards, home).await, 0);
    // Gateways have heard of all of it.
    let snapshot = shards.snapshot(home).await.unwrap();
    let counters = snapshot.counters.iter().find(|one| one.sku == sku(1)).unwrap();
    assert_eq!(counters.free, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_are_raised_and_marks_written_but_nothing_is_lowered_or_overwritten() {
    let (installation, mut process) = on_sale(1600).await;
    let shards = installation.shards();
    let (source, target) = (shard(1), shard(2));
    let mut at = place(&shards, target).await;
    assert_eq!(shards.mend_in(&mut at, sku(1), source, 7).await.unwrap(), Mended::By(7));
    assert_eq!(shards.mend_in(&mut at, sku(1), source, 4).await.unwrap(), Mended::By(0));
    assert_eq!(free(&shards, target).await, 107);
    let mut at = place(&shards, source).await;
    assert_eq!(shards.mend_out(&mut at, sku(1), target, 7).await.unwrap(), Mended::By(7));
    let books = shards.books(source, ACTIVITY).await.unwrap().unwrap();
    let due = (100, BTreeMap::from([(target, 7)]));
    assert_eq!((books.skus[&SkuId(1)].free, books.skus[&SkuId(1)].out.clone()), due);

    // A live mark stays; who has none gets one; its record is appended as often as it is asked for, while it stands so.
    let (holder, other) = (user_of(source, 1), user_of(source, 2));
    process.buy(holder, sku(1), 1).await;
    let mark = shards.books(source, ACTIVITY).await.unwrap().unwrap().marks[&holder];
    let another = Mark { order: process.item(other, sku(1), 1).order, ..mark };
    let mut at = place(&shards, source).await;
    let written = shards.mend_marks(&mut at, &[(holder, another), (other, another)]).await.unwrap();
    assert_eq!(written, Mended::By(1));
    let marks = shards.books(source, ACTIVITY).await.unwrap().unwrap().marks;
    assert_eq!((marks[&holder], marks[&other]), (mark, another));
    // Nor does an earlier order take the place of a later one that is over.
    let third = user_of(source, 3);
    let second = Mark { attempt: 2, order: process.item(third, sku(1), 1).order, ..mark };
    let second = Mark { state: OrderState::Closed, ..second };
    let first = Mark { attempt: 1, order: process.item(third, sku(1), 1).order, ..second };
    for (given, written) in [(second, 1), (first, 0)] {
        assert_eq!(shards.mend_marks(&mut at, &[(third, given)]).await.unwrap(), Mended::By(written));
    }
    assert_eq!(shards.books(source, ACTIVITY).await.unwrap().unwrap().marks[&third], second);
    let told = shards.recorded(source).await.unwrap().len();
    let records = [(holder, mark), (other, mark), (user_of(source, 9), mark)];
    assert_eq!(shards.mend_records(&mut at, &records).await.unwrap(), Mended::By(1));
    assert_eq!(shards.recorded(source).await.unwrap().len(), told + 1);
    let settled = Mark { state: OrderState::PendingPayment, pay_by_ms: 5, ..mark };
    shards.settled(source, at.generation, &[(holder, settled)]).await.unwrap();
    assert_eq!(shards.mend_records(&mut at, &records).await.unwrap(), Mended::By(0));
}

/// What the library binds, it binds when the first function runs: any may be the first.
#[tokio::test]
async fn a_correction_may_be_the_first_thing_that_a_library_is_asked_for() {
    let redis = Redis::start(Persistence::Off).await.unwrap();
    let installation = RedisInstallation::with(RedisOptions::single(redis.address())).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 160)]).await;
    let mut process = Process::start(installation.store()).await;
    let (shards, home) = (installation.shards(), shard(3));
    let (holder, other) = (user_of(home, 1), user_of(home, 2));
    process.buy(holder, sku(1), 1).await;
    let mark = shards.books(home, ACTIVITY).await.unwrap().unwrap().marks[&holder];
    let another = Mark { order: process.item(other, sku(1), 1).order, ..mark };
    let mut at = place(&shards, home).await;
    redis.call(&["FUNCTION", "FLUSH"]).await.unwrap();
    assert_eq!(shards.mend_marks(&mut at, &[(other, another)]).await.unwrap(), Mended::By(1));
    redis.call(&["FUNCTION", "FLUSH"]).await.unwrap();
    assert_eq!(shards.mend_records(&mut at, &[(holder, mark)]).await.unwrap(), Mended::By(1));
}
