//! A repeated call beside replicas that are waited for (rule 2): its reply counts only when they have it, too.

use std::time::Duration;

use rushgate::protocol::SkuId;
use rushgate::stock::calls::{ItemAnswer, Reply};
use rushgate::store::StoreError;
use rushgate::store::redis::{RedisOptions, RedisShards};
use rushgate_servers::Redis;

use crate::installation::{ACTIVITY, Installation, Process, shard, sku, user_of};
use crate::redis_installation::{RedisInstallation, replicated};

/// How much was ever sent to replicas.
async fn bytes_replicated(master: &Redis) -> u64 {
    let said = master.cli(&["INFO", "replication"]).await.unwrap();
    let offset = said.lines().find_map(|line| line.trim().strip_prefix("master_repl_offset:"));
    offset.unwrap().parse().unwrap()
}

#[tokio::test]
async fn rule_2_a_repetition_on_another_connection_waits_for_the_replica_too() {
    let (master, replica, options) = replicated().await;
    let installation = RedisInstallation::with(options.clone()).await;
    installation.create_activity(ACTIVITY, &[(SkuId(1), 160)]).await;
    let mut process = Process::start(installation.store()).await;
    let item = process.item(user_of(shard(3), 0), sku(1), 1);
    let sold = process.reserve(shard(3), vec![item]);
    let reply = process.reply(&sold).await;
    // From Redis 7.2 on WAIT waits for what its own connection wrote, so a repetition has to write something.
    let in_a_hurry = RedisShards::open(RedisOptions { wait_replicas: 0, ..options.clone() }).await.unwrap();
    let before = bytes_replicated(&master).await;
    assert_eq!(in_a_hurry.call(&sold).await.unwrap(), reply);
    assert!(bytes_replicated(&master).await > before, "it wrote nothing");

    replica.pause().await.unwrap();
    let item = process.item(user_of(shard(3), 1), sku(1), 1);
    let call = process.reserve(shard(3), vec![item]);
    for _ in 0..2 {
        let hasty = RedisOptions { wait_timeout: Duration::from_millis(50), ..options.clone() };
        let shards = RedisShards::open(hasty).await.unwrap();
        let error = shards.call(&call).await.unwrap_err();
        let is_told = matches!(&error, StoreError::Unavailable(said) if said.contains("0 of 1 replicas"));
        assert!(is_told, "{error}");
    }
    replica.resume().unwrap();
    let Reply::Done(done) = process.reply(&call).await else { panic!("it is open") };
    assert_eq!(done.answers, [ItemAnswer::Reserved]);
    assert_eq!(installation.figures(sku(1)).await.sold, 2);
}
