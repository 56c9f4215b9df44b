//! Promises that no shard in Redis takes back (rule 11.4 of the stock protocol): each has an end that its user can be told.
//!
//! Called by the gateway that made the promise. One transaction each; repeated it tells the same.

use super::MySqlInstallation;
use super::failure::{Failure, retried};
use super::order_rows::lock_generation;
use super::releases::{FailOutcome, fail_promise};
use super::takeover;
use crate::protocol::UserId;
use crate::stock::calls::Mark;
use crate::store::StoreError;

impl MySqlInstallation {
    /// Ends a promise that could not be put back with an explicit FAILED row. Idempotent; never over an order that
    /// was settled. Where the activity was taken over it is offered to the shards in this database first.
    pub async fn fail(&self, user: UserId, mark: &Mark, reason: &str) -> Result<FailOutcome, StoreError> {
        retried!(self.options.call_timeout; self.try_fail(user, mark, reason))
    }

    async fn try_fail(&self, user: UserId, mark: &Mark, reason: &str) -> Result<FailOutcome, Failure> {
        let mut transaction = self.pool.begin().await?;
        let now = lock_generation(&mut transaction).await?;
        let outcome = if takeover::is_taken(&mut transaction, mark.sku.activity).await? {
            takeover::late::offer(&mut transaction, self, (user, mark), reason, now).await?
        } else {
            fail_promise(&mut transaction, user, mark, reason, now.1).await?
        };
        transaction.commit().await?;
        Ok(outcome)
    }
}
