//! Processes of our own that die: gateways and writers.

use tokio::time::sleep;

use super::{Ended, Scene};
use crate::error::{DrillError, Result};
use crate::shop::ShopPlan;

/// kill -9 of one of two gateways; it comes back on its address.
pub(super) async fn gateway_killed(mut scene: Scene) -> Result<Ended> {
    let mut shop = scene.shop(ShopPlan::default()).await?;
    let mut sale = scene.sale(&shop).await?;
    scene.some_moment(&shop, &mut sale).await?;
    let victim = scene.random.usize(..shop.gateways.len());
    let pause = scene.between(0, 800);
    let gateway = shop.gateways.get_mut(victim).ok_or_else(nobody)?;
    gateway.kill9()?;
    sleep(pause).await;
    gateway.start().await?;
    scene.conclude(&mut shop, sale).await
}

/// kill -9 of the one writer; it comes back.
pub(super) async fn writer_killed(mut scene: Scene) -> Result<Ended> {
    let mut shop = scene.shop(ShopPlan::default()).await?;
    let mut sale = scene.sale(&shop).await?;
    for _ in 0..2 {
        scene.some_moment(&shop, &mut sale).await?;
        let pause = scene.between(0, 800);
        let writer = shop.writers.first_mut().ok_or_else(nobody)?;
        writer.kill9()?;
        sleep(pause).await;
        writer.start().await?;
    }
    scene.conclude(&mut shop, sale).await
}

fn nobody() -> DrillError {
    DrillError::Malformed("no such process".to_owned())
}
