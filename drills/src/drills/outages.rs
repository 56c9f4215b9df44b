//! Redis away while orders are closed, Redis and the database away at once.

use std::time::Duration;

use rushgate::protocol::Status;
use rushgate_servers::Persistence;
use tokio::time::sleep;

use super::payments::stands;
use super::{Ended, Scene};
use crate::buyers::Crowd;
use crate::error::Result;
use crate::settled::settled;
use crate::shop::{Shop, ShopPlan};
use crate::sql_side;
use crate::stock_servers::RedisPlan;
use crate::till::PayPlan;
use crate::told::Told;

/// Until nobody acknowledges any more, and a little for what was said to arrive.
const LEASE: Duration = Duration::from_millis(2_300);
const SETTLED_MAX: Duration = Duration::from_secs(60);

/// Thousands of orders are closed while Redis stands still, or is dead; then it has to take all units back. When they are
/// sold again, also to users whose orders were closed, every release comes once more, as from a writer that died before it could
/// write down that it was done.
pub(super) async fn redis_away_while_closing(mut scene: Scene) -> Result<Ended> {
    let (units, pay_within) = if scene.premises.is_quick { (1_000, 2_500) } else { (10_000, 12_000) };
    let pay = PayPlan { never_percent: 97, ..PayPlan::new(scene.seed, Duration::from_millis(pay_within)) };
    let redis = RedisPlan::One(Persistence::Always);
    let (stock, pay) = (vec![units], Some(pay));
    let plan = ShopPlan { redis, writers: 2, stock, pay, buy_again_max: 1, ..ShopPlan::default() };
    let mut shop = scene.shop(plan).await?;
    let usual = Crowd::new(&shop, scene.seed);
    let users = u64::from(units) + 100;
    let spread = Duration::from_micros(u64::from(units) * 700);
    let crowd = Crowd { users, spread, pairs_percent: 0, ..usual.clone() };
    let mut sale = scene.sale_of(&shop, &crowd).await?;
    sale.answered().await?;
    let orders = u64::try_from(sale.promised().len()).unwrap_or(u64::MAX);
    stands(&shop, "not all is settled", |now| now.orders >= orders).await?;
    let closed_before = away(&mut scene, &shop).await?;
    let left = settled(&shop, SETTLED_MAX).await?;
    let second = Crowd { pairs_percent: 0, ..scene.later_crowd(&shop, 300) };
    let mut second = scene.sale_of(&shop, &second).await?;
    second.answered().await?;
    // Users of the first wave, whose orders are closed: they may have another one.
    let third = Crowd { users: 100, spread: Duration::from_millis(200), ..crowd };
    let mut third = scene.sale_of(&shop, &third).await?;
    third.answered().await?;
    let again = format!("UPDATE {}.ledger SET done = 0, done_at_ms = NULL", shop.database.name);
    scene.premises.mariadb.sql(&again).await?;
    let mut ended = scene.conclude(&mut shop, vec![sale, second, third]).await?;
    let twice = bought_again(&shop).await?;
    ended.notes.push(format!("{twice} users bought again before releases came once more"));
    if twice < 50 {
        ended.audited.violations.push("hardly anybody bought again".to_owned());
    }
    ended.audited.add("not settled after Redis came back", left);
    if closed_before * 10 < orders * 8 {
        let few = format!("only {closed_before} of {orders} orders were closed while Redis was away");
        ended.audited.violations.push(few);
    }
    Ok(ended)
}

async fn bought_again(shop: &Shop) -> Result<usize> {
    let orders = sql_side::read(&shop.database).await?.orders;
    Ok(orders.values().filter(|order| order.attempt > 1).count())
}

/// Until all that can be closed is closed; how much was, while Redis was away.
async fn away(scene: &mut Scene, shop: &Shop) -> Result<u64> {
    let redis = shop.servers.one()?;
    let is_killed = scene.random.bool();
    if is_killed {
        redis.kill9().await?;
    } else {
        redis.pause().await?;
    }
    let before = stands(shop, "", |_| true).await?.closed;
    let begun = tokio::time::Instant::now();
    let after = stands(shop, "some orders stay open without Redis", |now| now.unpaid == 0).await?.closed;
    let (closed, how) = (after - before, if is_killed { "dead" } else { "standing still" });
    scene
        .notes
        .push(format!("{closed} orders closed while Redis was {how}, in {} ms", begun.elapsed().as_millis()));
    if is_killed {
        redis.restart().await?;
    } else {
        redis.resume()?;
    }
    Ok(closed)
}

/// Both are killed in mid-sale, while some pay and others do not. Once the lease is over nobody is told that he has bought, or
/// that nothing is left; when both are back the sale goes on, and no order and no payment is lost.
pub(super) async fn redis_and_database_away(mut scene: Scene) -> Result<Ended> {
    let (redis, stock) = (RedisPlan::One(Persistence::Always), scene.ample_stock());
    let plan = ShopPlan { redis, stock, writers: 2, pay: Some(scene.pay_plan()), ..ShopPlan::default() };
    let mut shop = scene.shop(plan).await?;
    let usual = Crowd::new(&shop, scene.seed);
    let crowd = Crowd { spread: Duration::from_secs(6), ..usual };
    let mut sale = scene.sale_of(&shop, &crowd).await?;
    let moment = scene.random.u64(1..=crowd.users / 5);
    sale.queued(moment).await?;
    let pause = scene.between(600, 2_500);
    let (one, other) = (shop.servers.one()?, &scene.premises.mariadb);
    let (redis_gone, database_gone) = tokio::join!(one.kill9(), other.kill9());
    redis_gone?;
    database_gone?;
    sleep(LEASE).await;
    let from = sale.place();
    sleep(pause).await;
    let until = sale.place();
    let (one_back, other_back) = tokio::join!(one.restart(), other.restart());
    one_back?;
    other_back?;
    let (mut audited, told) = scene.look(&mut shop, vec![sale], Told::default()).await?;
    let (answers, wrong) = dishonest(&told, from..until);
    scene.notes.push(format!("{answers} answers in {} ms without both", pause.as_millis()));
    audited.add("told while both were away", wrong);
    let closed_ms = shop.closed_ms().into_iter().max();
    Ok(Ended { audited, closed_ms, notes: scene.notes })
}

/// How many answers there were then, and those that nobody could know to be true.
fn dishonest(told: &Told, then: std::ops::Range<u64>) -> (usize, Vec<String>) {
    let (mut answers, mut wrong) = (0, Vec::new());
    for (user, told) in &told.users {
        for heard in told.heard.iter().filter(|heard| then.contains(&heard.place)) {
            answers += 1;
            let unknowable =
                [Status::Queued, Status::SoldOut, Status::Insufficient, Status::NoOrder, Status::Ended];
            if unknowable.into_iter().any(|status| heard.is(status)) {
                wrong.push(format!("user {user}: {heard:?}"));
            }
        }
    }
    (answers, wrong)
}
