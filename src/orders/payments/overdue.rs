//! Orders that were not paid in time: taken from the database, asked about, closed where the payment centre has.
//!
//! A few of these tasks in every writer, or in the process that serves an embedded store. Nothing is held while the payment centre is asked. Of what it says, *closed*
//! closes the order here and gives its units back, in one transaction; *paid* is taken like a notice; *unknown*, silence
//! and nonsense change nothing: the order has its next turn already, later each time. What a person has to mend is told as
//! an error: an order that cannot be closed, one that is paid there and not here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::PaymentSettings;
use super::alarms::Alarms;
use super::centre::{AskError, AskToClose, Centre};
use super::life::Life;
use super::notices::tell_refund;
use crate::orders::chore::{Chore, Next};
use crate::orders::counters::Count;
use crate::payment::{Answer, Asked, Payment, PaymentState};
use crate::protocol::{OrderNumber, SkuKey};
use crate::store::StoreError;
use crate::store::crash_point;
use crate::store::failures::{Failures, Say};
use crate::store::payments::{Closings, LeftOpen, Overdue, OverdueOrder, PaymentStore};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// While the payment centre does not answer, it is asked so often.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A writer calls for somebody no more often.
const CALL_EVERY: Duration = Duration::from_secs(60);

/// One of the tasks.
#[derive(Debug)]
pub(in crate::orders) struct Overdues<C = Centre> {
    centre: C,
    pause: Duration,
    told: Arc<Mutex<Told>>,
}

/// What the tasks of a writer have told, together: what one has complained of, another finds mended.
#[derive(Debug, Default)]
pub(in crate::orders) struct Told {
    silent: Failures,
    alarms: Alarms,
    /// When somebody was called the last time because nothing is known of an order.
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
    /// All of a process; none where nobody is to be asked.
    pub(in crate::orders) fn tasks(payments: &PaymentSettings) -> Vec<Self> {
        let (Some(target), Some(keys)) = (payments.centre.clone(), payments.keys.clone()) else {
            return Vec::new();
        };
        let centre = Centre { target, keys, patience: payments.ask_timeout };
        let told = Arc::default();
        let task = |_| Self::asking(centre.clone(), Arc::clone(&told));
        (0..payments.asks_in_flight).map(task).collect()
    }
}

impl<C: AskToClose> Overdues<C> {
    /// One that asks there.
    pub(in crate::orders) const fn asking(centre: C, told: Arc<Mutex<Told>>) -> Self {
        Self { centre, pause: FIRST_PAUSE, told }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It does not answer: all of these orders stay as they are, and the next ones wait a little.
    async fn silence<S>(&mut self, context: &Life<S>, orders: &[OverdueOrder], error: &AskError) {
        let count = u64::try_from(orders.len()).unwrap_or(u64::MAX);
        let say = self.told().silent.failed(Instant::now());
        match say {
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
    fn tell_unknown<S>(&self, context: &Life<S>, orders: &[OverdueOrder]) {
        let Some(oldest) = orders.iter().max_by_key(|one| one.overdue_ms) else { return };
        context.counters.add_len(Count::AskedUnknown, orders.len());
        context.counters.note_unknown(oldest.overdue_ms);
        let alarm_ms = u64::try_from(context.settings.alarm_after.as_millis()).unwrap_or(u64::MAX);
        let now = Instant::now();
        let mut told = self.told();
        let was_called = told.called_at.is_some_and(|at| now.saturating_duration_since(at) < CALL_EVERY);
        if oldest.overdue_ms < alarm_ms || was_called {
            return;
        }
        told.called_at = Some(now);
        drop(told);
        tracing::error!(
            order = %oldest.order, overdue_ms = oldest.overdue_ms,
            "an order is long overdue and the payment centre does not say whether it is paid; its units are held"
        );
    }

    async fn act<S: PaymentStore>(&self, context: &Life<S>, said: Said) -> Result<(), StoreError> {
        if !said.closed.is_empty() {
            crash_point::pass("writer.before_overdue_closed");
            let (Closings { closed, left_open }, lag_ms) = context.store.close_overdue(&said.closed).await?;
            crash_point::pass("writer.after_overdue_closed");
            self.tell_left_open(context, &left_open);
            context.counters.add(Count::TimedOut, closed);
            if let Some(lag_ms) = lag_ms {
                context.counters.note_restock(lag_ms);
            }
            tracing::debug!(
                closed,
                asked = said.closed.len(),
                "orders that were not paid in time are closed"
            );
        }
        for payment in &said.paid {
            self.take_paid(context, payment).await?;
        }
        self.tell_unknown(context, &said.unknown);
        Ok(())
    }

    /// The payment centre says that an order is paid: the payment is taken like a notice. Where it does not pay the order
    /// here, the order waits on, and will for ever, unless somebody finds out which of the two is wrong.
    async fn take_paid<S: PaymentStore>(
        &self,
        context: &Life<S>,
        payment: &Payment,
    ) -> Result<(), StoreError> {
        let notice = context.store.take_answered_payment(payment).await?;
        crash_point::pass("writer.after_paid_answer");
        context.counters.add(Count::AskedPaid, 1);
        let (id, order, answer) = (payment.id.as_str(), payment.order, Answer::from(notice));
        if let Answer::Kept { state: PaymentState::Applied, .. } = answer {
            tracing::info!(payment = id, %order, ?answer, "an overdue order was paid, says the payment centre");
            return Ok(());
        }
        if let Some(cause) = answer.new_refund() {
            tell_refund(payment, cause);
        }
        // One that is over meanwhile is nobody's trouble.
        let Some((user, mark)) = context.store.waiting_for_payment(order).await? else { return Ok(()) };
        context.counters.add(Count::AskedPaidUnmatched, 1);
        if self.told().alarms.is_due(order, Instant::now()) {
            let SkuKey { activity, sku } = mark.sku;
            tracing::error!(
                %activity, %sku, %user, %order, payment = id, amount_minor = payment.amount_minor, ?answer,
                "the payment centre says that an order is paid, and that payment does not pay it here; it stays open, \
                 its units are held"
            );
        }
        Ok(())
    }

    fn tell_left_open<S>(&self, context: &Life<S>, left_open: &[LeftOpen]) {
        context.counters.add_len(Count::ClosesRefused, left_open.len());
        for LeftOpen { user, order, sku: SkuKey { activity, sku }, reason } in left_open {
            if self.told().alarms.is_due(*order, Instant::now()) {
                tracing::error!(
                    %activity, %sku, %user, %order, reason,
                    "an order that was not paid in time cannot be closed; its units are held"
                );
            }
        }
    }
}

impl<S: PaymentStore, C: AskToClose> Chore<Life<S>> for Overdues<C> {
    const WHAT: &'static str = "closing orders that were not paid in time";
    const INTERVAL: Duration = Duration::from_millis(500);

    async fn step(&mut self, context: &Life<S>) -> Result<Next, StoreError> {
        let payments = &context.settings;
        let how = Overdue {
            limit: payments.ask_orders_max,
            // Until then whoever asks has his answer, and has acted on it.
            first_delay: payments.ask_timeout.saturating_mul(2),
            longest_delay: payments.retry_max,
        };
        let taken = context.store.take_overdue(how).await?;
        if taken.orders.is_empty() {
            return Ok(Next::Later);
        }
        crash_point::pass("writer.after_overdue_taken");
        let numbers: Vec<_> = taken.orders.iter().map(|one| one.order).collect();
        match self.centre.ask_to_close(&numbers, taken.now_ms).await {
            Ok(answers) => {
                let ended = self.told().silent.succeeded();
                if let Some(failures) = ended {
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
