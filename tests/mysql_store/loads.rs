//! Loads: driven until done, counted once, a take under the generation of its reply.

use std::time::Duration;

use rushgate::protocol::SkuId;
use rushgate::stock::calls::Gen;
use rushgate::store::sql::NewLoad;
use rushgate::store::sql::mysql::{LoadRecord, ShardLoad};

use crate::fixture::{Scene, sku};

fn units(load: &ShardLoad) -> u32 {
    load.changes[0].1.unsigned_abs() as u32
}

#[tokio::test]
async fn a_load_is_due_until_every_shard_has_answered() {
    let scene = Scene::with_stock(&[(1, 100)]).await;
    let id = scene.sql.write_load(sku(1), NewLoad::Add(33)).await.unwrap();
    assert_eq!(scene.stock(1).await, (133, 0), "an addition counts from its row on");
    for left in (1..=16).rev() {
        let due = scene.sql.due_loads(100).await.unwrap();
        assert_eq!(due.len(), left);
        assert!((2..=3).contains(&units(&due[0])));
        assert_eq!(scene.sql.settled_load(&id, Some(Duration::ZERO)).await.unwrap(), None);
        let applied = [(SkuId(1), units(&due[0]))];
        for _ in 0..2 {
            let recorded = scene.sql.load_done(&due[0], Gen(0), &applied).await.unwrap();
            assert_eq!(recorded, LoadRecord::Recorded, "a second time changes nothing");
        }
    }
    assert_eq!(scene.sql.settled_load(&id, None).await.unwrap(), Some(33));
    assert_eq!(scene.sql.due_loads(100).await.unwrap(), []);
    assert_eq!(scene.stock(1).await, (133, 0));
}

#[tokio::test]
async fn a_take_counts_what_was_given_under_the_generation_of_the_reply() {
    let scene = Scene::with_stock(&[(1, 160)]).await;
    let id = scene.sql.write_load(sku(1), NewLoad::Remove(32)).await.unwrap();
    let due = scene.sql.due_loads(100).await.unwrap();
    assert_eq!(due.len(), 16);
    assert!(due.iter().all(|load| load.changes == [(SkuId(1), -2)]));
    let other = scene.sql.load_done(&due[0], Gen(1), &[(SkuId(1), 2)]).await.unwrap();
    assert_eq!(other, LoadRecord::Gen(Gen(0)));
    assert_eq!(scene.stock(1).await, (160, 0), "a reply of another generation counts nothing");
    for load in &due {
        assert_eq!(scene.sql.load_done(load, Gen(0), &[(SkuId(1), 2)]).await.unwrap(), LoadRecord::Recorded);
    }
    assert_eq!(scene.stock(1).await, (128, 0));
    assert_eq!(scene.sql.settled_load(&id, None).await.unwrap(), Some(32));
}

#[tokio::test]
async fn a_take_goes_on_where_more_is_free_and_ends_where_nothing_is() {
    let scene = Scene::with_stock(&[(1, 160)]).await;
    // Shards 0 to 3 have sold all; the others have 10 each.
    let mut free = [0_u32; 16];
    free[4..].fill(10);
    for (asked, taken) in [(100, 100), (100, 20)] {
        let id = scene.sql.write_load(sku(1), NewLoad::Remove(asked)).await.unwrap();
        let mut rounds = 0;
        loop {
            let due = scene.sql.due_loads(100).await.unwrap();
            if due.is_empty() {
                break;
            }
            rounds += 1;
            for load in due {
                let shard = &mut free[load.shard.index()];
                let given = units(&load).min(*shard);
                *shard -= given;
                scene.sql.load_done(&load, Gen(0), &[(SkuId(1), given)]).await.unwrap();
            }
        }
        assert!(rounds <= 5, "{rounds}");
        assert_eq!(scene.sql.settled_load(&id, None).await.unwrap(), Some(taken));
    }
    assert_eq!(free, [0; 16]);
    assert_eq!(scene.stock(1).await, (40, 0), "what is left was sold, if not settled");
}
