//! Whom an activity is for, as an operator's command changes it in a data folder.

use super::operator::{OperatorConnection, Refused, commit};
use crate::protocol::ActivityId;

impl OperatorConnection {
    /// Changes whom an activity is for; what is `None` stays.
    pub async fn set_eligibility(
        &mut self,
        id: ActivityId,
        rule: Option<&str>,
        allow_list: Option<bool>,
    ) -> Result<(), Refused> {
        let mut transaction = self.begin().await?;
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
            return Err(Refused::NoActivity(id));
        }
        commit(transaction).await
    }
}
