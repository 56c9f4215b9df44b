//! A MariaDB for this binary, a database for each test, and reservations as a writer reads them.

use rushgate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey, UserId};
use rushgate::stock::calls::{Gen, Mark, ShardId};
use rushgate::store::catalog::{Activity, Eligibility, Sku};
use rushgate::store::orders_modes::OrdersModes;
use rushgate::store::sql::mysql::{
    MySqlInstallation, MySqlOptions, Preheat, Reservation, SettleOutcome, Settlement, ShardLoad,
};
use rushgate_servers::{Database, MariaDb};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, MySqlConnection};
use tokio::sync::OnceCell;

static MARIADB: OnceCell<MariaDb> = OnceCell::const_new();

pub const ACTIVITY: ActivityId = ActivityId(7);
/// Of every activity here.
pub const PAY_WITHIN_MS: u64 = 900_000;

pub async fn server() -> &'static MariaDb {
    MARIADB.get_or_try_init(MariaDb::start).await.unwrap()
}

pub fn options(database: &Database) -> MySqlOptions {
    MySqlOptions {
        password: Some(database.password.clone()),
        ..MySqlOptions::new(&database.host, database.port, &database.user, &database.name)
    }
}

/// An installation in a database of its own.
pub struct Scene {
    pub database: Database,
    pub sql: MySqlInstallation,
}

impl Scene {
    pub async fn new() -> Self {
        let database = server().await.create_database().await.unwrap();
        let sql = MySqlInstallation::open(options(&database)).await.unwrap();
        Self { database, sql }
    }

    /// With one activity that is preheated, its loads done.
    pub async fn with_stock(skus: &[(u16, u32)]) -> Self {
        let scene = Self::new().await;
        scene.sql.create(&activity(ACTIVITY, skus), PAY_WITHIN_MS).await.unwrap();
        assert_eq!(scene.sql.preheat(ACTIVITY).await.unwrap(), Preheat::Loaded);
        scene.drive_loads().await;
        scene
    }

    /// Plays the writer and a Redis that gives all that is asked for.
    pub async fn drive_loads(&self) -> Vec<ShardLoad> {
        let mut driven = Vec::new();
        loop {
            let due = self.sql.due_loads(1000).await.unwrap();
            if due.is_empty() {
                return driven;
            }
            for load in due {
                let applied: Vec<_> =
                    load.changes.iter().map(|(sku, units)| (*sku, units.unsigned_abs() as u32)).collect();
                self.sql.load_done(&load, Gen(0), &applied).await.unwrap();
                driven.push(load);
            }
        }
    }

    /// A connection beside the installation, for looking and for doing harm.
    pub async fn connect(&self) -> MySqlConnection {
        MySqlConnectOptions::new()
            .host(&self.database.host)
            .port(self.database.port)
            .username(&self.database.user)
            .password(&self.database.password)
            .database(&self.database.name)
            .connect()
            .await
            .unwrap()
    }

    pub async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&mut self.connect().await).await.unwrap()
    }

    pub async fn execute(&self, statements: &'static str) {
        sqlx::raw_sql(statements).execute(&mut self.connect().await).await.unwrap();
    }

    /// Free and sold units of an SKU, as SQL counts them.
    pub async fn stock(&self, sku: u16) -> (u64, u64) {
        let figures = self.sql.figures(ACTIVITY).await.unwrap().1;
        let figures = &figures[&SkuId(sku)];
        assert_eq!(figures.total, figures.free + figures.recorded + figures.sold, "{figures:?}");
        (figures.free, figures.sold)
    }

    pub async fn settle(&self, reservations: &[Reservation]) -> Vec<Settlement> {
        self.settle_or_record(reservations, &OrdersModes::default()).await
    }

    pub async fn settle_or_record(
        &self,
        reservations: &[Reservation],
        modes: &OrdersModes,
    ) -> Vec<Settlement> {
        match self.sql.settle_or_record(Gen(0), reservations, modes).await.unwrap() {
            SettleOutcome::Committed(settlements) => settlements,
            other @ SettleOutcome::Gen(_) => panic!("{other:?}"),
        }
    }
}

pub fn activity(id: ActivityId, skus: &[(u16, u32)]) -> Activity {
    Activity {
        id,
        name: format!("activity {id}"),
        entry_open: true,
        opens_at_ms: 4_000_000_000_000,
        closes_at_ms: 4_000_000_100_000,
        per_user_limit: 5,
        buy_again_max: 0,
        eligibility: Eligibility::default(),
        skus: skus
            .iter()
            .map(|(id, stock)| Sku {
                id: SkuId(*id),
                name: format!("SKU {id}"),
                price_minor: 100,
                stock_total: *stock,
            })
            .collect(),
    }
}

pub fn sku(id: u16) -> SkuKey {
    SkuKey { activity: ACTIVITY, sku: SkuId(id) }
}

/// One unit of SKU 1 for a user, under an order number.
pub fn reservation(user: u64, order: u64) -> Reservation {
    let user = UserId(user);
    Reservation {
        shard: ShardId::of(user),
        entry: (Gen(0), order),
        user,
        mark: Mark {
            order: OrderNumber(order),
            sku: sku(1),
            quantity: 1,
            attempt: 1,
            state: OrderState::Reserved,
            pay_by_ms: 0,
        },
    }
}

/// Users 1 to `count` under order numbers 1001 and on.
pub fn reservations(count: u64) -> Vec<Reservation> {
    (1..=count).map(|user| reservation(user, 1000 + user)).collect()
}
