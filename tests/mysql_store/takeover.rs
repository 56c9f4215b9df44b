//! Rule 20: an activity whose Redis is gone is sold from the database, and given back; each unit in one place, no promise
//! dropped, and nothing that Redis says of before counts.

use std::sync::Arc;

use rushgate::protocol::{OrderNumber, OrderState, SkuId, UserId};
use rushgate::stock::calls::{Gen, ItemAnswer, Mark, SHARDS, ShardId};
use rushgate::store::catalog::Catalogue;
use rushgate::store::sql::mysql::{
    ActivityState, CloseOutcome, FailOutcome, MySqlRefused, MySqlStore, Preheat, ProcessKind, SettleOutcome,
    Settlement, TakenSku, Takeover, TakeoverRefused,
};
use rushgate::store::sql::{NewLoad, ReserveFigures};
use rushgate::store::{FeedRead, HandIn, ReservationStore, StoreError};

use crate::fixture::{ACTIVITY, PAY_WITHIN_MS, Scene, activity, reservation, sku};
use crate::installation::Process;

type Promise = (UserId, Mark);

/// As a gateway knows them: users from `first` on, under order numbers 1000 higher.
pub fn promises(first: u64, count: u64) -> Vec<Promise> {
    (first..first + count).map(|user| (UserId(user), reservation(user, 1000 + user).mark)).collect()
}

/// A hundred units of SKU 1, thirty of them held back; Redis has the others.
async fn scene() -> (Scene, Arc<MySqlStore>) {
    let scene = Scene::new().await;
    let made = activity(ACTIVITY, &[(1, 100)]);
    scene.sql.create_holding(&made, PAY_WITHIN_MS, &[(SkuId(1), 30)]).await.unwrap();
    let store = Arc::new(MySqlStore::new(scene.sql.clone()));
    store.drive_loads().await.unwrap();
    assert_eq!(scene.sql.preheat(ACTIVITY).await.unwrap(), Preheat::Loaded);
    scene.drive_loads().await;
    (scene, store)
}

/// A whole takeover, in which each of these is what one gateway hands in.
pub async fn take_over(scene: &Scene, handed_in: &[Vec<Promise>]) -> Takeover {
    let sql = &scene.sql;
    let mut leadership = sql.try_lead().await.unwrap().unwrap();
    let generation = leadership.raise_generation(&[true; SHARDS]).await.unwrap();
    for marks in handed_in {
        let gateway = sql.register(ProcessKind::Gateway).await.unwrap().process;
        assert_eq!(sql.hand_in(gateway, generation, marks).await.unwrap(), HandIn::InTime);
    }
    leadership.close_hand_ins(generation, &[]).await.unwrap();
    let taken = sql.take_over(&mut leadership, generation, ACTIVITY).await.unwrap();
    leadership.recovery_done(generation).await.unwrap();
    leadership.resign().await;
    taken
}

fn sku_of(taken: &Takeover) -> TakenSku {
    match taken {
        Takeover::Done { skus, .. } | Takeover::WasDone(skus) => skus[0],
        other => panic!("{other:?}"),
    }
}

async fn reserve(scene: &Scene) -> ReserveFigures {
    let reserve = scene.sql.figures(ACTIVITY).await.unwrap().1[&SkuId(1)].reserve.unwrap();
    assert_eq!(reserve.total, reserve.free + reserve.sold, "{reserve:?}");
    reserve
}

async fn live(scene: &Scene) -> i64 {
    let twice =
        "SELECT COUNT(*) FROM (SELECT user FROM orders WHERE live = 1 GROUP BY user HAVING COUNT(*) > 1) t";
    assert_eq!(scene.count(twice).await, 0, "one order per user");
    scene.count("SELECT CAST(COALESCE(SUM(quantity), 0) AS SIGNED) FROM orders WHERE live = 1").await
}

/// Sells to these users from the database; how many units.
async fn sell(store: &Arc<MySqlStore>, users: std::ops::Range<u64>) -> u64 {
    let mut process = Process::start(Arc::clone(store)).await;
    let mut sold = 0;
    for user in users {
        match process.buy(UserId(user), sku(1), 1).await {
            ItemAnswer::Reserved => sold += 1,
            ItemAnswer::EmptyHere => {}
            other => panic!("{user}: {other:?}"),
        }
    }
    sold
}

#[tokio::test]
async fn rule_20_every_unit_is_settled_handed_in_held_back_or_for_sale() {
    let (scene, store) = scene().await;
    let settled: Vec<_> = (1..=20).map(|user| reservation(user, 1000 + user)).collect();
    scene.settle(&settled).await;
    scene.execute("UPDATE orders SET state = 3 WHERE number = 1001").await;
    scene.sql.close_order(OrderNumber(1002), "a test").await.unwrap();
    assert_eq!(scene.sql.due_releases(0, 9).await.unwrap().len(), 1, "Redis was to have it back");
    // Two gateways know the same, and one of them knows one that is settled, one of a user who has another order, and
    // one more.
    let mut second = promises(21, 10);
    second.extend(promises(20, 1));
    second.push((UserId(3), reservation(3, 5003).mark));
    second.extend(promises(31, 1));
    let taken = take_over(&scene, &[promises(21, 10), second]).await;
    let Takeover::Done { failed, .. } = &taken else { panic!("{taken:?}") };
    assert_eq!(failed, &[(UserId(3), OrderNumber(5003))]);
    assert_eq!(
        sku_of(&taken),
        TakenSku {
            sku: SkuId(1),
            total: 70,
            unpaid: 18,
            paid: 1,
            closed: 1,
            handed_in: 11,
            failed_orders: 1,
            reserve_free: 30,
            opened: 40,
        }
    );
    assert_eq!(reserve(&scene).await, ReserveFigures { total: 100, free: 70, sold: 30 });
    assert_eq!((scene.stock(1).await, live(&scene).await), ((0, 0), 30));
    assert!(scene.sql.due_releases(0, 9).await.unwrap().is_empty(), "nothing goes back to Redis");
    assert_eq!(scene.sql.order_of(UserId(3), ACTIVITY).await.unwrap().unwrap().order, OrderNumber(1003));
    let failed = scene.count("SELECT COUNT(*) FROM orders WHERE number = 5003 AND state = 5").await;
    assert_eq!(failed, 1);
    // Said once more it is what it was.
    assert_eq!(take_over(&scene, &[]).await, Takeover::WasDone(vec![sku_of(&taken)]));
    // Whoever has an order is told of it, and what is left sells to the last unit.
    let mut process = Process::start(Arc::clone(&store)).await;
    for user in [1, 5, 21, 31] {
        let told = process.buy(UserId(user), sku(1), 1).await;
        assert!(matches!(told, ItemAnswer::Already(mark) if mark.order.0 == 1000 + user), "{told:?}");
    }
    assert_eq!(process.buy(UserId(2), sku(1), 1).await, ItemAnswer::NotAgain, "his order was closed");
    let mut sold = 0;
    for from in (100..).step_by(100).take_while(|from| *from < 2_000) {
        sold += sell(&store, from..from + 100).await;
        if sold == 70 {
            break;
        }
    }
    assert_eq!((sold, live(&scene).await), (70, 100));
    assert_eq!(reserve(&scene).await, ReserveFigures { total: 100, free: 0, sold: 100 });
}

#[tokio::test]
async fn rule_20_what_was_handed_in_beyond_the_units_there_are_fails_the_latest_first() {
    let scene = Scene::with_stock(&[(1, 12)]).await;
    let settled: Vec<_> = (1..=5).map(|user| reservation(user, 1000 + user)).collect();
    scene.settle(&settled).await;
    let taken = take_over(&scene, &[promises(11, 5), promises(14, 6)]).await;
    let Takeover::Done { skus, failed } = &taken else { panic!("{taken:?}") };
    assert_eq!((skus[0].handed_in, skus[0].failed_orders, skus[0].opened), (7, 2, 0));
    assert_eq!(failed, &[(UserId(18), OrderNumber(1018)), (UserId(19), OrderNumber(1019))]);
    assert_eq!(live(&scene).await, 12);
    let store = MySqlStore::new(scene.sql.clone());
    // A gateway that starts later learns of both from a snapshot.
    for (user, state) in [(17, OrderState::PendingPayment), (18, OrderState::Failed)] {
        let marks = store.snapshot(ShardId::of(UserId(user))).await.unwrap().marks;
        let found = marks.iter().find(|(of, _)| *of == UserId(user)).map(|(_, mark)| mark.state);
        assert_eq!(found, Some(state), "user {user}");
    }
}

#[tokio::test]
async fn rule_20_what_comes_late_is_sold_while_there_are_units_and_fails_then() {
    let scene = Scene::with_stock(&[(1, 20)]).await;
    take_over(&scene, &[promises(1, 16)]).await;
    let store = MySqlStore::new(scene.sql.clone());
    let before = store.snapshot(ShardId::of(UserId(51))).await.unwrap();
    let fail = async |user: u64| {
        let (user, mark) = promises(user, 1)[0];
        scene.sql.fail(user, &mark, "late").await.unwrap()
    };
    // Units are gathered wherever they are.
    for user in 51..=54 {
        let FailOutcome::Stands(mark) = fail(user).await else { panic!("user {user}") };
        assert_eq!((mark.order.0, mark.state), (1000 + user, OrderState::PendingPayment));
        assert_eq!(fail(user).await, FailOutcome::Stands(mark), "the same once more");
    }
    assert!(matches!(fail(3).await, FailOutcome::Stands(mark) if mark.order.0 == 1003), "it was in time");
    assert_eq!((fail(55).await, fail(55).await), (FailOutcome::Failed, FailOutcome::WasFailed));
    assert_eq!((live(&scene).await, reserve(&scene).await.free), (20, 0));
    let mut after = [(Gen(1), 0); SHARDS];
    after[before.shard.index()].1 = before.seq;
    let news = store.read_feeds(&after, std::time::Duration::ZERO).await.unwrap();
    let told = news.iter().find(|(shard, _)| *shard == before.shard);
    assert!(matches!(told, Some((_, FeedRead::Events(events))) if !events.is_empty()), "{told:?}");
}

#[tokio::test]
async fn rule_20_a_feed_of_before_settles_nothing_any_more() {
    let (scene, _) = scene().await;
    let old = [reservation(1, 1001), reservation(2, 1002)];
    take_over(&scene, &[promises(1, 1)]).await;
    // Redis is back with its old data, and was rebuilt: writers read its feed under the newest generation.
    let mut leadership = scene.sql.try_lead().await.unwrap().unwrap();
    let generation = leadership.raise_generation(&[true; SHARDS]).await.unwrap();
    leadership.resign().await;
    assert_eq!(scene.sql.settle(Gen(1), &old).await.unwrap(), SettleOutcome::Gen(generation));
    for _ in 0..2 {
        let settled = scene.sql.settle(generation, &old).await.unwrap();
        let SettleOutcome::Committed(settled) = settled else { panic!("{settled:?}") };
        let states: Vec<_> = settled
            .iter()
            .map(|one| if let Settlement::WasSettled(mark) = one { mark.state } else { panic!("{one:?}") })
            .collect();
        assert_eq!(states, [OrderState::PendingPayment, OrderState::Failed]);
    }
    assert_eq!(live(&scene).await, 1);
    assert!(scene.sql.due_releases(0, 9).await.unwrap().is_empty(), "no shard holds its unit");
    assert_eq!(reserve(&scene).await, ReserveFigures { total: 100, free: 99, sold: 1 });
    // And shards are rebuilt without it.
    let read = scene.sql.read_for_recovery(&ShardId::ALL).await.unwrap();
    assert_eq!(read.activities, [(ACTIVITY, ActivityState::Archived)]);
    assert_eq!((read.taken[&ACTIVITY], scene.sql.rebuild_below().await.unwrap()), (Gen(1), Gen(1)));
}

#[tokio::test]
async fn rule_20_whoever_dies_between_two_steps_has_begun_nothing_and_two_at_once_take_it_once() {
    let (scene, _) = scene().await;
    let sql = &scene.sql;
    let gateway = sql.register(ProcessKind::Gateway).await.unwrap().process;
    for steps in 0..2 {
        let mut leadership = sql.try_lead().await.unwrap().unwrap();
        assert!(sql.try_lead().await.unwrap().is_none(), "one leads");
        let generation = leadership.raise_generation(&[true; SHARDS]).await.unwrap();
        assert_eq!(sql.hand_in(gateway, generation, &promises(1, 3)).await.unwrap(), HandIn::InTime);
        if steps > 0 {
            leadership.close_hand_ins(generation, &[]).await.unwrap();
        }
        leadership.resign().await;
        assert_eq!((sql.is_anything_taken().await, live(&scene).await), (false, 0));
        assert_eq!(scene.stock(1).await, (70, 0));
    }
    let taken = take_over(&scene, &[promises(1, 3)]).await;
    assert_eq!((sku_of(&taken).handed_in, live(&scene).await), (3, 3));
    // A leader that was overtaken writes nothing.
    let mut leadership = sql.try_lead().await.unwrap().unwrap();
    let newest = leadership.raise_generation(&[true; SHARDS]).await.unwrap();
    let overtaken = sql.take_over(&mut leadership, Gen(newest.0 - 1), ACTIVITY).await.unwrap();
    assert_eq!(overtaken, Takeover::Gen(newest));
    leadership.resign().await;
}

/// Whether the catalogue tells gateways of a takeover.
trait IsTaken {
    async fn is_anything_taken(&self) -> bool;
}

impl IsTaken for rushgate::store::sql::mysql::MySqlInstallation {
    async fn is_anything_taken(&self) -> bool {
        !self.taken_over().await.unwrap().is_empty()
    }
}

#[tokio::test]
async fn rule_20_orders_go_on_in_the_database_and_their_units_come_back_there() {
    let (scene, store) = scene().await;
    scene.settle(&[reservation(1, 1001), reservation(2, 1002)]).await;
    scene.sql.keep_cancel(UserId(5), OrderNumber(1005)).await.unwrap();
    take_over(&scene, &[promises(5, 2)]).await;
    assert_eq!(reserve(&scene).await, ReserveFigures { total: 100, free: 96, sold: 4 });
    // A cancel that came before, an order that is not paid in time, one that is closed by hand.
    assert_eq!(scene.sql.apply_cancels(OrderNumber(0), 9).await.unwrap().closed, 1);
    let closings = scene.sql.close_overdue(&[OrderNumber(1001)]).await.unwrap();
    assert_eq!((closings.closed, closings.left_open), (1, Vec::new()));
    assert_eq!(store.close_order(OrderNumber(1002)).await.unwrap(), CloseOutcome::Closed);
    assert_eq!(reserve(&scene).await, ReserveFigures { total: 100, free: 99, sold: 1 });
    assert_eq!((scene.stock(1).await, live(&scene).await), ((0, 0), 1));
    assert!(scene.sql.due_releases(0, 9).await.unwrap().is_empty());
    let added = scene.sql.write_load(sku(1), NewLoad::Add(5)).await.unwrap_err();
    assert!(matches!(added, MySqlRefused::TakenOver(ACTIVITY)), "{added}");
    let handed = store.hand_over(sku(1), 5).await.unwrap_err();
    assert!(matches!(handed, MySqlRefused::TakenOver(ACTIVITY)), "{handed}");
    assert!(scene.sql.stock_due().await.unwrap().1.is_empty(), "Redis has to hold nothing of it");
}

#[tokio::test]
async fn rule_20_the_way_back_is_one_addition_and_the_orders_marks() {
    let (scene, store) = scene().await;
    scene.settle(&[reservation(1, 1001), reservation(2, 1002)]).await;
    take_over(&scene, &[promises(5, 2)]).await;
    assert_eq!(sell(&store, 50..52).await, 2);
    store.close_order(OrderNumber(1002)).await.unwrap();
    let mut leadership = scene.sql.try_lead().await.unwrap().unwrap();
    let given = scene.sql.give_activity_back(&mut leadership, ACTIVITY).await.unwrap();
    let of = sku_of(&given);
    assert_eq!((of.total, of.unpaid, of.opened), (100, 5, 95));
    let again = scene.sql.give_activity_back(&mut leadership, ACTIVITY).await.unwrap();
    assert_eq!(again, Takeover::Refused(TakeoverRefused::NotTaken(ACTIVITY)));
    leadership.resign().await;
    assert_eq!(reserve(&scene).await, ReserveFigures { total: 0, free: 0, sold: 0 });
    assert_eq!((scene.stock(1).await, live(&scene).await), ((95, 5), 5));
    assert_eq!(sell(&store, 60..62).await, 0, "the database sells nothing of it any more");
    // What a recovery writes: the one addition, and every order.
    let read = scene.sql.read_for_recovery(&ShardId::ALL).await.unwrap();
    assert_eq!(read.activities, [(ACTIVITY, ActivityState::Loaded)]);
    let units: i64 = read.loads.iter().flat_map(|load| &load.load.changes).map(|(_, units)| *units).sum();
    assert_eq!((units, read.loads.len()), (100, SHARDS));
    let holding: Vec<_> = read.orders.iter().filter(|order| order.mark.state.is_live()).collect();
    assert_eq!(holding.len(), 5);
    for shard in ShardId::ALL {
        let of_shard = |load: &&rushgate::store::sql::mysql::RecoveredLoad| load.load.shard == shard;
        let loaded: i64 = read
            .loads
            .iter()
            .filter(of_shard)
            .flat_map(|load| &load.load.changes)
            .map(|(_, units)| *units)
            .sum();
        let held = holding.iter().filter(|order| order.shard == shard).map(|_| 1_i64).sum::<i64>();
        assert!(loaded >= held, "shard {}: {loaded} for {held}", shard.number());
    }
    // And it can be taken over again.
    let taken = take_over(&scene, &[]).await;
    assert_eq!((sku_of(&taken).total, sku_of(&taken).unpaid, sku_of(&taken).opened), (100, 5, 95));
    assert_eq!(reserve(&scene).await, ReserveFigures { total: 100, free: 95, sold: 5 });
}

#[tokio::test]
async fn rule_20_what_would_be_done_is_told_before_and_changes_nothing() {
    let (scene, _) = scene().await;
    let sql = &scene.sql;
    scene.settle(&[reservation(1, 1001)]).await;
    let gateway = sql.register(ProcessKind::Gateway).await.unwrap().process;
    let look = sql.ask_look().await.unwrap();
    assert_eq!(sql.renew(gateway).await.unwrap().unwrap().look, Some(look));
    assert!(sql.look_answers(look).await.unwrap().is_empty());
    sql.answer_look(gateway, look, &promises(1, 4)).await.unwrap();
    sql.answer_look(gateway, look, &promises(1, 4)).await.unwrap();
    assert_eq!(sql.look_answers(look).await.unwrap(), [gateway]);
    let outlook = sql.takeover_outlook(ACTIVITY, look).await.unwrap();
    let of = outlook.skus[0];
    assert_eq!((outlook.is_taken, outlook.refused, of.total, of.unpaid), (false, None, 70, 1));
    assert_eq!((of.handed_in, of.failed_orders, of.reserve_free, of.opened), (3, 0, 30, 66));
    assert_eq!((sql.generation().await.unwrap(), scene.stock(1).await), (Gen(0), (69, 1)));
    assert_eq!(sku_of(&take_over(&scene, &[promises(1, 4)]).await), of, "it is what it comes to");
    assert!(sql.takeover_outlook(ACTIVITY, look).await.unwrap().is_taken);
}

#[tokio::test]
async fn rule_20_what_redis_does_not_hold_is_refused() {
    let scene = Scene::new().await;
    let refused = async || match take_over(&scene, &[]).await {
        Takeover::Refused(refused) => refused,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused().await, TakeoverRefused::NoActivity(ACTIVITY));
    scene.sql.create(&activity(ACTIVITY, &[(1, 5)]), PAY_WITHIN_MS).await.unwrap();
    assert_eq!(refused().await, TakeoverRefused::NotPreheated(ACTIVITY));
    scene.sql.preheat(ACTIVITY).await.unwrap();
    scene.sql.end_activity(ACTIVITY).await.unwrap();
    assert_eq!(refused().await, TakeoverRefused::Ended(ACTIVITY));
    let outlook: Result<_, StoreError> = scene.sql.takeover_outlook(ACTIVITY, 0).await;
    assert_eq!(outlook.unwrap().refused, Some(TakeoverRefused::Ended(ACTIVITY)));
}
