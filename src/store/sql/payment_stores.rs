//! The life of orders, as its tasks ask for it, on the embedded store.
//!
//! Whatever writes is the writer task's; what is only looked at is read beside it, so that a look that finds nothing, a
//! few times a second, costs those who buy nothing.

use std::time::Duration;

use super::jobs::{Job, LifeJob};
use super::sqlite_store::SqliteStore;
use super::writer::now_ms;
use super::{overdue, payments};
use crate::payment::{Notice, Payment};
use crate::protocol::{OrderNumber, OrderState, UserId};
use crate::stock::calls::Mark;
use crate::store::StoreError;
use crate::store::cancels::{CancelStore, Cancelled};
use crate::store::payments::{Closings, Judged, Overdue, ParkedPlace, PaymentStore, Refund, Stuck, Taken};

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl SqliteStore {
    /// Money that is to be given back, the oldest first, at most so many.
    pub async fn refunds_due(&self, limit: u32) -> Result<Vec<Refund>, StoreError> {
        Ok(payments::refunds(&self.readers, limit).await?)
    }

    /// Closes an order that waits for its payment, and gives its units back. How it stands then; `None`: there is none.
    pub async fn close_order(
        &self,
        order: OrderNumber,
        reason: &'static str,
    ) -> Result<Option<(UserId, Mark)>, StoreError> {
        self.ask(|answer| Job::Life(LifeJob::CloseAsked { order, of: None, reason, answer })).await
    }

    async fn pay(&self, payment: &Payment, signed_within: Option<(u64, u64)>) -> Result<Notice, StoreError> {
        let payment = payment.clone();
        self.ask(|answer| Job::Life(LifeJob::Pay { payment, signed_within, answer })).await
    }
}

impl PaymentStore for SqliteStore {
    async fn take_payment(
        &self,
        payment: &Payment,
        signed_at_ms: u64,
        window: Duration,
    ) -> Result<Notice, StoreError> {
        self.pay(payment, Some((signed_at_ms, ms(window)))).await
    }

    async fn take_answered_payment(&self, payment: &Payment) -> Result<Notice, StoreError> {
        self.pay(payment, None).await
    }

    async fn judge_parked(
        &self,
        park_for: Duration,
        after: &ParkedPlace,
        limit: u32,
    ) -> Result<Judged, StoreError> {
        let park_ms = ms(park_for);
        let before_ms = now_ms().saturating_sub(park_ms);
        let ripe = payments::ripe(&self.readers, before_ms, after, limit).await?;
        let is_full = ripe.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let next = ripe.last().filter(|_| is_full);
        let next = next.map(|(id, order)| ParkedPlace { order: order.0, payment: id.clone() });
        let mut judged = Judged { next, ..Judged::default() };
        for (id, order) in ripe {
            let payment = id.clone();
            match self.ask(|answer| Job::Life(LifeJob::JudgeParked { id, park_ms, answer })).await {
                Ok(unparked) => judged.unparked.extend(unparked),
                // It stays so until somebody mends it; the others must not wait for that.
                Err(StoreError::Corrupt(reason)) => judged.stuck.push(Stuck { payment, order, reason }),
                Err(error) => return Err(error),
            }
        }
        Ok(judged)
    }

    async fn take_overdue(&self, how: Overdue) -> Result<Taken, StoreError> {
        let now_ms = now_ms();
        if overdue::lag_ms(&self.readers, now_ms).await? == 0 {
            return Ok(Taken { now_ms, orders: Vec::new() });
        }
        self.ask(|answer| Job::Life(LifeJob::TakeOverdue { how, answer })).await
    }

    async fn close_overdue(&self, orders: &[OrderNumber]) -> Result<(Closings, Option<u64>), StoreError> {
        let orders = orders.to_vec();
        self.ask(|answer| Job::Life(LifeJob::Close { orders, answer })).await
    }

    async fn waiting_for_payment(&self, order: OrderNumber) -> Result<Option<(UserId, Mark)>, StoreError> {
        let found = overdue::find(&self.readers, order).await?;
        Ok(found.filter(|(_, mark)| mark.state == OrderState::PendingPayment))
    }

    async fn refunds_due_count(&self) -> Result<u64, StoreError> {
        Ok(payments::count_refunds(&self.readers).await?)
    }

    async fn overdue_lag_ms(&self) -> Result<u64, StoreError> {
        Ok(overdue::lag_ms(&self.readers, now_ms()).await?)
    }
}

/// At once: an order here is settled from its beginning.
impl CancelStore for SqliteStore {
    async fn cancel(&self, user: UserId, mark: &Mark) -> Result<Cancelled, StoreError> {
        let (order, of, reason) = (mark.order, Some(user), "cancelled by the user");
        let found = self.ask(|answer| Job::Life(LifeJob::CloseAsked { order, of, reason, answer })).await?;
        Ok(match found {
            // It is being paid: a payment that came before its order is judged first.
            Some((_, mark)) if mark.state == OrderState::PendingPayment => Cancelled::Kept,
            Some((_, mark)) => Cancelled::Stands(mark),
            None => Cancelled::NoOrder,
        })
    }
}
