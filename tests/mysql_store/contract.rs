//! The contract that every reservation store keeps, on the shards in MariaDB.

use std::sync::Arc;
use std::time::Duration;

use rushgate::protocol::{ActivityId, OrderNumber, SkuId, SkuKey, UserId};
use rushgate::stock::calls::SHARDS;
use rushgate::store::catalog::Catalogue;
use rushgate::store::sql::NewLoad;
use rushgate::store::sql::mysql::{CloseOutcome, MySqlInstallation, MySqlOptions, MySqlStore};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, MySqlConnection};

use crate::fixture::{PAY_WITHIN_MS, activity, options, server};
use crate::installation::{Figures, Installation, OrderRow};

pub struct MariaDbInstallation {
    options: MySqlOptions,
    store: Arc<MySqlStore>,
}

impl MariaDbInstallation {
    async fn open(options: &MySqlOptions) -> Arc<MySqlStore> {
        let sql = MySqlInstallation::open(options.clone()).await.unwrap();
        // As after a recovery: what the old generation's processes still send is refused.
        let mut leader = loop {
            if let Some(leader) = sql.try_lead().await.unwrap() {
                break leader;
            }
        };
        leader.raise_generation(&[true; SHARDS]).await.unwrap();
        leader.resign().await;
        Arc::new(MySqlStore::new(sql))
    }

    async fn connect(&self) -> MySqlConnection {
        let options = &self.options;
        MySqlConnectOptions::new()
            .host(&options.host)
            .port(options.port)
            .username(&options.user)
            .password(options.password.as_deref().unwrap())
            .database(&options.database)
            .connect()
            .await
            .unwrap()
    }

    async fn load(&self, sku: SkuKey, load: NewLoad) -> u32 {
        let ordinal = self.store.write_load(sku, load).await.unwrap();
        self.store.drive_loads().await.unwrap();
        self.store.applied_load(ordinal, Some(Duration::from_secs(60))).await.unwrap().expect("it was driven")
    }
}

impl Installation for MariaDbInstallation {
    type Store = MySqlStore;

    const FEED_EVENTS: u64 = 256;

    async fn create() -> Self {
        // Blocking, because the future that starts a server is not `Send`.
        let handle = tokio::runtime::Handle::current();
        let creating = move || handle.block_on(async { server().await.create_database().await.unwrap() });
        let database = tokio::task::spawn_blocking(creating).await.unwrap();
        let options = MySqlOptions { feed_events_max: Self::FEED_EVENTS as u32, ..options(&database) };
        let store = Self::open(&options).await;
        Self { options, store }
    }

    fn store(&self) -> Arc<MySqlStore> {
        Arc::clone(&self.store)
    }

    async fn reopen(&mut self) {
        self.store.installation().close().await;
        self.store = Self::open(&self.options).await;
    }

    async fn create_activity(&self, id: ActivityId, skus: &[(SkuId, u32)]) {
        let unplanned: Vec<_> = skus.iter().map(|(sku, _)| (sku.0, 0)).collect();
        let written = activity(id, &unplanned);
        self.store.installation().create(&written, PAY_WITHIN_MS).await.unwrap();
        for (sku, units) in skus {
            self.store.write_load(SkuKey { activity: id, sku: *sku }, NewLoad::Add(*units)).await.unwrap();
        }
        self.store.drive_loads().await.unwrap();
    }

    async fn add_stock(&self, sku: SkuKey, units: u32) {
        assert_eq!(self.load(sku, NewLoad::Add(units)).await, units);
    }

    async fn remove_stock(&self, sku: SkuKey, units: u32) -> u32 {
        self.load(sku, NewLoad::Remove(units)).await
    }

    async fn drive_loads_again(&self) {
        assert_eq!(self.store.drive_loads().await.unwrap(), 0);
    }

    async fn close_order(&self, order: OrderNumber) {
        assert_eq!(self.store.close_order(order).await.unwrap(), CloseOutcome::Closed);
    }

    async fn close_again(&self, _: UserId, order: OrderNumber) {
        assert_ne!(self.store.close_order(order).await.unwrap(), CloseOutcome::Closed);
    }

    async fn orders(&self, activity: ActivityId) -> Vec<OrderRow> {
        let rows: Vec<(u64, u64, u16, u16)> = sqlx::query_as(
            "SELECT number, user, sku, quantity FROM orders WHERE activity = ? AND state IN (1, 2, 3, 7)",
        )
        .bind(activity.0)
        .fetch_all(&mut self.connect().await)
        .await
        .unwrap();
        rows.into_iter()
            .map(|(number, user, sku, quantity)| OrderRow {
                number: OrderNumber(number),
                user: UserId(user),
                sku: SkuId(sku),
                quantity,
            })
            .collect()
    }

    /// By SQL of its own, not by the code under test: total from the loads, sold from the orders.
    async fn figures(&self, sku: SkuKey) -> Figures {
        let mut connection = self.connect().await;
        let mut sum = async |query: &'static str| -> u64 {
            let sum: i64 = sqlx::query_scalar(query)
                .bind(sku.activity.0)
                .bind(sku.sku.0)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            u64::try_from(sum).expect("no sum is negative")
        };
        let total = sum(
            "SELECT CAST(IFNULL(SUM(IF(kind = 1, 1, -1) * CAST(applied AS SIGNED)), 0) AS SIGNED) FROM sql_loads \
             WHERE activity = ? AND sku = ?",
        )
        .await;
        let free =
            sum("SELECT CAST(IFNULL(SUM(free), 0) AS SIGNED) FROM sql_stock WHERE activity = ? AND sku = ?")
                .await;
        let in_transit = sum(
            "SELECT CAST(IFNULL(SUM(CAST(moved_out AS SIGNED) - CAST(brought_in AS SIGNED)), 0) AS SIGNED) \
             FROM sql_transfers WHERE activity = ? AND sku = ?",
        )
        .await;
        let sold = sum("SELECT CAST(IFNULL(SUM(quantity), 0) AS SIGNED) FROM orders \
             WHERE activity = ? AND sku = ? AND state IN (1, 2, 3, 7)")
        .await;
        Figures { total, free, in_transit, sold }
    }
}

contract_of_every_store!(MariaDbInstallation);
contract!(MariaDbInstallation:
    suite::an_excess_announcement_creates_no_unit,
    suite::an_old_position_is_a_gap,
);
