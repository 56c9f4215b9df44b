//! Where the audit's books are, and the wait until they are complete.
//!
//! On the embedded store a purchase and its order are one transaction. In the production form writers settle orders
//! after the purchase, so the audit waits for them first: bounded, and what is still open then is a finding. Run by the
//! rehearsal's task; changes nothing anywhere.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::books::{Books, BooksError, MySqlDatabase, Owed, SHARDS, Transfer};
use super::progress::{Phase, Progress};
use crate::protocol::{ActivityId, SkuId};

/// Between two looks at what writers have still to do.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A future that a trait object returns.
pub type Reading<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// One shard's units of an SKU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardUnits {
    /// From 0.
    pub shard: usize,
    /// Free units.
    pub free: i64,
    /// Ever moved from it, by target, and into it, by source.
    pub transfers: Vec<Transfer>,
}

/// The stock that gateways share, as the audit reads it: Redis.
pub trait SharedStock: std::fmt::Debug + Send + Sync {
    /// Events of all shards that writers have not settled and acknowledged.
    fn unsettled_events(&self) -> Reading<'_, u64>;
    /// The SKU's units in every shard that has it.
    fn units(&self, activity: ActivityId, sku: SkuId) -> Reading<'_, Vec<ShardUnits>>;
}

/// Where the books are.
#[derive(Clone, Debug)]
pub enum Source {
    /// The embedded store's database file.
    Sqlite(PathBuf),
    /// The production form.
    Shared {
        /// Its orders.
        database: MySqlDatabase,
        /// Its stock.
        stock: Arc<dyn SharedStock>,
    },
}

impl Source {
    /// Reads the books as they are now.
    pub async fn read(&self, activity: ActivityId, sku: SkuId) -> Result<Books, BooksError> {
        let (database, stock) = match self {
            Self::Sqlite(path) => return Books::read(path, activity, sku).await,
            Self::Shared { database, stock } => (database, stock),
        };
        let mut books = database.read(activity, sku).await?;
        for units in stock.units(activity, sku).await.map_err(BooksError::SharedStock)? {
            if let Some(slot) = books.free.get_mut(units.shard) {
                *slot = Some(units.free);
            }
            books.transfers.extend(units.transfers);
        }
        if books.transfers.iter().any(|transfer| transfer.shard.max(transfer.peer) >= SHARDS) {
            return Err(BooksError::SharedStock("a shard names one that does not exist".to_owned()));
        }
        Ok(books)
    }

    /// Waits until writers have nothing left to do, at most for `patience`; then, what is still open.
    pub(super) async fn settled(
        &self,
        activity: ActivityId,
        patience: Duration,
        progress: &dyn Progress,
    ) -> Option<String> {
        let Self::Shared { database, stock } = self else { return None };
        progress.begin(Phase::Settling, 1);
        let deadline = Instant::now().checked_add(patience);
        let open = loop {
            let open = still_open(database, stock.as_ref(), activity).await;
            if open.is_none() || deadline.is_none_or(|deadline| Instant::now() >= deadline) {
                break open;
            }
            sleep(LOOK_INTERVAL).await;
        };
        progress.step();
        progress.end();
        open.map(|open| format!("{open}, {patience:?} after the sale; see whether a writer runs"))
    }
}

/// What writers have still to do; what cannot be asked counts as open.
async fn still_open(
    database: &MySqlDatabase,
    stock: &dyn SharedStock,
    activity: ActivityId,
) -> Option<String> {
    // The feeds first: settling them is what makes ledger and outbox rows.
    match stock.unsettled_events().await {
        Ok(0) => {}
        Ok(events) => return Some(format!("{events} events are not settled")),
        Err(error) => return Some(format!("Redis cannot be asked for unsettled events ({error})")),
    }
    match database.owed(activity).await {
        Ok(owed) if owed == Owed::default() => None,
        Ok(owed) => Some(format!(
            "{} releases, {} states and {} loads have not reached Redis, {} orders are recorded and not settled",
            owed.releases, owed.states, owed.loads, owed.recorded
        )),
        Err(error) => Some(error.to_string()),
    }
}
