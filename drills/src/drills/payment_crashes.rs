//! Every named crash point of an order's life after its settlement, each passed once by a writer that dies there: notices,
//! parked payments, overdue orders, cancels, and what Redis has to learn of all of them.

use std::time::Duration;

use rushgate::rehearsal::PayFaults;

use super::crash_points::die;
use super::payments::stands;
use super::{Ended, Scene};
use crate::buyers::Crowd;
use crate::error::Result;
use crate::shop::{Shop, ShopPlan};
use crate::till::PayPlan;

/// All of them, each when there is something left that passes it.
const POINTS: [&str; 16] = [
    "writer.after_cancel_closed",
    "writer.before_payment",
    "writer.after_payment",
    "writer.before_marks",
    "writer.after_marks",
    "writer.after_marks_told",
    "writer.after_overdue_taken",
    "writer.after_paid_answer",
    "writer.after_asked",
    "writer.before_overdue_closed",
    // Between the commit that closes and the release in Redis.
    "writer.after_overdue_closed",
    "writer.before_release",
    "writer.after_release",
    "writer.after_releases_done",
    "writer.after_parked",
    "writer.after_cancels",
];

/// The longest that a notice takes: some payments are heard of as answers first.
const NOTICES_LATE: Duration = Duration::from_secs(6);

pub(super) async fn payment_crash_points(mut scene: Scene) -> Result<Ended> {
    let pay = PayPlan::new(scene.seed, Duration::from_millis(1_500));
    let faults = PayFaults { notice_delay_max: NOTICES_LATE, ..pay.faults };
    // So small questions that there are overdue orders for every point.
    let pay = PayPlan { never_percent: 50, ask_orders_max: 4, faults, ..pay };
    let mut shop =
        scene.shop(ShopPlan { stock: vec![200, 100], pay: Some(pay), ..ShopPlan::default() }).await?;
    let crowd = Crowd { users: 500, spread: Duration::from_secs(1), ..Crowd::new(&shop, scene.seed) };
    let sale = scene.sale_of(&shop, &crowd).await?;
    let mut passed = Vec::new();
    for point in POINTS {
        die(&mut shop, point, &mut passed).await?;
    }
    restart(&mut shop).await?;
    stands(&shop, "nothing is closed", |now| now.closed > 0).await?;
    let second = scene.later_crowd(&shop, 50);
    let second = scene.sale_of(&shop, &second).await?;
    let mut ended = scene.conclude(&mut shop, vec![sale, second]).await?;
    for point in POINTS.iter().filter(|point| !passed.contains(point)) {
        ended.audited.violations.push(format!("no process died at the crash point {point}"));
    }
    ended.notes.push(format!("{} of {} crash points", passed.len(), POINTS.len()));
    Ok(ended)
}

async fn restart(shop: &mut Shop) -> Result<()> {
    shop.writer(0)?.kill9()?;
    shop.writer(0)?.start().await
}

#[cfg(test)]
mod tests {
    use rushgate::store::crash_point;

    use super::*;

    #[test]
    fn no_boundary_of_paying_closing_and_giving_back_is_left_out() {
        for point in crash_point::OF_PAYMENTS {
            assert!(POINTS.contains(&point), "{point}");
        }
        let words = ["payment", "paid", "parked", "overdue", "asked", "cancel", "release", "marks"];
        for point in crash_point::ALL.iter().filter(|point| words.iter().any(|word| point.contains(word))) {
            assert!(POINTS.contains(point), "{point}");
        }
        for point in POINTS {
            assert!(crash_point::ALL.contains(&point), "{point}");
        }
    }
}
