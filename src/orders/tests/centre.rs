//! The payment centre of the model: whichever comes first, the money or the close. What is asked and answered goes over the
//! wire as it does in production, as bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;

use crate::orders::payments::{AskError, AskToClose};
use crate::payment::http::PostError;
use crate::payment::{Asked, Payment, PaymentId, ask_body, asked_body, read_ask, read_asked};
use crate::protocol::OrderNumber;

#[derive(Clone, Debug)]
pub(super) enum AtCentre {
    Paid(Payment),
    Closed,
}

#[derive(Debug)]
pub(super) struct Till {
    pub(super) is_up: bool,
    pub(super) has_faults: bool,
    pub(super) orders: BTreeMap<OrderNumber, AtCentre>,
    /// Payments that some writer has to be told of.
    pub(super) to_tell: Vec<Payment>,
    /// All that was taken, by id.
    pub(super) taken: BTreeMap<String, Payment>,
    rng: Rng,
}

/// How writers reach it. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Centre(Arc<Mutex<Till>>);

impl Centre {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Till {
            is_up: true,
            has_faults: true,
            orders: BTreeMap::new(),
            to_tell: Vec::new(),
            taken: BTreeMap::new(),
            rng: Rng::with_seed(seed),
        })))
    }

    pub(super) fn till(&self) -> MutexGuard<'_, Till> {
        self.0.lock().unwrap()
    }
}

impl Till {
    fn hits(&mut self, percent: u8) -> bool {
        self.has_faults && self.rng.u8(..100) < percent
    }

    fn take(&mut self, order: OrderNumber, amount_minor: u64, paid_at_ms: u64) -> Payment {
        let id = PaymentId::new(&format!("p-{}", self.taken.len())).unwrap();
        let payment = Payment { id, order, amount_minor, paid_at_ms };
        self.taken.insert(payment.id.as_str().to_owned(), payment.clone());
        self.to_tell.push(payment.clone());
        payment
    }

    /// A buyer pays; whether the money is taken. Some pay twice, some too much.
    pub(super) fn pay(&mut self, order: OrderNumber, price: u64, now_ms: u64) -> bool {
        if !self.is_up {
            return false;
        }
        let known = self.orders.get(&order).cloned();
        match known {
            Some(AtCentre::Closed) => return false,
            Some(AtCentre::Paid(_)) if !self.hits(10) => return false,
            _ => {}
        }
        let too_much = !self.orders.contains_key(&order) && self.hits(3);
        let payment = self.take(order, price + u64::from(too_much), now_ms);
        if too_much {
            // It counts as no payment of this order, there as here.
            return true;
        }
        self.orders.entry(order).or_insert(AtCentre::Paid(payment));
        true
    }

    /// The money goes back: nobody has paid the order any more, and nobody can.
    pub(super) fn give_back(&mut self, id: &str) {
        for at_centre in self.orders.values_mut() {
            if matches!(at_centre, AtCentre::Paid(payment) if payment.id.as_str() == id) {
                *at_centre = AtCentre::Closed;
            }
        }
    }

    fn close(&mut self, order: OrderNumber, now_ms: u64) -> Asked {
        if self.hits(10) {
            return Asked::Unknown;
        }
        match self.orders.get(&order) {
            Some(AtCentre::Paid(payment)) => Asked::Paid(payment.clone()),
            Some(AtCentre::Closed) => Asked::Closed,
            None => {
                self.orders.insert(order, AtCentre::Closed);
                if self.hits(10) {
                    self.take(order, 1, now_ms);
                }
                Asked::Closed
            }
        }
    }
}

impl AskToClose for Centre {
    async fn ask_to_close(
        &self,
        orders: &[OrderNumber],
        now_ms: u64,
    ) -> Result<Vec<(OrderNumber, Asked)>, AskError> {
        let mut till = self.till();
        if !till.is_up || till.hits(5) {
            return Err(PostError::Unreachable("the model".to_owned(), "it is away".to_owned()).into());
        }
        let asked = read_ask(ask_body(orders).as_bytes()).unwrap();
        let mut answers: Vec<_> = asked.into_iter().map(|order| (order, till.close(order, now_ms))).collect();
        // Done, and nobody hears of it.
        if till.hits(5) {
            return Err(AskError::Status(500));
        }
        if till.hits(5) {
            let at = till.rng.usize(..answers.len());
            answers.remove(at);
        }
        Ok(read_asked(orders, asked_body(&answers).as_bytes())?)
    }
}
