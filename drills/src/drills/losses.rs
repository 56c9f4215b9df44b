//! Faults in which Redis really loses what was acknowledged: that is asserted before anything recovers. Then what
//! live gateways know is handed in.

use std::time::Duration;

use rushgate_servers::{Direction, Persistence};
use tokio::time::sleep;

use super::{Ended, Scene};
use crate::buyers::{Crowd, Sale};
use crate::error::{DrillError, Result};
use crate::redis_side;
use crate::shop::{Shop, ShopPlan};
use crate::stock_servers::{RedisPlan, StockServers};

/// Orders per second of a writer that is behind, so that not SQL alone restores what Redis lost.
const SLOW_WRITER: u32 = 100;
/// What commands name that sell or move units; gateways write of other things, too.
const FEED: &str = ":feed";

/// How long a gateway that cannot reach the database may still acknowledge, and a little for what it has said to arrive.
const LEASE: Duration = Duration::from_millis(2_300);

/// For a gateway that stood still to notice.
const LAST_WORDS: Duration = Duration::from_millis(300);

impl Scene {
    /// Compares what users were told with what survived; the processes stand still meanwhile. Adds the number of
    /// acknowledged orders that are gone to the notes.
    async fn note_lost(&mut self, shop: &Shop, sale: &Sale) -> Result<usize> {
        let marks = redis_side::marks(shop).await?;
        let survived: std::collections::BTreeSet<u64> = marks.values().map(|mark| mark.order).collect();
        let promised = sale.promised();
        let lost = promised.difference(&survived).count();
        self.notes.push(format!(
            "before the recovery: {} orders acknowledged, {} marks survived, {lost} of the acknowledged lost",
            promised.len(),
            survived.len(),
        ));
        Ok(lost)
    }
}

/// Redis dies, and its file ends earlier than what it had answered.
pub(super) async fn aof_truncated(mut scene: Scene) -> Result<Ended> {
    let redis = RedisPlan::One(Persistence::EverySecond);
    let writer_rows_per_s = if scene.random.bool() { SLOW_WRITER } else { 0 };
    let mut shop = scene.shop(ShopPlan { redis, writer_rows_per_s, ..ShopPlan::default() }).await?;
    let mut sale = scene.sale(&shop).await?;
    sale.queued(40).await?;
    scene.some_moment(&shop, &mut sale).await?;
    shop.pause()?;
    lose_the_end(&mut scene, &shop).await?;
    let lost = scene.note_lost(&shop, &sale).await?;
    shop.resume()?;
    if lost == 0 {
        return Err(DrillError::NothingLost);
    }
    scene.promise.may_come_back = true;
    scene.conclude(&mut shop, vec![sale]).await
}

/// Kills Redis, cuts a seeded part off its file, and starts it.
async fn lose_the_end(scene: &mut Scene, shop: &Shop) -> Result<()> {
    let redis = shop.servers.one()?;
    redis.kill9().await?;
    let commands = redis.truncate_aof_naming(FEED, 0)?;
    // Percent of all that sold or moved units since the start; the loads of the preheat are among the first.
    let cut = commands.saturating_mul(scene.random.usize(20..=70)) / 100;
    redis.truncate_aof_naming(FEED, cut.max(1))?;
    redis.restart().await?;
    scene.notes.push(format!("{cut} of {commands} commands were cut off the file"));
    Ok(())
}

/// The replica's link is cut, the sale goes on, the master dies, and the replica takes its place and address.
pub(super) async fn replica_promoted_after_cut(mut scene: Scene) -> Result<Ended> {
    let writer_rows_per_s = if scene.random.bool() { SLOW_WRITER } else { 0 };
    let plan = ShopPlan { redis: RedisPlan::Replicated, writer_rows_per_s, ..ShopPlan::default() };
    let mut shop = scene.shop(plan).await?;
    let mut sale = scene.sale(&shop).await?;
    let cut_at = scene.random.u64(1..=shop.units() / 4);
    sale.queued(cut_at).await?;
    let StockServers::Replicated { link, .. } = &shop.servers else { return Err(DrillError::NothingLost) };
    link.refuse(true);
    link.cut();
    let more = scene.random.u64(10..=shop.units() / 4);
    sale.queued(cut_at + more).await?;
    shop.pause()?;
    shop.servers.promote_replica().await?;
    let lost = scene.note_lost(&shop, &sale).await?;
    shop.resume()?;
    if lost == 0 {
        return Err(DrillError::NothingLost);
    }
    scene.promise.may_come_back = true;
    scene.conclude(&mut shop, vec![sale]).await
}

/// A replica is promoted on the master's address, and the old master lives on with gateway 0, which is cut off from
/// the database: it stops acknowledging within two seconds, before anybody resells what the old master sells. What it
/// acknowledged until then it offers again when it is back.
pub(super) async fn old_master_lives_on(mut scene: Scene) -> Result<Ended> {
    let (redis, stock) = (RedisPlan::Replicated, vec![700, 500]);
    let plan = ShopPlan { redis, stock, has_link: true, can_be_split: true, ..ShopPlan::default() };
    let mut shop = scene.shop(plan).await?;
    let usual = Crowd { is_pinned: true, ..Crowd::new(&shop, scene.seed) };
    // A few at the old master all the time; many at the new one, who leave nothing.
    let few = Crowd { users: 600, spread: Duration::from_secs(7), gateways: Some(vec![0]), ..usual.clone() };
    let many = Crowd { first_user: 1_000_000, users: 2_000, gateways: Some(vec![1]), ..usual };
    let many = Crowd { spread: Duration::from_secs(5), ..many };
    let mut sale = scene.sale_of(&shop, &few).await?;
    let others = scene.sale_of(&shop, &many).await?;
    let moment = scene.random.u64(5..=40);
    sale.queued(moment).await?;
    let (Some(sql_link), Some(link_of_others)) = (&shop.sql_link, &shop.link_of_others) else {
        return Err(DrillError::Malformed("the drill cannot be split".to_owned()));
    };
    sql_link.swallow(Direction::ToServer, true);
    sql_link.swallow(Direction::ToClient, true);
    shop.servers.promote_beside_the_old().await?;
    link_of_others.cut();
    sleep(LEASE).await;
    // Until here; what it says from now on it has to keep.
    scene.promise.died = Some((0, sale.place()));
    let before = sale.promised().len();
    let silence = scene.between(2_000, 3_500);
    sleep(silence).await;
    let meanwhile = sale.promised().len().saturating_sub(before);
    sql_link.swallow(Direction::ToServer, false);
    sql_link.swallow(Direction::ToClient, false);
    sql_link.cut();
    shop.link()?.cut();
    scene.promise.is_failed_explicitly = true;
    scene.promise.may_come_back = true;
    scene
        .notes
        .push(format!("the gateway that was cut off told {meanwhile} users of orders after its lease"));
    scene.conclude(&mut shop, vec![sale, others]).await
}

/// A gateway and Redis die at once. What the dead gateway alone knew and Redis lost may be lost; nothing else.
pub(super) async fn gateway_and_redis_killed(mut scene: Scene) -> Result<Ended> {
    let (mut shop, sale) = one_gateway_alone(&mut scene, true).await?;
    let silence = scene.between(0, 4_000);
    sleep(silence).await;
    shop.gateway(1)?.start().await?;
    scene.conclude(&mut shop, vec![sale]).await
}

/// A gateway stands still while Redis dies and is recovered without it, then goes on: it offers again what it has
/// acknowledged, and what is refused is FAILED, in so many words.
pub(super) async fn gateway_silent_and_redis_killed(mut scene: Scene) -> Result<Ended> {
    let (mut shop, sale) = one_gateway_alone(&mut scene, false).await?;
    let silence = scene.between(3_500, 6_000);
    sleep(silence).await;
    shop.gateway(1)?.resume()?;
    scene.promise.is_failed_explicitly = true;
    // What it had decided to say before it stood still, it says now.
    sleep(LAST_WORDS).await;
    scene.promise.died = Some((1, sale.place()));
    scene.conclude(&mut shop, vec![sale]).await
}

/// A sale over two gateways in which Redis loses what it had acknowledged, and gateway 1 is killed or stands still in
/// the same moment; gateway 0 may be behind with what the other one's users bought.
async fn one_gateway_alone(scene: &mut Scene, kills: bool) -> Result<(Shop, Sale)> {
    let redis = RedisPlan::One(Persistence::EverySecond);
    let plan = ShopPlan { redis, has_link: true, writer_rows_per_s: SLOW_WRITER, ..ShopPlan::default() };
    let mut shop = scene.shop(plan).await?;
    let crowd = Crowd { is_pinned: true, ..Crowd::new(&shop, scene.seed) };
    let mut sale = scene.sale_of(&shop, &crowd).await?;
    let behind = if scene.random.bool() { scene.between(20, 200) } else { Duration::ZERO };
    shop.link()?.delay(Direction::ToClient, behind);
    sale.queued(40).await?;
    scene.some_moment(&shop, &mut sale).await?;
    shop.pause()?;
    if kills {
        shop.gateway(1)?.kill9()?;
    }
    lose_the_end(scene, &shop).await?;
    let lost = scene.note_lost(&shop, &sale).await?;
    // Nobody hears anything new before the processes run on.
    scene.promise.died = Some((1, sale.place()));
    scene.promise.may_come_back = true;
    scene.notes.push(format!("gateway 0 was {} ms behind", behind.as_millis()));
    shop.link()?.delay(Direction::ToClient, Duration::ZERO);
    shop.writer(0)?.resume()?;
    shop.gateway(0)?.resume()?;
    if lost == 0 {
        return Err(DrillError::NothingLost);
    }
    Ok((shop, sale))
}
