//! What can go wrong in a transaction, sorted by what is to be done about it.
//!
//! Pure but for the pause between two tries. A lost connection says nothing about the transaction it carried: the
//! caller is told "unavailable" and asks again, and the unique keys decide.

use std::time::Duration;

use sqlx::mysql::MySqlDatabaseError;

use crate::protocol::{ActivityId, OrderState, SkuId, SkuKey};
use crate::stock::calls::ShardId;
use crate::store::StoreError;

/// What ended a transaction.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error("{0}")]
    Corrupt(String),
}

const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const DUPLICATE_ENTRY: u16 = 1062;
/// `--read-only`, read-only transaction, `InnoDB` read-only, tablespace read-only, MySQL's super-read-only included.
const READ_ONLY: [u16; 4] = [1290, 1792, 1836, 1874];
/// MariaDB: a row changed since the transaction's snapshot (`innodb_snapshot_isolation`).
const RECORD_CHANGED: u16 = 1020;

/// Errors about the values of a row, not about the server: range, length, type, null, CHECK (of both servers), a
/// trigger's own.
const BAD_ROW: [u16; 12] = [1048, 1264, 1265, 1292, 1366, 1406, 1452, 1644, 1690, 3819, 4025, 1364];

/// The server's error number.
pub(super) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}

pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| READ_ONLY.contains(&number))
}

impl Failure {
    fn number(&self) -> Option<u16> {
        match self {
            Self::Sql(error) => number(error),
            Self::Corrupt(_) => None,
        }
    }

    /// Whether a unique key refused a row.
    pub(super) fn is_duplicate(&self) -> bool {
        self.number() == Some(DUPLICATE_ENTRY)
    }

    /// Whether a row's own values were refused.
    pub(super) fn is_bad_row(&self) -> bool {
        self.number().is_some_and(|number| BAD_ROW.contains(&number))
    }

    /// Whether the same transaction may go well when it is run again at once.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.number(), Some(DEADLOCK | LOCK_WAIT_TIMEOUT | RECORD_CHANGED))
    }

    pub(super) fn to_store_error(&self) -> StoreError {
        match self {
            Self::Corrupt(reason) => StoreError::Corrupt(reason.clone()),
            Self::Sql(error @ (sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))) => {
                StoreError::Corrupt(error.to_string())
            }
            Self::Sql(error) if is_read_only(error) => StoreError::Unavailable(format!(
                "the database is read-only ({error}); make it writable or name the one that is"
            )),
            Self::Sql(error) => StoreError::Unavailable(error.to_string()),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.to_store_error()
    }
}

/// Nobody knows what became of it: it may have happened, or may yet.
pub(super) fn unanswered(patience: Duration) -> StoreError {
    StoreError::Unavailable(format!("the database did not answer within {patience:?}"))
}

/// How often a transaction is run that a deadlock or a lock's time limit ended.
const TRIES_MAX: u32 = 8;

/// Counts the tries of one transaction.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// Whether to run it again; waits a little longer each time, so that two that met do not meet again.
    pub(super) async fn again(&mut self, failure: &Failure) -> bool {
        if !failure.is_transient() {
            return false;
        }
        self.0 = self.0.saturating_add(1);
        if self.0 >= TRIES_MAX {
            return false;
        }
        tracing::debug!(%failure, tries = self.0, "a transaction is run again");
        let most = 4_u64.saturating_mul(1 << self.0.min(6));
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=most))).await;
        true
    }
}

/// Runs a transaction again while deadlocks end it. One that is not answered within a call's patience counts as lost
/// with its connection, which a half-open link would otherwise keep waiting for ever.
macro_rules! retried {
    ($patience:expr; $once:expr) => {{
        let mut tries = crate::store::sql::mysql::failure::Tries::default();
        loop {
            match tokio::time::timeout($patience, $once).await {
                Ok(Ok(value)) => break Ok(value),
                Ok(Err(failure)) => {
                    if !tries.again(&failure).await {
                        break Err(crate::store::StoreError::from(failure));
                    }
                }
                Err(_) => break Err(crate::store::sql::mysql::failure::unanswered($patience)),
            }
        }
    }};
}
pub(super) use retried;

pub(super) fn sku_key(activity: u32, sku: u16) -> SkuKey {
    SkuKey { activity: ActivityId(activity), sku: SkuId(sku) }
}

pub(super) fn shard_id(number: u8) -> Result<ShardId, Failure> {
    ShardId::new(number).ok_or_else(|| Failure::Corrupt(format!("there is no shard {number}")))
}

pub(super) fn order_state(order: u64, state: u8) -> Result<OrderState, Failure> {
    OrderState::from_wire(state)
        .ok_or_else(|| Failure::Corrupt(format!("order {order} has the unknown state {state}")))
}
