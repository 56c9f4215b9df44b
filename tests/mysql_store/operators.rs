//! What operators write and read.

use rushgate::protocol::{ActivityId, SkuId};
use rushgate::store::catalog::STOCK_MAX;
use rushgate::store::sql::NewLoad;
use rushgate::store::sql::mysql::{ActivityState, MySqlRefused, Preheat};

use crate::fixture::{ACTIVITY, PAY_WITHIN_MS, Scene, activity, sku};

#[tokio::test]
async fn an_activity_is_read_as_it_was_written_and_every_write_raises_the_version() {
    let scene = Scene::new().await;
    let sql = &scene.sql;
    let mut written = activity(ACTIVITY, &[(1, 100), (9, 7)]);
    written.name = "秒杀 🎉".into();
    sql.create(&written, PAY_WITHIN_MS).await.unwrap();
    assert_eq!(sql.version().await.unwrap(), 1);
    let exists = sql.create(&written, PAY_WITHIN_MS).await.unwrap_err();
    assert!(matches!(exists, MySqlRefused::ActivityExists(ACTIVITY)), "{exists}");

    let mut unloaded = written.clone();
    unloaded.skus.iter_mut().for_each(|sku| sku.stock_total = 0);
    assert_eq!(sql.activities().await.unwrap(), [unloaded]);
    let figures = sql.figures(ACTIVITY).await.unwrap().1;
    assert_eq!(figures[&SkuId(1)].pending_loads[0].id, "7/1/preheat");
    assert_eq!(figures[&SkuId(1)].pending_loads[0].asked, NewLoad::Add(100));

    assert_eq!(sql.preheat(ACTIVITY).await.unwrap(), Preheat::Loaded);
    assert_eq!(sql.activities().await.unwrap(), [written.clone()]);
    sql.set_entry(ACTIVITY, false).await.unwrap();
    written.entry_open = false;
    assert_eq!(sql.activities().await.unwrap(), [written]);
    assert_eq!(sql.version().await.unwrap(), 3);

    let nobody = ActivityId(8);
    assert!(matches!(sql.set_entry(nobody, true).await, Err(MySqlRefused::NoActivity(_))));
    assert!(matches!(sql.figures(nobody).await, Err(MySqlRefused::NoActivity(_))));
    assert_eq!(sql.preheat(nobody).await.unwrap(), Preheat::NoActivity);
    assert!(matches!(sql.write_load(sku(2), NewLoad::Add(1)).await, Err(MySqlRefused::NoSku(_))));
    assert_eq!(sql.version().await.unwrap(), 3, "what was refused changed nothing");
}

#[tokio::test]
async fn an_activity_has_up_to_a_thousand_skus() {
    let scene = Scene::new().await;
    let skus: Vec<_> = (1..=1000).map(|id| (id, u32::from(id))).collect();
    let written = activity(ACTIVITY, &skus);
    scene.sql.create(&written, PAY_WITHIN_MS).await.unwrap();
    scene.sql.preheat(ACTIVITY).await.unwrap();
    let loads = scene.drive_loads().await;
    assert_eq!(loads.len(), 16, "one call per shard tells all SKUs");
    assert!(loads.iter().all(|load| load.changes.len() == 1000 && load.load_id == "7/preheat#1"));
    assert_eq!(scene.sql.activities().await.unwrap(), [written]);
}

#[tokio::test]
async fn preheat_twice_loads_once() {
    let scene = Scene::new().await;
    scene.sql.create(&activity(ACTIVITY, &[(1, 100)]), PAY_WITHIN_MS).await.unwrap();
    assert_eq!(scene.sql.due_loads(100).await.unwrap(), [], "nothing is loaded before the preheat");
    assert_eq!(scene.sql.due_preheats(1).await.unwrap(), []);
    assert_eq!(scene.sql.due_preheats(4_000_000_000_000).await.unwrap(), [ACTIVITY]);
    let mut heating = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let sql = scene.sql.clone();
        heating.spawn(async move { sql.preheat(ACTIVITY).await.unwrap() });
    }
    let mut results = heating.join_all().await;
    results.sort_unstable_by_key(|result| *result != Preheat::Loaded);
    assert_eq!(results[0], Preheat::Loaded);
    assert!(results[1..].iter().all(|result| *result == Preheat::WasLoaded), "{results:?}");
    let loads = scene.drive_loads().await;
    assert_eq!(loads.len(), 16);
    assert_eq!(loads.iter().map(|load| load.changes[0].1).sum::<i64>(), 100);
    assert_eq!(scene.sql.preheat(ACTIVITY).await.unwrap(), Preheat::WasLoaded);
    assert_eq!(scene.drive_loads().await, []);
    assert_eq!(scene.stock(1).await, (100, 0));
    assert_eq!(scene.sql.activity_states().await.unwrap(), [(ACTIVITY, ActivityState::Loaded)]);
}

#[tokio::test]
async fn preheat_after_opening_is_refused() {
    let scene = Scene::new().await;
    let mut opened = activity(ACTIVITY, &[(1, 100)]);
    opened.opens_at_ms = 1;
    scene.sql.create(&opened, PAY_WITHIN_MS).await.unwrap();
    assert_eq!(scene.sql.preheat(ACTIVITY).await.unwrap(), Preheat::AfterOpening);
    assert_eq!(scene.sql.due_loads(100).await.unwrap(), []);
    assert_eq!(scene.sql.due_preheats(u64::from(u32::MAX)).await.unwrap(), []);
    assert_eq!(scene.sql.activity_states().await.unwrap(), [(ACTIVITY, ActivityState::Created)]);
}

#[tokio::test]
async fn additions_never_exceed_the_greatest_stock() {
    let scene = Scene::with_stock(&[(1, STOCK_MAX - 10)]).await;
    let adding: Vec<_> = (0..4)
        .map(|_| {
            let sql = scene.sql.clone();
            tokio::spawn(async move { sql.write_load(sku(1), NewLoad::Add(6)).await })
        })
        .collect();
    let mut written = 0;
    for adding in adding {
        match adding.await.unwrap() {
            Ok(_) => written += 1,
            Err(refused) => assert!(matches!(refused, MySqlRefused::TooMuchStock { .. }), "{refused}"),
        }
    }
    assert_eq!(written, 1);
    assert_eq!(scene.stock(1).await, (u64::from(STOCK_MAX) - 4, 0));
}
