//! Rule 19: what is held back from Redis, sold from the database, and handed over to Redis; each unit in one place.

use std::sync::Arc;

use rushgate::protocol::{OrderNumber, OrderState, SkuId, UserId};
use rushgate::stock::calls::{ItemAnswer, ShardId};
use rushgate::store::ReservationStore;
use rushgate::store::catalog::Catalogue;
use rushgate::store::sql::ReserveFigures;
use rushgate::store::sql::mysql::{CloseOutcome, MySqlRefused, MySqlStore, Preheat, Settlement, ShardLoad};
use rushgate::store::switches::{NewSwitch, SwitchStore};

use crate::fixture::{ACTIVITY, PAY_WITHIN_MS, Scene, activity, reservation, sku};
use crate::installation::Process;

/// A hundred units of SKU 1, thirty of them held back; Redis has the others.
async fn scene() -> (Scene, Arc<MySqlStore>, Vec<ShardLoad>) {
    let scene = Scene::new().await;
    let made = activity(ACTIVITY, &[(1, 100), (2, 7)]);
    scene.sql.create_holding(&made, PAY_WITHIN_MS, &[(SkuId(1), 30)]).await.unwrap();
    let store = Arc::new(MySqlStore::new(scene.sql.clone()));
    assert_eq!(store.drive_loads().await.unwrap(), 1);
    assert_eq!(scene.sql.preheat(ACTIVITY).await.unwrap(), Preheat::Loaded);
    let loads = scene.drive_loads().await;
    (scene, store, loads)
}

fn loaded(loads: &[ShardLoad], sku: u16) -> i64 {
    let of_sku = loads.iter().flat_map(|load| &load.changes).filter(|(of, _)| *of == SkuId(sku));
    of_sku.map(|(_, units)| *units).sum()
}

async fn reserve(scene: &Scene, sku: u16) -> Option<ReserveFigures> {
    scene.sql.figures(ACTIVITY).await.unwrap().1[&SkuId(sku)].reserve
}

async fn free(store: &MySqlStore) -> u32 {
    let mut sum = 0;
    for shard in ShardId::all() {
        sum += store.snapshot(shard).await.unwrap().counters[0].free;
    }
    sum
}

#[tokio::test]
async fn rule_19_units_that_are_held_back_are_never_loaded_into_redis() {
    let (scene, store, loads) = scene().await;
    assert_eq!((loaded(&loads, 1), loaded(&loads, 2)), (70, 7));
    assert_eq!((scene.stock(1).await, scene.stock(2).await), ((70, 0), (7, 0)));
    assert_eq!(free(&store).await, 30);
    assert_eq!(reserve(&scene, 1).await, Some(ReserveFigures { total: 30, free: 30, sold: 0 }));
    assert_eq!(reserve(&scene, 2).await, None);
}

#[tokio::test]
async fn rule_19_what_is_left_is_handed_over_once_and_what_is_sold_is_not() {
    let (scene, store, _) = scene().await;
    let mut process = Process::start(Arc::clone(&store)).await;
    let mut orders = Vec::new();
    for user in 1..=5 {
        let shard = ShardId::of(UserId(user));
        let item = process.item(UserId(user), sku(1), 1);
        let call = process.reserve(shard, vec![item]);
        assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
        orders.push(item.order);
    }
    let (_, taken) = store.hand_over(sku(1), 10).await.unwrap();
    assert_eq!((taken, loaded(&scene.drive_loads().await, 1)), (10, 10));
    assert_eq!(reserve(&scene, 1).await, Some(ReserveFigures { total: 20, free: 15, sold: 5 }));
    // More than is left, twice at the same time: what is there goes once.
    let (one, two) = tokio::join!(store.hand_over(sku(1), 1000), store.hand_over(sku(1), 1000));
    let mut taken = [one.unwrap().1, two.unwrap().1];
    taken.sort_unstable();
    assert_eq!((taken, loaded(&scene.drive_loads().await, 1)), ([0, 15], 15));
    assert_eq!(reserve(&scene, 1).await, Some(ReserveFigures { total: 5, free: 0, sold: 5 }));
    assert_eq!(scene.stock(1).await, (95, 0));
    // A unit that comes back comes back to the reserve, and can be handed over then.
    assert_eq!(store.close_order(orders[0]).await.unwrap(), CloseOutcome::Closed);
    assert_eq!(reserve(&scene, 1).await, Some(ReserveFigures { total: 5, free: 1, sold: 4 }));
    assert_eq!(store.hand_over(sku(1), 1000).await.unwrap().1, 1);
    assert_eq!(reserve(&scene, 1).await, Some(ReserveFigures { total: 4, free: 0, sold: 4 }));
}

#[tokio::test]
async fn rule_19_a_user_who_buys_in_both_worlds_ends_with_the_order_that_settled_first() {
    let (scene, store, _) = scene().await;
    let mut process = Process::start(Arc::clone(&store)).await;
    let (first, second) = (UserId(1), UserId(2));
    let item = process.item(first, sku(1), 1);
    let call = process.reserve(ShardId::of(first), vec![item]);
    assert_eq!(process.done(&call).await.answers, [ItemAnswer::Reserved]);
    // Sold by Redis meanwhile, and settled when it is back.
    let settled = scene.settle(&[reservation(1, 1001), reservation(2, 1002)]).await;
    let Settlement::Superseded { already } = settled[0] else { panic!("{settled:?}") };
    assert_eq!((already.order, already.state), (item.order, OrderState::PendingPayment));
    assert!(matches!(settled[1], Settlement::Settled(mark) if mark.order == OrderNumber(1002)));
    let ItemAnswer::Already(mark) = process.buy(second, sku(1), 1).await else { panic!("bought twice") };
    assert_eq!(mark.order, OrderNumber(1002));
    // His unit goes back to Redis by the ledger; the reserve has sold one.
    assert_eq!(scene.count("SELECT COUNT(*) FROM ledger WHERE number = 1001").await, 1);
    assert_eq!(reserve(&scene, 1).await, Some(ReserveFigures { total: 30, free: 29, sold: 1 }));
    assert_eq!(scene.stock(1).await, (69, 1));
}

#[tokio::test]
async fn nothing_is_handed_over_of_what_is_not_there_or_has_ended() {
    let (scene, store, _) = scene().await;
    let no_sku = store.hand_over(sku(9), 1).await.unwrap_err();
    assert!(matches!(no_sku, MySqlRefused::NoSku(key) if key == sku(9)), "{no_sku}");
    assert_eq!(store.hand_over(sku(2), 5).await.unwrap().1, 0, "nothing of it was held back");
    scene.sql.end_activity(ACTIVITY).await.unwrap();
    let ended = store.hand_over(sku(1), 1).await.unwrap_err();
    assert!(matches!(ended, MySqlRefused::Ended(ACTIVITY)), "{ended}");
    assert_eq!(reserve(&scene, 1).await, Some(ReserveFigures { total: 30, free: 30, sold: 0 }));
}

#[tokio::test]
async fn a_switch_in_the_database_is_told_with_the_next_heartbeat_and_versions_rise() {
    let scene = Scene::new().await;
    let process =
        scene.sql.register(rushgate::store::sql::mysql::ProcessKind::Gateway).await.unwrap().process;
    let mode = async || scene.sql.renew(process).await.unwrap().unwrap().stock_mode;
    assert_eq!(mode().await, None);
    let mut versions = vec![0];
    for value in ["database", "redis", "database"] {
        let text = |text: &str| text.to_owned();
        let new = NewSwitch { name: text("stock.mode"), value: text(value), who: text("w"), why: text("y") };
        let version = scene.sql.set_switch(&new).await.unwrap();
        assert_eq!(mode().await.as_deref(), Some(value));
        let changes = scene.sql.switch_changes(versions[versions.len() - 1], std::time::Duration::ZERO).await;
        assert_eq!(changes.unwrap().iter().map(|set| set.version).collect::<Vec<_>>(), [version]);
        versions.push(version);
    }
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
    assert_eq!(scene.sql.switches().await.unwrap().set.len(), 1);
}
