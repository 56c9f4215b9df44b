//! The operator's commands on a data folder, served and not served.

use rushgate::admin::activities::{Activities, ActivityError};
use rushgate::protocol::SkuId;
use rushgate::stock::calls::ItemAnswer;
use rushgate::store::catalog::Catalogue;
use rushgate::store::sql::{OpenError, SqliteStore};

use crate::installation::{ACTIVITY, Process, shard, sku, user_of};
use crate::sqlite::{beside, connect, figures, new_activity, options};

fn problems(error: ActivityError) -> Vec<String> {
    match error {
        ActivityError::Invalid(problems) => problems.0,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn without_a_gateway_commands_do_everything_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("made/on/demand");
    let operator = Activities::new(&data_dir);
    let error = operator.list().await.unwrap_err();
    assert!(matches!(error, ActivityError::Open(OpenError::Missing { .. })), "{error}");
    assert!(!data_dir.exists(), "looking creates nothing");

    let created = operator.create(&new_activity(ACTIVITY, &[(SkuId(2), 10), (SkuId(1), 100)])).await.unwrap();
    assert!(created.pending_loads.is_empty());
    let change = operator.stock_add(7, 1, 20).await.unwrap();
    assert_eq!((change.asked, change.applied), (20, Some(20)));
    let change = operator.stock_remove(7, 2, 50).await.unwrap();
    assert_eq!(change.applied, Some(10), "only what is free");
    assert!(change.to_string().starts_with("applied 10 of 50"), "{change}");
    operator.close(7).await.unwrap();

    let list = operator.list().await.unwrap();
    let [activity] = list.as_slice() else { panic!("{list:?}") };
    assert!(!activity.entry_open);
    assert_eq!(
        activity.skus.iter().map(|sku| (sku.id, sku.stock_total)).collect::<Vec<_>>(),
        [(1, 120), (2, 0)]
    );
    let shown = serde_json::to_value(operator.show(7).await.unwrap()).unwrap();
    assert_eq!(shown["skus"][0]["free"], 120);
    assert_eq!(shown["skus"][0]["orders"], serde_json::json!({}));
    operator.open(7).await.unwrap();

    let store = SqliteStore::open(&options(&data_dir)).await.unwrap();
    assert_eq!(store.generation().0, 1, "operators raise no generation");
    assert_eq!(store.drive_loads().await.unwrap(), 0);
    let activities = store.activities().await.unwrap();
    assert!(activities[0].entry_open);
    assert_eq!(activities[0].skus[0].stock_total, 120);
}

#[tokio::test]
async fn what_is_shown_has_these_names() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&options(folder.path())).await.unwrap();
    let operator = Activities::new(folder.path());
    beside(&store, operator.create(&new_activity(ACTIVITY, &[(SkuId(1), 20)]))).await.unwrap();
    // Nobody drives loads any more, so that these stay pending.
    let (added, removed) = tokio::join!(operator.stock_add(7, 1, 5), operator.stock_remove(7, 1, 3));
    let (added, removed) = (added.unwrap(), removed.unwrap());
    assert!(added.load.contains("/add/") && removed.load.contains("/remove/"), "{added} {removed}");
    let listed = serde_json::to_value(operator.list().await.unwrap()).unwrap();
    let shown = serde_json::to_value(operator.show(7).await.unwrap()).unwrap();
    let activity = |sku: serde_json::Value| {
        serde_json::json!({
            "id": 7, "name": "activity 7", "entry_open": true, "opens_at_ms": 0,
            "closes_at_ms": 4_000_000_000_000_u64, "per_user_limit": 1, "buy_again_max": 0, "eligibility": "",
            "allow_list": false, "skus": [sku],
        })
    };
    let sku = serde_json::json!({ "id": 1, "name": "SKU 1", "price_minor": 100, "stock_total": 20 });
    assert_eq!(listed, serde_json::json!([activity(sku)]));
    let mut pending = [
        serde_json::json!({ "id": added.load, "kind": "add", "units": 5 }),
        serde_json::json!({ "id": removed.load, "kind": "remove", "units": 3 }),
    ];
    if shown["skus"][0]["pending_loads"][0] != pending[0] {
        pending.reverse();
    }
    let sku = serde_json::json!({
        "id": 1, "name": "SKU 1", "price_minor": 100, "total": 20, "free": 20, "in_transit": 0, "sold": 0,
        "orders": {}, "pending_loads": pending,
    });
    assert_eq!(shown, activity(sku));
}

#[tokio::test]
async fn beside_a_gateway_commands_are_noticed_and_loads_applied_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(SqliteStore::open(&options(folder.path())).await.unwrap());
    let operator = Activities::new(folder.path());
    let mut version = store.version().await.unwrap();
    let created = operator.create(&new_activity(ACTIVITY, &[(SkuId(1), 32)])).await.unwrap();
    assert_eq!(created.pending_loads.len(), 1, "a gateway that does not drive loads leaves them pending");
    let seen = store.version().await.unwrap();
    assert!(seen > version);
    version = seen;
    let shown = operator.show(7).await.unwrap();
    assert_eq!((shown.skus[0].total, shown.skus[0].pending_loads.len()), (0, 1));
    let mut process = Process::start(std::sync::Arc::clone(&store)).await;
    assert_eq!(process.buy(user_of(shard(0), 0), sku(1), 1).await, ItemAnswer::NotLoaded);

    assert_eq!(store.drive_loads().await.unwrap(), 1);
    assert!(store.version().await.unwrap() > version, "the totals have changed");
    assert_eq!(store.activities().await.unwrap()[0].skus[0].stock_total, 32);
    assert_eq!(process.buy(user_of(shard(0), 0), sku(1), 2).await, ItemAnswer::Reserved);
    let change = beside(&store, operator.stock_add(7, 1, 5)).await.unwrap();
    assert_eq!(change.applied, Some(5));
    process.move_out(shard(1), sku(1), shard(2), 2).await;
    let shown = operator.show(7).await.unwrap();
    let article = &shown.skus[0];
    assert_eq!((article.total, article.free, article.in_transit, article.sold), (37, 33, 2, 2));
    assert_eq!(
        article.orders.iter().map(|(state, n)| (*state, *n)).collect::<Vec<_>>(),
        [("pending_payment", 1)]
    );

    let pending = operator.stock_remove(7, 1, 3).await.unwrap();
    assert_eq!(pending.applied, None);
    assert!(pending.to_string().starts_with("pending: 3 units will be applied"), "{pending}");
    store.close().await;
    // Whoever comes next applies it, be it another command; once.
    operator.stock_add(7, 1, 1).await.unwrap();
    let figures = figures(folder.path(), sku(1)).await;
    assert_eq!((figures.total, figures.free), (35, 31));
}

#[tokio::test]
async fn everything_wrong_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let operator = Activities::new(folder.path());
    operator.create(&new_activity(ACTIVITY, &[(SkuId(1), 1_000_000_000)])).await.unwrap();
    let mut again = new_activity(ACTIVITY, &[(SkuId(1), 5), (SkuId(1), 0)]);
    let told = problems(operator.create(&again).await.unwrap_err());
    for part in ["0 units", "SKU 1 is given more than once", "activity 7 exists already"] {
        assert!(told.iter().any(|problem| problem.contains(part)), "{part} not in {told:#?}");
    }
    again.skus.pop();
    let told = problems(operator.create(&again).await.unwrap_err());
    assert_eq!(told, ["activity 7 exists already; choose another id"]);

    let told = problems(operator.stock_remove(8, 1, 0).await.unwrap_err());
    assert_eq!(told.len(), 2, "{told:?}");
    let told = problems(operator.stock_add(7, 99_999, 1 << 40).await.unwrap_err());
    assert_eq!(told.len(), 2, "{told:?}");
    let told = problems(operator.stock_add(7, 1, 1).await.unwrap_err());
    assert!(told[0].contains("1000000001 units"), "{told:?}");
    for error in [operator.open(9).await.unwrap_err(), operator.close(1 << 33).await.unwrap_err()] {
        assert!(problems(error)[0].contains("there is no activity"));
    }
    assert!(problems(operator.show(9).await.unwrap_err())[0].contains("there is no activity 9"));
    let mut connection = connect(folder.path()).await;
    let loads: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM loads").fetch_one(&mut connection).await.unwrap();
    assert_eq!(loads, 1, "what is refused leaves nothing behind");
}

#[tokio::test]
async fn commands_of_several_operators_do_not_collide() {
    let folder = tempfile::tempdir().unwrap();
    let operator = Activities::new(folder.path());
    operator.create(&new_activity(ACTIVITY, &[(SkuId(1), 16)])).await.unwrap();
    let commands: Vec<_> = (0..12)
        .map(|_| {
            let operator = operator.clone();
            tokio::spawn(async move { operator.stock_add(7, 1, 10).await.unwrap() })
        })
        .collect();
    for command in commands {
        assert_eq!(command.await.unwrap().applied, Some(10));
    }
    assert_eq!(figures(folder.path(), sku(1)).await.free, 136);
}

#[tokio::test]
async fn the_greatest_activity_is_loaded_whole() {
    let folder = tempfile::tempdir().unwrap();
    let operator = Activities::new(folder.path());
    let skus: Vec<_> = (1..=1_000).map(|id| (SkuId(id), u32::from(id))).collect();
    let created = operator.create(&new_activity(ACTIVITY, &skus)).await.unwrap();
    assert!(created.pending_loads.is_empty());
    let shown = operator.show(7).await.unwrap();
    assert!(shown.skus.iter().all(|sku| sku.free == u64::from(sku.id) && sku.total == sku.free));
}
