//! Whom an activity is for, as an operator's command changes it in the production store's database.

use super::MySqlInstallation;
use super::failure::retried;
use super::operator_rows::{MySqlRefused, Written, commit};
use crate::protocol::ActivityId;

impl MySqlInstallation {
    /// Changes whom an activity is for; what is `None` stays.
    pub async fn set_eligibility(
        &self,
        id: ActivityId,
        rule: Option<&str>,
        allow_list: Option<bool>,
    ) -> Result<(), MySqlRefused> {
        retried!(self.options.call_timeout; self.try_set_eligibility(id, rule, allow_list))?
    }

    async fn try_set_eligibility(
        &self,
        id: ActivityId,
        rule: Option<&str>,
        allow_list: Option<bool>,
    ) -> Written<()> {
        let mut transaction = self.pool.begin().await?;
        let changed = sqlx::query(
            "UPDATE activities SET eligibility = COALESCE(?, eligibility), \
             allow_list = COALESCE(?, allow_list) WHERE id = ?",
        )
        .bind(rule)
        .bind(allow_list)
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
