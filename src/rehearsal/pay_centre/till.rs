//! Which orders are paid, which are closed: whichever came first. Pure.

use std::collections::HashMap;

use fastrand::Rng;

use super::faults::PayFaults;
use crate::payment::{Asked, Payment, PaymentId};
use crate::protocol::OrderNumber;

#[derive(Debug)]
pub(super) struct Till {
    orders: HashMap<OrderNumber, Order>,
    rng: Rng,
    payments: u64,
    paid_late: u64,
}

#[derive(Debug)]
enum Order {
    Paid(Payment),
    Closed,
}

/// What a buyer who pays is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pay {
    /// The money is taken now: the writers are to be told.
    Taken(Payment),
    /// It was paid before.
    WasPaid,
    /// It is closed; no money is taken.
    Closed,
}

impl Till {
    pub(super) fn new(seed: u64) -> Self {
        Self { orders: HashMap::new(), rng: Rng::with_seed(seed), payments: 0, paid_late: 0 }
    }

    /// Whether a fault with this rate happens now.
    pub(super) fn hits(&mut self, rate: f64) -> bool {
        self.rng.f64() < rate
    }

    /// A part of something, at random.
    pub(super) fn part(&mut self) -> f64 {
        self.rng.f64()
    }

    /// A buyer pays.
    pub(super) fn pay(
        &mut self,
        order: OrderNumber,
        amount_minor: u64,
        faults: &PayFaults,
        now_ms: u64,
    ) -> Pay {
        match self.orders.get(&order) {
            Some(Order::Paid(_)) => return Pay::WasPaid,
            Some(Order::Closed) => return Pay::Closed,
            None => {}
        }
        let wrong = u64::from(self.hits(faults.wrong_amount_rate));
        let Some(payment) = self.payment(order, amount_minor.saturating_add(wrong), now_ms) else {
            return Pay::Closed;
        };
        self.orders.insert(order, Order::Paid(payment.clone()));
        Pay::Taken(payment)
    }

    /// A writer asks to close an order: what is said, and a payment that comes all the same.
    pub(super) fn close(
        &mut self,
        order: OrderNumber,
        faults: &PayFaults,
        now_ms: u64,
    ) -> (Asked, Option<Payment>) {
        if self.hits(faults.unknown_rate) {
            return (Asked::Unknown, None);
        }
        match self.orders.get(&order) {
            Some(Order::Paid(payment)) => return (Asked::Paid(payment.clone()), None),
            Some(Order::Closed) => return (Asked::Closed, None),
            None => {}
        }
        self.orders.insert(order, Order::Closed);
        let late = if self.hits(faults.late_rate) { self.payment(order, 1, now_ms) } else { None };
        self.paid_late = self.paid_late.saturating_add(u64::from(late.is_some()));
        (Asked::Closed, late)
    }

    /// Orders paid, orders closed, orders paid after their close.
    pub(super) fn sums(&self) -> (usize, usize, u64) {
        let paid = self.orders.values().filter(|order| matches!(order, Order::Paid(_))).count();
        (paid, self.orders.len().saturating_sub(paid), self.paid_late)
    }

    fn payment(&mut self, order: OrderNumber, amount_minor: u64, paid_at_ms: u64) -> Option<Payment> {
        self.payments = self.payments.saturating_add(1);
        let id = PaymentId::new(&format!("pay-{order}-{}", self.payments))?;
        Some(Payment { id, order, amount_minor, paid_at_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: OrderNumber = OrderNumber(7);

    #[test]
    fn an_order_is_paid_or_closed_whichever_comes_first() {
        let faults = PayFaults::default();
        let mut till = Till::new(1);
        let paid = till.pay(ORDER, 100, &faults, 5);
        let Pay::Taken(payment) = paid.clone() else { unreachable!("{paid:?}") };
        assert_eq!((payment.order, payment.amount_minor, payment.paid_at_ms), (ORDER, 100, 5));
        assert_eq!(till.pay(ORDER, 100, &faults, 6), Pay::WasPaid);
        assert_eq!(till.close(ORDER, &faults, 7), (Asked::Paid(payment), None));
        for _ in 0..2 {
            assert_eq!(till.close(OrderNumber(8), &faults, 7), (Asked::Closed, None));
        }
        assert_eq!(till.pay(OrderNumber(8), 100, &faults, 8), Pay::Closed);
        assert_eq!(till.sums(), (1, 1, 0));
    }

    #[test]
    fn faults_hit_at_their_rates() {
        let always = PayFaults { unknown_rate: 1.0, ..PayFaults::default() };
        let mut till = Till::new(1);
        assert_eq!(till.close(ORDER, &always, 1), (Asked::Unknown, None));
        assert_eq!(till.sums(), (0, 0, 0), "it did nothing");
        let late = PayFaults { late_rate: 1.0, wrong_amount_rate: 1.0, ..PayFaults::default() };
        let (asked, payment) = till.close(ORDER, &late, 1);
        assert_eq!((asked, payment.map(|payment| payment.order)), (Asked::Closed, Some(ORDER)));
        assert_eq!(till.close(ORDER, &late, 1), (Asked::Closed, None), "late once");
        assert_eq!(till.sums(), (0, 1, 1));
        let paid = till.pay(OrderNumber(9), 100, &late, 1);
        assert!(matches!(paid, Pay::Taken(payment) if payment.amount_minor == 101));
        let half = PayFaults { late_rate: 0.5, ..PayFaults::default() };
        let late = (100..1100).filter(|nth| till.close(OrderNumber(*nth), &half, 1).1.is_some()).count();
        assert!((400..600).contains(&late), "{late}");
    }
}
