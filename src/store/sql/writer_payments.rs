//! What the writer task is asked about the life of orders after their purchase; part of it.

use std::sync::Arc;

use super::error::Failure;
use super::jobs::LifeJob;
use super::writer::{Writer, now_ms};
use super::{overdue, payments};
use crate::payment::{Notice, Payment};
use crate::protocol::{OrderNumber, UserId};
use crate::stock::calls::Mark;
use crate::store::payments::{Closings, Overdue, Taken, Unparked};

impl Writer {
    pub(super) async fn live(&mut self, job: LifeJob) {
        match job {
            LifeJob::Pay { payment, signed_within, answer } => {
                let result = self.pay(&payment, signed_within).await;
                let _ = answer.send(self.settle(result).await);
            }
            LifeJob::JudgeParked { id, park_ms, answer } => {
                let result = self.judge_parked(&id, park_ms).await;
                let _ = answer.send(self.settle(result).await);
            }
            LifeJob::TakeOverdue { how, answer } => {
                let result = self.take_overdue(how).await;
                let _ = answer.send(self.settle(result).await);
            }
            LifeJob::Close { orders, answer } => {
                let result = self.close_overdue(&orders).await;
                let _ = answer.send(self.settle(result).await);
            }
            LifeJob::CloseAsked { order, of, reason, answer } => {
                let result = self.close_asked(order, of, reason).await;
                let _ = answer.send(self.settle(result).await);
            }
        }
    }

    async fn pay(&mut self, payment: &Payment, signed_within: Option<(u64, u64)>) -> Result<Notice, Failure> {
        let feeds = Arc::clone(&self.feeds);
        payments::take(self.connect().await?.0, &feeds, payment, signed_within, now_ms()).await
    }

    async fn judge_parked(&mut self, id: &str, park_ms: u64) -> Result<Option<Unparked>, Failure> {
        let feeds = Arc::clone(&self.feeds);
        payments::judge_parked(self.connect().await?.0, &feeds, id, park_ms, now_ms()).await
    }

    async fn take_overdue(&mut self, how: Overdue) -> Result<Taken, Failure> {
        overdue::take(self.connect().await?.0, how, now_ms()).await
    }

    async fn close_overdue(&mut self, orders: &[OrderNumber]) -> Result<(Closings, Option<u64>), Failure> {
        let feeds = Arc::clone(&self.feeds);
        overdue::close(self.connect().await?.0, &feeds, orders, now_ms()).await
    }

    async fn close_asked(
        &mut self,
        order: OrderNumber,
        of: Option<UserId>,
        reason: &str,
    ) -> Result<Option<(UserId, Mark)>, Failure> {
        let feeds = Arc::clone(&self.feeds);
        overdue::close_asked(self.connect().await?.0, &feeds, (order, of), reason, now_ms()).await
    }
}
