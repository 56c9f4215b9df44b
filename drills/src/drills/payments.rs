//! What comes after the queue: payments in any order, closes by several writers, a payment centre that is away, clocks that
//! are wrong.

use std::time::Duration;

use rushgate::rehearsal::PayFaults;
use tokio::time::{Instant, sleep};

use super::{Ended, Scene};
use crate::buyers::Crowd;
use crate::error::{DrillError, Result};
use crate::pay_side::{Standing, standing};
use crate::shop::{Shop, ShopPlan};
use crate::till::PayPlan;

const MOMENT_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// Users of the second wave, who buy what came back.
pub(super) const LATER_USERS: u64 = 1_000_000;
/// Orders per second of a writer that is behind, so that payments come before settlements.
const SLOW_WRITER: u32 = 120;
/// By how much a clock is wrong.
const AHEAD: Duration = Duration::from_secs(600);

impl Scene {
    /// Time enough for everybody to buy before the first order is overdue.
    pub(super) fn pay_plan(&self) -> PayPlan {
        let pay_within = Duration::from_millis(if self.premises.is_quick { 1_500 } else { 3_000 });
        PayPlan::new(self.seed, pay_within)
    }

    /// Lets in so many users more, who buy what came back.
    pub(super) fn later_crowd(&self, shop: &Shop, users: u64) -> Crowd {
        let usual = Crowd::new(shop, self.seed);
        Crowd { first_user: LATER_USERS, users, spread: Duration::from_millis(500), ..usual }
    }
}

/// Waits until SQL stands so.
pub(super) async fn stands(shop: &Shop, what: &str, is_so: impl Fn(Standing) -> bool) -> Result<Standing> {
    let begun = Instant::now();
    loop {
        let standing = standing(&shop.database).await?;
        if is_so(standing) {
            return Ok(standing);
        }
        if begun.elapsed() > MOMENT_MAX {
            let what = format!("{what}: {standing:?}");
            return Err(DrillError::Late { what, waited: MOMENT_MAX });
        }
        sleep(POLL).await;
    }
}

/// Three writers that sweep, one of which is killed, and a payment centre that tells twice, late, out of order, and of orders
/// that it has closed, after somebody who forges; answers with errors, or that it does not know. What is closed is sold again.
pub(super) async fn payments_race_the_sweeper(mut scene: Scene) -> Result<Ended> {
    let faults = PayFaults {
        seed: scene.seed,
        answer_delay_max: Duration::from_millis(150),
        notice_delay_max: Duration::from_millis(800),
        error_rate: 0.2,
        unknown_rate: 0.2,
        late_rate: 0.2,
        repeat_rate: 0.5,
        forge_rate: 0.3,
        ..PayFaults::default()
    };
    let pay = PayPlan { faults, ask_orders_max: 20, ..scene.pay_plan() };
    let plan = ShopPlan { writers: 3, writer_rows_per_s: SLOW_WRITER, pay: Some(pay), ..ShopPlan::default() };
    let mut shop = scene.shop(plan).await?;
    let sale = scene.sale(&shop).await?;
    stands(&shop, "nothing is closed", |now| now.closed > 5).await?;
    let (victim, pause) = (scene.random.usize(..3), scene.between(0, 800));
    shop.writer(victim)?.kill9()?;
    stands(&shop, "too little is closed", |now| now.closed > 30).await?;
    let crowd = scene.later_crowd(&shop, 300);
    let second = scene.sale_of(&shop, &crowd).await?;
    sleep(pause).await;
    shop.writer(victim)?.start().await?;
    let told_what = |shop: &Shop| Ok::<_, DrillError>((shop.till()?.told(), shop.till()?.stat("unexpected")));
    let mut ended = scene.conclude(&mut shop, vec![sale, second]).await?;
    let (told, unexpected) = told_what(&shop)?;
    ended.notes.push(told);
    if unexpected > 0 {
        ended.audited.violations.push(format!("{unexpected} notices had an answer that nobody should get"));
    }
    Ok(ended)
}

/// Away from before the sale until every unpaid order has been overdue for a second: nothing is closed meanwhile. Then it is
/// back, and those who pay late race those who close.
pub(super) async fn pay_centre_away(mut scene: Scene) -> Result<Ended> {
    let pay = scene.pay_plan();
    let mut shop = scene.shop(ShopPlan { writers: 2, pay: Some(pay), ..ShopPlan::default() }).await?;
    shop.till()?.go_away();
    let mut sale = scene.sale(&shop).await?;
    sale.answered().await?;
    let overdue =
        stands(&shop, "not all is overdue", |now| now.unpaid > 0 && now.overdue == now.unpaid).await?;
    // Whoever cancels asks nobody.
    let closed = overdue.closed;
    let asked =
        shop.writers.iter().map(|writer| writer.log().matches("cannot be asked").count()).sum::<usize>();
    scene.notes.push(format!(
        "{} orders overdue, none of them closed, {closed} cancelled, while the payment centre was away",
        overdue.overdue
    ));
    let is_called = shop.writers.iter().any(|writer| writer.log().contains("its units are held"));
    shop.till()?.come_back();
    let mut ended = scene.conclude(&mut shop, vec![sale]).await?;
    if asked == 0 {
        ended.audited.violations.push("no writer told that the payment centre cannot be asked".to_owned());
    }
    if !is_called {
        ended.notes.push("nobody had to be called yet".to_owned());
    }
    Ok(ended)
}

/// The clocks of gateway 0 and of the first of two writers are ten minutes ahead: no order is closed before its pay-by by the
/// database's clock, no notice is refused, nobody is told that the sale is not what it is.
pub(super) async fn clocks_ahead(mut scene: Scene) -> Result<Ended> {
    let pay = scene.pay_plan();
    let plan = ShopPlan { writers: 2, clocks_ahead: AHEAD, pay: Some(pay), ..ShopPlan::default() };
    let mut shop = scene.shop(plan).await?;
    let sale = scene.sale(&shop).await?;
    let mut ended = scene.conclude(&mut shop, vec![sale]).await?;
    let stale =
        shop.writers.iter().map(|writer| writer.log().matches("signed too long ago").count()).sum::<usize>();
    if stale > 0 {
        ended.audited.violations.push("a writer with a wrong clock refused a notice as stale".to_owned());
    }
    Ok(ended)
}
