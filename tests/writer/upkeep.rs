//! What is kept in Redis of processes that may still ask for it (rule 15).

use rushgate::stock::calls::ShardId;

use super::child::WriterProcess;
use super::house::{World, shared_mariadb, shared_redis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_15_replies_of_a_process_are_kept_until_it_has_been_silent_for_an_hour() {
    let mut world = World::with_stock(1000).await;
    world.reserve(1..=200).await;
    let (gateway, redis) = ((world.next_order().0 >> 36).to_string(), shared_redis().await);
    let calls = |shard: ShardId| format!("{}:{{{:02}}}:calls", world.prefix, shard.number());
    for shard in ShardId::ALL {
        redis.call(&["HSET", &calls(shard), "1000", "a reply"]).await.unwrap();
    }
    let silent = format!(
        "INSERT INTO {}.processes (number, kind, started_at_ms, heartbeat_ms) VALUES (1000, 1, 1, 1)",
        world.database.name
    );
    shared_mariadb().await.sql(&silent).await.unwrap();
    WriterProcess::start(&world, "", Some("writer.after_forget:16")).crashed();
    for shard in ShardId::ALL {
        let kept = redis.cli(&["HKEYS", &calls(shard)]).await.unwrap();
        assert_eq!(kept.trim(), gateway, "shard {}", shard.number());
    }
}
