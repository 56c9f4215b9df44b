//! The database's side of the audit: read by queries of its own, in one read transaction, changing nothing.
//!
//! It shares no code with the store on purpose: a mistake there must not hide itself here.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};

use crate::protocol::{ActivityId, OrderState, SkuId};

/// Shards of an installation.
pub(super) const SHARDS: usize = 16;

/// Why the database cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BooksError {
    /// No database, or one that cannot be opened.
    #[error("the database {path} cannot be read: {source}; name the gateway's data folder")]
    Open {
        /// Which.
        path: String,
        /// Why.
        source: sqlx::Error,
    },
    /// A query failed.
    #[error("the audit's query failed: {0}")]
    Query(#[from] sqlx::Error),
    /// A row holds what no row may hold.
    #[error("the database holds {0}")]
    Row(String),
}

/// An order row of the activity, whatever its SKU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRow {
    /// Order number.
    pub number: u64,
    /// Whose.
    pub user: u64,
    /// Which article.
    pub sku: u16,
    /// Units.
    pub quantity: u16,
    /// 1 for the user's first.
    pub attempt: u8,
    /// Where it stands; `None` for a number that no state has.
    pub state: Option<OrderState>,
    /// The shard that it took its units from.
    pub shard: usize,
}

impl OrderRow {
    /// Whether it holds its units.
    pub fn is_live(&self) -> bool {
        self.state.is_some_and(OrderState::is_live)
    }
}

/// Units between one shard and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The shard whose row it is.
    pub shard: usize,
    /// The other one.
    pub peer: usize,
    /// Ever moved from `shard` to `peer`.
    pub moved_out: i64,
    /// Ever brought from `peer` into `shard`.
    pub brought_in: i64,
}

/// Everything the database says of one SKU, and all orders of its activity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Orders of the activity.
    pub orders: Vec<OrderRow>,
    /// Units loaded into each shard, removals subtracted.
    pub loaded: [i64; SHARDS],
    /// Free units of each shard; `None` where there is no row.
    pub free: [Option<i64>; SHARDS],
    /// Units between shards.
    pub transfers: Vec<Transfer>,
    /// Units that one user may buy; `None` where there is no such activity.
    pub per_user_limit: Option<u16>,
}

impl Books {
    /// Reads them from a gateway's SQLite database.
    pub async fn read(database: &Path, activity: ActivityId, sku: SkuId) -> Result<Self, BooksError> {
        let options = SqliteConnectOptions::new()
            .filename(database)
            .read_only(true)
            .busy_timeout(std::time::Duration::from_secs(30))
            .disable_statement_logging();
        let mut connection = SqliteConnection::connect_with(&options)
            .await
            .map_err(|source| BooksError::Open { path: database.display().to_string(), source })?;
        let books = Self::read_from(&mut connection, activity, sku).await?;
        connection.close().await?;
        Ok(books)
    }

    async fn read_from(
        connection: &mut SqliteConnection,
        activity: ActivityId,
        sku: SkuId,
    ) -> Result<Self, BooksError> {
        // One snapshot: the gateway may still be bringing units in.
        let mut snapshot = connection.begin().await?;
        let mut books = Self::default();
        let activity = i64::from(activity.0);
        let sku = i64::from(sku.0);
        let orders =
            "SELECT number, user, sku, quantity, attempt, state, shard FROM orders WHERE activity = ?";
        for row in sqlx::query(orders).bind(activity).fetch_all(&mut *snapshot).await? {
            books.orders.push(order(&row)?);
        }
        let stock = "SELECT shard, free FROM stock WHERE activity = ? AND sku = ?";
        for row in sqlx::query(stock).bind(activity).bind(sku).fetch_all(&mut *snapshot).await? {
            let shard = shard(row.try_get("shard")?)?;
            if let Some(slot) = books.free.get_mut(shard) {
                *slot = Some(row.try_get("free")?);
            }
        }
        let transfers =
            "SELECT shard, peer, moved_out, brought_in FROM transfers WHERE activity = ? AND sku = ?";
        for row in sqlx::query(transfers).bind(activity).bind(sku).fetch_all(&mut *snapshot).await? {
            books.transfers.push(Transfer {
                shard: shard(row.try_get("shard")?)?,
                peer: shard(row.try_get("peer")?)?,
                moved_out: row.try_get("moved_out")?,
                brought_in: row.try_get("brought_in")?,
            });
        }
        let limit = "SELECT per_user_limit FROM activities WHERE id = ?";
        if let Some(row) = sqlx::query(limit).bind(activity).fetch_optional(&mut *snapshot).await? {
            let limit: i64 = row.try_get("per_user_limit")?;
            let in_range = u16::try_from(limit);
            books.per_user_limit =
                Some(in_range.map_err(|_| BooksError::Row(format!("a per-user limit of {limit}")))?);
        }
        // State 2 is "done": a pending load has not reached the stock rows.
        let loads = "SELECT kind, applied, amounts FROM loads WHERE activity = ? AND sku = ? AND state = 2";
        for row in sqlx::query(loads).bind(activity).bind(sku).fetch_all(&mut *snapshot).await? {
            books.add_load(&row)?;
        }
        snapshot.rollback().await?;
        Ok(books)
    }

    fn add_load(&mut self, row: &SqliteRow) -> Result<(), BooksError> {
        let kind: i64 = row.try_get("kind")?;
        let applied: i64 = row.try_get("applied")?;
        let amounts: String = row.try_get("amounts")?;
        let amounts: Vec<i64> = serde_json::from_str(&amounts)
            .map_err(|_| BooksError::Row(format!("a load whose amounts are `{amounts}`")))?;
        let sum = amounts.iter().fold(0_i64, |sum, amount| sum.saturating_add(*amount));
        if amounts.len() != SHARDS || sum != applied {
            return Err(BooksError::Row(format!(
                "a load of {applied} units whose 16 amounts are {amounts:?}"
            )));
        }
        for (loaded, amount) in self.loaded.iter_mut().zip(amounts) {
            *loaded = match kind {
                1 => loaded.saturating_add(amount),
                2 => loaded.saturating_sub(amount),
                _ => return Err(BooksError::Row(format!("a load of kind {kind}"))),
            };
        }
        Ok(())
    }

    /// Units ever loaded, removals subtracted.
    pub fn total(&self) -> i64 {
        self.loaded.iter().fold(0, |sum, units| sum.saturating_add(*units))
    }

    /// Units free in all shards.
    pub fn free_units(&self) -> i64 {
        self.free.iter().flatten().fold(0, |sum, units| sum.saturating_add(*units))
    }

    /// Units that left a shard and have not arrived in another.
    pub fn in_transit(&self) -> i64 {
        self.transfers.iter().fold(0, |sum, transfer| {
            sum.saturating_add(transfer.moved_out).saturating_sub(transfer.brought_in)
        })
    }

    /// Units of live orders of an SKU.
    pub fn sold_units(&self, sku: SkuId) -> i64 {
        let live = self.orders.iter().filter(|order| order.sku == sku.0 && order.is_live());
        live.fold(0, |sum, order| sum.saturating_add(i64::from(order.quantity)))
    }
}

fn shard(number: i64) -> Result<usize, BooksError> {
    usize::try_from(number)
        .ok()
        .filter(|shard| *shard < SHARDS)
        .ok_or_else(|| BooksError::Row(format!("a row of shard {number}")))
}

fn order(row: &SqliteRow) -> Result<OrderRow, BooksError> {
    let number: i64 = row.try_get("number")?;
    let field = |name: &str| -> Result<i64, sqlx::Error> { row.try_get(name) };
    let out_of_range = || BooksError::Row(format!("order {number}, which has a field out of range"));
    let state = u8::try_from(field("state")?).ok();
    Ok(OrderRow {
        number: u64::try_from(number).map_err(|_| out_of_range())?,
        user: u64::try_from(field("user")?).map_err(|_| out_of_range())?,
        sku: u16::try_from(field("sku")?).map_err(|_| out_of_range())?,
        quantity: u16::try_from(field("quantity")?).map_err(|_| out_of_range())?,
        attempt: u8::try_from(field("attempt")?).map_err(|_| out_of_range())?,
        state: state.and_then(OrderState::from_wire),
        shard: shard(field("shard")?)?,
    })
}
