//! Every named crash point of gateway and writer, each passed once by a process that dies there.

use std::time::Duration;

use rushgate::store::crash_point;
use rushgate_servers::Persistence;
use tokio::time::{Instant, sleep};

use super::{Ended, Scene};
use crate::audit::Audited;
use crate::buyers::{Crowd, Sale};
use crate::error::{DrillError, Result};
use crate::layout::{ACTIVITY, SHARDS};
use crate::settled::settled;
use crate::shop::{Shop, ShopPlan};
use crate::sql_side;
use crate::stock_servers::RedisPlan;
use crate::told::Told;

const CRASH_MAX: Duration = Duration::from_secs(20);
/// For a gateway to hand in, and how many recoveries it is asked in.
const RECOVERY_MAX: Duration = Duration::from_secs(6);
const RECOVERIES_MAX: usize = 3;
const SETTLED_MAX: Duration = Duration::from_secs(40);
/// For five writers to die during a preheat, which may not come after the opening; then it is opened earlier.
const OPENS_IN: Duration = Duration::from_secs(60);
/// Users of the second wave.
const LATER_USERS: u64 = 1_000_000;

/// Whether a usual sale does not come by it: other drills do, or a takeover.
fn is_of_others(point: &str) -> bool {
    crash_point::OF_PAYMENTS.contains(&point)
        || crash_point::OF_BACKFILL.contains(&point)
        || point.starts_with("takeover.")
}

/// All that a sale passes: the gateway's in one shop, the writer's in another. Nobody pays in it, nothing is recorded.
pub(super) async fn crash_points(mut scene: Scene) -> Result<Ended> {
    let mut passed = Vec::new();
    let begun = Instant::now();
    let (mut audited, closed_ms) = gateway_points(&mut scene, &mut passed).await?;
    let of_gateways = begun.elapsed();
    let of_writer = writer_points(&mut scene, &mut passed).await?;
    audited.violations.extend(of_writer.violations);
    audited.promised += of_writer.promised;
    audited.kept += of_writer.kept;
    audited.units_sold += of_writer.units_sold;
    audited.pushed += of_writer.pushed;
    for point in crash_point::ALL {
        if !passed.contains(point) && !is_of_others(point) {
            audited.violations.push(format!("no process died at the crash point {point}"));
        }
    }
    let all = crash_point::ALL.iter().filter(|point| !is_of_others(point)).count();
    let (gateways, writer) = (of_gateways.as_secs(), begun.elapsed().as_secs());
    scene
        .notes
        .push(format!("{} of {all} crash points, the gateway's in {gateways} of {writer} s", passed.len()));
    Ok(Ended { audited, closed_ms, notes: scene.notes })
}

async fn gateway_points(scene: &mut Scene, passed: &mut Vec<&'static str>) -> Result<(Audited, Option<u64>)> {
    let redis = RedisPlan::One(Persistence::Always);
    let stock = vec![1_500, 1_000, 500];
    let mut shop = scene.shop(ShopPlan { redis, stock, ..ShopPlan::default() }).await?;
    let points: Vec<_> = crash_point::ALL.iter().filter(|point| point.starts_with("gateway.")).collect();
    let usual = Crowd::new(&shop, scene.seed);
    let crowd = Crowd { is_pinned: true, users: 2_000, spread: Duration::from_secs(6), ..usual };
    let sale = scene.sale_of(&shop, &crowd).await?;
    for point in points {
        let is_in_recovery = point.contains("hand_in");
        // A gateway that starts hands in for the last recovery, too late: the second time is what counts.
        let nth = if is_in_recovery { 2 } else { scene.random.u32(1..=8) };
        shop.gateway(0)?.kill9()?;
        shop.gateway(0)?.spawn(Some(&format!("{point}:{nth}")))?;
        let mut has_crashed;
        if is_in_recovery {
            // The last recovery may still be going on.
            has_crashed = !shop.gateway(0)?.works_or_crashes().await?;
            for _ in 0..RECOVERIES_MAX {
                if !has_crashed {
                    shop.servers.one()?.kill9().await?;
                    shop.servers.one()?.restart().await?;
                    has_crashed = shop.gateway(0)?.crashed(RECOVERY_MAX).await?;
                }
            }
        } else {
            has_crashed = shop.gateway(0)?.crashed(CRASH_MAX).await?;
        }
        if has_crashed {
            passed.push(point);
        }
    }
    shop.gateway(0)?.kill9()?;
    shop.gateway(0)?.start().await?;
    let (audited, _) = scene.look(&mut shop, vec![sale], Told::default()).await?;
    let closed_ms = shop.closed_ms().into_iter().max();
    Ok((audited, closed_ms))
}

/// Lets the writer die at a point, and notes it.
pub(super) async fn die(shop: &mut Shop, point: &'static str, passed: &mut Vec<&'static str>) -> Result<()> {
    shop.writer(0)?.kill9()?;
    shop.writer(0)?.spawn(Some(point))?;
    if shop.writer(0)?.crashed(CRASH_MAX).await? {
        passed.push(point);
    }
    Ok(())
}

async fn writer_points(scene: &mut Scene, passed: &mut Vec<&'static str>) -> Result<Audited> {
    let plan = ShopPlan { opens_in: OPENS_IN, stock: vec![400, 300], ..ShopPlan::default() };
    let mut shop = Shop::without_processes(&scene.premises, plan).await?;
    shop.add_writer(0)?.start().await?;
    for _ in 0..2 {
        shop.add_gateway()?.spawn(None)?;
    }
    shop.gateway(0)?.works().await?;
    shop.gateway(1)?.works().await?;
    shop.writer(0)?.kill9()?;
    shop.create().await?;
    for point in [
        "writer.before_preheat",
        "writer.after_preheat",
        "writer.before_load",
        "writer.after_load",
        "writer.after_load_done",
    ] {
        die(&mut shop, point, passed).await?;
    }
    shop.writer(0)?.kill9()?;
    shop.writer(0)?.start().await?;
    shop.loaded().await?;
    let opened = "UPDATE {}.activities SET opens_at_ms = 1; UPDATE {}.catalog SET version = version + 1";
    scene.premises.mariadb.sql(&opened.replace("{}", &shop.database.name)).await?;
    let told = sell_and_settle(scene, &mut shop, passed).await?;
    let told = give_back_and_tell(scene, &mut shop, told, passed).await?;
    for point in [
        "writer.after_trim",
        "writer.after_forget",
        "writer.after_forget_processes",
        "writer.after_forget_recoveries",
    ] {
        let silent = "INSERT INTO {}.processes (number, kind, started_at_ms, heartbeat_ms) VALUES (100000, 1, 1, 1) \
                      ON DUPLICATE KEY UPDATE heartbeat_ms = 1";
        scene.premises.mariadb.sql(&silent.replace("{}", &shop.database.name)).await?;
        die(&mut shop, point, passed).await?;
    }
    shop.writer(0)?.kill9()?;
    shop.writer(0)?.start().await?;
    let (mut audited, told) = scene.look(&mut shop, Vec::new(), told).await?;
    audited.violations.extend(archive(scene, &mut shop, told, passed).await?);
    Ok(audited)
}

/// The sale, with a writer that dies at each step of settling.
async fn sell_and_settle(scene: &mut Scene, shop: &mut Shop, passed: &mut Vec<&'static str>) -> Result<Told> {
    let usual = Crowd::new(shop, scene.seed);
    let crowd = Crowd { users: 500, spread: Duration::from_secs(4), ..usual.clone() };
    let mut sale: Sale = scene.sale_of(shop, &crowd).await?;
    for point in [
        "writer.entries_read",
        "writer.before_commit",
        "writer.after_commit",
        "writer.after_settled",
        "writer.after_acknowledge",
    ] {
        die(shop, point, passed).await?;
    }
    sale.answered().await?;
    // Somebody buys so that there is something to be taken over; then an entry that nobody can read.
    let late = Crowd { first_user: LATER_USERS, users: 200, spread: Duration::from_millis(200), ..usual };
    let mut second = scene.sale_of(shop, &late).await?;
    second.answered().await?;
    die(shop, "writer.entries_read", &mut Vec::new()).await?;
    die(shop, "writer.entries_claimed", passed).await?;
    let mut connection = shop.shard_connection(scene.random.usize(..SHARDS)).await?;
    let shard = scene.random.usize(..SHARDS);
    let seq = connection.call(&["HINCRBY", &Shop::key(shard, "meta"), "seq", "1"]).await?.to_string();
    let generation = connection.call(&["HGET", &Shop::key(shard, "meta"), "gen"]).await?.to_string();
    connection
        .call(&["XADD", &Shop::key(shard, "feed"), &format!("{generation}-{seq}"), "e", "rubbish"])
        .await?;
    scene.promise.dead_letters = 1;
    die(shop, "writer.before_dead_letter", passed).await?;
    die(shop, "writer.after_dead_letter", passed).await?;
    shop.writer(0)?.kill9()?;
    shop.writer(0)?.start().await?;
    let (audited, told) = scene.look(shop, vec![sale, second], Told::default()).await?;
    if audited.violations.is_empty() { Ok(told) } else { Err(broken("settling", &audited.violations)) }
}

fn broken(when: &str, violations: &[String]) -> DrillError {
    DrillError::Malformed(format!("after the crash points of {when}: {}", violations.join("; ")))
}

/// Orders are closed and others paid, with a writer that dies at each step of telling Redis.
async fn give_back_and_tell(
    scene: &mut Scene,
    shop: &mut Shop,
    told: Told,
    passed: &mut Vec<&'static str>,
) -> Result<Told> {
    let name = shop.database.name.clone();
    let orders = sql_side::read(&shop.database).await?.orders;
    let live: Vec<u64> =
        orders.iter().filter(|(_, order)| order.is_live()).map(|(number, _)| *number).collect();
    shop.writer(0)?.kill9()?;
    for number in live.iter().take(30) {
        // What closing an order is: its state, its units and its ledger row in one transaction.
        let close = format!(
            "START TRANSACTION; UPDATE {name}.orders SET state = 4 WHERE number = {number} AND state = 2; \
             UPDATE {name}.sku_stock s JOIN {name}.orders o ON o.activity = s.activity AND o.sku = s.sku \
             SET s.available = s.available + o.quantity, s.sold = s.sold - o.quantity WHERE o.number = {number}; \
             INSERT INTO {name}.ledger (number, user, activity, sku, quantity, attempt, state, shard, done, \
             created_at_ms) SELECT number, user, activity, sku, quantity, attempt, 4, shard, 0, 1 \
             FROM {name}.orders WHERE number = {number}; COMMIT"
        );
        scene.premises.mariadb.sql(&close).await?;
        scene.promise.closed.insert(*number);
    }
    for point in ["writer.before_release", "writer.after_release", "writer.after_releases_done"] {
        die(shop, point, passed).await?;
    }
    let paid: Vec<String> = live.iter().skip(30).take(30).map(ToString::to_string).collect();
    let paid = format!(
        "UPDATE {name}.orders SET state = 3 WHERE number IN ({0}); INSERT INTO {name}.outbox (number, state, done, \
         created_at_ms) SELECT number, state, 0, 1 FROM {name}.orders WHERE number IN ({0})",
        paid.join(",")
    );
    scene.premises.mariadb.sql(&paid).await?;
    for point in ["writer.before_marks", "writer.after_marks", "writer.after_marks_told"] {
        die(shop, point, passed).await?;
    }
    Ok(told)
}

/// The activity ends for good, with a writer that dies at each step of it.
async fn archive(
    scene: &mut Scene,
    shop: &mut Shop,
    told: Told,
    passed: &mut Vec<&'static str>,
) -> Result<Vec<String>> {
    shop.writer(0)?.kill9()?;
    shop.operated(&["activity", "close", &ACTIVITY.to_string()]).await?;
    shop.operated(&["activity", "archive", &ACTIVITY.to_string()]).await?;
    for point in ["writer.before_end", "writer.after_end", "writer.after_archived", "writer.after_tombstones"]
    {
        die(shop, point, passed).await?;
    }
    shop.writer(0)?.kill9()?;
    shop.writer(0)?.start().await?;
    let left = settled(shop, SETTLED_MAX).await?;
    scene.promise.is_archived = true;
    let begun = Instant::now();
    while !shop.is_archived().await? {
        if begun.elapsed() > SETTLED_MAX {
            return Err(DrillError::Late {
                what: "the activity is not archived".to_owned(),
                waited: SETTLED_MAX,
            });
        }
        sleep(Duration::from_millis(50)).await;
    }
    let (audited, _) = scene.look(shop, Vec::new(), told).await?;
    Ok(left.into_iter().chain(audited.violations).collect())
}
