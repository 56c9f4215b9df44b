//! Faults of the one Redis in which nothing that was acknowledged is lost.

use std::time::Duration;

use rushgate_servers::Persistence;
use tokio::time::sleep;

use super::{Ended, Scene};
use crate::buyers::Crowd;
use crate::error::Result;
use crate::layout::{ACTIVITY, SHARDS};
use crate::shop::{Shop, ShopPlan};
use crate::sql_side;
use crate::stock_servers::RedisPlan;

/// kill -9 and a start on the same data, which was on the disk before anybody was told.
pub(super) async fn redis_killed_always(mut scene: Scene) -> Result<Ended> {
    let redis = RedisPlan::One(Persistence::Always);
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { redis, stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    scene.some_moment(&shop, &mut sale).await?;
    let pause = scene.outage(0, 2_000);
    shop.servers.one()?.kill9().await?;
    sleep(pause).await;
    shop.servers.one()?.restart().await?;
    scene.conclude(&mut shop, vec![sale]).await
}

/// Killed for some seconds, while what was held back is sold from the database, by each gateway from when it notices
/// until Redis is back; and no unit in both worlds, also when orders of both are paid and closed.
pub(super) async fn redis_away_reserve_sold(mut scene: Scene) -> Result<Ended> {
    let redis = RedisPlan::One(Persistence::Always);
    let stock = scene.ample_stock();
    let held_back: Vec<u32> = stock.iter().map(|units| units / 10).collect();
    for (units, sku) in held_back.iter().zip(1..) {
        scene.promise.held_back.insert(sku, i64::from(*units));
        // The audit of Redis counts what is loaded there.
        scene.promise.added.insert(sku, -i64::from(*units));
    }
    let pay = Some(scene.pay_plan());
    let mut shop = scene.shop(ShopPlan { redis, stock, held_back, pay, ..ShopPlan::default() }).await?;
    let usual = Crowd::new(&shop, scene.seed);
    // Another gateway may hear of an order of the reserve a second late.
    let crowd = Crowd { spread: usual.spread * 4, is_pinned: true, ..usual };
    let mut sale = scene.sale_of(&shop, &crowd).await?;
    scene.some_moment(&shop, &mut sale).await?;
    let pause = scene.outage(5_000, 8_000);
    shop.servers.one()?.kill9().await?;
    sleep(pause).await;
    shop.servers.one()?.restart().await?;
    let orders = sql_side::read(&shop.database).await?.orders;
    let sold = orders.values().filter(|order| order.is_of_reserve).count();
    scene.notes.push(format!("{sold} orders of the reserve in {} ms", pause.as_millis()));
    let mut ended = scene.conclude(&mut shop, vec![sale]).await?;
    if sold == 0 {
        ended.audited.violations.push("nothing of the reserve was sold".to_owned());
    }
    Ok(ended)
}

/// SIGSTOP for some seconds: connections stay, nothing is answered.
pub(super) async fn redis_paused(mut scene: Scene) -> Result<Ended> {
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    scene.some_moment(&shop, &mut sale).await?;
    let pause = scene.outage(500, 6_000);
    shop.servers.one()?.pause().await?;
    sleep(pause).await;
    shop.servers.one()?.resume()?;
    scene.notes.push(format!("Redis stood still for {} ms", pause.as_millis()));
    scene.conclude(&mut shop, vec![sale]).await
}

/// FUNCTION FLUSH at several moments.
pub(super) async fn functions_flushed(mut scene: Scene) -> Result<Ended> {
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    for _ in 0..4 {
        scene.some_moment(&shop, &mut sale).await?;
        shop.servers.one()?.cli(&["FUNCTION", "FLUSH"]).await?;
        let pause = scene.between(0, 200);
        sleep(pause).await;
    }
    scene.conclude(&mut shop, vec![sale]).await
}

/// The stock of one shard is deleted. An absent key is `NOT_LOADED`, never zero: users of that shard hear BUSY. The
/// operator closes the shard by deleting its meta, and the recovery restores it from SQL and what gateways know.
pub(super) async fn shard_keys_deleted(mut scene: Scene) -> Result<Ended> {
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    scene.some_moment(&shop, &mut sale).await?;
    let shard = scene.random.usize(..SHARDS);
    let mut connection = shop.shard_connection(shard).await?;
    connection.call(&["DEL", &Shop::key(shard, &format!("{ACTIVITY}:stock"))]).await?;
    let pause = scene.between(0, 1_000);
    sleep(pause).await;
    connection.call(&["DEL", &Shop::key(shard, "meta")]).await?;
    scene.notes.push(format!("shard {shard} had no stock for {} ms", pause.as_millis()));
    // What was bought meanwhile elsewhere is not what this is about.
    sleep(Duration::from_millis(10)).await;
    scene.conclude(&mut shop, vec![sale]).await
}
