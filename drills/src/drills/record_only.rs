//! Orders that are only recorded in the midst of a sale (the switch `orders.mode`), and settled later: by writers that die
//! at it, and by the operator's command.

use std::time::Duration;

use rushgate::store::crash_point;
use tokio::time::{Instant, sleep};

use super::{Ended, Scene};
use crate::error::{DrillError, Result};
use crate::shop::{Shop, ShopPlan};
use crate::sql_side;

const CRASH_MAX: Duration = Duration::from_secs(15);
const RECORDED_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// More than one of a writer's batches.
const SOME: u64 = 150;

/// Recorded and settled in turns while people buy, with writers that are killed in between; what was recorded last is
/// settled by `rushgate backfill`. Nothing is settled twice or forgotten, and every user hears of his order as it stands.
pub(super) async fn record_only(mut scene: Scene) -> Result<Ended> {
    let stock = scene.ample_stock();
    let mut shop = scene.shop(ShopPlan { writers: 2, stock, ..ShopPlan::default() }).await?;
    let mut sale = scene.long_sale(&shop).await?;
    let moment = scene.random.u64(1..=shop.units() / 4);
    sale.queued(moment).await?;
    set_mode(&shop, "record").await?;
    // One of two dies while both record.
    let (victim, pause) = (scene.random.usize(..2), scene.between(0, 500));
    shop.writer(victim)?.kill9()?;
    sleep(pause).await;
    shop.writer(victim)?.start().await?;
    let first = recorded(&shop, SOME).await?;
    // What they recorded is settled by one that dies before its first batch, then by one that dies after it.
    for writer in 0..2 {
        shop.writer(writer)?.kill9()?;
    }
    set_mode(&shop, "settle").await?;
    for point in crash_point::OF_BACKFILL {
        shop.writer(0)?.spawn(Some(point))?;
        if !shop.writer(0)?.crashed(CRASH_MAX).await? {
            return Err(DrillError::Malformed(format!("no writer died at the crash point {point}")));
        }
    }
    set_mode(&shop, "record").await?;
    for writer in 0..2 {
        shop.writer(writer)?.start().await?;
    }
    sale.answered().await?;
    // Whatever the switch says, and beside writers that record on.
    let said = shop.operated(&["backfill", "--rate", "3000"]).await?;
    scene.notes.push(format!("{first} orders recorded at first; backfill: {}", said.trim()));
    set_mode(&shop, "settle").await?;
    scene.conclude(&mut shop, vec![sale]).await
}

async fn set_mode(shop: &Shop, mode: &str) -> Result<()> {
    let args = ["switch", "set", "orders.mode", mode, "--why", "a drill", "--who", "the drill"];
    shop.operated(&args).await.map(drop)
}

/// Waits until so many orders are recorded.
async fn recorded(shop: &Shop, least: u64) -> Result<u64> {
    let begun = Instant::now();
    loop {
        let recorded = sql_side::owed(&shop.database).await?.recorded;
        if recorded >= least {
            return Ok(recorded);
        }
        if begun.elapsed() > RECORDED_MAX {
            let what = format!("{recorded} orders were recorded, not {least}");
            return Err(DrillError::Late { what, waited: RECORDED_MAX });
        }
        sleep(POLL).await;
    }
}
