//! Drills of the stock itself: the last units, a gateway that knows nothing yet, loads that come again.

use std::time::Duration;

use rushgate_servers::Direction;
use tokio::time::sleep;

use super::{Ended, Scene};
use crate::buyers::Crowd;
use crate::error::Result;
use crate::layout::ACTIVITY;
use crate::shop::ShopPlan;

/// Many SKUs of very few units: most users find their shard empty, and both gateways pull what is elsewhere.
pub(super) async fn last_units_pulled_by_two(mut scene: Scene) -> Result<Ended> {
    let stock = (0..24).map(|_| scene.random.u32(1..=12)).collect();
    let mut shop = scene.shop(ShopPlan { stock, has_link: true, ..ShopPlan::default() }).await?;
    // A unit is moving for long if the gateway that moves it is far from Redis.
    let distance = if scene.random.bool() { scene.between(5, 60) } else { Duration::ZERO };
    shop.link()?.delay(Direction::ToClient, distance);
    shop.link()?.delay(Direction::ToServer, distance);
    scene.notes.push(format!("gateway 0 was {} ms from Redis", distance.as_millis()));
    let crowd =
        Crowd { spread: Duration::from_millis(300), pairs_percent: 25, ..Crowd::new(&shop, scene.seed) };
    let sale = scene.sale_of(&shop, &crowd).await?;
    scene.conclude(&mut shop, vec![sale]).await
}

/// More units than anybody asks for, and a third gateway that starts in the middle: nobody may be told `SOLD_OUT`. The
/// users of the second sale know the cold gateway alone.
pub(super) async fn cold_gateway_mid_sale(mut scene: Scene) -> Result<Ended> {
    let mut shop = scene.shop(ShopPlan { stock: vec![3_000, 2_000], ..ShopPlan::default() }).await?;
    let usual = Crowd::new(&shop, scene.seed);
    let crowd = Crowd { users: usual.users / 2, spread: usual.spread * 2, ..usual.clone() };
    let mut sale = scene.sale_of(&shop, &crowd).await?;
    let moment = scene.random.u64(1..=crowd.users / 4);
    sale.queued(moment).await?;
    shop.add_gateway()?.spawn(None)?;
    // Not waited for: its users are there as soon as it listens.
    let gateways = Some(vec![shop.gateways.len().saturating_sub(1)]);
    let cold = Crowd { first_user: 1_000_000, users: usual.users / 4, gateways, ..usual };
    let second = scene.sale_of(&shop, &cold).await?;
    scene.conclude(&mut shop, vec![sale, second]).await
}

/// Operators preheat again, and the loads of the preheat come again as after a writer that died before it could write
/// down that they were done.
pub(super) async fn preheat_repeated_mid_sale(mut scene: Scene) -> Result<Ended> {
    let mut shop = scene.shop(ShopPlan { writers: 2, ..ShopPlan::default() }).await?;
    let mut sale = scene.sale(&shop).await?;
    let activity = ACTIVITY.to_string();
    let mut refused = 0_u32;
    for _ in 0..3 {
        scene.some_moment(&shop, &mut sale).await?;
        refused += u32::from(shop.operate(&["activity", "preheat", &activity]).await?.is_err());
        let again = format!(
            "UPDATE {0}.load_shards SET applied = NULL; UPDATE {0}.loads SET state = 1, done_at_ms = NULL",
            shop.database.name
        );
        scene.premises.mariadb.sql(&again).await?;
        let pause = scene.between(0, 300);
        sleep(pause).await;
    }
    let added = scene.random.u32(1..=40);
    shop.operated(&["activity", "stock", "add", &activity, "1", &added.to_string()]).await?;
    scene.promise.added.insert(1, i64::from(added));
    scene.promise.may_come_back = true;
    scene.notes.push(format!("preheat was refused {refused} times of 3; {added} units of SKU 1 were added"));
    shop.loaded().await?;
    scene.conclude(&mut shop, vec![sale]).await
}
