//! The life of orders, as the writers' tasks ask for it, on this database.

use std::time::Duration;

use super::{Closings, Judged, MySqlInstallation, Overdue, Taken};
use crate::payment::{Notice, Payment};
use crate::protocol::{OrderNumber, UserId};
use crate::stock::calls::Mark;
use crate::store::StoreError;
use crate::store::payments::{ParkedPlace, PaymentStore};

impl PaymentStore for MySqlInstallation {
    async fn take_payment(
        &self,
        payment: &Payment,
        signed_at_ms: u64,
        window: Duration,
    ) -> Result<Notice, StoreError> {
        Self::take_payment(self, payment, signed_at_ms, window).await
    }

    async fn take_answered_payment(&self, payment: &Payment) -> Result<Notice, StoreError> {
        Self::take_answered_payment(self, payment).await
    }

    async fn judge_parked(
        &self,
        park_for: Duration,
        after: &ParkedPlace,
        limit: u32,
    ) -> Result<Judged, StoreError> {
        Self::judge_parked(self, park_for, after, limit).await
    }

    async fn take_overdue(&self, how: Overdue) -> Result<Taken, StoreError> {
        Self::take_overdue(self, how).await
    }

    async fn close_overdue(&self, orders: &[OrderNumber]) -> Result<(Closings, Option<u64>), StoreError> {
        Ok((Self::close_overdue(self, orders).await?, None))
    }

    async fn waiting_for_payment(&self, order: OrderNumber) -> Result<Option<(UserId, Mark)>, StoreError> {
        Self::waiting_for_payment(self, order).await
    }

    async fn refunds_due_count(&self) -> Result<u64, StoreError> {
        Self::refunds_due_count(self).await
    }

    async fn overdue_lag_ms(&self) -> Result<u64, StoreError> {
        Self::overdue_lag_ms(self).await
    }
}
