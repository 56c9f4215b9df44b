//! Orders that were not paid in time: taken from the database, asked about, closed where the payment centre has.
//!
//! A few of these tasks in every writer. Nothing is held while the payment centre is asked. Of what it says, *closed*
//! closes the order here and gives its units back, in one transaction; *paid* is taken like a notice; *unknown*, silence
//! and nonsense change nothing: the order has its next turn already, later each time.

use std::time::{Duration, Instant};

use super::centre::{AskError, Centre};
use super::notices::tell_refund;
use crate::orders::chore::{Chore, Next};
use crate::orders::context::Context;
use crate::orders::counters::Count;
use crate::payment::{Answer, Asked, Payment};
use crate::protocol::OrderNumber;
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::failures::{Failures, Say};
use crate::store::sql::mysql::{Overdue, OverdueOrder};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// While the payment centre does not answer, it is asked so often.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Each of the tasks calls for somebody no more often.
const CALL_EVERY: Duration = Duration::from_secs(60);

/// One of the tasks.
#[derive(Debug)]
pub(in crate::orders) struct Overdues {
    centre: Centre,
    silent: Failures,
    pause: Duration,
    /// When somebody was called the last time.
    called_at: Option<Instant>,
}

/// What was said, sorted.
#[derive(Debug, Default)]
struct Said {
    closed: Vec<OrderNumber>,
    paid: Vec<Payment>,
    unknown: Vec<OverdueOrder>,
}

impl Overdues {
    /// `None`: nobody is to be asked.
    pub(in crate::orders) fn new(context: &Context) -> Option<Self> {
        let payments = &context.settings.payments;
        let (target, keys) = (payments.centre.clone()?, payments.keys.clone()?);
        let centre = Centre { target, keys, patience: payments.ask_timeout };
        Some(Self { centre, silent: Failures::default(), pause: FIRST_PAUSE, called_at: None })
    }

    /// It does not answer: all of these orders stay as they are, and the next ones wait a little.
    async fn silence(&mut self, context: &Context, orders: &[OverdueOrder], error: &AskError) {
        let count = u64::try_from(orders.len()).unwrap_or(u64::MAX);
        match self.silent.failed(Instant::now()) {
            Say::Nothing => {}
            Say::First => tracing::warn!(
                %error, orders = count, "orders that were not paid in time stay open: the payment centre cannot be asked"
            ),
            Say::Summary(questions) => tracing::warn!(
                %error, questions, "orders stay open: the payment centre still cannot be asked"
            ),
        }
        context.counters.add(Count::AsksFailed, 1);
        self.tell_unknown(context, orders);
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        context.stop.pause(pause).await;
    }

    /// Orders of which nothing is known; somebody is called when one has been overdue for too long.
    fn tell_unknown(&mut self, context: &Context, orders: &[OverdueOrder]) {
        let Some(oldest) = orders.iter().max_by_key(|one| one.overdue_ms) else { return };
        context.counters.add_len(Count::AskedUnknown, orders.len());
        context.counters.note_unknown(oldest.overdue_ms);
        let alarm_ms = u64::try_from(context.settings.payments.alarm_after.as_millis()).unwrap_or(u64::MAX);
        let now = Instant::now();
        let was_called = self.called_at.is_some_and(|at| now.saturating_duration_since(at) < CALL_EVERY);
        if oldest.overdue_ms < alarm_ms || was_called {
            return;
        }
        self.called_at = Some(now);
        tracing::error!(
            order = %oldest.order, overdue_ms = oldest.overdue_ms,
            "an order is long overdue and the payment centre does not say whether it is paid; its units are held"
        );
    }

    async fn act(&mut self, context: &Context, said: Said) -> Result<(), StoreError> {
        if !said.closed.is_empty() {
            crash_point::pass("writer.before_overdue_closed");
            let closed = context.sql.close_overdue(&said.closed).await?;
            crash_point::pass("writer.after_overdue_closed");
            context.counters.add(Count::TimedOut, closed);
            tracing::debug!(
                closed,
                asked = said.closed.len(),
                "orders that were not paid in time are closed"
            );
        }
        for payment in &said.paid {
            let answer = Answer::from(context.sql.take_answered_payment(payment).await?);
            context.counters.add(Count::AskedPaid, 1);
            if let Some(cause) = answer.new_refund() {
                tell_refund(payment, cause);
            } else {
                tracing::info!(
                    payment = payment.id.as_str(), order = %payment.order, ?answer,
                    "an overdue order was paid, says the payment centre"
                );
            }
        }
        self.tell_unknown(context, &said.unknown);
        Ok(())
    }
}

impl Chore for Overdues {
    const WHAT: &'static str = "closing orders that were not paid in time";
    const INTERVAL: Duration = Duration::from_millis(500);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let payments = &context.settings.payments;
        let how = Overdue {
            limit: payments.ask_orders_max,
            // Until then whoever asks has his answer, and has acted on it.
            first_delay: payments.ask_timeout.saturating_mul(2),
            longest_delay: payments.retry_max,
        };
        let taken = context.sql.take_overdue(how).await?;
        if taken.orders.is_empty() {
            return Ok(Next::Later);
        }
        crash_point::pass("writer.after_overdue_taken");
        let numbers: Vec<_> = taken.orders.iter().map(|one| one.order).collect();
        match self.centre.ask_to_close(&numbers, taken.now_ms).await {
            Ok(answers) => {
                if let Some(failures) = self.silent.succeeded() {
                    tracing::info!(failures, "the payment centre answers again");
                }
                self.pause = FIRST_PAUSE;
                crash_point::pass("writer.after_asked");
                self.act(context, sorted(&taken.orders, answers)).await?;
            }
            Err(error) => self.silence(context, &taken.orders, &error).await,
        }
        let is_full = taken.orders.len() >= usize::try_from(how.limit).unwrap_or(usize::MAX);
        Ok(if is_full { Next::AtOnce } else { Next::Later })
    }
}

fn sorted(orders: &[OverdueOrder], answers: Vec<(OrderNumber, Asked)>) -> Said {
    let mut said = Said::default();
    for (one, (order, asked)) in orders.iter().zip(answers) {
        match asked {
            Asked::Closed => said.closed.push(order),
            Asked::Paid(payment) => said.paid.push(payment),
            Asked::Unknown => said.unknown.push(*one),
        }
    }
    said
}
