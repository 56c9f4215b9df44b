//! A Redis cluster fails over and moves slots while keys are in them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    missing_docs,
    reason = "tests"
)]

use std::time::Instant;

use rushgate_servers::{Persistence, RedisCluster, RedisSettings};

#[tokio::test]
async fn a_replica_is_promoted_when_its_master_is_killed_and_the_old_master_follows_it() {
    let begun = Instant::now();
    let cluster = RedisCluster::start(3, 3, Persistence::EverySecond).await.unwrap();
    println!("a cluster of six started in {:?}", begun.elapsed());
    assert_eq!(cluster.nodes().len(), 6);
    cluster.cli("P:{07}:meta", &["SET", "P:{07}:meta", "1"]).await.unwrap();
    let slot = cluster.slot_of("P:{07}:meta").await.unwrap();
    let former = cluster.master_of_slot(slot).await.unwrap();
    assert!(former < 3);
    let mut connection = cluster.node(former).unwrap().connect().await.unwrap();
    connection.call(&["SET", "P:{07}:meta", "2"]).await.unwrap();
    assert_eq!(connection.call(&["WAIT", "1", "5000"]).await.unwrap().to_string(), "1");

    let begun = Instant::now();
    cluster.kill9(former).await.unwrap();
    let promoted = cluster.wait_promotion(slot, former).await.unwrap();
    println!("promoted in {:?}", begun.elapsed());
    assert_eq!(promoted, former + 3);
    assert_eq!(cluster.cli("P:{07}:meta", &["GET", "P:{07}:meta"]).await.unwrap(), "2");

    cluster.restart(former).await.unwrap();
    cluster.wait_ok().await.unwrap();
    assert_eq!(cluster.master_of_slot(slot).await, Some(promoted));
    assert!(cluster.node(former).unwrap().cli(&["ROLE"]).await.unwrap().starts_with("slave"));
}

#[tokio::test]
async fn a_paused_master_is_replaced_and_follows_when_it_runs_on() {
    let cluster = RedisCluster::start(3, 3, Persistence::Off).await.unwrap();
    let slot = cluster.slot_of("{07}").await.unwrap();
    let former = cluster.master_of_slot(slot).await.unwrap();
    cluster.node(former).unwrap().pause().await.unwrap();
    let promoted = cluster.wait_promotion(slot, former).await.unwrap();
    cluster.cli("{07}", &["SET", "{07}", "new"]).await.unwrap();
    cluster.node(former).unwrap().resume().unwrap();
    cluster.wait_ok().await.unwrap();
    assert_eq!(cluster.master_of_slot(slot).await, Some(promoted));
    assert!(cluster.node(former).unwrap().cli(&["ROLE"]).await.unwrap().starts_with("slave"));
    assert_eq!(cluster.cli("{07}", &["GET", "{07}"]).await.unwrap(), "new");
}

#[tokio::test]
async fn a_slot_moves_with_its_keys_and_clients_are_sent_after_it() {
    let settings =
        RedisSettings { password: Some("secret".to_owned()), ..RedisSettings::new(Persistence::Off) };
    let cluster = RedisCluster::start_with(3, 0, settings).await.unwrap();
    let slot = cluster.slot_of("{07}").await.unwrap();
    let from = cluster.master_of_slot(slot).await.unwrap();
    let to = (from + 1) % 3;
    for number in 0..250 {
        let key = format!("P:{{07}}:{number}");
        cluster.node(from).unwrap().cli(&["SET", &key, "x"]).await.unwrap();
    }
    assert_eq!(cluster.begin_move(slot, to).await.unwrap(), from);
    // On the way: what is not there is asked for at the other master.
    let asked = cluster.node(from).unwrap().cli(&["GET", "P:{07}:none"]).await.unwrap_err().to_string();
    assert!(asked.contains(&format!("ASK {slot}")), "{asked}");
    cluster.finish_move(slot, from, to).await.unwrap();
    let moved = cluster.node(from).unwrap().cli(&["GET", "P:{07}:1"]).await.unwrap_err().to_string();
    assert!(moved.contains(&format!("MOVED {slot} {}", cluster.node(to).unwrap().address())), "{moved}");
    assert_eq!(cluster.master_of_slot(slot).await, Some(to));
    for number in 0..250 {
        let key = format!("P:{{07}}:{number}");
        assert_eq!(cluster.node(to).unwrap().cli(&["GET", &key]).await.unwrap(), "x");
    }
    cluster.move_slot(slot, from).await.unwrap();
    assert_eq!(cluster.cli("{07}", &["GET", "P:{07}:249"]).await.unwrap(), "x");
    assert_eq!(cluster.master_of_key("{07}").await.unwrap(), from);
}
