//! The SQL side of the production form, on MariaDB or MySQL: process numbers and generation, what is on sale, loads,
//! orders and what is owed to Redis, recovery; and a reservation store of its own for when Redis is gone.
//!
//! [`MySqlInstallation`] is cheap to clone and may be used from any task; it holds a pool and no other state but
//! settings that never change. Each method is one transaction (or one statement) and is run again when a deadlock
//! ended it. On a lost connection the outcome is unknown and the error is [`StoreError::Unavailable`](crate::store::StoreError::Unavailable): every method
//! may be repeated, and the unique keys of the schema see to it that nothing happens twice.
//!
//! It never talks to Redis. What Redis has to learn of a change is a row (ledger, outbox, load) written in the
//! transaction that changed it, and stays due until somebody says that it is done.

/// Unix milliseconds by the database's clock, as SQL. Sessions are in UTC, so no hour comes twice.
macro_rules! now_ms {
    () => {
        "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"
    };
}

mod archive;
mod books;
mod broken_promises;
mod cancels;
mod catalog;
mod dead_letters;
mod eligibility;
mod failure;
mod hand_ins;
mod housekeeping;
mod leadership;
mod loads;
mod mend;
mod open;
mod operator;
mod operator_rows;
mod order_rows;
mod order_states;
mod orders;
mod overdue;
mod payment_rows;
mod payment_store;
mod payments;
mod preheat;
mod processes;
mod recorded;
mod recovery;
mod releases;
mod reservation;
mod reservations;
mod settle;
mod settle_batch;
mod settle_carefully;
mod statements;
mod switches;
mod takeover;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use sqlx::MySqlPool;

pub use archive::{ArchiveStep, StillDue};
pub use books::{LedgerRow, LoadShare, PlacedOrder, SqlBooks, StockDue, StockRow};
pub use cancels::Applied;
pub use catalog::ActivityState;
pub use dead_letters::DeadLetter;
pub use leadership::{Leadership, RecoveryRecord};
pub use loads::{LoadRecord, ShardLoad};
pub use mend::StockMended;
pub use open::{MySqlOpenError, MySqlOptions};
pub use operator_rows::MySqlRefused;
pub use overdue::{Closings, LeftOpen, Overdue, OverdueOrder, Taken};
pub use payments::{Judged, Refund, Stuck, Unparked};
pub use preheat::Preheat;
pub use processes::{ProcessKind, RecoveryNotice, Renewal};
pub use recorded::{Backfilled, NotSettled};
pub use recovery::{RecoveredLoad, RecoveredOrder, RecoveredShards};
pub use releases::{CloseOutcome, FailOutcome, MarkUpdate, Release};
pub use reservation::MySqlStore;
pub use reservation::books::ReserveBooks;
pub use reservations::{Reservation, SettleOutcome, Settlement};
#[cfg(test)]
pub(crate) use settle_carefully::tests as settling;
pub use takeover::known::Outlook;
pub use takeover::{TakenSku, Takeover, TakeoverRefused};

use crate::protocol::ActivityId;

/// One installation's database.
#[derive(Clone, Debug)]
pub struct MySqlInstallation {
    options: Arc<MySqlOptions>,
    pool: MySqlPool,
    /// How long orders of an activity may be paid, which never changes once the activity is there.
    pay_within_ms: Arc<RwLock<HashMap<ActivityId, u64>>>,
}

impl MySqlInstallation {
    /// Connects, checks the server, and brings the schema up to date.
    pub async fn open(options: MySqlOptions) -> Result<Self, MySqlOpenError> {
        open::open(options).await
    }

    fn new(options: MySqlOptions, pool: MySqlPool) -> Self {
        Self { options: Arc::new(options), pool, pay_within_ms: Arc::default() }
    }

    /// Closes the connections; what is under way ends first, unless it takes longer than anything may.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(self.options.call_timeout, self.pool.close()).await;
    }
}
