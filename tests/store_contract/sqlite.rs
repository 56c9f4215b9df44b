//! The embedded store as an installation: a data folder, the operator's commands, SQL for the audit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rushgate::admin::activities::{Activities, NewActivity, NewSku};
use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use rushgate::store::catalog::{Catalogue, Eligibility};
use rushgate::store::sql::{OpenOptions, SqliteStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempDir;

use crate::installation::{Figures, Installation, OrderRow};

pub struct SqliteInstallation {
    folder: TempDir,
    store: Arc<SqliteStore>,
}

pub fn options(folder: &Path) -> OpenOptions {
    OpenOptions { feed_events_max: SqliteInstallation::FEED_EVENTS as usize, ..OpenOptions::new(folder) }
}

/// A connection beside the store, for looking and for doing harm.
pub async fn connect(folder: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(folder.join("rushgate.db")).connect().await.unwrap()
}

pub fn new_activity(id: ActivityId, skus: &[(SkuId, u32)]) -> NewActivity {
    NewActivity {
        id: id.0.into(),
        name: format!("activity {id}"),
        entry_open: true,
        opens_at_ms: 0,
        closes_at_ms: 4_000_000_000_000,
        per_user_limit: 1,
        buy_again_max: 0,
        pay_within_ms: NewActivity::PAY_WITHIN_MS,
        eligibility: Eligibility::default(),
        skus: skus
            .iter()
            .map(|(id, stock)| NewSku {
                id: id.0.into(),
                name: format!("SKU {id}"),
                price_minor: 100,
                stock: (*stock).into(),
            })
            .collect(),
    }
}

/// Runs an operator's command while the store drives loads, as a serving gateway does.
pub async fn beside<T>(store: &SqliteStore, command: impl Future<Output = T>) -> T {
    let driving = async {
        let mut version = None;
        loop {
            let now = store.version().await.unwrap();
            if version.replace(now) != Some(now) {
                store.drive_loads().await.unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        result = command => result,
        () = driving => unreachable!("it drives for ever"),
    }
}

pub async fn orders(folder: &Path, activity: ActivityId) -> Vec<OrderRow> {
    let mut connection = connect(folder).await;
    let rows: Vec<(i64, i64, u16, u16)> = sqlx::query_as(
        "SELECT number, user, sku, quantity FROM orders WHERE activity = ? AND state IN (1, 2, 3, 7)",
    )
    .bind(activity.0)
    .fetch_all(&mut connection)
    .await
    .unwrap();
    rows.into_iter()
        .map(|(number, user, sku, quantity)| OrderRow {
            number: OrderNumber(number.try_into().unwrap()),
            user: UserId(user.try_into().unwrap()),
            sku: SkuId(sku),
            quantity,
        })
        .collect()
}

/// By SQL of its own, not by the code under test: total from the loads, sold from the orders.
pub async fn figures(folder: &Path, sku: SkuKey) -> Figures {
    let mut connection = connect(folder).await;
    let (total, by_shards, free, in_transit, sold): (i64, i64, i64, i64, i64) = sqlx::query_as(
        "WITH p (a, s) AS (VALUES (?, ?)) SELECT \
         (SELECT IFNULL(SUM(iif(kind = 1, applied, -applied)), 0) FROM loads, p WHERE activity = a AND sku = s), \
         (SELECT IFNULL(SUM(iif(kind = 1, j.value, -j.value)), 0) FROM loads, p, json_each(amounts) j \
          WHERE activity = a AND sku = s), \
         (SELECT IFNULL(SUM(free), 0) FROM stock, p WHERE activity = a AND sku = s), \
         (SELECT IFNULL(SUM(moved_out - brought_in), 0) FROM transfers, p WHERE activity = a AND sku = s), \
         (SELECT IFNULL(SUM(quantity), 0) FROM orders, p \
          WHERE activity = a AND sku = s AND state IN (1, 2, 3, 7))",
    )
    .bind(sku.activity.0)
    .bind(sku.sku.0)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(total, by_shards, "a load's units are those of its 16 amounts");
    let unsigned = |value: i64| u64::try_from(value).expect("no sum is negative");
    Figures {
        total: unsigned(total),
        free: unsigned(free),
        in_transit: unsigned(in_transit),
        sold: unsigned(sold),
    }
}

impl SqliteInstallation {
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    fn operator(&self) -> Activities {
        Activities::new(self.folder.path())
    }
}

impl Installation for SqliteInstallation {
    type Store = SqliteStore;

    const FEED_EVENTS: u64 = 1024;

    async fn create() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&options(folder.path())).await.unwrap());
        Self { folder, store }
    }

    fn store(&self) -> Arc<SqliteStore> {
        Arc::clone(&self.store)
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Arc::new(SqliteStore::open(&options(self.folder.path())).await.unwrap());
    }

    async fn create_activity(&self, id: ActivityId, skus: &[(SkuId, u32)]) {
        let created = beside(&self.store, self.operator().create(&new_activity(id, skus))).await.unwrap();
        assert_eq!(created.pending_loads, [""; 0]);
    }

    async fn add_stock(&self, sku: SkuKey, units: u32) {
        let (id, article) = (sku.activity.0.into(), sku.sku.0.into());
        let operator = self.operator();
        let change = beside(&self.store, operator.stock_add(id, article, units.into())).await.unwrap();
        assert_eq!(change.applied, Some(units));
    }

    async fn remove_stock(&self, sku: SkuKey, units: u32) -> u32 {
        let (id, article) = (sku.activity.0.into(), sku.sku.0.into());
        let operator = self.operator();
        let change = beside(&self.store, operator.stock_remove(id, article, units.into())).await.unwrap();
        change.applied.expect("the store drives loads")
    }

    async fn drive_loads_again(&self) {
        assert_eq!(self.store.drive_loads().await.unwrap(), 0);
    }

    async fn close_order(&self, order: OrderNumber) {
        let closed = self.store.close_order(order, "a test asks for it").await.unwrap();
        assert!(closed.is_some_and(|(_, mark)| mark.state == OrderState::Closed), "{closed:?}");
    }

    async fn close_again(&self, _: UserId, order: OrderNumber) {
        self.store.close_order(order, "a test asks again").await.unwrap();
    }

    async fn orders(&self, activity: ActivityId) -> Vec<OrderRow> {
        orders(self.folder.path(), activity).await
    }

    async fn figures(&self, sku: SkuKey) -> Figures {
        figures(self.folder.path(), sku).await
    }
}
