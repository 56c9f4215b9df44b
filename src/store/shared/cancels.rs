//! Cancels of the shared store: a row in the database, whatever Redis does; some writer applies it.

use super::SharedStore;
use crate::protocol::UserId;
use crate::stock::calls::Mark;
use crate::store::StoreError;
use crate::store::cancels::{CancelStore, Cancelled};

impl CancelStore for SharedStore {
    async fn cancel(&self, user: UserId, mark: &Mark) -> Result<Cancelled, StoreError> {
        self.sql().keep_cancel(user, mark.order).await?;
        Ok(Cancelled::Kept)
    }
}
