//! Whom an activity is for and how often he may buy again, as an operator's command changes it in the production store's database.

use super::MySqlInstallation;
use super::failure::retried;
use super::operator_rows::{MySqlRefused, Written, commit};
use crate::protocol::ActivityId;
use crate::store::catalog::ActivityChange;

impl MySqlInstallation {
    /// Changes what may be changed during a sale too; what is `None` stays.
    pub async fn change_activity(
        &self,
        id: ActivityId,
        change: ActivityChange<'_>,
    ) -> Result<(), MySqlRefused> {
        retried!(self.options.call_timeout; self.try_change_activity(id, change))?
    }

    async fn try_change_activity(&self, id: ActivityId, change: ActivityChange<'_>) -> Written<()> {
        let mut transaction = self.pool.begin().await?;
        let changed = sqlx::query(
            "UPDATE activities SET eligibility = COALESCE(?, eligibility), \
             allow_list = COALESCE(?, allow_list), \
             buy_again_max = COALESCE(?, buy_again_max) WHERE id = ?",
        )
        .bind(change.rule)
        .bind(change.allow_list)
        .bind(change.buy_again_max)
        .bind(id.0)
        .execute(&mut *transaction)
        .await?;
        if changed.rows_affected() == 0 {
            return Ok(Err(MySqlRefused::NoActivity(id)));
        }
        commit(transaction).await?;
        Ok(Ok(()))
    }
}
