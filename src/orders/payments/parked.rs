//! Payments that wait for their orders: judged again where the order has gone on some other way than by a settlement,
//! and due for refund when it never came. One that cannot be judged stays, and somebody is called. How many are due for
//! refund is counted by the way, so that no crash between a commit and its line in the log keeps one from being seen.

use std::time::{Duration, Instant};

use super::alarms::Alarms;
use super::life::Life;
use super::notices::tell_refund;
use crate::orders::chore::{Chore, Next};
use crate::orders::counters::Count;
use crate::payment::PaymentState;
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::payments::{Judged, ParkedPlace, PaymentStore, Stuck};

/// Payments in one step.
const PAGE: u32 = 256;

/// Looks at them.
#[derive(Debug, Default)]
pub(in crate::orders) struct Parked {
    /// Payments up to this one were looked at in this pass.
    after: ParkedPlace,
    alarms: Alarms,
}

impl<S: PaymentStore> Chore<Life<S>> for Parked {
    const WHAT: &'static str = "looking after payments that came before their orders";
    const INTERVAL: Duration = Duration::from_secs(2);

    async fn step(&mut self, context: &Life<S>) -> Result<Next, StoreError> {
        let park_for = context.settings.park_for;
        let Judged { unparked, stuck, next } =
            context.store.judge_parked(park_for, &self.after, PAGE).await?;
        crash_point::pass("writer.after_parked");
        context.counters.add_len(Count::PaymentsStuck, stuck.len());
        for Stuck { payment, order, reason } in stuck {
            if self.alarms.is_due(order, Instant::now()) {
                tracing::error!(payment, %order, reason, "a payment cannot be judged; it stays parked, as a dead letter");
            }
        }
        for one in unparked {
            context.counters.add(Count::Unparked, 1);
            match one.state {
                PaymentState::RefundDue(cause) => tell_refund(&one.payment, cause),
                PaymentState::Applied | PaymentState::Parked => tracing::info!(
                    payment = one.payment.id.as_str(), order = %one.payment.order, "a payment has found its order"
                ),
            }
        }
        if next.is_none() {
            context.counters.set_refunds_due(context.store.refunds_due_count().await?);
        }
        let is_more = next.is_some();
        self.after = next.unwrap_or_default();
        Ok(if is_more { Next::AtOnce } else { Next::Later })
    }
}
