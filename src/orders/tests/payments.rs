//! [`PaymentStore`] on the rows of the model.

use std::time::Duration;

use super::books::{Books, Kept, Shelf};
use crate::payment::{Cause, Notice, Payment, PaymentState, RefundCause};
use crate::protocol::{OrderNumber, OrderState, UserId};
use crate::stock::calls::Mark;
use crate::store::StoreError;
use crate::store::payments::{
    Closings, Judged, Overdue, OverdueOrder, ParkedPlace, PaymentStore, Taken, Unparked,
};

/// Order numbers: the process above, the sequence below.
pub(super) const SEQUENCE_BITS: u32 = 36;

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

impl Books {
    fn take(&mut self, payment: &Payment) -> Notice {
        if let Some(known) = self.payments.get(payment.id.as_str()) {
            let same =
                known.payment.order == payment.order && known.payment.amount_minor == payment.amount_minor;
            return if same { Notice::Kept { state: known.state, repeated: true } } else { Notice::Conflict };
        }
        let kept = Kept { payment: payment.clone(), state: PaymentState::Parked, received_ms: self.now_ms };
        self.payments.insert(payment.id.as_str().to_owned(), kept);
        let mut state = self.apply(payment);
        if state == PaymentState::Parked && (payment.order.0 >> SEQUENCE_BITS) > self.newest_process.into() {
            state = PaymentState::RefundDue(RefundCause::NoSuchOrder);
            self.payments.get_mut(payment.id.as_str()).unwrap().state = state;
        }
        Notice::Kept { state, repeated: false }
    }

    /// Orders that have gone on, or never came in the time.
    fn judge_ripe(&mut self, park_ms: u64, after: &ParkedPlace, limit: u32) -> Judged {
        let is_old = |kept: &Kept, now_ms: u64| kept.received_ms + park_ms < now_ms;
        let is_ripe = |kept: &&Kept| {
            kept.state == PaymentState::Parked
                && (kept.payment.order.0, kept.payment.id.as_str()) > (after.order, after.payment.as_str())
                && match self.orders.get(&kept.payment.order) {
                    Some(row) => !matches!(row.mark.state, OrderState::Reserved | OrderState::Recorded),
                    None => is_old(kept, self.now_ms),
                }
        };
        let mut ripe: Vec<Kept> = self.payments.values().filter(is_ripe).cloned().collect();
        ripe.sort_by_key(|kept| (kept.payment.order, kept.payment.id.as_str().to_owned()));
        let is_more = ripe.len() > limit as usize;
        ripe.truncate(limit as usize);
        let place = |kept: &Kept| ParkedPlace {
            order: kept.payment.order.0,
            payment: kept.payment.id.as_str().to_owned(),
        };
        let next = ripe.last().filter(|_| is_more).map(place);
        let mut judged = Judged { next, ..Judged::default() };
        for Kept { payment, received_ms, .. } in ripe {
            let mut state = self.apply(&payment);
            let never = received_ms + park_ms < self.now_ms && !self.orders.contains_key(&payment.order);
            if state == PaymentState::Parked && never {
                state = PaymentState::RefundDue(RefundCause::NeverSettled);
                self.payments.get_mut(payment.id.as_str()).unwrap().state = state;
            }
            judged.unparked.extend((state != PaymentState::Parked).then_some(Unparked { payment, state }));
        }
        judged
    }

    fn take_due(&mut self, how: Overdue) -> Taken {
        let now_ms = self.now_ms;
        let mut due: Vec<(u64, OverdueOrder)> = Vec::new();
        for (order, row) in self.orders.iter().filter(|(_, row)| row.mark.state == OrderState::PendingPayment)
        {
            let ask_at_ms = row.mark.pay_by_ms + row.deferred_ms;
            if ask_at_ms <= now_ms {
                let (overdue_ms, waited_ms) = (now_ms - row.mark.pay_by_ms, now_ms - ask_at_ms);
                due.push((ask_at_ms, OverdueOrder { order: *order, overdue_ms, waited_ms }));
            }
        }
        due.sort_by_key(|(ask_at_ms, one)| (*ask_at_ms, one.order));
        due.truncate(how.limit as usize);
        for (_, one) in &due {
            let row = self.orders.get_mut(&one.order).unwrap();
            let delay_ms = ms(how.longest_delay).min(ms(how.first_delay) << row.asked.min(16));
            row.deferred_ms = now_ms + delay_ms - row.mark.pay_by_ms;
            row.asked += 1;
        }
        Taken { now_ms, orders: due.into_iter().map(|(_, one)| one).collect() }
    }
}

impl PaymentStore for Shelf {
    async fn take_payment(
        &self,
        payment: &Payment,
        signed_at_ms: u64,
        window: Duration,
    ) -> Result<Notice, StoreError> {
        self.transact(|books| {
            if signed_at_ms.abs_diff(books.now_ms) > ms(window) {
                return Notice::Stale { now_ms: books.now_ms };
            }
            books.take(payment)
        })
    }

    async fn take_answered_payment(&self, payment: &Payment) -> Result<Notice, StoreError> {
        self.transact(|books| books.take(payment))
    }

    async fn judge_parked(
        &self,
        park_for: Duration,
        after: &ParkedPlace,
        limit: u32,
    ) -> Result<Judged, StoreError> {
        self.transact(|books| books.judge_ripe(ms(park_for), after, limit))
    }

    async fn take_overdue(&self, how: Overdue) -> Result<Taken, StoreError> {
        self.transact(|books| books.take_due(how))
    }

    async fn close_overdue(&self, orders: &[OrderNumber]) -> Result<(Closings, Option<u64>), StoreError> {
        self.transact(|books| {
            let closed = orders.iter().filter(|order| books.close(**order, Cause::TimedOut)).count();
            (Closings { closed: closed as u64, left_open: Vec::new() }, None)
        })
    }

    async fn waiting_for_payment(&self, order: OrderNumber) -> Result<Option<(UserId, Mark)>, StoreError> {
        let is_waiting = |row: &&super::books::Row| row.mark.state == OrderState::PendingPayment;
        self.transact(|books| books.orders.get(&order).filter(is_waiting).map(|row| (row.user, row.mark)))
    }

    async fn refunds_due_count(&self) -> Result<u64, StoreError> {
        let is_one = |kept: &&Kept| matches!(kept.state, PaymentState::RefundDue(_));
        self.transact(|books| books.payments.values().filter(is_one).count() as u64)
    }

    async fn overdue_lag_ms(&self) -> Result<u64, StoreError> {
        Ok(0)
    }
}
