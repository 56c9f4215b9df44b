//! Redis is gone in mid-sale, and an operator sells the activity from the database; then it is back with its old data, and
//! the activity goes back to it.

use rushgate_servers::Persistence;
use tokio::time::sleep;

use super::{Ended, Scene};
use crate::error::Result;
use crate::layout::ACTIVITY;
use crate::shop::ShopPlan;
use crate::stock_servers::RedisPlan;

/// Orders per second of a writer that is behind, so that gateways have something to hand in.
const SLOW_WRITER: u32 = 100;

/// Redis is killed. The command is given twice. Everybody who was told QUEUED
/// has his order; what is left is sold from the database, later by Redis.
pub(super) async fn redis_gone_takeover(mut scene: Scene) -> Result<Ended> {
    let redis = RedisPlan::One(Persistence::Always);
    let plan =
        ShopPlan { redis, stock: scene.ample_stock(), writer_rows_per_s: SLOW_WRITER, ..ShopPlan::default() };
    let mut shop = scene.shop(plan).await?;
    let mut sale = scene.long_sale(&shop).await?;
    sale.queued(40).await?;
    scene.some_moment(&shop, &mut sale).await?;
    shop.servers.one()?.kill9().await?;
    let pause = scene.between(0, 1_500);
    sleep(pause).await;
    let id = ACTIVITY.to_string();
    let take = ["takeover", "--activity", &id, "--yes", "--json"];
    shop.operated(&take).await?;
    // Said once more it changes nothing.
    shop.operated(&take).await?;
    scene.some_moment(&shop, &mut sale).await?;
    shop.servers.one()?.restart().await?;
    let pause = scene.between(0, 2_000);
    sleep(pause).await;
    shop.operated(&["takeover", "--back", "--activity", &id, "--yes"]).await?;
    scene.conclude(&mut shop, vec![sale]).await
}
