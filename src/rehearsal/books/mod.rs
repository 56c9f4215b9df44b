//! The database's side of the audit: read by queries of its own, in one read transaction, changing nothing.
//!
//! It shares no code with the store on purpose: a mistake there must not hide itself here. `sqlite` reads the embedded
//! store's database, `mysql` that of the production form, whose free units by shard come from elsewhere.

mod mysql;
mod sqlite;

use std::path::Path;

use crate::protocol::{ActivityId, OrderState, SkuId};

pub use mysql::MySqlDatabase;
pub(in crate::rehearsal) use mysql::Owed;

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
    /// A database server that does not answer, or does not let the audit in.
    #[error("the database {address} cannot be read: {source}; check [mysql] in the configuration")]
    Connect {
        /// Host, port and name.
        address: String,
        /// Why.
        source: sqlx::Error,
    },
    /// A database server that takes too long.
    #[error(
        "the database {address} did not answer the audit within {within:?}; see whether it is overloaded"
    )]
    Late {
        /// Host, port and name.
        address: String,
        /// The limit.
        within: std::time::Duration,
    },
    /// The stock that gateways share cannot be read.
    #[error("the stock in Redis cannot be read: {0}")]
    SharedStock(String),
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

    /// Whether it was closed, and gave its units back.
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, Some(OrderState::Closed | OrderState::RefundDue))
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

/// An SKU's stock as the database counts it, whatever the shards say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedStock {
    /// Units that no order holds.
    pub available: i64,
    /// Units that orders hold.
    pub sold: i64,
}

/// What the database keeps of the life of an SKU's orders besides themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifeBooks {
    /// Units given back, by order number.
    pub ledger: Vec<(u64, i64)>,
    /// The orders of payments that have paid one.
    pub applied: Vec<u64>,
    /// Payments that are to be given back.
    pub refunds: u64,
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
    /// What the database itself counts as the SKU's stock, where it keeps such a count beside the shards.
    pub counted: Option<CountedStock>,
    /// What writers had still to do when the books were read; `None` when there was nothing.
    pub unsettled: Option<String>,
    /// Ledger and payments; `None` where they are not read.
    pub life: Option<LifeBooks>,
}

impl Books {
    /// Reads them from a gateway's SQLite database.
    pub async fn read(database: &Path, activity: ActivityId, sku: SkuId) -> Result<Self, BooksError> {
        sqlite::read(database, activity, sku).await
    }

    /// Adds units to what was loaded into a shard, or takes them off.
    fn add_loaded(&mut self, shard: usize, kind: i64, units: i64) -> Result<(), BooksError> {
        let Some(loaded) = self.loaded.get_mut(shard) else {
            return Err(BooksError::Row(format!("a load of shard {shard}")));
        };
        *loaded = match kind {
            1 => loaded.saturating_add(units),
            2 => loaded.saturating_sub(units),
            _ => return Err(BooksError::Row(format!("a load of kind {kind}"))),
        };
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
