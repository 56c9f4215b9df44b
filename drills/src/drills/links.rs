//! A link between one gateway and Redis that loses, delays and repeats.

use std::time::Duration;

use rushgate_servers::Direction;
use tokio::time::sleep;

use super::{Ended, Scene};
use crate::buyers::Crowd;
use crate::error::Result;
use crate::layout::ACTIVITY;
use crate::shop::ShopPlan;

/// Replies are swallowed, both directions delayed, calls held and brought late, when they have long been repeated on
/// another connection.
pub(super) async fn link_swallows_delays_repeats(mut scene: Scene) -> Result<Ended> {
    // Enough for most of the sale, so that every fault finds somebody who buys.
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { has_link: true, stock, ..ShopPlan::default() }).await?;
    let crowd = Crowd { is_pinned: true, ..Crowd::new(&shop, scene.seed) };
    let crowd = Crowd { spread: crowd.spread * 3, ..crowd };
    let mut sale = scene.sale_of(&shop, &crowd).await?;
    sale.queued(5).await?;
    let rounds = if scene.premises.is_quick { 4 } else { 8 };
    let mut done = Vec::new();
    for _ in 0..rounds {
        let (fault, length) = (scene.random.u8(..5), scene.between(30, 900));
        let link = shop.link()?;
        match fault {
            0 => {
                link.swallow(Direction::ToClient, true);
                sleep(length).await;
                link.swallow(Direction::ToClient, false);
                link.cut();
            }
            1 => {
                link.swallow(Direction::ToServer, true);
                sleep(length).await;
                link.swallow(Direction::ToServer, false);
                link.cut();
            }
            2 => {
                let by = scene.between(10, 300);
                link.delay(Direction::ToClient, by);
                link.delay(Direction::ToServer, by / 2);
                sleep(length).await;
                link.delay(Direction::ToClient, Duration::ZERO);
                link.delay(Direction::ToServer, Duration::ZERO);
            }
            3 => {
                // Late copies: the client gives the connection up, repeats its calls, and then the first ones arrive.
                link.hold(Direction::ToServer);
                sleep(length).await;
                link.cut();
                sleep(scene.between(50, 900)).await;
                link.release(Direction::ToServer);
            }
            _ => link.cut(),
        }
        done.push(["no replies", "no calls", "delay", "late copies", "cut"].get(usize::from(fault)).copied());
        let pause = scene.between(20, 300);
        sleep(pause).await;
    }
    let done: Vec<_> = done.into_iter().flatten().collect();
    scene.notes.push(done.join(", "));
    scene.conclude(&mut shop, vec![sale]).await
}

/// The first copies of calls are held while their repetitions are answered; everybody is refused what is not there;
/// then stock is added, and only then the first copies arrive. They must do nothing.
pub(super) async fn late_copies_when_stock_comes(mut scene: Scene) -> Result<Ended> {
    let stock: Vec<u32> = (0..10).map(|_| scene.random.u32(2..=10)).collect();
    let mut shop = scene.shop(ShopPlan { has_link: true, stock, ..ShopPlan::default() }).await?;
    let crowd = Crowd::new(&shop, scene.seed);
    let crowd = Crowd { users: 600, spread: Duration::from_millis(120), is_pinned: true, ..crowd };
    let mut sale = scene.sale_of(&shop, &crowd).await?;
    let moment = scene.random.u64(1..=shop.units() / 2);
    sale.queued(moment).await?;
    let link = shop.link()?;
    link.hold(Direction::ToServer);
    sleep(scene.between(5, 60)).await;
    link.cut();
    sale.answered().await?;
    let held = link.bytes_under_way(Direction::ToServer);
    let activity = ACTIVITY.to_string();
    let skus = u16::try_from(shop.plan.stock.len()).unwrap_or(u16::MAX);
    for sku in 1..=skus {
        shop.operated(&["activity", "stock", "add", &activity, &sku.to_string(), "10"]).await?;
        scene.promise.added.insert(sku, 10);
    }
    shop.loaded().await?;
    scene.promise.may_come_back = true;
    shop.link()?.release(Direction::ToServer);
    scene.notes.push(format!("{held} bytes of calls came late"));
    scene.conclude(&mut shop, vec![sale]).await
}
