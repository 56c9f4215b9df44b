//! A cluster: masters that die, slots that move. A purchase is told when one replica has it.

use std::time::Duration;

use tokio::time::sleep;

use super::{Ended, Scene};
use crate::error::Result;
use crate::layout::SHARDS;
use crate::shop::{Shop, ShopPlan};
use crate::stock_servers::RedisPlan;

const MASTERS: usize = 3;

/// kill -9 of the master of a shard; its replica is promoted; the dead one comes back as a replica.
pub(super) async fn cluster_master_killed(mut scene: Scene) -> Result<Ended> {
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { redis: RedisPlan::Cluster, stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    scene.some_moment(&shop, &mut sale).await?;
    let cluster = shop.servers.cluster()?;
    let key = Shop::key(scene.random.usize(..SHARDS), "meta");
    let slot = cluster.slot_of(&key).await?;
    let victim = cluster.master_of_key(&key).await?;
    cluster.kill9(victim).await?;
    cluster.wait_promotion(slot, victim).await?;
    let pause = scene.between(0, 1_000);
    sleep(pause).await;
    cluster.restart(victim).await?;
    cluster.wait_ok().await?;
    // Acknowledged by a replica that was not promoted, or by none and told to nobody.
    scene.promise.may_come_back = true;
    scene.conclude(&mut shop, vec![sale]).await
}

/// Slots of shards move to other masters while they sell.
pub(super) async fn slot_moved_while_selling(mut scene: Scene) -> Result<Ended> {
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { redis: RedisPlan::Cluster, stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    sale.queued(5).await?;
    let cluster = shop.servers.cluster()?;
    for _ in 0..3 {
        let slot = cluster.slot_of(&Shop::key(scene.random.usize(..SHARDS), "meta")).await?;
        let Some(from) = cluster.master_of_slot(slot).await else { continue };
        let to = (from + scene.random.usize(1..MASTERS)) % MASTERS;
        let source = cluster.begin_move(slot, to).await?;
        let pause = scene.between(0, 300);
        sleep(pause).await;
        cluster.finish_move(slot, source, to).await?;
        sleep(Duration::from_millis(100)).await;
    }
    cluster.wait_ok().await?;
    scene.conclude(&mut shop, vec![sale]).await
}
