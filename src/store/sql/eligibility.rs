//! Whom an activity is for and how often he may buy again, as an operator's command changes it in a data folder.

use super::operator::{OperatorConnection, Refused, commit};
use crate::protocol::ActivityId;
use crate::store::catalog::ActivityChange;

impl OperatorConnection {
    /// Changes what may be changed during a sale too; what is `None` stays.
    pub async fn change_activity(
        &mut self,
        id: ActivityId,
        change: ActivityChange<'_>,
    ) -> Result<(), Refused> {
        let mut transaction = self.begin().await?;
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
            return Err(Refused::NoActivity(id));
        }
        commit(transaction).await
    }
}
