//! Processes that die: gateways, writers, the database.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Ended, Scene};
use crate::buyers::Crowd;
use crate::error::{DrillError, Result};
use crate::settled::settled;
use crate::shop::ShopPlan;

const CRASH_MAX: Duration = Duration::from_secs(15);
const BACKLOG_MAX: Duration = Duration::from_secs(60);

/// kill -9 of one of two gateways; it comes back on its address.
pub(super) async fn gateway_killed(mut scene: Scene) -> Result<Ended> {
    let stock = if scene.random.bool() { scene.ample_stock() } else { ShopPlan::default().stock };
    let mut shop = scene.shop(ShopPlan { stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    scene.some_moment(&shop, &mut sale).await?;
    let victim = scene.random.usize(..shop.gateways.len());
    let pause = scene.between(0, 800);
    shop.gateway(victim)?.kill9()?;
    sleep(pause).await;
    shop.gateway(victim)?.start().await?;
    scene.conclude(&mut shop, vec![sale]).await
}

/// kill -9 of a writer, the only one or one of two; it comes back, and one is killed again.
pub(super) async fn writer_killed(mut scene: Scene) -> Result<Ended> {
    let writers = scene.random.usize(1..=2);
    let mut shop = scene.shop(ShopPlan { writers, ..ShopPlan::default() }).await?;
    let mut sale = scene.sale(&shop).await?;
    for _ in 0..2 {
        scene.some_moment(&shop, &mut sale).await?;
        let (victim, pause) = (scene.random.usize(..writers), scene.between(0, 800));
        shop.writer(victim)?.kill9()?;
        sleep(pause).await;
        shop.writer(victim)?.start().await?;
    }
    scene.conclude(&mut shop, vec![sale]).await
}

/// kill -9 of MariaDB; it comes back on its data. Longer than two seconds, and gateways acknowledge nothing.
pub(super) async fn mariadb_killed(mut scene: Scene) -> Result<Ended> {
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { writers: 2, stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    scene.some_moment(&shop, &mut sale).await?;
    let pause = scene.outage(0, 5_000);
    scene.premises.mariadb.kill9().await?;
    sleep(pause).await;
    scene.premises.mariadb.restart().await?;
    scene.notes.push(format!("the database was gone for {} ms and its start", pause.as_millis()));
    scene.conclude(&mut shop, vec![sale]).await
}

/// The whole sale without a writer; then one comes and settles what has piled up.
pub(super) async fn writer_off_then_backlog(mut scene: Scene) -> Result<Ended> {
    let is_quick = scene.premises.is_quick;
    let stock = if is_quick { vec![600, 400] } else { vec![1_500, 1_000, 500] };
    let mut shop = scene.shop(ShopPlan { stock, ..ShopPlan::default() }).await?;
    shop.writer(0)?.stop(CRASH_MAX).await?;
    let mut sale =
        scene.sale_of(&shop, &Crowd { pairs_percent: 50, ..Crowd::new(&shop, scene.seed) }).await?;
    sale.answered().await?;
    let orders = sale.promised().len();
    shop.writer(0)?.start().await?;
    let begun = Instant::now();
    let left = settled(&shop, BACKLOG_MAX).await?;
    if !left.is_empty() {
        return Err(DrillError::Late {
            what: format!("the backlog was not settled: {left:?}"),
            waited: BACKLOG_MAX,
        });
    }
    let millis = begun.elapsed().as_millis().max(1);
    let per_s = u128::try_from(orders).unwrap_or(u128::MAX).saturating_mul(1_000) / millis;
    scene.notes.push(format!("a backlog of {orders} orders was settled in {millis} ms, {per_s} orders/s"));
    scene.conclude(&mut shop, vec![sale]).await
}

/// The writer dies after its commit and before it has told Redis, again and again; every entry comes again.
pub(super) async fn redelivery_after_commit(mut scene: Scene) -> Result<Ended> {
    let mut shop = scene.shop(ShopPlan::default()).await?;
    shop.writer(0)?.kill9()?;
    let mut sale = scene.sale(&shop).await?;
    scene.some_moment(&shop, &mut sale).await?;
    for _ in 0..3 {
        let point = ["writer.after_commit", "writer.after_settled"];
        let point = format!("{}:{}", point.get(scene.random.usize(..2)).unwrap_or(&"writer.after_commit"), 1);
        shop.writer(0)?.spawn(Some(&point))?;
        if !shop.writer(0)?.crashed(CRASH_MAX).await? {
            shop.writer(0)?.kill9()?;
            scene.notes.push(format!("{point} was not reached"));
        }
    }
    shop.writer(0)?.start().await?;
    scene.conclude(&mut shop, vec![sale]).await
}
