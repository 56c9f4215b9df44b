//! The pieces of a snapshot, one by one (rule 6): each is of the epoch and the generation that the first one told, or
//! is no piece of it.

use rushgate::stock::calls::Gen;

use crate::installation::{shard, sku, user_of};
use crate::redis_installation::{recover, redis};
use crate::rules::on_sale;

#[tokio::test]
async fn rule_6_every_piece_of_a_snapshot_is_guarded() {
    let (installation, mut process) = on_sale(160).await;
    let (home, shards) = (shard(3), installation.shards());
    process.buy(user_of(home, 0), sku(1), 1).await;
    let epoch = shards.shard_state(home).await.unwrap().own_epoch;
    let key = |rest: &str| format!("{}:{{03}}:{rest}", installation.options.prefix);
    let (meta, marks, feed) = (key("meta"), key("7:buyers"), key("feed"));
    let pieces = async |generation: &str, epoch: &str| {
        let mut letters = Vec::new();
        for (function, of, from) in [("rg1_marks", &marks, "0"), ("rg1_tail", &feed, "1")] {
            let call = ["FCALL", function, "2", &meta, of, generation, epoch, from, "100"];
            let said = redis().await.cli(&call).await.unwrap();
            letters.push(said.chars().next().unwrap());
        }
        letters
    };
    assert_eq!(pieces("1", &epoch).await, ['D', 'D']);
    assert_eq!(pieces("2", &epoch).await, ['R', 'R'], "another generation");
    assert_eq!(pieces("1", "another").await, ['R', 'R'], "another epoch");
    installation.lose_trust().await;
    assert_eq!(pieces("1", &epoch).await, ['R', 'R'], "closed");
    recover(&shards, Gen(2)).await;
    assert_eq!(pieces("1", &epoch).await, ['R', 'R'], "recovered meanwhile");
    assert_eq!(pieces("2", &epoch).await, ['D', 'D']);
}
