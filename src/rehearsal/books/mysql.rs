//! Reading the production form's MySQL or MariaDB. Run while the audit waits for the writers, and once for the audit
//! itself; nothing is changed.
//!
//! The database knows what was loaded into each shard, but not what is free there: that is Redis's, see
//! [`SharedStock`](crate::rehearsal::SharedStock).

use std::fmt;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlRow, MySqlSslMode};
use sqlx::{ConnectOptions, Connection, MySqlConnection, Row};

use super::{Books, BooksError, CountedStock, OrderRow, shard};
use crate::protocol::{ActivityId, OrderState, SkuId};

/// For everything that one reading takes; a million orders take seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Where the orders are.
#[derive(Clone)]
pub struct MySqlDatabase {
    /// Name or address of the server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who logs in.
    pub user: String,
    /// With which password, if any.
    pub password: Option<String>,
    /// The installation's database.
    pub database: String,
}

/// Without the password.
impl fmt::Debug for MySqlDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlDatabase").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// What writers owe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rehearsal) struct Owed {
    /// Units that have to go back to Redis: ledger rows.
    pub(in crate::rehearsal) releases: i64,
    /// States that Redis has to learn: outbox rows.
    pub(in crate::rehearsal) states: i64,
    /// Additions and removals of stock.
    pub(in crate::rehearsal) loads: i64,
    /// Orders that are recorded and not settled.
    pub(in crate::rehearsal) recorded: i64,
}

impl MySqlDatabase {
    fn address(&self) -> String {
        format!("{}:{}/{}", self.host, self.port, self.database)
    }

    async fn connect(&self) -> Result<MySqlConnection, BooksError> {
        let options = MySqlConnectOptions::new()
            .host(&self.host)
            .port(self.port)
            .username(&self.user)
            .database(&self.database)
            .ssl_mode(MySqlSslMode::Disabled)
            .disable_statement_logging();
        let options = match &self.password {
            Some(password) => options.password(password),
            None => options,
        };
        let failed = |source| BooksError::Connect { address: self.address(), source };
        let mut connection = MySqlConnection::connect_with(&options).await.map_err(failed)?;
        // One snapshot for all queries, and no way to change anything by mistake.
        for setting in
            ["SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET SESSION TRANSACTION READ ONLY"]
        {
            sqlx::raw_sql(setting).execute(&mut connection).await.map_err(failed)?;
        }
        Ok(connection)
    }

    /// Reads the books of one SKU, but for what is free in the shards.
    pub(in crate::rehearsal) async fn read(
        &self,
        activity: ActivityId,
        sku: SkuId,
    ) -> Result<Books, BooksError> {
        self.within(async {
            let mut connection = self.connect().await?;
            let books = read_from(&mut connection, activity, sku).await?;
            connection.close().await?;
            Ok(books)
        })
        .await
    }

    /// What writers owe in one activity.
    pub(in crate::rehearsal) async fn owed(&self, activity: ActivityId) -> Result<Owed, BooksError> {
        self.within(async {
            let mut connection = self.connect().await?;
            let releases = "SELECT COUNT(*) FROM ledger WHERE done = 0 AND activity = ?";
            let states = "SELECT COUNT(*) FROM outbox o JOIN orders r ON r.number = o.number \
                          WHERE o.done = 0 AND r.activity = ?";
            let loads = "SELECT COUNT(*) FROM loads WHERE state = 1 AND activity = ?";
            let recorded = "SELECT COUNT(*) FROM recorded WHERE activity = ?";
            let mut counts = [0_i64; 4];
            for (count, query) in counts.iter_mut().zip([releases, states, loads, recorded]) {
                *count = sqlx::query_scalar(query).bind(activity.0).fetch_one(&mut connection).await?;
            }
            connection.close().await?;
            let [releases, states, loads, recorded] = counts;
            Ok(Owed { releases, states, loads, recorded })
        })
        .await
    }

    async fn within<T>(&self, reading: impl Future<Output = Result<T, BooksError>>) -> Result<T, BooksError> {
        let late = |_| BooksError::Late { address: self.address(), within: READ_TIMEOUT };
        tokio::time::timeout(READ_TIMEOUT, reading).await.map_err(late)?
    }
}

async fn read_from(
    connection: &mut MySqlConnection,
    activity: ActivityId,
    sku: SkuId,
) -> Result<Books, BooksError> {
    let mut snapshot = connection.begin().await?;
    let mut books = Books::default();
    let orders = "SELECT number, user, sku, quantity, attempt, state, shard FROM orders WHERE activity = ?";
    for row in sqlx::query(orders).bind(activity.0).fetch_all(&mut *snapshot).await? {
        books.orders.push(order(&row)?);
    }
    let limit = "SELECT per_user_limit FROM activities WHERE id = ?";
    books.per_user_limit = sqlx::query_scalar(limit).bind(activity.0).fetch_optional(&mut *snapshot).await?;
    // What a shard has not done yet is NULL.
    let loads = "SELECT l.kind, s.shard, s.applied FROM load_shards s JOIN loads l ON l.ordinal = s.ordinal \
                 WHERE l.activity = ? AND l.sku = ? AND s.applied IS NOT NULL";
    for row in sqlx::query(loads).bind(activity.0).bind(sku.0).fetch_all(&mut *snapshot).await? {
        let (kind, number, applied): (u8, u8, u32) =
            (row.try_get("kind")?, row.try_get("shard")?, row.try_get("applied")?);
        books.add_loaded(shard(number.into())?, kind.into(), applied.into())?;
    }
    let counted = "SELECT available, sold FROM sku_stock WHERE activity = ? AND sku = ?";
    let counted: Option<(u32, u32)> =
        sqlx::query_as(counted).bind(activity.0).bind(sku.0).fetch_optional(&mut *snapshot).await?;
    books.counted =
        counted.map(|(available, sold)| CountedStock { available: available.into(), sold: sold.into() });
    snapshot.rollback().await?;
    Ok(books)
}

fn order(row: &MySqlRow) -> Result<OrderRow, BooksError> {
    let (state, number): (u8, u8) = (row.try_get("state")?, row.try_get("shard")?);
    Ok(OrderRow {
        number: row.try_get("number")?,
        user: row.try_get("user")?,
        sku: row.try_get("sku")?,
        quantity: row.try_get("quantity")?,
        attempt: row.try_get("attempt")?,
        state: OrderState::from_wire(state),
        shard: shard(number.into())?,
    })
}
